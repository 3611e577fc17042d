"""What a page says: sections of blocks, each of a type that the template knows how to draw."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

ABSENT = "\u2013"
"""What stands in place of a figure that there is not."""


@dataclass(frozen=True)
class Block:
    """A part of a section; ``kind`` names the template's way to draw it."""

    kind: ClassVar[str]


@dataclass(frozen=True)
class Text(Block):
    """A paragraph.

    Attributes:
        text: its words.
        tone: ``warning`` for what a reader must not miss, ``next`` for what is to be done next.
        command: a line for a terminal below the words, or an empty text.
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
    """A figure in [0, 1] with a bar of its length, and a mark where another figure to compare it with ends."""

    text: str
    share: float
    mark: float | None = None


@dataclass(frozen=True)
class Table(Block):
    """Rows below a head; the first column holds names, all others figures unless they are in ``wordy``."""

    kind: ClassVar[str] = "table"
    head: tuple[str, ...]
    rows: tuple[tuple[str | Bar, ...], ...]
    wordy: tuple[int, ...] = ()
    strong: int | None = None
    """The row that the table is about."""


@dataclass(frozen=True)
class Sample:
    """A public sample with what was released of it.

    Attributes:
        name: its id.
        picture: a data URI, or an empty text.
        values: values of its features, for samples that are no pictures.
        released: names of the labels that were released as given.
        answered: whether any label was released.
        withheld: number of labels that were not released.
        predicted: names of the labels that the student gives; None if it was not asked.
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
    """Samples side by side, or below each other if they are rows of a table."""

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
    """A column of a histogram, in units of the drawing, with words that appear when it is pointed at."""

    left: float
    top: float
    width: float
    height: float
    text: str


@dataclass(frozen=True)
class Chart(Block):
    """Lines or columns between two axes, in units of a drawing of ``width`` by ``height``."""

    kind: ClassVar[str] = "chart"
    title: str
    x_label: str
    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
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
    """Text as it is, in letters of one width, folded up unless it is ``open``."""

    kind: ClassVar[str] = "listing"
    title: str
    text: str
    open: bool = False


@dataclass(frozen=True)
class Section:
    """A titled part of a page.

    Attributes:
        anchor: its address within the page.
        title: its title.
        blocks: what it says.
        private: whether it holds what must not be published, and is marked so.
    """

    anchor: str
    title: str
    blocks: tuple[Block, ...]
    private: bool = False


@dataclass(frozen=True)
class Page:
    """A page on a run.

    Attributes:
        title: the name of the run.
        summary: one line.
        sections: its parts, the statement first.
        version: the version of the package that made it.
    """

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
