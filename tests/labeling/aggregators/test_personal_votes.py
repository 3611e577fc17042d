"""All that a record moves in a release is multiplied by its weight, and nothing else changes."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from pate import VoteShape
from pate._core.accounting.cost import largest_mu
from pate._core.validation import FloatArray
from pate._labeling.aggregators.clipped_votes import noisy_median
from pate._labeling.aggregators.moment_learner import Learner
from pate._labeling.aggregators.score_votes import by_budgets, noisy_sum, released
from pate._labeling.release.label_settings import rehearse
from pate.accounting import NeighboringRelation, PersonalEvent, Target
from pate.aggregators import (
    Geometry,
    GroupVoters,
    MomentQuery,
    Moments,
    NoisyVotes,
    Partial,
    PersonalVotes,
    RecordVoters,
    ScoreVotes,
)
from pate.data import UNKNOWN
from pate.mechanisms import seeded_generator

BUDGETS, DELTA, NUM_LABELS = (0.5, 1.0, 2.0), 1e-6, 3
PUBLIC = np.random.default_rng(0).normal(size=(40, 6))
GEOMETRY = Geometry.of(PUBLIC, (4, 2))


def make(multiplier: float) -> PersonalVotes:
    return PersonalVotes(multiplier_scores=multiplier, budgets=BUDGETS, delta=DELTA)


VOTES = make(2.0)


def records(num: int, seed: int = 0, **others: Any) -> RecordVoters:
    """Records with random features and labels, some of them unknown, and budgets in turn."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, (num, NUM_LABELS)).astype(np.uint8)
    labels[generator.random(labels.shape) < 0.2] = UNKNOWN
    given: dict[str, Any] = {
        "geometry": GEOMETRY,
        "num_voters": 1000,
        "num_labels": NUM_LABELS,
        "coordinates": GEOMETRY.coordinates(2 * generator.normal(size=(num, 6))),
        "labels": labels,
        "unknown_labels": True,
        "budgets": np.resize(BUDGETS, num),
    }
    return RecordVoters(**given | others)


def neighbors(voters: RecordVoters, row: int) -> list[RecordVoters]:
    """The records without one of them, and with it altered in many ways; its budget stays."""
    kept = np.delete(np.arange(len(voters.labels)), row)
    names = ("coordinates", "labels", "budgets")
    found = [replace(voters, **{name: getattr(voters, name)[kept] for name in names})]
    for labels in itertools.product((0, 1, UNKNOWN), repeat=NUM_LABELS):
        for factor in (-4, 0, 1):
            coordinates, altered = np.array(voters.coordinates), np.array(voters.labels)
            coordinates[row] *= factor
            altered[row] = labels
            found.append(replace(voters, coordinates=coordinates, labels=altered))
    return found


def question(voters: RecordVoters) -> MomentQuery:
    """A student without an opinion is asked: every known label differs from its answer."""
    asked = Learner(voters.geometry, NUM_LABELS, math.inf).question()
    return replace(asked, levels=np.full(NUM_LABELS, 0.5), constant=0.05)


@pytest.mark.parametrize("place", range(3))
def test_no_neighbor_moves_a_sum_or_a_number_by_more_than_its_weight(place: int) -> None:
    """The sum moves by twice the clip times the weight, and so far; numbers by the weight."""
    voters = records(9)
    weight, asked = VOTES.weights[place], question(voters)
    weighed = VOTES.weighed(voters)
    knowing, present = weighed.num_knowing, float(weighed.num_private or 0)
    assert knowing is not None
    norms = voters.norms(asked)
    candidates = np.sort(norms)
    for clip in (0.1 * norms.min(), float(np.median(norms)), 2 * norms.max()):
        total, far = weighed.clipped_sum(asked, clip), 0.0
        for other in map(VOTES.weighed, neighbors(voters, place)):
            moved = float(np.linalg.norm(other.clipped_sum(asked, clip) - total))
            assert moved <= 2 * clip * weight
            far = max(far, moved)
            gone = len(other.norms(asked)) < len(norms)
            assert moved <= clip * weight or not gone
            assert present - float(other.num_private or 0) == (weight if gone else 0)
            others = other.num_knowing
            assert others is not None and np.abs(others - knowing).max() <= weight
            for candidate in candidates:
                above = [
                    (each.weights * (each.norms(asked) > candidate)).sum()
                    for each in (weighed, other)
                ]
                assert abs(above[0] - above[1]) <= weight
        assert far > 1.9 * clip * weight or clip > 0.1 * norms.min()


# patched, with names that they do not export
clipped_votes: Any = import_module("pate._labeling.aggregators.clipped_votes")
score_votes: Any = import_module("pate._labeling.aggregators.score_votes")


