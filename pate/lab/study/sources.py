"""Votes to compare mechanisms on: of files, and of histograms.

First histograms, in files or of a given shape. Then all votes of a study, with what their releases
are compared with.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pate._core.files.reading import digest, opened_archive, read_array, read_arrays
from pate._core.validation import (
    BoolArray,
    IntArray,
    require,
    require_count,
    require_positive,
)
from pate._labeling.stages.votes_import import NamedVotes
from pate._labeling.votes.kinds import Counts, Votes, drawn_rows, rows_of

_MANY = 2**32  # above the counts of a histogram: no number of users is public


@dataclass(frozen=True, kw_only=True)
class CountsFile:
    """Histograms of a file, a row each, on the same items.

    Args:
        path: an .npz file, or an .npy file of one array.
        array: the name of the array in an .npz file, ``[Q, d]`` or ``[d]`` whole numbers.
        rows: the first row and the one after the last. None for all.
        negative_as_zero: whether a number below 0, such as a correction, counts as 0.
    """

    path: Path
    array: str = "counts"
    rows: tuple[int, int] | None = None
    negative_as_zero: bool = False

    def __str__(self) -> str:
        rows = "" if self.rows is None else f"[{self.rows[0]}:{self.rows[1]}]"
        return f"{self.path.name} {self.array}{rows}"

    def read(self) -> NDArray[np.integer]:
        """Return counts ``[Q, d]``. Raises ``ValueError`` on a file without them."""
        what = f"a file of {self.array}"
        if self.path.suffix == ".npz":
            with opened_archive(self.path, f"{what} in {self.path}") as archive:
                names = [Path(name).stem for name in archive.namelist()]
            others = [name for name in names if name != self.array]
            found = read_arrays(self.path, (self.array,), unread=others, what=what)[self.array]
        else:
            found = read_array(self.path, what=what)
        require(found.ndim in (1, 2), f"{self.array} as [Q, d] counts", shape=found.shape)
        found = np.atleast_2d(found)
        first, end = self.rows or (0, len(found))
        require(0 <= first < end <= len(found), f"rows within 0..{len(found)}", rows=self.rows)
        some = found[first:end]
        return np.maximum(some, 0) if self.negative_as_zero else some


@dataclass(frozen=True, kw_only=True)
class Steps:
    """One histogram: k items, the k of the study, have one count and all others another.

    Args:
        num_items: number of items.
        top: the count of each of the k items.
        rest: the count of each other item.
    """

    num_items: int
    top: int
    rest: int = 0

    def __post_init__(self) -> None:
        require_count(2, num_items=self.num_items)
        require(0 <= self.rest < self.top < _MANY, "0 <= rest < top", rest=self.rest, top=self.top)

    def counts(self, k: int) -> IntArray:
        """Return the histogram ``[d]`` for a k."""
        return np.where(np.arange(self.num_items) < k, self.top, self.rest)


@dataclass(frozen=True, kw_only=True)
class Zipf:
    """One histogram by Zipf's law, whose i-th count is proportional to ``i ** -exponent``.

    Args:
        num_items: number of items.
        exponent: the exponent, above 0.
        total: the sum of the counts, before they are rounded to whole numbers.
    """

    num_items: int
    exponent: float
    total: float

    def __post_init__(self) -> None:
        require_count(2, num_items=self.num_items)
        require_positive(exponent=self.exponent, total=self.total)
        require(self.total < _MANY, f"total < {_MANY}", total=self.total)

    def counts(self, k: int) -> IntArray:
        """Return the histogram ``[d]``, the same for each k."""
        weights = np.arange(1.0, self.num_items + 1) ** -self.exponent
        return np.asarray(np.rint(self.total * weights / weights.sum()), dtype=np.int64)


class Source(NamedTuple):
    """Votes of a study.

    Attributes:
        name: the file, or the shape in words.
        identity: a digest of all that they follow from.
        votes: the votes on the queries.
        truth: ``[Q, C]``, which labels are right. None for the exact top k.
        histogram: whether each query is a histogram, without majorities.
    """

    name: str
    identity: str
    votes: Counts
    truth: BoolArray | None = None
    histogram: bool = False


def votes_of(path: Path, truth: Path | None, *, num_queries: int | None, seed: int) -> Source:
    """Return the votes of an .npz file, as for ``pate label --votes``, on the drawn samples.

    Args:
        path: the file, of ballots or counts.
        truth: an .npz with ids and Y ``[N, C]``. None for the exact top k.
        num_queries: number of samples. None for all.
        seed: seed of their public order.

    Raises:
        ValueError: on a file that is not what it should be, or fewer samples than queries.
    """
    named = NamedVotes.read(path)
    require(
        issubclass(named.kind, Counts), "ballots or counts, which have a top k", votes=str(path)
    )
    if named.ballots is not None:
        made: Counts = Votes.from_ballots(named.ballots)
    else:
        assert named.counts is not None and named.num_teachers is not None
        made = Votes.from_counts(named.counts, named.num_teachers)
    size = len(named.ids)
    rows = drawn_rows(size, size if num_queries is None else num_queries, seed=seed)
    right = None if truth is None else _truth(truth, named)[rows]
    files = [path] if truth is None else [path, truth]
    return Source(
        str(path),
        digest(f"{num_queries} {seed}", *files),
        made.with_public(features=named.features)[rows],
        right,
    )


def _truth(path: Path, named: NamedVotes) -> BoolArray:
    """Return the true labels ``[N, C]`` of the samples of a file of votes."""
    arrays = read_arrays(path, ("ids", "Y"), what="an .npz file of ids and Y")
    ids, labels = arrays["ids"], arrays["Y"]
    expected = (len(ids), len(named.label_names))
    require(labels.shape == expected, f"Y of shape {expected}", shape=labels.shape)
    require(np.isin(labels, (0, 1)).all(), "Y in {0, 1}", truth=str(path))
    return np.asarray(labels[rows_of(named.ids, ids)] == 1)


def counts_of(place: Path | CountsFile) -> Source:
    """Return the histograms of a file. Raises ``ValueError`` on anything but whole numbers >= 0."""
    file = place if isinstance(place, CountsFile) else CountsFile(path=place)
    scores, identity = file.read(), digest(repr(place), file.path)
    require(
        scores.dtype.kind in "iu" and scores.min(initial=0) >= 0,
        "counts that are whole numbers >= 0",
        counts=str(place),
    )
    return Source(str(place), identity, Votes.from_counts(scores, _MANY), histogram=True)


def shape_of(shape: Steps | Zipf, k: int) -> Source:
    """Return the histogram of a given shape for a k."""
    words = ", ".join(
        f"{field.name} {getattr(shape, field.name)}"
        for field in fields(shape)
        if getattr(shape, field.name) != field.default
    )
    name = f"{type(shape).__name__.lower()} ({words})"
    votes = Votes.from_counts(shape.counts(k)[None], _MANY)
    return Source(name, digest(name, str(k)), votes, histogram=True)
