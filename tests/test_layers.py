"""Imports run downward only."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pate
from pate import cli

ROOT = Path(pate.__file__).parent


HEAVY = (
    "torch",
    "pytorch_lightning",
    "autodp",
    "dp_accounting",
    "jsonargparse",
    "matplotlib",
    "pytest",
)


def test_private_mathematics_imports_no_framework() -> None:
    """Imported one after the other: the first that imports one is named."""
    script = (
        f"HEAVY = {HEAVY}\n"
        "import importlib, sys\n"
        "for package in ('_votes', 'accounting', 'mechanisms', 'aggregators'):\n"
        "    importlib.import_module('pate.' + package)\n"
        "    found = {*HEAVY} & set(sys.modules)\n"
        "    assert not found, (package, found)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


WITHOUT_TORCH = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        heavy = ("torch", "torchvision", "pytorch_lightning", "lightning_fabric", "matplotlib", "autodp")
        if name.partition(".")[0] in heavy:
            raise ImportError(name)

sys.meta_path.insert(0, Missing())
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


def test_records_vote_and_a_linear_student_learns_without_torch() -> None:
    """Whoever has a table and scikit-learn imports no framework for networks."""
    pytest.importorskip("sklearn")
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# what each part may import of the package
EVERYWHERE = {
    *(
        "disk",
        "drafts",
        "faults",
        "json",
        "lazy",
        "own_code",
        "progress",
        "settings",
        "typing",
        "validation",
        "version",
    )
}
ALLOWED = {
    "accounting": set(),
    "votes": {"data", "linear", "runs"},
    "checkpoints": {"runs"},
    "histogram": {"accounting", "runs"},
    "networks": set(),
    "closed_form_plan": {"data", "votes"},
    "linear": set(),
    "models": set(),
    "mechanisms": {"accounting"},
    "aggregators": {"accounting", "linear", "mechanisms", "votes"},
    "runs": {"votes"},
    "silos": {"accounting", "aggregators", "mechanisms", "runs", "votes"},
    "network_settings": {"networks", "runs"},
    "data": {"network_settings", "runs"},
    "data_file": {"data", "runs"},
    "teachers": {
        "checkpoints",
        "closed_form_plan",
        "data",
        "networks",
        "runs",
        "votes",
    },
    "student": {
        "accounting",
        "data",
        "data_file",
        "networks",
        "linear",
        "network_settings",
        "runs",
        "votes",
    },
    "testing": {"accounting", "aggregators", "data", "mechanisms", "votes"},
    "planning": {
        "accounting",
        "aggregators",
        "data",
        "data_file",
        "linear",
        "runs",
        "student",
        "votes",
    },
}
ALLOWED["planning"] |= {"mechanisms", "release"}
ALLOWED["testing"] |= {"planning"}
ALLOWED["reporting"] = {"accounting", "data", "data_file", "runs", "votes"}
ALLOWED["release"] = set(ALLOWED) - {
    "models",
    "networks",
    "planning",
    "reporting",
    "student",
    "teachers",
    "testing",
}
ALLOWED["stages"] = set(ALLOWED) - {"reporting", "testing"}
ALLOWED["pipeline"] = set(ALLOWED) - {"reporting", "testing"}
ALLOWED["audit"] = set(ALLOWED) - {"testing"}
ALLOWED["commands"] = set(ALLOWED) - {"testing"}
ALLOWED["estimator"] = {
    "closed_form_plan",
    "data",
    "linear",
    "pipeline",
    "planning",
    "release",
    "student",
    "teachers",
    "votes",
}
ALLOWED["cli"] = {"runs"}
ALLOWED["__main__"] = {"cli"}


def test_every_part_has_its_place() -> None:
    parts = {
        path.stem
        for path in ROOT.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    assert {part_of(part) for part in parts - {"__init__"}} == ALLOWED.keys() | EVERYWHERE


def part_of(name: str) -> str:
    """Return the part that a module or folder is; an underscore says that it is nobody's business
    but the package's."""
    return name if name.startswith("__") else name.removeprefix("_")


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_imports_run_downward(part: str) -> None:
    files = [
        file
        for pattern in (f"{part}.py", f"{part}/**/*.py")
        for name in (pattern, f"_{pattern}")
        for file in ROOT.glob(name)
    ]
    assert files
    used = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            used |= {part_of(name.split(".")[1]) for name in names if name.startswith("pate.")}
    assert used - {part} <= ALLOWED[part] | EVERYWHERE


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
        place = ROOT.parent / name.replace(".", "/")
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        if name.partition(".")[0] != ROOT.name or not file.is_file():
            continue  # a name within a module, or another package
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ImportFrom):
                left += [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                left += [alias.name for alias in node.names]
    return found


@pytest.mark.parametrize("command", list(cli._COMMANDS))
def test_only_the_students_commands_import_lightning_to_start(command: str) -> None:
    """It takes longer to import than all else together; what `teachers --help` really loads, a slow
    test looks up."""
    found = loaded(f"pate._commands.{cli._COMMANDS[command][0]}")
    assert ("pytorch_lightning" in found) == command.startswith("student")


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
    # but for the gap at which a mechanism answers, which draws nothing
    mechanisms = re.compile(r"pate\.mechanisms(?!\._success)")
    assert not [file for file in above if mechanisms.search(file.read_text())]


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
