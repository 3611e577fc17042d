"""Histograms of anything: how often users chose each item, read from pairs or from counts."""

import csv
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pate._core.accounting.ledger import is_ledger_of, ledger_beside, one_ledger
from pate._core.accounting.privacy_unit import EACH, PrivacyUnit
from pate._core.files.reading import read_array, read_arrays
from pate._core.validation import (
    FloatArray,
    given,
    require,
    require_count,
    require_distinct,
    require_positive,
)

CountArray = NDArray[np.integer]
_LONGEST = 1 << 30  # characters of a value, so that no user's is too long


@dataclass(frozen=True, eq=False)
class Histogram:
    """Scores of items. The scores are PRIVATE.

    Attributes:
        items: names of the d items. A public list must not depend on the users. A list that is not
            public holds the items that some user has. Its names and d are PRIVATE like the scores.
        scores: ``[d]``, the number of times that each was chosen, or any other score.
        sensitivity: the largest change of one score by one user. The presence of a user changes all
            scores in one direction.
        bound: the largest contribution of one user, in words.
        public: whether the list of items is public.
    """

    items: tuple[str, ...]
    scores: CountArray | FloatArray
    sensitivity: float
    bound: str
    public: bool = True

    def __post_init__(self) -> None:
        require(
            self.scores.shape == (len(self.items),),
            f"{len(self.items)} scores",
            shape=self.scores.shape,
        )
        require_positive(sensitivity=self.sensitivity)
        require_distinct("items", self.items)


def read_counts(path: Path, *, sensitivity: float = 1.0) -> Histogram:
    """Read scores of items on a list that is taken to be public.

    Args:
        path: a ``.csv`` with columns ``item`` and ``count``; a ``.npy`` of ``[d]`` numbers, for
            items with the names 0..d-1; or a ``.npz`` with ``counts`` and, for other names,
            ``items``.
        sensitivity: the largest change of one score by one user. The presence of a user changes all
            scores in one direction.

    Raises:
        ValueError: on a file that cannot be read so.
    """
    if path.suffix == ".csv":
        rows = list(_rows(path, "item", "count"))
        items = tuple(item for item, _ in rows)
        scores = _array([_number(text, path) for _, text in rows], sensitivity)
    else:
        require(path.suffix in (".npy", ".npz"), "counts in a .csv, .npy or .npz", path=str(path))
        if path.suffix == ".npy":
            arrays = {"counts": read_array(path, what="a file of counts")}
        else:
            arrays = read_arrays(path, ("counts",), ("items",), what="a file of counts")
        scores = arrays["counts"]
        require(
            scores.ndim == 1 and scores.dtype.kind in "iuf",
            "counts as [d] numbers",
            shape=scores.shape,
        )
        require(np.isfinite(scores).all(), "finite counts")
        names = arrays.get("items", np.arange(scores.size))
        require(names.ndim == 1, "items as [d] names", shape=names.shape)
        items = tuple(str(name) for name in names)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = np.ptp(scores.astype(np.float64)) if scores.size else 0.0
    require(np.isfinite(spread), "counts with finite differences")
    if (
        scores.dtype.kind == "f"
        and (scores == np.rint(scores)).all()
        and np.abs(scores.astype(np.float64)).max(initial=0) < 2**53
    ):
        scores = scores.astype(np.int64)
    # Means, for example, move both ways as a user comes or goes: twice the range of scores that
    # ADD_REMOVE_TEACHER prices.
    bound = (
        f"every count by at most {sensitivity:g}, and all in one direction where a user is"
        " there or not, as whoever brings the counts promises"
    )
    return Histogram(items, scores, sensitivity, bound)


def read_items(path: Path) -> tuple[str, ...]:
    """Read a public list of items, one on a line. Raises ``ValueError`` where there is none."""
    require(path.is_file(), "a file of items", path=str(path))
    return tuple(
        line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()
    )


