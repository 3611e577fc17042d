"""Rounds keep the contract, and a later round sees of the earlier ones nothing but what they
released."""

import itertools
import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from pate import LabelSettings, Outlook, Votes, VoteShape
from pate._labeling.aggregators.base import predictions_of
from pate._labeling.aggregators.clipped_votes import combined, two_rounds
from pate._labeling.linear import student_of
from pate._labeling.release.label_settings import code_of, scale_to_target
from pate._labeling.release.labels import label as label_stage
from pate._labeling.runs.run import Run
from pate._labeling.runs.vote_store import finished_votes
from pate._labeling.testing.aggregators import Grid, Law
from pate.accounting import (
    Budget,
    GaussianEvent,
    NeighboringRelation as Relation,
    Target,
    epsilon_of,
    read_ledger,
)
from pate.aggregators import (
    Aggregator,
    Ballots,
    ClippedVotes,
    ConfidentScreen,
    Counts,
    NoisyVotes,
    Release,
    Rounds,
    TauVoting,
)
from pate.student import fit_linear
from pate.testing import AggregatorContract, BatchContract
from tests.labeling.aggregators.oracles import counts, gaussian_labels_law
from tests.labeling.aggregators.test_clipped_votes import joint_clipped_law
from tests.labeling.release.test_labels_crash import resolve

PANEL = VoteShape(40, 3)


def given_in_first_round(votes: Ballots, sigma: float) -> list[tuple[np.ndarray, float]]:
    """Return all labels ``[Q, C]`` of noisy majorities, and the probability of each."""
    shape = votes.counts.shape
    chances = ndtr((votes.counts.ravel() - votes.num_teachers / 2) / sigma)
    found = []
    for labels in itertools.product((0, 1), repeat=votes.counts.size):
        chance = math.prod(
            p if label else 1 - p for label, p in zip(labels, chances.tolist(), strict=True)
        )
        found.append((np.array(labels).reshape(shape), chance))
    return found


