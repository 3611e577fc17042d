"""Imports run downward only."""

import ast
import re
import subprocess
import sys
from itertools import accumulate
from pathlib import Path

import pytest

import pate
from pate import cli
from pate._registry import HIGHER, find

ROOT = Path(pate.__file__).parent
DESIGN = ROOT.parent / "docs" / "design.md"


ZONES = {
    "core": """
        _version _lazy _registry _validation _files _progress _own_code _settings
        accounting mechanisms _histogram _release.transaction _release.top_k testing""",
    "pate": """
        _linear _votes _runs _networks data _data_file _votes.store _votes.named
        aggregators _closed_form_plan teachers._jobs student._metrics student._carried
        student._predictions
        _planning.tables _release _planning.completion
        _stages _rehearsal _pipeline _estimator
        testing._aggregators testing._batches testing._sources _commands cli __main__""",
    "networks": """
        data.features._torch_maps models data._datasets data._augmentation _network_settings
        data.features._modules _checkpoints teachers student _stages.teachers _stages.student
        _commands.student_network""",
    "lab": """
        data.faces accounting._autodp _planning _silos _reporting _audit
        _commands.audit _commands.faces _commands.peers _commands.planning
        _commands.report _commands.silo""",
}
"""Rooms from the bottom to the top: each imports only what comes before it.

A room is a module, or a package with all that has no entry of its own.
"""
RANKS = {
    room: (zone, rank)
    for zone, rooms in enumerate(ZONES.values())
    for rank, room in enumerate(rooms.split())
}


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