def read_pairs(
    path: Path,
    items: tuple[str, ...] | None,
    *,
    max_each: int = 1,
    max_items: int | None = None,
    generator: np.random.Generator,
) -> Histogram:
    """Count the choices of items by users, with a bound on the contribution of each user.

    A user counts at most ``max_each`` times for one item, however often the pair occurs. Of a user
    with more items, ``max_items`` are drawn, independently of all other users. So one user moves at
    most ``max_items`` counts by at most ``max_each``. Pairs with items off the public list are left
    out. Without a list, the items are those that some user counts for, in the order of their names;
    pairs without an item are left out.

    Args:
        path: a ``.csv`` with columns ``user`` and ``item``.
        items: the public list. None where there is none.
        max_each: the largest number of times that a user counts for one item.
        max_items: the number of items of one user that count. None for all of them.
        generator: the generator for the draw of items.

    Raises:
        ValueError: on a file that cannot be read so, or bounds below 1.
    """
    require_count(1, max_each=max_each, **given(max_items=max_items))
    listed = None if items is None else set(items)
    chosen: dict[str, Counter[str]] = {}
    for user, item in _rows(path, "user", "item"):
        if item in listed if listed is not None else item:
            chosen.setdefault(user, Counter())[item] += 1
    names = tuple(sorted(set().union(*chosen.values()))) if items is None else items
    place = {name: i for i, name in enumerate(names)}
    scores = np.zeros(len(names), dtype=np.int64)
    for counter in chosen.values():
        times = {place[name]: min(count, max_each) for name, count in counter.items()}
        counted = np.array(sorted(times))
        if max_items is not None and counted.size > max_items:
            counted = generator.choice(counted, size=max_items, replace=False, shuffle=False)
        scores[counted] += [times[item] for item in counted.tolist()]
    if items is None:
        names = tuple(name for name, score in zip(names, scores.tolist(), strict=True) if score)
        scores = scores[scores > 0]
    most = "any number of counts" if max_items is None else f"at most {max_items} counts"
    bound = f"{most} by at most {max_each} each, which is enforced"
    return Histogram(names, scores, float(max_each), bound, public=items is not None)


class HistogramSource(Protocol):
    """The private data of a histogram."""

    @property
    def public(self) -> bool:
        """Whether the list of items is public."""

    @property
    def path(self) -> Path:
        """The file or folder of the users' contributions."""

    @property
    def privacy_unit(self) -> PrivacyUnit:
        """For whom a release is priced."""

    def counted_by(self, ledger: Path) -> str:
        """Return the scope of a ledger, as statements name it."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that the histogram follows from."""

    def facts(self) -> dict[str, Any]:
        """Return all other settings of the histogram. Any change shows in their texts."""

    def read(self, generator: np.random.Generator) -> Histogram:
        """Return the histogram; ``generator`` draws the items of a user that count."""


