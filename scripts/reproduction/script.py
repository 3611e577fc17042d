"""What every ``scripts/reproduce_*.py`` does around the function that makes its finding."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from scripts.reproduction.findings import Effort, Finding, keep
from scripts.reproduction.page import script_of

FOLDER = Path("docs/reproduction")


def reproduce(
    name: str, doc: str | None, make: Callable[[Effort], Finding], arguments: Sequence[str] | None = None
) -> None:
    """Make a finding, print its claims and keep its files.

    Where the data folder is missing, say so in one line and leave what was kept before.

    Args:
        name: of its files; the script is ``scripts/reproduce_<name>.py``.
        doc: what the script is for.
        make: makes the finding, with progress on stderr if it takes longer than a few seconds.
        arguments: of the command line.
    """
    parser = argparse.ArgumentParser(
        prog=script_of(name), description=doc, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, default=FOLDER, help=f"folder of what is found (default: {FOLDER})")
    parser.add_argument("--full", action="store_true", help="as many trials as in the paper (default: minutes)")
    parser.add_argument("--seed", type=int, default=0, help="seed of what is drawn (default: 0)")
    given = parser.parse_args(arguments)
    try:
        effort = Effort.of_surroundings(full=given.full, seed=given.seed)
    except ValueError as error:
        parser.error(str(error))
    started = time.perf_counter()
    try:
        finding = make(effort)
    except FileNotFoundError as error:
        print(f"{parser.prog}: nothing is made, and what was kept stays: {error}", file=sys.stderr)
        return
    seconds = time.perf_counter() - started
    keep(given.output, name, finding, effort, seconds)
    print(f"{finding.paper}: {finding.title}")
    for claim in finding.claims:
        print(f"  {claim.where}: {claim.verdict}. Published {claim.published}; here {claim.ours}. {claim.why}")
    print(f"  {given.output / name}.csv, {seconds:.0f} s")