@cache
def student_says(labels: tuple[int, ...], num_labels: int) -> np.ndarray:
    """Return the predictions of the public student of labels, on the same queries."""
    features, targets = (
        np.full((len(labels) // num_labels, 1), 2.0),
        np.array(labels).reshape(-1, num_labels),
    )
    return fit_linear(features, targets, np.ones(targets.shape, dtype=bool)).predict(features)


@pytest.mark.slow
class TestRounds(BatchContract):
    """Labels first, then clipped votes around the student of these labels."""

    loose_because = "labels tell the sign of a noisy sum alone: 2 / pi of what the sum itself would"
    features = (2.0,)
    multiplier = 1.1
    grid: Grid = (((1, 1), (1, 1), (1, 1)), ((0, 0), (1, 0), (0, 0)), ((1, 0), (0, 1), (1, 0)))

    def make(self, relation: Relation) -> Aggregator:
        first = NoisyVotes(sigma_votes=1.5, soft=False, neighboring_relation=relation)
        return Rounds(rounds=(first, self.last(relation)), neighboring_relation=relation)

    def last(self, relation: Relation) -> Aggregator:
        return ClippedVotes(
            multiplier_clipped=self.multiplier,
            around_predictions=True,
            neighboring_relation=relation,
        )

    def joint_law(self, votes: Ballots, relation: Relation) -> Law:
        law: dict[tuple[int, ...], float] = defaultdict(float)
        for labels, chance in given_in_first_round(votes, 1.5):
            predictions = student_says(tuple(labels.ravel().tolist()), self.num_labels)
            for outcome, inner in self.last_law(votes, predictions).items():
                law[outcome] += chance * inner
        return law

    def last_law(self, votes: Ballots, predictions: np.ndarray) -> Law:
        return joint_clipped_law(votes, self.multiplier, (predictions > 0.5).astype(float))

    def malformed(self) -> list[dict[str, Any]]:
        (other,) = set(Relation) - {Relation.REPLACE_RECORD}
        around = ClippedVotes(multiplier_clipped=1.0, around_predictions=True)
        return [
            {"rounds": ()},
            {"rounds": 1},
            {"rounds": (around,)},
            {"rounds": (NoisyVotes(sigma_votes=1.0, neighboring_relation=other),)},
        ]


class TestRoundsOfCounts(AggregatorContract):
    """Two equal rounds are one of less noise."""

    loose_because = "labels tell the signs of noisy counts alone"
    features = (2.0, -1.0)
    single_draws = 60  # each of which fits a student

    def make(self, relation: Relation) -> Aggregator:
        common: dict[str, Any] = {"neighboring_relation": relation}
        return Rounds(
            rounds=(NoisyVotes(sigma_votes=2.0, **common), NoisyVotes(sigma_votes=3.0, **common)),
            **common,
        )

    def law(self, votes: Ballots, relation: Relation) -> Law:
        sigma = (1 / 4 + 1 / 9) ** -0.5
        return gaussian_labels_law([h - votes.num_teachers / 2 for h in counts(votes)], sigma)

    def malformed(self) -> list[dict[str, Any]]:
        return [{"rounds": []}]


@dataclass(frozen=True, kw_only=True)
class Says(NoisyVotes):
    """A stub: releases given numbers, whatever the votes."""

    told: tuple[tuple[float, ...], ...] = ()

    def aggregate(self, votes: Counts, *, generator: np.random.Generator) -> Release:
        counts = np.array(self.told)
        labels = (2 * counts > votes.num_teachers).astype(np.uint8)
        return Release(
            labels,
            np.ones(labels.shape, dtype=bool),
            noisy_counts=counts,
            noise_std=self.sigma_votes,
        )


@dataclass(frozen=True, kw_only=True)
class Hears(ClippedVotes):
    """A stub: keeps the predictions that it is given."""

    around_predictions: bool = True
    heard: list[np.ndarray] = field(default_factory=list, compare=False)

    def aggregate(self, votes: Ballots, *, generator: np.random.Generator) -> Release:
        self.heard.append(predictions_of(votes).copy())
        return super().aggregate(votes, generator=generator)


def random_votes(seed: int, queries: int = 60) -> Ballots:
    generator = np.random.default_rng(seed)
    features = np.random.default_rng(0).standard_normal((queries, 4))
    likely = 1 / (1 + np.exp(-3 * features[:, None, :3] - generator.normal(0, 1, (1, 1, 3))))
    ballots = (generator.random((queries, 40, 3)) < likely).astype(np.uint8)
    return replace(Votes.from_ballots(ballots), features=features)


def test_a_later_round_sees_what_was_released_and_nothing_else() -> None:
    """Two panels that differ in every ballot, and a first round that says the same of both."""
    first, second = random_votes(1), random_votes(2)
    assert first.ballots is not None and second.ballots is not None
    told = tuple(map(tuple, first.counts.astype(float).tolist()))
    heard: list[np.ndarray] = []
    rounds = Rounds(
        rounds=(Says(sigma_votes=1.0, told=told), Hears(multiplier_clipped=5.0, heard=heard))
    )
    assert (first.ballots != second.ballots).any()
    for votes in (first, replace(second, predictions=np.full(second.counts.shape, 0.9))):
        rounds.aggregate(votes, generator=np.random.default_rng(0))
    np.testing.assert_array_equal(heard[0], heard[1])
    # and it follows what was released
    other = replace(
        rounds,
        rounds=(
            Says(sigma_votes=1.0, told=tuple(map(tuple, second.counts.tolist()))),
            rounds.rounds[1],
        ),
    )
    other.aggregate(first, generator=np.random.default_rng(0))
    assert np.abs(heard[2] - heard[0]).max() > 0.1
    released = Release(
        np.zeros((60, 3), np.uint8),
        np.ones((60, 3), bool),
        noisy_counts=np.array(told),
        noise_std=1.0,
    )
    assert first.features is not None
    np.testing.assert_array_equal(
        heard[0], student_of(released, first.features, 40).predict(first.features)
    )
    assert student_of(released, first.features, 40).departs.all()


def test_rounds_compose() -> None:
    """Of Gaussian rounds, squared inverse multipliers add up; the ledger's figure is that of one
    such mechanism."""
    rounds = Rounds(
        rounds=(
            ClippedVotes(multiplier_clipped=30.0),
            ClippedVotes(multiplier_clipped=40.0, around_predictions=True),
        )
    )
    single = GaussianEvent(neighboring_relation=Relation.REPLACE_RECORD, noise_multiplier=24.0)
    for count in (1, 600):
        found = epsilon_of(rounds.event(PANEL), count=count, delta=1e-6)
        assert found == pytest.approx(epsilon_of(single, count=count, delta=1e-6), rel=1e-9)
    three = Rounds(rounds=(*rounds.rounds, rounds))
    assert epsilon_of(three.event(PANEL), count=9, delta=1e-6) == pytest.approx(
        epsilon_of(rounds.event(PANEL), count=18, delta=1e-6), rel=1e-9
    )


@pytest.mark.parametrize("relation", Relation)
def test_what_a_screen_passes_on_is_settled_and_earlier_rounds_in_full(relation: Relation) -> None:
    first = ClippedVotes(multiplier_clipped=20.0, neighboring_relation=relation)
    answers = ClippedVotes(multiplier_clipped=5.0, neighboring_relation=relation)
    screen = ConfidentScreen(
        answers=answers,
        sigma_confident=2.0,
        threshold_confident=12.0,
        neighboring_relation=relation,
    )
    rounds = Rounds(rounds=(first, screen), neighboring_relation=relation)
    votes = random_votes(3)
    release = rounds.aggregate(votes, generator=np.random.default_rng(1))
    assert release.tiers is not None
    asked = int((release.tiers == 1).sum())
    assert 0 < asked < 60
    charged = {count: events[relation] for events, count in rounds.charges(release, votes.shape)}
    for tier, count in ((0, 60 - asked), (1, asked)):
        parts = [first.event(votes.shape), screen.event(votes.shape, tier=tier)]
        np.testing.assert_allclose(
            charged[count].cost().rdp, sum(part.cost().rdp for part in parts)
        )


def test_counts_are_joined_by_their_precision() -> None:
    shape, mask = (2, 2), np.ones((2, 2), dtype=bool)
    labels = np.zeros(shape, dtype=np.uint8)
    first = Release(labels, mask, noisy_counts=np.array([[0.0, 8.0], [2.0, 5.0]]), noise_std=2.0)
    second = Release(labels, mask, noisy_counts=np.array([[10.0, 8.0], [4.0, 5.5]]), noise_std=1.0)
    both = combined(first, second, 10)
    assert both.noisy_counts is not None and both.noise_std == pytest.approx(0.8**0.5)
    np.testing.assert_allclose(both.noisy_counts, [[8.0, 8.0], [3.6, 5.4]])
    np.testing.assert_array_equal(both.labels, [[1, 1], [0, 1]])
    for partial in (
        Release(labels, mask),
        second._replace(mask=np.array([[True, True], [True, False]])),
        second._replace(tiers=np.zeros(2, dtype=np.int64)),
    ):
        assert combined(first, partial, 10) is partial
        assert combined(partial, second, 10) is second


def test_the_default_spends_a_quarter_before_and_the_rest_after() -> None:
    outlook = Outlook(shape=PANEL, num_queries=50, delta=1e-5, relation=Relation.REPLACE_RECORD)
    (default,) = Rounds.proposals(outlook)
    for epsilon in (0.1, 8.0):
        target = Target(
            epsilon=epsilon, delta=1e-5, num_queries=50, neighboring_relation=outlook.relation
        )
        budget = Budget(
            max_epsilon=epsilon, delta=1e-5, neighboring_relation=outlook.relation, max_delta0=0.0
        )
        found = scale_to_target(default, target, PANEL, budget)
        first, last = (each.noise["multiplier_clipped"] for each in found.rounds)  # type: ignore[attr-defined]
        assert (first / last) ** 2 == pytest.approx(3, rel=1e-4)
        assert (
            epsilon * (1 - 1e-5) < epsilon_of(found.event(PANEL), count=50, delta=1e-5) <= epsilon
        )
    tau = TauVoting(tau=1.0, sigma_tau=1.0, threshold_tau=20.0, around_predictions=True)
    before = two_rounds(tau, outlook)
    share = [epsilon_of(each.event(PANEL), count=50, delta=1e-5) for each in before.rounds]
    assert share[0] < share[1]


class Killed(KeyboardInterrupt):
    pass


@pytest.mark.parametrize("step", ["pate._labeling.aggregators.clipped_votes.student_of"])
def test_killed_between_rounds_the_same_command_pays_once_and_draws_once(
    step: str, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pate._core.transaction.draw_key", lambda: 11)
    rounds = Rounds(
        rounds=(
            ClippedVotes(multiplier_clipped=9.0),
            ClippedVotes(multiplier_clipped=5.0, around_predictions=True),
        )
    )

    def release(noise_seed: int | None = None) -> None:
        run = Run(copied, overwrite=True)
        label_stage(
            run,
            finished_votes(run),
            LabelSettings(rounds, num_queries=60, delta=1e-3, noise_seed=noise_seed),
        )

    drawn, original, following = [], ClippedVotes.aggregate, resolve(step)

    def aggregate(self: ClippedVotes, votes: Ballots, *, generator: np.random.Generator) -> Release:
        found = original(self, votes, generator=generator)
        if votes.num_queries == 60:
            drawn.append(found)
        return found

    def cut(*given: object) -> Any:
        if drawn:  # not in the rehearsal
            raise Killed
        return following(*given)

    with monkeypatch.context() as patch:
        patch.setattr(ClippedVotes, "aggregate", aggregate)
        with patch.context() as inner:
            inner.setattr(step, cut)
            with pytest.raises(Killed):
                release()
        assert len(read_ledger(copied / "ledger.sqlite").entries) == 2 and drawn
        # another seed would be another answer
        monkeypatch.setattr("pate._core.transaction.draw_key", lambda: 12)
        before = len(drawn)
        release()
    entries = read_ledger(copied / "ledger.sqlite").entries
    assert len(entries) == 2 and entries[-1].settled
    for once, again in zip(drawn[:before], drawn[before:], strict=False):
        np.testing.assert_array_equal(once.noisy_counts, again.noisy_counts)
    assert len(drawn) == before + 2


def test_the_code_of_every_round_is_part_of_the_question() -> None:
    """Noise that was begun with is for the same code alone, that of classes within rounds too."""
    rounds = Rounds(rounds=(ClippedVotes(multiplier_clipped=1.0), Says(sigma_votes=1.0)))
    assert {path.name for path in code_of(rounds)} == {"clipped_votes.py", Path(__file__).name}
