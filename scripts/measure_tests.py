"""How far tests reach into private modules, and the time of `make test`, whole or by zone.

python scripts/measure_tests.py [all core labeling networks lab pages]

Prints the number of imports of private modules and of patched names in `tests/`. For each zone that
is named it runs `make test ZONE=...` (`all` stands for `make test`) and adds the seconds that pass
and the seconds of processors; on a machine that does other work, only the second are comparable.
"""

import argparse
import ast
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
ZONES = ("all", "core", "labeling", "networks", "lab", "pages")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the counts, and a row for each zone that is named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("zones", nargs="*", metavar="zone", help=", ".join(ZONES))
    options = parser.parse_args(arguments)
    if unknown := {*options.zones} - {*ZONES}:
        parser.error(f"Expected zones among {', '.join(ZONES)}, got {', '.join(sorted(unknown))}")
    trees = [ast.parse(path.read_text()) for path in sorted((ROOT / "tests").rglob("*.py"))]
    print(f"imports of private modules: {sum(map(private_imports, trees))}")
    print(f"patched names: {sum(map(patches, trees))}")
    for zone in options.zones:
        start, before = time.monotonic(), os.times()
        command = ["make", "test", *([] if zone == "all" else [f"ZONE={zone}"])]
        failed = " (failed)" if subprocess.run(command, cwd=ROOT).returncode else ""
        seconds, after = time.monotonic() - start, os.times()
        busy = sum(after[2:4]) - sum(before[2:4])  # user and system time of processes that ended
        print(f"| {zone}{failed} | {seconds:.0f} s | {busy:.0f} s of processors |")


def private_imports(tree: ast.Module) -> int:
    """Count the import statements that name a private module of the package.

    >>> private_imports(ast.parse("from pate._labeling.votes import Votes; from pate.data import Records"))
    1
    """
    return sum(
        any(name.startswith("pate.") and "._" in name for name in imported(node))
        for node in ast.walk(tree)
    )


def imported(node: ast.AST) -> list[str]:
    """Return the full names that a statement imports."""
    if isinstance(node, ast.ImportFrom):
        return [
            f"{node.module}.{alias.name}" for alias in node.names if alias.name != "__version__"
        ]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def patches(tree: ast.Module) -> int:
    """Count the calls of `setattr` on a fixture, as in ``monkeypatch.setattr(...)``."""
    return sum(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "setattr"
        for node in ast.walk(tree)
    )


if __name__ == "__main__":
    main()
