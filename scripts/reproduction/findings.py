"""Claims of papers with the results here, and the files that keep them."""

from __future__ import annotations

import csv
import json
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import numpy as np

from pate._core.files.writing import atomic_write, write_json
from pate._core.validation import require, require_count
from scripts.results.__main__ import distance, provenance

Row = Mapping[str, str | int | float]

_HEADLINE = 120  # letters of a cell in the table at the top of the page


class Verdict(StrEnum):
    """The verdict on a claim."""

    REPRODUCED = "reproduced"
    DIFFERENT = "reproduced with a difference"
    REFUTED = "refuted"
    UNTESTABLE = "not testable here"


class Reason(StrEnum):
    """The reason for a difference between a claim and the result; the verdict follows from it."""

    NONE = "as stated"
    OTHER_SIZE = "another size"
    OTHER_DATA = "other data"
    OWN_SETTING = "a setting of ours"
    MISPRINT = "a misprint, read as intended"
    REFUTED = "refuted as printed, and as meant"
    NOT_AT_HAND = "not at hand, or nothing is told by what is"

    @property
    def verdict(self) -> Verdict:
        """The verdict on a claim of which this is the reason."""
        return _VERDICTS.get(self, Verdict.DIFFERENT)


_VERDICTS = {
    Reason.NONE: Verdict.REPRODUCED,
    Reason.REFUTED: Verdict.REFUTED,
    Reason.NOT_AT_HAND: Verdict.UNTESTABLE,
}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One published value or statement, with ours.

    Args:
        where: the place in the paper, such as ``Table 2, StableTopK, epsilon``.
        published: the claim: its own words as a short marked quotation, or a number with its
            unit.
        ours: the result, formatted from measured numbers, never typed by hand.
        reason: the reason for a difference.
        why: the reason in words, and a number that a reader can check by hand.
        headline: whether it stands in the table at the top of the page, for which its words are
            few.
    """

    where: str
    published: str
    ours: str
    reason: Reason
    why: str
    headline: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", Reason(self.reason))
        for name in ("where", "published", "ours", "why"):
            text = getattr(self, name)
            require(
                text and "\n" not in text and "|" not in text, f"{name} in one line", **{name: text}
            )
        for name in ("where", "published", "ours") if self.headline else ():
            text = getattr(self, name)
            require(
                len(text) <= _HEADLINE,
                f"{name} of a headline in at most {_HEADLINE} letters",
                **{name: text},
            )

    @property
    def verdict(self) -> Verdict:
        """The verdict on the claim."""
        return self.reason.verdict


class MissingDataError(FileNotFoundError):
    """A file of the papers' data, its only argument, is not in the folder that ``PATE_DATA`` names."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is to be done.

    Args:
        full: as many trials and settings as the paper; otherwise as many as take a few minutes.
        seed: seed of everything that is drawn. Seeded draws are not private, nor are any of the
            data.
        data: folder with ``topk/`` and ``multilabel/``, None if there is none.
    """

    full: bool = False
    seed: int = 0
    data: Path | None = None

    def __post_init__(self) -> None:
        require_count(0, seed=self.seed)

    @classmethod
    def of_surroundings(cls, *, full: bool, seed: int) -> Self:
        """Return the effort with the data folder that ``PATE_DATA`` names, if it does."""
        named = os.environ.get("PATE_DATA")
        return cls(full=full, seed=seed, data=Path(named) if named else None)

    def trials(self, quick: int, full: int) -> int:
        """Return the number of trials of the form that is run."""
        return full if self.full else quick

    def generator(self, *place: int) -> np.random.Generator:
        """Return the generator of one place, so that no place depends on earlier ones."""
        return np.random.default_rng([self.seed, *place])

    def path(self, name: str) -> Path:
        """Return a file of the data folder.

        Raises:
            MissingDataError: if there is no such folder or file.
        """
        if self.data is None or not (self.data / name).is_file():
            raise MissingDataError(name)
        return self.data / name


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A table or figure of a paper as it came out here.

    Args:
        title: the reproduced item, such as ``Figure 1(a): the 15 states with most new cases``.
        paper: authors, year and title.
        method: how it was made, in Markdown: data, mechanisms, relation, how each setting was
            chosen, trials, and how a reader checks a number by hand.
        claims: the claims of the paper about it, at least one.
        rows: the numbers behind the claims, one table with the same columns in every row.
    """

    title: str
    paper: str
    method: str
    claims: tuple[Claim, ...]
    rows: Sequence[Row]

    def __post_init__(self) -> None:
        require(self.claims, "at least one claim", claims=self.claims)
        require(self.rows, "at least one row", rows=self.rows)
        columns = list(self.rows[0])
        for row in self.rows:
            require(list(row) == columns, f"the columns {columns} in every row", columns=list(row))


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A `Finding` that was written to a folder.

    Args:
        name: its files are ``<name>.json`` and ``<name>.csv``.
        seconds: processor time of each form when it was last run, ``quick`` and ``full``; one that
            was not is left out.
        full: whether the full form was run last.
        seed: the seed of the draws.
        run: the commit, date, processor seconds and versions of the last run; None if it is older
            than this record.
        noise: by the place of a claim, how far its numbers may be from those of another run.
        reason: without a run, why there is none, and the commit that brought the figures.
    """

    name: str
    title: str
    paper: str
    method: str
    claims: tuple[Claim, ...]
    seconds: dict[str, float]
    full: bool
    seed: int
    run: dict[str, Any] | None
    noise: dict[str, float]
    reason: str = ""

    @property
    def ran(self) -> str:
        """The commit and the date of the run, or why there is none."""
        if self.run is None:
            return f"not run at this version: {self.reason}"
        return f"run at {self.run['commit']} on {self.run['date']}"


def keep(
    folder: Path,
    name: str,
    finding: Finding,
    effort: Effort,
    seconds: float,
    noise: Mapping[str, float] | None = None,
) -> None:
    """Write a finding to ``folder``: the result and its numbers.

    Without ``noise`` that of an earlier run stays.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / f"{name}.csv", "w") as file:
        writer = csv.DictWriter(file, fieldnames=list(finding.rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _short(value) for key, value in row.items()} for row in finding.rows)
    claims = [asdict(claim) for claim in finding.claims]
    known = {"title": finding.title, "paper": finding.paper, "method": finding.method}
    path = folder / f"{name}.json"
    before = json.loads(path.read_text()) if path.is_file() else {"seconds": {}, "noise": {}}
    times = before["seconds"] | {"full" if effort.full else "quick": round(seconds, 1)}
    done = {"seconds": times, "full": effort.full, "seed": effort.seed, "run": provenance(seconds)}
    done["noise"] = before["noise"] if noise is None else dict(noise)
    write_json(path, known | {"claims": claims} | done)


