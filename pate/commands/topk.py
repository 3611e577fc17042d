"""The command `pate topk`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from pate.commands.parsing import call
from pate.histogram import Histogram, read_counts, read_items, read_pairs
from pate.stages.top_k import TopKSettings, described, release_top_k
from pate.validation import expect


@dataclass(frozen=True, kw_only=True)
class HistogramFrom:
    """Where the histogram comes from.

    Args:
        pairs: a .csv with columns user and item (PRIVATE).
        items: with pairs, the public list of all items that may be chosen, one on a line; none is needed with
            --mechanism limited_domain.
        max_each: with pairs, how often one user counts for one item at most.
        max_items: with pairs, how many items of one user count, drawn at random for each; by default all of them.
        counts: in place of pairs, counts of items (PRIVATE): a .csv with columns item and count, a .npy, or a .npz with
            counts and items.
        sensitivity: with counts, the most by which one user changes one of them; 1 unless given.

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
        one = (self.pairs is None) != (self.counts is None)
        given = {name: None if value is None else str(value) for name, value in vars(self).items()}
        expect(one, "either --pairs or --counts", pairs=given["pairs"], counts=given["counts"])
        if self.pairs is not None:
            expect(self.sensitivity is None, "--max_each with --pairs", sensitivity=self.sensitivity)
        else:
            for name in ("items", "max_each", "max_items"):
                expect(given[name] is None, f"no --{name} with --counts", **{name: given[name]})

    @property
    def public(self) -> bool:
        """Whether the list of items is public."""
        return self.pairs is None or self.items is not None

    @property
    def path(self) -> Path:
        """The file with what users contributed."""
        path = self.counts if self.pairs is None else self.pairs
        assert path is not None
        return path

    def read(self, generator: np.random.Generator) -> Histogram:
        """Return the histogram; ``generator`` draws which items of a user count."""
        if self.counts is not None:
            return read_counts(self.counts, sensitivity=1.0 if self.sensitivity is None else self.sensitivity)
        assert self.pairs is not None
        items = None if self.items is None else read_items(self.items)
        each = 1 if self.max_each is None else self.max_each
        return read_pairs(self.pairs, items, max_each=each, max_items=self.max_items, generator=generator)


def topk(
    *,
    source: HistogramFrom,
    settings: TopKSettings,
    output: Path,
    ledger: Path | None = None,
    max_epsilon: float | None = None,
) -> None:
    """Release the k items that most users chose, privately.

    Each call is a release, and pays for it in the ledger of the data. What one user contributes is bounded as the
    options say; the list of items is public, unless limited_domain does without one.

    Args:
        source: where the histogram comes from.
        settings: what is asked for.
        output: the .csv or .json that is written; the statement is beside it, in .privacy.json and .privacy.txt.
        ledger: ledger of the private data, one for all releases from them; by default a file beside the data,
            pairs.ledger.sqlite for pairs.csv.
        max_epsilon: limit on all releases of the ledger together; the first one given is final.

    Raises:
        ValueError: on input out of range, before anything is spent.
    """
    settings.expect_list(public=source.public)
    histogram = source.read(settings.generator(0))
    book = source.path.with_suffix(".ledger.sqlite") if ledger is None else ledger
    statement = release_top_k(histogram, settings, output=output, ledger=book, max_epsilon=max_epsilon)
    print(described(statement), end="")
    print(f"Release {statement['release']} of {book}: {output}, {output.with_suffix('.privacy.json')}")


main = partial(call, "topk", topk, grouped={"source": HistogramFrom, "settings": TopKSettings})
