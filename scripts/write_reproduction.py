"""Write docs/reproduction.md from what scripts/reproduce_*.py found.

python scripts/write_reproduction.py
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from scripts.reproduction.findings import kept
from scripts.reproduction.page import page
from scripts.reproduction.script import FOLDER


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page beside the folder of the findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER, help=f"of the findings (default: {FOLDER})")
    given = parser.parse_args(arguments)
    path = given.folder.with_suffix(".md")
    path.write_text(page(kept(given.folder), given.folder.name))
    print(path)


if __name__ == "__main__":
    main()
