"""Draws with forced outcomes: how far they move, by hand, and that no release meets them."""

import itertools
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pate
from pate._core.validation import UInt8Array
from pate._labeling.votes.kinds import Ballots, Counts
from pate.accounting import GaussianEvent, NeighboringRelation, RDPAccountant
from pate.aggregators import (
    Canonical,
    ClippedVotes,
    ConfidentScreen,
    FixedStableTopK,
    NoisyVotes,
    Peeling,
    Release,
    Rounds,
    ScoreVotes,
    StableTopK,
    TauVoting,
)
from pate.lab.audit.forced import DivergedError, ForcedGenerator, Movement, joint_epsilon
from pate.mechanisms import add_gaussian, exceeds
from tests.core.accounting.oracles import exact_epsilon

REPLACE = NeighboringRelation.REPLACE_RECORD
DELTA = 1e-5
QUERIES, TEACHERS, LABELS = 12, 40, 4


def ballots() -> UInt8Array:
    generator = np.random.default_rng(0)
    return (generator.random((QUERIES, TEACHERS, LABELS)) < (0.8, 0.7, 0.2, 0.1)).astype(np.uint8)


def both(first: Any, second: Any, aggregator: Any) -> tuple[Release, Release, Movement]:
    """Return the releases of two neighbors with equal outcomes, and how far their draws move."""
    kept = ForcedGenerator(3)
    one = aggregator.aggregate(first, generator=kept)
    forced = ForcedGenerator(3, kept.draws)
    other = aggregator.aggregate(second, generator=forced)
    assert not kept.drew_otherwise and not forced.drew_otherwise
    return one, other, Movement.between(kept.draws, forced.draws)


def neighbors(change: str = "altered") -> tuple[Ballots, Ballots]:
    """Votes, and the same with the opposite ballots of a teacher, or without it."""
    before = ballots()
    after = before.copy()
    after[:, 0] = 1 - before[:, 0] if change == "altered" else 0
    features = np.random.default_rng(1).standard_normal((QUERIES, 3))
    return tuple(Ballots(ballots=each, features=features) for each in (before, after))  # type: ignore[return-value]


def test_sums_move_by_the_distance_of_their_means_over_sigma() -> None:
    kept = ForcedGenerator(0)
    one = add_gaussian([1.0, 2.0], sigma=2.0, generator=kept)
    assert exceeds([3.0], [1.0], sigma=4.0, generator=kept).dtype == np.bool_
    forced = ForcedGenerator(0, kept.draws)
    assert np.array_equal(add_gaussian([4.0, -2.0], sigma=2.0, generator=forced), one)
    exceeds([3.0], [5.0], sigma=4.0, generator=forced)
    squared = (3**2 + 4**2) / 2**2 + (4 / 4) ** 2
    assert Movement.between(kept.draws, forced.draws).mu_squared == pytest.approx(squared)


@pytest.mark.parametrize(
    ("values", "sigma"), [([4.0], 2.0), ([4.0, 1.0], 3.0)], ids=["their number", "their noise"]
)
def test_draws_that_are_not_public_diverge(values: list[float], sigma: float) -> None:
    kept = ForcedGenerator(0)
    add_gaussian([1.0, 2.0], sigma=2.0, generator=kept)
    with pytest.raises(DivergedError, match="draw 1 of the neighbor"):
        add_gaussian(values, sigma=sigma, generator=ForcedGenerator(0, kept.draws))
    with pytest.raises(DivergedError, match="0 draws of the neighbor"):
        Movement.between(kept.draws, [])


@pytest.mark.parametrize(
    "aggregator",
    [
        NoisyVotes(sigma_votes=20.0),
        TauVoting(sigma_tau=20.0, tau=1.0, threshold_tau=5.0),
        ClippedVotes(multiplier_clipped=10.0),
        ScoreVotes(multiplier_scores=10.0),
        Rounds(rounds=(ClippedVotes(multiplier_clipped=10.0), NoisyVotes(sigma_votes=30.0))),
        ConfidentScreen(
            answers=NoisyVotes(sigma_votes=20.0), threshold_confident=8.0, sigma_confident=9.0
        ),
    ],
    ids=lambda aggregator: type(aggregator).__name__,
)
@pytest.mark.parametrize("change", ["altered", "removed"])
def test_gaussian_releases_move_no_more_than_they_pay(aggregator: Any, change: str) -> None:
    first, second = neighbors(change)
    one, other, moved = both(first, second, aggregator)
    assert np.array_equal(one.labels, other.labels) and np.array_equal(one.mask, other.mask)
    paid = QUERIES * aggregator.event(first.shape, REPLACE).cost().mu_squared
    assert not moved.laws and 0.001 * paid < moved.mu_squared <= paid * (1 + 1e-9)


FIXED: dict[str, Any] = {"scale_gap_fixed": 20.0, "sigma_test_fixed": 6.0, "delta_test_fixed": 1e-9}


@pytest.mark.parametrize(
    "aggregator",
    [
        Canonical(k=2, scale_canonical=20.0),
        Peeling(k=2, scale_peel=20.0),
        StableTopK(scale_gap=20.0, sigma_test=6.0, delta_test=1e-9),
        FixedStableTopK(k=2, rank_penalty=0.0, scale_peel_fixed=20.0, **FIXED),
    ],
    ids=lambda aggregator: type(aggregator).__name__,
)
def test_choices_leak_no_more_than_they_pay(aggregator: Any) -> None:
    first, second = neighbors()
    one, other, moved = both(first, second, aggregator)
    assert one is other and not moved.untested and moved.mu_squared == 0
    account = RDPAccountant(relation=REPLACE).compose(
        [aggregator.event(first.shape, REPLACE)], [QUERIES]
    )
    assert 0.02 < moved.epsilon(DELTA) <= account.get_epsilon(delta=DELTA)