@dataclass(frozen=True, kw_only=True)
class HistogramFiles:
    """The files behind a histogram.

    Args:
        pairs: a .csv with columns user and item (PRIVATE).
        items: with pairs, the public list of all items that may be chosen, one on a line; none is
            needed with --mechanism limited_domain.
        max_each: with pairs, the largest number of times that one user counts for one item.
        max_items: with pairs, the number of items of one user that count, drawn at random; by
            default all of them.
        counts: in place of pairs, counts of items (PRIVATE): a .csv with columns item and count, a
            .npy, or a .npz with counts and items.
        sensitivity: with counts, the largest change of one count by one user, all in one direction
            if the user is there or not; 1 unless given.

    Raises:
        ValueError: unless either pairs or counts are given, each with its own options.
    """

    pairs: Path | None = None
    items: Path | None = None
    max_each: int | None = None
    max_items: int | None = None
    counts: Path | None = None
    sensitivity: float | None = None

    def __post_init__(self) -> None:
        texts = {name: None if value is None else str(value) for name, value in vars(self).items()}
        require(
            (self.pairs is None) != (self.counts is None),
            "either `pairs` or `counts`",
            pairs=texts["pairs"],
            counts=texts["counts"],
        )
        if self.pairs is not None:
            require(
                self.sensitivity is None, "`max_each` with `pairs`", sensitivity=self.sensitivity
            )
        else:
            for name in ("items", "max_each", "max_items"):
                require(texts[name] is None, f"no `{name}` with `counts`", **{name: texts[name]})

    @property
    def public(self) -> bool:
        """Whether the list of items is public."""
        return self.pairs is None or self.items is not None

    @property
    def path(self) -> Path:
        """The file with the users' contributions."""
        return self.files[0]

    @property
    def ledger_path(self) -> Path:
        """The default place of the ledger: next to the data, with links followed.

        Raises ``ValueError`` if another ledger there may count them too.
        """
        return one_ledger(self._place)

    @property
    def privacy_unit(self) -> PrivacyUnit:
        """A user with all that it contributes, who counts for itself."""
        return PrivacyUnit(unit="user", partition=EACH)

    def counted_by(self, ledger: Path) -> str:
        """Return the scope of a ledger: ``private data`` for the default, ``named`` for others."""
        return "private data" if is_ledger_of(ledger, self._place) else "named"

    @property
    def _place(self) -> Path:
        return ledger_beside(self.path.resolve() if self.path.is_symlink() else self.path)

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that are read. The users' contributions come first."""
        return tuple(path for path in (self.pairs, self.counts, self.items) if path is not None)

    def facts(self) -> dict[str, Any]:
        """Return the settings of the histogram, apart from the content and the paths of its files.

        Raises ``ValueError`` if a file is missing.
        """
        facts = dict(vars(self))
        for name in ("pairs", "counts", "items"):
            path = facts[name]
            require(path is None or path.is_file(), f"a file of {name}", path=str(path))
            facts[name] = path is not None
        return facts

    def read(self, generator: np.random.Generator) -> Histogram:
        """Return the histogram; ``generator`` draws the items of a user that count."""
        if self.counts is not None:
            return read_counts(
                self.counts, sensitivity=1.0 if self.sensitivity is None else self.sensitivity
            )
        assert self.pairs is not None
        return read_pairs(
            self.pairs,
            None if self.items is None else read_items(self.items),
            max_each=1 if self.max_each is None else self.max_each,
            max_items=self.max_items,
            generator=generator,
        )


def _rows(path: Path, first: str, second: str) -> Iterator[tuple[str, str]]:
    """Yield two columns of a file with a header, by name."""
    require(path.suffix == ".csv", f"a .csv with columns {first} and {second}", path=str(path))
    require(path.is_file(), "an existing file", path=str(path))
    # The content of a line is PRIVATE, of the first one too if it is no header: no message
    # repeats it.
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            # strict: a quote that is never closed would make all users after it one item
            csv.field_size_limit(_LONGEST)
            reader = csv.reader(file, strict=True)
            names = [name.strip() for name in next(reader, [])]
            require(
                {first, second} <= set(names),
                f"columns {first} and {second} in the first line of {path}",
                columns=f"{len(names)} others",
            )
            places = names.index(first), names.index(second)
            for row in reader:
                if row:
                    require(
                        len(row) == len(names),
                        f"{len(names)} columns in line {reader.line_num}",
                        columns=len(row),
                    )
                    yield row[places[0]].strip(), row[places[1]].strip()
    except (csv.Error, UnicodeDecodeError):
        raise ValueError(
            f"Expected a .csv in UTF-8 with all quotes closed, got another file at {path}"
        ) from None


def _number(text: str, path: Path) -> int | float:
    """Return the number in a text, an integer to the last digit."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    require(math.isfinite(number), f"finite numbers in the column count of {path}")
    return int(number) if number.is_integer() else number


def _array(numbers: list[int | float], sensitivity: float) -> CountArray | FloatArray:
    """Return numbers as int64 or uint64 if all are whole, else as float64. No message repeats them.

    Raises ``ValueError`` on whole numbers beyond 64 bits, or on others so large that a float cannot
    tell neighbors apart: rounding moves the accepted ones by 2^-21 of the sensitivity at most.
    """
    low, high = min(numbers, default=0), max(numbers, default=0)
    if all(isinstance(number, int) for number in numbers):
        signed = low >= -(2**63) and high < 2**63
        require(signed or 0 <= low <= high < 2**64, "whole counts of 64 bits")
        return np.array(numbers, dtype=np.int64 if signed else np.uint64)
    most = 2**32 * abs(sensitivity)
    require(
        not max(high, -low) > most,
        f"counts of at most {most:g} unless all are whole",
    )
    return np.array(numbers, dtype=np.float64)
