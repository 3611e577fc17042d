"""Imports run downward only."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pate

ROOT = Path(pate.__file__).parent


@pytest.mark.parametrize("package", ["pate.mechanisms", "pate.accounting", "pate.aggregators", "pate.votes"])
def test_private_mathematics_imports_no_framework(package: str) -> None:
    script = (
        f"import sys, {package}\n"
        "found = {'torch', 'pytorch_lightning', 'autodp', 'jsonargparse', 'matplotlib'} & set(sys.modules)\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


# what each part may import of the package
EVERYWHERE = {"typing", "validation"}
ALLOWED = {
    "validation": set(),
    "accounting": {"validation"},
    "mechanisms": {"accounting", "validation"},
    "testing": {"accounting", "aggregators", "mechanisms", "validation", "votes"},
    "votes": {"validation"},
    "aggregators": {"accounting", "mechanisms", "validation", "votes"},
    "archives": {"validation"},
    "runs": {"archives", "validation", "votes"},
    "vote_store": {"runs", "validation", "votes"},
    "data": {"archives", "runs", "validation"},
    "data_file": {"data", "runs", "validation"},
    "planning": {
        *("accounting", "aggregators", "data", "data_file", "runs", "student", "validation", "vote_store", "votes"),
    },
    "teachers": {"data", "runs", "validation", "vote_store", "votes"},
    "student": {"data", "data_file", "runs", "validation", "votes"},
}


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