def spread(finding: Finding, other: Finding) -> dict[str, float]:
    """Return twice the distance of each claim's numbers in two draws of a finding, by its place.

    A claim in other words, such as the name of another data set, has no noise: it comes out exactly.
    """
    pairs = zip(finding.claims, other.claims, strict=True)
    far = {f"{one.where}/here": 2 * distance(one.ours, two.ours) for one, two in pairs}
    return {place: round(noise, 9) for place, noise in far.items() if 0 < noise < math.inf}


def kept(folder: Path) -> list[Kept]:
    """Return the findings of ``folder`` by paper and name."""
    findings = []
    for path in sorted(folder.glob("*.json")):
        content: dict[str, Any] = json.loads(path.read_text())
        claims = tuple(Claim(**claim) for claim in content.pop("claims"))
        findings.append(Kept(name=path.stem, claims=claims, **content))
    return sorted(findings, key=lambda finding: (finding.paper, finding.name))


def _short(value: str | int | float) -> str | int | float:
    """Return a number with the digits that do not depend on the machine."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


FORMS = ("quick", "full")
COMMAND = "python -m scripts.reproduction"

_HEAD = """# Papers reproduced

Tables, figures and statements of the papers that this package builds on or compares with, made again by `make
reproduce`, which also writes this page: no number under "here" is typed by hand.

