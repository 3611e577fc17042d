"""Claims of papers with the results here, and the files that keep them."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from pate._core.files.writing import atomic_write, write_json
from pate._core.validation import require, require_count
from scripts.results.__main__ import distance, provenance

Row = Mapping[str, str | int | float]

_COLORS = 256  # of a picture that is kept
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
        rows: the numbers behind the picture, one table with the same columns in every row.
        picture: the figure, if there is one.
        caption: one line under the picture.
    """

    title: str
    paper: str
    method: str
    claims: tuple[Claim, ...]
    rows: Sequence[Row]
    picture: Figure | None = field(default=None, compare=False)
    caption: str = ""

    def __post_init__(self) -> None:
        require(self.claims, "at least one claim", claims=self.claims)
        require(self.rows, "at least one row", rows=self.rows)
        columns = list(self.rows[0])
        for row in self.rows:
            require(list(row) == columns, f"the columns {columns} in every row", columns=list(row))
        require(
            bool(self.caption) == (self.picture is not None),
            "a caption of a picture",
            caption=self.caption,
        )


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A `Finding` that was written to a folder.

    Args:
        name: its files are ``<name>.json``, ``<name>.csv`` and, with a picture, ``<name>.png``.
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
    caption: str
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
    """Write a finding to ``folder``: the result, its numbers and its picture.

    Without ``noise`` that of an earlier run stays.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / f"{name}.csv", "w") as file:
        writer = csv.DictWriter(file, fieldnames=list(finding.rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _short(value) for key, value in row.items()} for row in finding.rows)
    if finding.picture is not None:
        with atomic_write(folder / f"{name}.png") as file:
            _save_picture(finding.picture, file)
    claims = [asdict(claim) for claim in finding.claims]
    known = {
        "title": finding.title,
        "paper": finding.paper,
        "method": finding.method,
        "caption": finding.caption,
    }
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


def _save_picture(picture: Figure, file: IO[Any]) -> None:
    """Write a picture with as few colors as its lines need, which takes a third of the space."""
    drawn = io.BytesIO()
    picture.savefig(drawn, format="png", dpi=110, metadata={"Software": None})
    few = (
        Image.open(drawn)
        .convert("RGB")
        .quantize(_COLORS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    )
    few.save(file, "PNG", optimize=True)


def _short(value: str | int | float) -> str | int | float:
    """Return a number with the digits that do not depend on the machine."""
    return float(f"{value:.6g}") if isinstance(value, float) else value
