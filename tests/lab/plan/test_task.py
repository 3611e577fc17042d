"""A run as a task: the samples that `pate label` would take, and no more of it than a comparison
needs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pate._labeling.runs.vote_store
from pate import ReleasedLabels, cli
from pate._labeling.runs.run import Run, load_data
from pate._labeling.votes.kinds import unpack_ballots
from pate.aggregators import Aggregator, Ballots, ClippedVotes, Counts, NoisyVotes, TauVoting
from pate.data import Features, Role
from pate.lab.plan.frontier import Comparison, load_task
from pate.teachers import VoteStore
from tests.networks.conftest import finished as finished

COUNTED: list[Aggregator] = [NoisyVotes(sigma_votes=1.0)]


def test_samples_are_those_that_label_takes(copied: Path) -> None:
    words = [
        "--aggregator=NoisyVotes",
        "--target_epsilon=40",
        "--delta=1e-3",
        "--num_queries=30",
        "--query_seed=5",
    ]
    assert cli.main(["label", "--run", str(copied), *words, "--overwrite"]) == 0
    labeled = ReleasedLabels.load(copied).ids
    task = load_task(
        copied, Comparison(num_queries=30, query_seed=5), [ClippedVotes(multiplier_clipped=1.0)]
    )
    whole, ids = VoteStore(copied / "private" / "votes").load(Ballots)
    rows = [ids.index(name) for name in labeled.tolist()]
    assert task.private and isinstance(task.votes, Ballots)
    np.testing.assert_array_equal(task.votes.counts, whole.counts[rows])
    np.testing.assert_array_equal(task.votes.ballots, whole.ballots[rows])


def test_a_run_of_fewer_samples_is_compared_on_all_of_them(finished: Path) -> None:
    for number, queries in ((None, 100), (30, 30)):
        comparison = Comparison(num_queries=number)
        assert comparison.number(100) == queries
        assert load_task(finished, comparison, COUNTED).votes.num_queries == queries
    assert Comparison().number(10_000) == 600


def test_only_drawn_samples_are_read(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked, read = [], []

    def unpack(packed: Any, num_labels: int) -> Any:
        unpacked.append(packed.shape[1])
        return unpack_ballots(packed, num_labels)

    monkeypatch.setattr(pate._labeling.runs.vote_store, "unpack_ballots", unpack)
    task = load_task(finished, Comparison(num_queries=7, student=True))
    assert unpacked and set(unpacked) == {7}
    public = load_data(Run(finished)).records(Role.PUBLIC)
    original: Any = type(public.features).__getitem__

    def select(self: Features, index: Any) -> Any:
        read.append(np.size(index))
        return original(self, index)

    monkeypatch.setattr(type(public.features), "__getitem__", select)
    again = load_task(finished, Comparison(num_queries=7))
    # all of them once, as the file is checked, and the public ones compared with those voted on
    assert read == [600, 100, 7]
    assert task.votes.features is not None and again.votes.features is not None
    np.testing.assert_array_equal(task.votes.features, again.votes.features)
    _, ids = VoteStore(finished / "private" / "votes").load(Counts)
    order = np.random.default_rng(0).permutation(len(ids))[:7]
    rows = [public.ids.tolist().index(ids[row]) for row in order]
    np.testing.assert_array_equal(task.votes.features, np.asarray(public.features)[rows])
    assert len(task.test_labels) == len(task.test_features) > 0 and len(again.test_labels) == 0


def test_ballots_and_features_are_read_where_they_are_needed(finished: Path) -> None:
    comparison = Comparison(num_queries=7)
    votes = load_task(finished, comparison, COUNTED).votes
    assert type(votes) is Counts and votes.features is None
    votes = load_task(finished, Comparison(num_queries=7, student=True), COUNTED).votes
    assert type(votes) is Counts and votes.features is not None
    votes = load_task(finished, comparison, [ClippedVotes(multiplier_clipped=1.0)]).votes
    assert type(votes) is Ballots and votes.features is None
    around: list[Aggregator] = [
        TauVoting(tau=1.5, sigma_tau=1, threshold_tau=5, around_predictions=True)
    ]
    for listed in (around, None):
        votes = load_task(finished, comparison, listed).votes
        assert type(votes) is Ballots and votes.features is not None


def test_more_queries_than_samples_are_refused(finished: Path) -> None:
    with pytest.raises(ValueError, match="Expected num_queries <= 100, got num_queries=101"):
        load_task(finished, Comparison(num_queries=101))