class Transcript:
    """What a release draws, in the order of the draws; a second release repeats the outcomes."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.exact: list[tuple[str, FloatArray, float]] = []
        self._outcomes: list[Any] = []
        self._repeat = False
        add, exceeds = score_votes.add_gaussian, clipped_votes.exceeds
        patch.setattr(score_votes, "add_gaussian", self._drawn("sum", add))
        patch.setattr(clipped_votes, "exceeds", self._drawn("comparison", exceeds))

    def _drawn(self, kind: str, draw: Callable[..., Any]) -> Callable[..., Any]:
        def drawn(values: Any, *more: Any, sigma: float, generator: Any) -> Any:
            place = len(self.exact)
            self.exact.append((kind, np.asarray(values, dtype=np.float64), sigma))
            if not self._repeat:
                self._outcomes.append(draw(values, *more, sigma=sigma, generator=generator))
            return self._outcomes[place]

        return drawn

    def mu_squared(self, votes: ScoreVotes, one: RecordVoters, other: RecordVoters) -> float:
        """The sum of squared moves in deviations of all that is drawn, given the same outcomes."""
        self.exact, self._outcomes, self._repeat = [], [], False
        list(released(votes, one, 1, seeded_generator(0)))
        before, self.exact, self._repeat = self.exact, [], True
        list(released(votes, other, 1, seeded_generator(0)))
        assert [(kind, sigma) for kind, _, sigma in before] == [
            (kind, sigma) for kind, _, sigma in self.exact
        ], "all questions follow from what was released"
        self.kinds = {kind for kind, _, _ in before}
        return sum(
            float(np.linalg.norm(first - second) / sigma) ** 2
            for (_, first, sigma), (_, second, _) in zip(before, self.exact, strict=True)
        )


@pytest.mark.parametrize(("num", "levels"), [(900, False), (200, True)])
@pytest.mark.parametrize("place", range(3))
def test_a_release_costs_each_budget_what_its_event_says(
    place: int, num: int, levels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All draws of whole releases, both parts of the features and all rounds, or levels first and
    one part: squared moves over variances, against the Gaussian theorem."""
    votes = make(1 / largest_mu(2.0, DELTA))
    voters, transcript = records(num), Transcript(monkeypatch)
    steps = list(released(votes, voters, 1, seeded_generator(0)))
    assert levels == (not steps[0].question.shares.any()) == (len(steps) == 7)
    own = votes.event(VoteShape(1000, NUM_LABELS)).for_budget(BUDGETS[place], DELTA)
    stated = own.cost().mu_squared
    assert stated <= largest_mu(BUDGETS[place], DELTA) ** 2
    moved = [transcript.mu_squared(votes, voters, other) for other in neighbors(voters, place)[::9]]
    assert max(moved) <= stated
    assert transcript.kinds == {"sum", "comparison"}
    # the sums of a record that becomes its opposite come near, if the clip is below its norm
    assert max(moved) > 0.2 * stated