@dataclass(frozen=True, kw_only=True)
class Doubled(NoisyVotes):
    """Noisy votes whose event forgets that each vote counts twice."""

    def aggregate(self, votes: Counts, *, generator: np.random.Generator) -> Release:
        doubled = replace(votes, counts=2 * votes.counts, num_teachers=2 * votes.num_teachers)
        return super().aggregate(doubled, generator=generator)


@dataclass(frozen=True, kw_only=True)
class Cautious(NoisyVotes):
    """Noisy votes with noise that depends on the votes."""

    def aggregate(self, votes: Counts, *, generator: np.random.Generator) -> Release:
        noisier = NoisyVotes(sigma_votes=self.sigma_votes + votes.counts.max())
        return noisier.aggregate(votes, generator=generator)


@dataclass(frozen=True, kw_only=True)
class Overfull(NoisyVotes):
    """Noisy votes that withhold what few teachers gave."""

    def aggregate(self, votes: Counts, *, generator: np.random.Generator) -> Release:
        release = super().aggregate(votes, generator=generator)
        return release._replace(mask=votes.counts > 0)


def counts(first: int, second: int) -> tuple[Counts, Counts]:
    return tuple(  # type: ignore[return-value]
        Counts(counts=np.full((QUERIES, LABELS), each), num_teachers=TEACHERS)
        for each in (first, second)
    )


def test_a_plug_in_that_understates_its_cost_is_found() -> None:
    wrong = Doubled(sigma_votes=20.0)
    moved = both(*counts(7, 8), wrong)[2]
    event = wrong.event(counts(7, 8)[0].shape, REPLACE)
    assert isinstance(event, GaussianEvent)
    assert moved.mu_squared == pytest.approx(4 * QUERIES * event.cost().mu_squared)


def test_a_plug_in_with_private_noise_or_private_answers_is_found() -> None:
    with pytest.raises(DivergedError):
        both(*counts(7, 8), Cautious(sigma_votes=20.0))
    one, other, _ = both(*counts(0, 1), Overfull(sigma_votes=20.0))
    assert not np.array_equal(one.mask, other.mask)


def test_no_release_can_meet_a_watched_generator() -> None:
    """Only audits name it, and none of their modules is imported below their zone."""
    root = Path(pate.__file__).parent
    names = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if "WatchedGenerator" in path.read_text() or "ForcedGenerator" in path.read_text()
    }
    seams = {"_core/mechanisms/noise.py", "_labeling/aggregators/base.py"}
    assert {name for name in names if not name.startswith("lab/audit/")} - seams == set()
    assert seams < names


def product_of(laws: np.ndarray) -> list[float]:
    """Return the law of all answers together, enumerated."""
    return [math.prod(chances) for chances in itertools.product(*laws.tolist())]


@pytest.mark.parametrize("delta", [1e-9, 1e-3, 0.1])
@pytest.mark.parametrize("zeros", [False, True])
def test_answers_together_leak_as_much_as_their_enumerated_law(zeros: bool, delta: float) -> None:
    generator = np.random.default_rng(1)
    p, q = generator.dirichlet(np.ones(4), size=(2, 5))
    q = 0.7 * p + 0.3 * q
    if zeros:  # what is possible on one side alone, seldom
        p, q = (
            np.column_stack((p * (1 - 1e-5), np.full(5, 1e-5), np.zeros(5))),
            np.column_stack((q, np.zeros((5, 2)))),
        )
    expected = exact_epsilon(product_of(p), product_of(q), delta=delta)
    told = joint_epsilon(p, q, delta=delta)
    if math.isinf(expected):
        assert told == 700
    else:
        assert expected - 0.02 <= told <= expected
    assert told == joint_epsilon(q, p, delta=delta)


def test_laws_that_share_nothing_are_told_though_their_sums_err() -> None:
    """One answer of two shares no outcome, and its chances add up to more than 1."""
    p = np.array([[0.1, 0.1, 0.1, 0.7000000000000002, 0.0], [0.5, 0.5, 0.0, 0.0, 0.0]])
    q = np.array([[0.0, 0.0, 0.0, 0.0, 1.0], [0.4, 0.6, 0.0, 0.0, 0.0]])
    assert p[0].sum() > 1
    assert joint_epsilon(p, q, delta=DELTA) == joint_epsilon(p[:1], q[:1], delta=DELTA) == 700


@pytest.mark.parametrize(
    ("n", "chance"), [(40, 0.6), pytest.param(150, 0.53, marks=pytest.mark.slow)]
)
def test_bits_leak_as_the_binomial_law_of_them(n: int, chance: float) -> None:
    """So unlikely a tail, and so small a delta, that a transform without care would make them
    up."""
    p, q = np.full((n, 2), [chance, 1 - chance]), np.full((n, 2), [1 - chance, chance])
    ones = np.arange(n + 1)
    coefficients = np.array([math.comb(n, k) for k in range(n + 1)], dtype=np.float64)
    first = coefficients * chance**ones * (1 - chance) ** (n - ones)
    for delta in (1e-3, 1e-6, 1e-9):
        expected = exact_epsilon(first.tolist(), first[::-1].tolist(), delta=delta)
        assert expected - 0.02 <= joint_epsilon(p, q, delta=delta) <= expected
