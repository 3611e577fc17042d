"""A task: votes on public samples, and the data on which a student is trained and evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from pate._data_file import load_data
from pate._linear import flat
from pate._planning.comparison import Comparison
from pate._runs import Run
from pate._validation import FloatArray, UInt8Array
from pate._votes import Ballots, Counts, Need, Votes, drawn_rows, require_kind, rows_of, serves
from pate._votes.store import finished_votes
from pate.aggregators import Aggregator
from pate.data._records import Role

Kind = TypeVar("Kind", bound=Votes, covariant=True)


@dataclass(frozen=True, kw_only=True)
class Task(Generic[Kind]):
    """Votes on public samples, and the data on which a student is trained and evaluated.

    Attributes:
        votes: votes on ``N`` public samples, with ballots and features where they are needed.
        test_features: features of the test samples, ``[M, ...]``; M = 0 without a student.
        test_labels: true labels of the test samples, ``[M, C]`` in {0, 1}, or `pate.data.UNKNOWN`.
        label_names: names of the labels.
        private: whether the votes are private.
    """

    votes: Kind
    test_features: FloatArray
    test_labels: UInt8Array
    label_names: tuple[str, ...]
    private: bool

    def drawn(self, num_queries: int, *, seed: int) -> Task[Kind]:
        """Return the task on the samples that `drawn_rows` takes, and raise as it does."""
        return replace(
            self, votes=self.votes[drawn_rows(self.votes.num_queries, num_queries, seed=seed)]
        )


def load_task(
    root: Path, comparison: Comparison, aggregators: Sequence[Aggregator] | None = None
) -> Task[Counts]:
    """Return the task of a run: votes on the drawn samples, as a comparison needs them. PRIVATE.

    Args:
        root: the folder of the run.
        comparison: its settings. Test samples are read only for a student.
        aggregators: the aggregators to compare. Ballots and features are read if one of them needs
            these, or for None.

    Raises:
        ValueError: if the teachers have not voted, or only their counts are known where ballots are
            needed, or on fewer samples than there are queries.
    """
    run = Run(root)
    store = finished_votes(run)
    manifest = store.manifest()
    names = tuple(manifest.label_names)
    rows = drawn_rows(len(manifest.ids), comparison.num_queries, seed=comparison.query_seed)
    # a round of clipped ballots, which trains a student, precedes aggregators with predictions
    needs = frozenset[Need]({Counts}).union(*(each.needs for each in aggregators or ()))
    if aggregators is None or "predictions" in needs:
        needs |= {Ballots, "features"}
    require_kind(manifest.kind, needs, "the comparison")
    votes, ids = store.load(Counts if serves(Counts, needs) else Ballots, rows=rows)
    test_features, test_labels = np.zeros((0, 1)), np.zeros((0, len(names)), dtype=np.uint8)
    brought = store.features(rows)
    if brought is not None:
        votes = votes.with_public(features=brought)
    if comparison.student or ("features" in needs and brought is None):
        data = load_data(run)
        if brought is None:
            public = data.records(Role.PUBLIC)
            votes = votes.with_public(
                features=flat(public.features[rows_of(np.array(ids), public.ids)])
            )
        if comparison.student:
            test = data.records(Role.TEST)
            test_features, test_labels = (
                np.asarray(test.features[np.arange(len(test))], np.float64),
                test.labels,
            )
    return Task(
        votes=votes,
        test_features=test_features,
        test_labels=test_labels,
        label_names=names,
        private=True,
    )
