"""The joint mechanism, for the few items of the contract and beyond them."""

import math

import numpy as np
import pytest

from pate import mechanisms as m
from pate._core.mechanisms import joint
from pate._core.mechanisms.exact_choice import Picked
from pate._core.mechanisms.noise import ChoiceNoise
from pate._core.testing.laws import chi_square_p_value
from pate._core.testing.mechanisms import Grid
from pate.accounting import Event, NeighboringRelation
from pate.testing import MechanismContract
from tests.core.mechanisms import oracles

SCORES = np.round(30 / np.arange(1, 25), 2)


class TestJoint(MechanismContract):
    num_items = 4
    k = 2
    scale = 2.0
    noise: ChoiceNoise = "gumbel"
    grid: Grid = ((3, 2, 0, 1), (1, 1, 1, 1), (0, 3, 3, 0), (3, 3, 2, 2))
    loose_because = (
        "losses rise by the whole window only where most others stay: no pair"
        " has half its mass at either end"
    )

    def make(self, relation: NeighboringRelation) -> m.JointMechanism:
        return m.JointMechanism(k=self.k, scale=self.scale, noise=self.noise)

    def outcomes(self) -> list[tuple[int, ...]]:
        return oracles.sequences(self.num_items, self.k)

    def law(self, mechanism: m.JointMechanism, scores: oracles.Array) -> oracles.Array:
        choice = oracles.softmax if mechanism.noise == "gumbel" else oracles.flip_law
        return choice(-oracles.sequence_losses(scores, mechanism.k) / mechanism.scale)


class TestJointOne(TestJoint):
    loose_because = ""
    k = 1
    num_items = 3
    grid: Grid = ((3, 2, 0), (1, 1, 1), (0, 3, 3))


@pytest.mark.slow
class TestJointAll(TestJoint):
    k = 3
    num_items = 3
    scale = 1.0
    grid: Grid = ((3, 2, 0), (1, 1, 1), (0, 3, 3))


class TestJointFlip(TestJoint):
    noise = "exponential"
    scale = 0.5


class _HalfAWindow(m.JointMechanism):
    def event(self, relation: NeighboringRelation) -> Event:
        return m.JointMechanism(k=self.k, scale=2 * self.scale).event(relation)


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_a_window_half_as_wide_is_refuted(relation: NeighboringRelation) -> None:
    """The enumeration notices an event that claims too little."""

    class Halved(TestJoint):
        def make(self, relation: NeighboringRelation) -> m.JointMechanism:
            return _HalfAWindow(k=self.k, scale=self.scale)

    with pytest.raises(AssertionError):
        Halved().test_divergence_between_all_neighbors_is_within_the_curve(relation)