@pytest.mark.parametrize("kind", ["weighed", "record", "group"])
@pytest.mark.parametrize(("num", "common", "rounds"), [(400, 0.5, 0), (60, 0.5, 3), (60, 0.02, 1)])
def test_all_rounds_of_a_release_cost_what_its_event_says(
    kind: str, num: int, common: float, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three rounds of levels, one that closes all of them, or none and both parts, of voters that
    know all labels or some. A voter with the largest features appears, leaves, or turns over."""
    transcript, generator = Transcript(monkeypatch), np.random.default_rng(2)
    votes = make(1.2) if kind == "weighed" else ScoreVotes(multiplier_scores=1.2)
    known: dict[str, Any] = {"unknown_labels": kind == "group"}
    some = np.where(generator.random((num, NUM_LABELS)) < 0.1, UNKNOWN, 0).astype(np.uint8)
    labels = np.where(generator.random((num, NUM_LABELS)) < common, 1, some * (kind == "group"))
    voters = records(num, labels=labels.astype(np.uint8), **known)
    one: Any = {name: getattr(voters, name) for name in ("coordinates", "labels", "budgets")}
    one = {name: np.concatenate((held, held[-1:])) for name, held in one.items()}
    one["coordinates"][-1] = 1 << 20
    there = [
        replace(voters, **one | {"labels": np.vstack((labels, row)).astype(np.uint8)})
        for row in np.eye(2, dtype=np.uint8)[:, :1].repeat(NUM_LABELS, axis=1)
    ]
    both: list[Any] = [voters, *there]
    if kind == "group":
        both = [
            GroupVoters(
                geometry=GEOMETRY,
                num_voters=1000,
                num_labels=NUM_LABELS,
                coordinates=each.coordinates,
                labels=each.labels,
                groups=np.arange(len(each.labels)),
                **known,
            )
            for each in both
        ]
    elif kind == "record":
        both = [replace(each, budgets=None) for each in both]
    steps = list(released(votes, both[0], 1, seeded_generator(0)))
    assert sum(not step.question.shares.any() for step in steps) == rounds
    assert len(steps) == rounds + 4
    assert steps[-1].question.geometry.parts.any() == (rounds == 0)
    weight = VOTES.weights[BUDGETS.index(one["budgets"][-1])] if kind == "weighed" else 1.0
    moved = [
        transcript.mu_squared(votes, first, second)
        for first, second in itertools.permutations(both, 2)
    ]
    assert 0.01 < max(moved) * 1.44 / weight**2 <= 1


def test_comparisons_count_weights() -> None:
    """The clip is about the norm that half of the weight lies below, not half of the records."""
    sizes, candidates = np.array([1.0, 1.0, 1.0, 9.0]), np.array([1.0, 3.0, 9.0])
    found = [
        noisy_median(
            sizes,
            candidates,
            num_voters=float(np.sum(weights * np.ones(4))),
            sigma=1e-9,
            generator=seeded_generator(0),
            weights=weights,
        )
        for weights in (1.0, np.array([0.125, 0.125, 0.125, 1.0]))
    ]
    assert found == [1.0, 9.0]
    light, largest = records(900), (np.arange(900) % 3 == 2)[:, None]
    light = replace(light, coordinates=light.coordinates * largest)
    clips = [
        noisy_sum(each, question(light), each.num_private, 1e-3, seeded_generator(0)).clip
        for each in (light, VOTES.weighed(light))
        if each.num_private is not None
    ]
    assert clips[0] < clips[1] / 2, "those with budgets of 2 have the largest ballots"


def test_records_of_one_budget_vote_as_in_score_votes() -> None:
    voters = records(900, budgets=np.full(900, 2.0))
    votes = Moments(voters=voters, features=PUBLIC)
    plain = Moments(voters=replace(voters, budgets=None), features=PUBLIC)
    first = VOTES.aggregate(votes, generator=seeded_generator(3))
    second = ScoreVotes(multiplier_scores=2.0).aggregate(plain, generator=seeded_generator(3))
    assert first.noisy_counts is not None and second.noisy_counts is not None
    assert (first.noisy_counts == second.noisy_counts).all()


@pytest.mark.parametrize("budget", BUDGETS)
def test_a_target_of_the_largest_budget_keeps_all(budget: float) -> None:
    target = Target(epsilon=2.0, delta=DELTA, num_queries=300)
    shape = VoteShape(1000, NUM_LABELS)
    found = VOTES.calibrated(target, shape)
    assert found is not None
    event = found.event(shape)
    assert isinstance(event, PersonalEvent)
    assert target.epsilon_of(event.for_budget(budget, DELTA)) <= budget
    assert target.epsilon_of(event.for_budget(budget, DELTA)) > 0.999 * budget


def test_who_weighs_and_who_does_not() -> None:
    """Budgets without weights, or weights without budgets, are refused before anything is drawn."""
    voters = records(20)
    generator = np.random.default_rng(0)
    before = generator.bit_generator.state
    groups = GroupVoters(
        geometry=GEOMETRY,
        num_voters=1000,
        num_labels=NUM_LABELS,
        coordinates=voters.coordinates,
        labels=voters.labels,
        groups=np.arange(20),
    )
    for votes, asked, message in (
        (
            ScoreVotes(multiplier_scores=2.0),
            voters,
            "PersonalVotes of records with budgets, got aggregator='ScoreVotes'",
        ),
        (VOTES, replace(voters, budgets=None), "records with personal budgets"),
        (VOTES, groups, "records with personal budgets"),
        (VOTES, replace(voters, budgets=np.full(20, 0.7)), "records of declared budgets"),
    ):
        with pytest.raises(ValueError, match=message):
            votes.aggregate(Moments(voters=asked, features=PUBLIC), generator=generator)
    # before anything is spent, too
    for votes, asked in (
        (VOTES, replace(voters, budgets=None)),
        (ScoreVotes(multiplier_scores=2.0), voters),
    ):
        with pytest.raises(ValueError, match=r"with personal budgets|records with budgets"):
            rehearse(
                votes, VoteShape(1000, NUM_LABELS), like=Moments(voters=asked, features=PUBLIC)
            )
    rehearse(VOTES, VoteShape(1000, NUM_LABELS), like=Moments(voters=voters, features=PUBLIC))
    assert generator.bit_generator.state == before


def test_score_votes_become_personal_ones() -> None:
    relation = NeighboringRelation.ADD_REMOVE_TEACHER
    given = ScoreVotes(multiplier_scores=3.0, rounds=(0.5, 0.5), neighboring_relation=relation)
    found = by_budgets(given, BUDGETS, DELTA)
    assert found == PersonalVotes(
        multiplier_scores=3.0,
        rounds=(0.5, 0.5),
        neighboring_relation=relation,
        budgets=BUDGETS,
        delta=DELTA,
    )
    assert by_budgets(found, BUDGETS, DELTA) == found
    for lacking in (None, Partial(ScoreVotes)):
        completed = by_budgets(lacking, BUDGETS, DELTA)
        assert isinstance(completed, Partial) and completed.missing == ("multiplier_scores",)
    with pytest.raises(ValueError, match=r"ScoreVotes of records .* got aggregator='NoisyVotes'"):
        by_budgets(NoisyVotes(sigma_votes=1.0), BUDGETS, DELTA)
    with pytest.raises(ValueError, match=r"the budgets \[0.5, 1.0\] of the records"):
        by_budgets(found, BUDGETS[:2], DELTA)


@pytest.mark.parametrize(
    "wrong", [{"budgets": ()}, {"budgets": (1.0, 0.5)}, {"budgets": (1e-9, 50.0)}, {"delta": 0.0}]
)
def test_malformed_budgets_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Expected"):
        replace(VOTES, **wrong)
