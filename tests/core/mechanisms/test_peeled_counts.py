"""Order and counts together keep the contract, and lists are filled up with public items."""

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from pate import mechanisms as m
from pate._core.testing.mechanisms import Grid
from pate.accounting import NeighboringRelation
from pate.testing import MechanismContract
from tests.core.mechanisms import oracles


class TestPeeledCounts(MechanismContract):
    """Every noisy score is told by the bin in which it lies."""

    num_items = 3
    shift = 0
    k = 2
    grid: Grid = ((3, 2, 0), (1, 1, 1), (0, 3, 3), (2, 0, 1))
    edges = np.array([0.0, 1.5, 3.0])
    loose_because = (
        "bins tell less than the noisy scores, and the worst scores of the"
        " choice are not those of the counts"
    )

    def make(self, relation: NeighboringRelation) -> m.PeeledCounts:
        return m.PeeledCounts(k=self.k, scale=1.5, sigma=1.2)

    def outcomes(self) -> list[tuple[int, ...]]:
        bins = itertools.product(range(len(self.edges) + 1), repeat=self.k)
        return [
            (*items, *inside)
            for items, inside in itertools.product(oracles.sequences(3, self.k), bins)
        ]

    def law(self, mechanism: m.PeeledCounts, scores: oracles.Array) -> oracles.Array:
        listing = oracles.sequences(3, self.k)
        chosen = oracles.peel_law(
            tuple((np.asarray(scores) / mechanism.scale).tolist()), listing, oracles.softmax
        )
        ends = np.concatenate(([-np.inf], self.edges, [np.inf]))
        parts = [np.diff(norm.cdf((ends - score) / mechanism.sigma)) for score in scores]
        found = []
        for chance, items in zip(chosen, listing, strict=True):
            joint = np.array(chance)
            for item in items:
                joint = np.multiply.outer(joint, parts[item])
            found.append(joint.ravel())
        return np.concatenate(found)

    def select(self, mechanism: Any, scores: Any, generator: np.random.Generator) -> Any:
        items, noisy = mechanism(scores, generator=generator)
        return np.concatenate((items, np.searchsorted(self.edges, noisy)), axis=-1)


class TestPeeledCountOfOne(TestPeeledCounts):
    k = 1
    edges = np.arange(-1.5, 5.0, 0.5)
    loose_because = ""


def test_scores_are_released_without_bias_on_a_public_grid() -> None:
    mechanism = m.PeeledCounts(k=2, scale=0.5, sigma=1.9)
    truth = np.array([10, 40, 20, 0])
    items, noisy = mechanism(np.tile(truth, (20_000, 1)), generator=m.seeded_generator(0))
    error = noisy - truth[items]
    assert abs(error.mean()) < 4 * 1.9 / np.sqrt(error.size)
    assert error.std() == pytest.approx(1.9, rel=0.02)
    grid = 2.0**-19
    assert grid >= 1.9 / 2**20 and (noisy / grid == np.rint(noisy / grid)).all()
