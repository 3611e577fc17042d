"""One-shot Laplace noise."""

from pate import mechanisms as m
from pate.accounting import NeighboringRelation
from pate.testing import MechanismContract
from tests.core.mechanisms import oracles


class TestOneShotLaplace(MechanismContract):
    # as many items are left out as chosen, or lowering those left out is the cheaper way to a rare
    # set
    num_items = 5
    max_count = 2
    tolerance = 1e-3  # of the nested integrals
    grid = ((2, 2, 0, 1, 0), (1, 1, 1, 1, 1), (0, 1, 1, 0, 1))

    def make(self, relation: NeighboringRelation) -> m.OneShotLaplace:
        return m.OneShotLaplace(k=2, scale=0.25)

    def outcomes(self) -> list[tuple[int, ...]]:
        return oracles.sequences(self.num_items, 2)

    def law(self, mechanism: m.OneShotLaplace, scores: oracles.Array) -> oracles.Array:
        return oracles.one_shot_order_law(scores / mechanism.scale, mechanism.k, "laplace")
