"""Render the tables of pages from files of results, check the pages, and make results again.

    python -m scripts.results render               # writes every table between its marks
    python -m scripts.results check                # fails where a page differs from a file
    python -m scripts.results run celeba           # makes a table again and compares it
    python -m scripts.results run celeba --write   # keeps it, with its commit and its versions
    python -m scripts.results run celeba --noise   # draws other seeds, and keeps the noise
    python -m scripts.results run --sample 3       # three of the night, in turn

A file of this folder has the ``command`` that prints its table as Markdown, with ``{folder}`` for
an empty folder and ``{seed}`` for the first seed; none where it is not measured again. The cells of
a table that quotes others name their places, as ``=celeba/pate/0.05/mAP``. A page shows a table between ``<!-- table:
celeba -->`` and ``<!-- end -->``, and a sentence quotes a figure as ``0.501 <!-- results:
celeba/pate/0.05/mAP -->``: the file, the cells that name the row, the column. ``A - B`` is the
difference of two places.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import resource
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pate._core.validation import require

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent
FINDINGS = ROOT / "docs" / "reproduction"
PAGES = ("README.md", "docs/**/*.md")
"""Every page may show tables and quote figures."""
TABLED = (*("README.md", "docs/measured.md"), "docs/appendix/measured-more.md")
"""Pages in which each table with fractions comes from a file."""
TIMED = "gillenwater_times"
"""The finding whose figures are times of a machine, and do not come out again."""
WITHOUT_DATA = {
    *("one_shot_noises", "shekelyan_statements"),
    *("zhu_wang_bins", "zhu_wang_table2_privacy", "zhu_wang_theorems"),
}
"""Findings that read no data."""
PACKAGES = ("numpy", "scipy", "torch", "opacus")
NIGHT = 600.0
"""The most processor seconds of a result that runs at night."""
OTHER_SEED = 1000
"""The first seed of the run that tells the noise."""

Table = list[list[str]]

_NUMBER = re.compile(r"-?(?:\d[\d,]*)?\.?\d+")
_BLOCK = re.compile(r"(<!-- table: (\S+) -->\n)(.*?)(<!-- end -->)", flags=re.DOTALL)
_QUOTE = re.compile(r"<!-- results: (.+?) -->")


@dataclass(frozen=True, kw_only=True)
class Result:
    """A table of figures, and the run that gave them.

    Args:
        command: what prints the table; empty for a table that quotes others or is not made again.
        needs: ``PATE_DATA`` if the command reads it.
        seeds: what was drawn, in words.
        run: the commit of the package, the date, the processor seconds and the versions; and those
            of the rivals' rows, if only votes were run again. None if the figures are older than
            these files.
        reason: why it was not run again, and which commit brought the figures; only without a run.
        keys: how many columns, the first ones, name a row.
        columns: titles.
        rows: cells as the page shows them.
        tolerance: by column or by place, as in a quotation but for the file, the difference that a
            run may show; all else comes out exactly.
        noise: how the tolerance was found.
    """

    command: str = ""
    needs: str = ""
    seeds: str = ""
    run: dict[str, Any] | None = None
    reason: str = ""
    keys: int = 1
    columns: list[str]
    rows: Table = field(default_factory=list)
    tolerance: dict[str, float] = field(default_factory=dict)
    noise: str = ""

    def __post_init__(self) -> None:
        require(
            not self.command or self.run or self.reason,
            "a run, or the reason why there is none",
            command=self.command,
        )
        require(not self.tolerance or self.noise, "how the noise was found", noise=self.noise)

    @property
    def quoted(self) -> set[str]:
        """The results that cells quote."""
        return {cell[1:].split("/")[0] for row in self.rows for cell in row if cell[:1] == "="}

    def cell(self, place: Sequence[str]) -> str:
        """Return the cell of a row's names and a column.

        Raises:
            KeyError: There is no such row or column.
        """
        *names, column = place
        for row in self.rows:
            if [_plain(cell) for cell in row[: self.keys]] == names and column in self.columns:
                return row[self.columns.index(column)]
        raise KeyError("/".join(place))


def main(arguments: Sequence[str] | None = None) -> None:
    """Render, check or run."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.results",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="what", required=True)
    commands.add_parser("render", help="write the tables of pages")
    commands.add_parser("check", help="compare pages with files")
    runs = commands.add_parser("run", help="make results again and compare them")
    runs.add_argument("names", nargs="*")
    runs.add_argument("--sample", type=int, default=0, help="so many of the night, by the date")
    runs.add_argument("--write", action="store_true", help="keep what comes out")
    runs.add_argument("--noise", action="store_true", help="keep the noise of other seeds")
    options = parser.parse_args(arguments)
    results = read()
    if options.what == "render":
        for page in _pages(ROOT):
            page.write_text(rendered(page.read_text(), results))
        return
    if options.what == "check":
        faults = list(found(ROOT, results))
    else:
        results |= findings()
        names = options.names or sample(results, options.sample, date.today())
        unknown = [name for name in names if name not in results or not results[name].command]
        if unknown or not names:
            parser.error(f"Expected names of results with a command, got {unknown or names}")
        faults = []
        for name in names:
            faults += again(name, results[name], write=options.write, noise=options.noise)
    if faults:
        raise SystemExit("\n".join(faults))


