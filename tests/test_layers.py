"""Imports run downward only."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from importlib.metadata import entry_points
from itertools import accumulate
from pathlib import Path

import pytest

import pate
from pate._core.package import find
from pate._labeling.commands.table import commands

ROOT = Path(pate.__file__).parent
DESIGN = ROOT.parent / "docs" / "design.md"


ZONES = ("_core", "_labeling", "_networks", "lab")
"""The folders of the package, from the bottom to the top; each of their folders is a room."""


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


FILES = {module_of(file): file for file in sorted(ROOT.rglob("*.py"))}
TREES = {module: ast.parse(file.read_text()) for module, file in FILES.items()}
FACES = {module for module in TREES if module.count(".") == 1} - {"pate.cli", "pate.__main__"}
FACES -= {f"pate.{zone}" for zone in ZONES}
"""The public packages: each names what it has, from any zone, and imports it on first use."""


def zone_of(module: str) -> str:
    """Return the zone of a module; the faces, the command line and the package have none."""
    words = module.split(".")
    return words[1] if words[1:] and words[1] in ZONES else ""


def room_of(module: str) -> str:
    """Return a folder of a zone, or a module beside these folders."""
    return ".".join(module.split(".")[1:3])


def imported(module: str) -> set[str]:
    """Return the modules of the package that a module imports anywhere in it, late or for types.

    A module counts as the packages around it, which are imported with it.
    """
    found = set()
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inside = f"{node.module}.{alias.name}"
                found.add(inside if inside in TREES else str(node.module))
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    for name in sorted(found & TREES.keys()):
        found |= {
            package
            for package in accumulate(name.split("."), "{}.{}".format)
            if any_import(package)
        }
    return found & TREES.keys() - {"pate", module}


def any_import(module: str) -> bool:
    return any(isinstance(node, ast.ImportFrom | ast.Import) for node in TREES[module].body)


def test_imports_run_downward_between_zones() -> None:
    """What a higher zone has is found by an entry point (`pate._core.package`)."""
    placed = [module for module in TREES if zone_of(module)]
    assert len(placed) > 100
    upward = {
        f"{module} -> {name}"
        for module in placed
        for name in imported(module)
        if zone_of(name) and ZONES.index(zone_of(name)) > ZONES.index(zone_of(module))
    }
    assert not upward


def test_the_package_itself_imports_no_face() -> None:
    """A face may name anything: who imports it could import what is above."""
    faces = "|".join(sorted(face.removeprefix("pate.") for face in FACES))
    used = re.compile(
        rf"^\s*(?:(?:from|import) pate\.(?:{faces})\b|from pate import .*\b(?:{faces})\b)",
        flags=re.MULTILINE,
    )
    assert not [
        module for module in TREES if zone_of(module) and used.search(FILES[module].read_text())
    ]


def test_folders_of_the_lab_can_be_deleted_alone() -> None:
    """None imports another, nor do their tests; each offers its commands by an entry point."""
    folders = {path.parent.name for path in (ROOT / "lab").glob("*/__init__.py")}
    assert folders == set(entry_points(group="pate.commands").names)
    crossing = set()
    for folder in sorted(folders):
        files = [*(ROOT / "lab" / folder).rglob("*.py")]
        tests = [*(ROOT.parent / "tests" / "lab" / folder).rglob("test_*.py")]
        assert len(files) > 1 and tests
        crossing |= {
            f"{file.relative_to(ROOT.parent)}: {module}"
            for file in (*files, *tests)
            for module in imported_by(ast.parse(file.read_text()))
            if (found := re.match(r"(?:pate|tests)\.lab\.(\w+)", module)) and found[1] != folder
        }
    assert not crossing


def test_rooms_import_each_other_in_one_direction() -> None:
    rooms: dict[str, set[str]] = {}
    for module in filter(zone_of, TREES):
        found = {room_of(name) for name in imported(module)} - {room_of(module)}
        rooms.setdefault(room_of(module), set()).update(found)
    folders = {room for room in rooms if (ROOT / room.replace(".", "/")).is_dir()}
    assert len(folders - {*ZONES}) <= 23
    TopologicalSorter(rooms).prepare()  # raises on a circle, which it names


@pytest.mark.slow
def test_no_text_of_a_lower_zone_names_a_higher_one() -> None:
    """Entry points do (`pyproject.toml`)."""
    named = {
        f"{module}: {text}"
        for module, tree in TREES.items()
        for text in texts(tree)
        for zone in ZONES[ZONES.index(zone_of(module)) + 1 if zone_of(module) else len(ZONES) :]
        if f"pate.{zone}" in text
    }
    assert not named


TESTS = {
    file: ast.parse(file.read_text())
    for file in sorted((ROOT.parent / "tests").rglob("*.py"))
    if file.parts[len(ROOT.parent.parts) + 1] in ("core", "labeling", "networks")
}


def test_tests_of_a_zone_import_nothing_of_a_higher_one_at_their_top() -> None:
    """So that they are collected, and run, where the higher zones are deleted (`make without`).

    What a single test wants of a higher zone, it asks `pytest.importorskip` for.
    """
    names = [zone.strip("_") for zone in ZONES]
    assert len(TESTS) > 100
    upward = set()
    for file, tree in TESTS.items():
        place = file.relative_to(ROOT.parent / "tests").parts[0]
        for zone in ZONES[names.index(place) + 1 :]:
            # tests of core use aggregators, which stay where tests of core run
            above = (
                f"tests.{zone.strip('_')}.",
                *([f"pate.{zone}."] if zone != "_labeling" else []),
            )
            upward |= {
                f"{file.relative_to(ROOT.parent)}: {module}"
                for module in imported_by(tree)
                if f"{module}.".startswith(above)
            }
    assert not upward


def imported_by(tree: ast.AST) -> set[str]:
    """Return the modules that a file imports anywhere."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