FILES = {
    module_of(file): file
    for file in sorted(ROOT.rglob("*.py"))
    if file.parent.name != "templates"  # which `pate init` writes for others
}
TREES = {module: ast.parse(file.read_text()) for module, file in FILES.items()}
FACADES = {
    module: {
        alias.name: str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for module, tree in TREES.items()
    if FILES[module].name == "__init__.py" and "._" not in module
}
"""The home of each name of a public package, which may name what is above it."""


def room_of(module: str) -> str:
    words = module.split(".")[1:]
    rooms = (".".join(words[:number]) for number in range(len(words), 0, -1))
    return next(room for room in rooms if room in RANKS)


def zone_of(module: str) -> str:
    return [*ZONES][RANKS[room_of(module)][0]]


def imported(module: str) -> set[str]:
    """Return the modules of the package that a module imports anywhere in it, late or for types.

    A name of a facade counts as its home, and a module as the packages around it.
    """
    found = set()
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inside = f"{node.module}.{alias.name}"
                home = FACADES.get(str(node.module), {}).get(alias.name, str(node.module))
                found.add(inside if inside in TREES else home)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    for name in sorted(found & TREES.keys()):
        found |= {
            package
            for package in accumulate(name.split("."), "{}.{}".format)
            if any_import(package)
        }
    return found & TREES.keys() - FACADES.keys() - {module}


def any_import(module: str) -> bool:
    return any(isinstance(node, ast.ImportFrom | ast.Import) for node in TREES[module].body)


def test_every_module_has_a_room_and_every_room_a_module() -> None:
    assert {room_of(module) for module in TREES if module != "pate"} == RANKS.keys()


def test_imports_run_downward() -> None:
    """What a higher zone has is found by name (`pate._registry`), or named by a facade."""
    upward = {
        f"{module} -> {name}"
        for module in TREES.keys() - FACADES.keys()
        for name in imported(module)
        if room_of(module) != room_of(name) and RANKS[room_of(name)] > RANKS[room_of(module)]
    }
    assert not upward


@pytest.mark.parametrize("name", list(HIGHER))
def test_a_name_of_a_higher_zone_is_found(name: str) -> None:
    module = HIGHER[name].partition(":")[0]
    assert zone_of(module) in ("networks", "lab")
    assert find(name).__name__ == name


WITHOUT_FRAMEWORKS = """
import importlib, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        heavy = "torch torchvision pytorch_lightning lightning_fabric matplotlib autodp jinja2 Crypto"
        if name.partition(".")[0] in heavy.split():
            raise ImportError(name)

sys.meta_path.insert(0, Missing())
"""


def test_the_two_lower_zones_import_no_framework() -> None:
    """Imported one after the other: the first that imports one is named."""
    lower = [
        module
        for module in TREES
        if module not in {"pate", "pate.__main__"} and zone_of(module) in ("core", "pate")
    ]
    assert len(lower) > 90
    script = WITHOUT_FRAMEWORKS + f"for name in {lower}: importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_page_names_what_each_zone_needs() -> None:
    page = DESIGN.read_text()
    for zone in ZONES:
        (row,) = re.findall(rf"^\| \*\*{zone}\*\* \|.*\| ([^|]*) \|$", page, flags=re.MULTILINE)
        assert third_party(zone) == set(re.findall(r"\w+", row)), zone


def third_party(zone: str) -> set[str]:
    """Return the packages that the modules of a zone import, late ones too, but not for types alone."""
    found = set()
    for module in TREES.keys() - {"pate"}:
        if zone_of(module) == zone:
            tree = TREES[module]
            blocks = [node for node in tree.body if isinstance(node, ast.If)]
            typed = {
                id(node)
                for block in blocks
                if ast.unparse(block.test) == "TYPE_CHECKING"
                for node in ast.walk(block)
            }
            for node in [node for node in ast.walk(tree) if id(node) not in typed]:
                if isinstance(node, ast.ImportFrom):
                    found.add(str(node.module).partition(".")[0])
                elif isinstance(node, ast.Import):
                    found |= {alias.name.partition(".")[0] for alias in node.names}
    return found - {"pate"} - sys.stdlib_module_names


def test_the_page_lists_every_module_in_its_zone() -> None:
    """A row names a folder, and the modules in it by their files."""
    listed, zone = set(), ""
    for line in DESIGN.read_text().splitlines():
        if heading := re.fullmatch(r"### (\w+)", line):
            zone = heading[1]
        elif row := re.fullmatch(r"\| `(pate/[a-z_/]*)` \| (.*) \|", line):
            place = row[1].strip("/").replace("/", ".")
            listed |= {(zone, f"{place}.{name}") for name in re.findall(r"`(\w+)`", row[2])}
    modules = {(zone_of(module), module) for module in TREES if module != "pate"}
    packages = {(zone, module) for zone, module in modules if FILES[module].stem == "__init__"}
    assert modules - packages <= listed
    assert {(zone, name) for zone, name in listed if name in TREES} <= modules


def test_names_on_the_page_are_names_in_the_code() -> None:
    """Names with an underscore or with capitals inside, and files."""
    root = ROOT.parent
    files = [file for room in ("pate", "tests", "scripts") for file in (root / room).rglob("*.py")]
    words = {word for file in files for word in re.findall(r"\w+", file.read_text())}
    words |= {file.stem for file in files}
    shown = re.findall(r"`([^`\n]+)`", DESIGN.read_text())
    names = {name for code in shown for name in re.findall(r"\b\w+\b(?!\*)", code)}
    compound = {
        name for name in names if re.search(r"_|[a-z][A-Z]", name.strip("_")) or name[0] == "_"
    }
    assert len(compound) > 150 and compound - words == set()
    modules = {name for code in shown for name in re.findall(r"\w+\.py$", code)}
    assert modules <= {file.name for file in files}


def test_tests_that_the_makefile_names_exist() -> None:
    """A name that is gone from the lists of zones would be passed over in silence."""
    named = re.findall(r"\w+\.py\b", (ROOT.parent / "Makefile").read_text())
    files = {file.name for file in (ROOT.parent / "tests").rglob("*.py")}
    assert len(named) > 30
    assert {name for name in named if not {name, f"test_{name}"} & files} == set()


CLASSIFIERS = """
import numpy as np
import pate
from sklearn.tree import DecisionTreeClassifier

generator = np.random.default_rng(0)
X = generator.standard_normal((900, 5))
Y = (X @ generator.standard_normal((5, 3)) > 0).astype(int)
for teacher in (None, DecisionTreeClassifier(max_depth=2)):
    classifier = pate.PateClassifier(epsilon=20.0, teacher=teacher, n_teachers=None if teacher is None else 30)
    assert classifier.fit(X[:700], Y[:700], X_public=X[700:]).predict(X[700:]).shape == (200, 3)
"""
COMMANDS = """
import numpy as np
from pate import cli

generator = np.random.default_rng(0)
X = generator.standard_normal((900, 5)).astype(np.float32)
Y = (X @ generator.standard_normal((5, 3)) > 0).astype(np.uint8)
names = np.char.mod("r%03d", np.arange(900))
np.savez("table.npz", X=X, Y=Y, ids=names, split=np.repeat([0, 1, 2], [600, 200, 100]))
ballots = np.repeat(Y[:, None], 30, axis=1)
np.savez("votes.npz", ballots=ballots, ids=names, label_names=np.array(["a", "b", "c"]))
with open("counts.csv", "w") as file:
    file.write("item,count\\na,900\\nb,400\\nc,10\\n")
noise = "--aggregator NoisyVotes --aggregator.sigma_votes 9 --num_labels 3 --num_teachers 30"
for words in (
    f"account {noise} --num_queries 20 --delta 1e-5",
    "calibrate --aggregator NoisyVotes --target_epsilon 9 --num_labels 3 --num_teachers 30"
    " --num_queries 20 --delta 1e-5",
    "topk --counts counts.csv --k 2 --target_epsilon 4 --delta 1e-6 --output top.csv",
    "label --votes votes.npz --run labels --aggregator NoisyVotes --target_epsilon 9 --delta 1e-5",
    "run table --data.init_args.path=table.npz --run run --label.target_epsilon=20 --references",
    "student predict --run run",
    "predict run/public/student/model table.npz --output answers.csv",
    "ledger verify --ledger table.ledger.sqlite --statement run/public/privacy.json",
    "check run",
    "choose run/public/student/model copy --run run --output chosen.csv --target_epsilon 1 --delta 1e-6",
    "report run",
    "report run --private",
    "ledger show --ledger table.ledger.sqlite",
    "status run",
):
    if words.startswith("choose"):
        import shutil
        shutil.copytree("run/public/student/model", "copy")
    assert cli.main(words.split()) == 0, words
"""


def without_torch(script: str, folder: Path) -> None:
    """Run a program where nothing that networks and plots need can be imported."""
    blocked = WITHOUT_FRAMEWORKS.replace(" jinja2", "")  # which a report needs
    done = subprocess.run(
        [sys.executable, "-c", blocked + script],
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_commands_and_an_estimator_on_a_table_need_no_torch(tmp_path: Path) -> None:
    """From votes or records to labels, a student, its predictions and a report; whoever has a table
    and scikit-learn imports no framework for networks."""
    pytest.importorskip("sklearn")
    without_torch(COMMANDS + CLASSIFIERS, tmp_path)


def loaded(module: str) -> set[str]:
    """Return all that importing ``module`` imports: what stands in functions is imported when they
    are called."""
    found: set[str] = set()
    left = [module]
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        left += [name.rpartition(".")[0]] if "." in name else []
        if name not in TREES:
            continue  # a name within a module, or another package
        for node in TREES[name].body:
            if isinstance(node, ast.ImportFrom):
                left += [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                left += [alias.name for alias in node.names]
    return found


@pytest.mark.parametrize("command", list(cli._COMMANDS))
def test_no_command_imports_lightning_to_start(command: str) -> None:
    """It takes longer to import than all else together; what `teachers --help` really loads, a slow
    test looks up."""
    assert "pytorch_lightning" not in loaded(f"pate._commands.{cli._COMMANDS[command][0]}")


def test_the_package_never_imports_models_or_scripts() -> None:
    """Networks are named in configurations; what lies beside the package in the checkout is no part
    of it."""
    found = re.compile(r"^\s*(import|from) ((pate\.)?models|scripts|tests)\b", flags=re.MULTILINE)
    inside = ROOT / "models"
    assert not [
        file
        for file in ROOT.rglob("*.py")
        if found.search(file.read_text()) and file.parent != inside
    ]


def test_only_releases_meet_mechanisms_and_noise() -> None:
    """What is PRIVATE becomes public in one room."""
    above = [
        file
        for room in ("_stages", "_commands", "_planning")
        for file in (ROOT / room).rglob("*.py")
    ]
    assert above
    mechanisms = re.compile(r"pate\.mechanisms")
    assert not [file for file in above if mechanisms.search(file.read_text())]


OPTION = re.compile(r"(?<![\w-])--[a-z]\w+")
STILL_NAME_OPTIONS = {"_reporting.sections", "_stages.student", "aggregators._base"}
"""A page that says which command comes next, and modules whose errors are yet to be mended."""


def test_errors_below_the_commands_name_fields_and_no_options() -> None:
    """The commands add the options; a whole command in backticks is named by its own name."""
    found = {
        module.removeprefix("pate.")
        for module, tree in TREES.items()
        for text in texts(tree)
        if OPTION.search(re.sub("`pate [^`]*`", "", text)) and not OPTION.fullmatch(text)
        if not module.startswith(("pate._commands.", "pate.cli"))
    }
    assert found <= STILL_NAME_OPTIONS | {"_runs.run"}  # the name of a stage


def texts(tree: ast.Module) -> set[str]:
    """Return the texts of a module that are no docstrings, without what is filled in."""
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told
    }


PRIVATE_PATH = re.compile(r"\bpate(\.\w+)*\._[a-z]")


def test_what_users_read_names_no_private_path() -> None:
    """What begins with an underscore may change at any time: nothing that is shown may rest on
    it."""
    top = ROOT.parent
    rooms = [top / "docs", top / "configs", top / "models", ROOT / "_commands" / "templates"]
    files = [
        top / "README.md",
        top / "CONTRIBUTING.md",
        *(file for room in rooms for file in room.rglob("*.*")),
    ]
    texts = {
        file: file.read_text()
        for file in files
        if file.suffix in (".md", ".ipynb", ".yaml", ".json", ".py")
    }
    assert len(texts) > 60
    assert [file for file, text in texts.items() if PRIVATE_PATH.search(text)] == []
