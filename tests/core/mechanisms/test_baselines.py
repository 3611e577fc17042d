"""Noise on all counts, and one-shot Laplace noise."""

import itertools
import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import gamma, kstest

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


class _BinnedCounts(MechanismContract):
    num_items = 2
    shift = 0
    grid = ((3, 2), (1, 1), (0, 3))
    edges: NDArray[np.float64]

    def outcomes(self) -> list[tuple[int, ...]]:
        return list(itertools.product(range(len(self.edges) + 1), repeat=self.num_items))

    def select(
        self,
        mechanism: m.Mechanism[NDArray[np.float64]],
        scores: oracles.Array,
        generator: np.random.Generator,
    ) -> oracles.Array:
        return np.searchsorted(self.edges, mechanism(scores, generator=generator))


class TestGammaCounts(_BinnedCounts):
    tolerance = 1e-5
    # bins that reach far out, where the cube's face moves past all of a bin's noise at once
    edges = np.array([-6.0, -1.0, 1.0, 2.0, 4.0, 9.0])

    def make(self, relation: NeighboringRelation) -> m.GammaCounts:
        return m.GammaCounts(scale=0.8)

    def law(self, mechanism: m.GammaCounts, scores: oracles.Array) -> oracles.Array:
        ends = np.concatenate(([-np.inf], self.edges, [np.inf]))
        kinks = sorted({abs(e - x) / mechanism.scale for e in self.edges for x in scores} | {0.0})
        steps = (0.5, 1, 2, 4, 7, 11, 16, 24, 40)
        ends_r = sorted({*kinks, *(kinks[-1] + s for s in steps), *np.arange(0.5, kinks[-1], 0.5)})
        nodes, weights = np.polynomial.legendre.leggauss(12)
        low, high = np.array(ends_r[:-1])[:, None], np.array(ends_r[1:])[:, None]
        r = ((low + high) / 2 + (high - low) / 2 * nodes).ravel()
        w = ((high - low) / 2 * weights).ravel() * r**2 * np.exp(-r) / 2
        parts = []
        for x in scores:
            z = np.clip((ends[:, None] - x) / mechanism.scale, -r, r)
            parts.append(np.diff(z, axis=0) / (2 * r))
        return np.asarray(np.einsum("ir,jr,r->ij", parts[0], parts[1], w)).ravel()


def test_gamma_noise_is_uniform_on_cubes_of_gamma_size() -> None:
    noise: NDArray[np.float64] = m.GammaCounts(scale=2.0)(
        np.full((4000, 5), 9), generator=m.seeded_generator(0)
    )
    noise -= 9
    size = np.abs(noise).max(axis=1)
    # the density falls with the largest coordinate alone, of which there are as many as r^(d - 1)
    assert kstest(size, gamma(5, scale=2.0).cdf).pvalue > 1e-3
    face = np.bincount(np.abs(noise).argmax(axis=1), minlength=5)
    assert (np.abs(face - 800) < 5 * math.sqrt(800)).all()
    inside = (noise / size[:, None])[np.abs(noise) < size[:, None]]
    assert kstest(inside, "uniform", (-1, 2)).pvalue > 1e-3
