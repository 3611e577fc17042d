"""Imports run downward only."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pate

ROOT = Path(pate.__file__).parent


HEAVY = ("torch", "pytorch_lightning", "autodp", "dp_accounting", "jsonargparse", "matplotlib", "pytest")


def test_private_mathematics_imports_no_framework() -> None:
    """Imported one after the other: the first that imports one is named."""
    script = (
        f"HEAVY = {HEAVY}\n"
        "import importlib, sys\n"
        "for package in ('votes', 'accounting', 'mechanisms', 'aggregators'):\n"
        "    importlib.import_module('pate.' + package)\n"
        "    found = {*HEAVY} & set(sys.modules)\n"
        "    assert not found, (package, found)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# what each part may import of the package
EVERYWHERE = {"described", "typing", "validation", "version"}
ALLOWED = {
    "accounting": set(),
    "configuration": set(),
    "votes": set(),
    "linear": set(),
    "mechanisms": {"accounting"},
    "aggregators": {"accounting", "linear", "mechanisms", "votes"},
    "runs": {"votes"},
    "vote_store": {"runs", "votes"},
    "votes_file": {"runs", "votes"},
    "data": {"runs"},
    "data_file": {"data", "runs"},
    "teachers": {"data", "runs", "vote_store", "votes"},
    "student": {"data", "data_file", "linear", "runs", "votes"},
    "testing": {"accounting", "aggregators", "data", "mechanisms", "votes"},
    "planning": {"accounting", "aggregators", "data", "data_file", "linear", "runs", "student", "vote_store", "votes"},
}
ALLOWED["stages"] = set(ALLOWED) - {"planning", "testing"}
ALLOWED["pipeline"] = set(ALLOWED) - {"planning", "testing"}
ALLOWED["commands"] = set(ALLOWED) - {"testing"}
ALLOWED["cli"] = {"runs"}


def test_every_part_has_its_place() -> None:
    parts = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert parts - {"__init__"} == ALLOWED.keys() | EVERYWHERE


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_imports_run_downward(part: str) -> None:
    files = list((ROOT / part).rglob("*.py")) or [ROOT / f"{part}.py"]
    used = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            used |= {name.split(".")[1] for name in names if name.startswith("pate.")}
    assert used - {part} <= ALLOWED[part] | EVERYWHERE


def test_the_package_never_imports_models() -> None:
    assert not [file for file in ROOT.rglob("*.py") if "import models" in file.read_text()]


def test_only_the_label_stage_meets_mechanisms_and_noise() -> None:
    """What is PRIVATE becomes public in one place."""
    above = [file for room in ("stages", "commands", "planning") for file in (ROOT / room).rglob("*.py")]
    assert {file.name for file in above if "pate.mechanisms" in file.read_text()} <= {"label.py"}