PARTS = entry_points(group="pate.parts")


@pytest.mark.parametrize("name", sorted(PARTS.names))
def test_a_name_of_a_higher_zone_is_found(name: str) -> None:
    assert zone_of(PARTS[name].module) in ("_networks", "lab")
    assert find(name).__name__ == name


WITHOUT = ROOT.parent / "tests" / "without" / "sitecustomize.py"
WITHOUT_FRAMEWORKS = WITHOUT.read_text()


@pytest.mark.slow  # it imports every module
def test_the_two_lower_zones_import_no_framework() -> None:
    """Imported one after the other: the first that imports one is named."""
    lower = [
        module
        for module in TREES
        if module != "pate.__main__" and zone_of(module) in ("_core", "_labeling", "")
    ]
    assert len(lower) > 80
    script = (
        WITHOUT_FRAMEWORKS + f"import importlib\nfor name in {lower}: importlib.import_module(name)"
    )
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


def test_the_page_lists_every_folder() -> None:
    """A module speaks for itself, by its docstring."""
    listed = set(re.findall(r"^\| `(pate/[a-z_/]*)` \|", DESIGN.read_text(), flags=re.MULTILINE))
    folders = {f"{file.parent.relative_to(ROOT.parent)}/" for file in FILES.values()}
    holding = {folder for folder in folders if len([*(ROOT.parent / folder).glob("*.py")]) > 1}
    assert len(listed) > 20 and holding <= listed <= folders
    assert not [module for module, tree in TREES.items() if not ast.get_docstring(tree)]


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
noise = "--aggregator NoisyVotes --aggregator.sigma_votes 9 --num_labels 3 --num_teachers 30"
for words in (
    f"account {noise} --num_queries 20 --delta 1e-5",
    "account --aggregator NoisyVotes --target_epsilon 9 --num_labels 3 --num_teachers 30"
    " --num_queries 20 --delta 1e-5",
    "label --votes votes.npz --run labels --aggregator NoisyVotes --target_epsilon 9 --delta 1e-5",
    "run table --data.init_args.path=table.npz --run run --label.target_epsilon=20",
    "predict run/public/student/model table.npz --output answers.csv",
    "verify run/public/privacy.json --ledger table.ledger.sqlite",
    "verify run",
    "report labels",
    "ledger show table.ledger.sqlite",
):
    assert cli.main(words.split()) == 0, words
for words in ("--label.target_epsilom 1", "--teachers.unti record", "--epsilon 1"):
    try:
        code = cli.main(["run", "table", *words.split()])
    except SystemExit as stop:
        code = stop.code
    assert code == 2, words
