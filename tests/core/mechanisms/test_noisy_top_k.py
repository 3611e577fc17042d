"""Noise added to every score once: sets of k, and one item."""

from pate import mechanisms as m
from pate._core.mechanisms.noise import Noise
from pate.accounting import BoundedRangeEvent, NeighboringRelation, PureDPEvent, RepeatedEvent
from pate.testing import MechanismContract
from tests.core.mechanisms import oracles

ADD, REPLACE = NeighboringRelation.ADD_REMOVE_TEACHER, NeighboringRelation.REPLACE_RECORD


class _OfOne(MechanismContract):
    """One choice: pure curves are reached at large orders."""

    noise: Noise
    scale = 2.0

    def make(self, relation: NeighboringRelation) -> m.NoisyTopK:
        return m.NoisyTopK(k=1, scale=self.scale, noise=self.noise)

    def outcomes(self) -> list[tuple[int, ...]]:
        return oracles.sets(self.num_items, 1)

    def law(self, mechanism: m.NoisyTopK, scores: oracles.Array) -> oracles.Array:
        if self.noise in ("gumbel", "exponential"):
            choice = oracles.softmax if self.noise == "gumbel" else oracles.flip_law
            return choice(scores / mechanism.scale)
        return oracles.one_shot_set_law(scores / mechanism.scale, 1, self.noise)


class TestExponentialMechanism(_OfOne):
    noise = "gumbel"


class TestPermuteAndFlip(_OfOne):
    noise = "exponential"


class TestReportNoisyMax(_OfOne):
    noise = "laplace"
    scale = 0.6  # steep, so that the tails in which the ratio is reached lie within the grid


class TestNoisyTopK(MechanismContract):
    noise: Noise = "gumbel"
    scale = 2.0
    num_items = 4
    max_count = 2
    grid = ((2, 2, 0, 1), (1, 1, 1, 1), (0, 2, 2, 0))

    def make(self, relation: NeighboringRelation) -> m.NoisyTopK:
        return m.NoisyTopK(k=2, scale=self.scale, noise=self.noise)

    def outcomes(self) -> list[tuple[int, ...]]:
        return oracles.sets(self.num_items, 2)

    def law(self, mechanism: m.NoisyTopK, scores: oracles.Array) -> oracles.Array:
        return oracles.one_shot_set_law(scores / mechanism.scale, mechanism.k, mechanism.noise)


class TestNoisyTopKExponential(TestNoisyTopK):
    noise = "exponential"
    scale = 0.8
    max_count = 3


class TestNoisyTopKLogistic(TestNoisyTopK):
    noise: Noise = "logistic"
    scale = 0.2
    max_count = 3


def test_events() -> None:
    choice = BoundedRangeEvent(neighboring_relation=ADD, eta=0.5)
    assert m.NoisyTopK(k=1, scale=2.0).event(ADD) == choice
    assert m.NoisyTopK(k=3, scale=2.0).event(ADD) == RepeatedEvent(event=choice, count=3)
    pure = m.NoisyTopK(k=3, scale=2.0, noise="logistic").event(REPLACE)
    assert pure == PureDPEvent(neighboring_relation=REPLACE, epsilon=3.0)