def read(folder: Path = FOLDER) -> dict[str, Result]:
    """Return the results of a folder by their names."""
    return {
        path.stem: Result(**json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))
    }


def findings(folder: Path = FINDINGS) -> dict[str, Result]:
    """Return the claims that `scripts.reproduction` keeps in a folder of its own, as results."""
    made = {}
    for path in sorted(folder.glob("*.json")):
        if path.stem == TIMED:
            continue
        kept = json.loads(path.read_text())
        made[path.stem] = Result(
            command=f"python -m scripts.reproduction {path.stem} --output {{folder}}/made",
            needs="" if path.stem in WITHOUT_DATA else "PATE_DATA",
            run=kept["run"],
            reason=kept.get("reason", ""),
            columns=["where", "here"],
            rows=[[claim["where"], claim["ours"]] for claim in kept["claims"]],
            tolerance=kept["noise"],
            noise="that of `python -m scripts.reproduction --noise`; without it, none",
        )
    return made


def save(result: Result, path: Path) -> None:
    """Write a result, with a line for each row, and without what is empty."""
    content = {name: value for name, value in asdict(result).items() if value or name == "run"}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    lines = re.sub(r"\[\n\s+(\"[^\[\]{}]*?)\n\s+\]", _in_one_line, text)
    path.write_text(lines + "\n")


def rendered(text: str, results: Mapping[str, Result]) -> str:
    """Return a page with every table as its file has it.

    Raises:
        KeyError: There is no such file, or a cell names no place.
    """
    return _BLOCK.sub(lambda block: block[1] + _table(block[2], results) + block[4], text)


def found(root: Path, results: Mapping[str, Result]) -> Iterator[str]:
    """Yield what is wrong with the pages of a checkout, a line each."""
    shown = {name for result in results.values() for name in result.quoted}
    for page in _pages(root):
        name, text = str(page.relative_to(root)), page.read_text()
        shown |= {block[2] for block in _BLOCK.finditer(text)}
        try:
            if rendered(text, results) != text:
                yield f"{name}: Expected tables as `python -m scripts.results render` writes them"
            before, *parts = _QUOTE.split(text)
            for place, after in zip(parts[::2], parts[1::2], strict=True):
                shown |= {each.split("/")[0] for each in place.split(" - ")}
                numbers, value = _NUMBER.findall(before)[-1:], _value(place, results)
                if not numbers or not _agrees(numbers[0], value):
                    yield f"{name}: Expected {value:g} of {place}, got {numbers}"
                before = after
        except KeyError as error:
            yield f"{name}: Expected a place in scripts/results, got {error}"
        if name in TABLED:
            for line in re.findall(r"^\|.*\.\d.*", _BLOCK.sub("", text), flags=re.MULTILINE):
                yield f"{name}: Expected a table of scripts/results, got {line}"
    for name, result in results.items():
        for run in _runs(result):
            if not re.fullmatch("[0-9a-f]{8}", run["commit"]):
                yield f"{name}.json: Expected a run of a commit, got {run['commit']!r}"
    for name in sorted(set(results) - shown):
        yield f"{name}.json: Expected a page that shows or quotes it"


