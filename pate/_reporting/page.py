"""The content of a page: sections of blocks, each of a type that the template can draw."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

ABSENT = "\u2013"
"""Stands for a missing figure."""


@dataclass(frozen=True)
class Block:
    """A part of a section; ``kind`` names the macro of the template that draws it."""

    kind: ClassVar[str]


@dataclass(frozen=True)
class Text(Block):
    """A paragraph with, if not empty, a ``command`` below it.

    Its tone is ``warning`` for texts that a reader must not miss, ``next`` for the next step.
    """

    kind: ClassVar[str] = "text"
    text: str
    tone: Literal["plain", "warning", "next"] = "plain"
    command: str = ""


@dataclass(frozen=True)
class Figure:
    """One figure in large digits, with its name and a note."""

    value: str
    name: str
    note: str = ""


@dataclass(frozen=True)
class Figures(Block):
    """Figures side by side."""

    kind: ClassVar[str] = "figures"
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Bar:
    """A figure in [0, 1] with a bar of its length, and a mark at the figure for comparison."""

    text: str
    share: float
    mark: float | None = None


@dataclass(frozen=True)
class Table(Block):
    """Rows below a head: names in the first column and those in ``wordy``, figures in the others.

    The row ``strong`` is set in bold.
    """

    kind: ClassVar[str] = "table"
    head: tuple[str, ...]
    rows: tuple[tuple[str | Bar, ...], ...]
    wordy: tuple[int, ...] = ()
    strong: int | None = None


@dataclass(frozen=True)
class Sample:
    """A public sample with its released labels.

    Attributes:
        name: its id.
        picture: a data URI; empty for a sample that is not a picture.
        values: its features, for a sample that is not a picture.
        released: names of its positive released labels.
        answered: whether any label was released.
        withheld: number of labels that were not released.
        predicted: names of the positive labels by the student; None without predictions.
    """

    name: str
    picture: str = ""
    values: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    answered: bool = True
    withheld: int = 0
    predicted: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Gallery(Block):
    """Pictures side by side, or other samples one below the other."""

    kind: ClassVar[str] = "gallery"
    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class Tick:
    """A mark on an axis, in units of the drawing."""

    place: float
    text: str


@dataclass(frozen=True)
class Line:
    """A named line through points in units of the drawing."""

    name: str
    points: tuple[tuple[float, float], ...]
    dots: bool = False


@dataclass(frozen=True)
class Column:
    """A column of a histogram, in units of the drawing, with a text shown on hovering."""

    left: float
    top: float
    width: float
    height: float
    text: str


@dataclass(frozen=True)
class Chart(Block):
    """Lines or columns between two axes, in a drawing of ``width`` by ``height``."""

    kind: ClassVar[str] = "chart"
    width: ClassVar[int] = 680
    height: ClassVar[int] = 260
    left: ClassVar[int] = 58
    right: ClassVar[int] = 664
    top: ClassVar[int] = 12
    bottom: ClassVar[int] = 216
    title: str
    x_label: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    lines: tuple[Line, ...] = ()
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True)
class Picture(Block):
    """A picture as a data URI, with a caption."""

    kind: ClassVar[str] = "picture"
    source: str
    caption: str


@dataclass(frozen=True)
class Listing(Block):
    """Monospaced text, folded unless it is ``open``."""

    kind: ClassVar[str] = "listing"
    title: str
    text: str
    open: bool = False


@dataclass(frozen=True)
class Section:
    """A titled part of a page; one that must not be published is ``private`` and marked as such."""

    anchor: str
    title: str
    blocks: tuple[Block, ...]
    private: bool = False


@dataclass(frozen=True)
class Page:
    """A page on a run: its name, a summary, its sections from the statement on, and the version."""

    title: str
    summary: str
    sections: tuple[Section, ...]
    version: str

    @property
    def private(self) -> bool:
        """Whether any part must not be published."""
        return any(section.private for section in self.sections)


def shown(value: float | None, digits: int = 3) -> str:
    """Return a figure as text, `ABSENT` if there is none."""
    return ABSENT if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


def barred(value: float | None, mark: float | None = None) -> str | Bar:
    """Return a figure in [0, 1] with a bar, `ABSENT` if there is none."""
    return Bar(shown(value), value, mark) if value is not None and math.isfinite(value) else ABSENT


def barred_share(value: float) -> str | Bar:
    """Return a share in percent with a bar, `ABSENT` if it is NaN."""
    return Bar(f"{value:.0%}", value) if math.isfinite(value) else ABSENT