assert cli.main(["run", "table", "--student.model.network", "pate.models.MLP"]) == 2
for words in ("student fit --help", "teachers fit --help"):
    try:
        cli.main(words.split())
    except SystemExit as stop:
        assert stop.code == 0
"""


def without_torch(script: str, folder: Path) -> str:
    """Run a program where nothing that networks and plots need can be imported, and return its errors."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_FRAMEWORKS + script],
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


@pytest.mark.slow
def test_commands_and_an_estimator_on_a_table_need_no_torch(tmp_path: Path) -> None:
    """From votes or records to labels, a student, its predictions and a report; whoever has a table
    and scikit-learn imports no framework for networks."""
    pytest.importorskip("sklearn")
    errors = without_torch(COMMANDS + CLASSIFIERS, tmp_path)
    refused = r"^pate .*: Expected the package \w+, got none: pip install 'pate\[networks\]'$"
    assert len(re.findall(refused, errors, flags=re.MULTILINE)) == 1  # of a network to train


def test_the_jobs_of_the_tests_run_tests() -> None:
    """A target without a recipe would be passed over in silence."""
    jobs = ["fast", "all-pages", "all", "lint"]
    done = subprocess.run(
        ["make", "--dry-run", *jobs], cwd=ROOT.parent, capture_output=True, text=True, check=True
    )
    for zone in (*(zone.strip("_") for zone in ZONES), "pages", "test_layers.py"):
        assert re.search(rf"pytest -p no:xdist -m 'not slow' .*tests/{zone}\b", done.stdout), zone
    assert "--ignore=tests/pages" in done.stdout and "ruff check" in done.stdout


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


@pytest.mark.parametrize("command", list(commands()))
def test_no_command_imports_lightning_to_start(command: str) -> None:
    """It takes longer to import than all else together; what `teachers --help` really loads, a slow
    test looks up."""
    assert "pytorch_lightning" not in loaded(commands()[command].place.partition(":")[0])


def test_the_package_never_imports_models_or_scripts() -> None:
    """Networks are named in configurations; what lies beside the package in the checkout is no part
    of it."""
    found = re.compile(r"^\s*(import|from) ((pate\.)?models|scripts|tests)\b", flags=re.MULTILINE)
    assert not [file for file in ROOT.rglob("*.py") if found.search(file.read_text())]


def test_only_releases_meet_mechanisms_and_noise() -> None:
    """What is PRIVATE becomes public in one room."""
    above = [
        file
        for room in ("_labeling/stages", "_labeling/commands", "lab/study")
        for file in (ROOT / room).rglob("*.py")
    ]
    assert above
    mechanisms = re.compile(r"_core\.mechanisms")
    assert not [file for file in above if mechanisms.search(file.read_text())]


OPTION = re.compile(r"(?<![\w-])--[a-z]\w+")
STILL_NAME_OPTIONS = {
    "lab.report.report",  # variables of CSS
    "_networks.student.stage",
    "_labeling.aggregators.base",
}
"""A page that says which command comes next, and modules whose errors are yet to be mended."""


@pytest.mark.slow
def test_errors_below_the_commands_name_fields_and_no_options() -> None:
    """The commands add the options; a whole command in backticks is named by its own name."""
    found = {
        module.removeprefix("pate.")
        for module, tree in TREES.items()
        for text in texts(tree)
        if OPTION.search(re.sub("`pate [^`]*`", "", text)) and not OPTION.fullmatch(text)
        if not module.startswith(("pate._labeling.commands.", "pate.cli"))
        if not re.fullmatch(r"pate\.lab\.\w+(\.command|\.account|\.whole)?", module)
    }
    assert found <= STILL_NAME_OPTIONS | {"_labeling.runs.run"}  # the name of a stage


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
    rooms = [
        top / "docs",
        top / "configs",
        top / "models",
        ROOT / "_labeling" / "commands" / "templates",
    ]
    files = [
        top / "README.md",
        top / "CONTRIBUTING.md",
        *(file for room in rooms for file in room.rglob("*.*")),
    ]
    texts = {
        file: file.read_text()
        for file in files
        if file.suffix in (".md", ".ipynb", ".yaml", ".json", ".py", ".txt")
    }
    assert len(texts) > 60
    assert [file for file, text in texts.items() if PRIVATE_PATH.search(text)] == []