def sample(results: Mapping[str, Result], size: int, day: date) -> list[str]:
    """Return the names that are run on a day: those that can be run here, in turn."""
    names = [
        name
        for name, result in results.items()
        if result.run
        and sum(run["processor_seconds"] for run in _runs(result)) <= NIGHT
        and (not result.needs or os.environ.get(result.needs))
    ]
    start = day.toordinal() * size
    return [names[(start + place) % len(names)] for place in range(min(size, len(names)))]


def again(name: str, result: Result, *, write: bool, noise: bool) -> list[str]:
    """Make a result again, and return where it differs by more than its noise.

    With ``write`` the file has what came out, and with ``noise`` its tolerance is twice the largest
    difference from a run of other seeds.
    """
    if write:
        table, seconds = _run(result, 0)
        result = replace(result, rows=table, run=provenance(seconds), reason="")
    if noise:
        other, _ = _run(result, OTHER_SEED)
        result = replace(
            result,
            tolerance=_spread(result, other),
            noise=f"twice the largest difference from a run with seeds from {OTHER_SEED} on",
        )
    if write or noise:
        save(result, FOLDER / f"{name}.json")
        return []
    table, _ = _run(result, 0)
    lines = [f"{name}: {line}" for line in differences(result, table)]
    print(f"{name}: {len(lines)} of {len(result.rows)} rows differ by more than the stated noise")
    return lines


def differences(result: Result, table: Table) -> list[str]:
    """Return the rows of a run that differ by more than the noise, a line each."""
    if [row[: result.keys] for row in table] != [row[: result.keys] for row in result.rows]:
        return ["Expected the same names of rows in the same order"]
    lines = []
    for before, row in zip(result.rows, table, strict=True):
        for column, one, other in zip(result.columns, before, row, strict=True):
            place = "/".join([*map(_plain, row[: result.keys]), column])
            bound = result.tolerance.get(place, result.tolerance.get(column, 0.0))
            if not distance(one, other) <= bound:
                lines.append(f"Expected {column} {one} of {row[: result.keys]}, got {other}")
    return lines


def distance(one: str, other: str) -> float:
    """Return the largest difference of the numbers of two cells; infinite if their words differ."""
    if _NUMBER.sub("#", one) != _NUMBER.sub("#", other):
        return math.inf
    pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    far = [abs(float(a.replace(",", "")) - float(b.replace(",", ""))) for a, b in pairs]
    return round(max(far, default=0.0), 9)


def provenance(seconds: float) -> dict[str, Any]:
    """Return what names a run: commit, date, processor seconds and versions.

    A commit ends in ``+`` if code differs from it, and is empty outside of a checkout.
    """
    code = ["pate", "models", "configs", "scripts", ":!scripts/results/*.json"]
    changed = _git("status", "--porcelain", "--", *code)
    return {
        "commit": _git("rev-parse", "--short=8", "HEAD") + "+" * bool(changed),
        "date": f"{date.today():%Y-%m-%d}",
        "processor_seconds": round(seconds),
        "versions": {"python": sys.version.split()[0]} | {name: version(name) for name in PACKAGES},
    }


def tables(text: str) -> Iterator[tuple[list[str], Table]]:
    """Yield titles and rows of the Markdown tables of a text."""
    for block in re.findall(r"(?:^\|.*\|$\n?)+", text, flags=re.MULTILINE):
        titles, _, *rows = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()
        ]
        yield titles, rows