@pytest.mark.parametrize(
    ("noise", "rejected"),
    [
        ("gumbel", 0.2),
        pytest.param("exponential", 0.9, marks=pytest.mark.slow),
        pytest.param("exponential", 0.2, marks=pytest.mark.slow),
    ],
)
def test_single_rows_of_many_items_follow_the_law(
    noise: ChoiceNoise, rejected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fewer candidates may be rejected, the more often the envelope is split."""
    monkeypatch.setattr(joint, "_REJECTED", rejected)
    listing = oracles.sequences(len(SCORES), 2)
    index = {sequence: i for i, sequence in enumerate(listing)}
    draws, scale = 800, 4.0
    mechanism = m.JointMechanism(k=2, scale=scale, noise=noise)
    generator = m.seeded_generator(0)
    observed = np.zeros(len(listing))
    for _ in range(draws):
        observed[index[tuple(mechanism(SCORES, generator=generator).tolist())]] += 1

    def law(scale: float) -> oracles.Array:
        chances = np.exp(-oracles.sequence_losses(SCORES, 2) / scale)
        uniform = np.ones(len(listing))
        return (
            oracles.flip_class_law(chances, uniform)
            if noise == "exponential"
            else chances / chances.sum()
        )

    assert chi_square_p_value(observed, draws * law(scale)) > 1e-4
    assert chi_square_p_value(observed, draws * law(0.8 * scale)) < 1e-6


@pytest.mark.parametrize(
    ("blocks", "scale"),
    [
        (32, 40.0),
        pytest.param(1000, 3.0, marks=pytest.mark.slow),
        pytest.param(5, 3.0, marks=pytest.mark.slow),
    ],
)
def test_losses_of_a_batch_in_blocks_follow_the_law(
    blocks: int, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the width of the blocks in which losses are proposed; a row of another spread shares
    the table."""
    monkeypatch.setattr(joint, "_LEVEL_BLOCKS", blocks)
    scores = np.array([260, 251, 251, 230, 117, 60])
    draws = 40_000
    rows = np.concatenate((np.tile(scores, (draws, 1)), [[900, 1, 0, 0, 0, 0]]))
    chosen = m.JointMechanism(k=3, scale=scale)(rows, generator=m.seeded_generator(blocks))[:-1]
    listing = oracles.sequences(len(scores), 3)
    index = {sequence: i for i, sequence in enumerate(listing)}
    values, counts = np.unique(chosen, axis=0, return_counts=True)
    observed = np.zeros(len(listing))
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        observed[index[tuple(value)]] = count

    def expected(scale: float) -> oracles.Array:
        chances = np.exp(-oracles.sequence_losses(scores, 3) / scale)
        return np.asarray(draws * chances / chances.sum())

    assert chi_square_p_value(observed, expected(scale)) > 1e-4
    assert chi_square_p_value(observed, expected(0.9 * scale)) < 1e-6


def test_a_batch_of_near_ties_beside_an_outlier_ends_at_its_law() -> None:
    """Blocks of so many losses that nearly no candidate would pass are split until a tenth does."""
    scores, k, draws = np.array([200, 5, 4, 3, 2, 0]), 4, 4_000
    for scale in (0.7, 3.0):
        drawn = m.JointMechanism(k=k, scale=scale)(
            np.tile(scores, (draws, 1)), generator=m.seeded_generator(6)
        )
        law = oracles.softmax(-oracles.sequence_losses(scores, k) / scale)
        outcomes = np.array(oracles.sequences(scores.size, k))
        digits = scores.size ** np.arange(k)
        place = {code: i for i, code in enumerate((outcomes @ digits).tolist())}
        observed = np.bincount(
            [place[code] for code in (drawn @ digits).tolist()], minlength=len(law)
        )
        assert chi_square_p_value(observed, law * draws, rare=5) > 1e-4
    # of 10^15 sequences that lose 30 votes at most, the one that loses none
    steep = np.concatenate(([1000], 500 - np.arange(30), [0]))
    found = m.JointMechanism(k=10, scale=0.02)(
        np.tile(steep, (3, 1)), generator=m.seeded_generator(7)
    )
    assert (found == np.arange(10)).all()


@pytest.mark.parametrize("shift", [0, 2**62])
@pytest.mark.parametrize("scale", [1.0, 1e-7])
def test_items_within_a_loss_are_those_that_are_counted(shift: int, scale: float) -> None:
    """By one search where all scores are near, and by bisection where they are not; limits that are
    met count."""
    scores = np.array([9, 9, 7, 4, 4, 4, 1, 0]) + shift
    losses = joint._Losses(scores, 3, scale)
    assert losses.max_loss == 9
    limits = np.array([0.0, 0.5, 1.0, 2.0, 3.0, 4.5, 5.0, 8.0, 9.0])
    counted = [
        [int((scores[place] - scores <= limit).sum()) for place in range(3)]
        for limit in limits.tolist()
    ]
    for reached in (
        losses.reach(limits),
        np.concatenate([losses.reach(limits[[i]]) for i in range(9)]),
    ):
        np.testing.assert_array_equal(reached, counted)


def test_a_proposal_is_kept_as_often_as_a_loss_of_its_block_is_no_smaller() -> None:
    reach, log_rates, scale = (
        np.array([[2, 4], [2, 4], [3, 4], [3, 4]]),
        np.array([5.0, 4.0, 6.0, 5.0]),
        1.5,
    )
    starts, ends = np.array([1.0, 1.0, 2.0, 1.0]), np.array([2.0, 2.0, np.inf, 2.0])
    losses, ranks = np.array([0.5, 1.5, 3.0, 2.0]), np.zeros((4, 2), dtype=np.int64)
    blocks = Picked(np.arange(4), np.array([1, 2, 3, 2]), np.full(4, 8))
    proposals = joint._proposals(ranks, losses, starts, ends, reach, blocks, scale, log_rates)
    sequences, shares = np.array([2 * 3, 2 * 3, 3 * 3, 3 * 3]), np.array([1, 2, 3, 2]) / 8
    worst = np.maximum(losses, starts)
    masses = np.exp(-worst / scale) - np.exp(-ends / scale)
    kept = sequences * masses / shares / np.exp(log_rates)
    assert kept[3] == 0 and (kept[:3] > 0).all()
    np.testing.assert_allclose(np.exp(proposals.log_chances), kept)
    assert proposals.losses is not None and proposals.loss is not None
    for place, probability in enumerate(kept.tolist()):
        factor, low, high = proposals.chance(place)
        less = 0.0 if high is None else math.exp(-high)
        assert float(factor) * (math.exp(-low) - less) == pytest.approx(probability)
        assert (
            float(proposals.loss(place))
            == pytest.approx(losses[place] / scale)
            == proposals.losses[place]
        )
