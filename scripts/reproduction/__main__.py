r"""Make tables and figures of papers again, and write a page of all that were made.

    PATE_DATA=... python -m scripts.reproduction          # all, in the quick form: minutes
    python -m scripts.reproduction zhu_wang_bins --full   # one, as in the paper
    python -m scripts.reproduction --output docs/reproduction --page_only

The page of this checkout is written with `--output docs/reproduction`, as by `make reproduce`.

PATE_DATA names the folder of the papers' data. A finding without its data is named, and
the rest is made. Earlier results of it stay.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from scripts.reproduction import gillenwater, shekelyan, zhu_wang_figures
from scripts.reproduction.findings import (
    COMMAND,
    Effort,
    Finding,
    MissingDataError,
    keep,
    kept,
    page,
    section,
    spread,
)
from scripts.reproduction.gillenwater_joint import permute_and_flip, times
from scripts.reproduction.one_shot import one_shot_noises
from scripts.reproduction.shekelyan_statements import statements
from scripts.reproduction.zhu_wang_privacy import table_2_privacy
from scripts.reproduction.zhu_wang_theorems import theorems
from scripts.results.__main__ import OTHER_SEED
from tests.core.mechanisms.oracles import joint_slow

FOLDER = Path("reproduction")

MAKERS: Mapping[str, Callable[[Effort], Finding]] = {
    "gillenwater_errors": gillenwater.errors,
    "gillenwater_joint": permute_and_flip,
    "gillenwater_times": partial(times, plain=joint_slow),
    "one_shot_noises": one_shot_noises,
    "shekelyan_netflix": shekelyan.netflix,
    "shekelyan_noises": shekelyan.noises,
    "shekelyan_statements": statements,
    "shekelyan_vectors": shekelyan.vectors,
    "shekelyan_zipf": shekelyan.zipf,
    "zhu_wang_bins": zhu_wang_figures.bins,
    "zhu_wang_covid": zhu_wang_figures.covid,
    "zhu_wang_table2_privacy": table_2_privacy,
    "zhu_wang_theorems": theorems,
}
"""What makes each finding, by the name of its files."""


def main(
    arguments: Sequence[str] | None = None,
    makers: Mapping[str, Callable[[Effort], Finding]] = MAKERS,
) -> None:
    """Make findings, print their claims, keep their files and write the page."""
    parser = argparse.ArgumentParser(
        prog=COMMAND,
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"what to make (default: all): {', '.join(makers)}"
    )
    parser.add_argument(
        "--full", action="store_true", help="as many trials as in the paper (default: minutes)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of what is drawn (default: 0)")
    parser.add_argument(
        "--output",
        type=Path,
        default=FOLDER,
        help=f"folder of findings; the page lies beside it (default: {FOLDER})",
    )
    parser.add_argument(
        "--noise", action="store_true", help="keep how far the claims of another seed are"
    )
    parser.add_argument(
        "--page_only", action="store_true", help="write the page from what was made before"
    )
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in makers]
    if unknown:
        parser.error(f"Expected names among {', '.join(makers)}, got {', '.join(unknown)}")
    try:
        effort = Effort.of_surroundings(full=options.full, seed=options.seed)
    except ValueError as error:
        parser.error(str(error))
    for name in () if options.page_only else options.names or makers:
        try:
            _make(name, makers[name], effort, options.output, options.noise)
        except MissingDataError as error:
            print(
                f"{name}: not testable here: needs {error} in the folder that PATE_DATA names",
                file=sys.stderr,
            )
    findings = kept(options.output)
    if options.page_only and not findings:
        parser.error(f"Expected findings of {COMMAND}, got folder={options.output}")
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output.with_suffix(".md")
    path.write_text(page(findings, options.output.name))
    for finding in findings:
        (options.output / f"{finding.name}.md").write_text(section(finding))
    print(path)


def _make(
    name: str, maker: Callable[[Effort], Finding], effort: Effort, folder: Path, noise: bool
) -> None:
    """Make one finding, print its claims and keep its files.

    Raises:
        MissingDataError: without its data, before anything is written.
    """
    started = time.process_time()
    finding = maker(effort)
    seconds = time.process_time() - started
    other = maker(replace(effort, seed=effort.seed + OTHER_SEED)) if noise else finding
    keep(folder, name, finding, effort, seconds, spread(finding, other) if noise else None)
    print(f"{finding.paper}: {finding.title}\n\n| where | here |\n| --- | --- |")
    for claim in finding.claims:
        print(f"| {claim.where} | {claim.ours} |")
    print(f"\n{folder / name}.csv, {seconds:.0f} s")


if __name__ == "__main__":
    main()
