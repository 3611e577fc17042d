"""A task: votes on public samples, and the data on which a student is trained and evaluated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pate.data.records import Role
from pate.data_file import load_data
from pate.runs import Run
from pate.typing import FloatArray, UInt8Array
from pate.validation import expect
from pate.vote_store import finished_votes
from pate.votes import Votes, rows_of


@dataclass(frozen=True, kw_only=True)
class Task:
    """Votes on public samples, and the data on which a student is trained and evaluated.

    Attributes:
        votes: votes on ``N`` public samples, with ballots.
        features: features of the public samples, ``[N, ...]``.
        test_features: features of the test samples, ``[M, ...]``.
        test_labels: true labels of the test samples, ``[M, C]`` in {0, 1}.
        label_names: names of the labels.
        private: whether the votes are private.
    """

    votes: Votes
    features: FloatArray
    test_features: FloatArray
    test_labels: UInt8Array
    label_names: tuple[str, ...]
    private: bool

    def drawn(self, num_queries: int, *, seed: int) -> Task:
        """Return the task on the first samples in the public order of ``seed``, as `pate label` takes them.

        Raises ``ValueError`` if there are not enough samples.
        """
        available = self.votes.num_queries
        expect(num_queries <= available, f"num_queries <= {available}", num_queries=num_queries)
        chosen = np.random.default_rng(seed).permutation(available)[:num_queries]
        features = np.asarray(self.features[chosen], dtype=np.float64)
        return replace(self, votes=self.votes[chosen], features=features)


def load_task(root: Path, *, student: bool) -> Task:
    """Return the task of a run, PRIVATE; features and test samples are included only for a student.

    Raises ``ValueError`` if the teachers of the run in the folder ``root`` have not voted, or only their counts are
    known.
    """
    run = Run(root)
    store = finished_votes(run)
    votes, ids = store.load(ballots=True)
    names = tuple(store.manifest().label_names)
    if not student:
        return Task(
            votes=votes,
            features=np.zeros((len(ids), 1)),
            test_features=np.zeros((0, 1)),
            test_labels=np.zeros((0, len(names)), dtype=np.uint8),
            label_names=names,
            private=True,
        )
    data = load_data(run)
    public, test = data.records(Role.PUBLIC), data.records(Role.TEST)
    rows = rows_of(np.array(ids), public.ids)
    return Task(
        votes=votes,
        features=public.features.select(rows),  # type: ignore[arg-type]
        test_features=np.asarray(test.features[np.arange(len(test))]),
        test_labels=test.labels,
        label_names=names,
        private=True,
    )