{counts} Here are the chief ones, each with a link to a page on the method and all claims with their reasons.
"""

_READING = """\
A claim is **reproduced**; **reproduced with a difference**, because the size is another, a claim about certain data
was tried on others, a setting that the paper leaves open is ours, or a misprint has to be read as intended;
**refuted**; or **not testable here**. The verdict follows from the reason, which the tables name. A claim is refuted
only if it fails in the paper's own setting, as printed, and as meant if the two differ. The table then quotes the
paper, and the tests have a second computation of another kind. Every epsilon names its neighboring relation; epsilons
of a paper are under the relation and the theorem that the paper states.

The same seeds give the same numbers, but for times, at the commit and the versions that each file names. Other commits
may draw otherwise: each file states how far the numbers of another seed are, and a run at night compares.

`PATE_DATA` names the folder of the papers' data, which [come from elsewhere]({folder}/data.md).
"""


def page(findings: Sequence[Kept], folder: str) -> str:
    """Return the page in Markdown.

    Args:
        findings: sorted by paper.
        folder: the folder of their files, relative to the page.
    """
    verdicts = Counter(claim.verdict for finding in findings for claim in finding.claims)
    numbers = ", ".join(
        f"{verdicts[verdict]} {verdict}" for verdict in Verdict if verdicts[verdict]
    )
    counts = f"Verdicts on all claims: {numbers}." if numbers else "Nothing is made yet."
    parts = [
        _HEAD.format(counts=counts),
        _headlines(findings, folder),
        _READING.format(folder=folder),
    ]
    return "\n".join([*parts, "## Runs\n", _runs(findings, folder)])


def _words(claim: Claim) -> tuple[str, str, str, str]:
    return claim.where, claim.published, claim.ours, str(claim.verdict)


def _headlines(findings: Sequence[Kept], folder: str) -> str:
    lines = ["| claim | published | here | verdict |", "| --- | --- | --- | --- |"]
    for finding in findings:
        authors = _authors(finding.paper)
        for claim in finding.claims:
            if claim.headline:
                where, *words, verdict = _words(claim)
                lines.append(
                    f"| {authors}: [{where}]({folder}/{finding.name}.md) | {' | '.join(words)} | **{verdict}** |"
                )
    return "\n".join(lines) + "\n"


def _authors(paper: str) -> str:
    """Return the authors and the year of a paper in short: one or two names, or the first of more."""
    names, _, year = paper.partition(")")[0].partition(" (")
    first, *others = names.replace(" & ", ", ").split(", ")
    return f"{names if len(others) < 2 else f'{first} et al.'} ({year})"


def _runs(findings: Sequence[Kept], folder: str) -> str:
    lines = [
        "| page | paper | run | processor seconds, quick | full |",
        "| --- | --- | --- | ---: | ---: |",
    ]
    for finding in findings:
        times = [
            f"{finding.seconds[form]:.0f}" if form in finding.seconds else "not run"
            for form in FORMS
        ]
        lines.append(
            f"| [{finding.name}]({folder}/{finding.name}.md) | {_authors(finding.paper)} | {finding.ran} | {' | '.join(times)} |"
        )
    return "\n".join(lines) + "\n"


def section(finding: Kept) -> str:
    """Return the page of one finding, beside its files."""
    lines = [f"# {finding.title}", "", f"{finding.paper}.", "", finding.method.strip(), ""]
    lines += ["| where | published | here | verdict | why |", "| --- | --- | --- | --- | --- |"]
    for claim in finding.claims:
        *words, verdict = _words(claim)
        reason = f": {claim.reason}" if claim.verdict is Verdict.DIFFERENT else ""
        lines.append(f"| {' | '.join(words)} | **{verdict}**{reason} | {claim.why} |")
    shown = f"{FORMS[finding.full]} form, seed {finding.seed}, {finding.ran}"
    lines += [
        "",
        f"Numbers: [{finding.name}.csv]({finding.name}.csv); {shown}. Again: `{COMMAND} {finding.name}`, with `--full` as in the paper.",
    ]
    return "\n".join(lines) + "\n"