def _pages(root: Path) -> list[Path]:
    return sorted(path for pattern in PAGES for path in root.glob(pattern))


def _plain(cell: str) -> str:
    return re.sub(r"[*`]", "", cell)


def _in_one_line(match: re.Match[str]) -> str:
    return "[" + re.sub(r"\n\s+", " ", match[1]) + "]"


def _table(name: str, results: Mapping[str, Result]) -> str:
    """Return a table and the line that names its run."""
    result = results[name]
    rows = [[_quoted(cell, results) for cell in row] for row in result.rows]
    right = [
        index >= result.keys or all(not row[index] or row[index][0] in "0123456789" for row in rows)
        for index in range(len(result.columns))
    ]
    lines = [result.columns, ["---:" if each else "---" for each in right], *rows]
    if result.quoted:
        said = _sources({each: results[each] for each in sorted(result.quoted)})
    elif result.run is None:
        said = f"not run at this version: {result.reason}"
    else:
        ran = "; rivals ".join(f"at {run['commit']} on {run['date']}" for run in _runs(result))
        said = f"run {ran}; again: `python -m scripts.results run {name}`"
    text = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    return f"\n{text}\n\n*`scripts/results/{name}.json`, {said}.*\n\n"


def _runs(result: Result) -> list[dict[str, Any]]:
    """Return the run of a result, and that of its rivals if it is another."""
    return [run for run in (result.run, (result.run or {}).get("rivals")) if run]


def _sources(quoted: Mapping[str, Result]) -> str:
    """Return the words on the results that a table quotes, those that were not run apart."""
    made, older = (
        ", ".join(f"`{name}`" for name, each in quoted.items() if bool(each.run) == ran)
        for ran in (True, False)
    )
    said = f"which quotes {made}" if made else "which quotes"
    return said + f"{'; and' * bool(made)}, not run at this version, {older}" * bool(older)


def _quoted(cell: str, results: Mapping[str, Result]) -> str:
    return _cell(cell[1:], results) if cell.startswith("=") else cell


def _cell(place: str, results: Mapping[str, Result]) -> str:
    name, *names = place.split("/")
    return _quoted(results[name].cell(names), results)


def _value(place: str, results: Mapping[str, Result]) -> float:
    first, *others = (_number(_cell(each, results)) for each in place.split(" - "))
    return first - sum(others)


def _number(cell: str) -> float:
    return float(_NUMBER.findall(cell)[0].replace(",", ""))


def _agrees(shown: str, value: float) -> bool:
    """Return whether a number is the value, rounded to as many digits as it shows."""
    digits = len(shown.partition(".")[2])
    return math.isclose(
        float(shown.replace(",", "")), value, rel_tol=0, abs_tol=0.5 * 10**-digits + 1e-9
    )


def _spread(result: Result, other: Table) -> dict[str, float]:
    """Return twice the largest difference of each column."""
    spread = {}
    for index, column in enumerate(result.columns[result.keys :], start=result.keys):
        far = [distance(a[index], b[index]) for a, b in zip(result.rows, other, strict=True)]
        if math.inf in far:
            raise SystemExit(f"Expected the same words in column {column}, got {other}")
        spread[column] = round(2 * max(far), 9)
    return spread


def _run(result: Result, seed: int) -> tuple[Table, float]:
    """Return the table that the command prints, and its processor seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with TemporaryDirectory() as folder:
        words = shlex.split(result.command.format(folder=folder, seed=seed))
        words = [sys.executable if word == "python" else word for word in words]
        done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    rows = [row for titles, rows in tables(done.stdout) if titles == result.columns for row in rows]
    if not rows:
        raise SystemExit(f"Expected a table of {result.columns}, got {done.stdout}")
    return rows, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


if __name__ == "__main__":
    main()
