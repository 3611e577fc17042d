"""One module reads files for the whole package, within its budgets."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import pate

ROOT = Path(pate.__file__).parent
DOOR = "_core/files/reading.py"
ELSEWHERE = {
    # before anything is imported, from the package's own folder
    "_core/package.py": {"open"},
    "_core/accounting/ledger.py": {"sqlite3.connect"},  # the one place for it
}
METHODS = {"read_text", "read_bytes", "fromfile", "memmap", "genfromtxt", "loadtxt", "read_table"}
FUNCTIONS = {
    *("np.load", "Image.open", "sqlite3.connect", "json.load", "os.read", "pickle.load"),
    *("yaml.load", "yaml.safe_load", "yaml.safe_load_all", "yaml.load_all", "yaml.compose"),
    *("ZipFile", "is_zipfile", "ParquetFile", "parquet.ParquetFile"),
}
BY_PATH = {"torch.load", "load_file", "load_npz"}
"""Functions of libraries that read a path, which `regular` must have let pass."""
NO_FILES = {"os", "self", "self._secrets", "votes.total", "archive", "packed"}
"""Owners of a method ``open`` that opens no file for reading."""


def writes(call: ast.Call, place: int) -> bool:
    """Return whether a call names a mode that does not read."""
    modes = [*call.args[place : place + 1], *(k.value for k in call.keywords if k.arg == "mode")]
    return any(isinstance(m, ast.Constant) and {*str(m.value)} & {*"wax"} for m in modes)


def readings(tree: ast.AST) -> Iterator[str]:
    """Yield the calls in a module that read a file by themselves."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            owner, _, last = name.rpartition(".")
            opens = last == "open" and owner not in NO_FILES and not writes(node, 0 if owner else 1)
            checked = node.args and ast.unparse(node.args[0]).startswith("regular(")
            if (
                opens
                or (owner and last in METHODS)
                or (name in FUNCTIONS and not writes(node, 1))
                or (name in BY_PATH and not checked)
            ):
                yield name


def test_no_other_module_reads_files() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): {*readings(ast.parse(path.read_text()))}
        for path in ROOT.rglob("*.py")
    }
    assert found.pop(DOOR)
    assert {name: calls for name, calls in found.items() if calls} == ELSEWHERE


@pytest.mark.parametrize(
    "line",
    [
        *("text = path.read_text()", "path.parent.read_bytes()", "file = open(name)"),
        *("file = path.open('rb')", "np.load(path, mmap_mode='r')", "Image.open(path, formats=[])"),
        *("sqlite3.connect(address, uri=True)", "yaml.safe_load(text)", "ZipFile(path)"),
        *("parquet.read_table(path)", "torch.load(path, weights_only=True)", "load_file(path)"),
        "gzip.open(path, 'rt')",
    ],
)
def test_a_reading_is_found(line: str) -> None:
    assert [*readings(ast.parse(line))]
