"""What every mechanism must show: its sampler follows its law, and its law costs no more than its event says.

A subclass gives the sampler, the exact output law by its plain definition, the event, and small score
vectors. The law is enumerated for every vector of counts in ``{0..max_count}^num_items`` and compared between
all neighbors.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from pate.accounting.cost import DEFAULT_ORDERS
from pate.accounting.events import Event
from pate.accounting.relation import NeighboringRelation
from pate.mechanisms import seeded_generator

ORDERS = np.concatenate((DEFAULT_ORDERS[::12], DEFAULT_ORDERS[-1:]))
RELATIONS = tuple(NeighboringRelation)
Outcome = tuple[int, ...]
Array = NDArray[Any]
Grid = Sequence[Sequence[float]]


class MechanismContract:
    """Inherit, fill in, and name the class ``Test...``."""

    num_items = 3
    max_count = 3
    draws = 20_000
    single_draws = 500
    grid: Grid = ((3, 2, 0), (1, 1, 1), (0, 3, 3), (2, 0, 1))
    loose_because = ""
    """Why no pair of neighbors comes within 10% of the event's curve; empty where one does, at some order."""
    tolerance = 1e-7
    """Relative error of the enumerated law."""

    def outcomes(self) -> list[Outcome]:
        """List all outputs."""
        raise NotImplementedError

    def law(self, scores: Array, relation: NeighboringRelation) -> Array:
        """Return the probability of each outcome, by the plain definition."""
        raise NotImplementedError

    def sample(
        self, scores: Array, noise: float, relation: NeighboringRelation, generator: np.random.Generator
    ) -> Array:
        """Run the mechanism on ``scores`` ``[n, d]`` or ``[d]`` with ``noise`` times its noise: ``[n, m]`` or
        ``[m]``.
        """
        raise NotImplementedError

    def event(self, relation: NeighboringRelation) -> Event:
        """Return the event of the mechanism as `sample` runs it with ``noise = 1``."""
        raise NotImplementedError

    # what every subclass inherits

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_law_is_a_distribution(self, relation: NeighboringRelation) -> None:
        for scores in self.grid:
            law = self.law(np.asarray(scores), relation)
            assert law.min() >= 0
            assert law.sum() == pytest.approx(1, abs=max(1e-6, self.tolerance))

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_sampler_follows_the_law(self, relation: NeighboringRelation) -> None:
        assert min(self._p_values(1.0, relation, self.draws, single=False)) > 1e-4

    def test_single_rows_follow_the_law(self) -> None:
        assert min(self._p_values(1.0, RELATIONS[0], self.single_draws, single=True)) > 1e-4

    def test_a_fifth_less_noise_is_caught(self) -> None:
        assert min(self._p_values(0.8, RELATIONS[0], self.draws, single=False)) < 1e-6

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_divergence_between_all_neighbors_is_within_the_curve(self, relation: NeighboringRelation) -> None:
        worst = self.worst_divergence(relation)
        rdp = self.event(relation).cost(ORDERS).rdp
        assert (worst <= rdp * (1 + self.tolerance) + 1e-9).all(), (worst / rdp).max()

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_curve_is_tight_unless_said_otherwise(self, relation: NeighboringRelation) -> None:
        reached = (self.worst_divergence(relation) / self.event(relation).cost(ORDERS).rdp).max()
        assert (reached < 0.9) == bool(self.loose_because), reached

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_event_states_the_relation(self, relation: NeighboringRelation) -> None:
        assert self.event(relation).neighboring_relation is relation

    def worst_divergence(self, relation: NeighboringRelation) -> Array:
        """Return the largest divergence over all pairs of neighbors, ``[ORDERS]``."""
        contract: Callable[[], MechanismContract] = type(self)
        return _worst_divergence(contract, relation)

    def _p_values(self, noise: float, relation: NeighboringRelation, draws: int, *, single: bool) -> list[float]:
        outcomes = np.array(self.outcomes())
        # one number per outcome; an index may be -1
        digits = (outcomes.max() + 2) ** np.arange(outcomes.shape[1])
        listed = (outcomes + 1) @ digits
        found = []
        for seed, scores in enumerate(self.grid):
            row = np.asarray(scores)
            generator = seeded_generator(seed)
            if single:
                drawn = np.array([self.sample(row, noise, relation, generator) for _ in range(draws)])
            else:
                drawn = self.sample(np.tile(row, (draws, 1)), noise, relation, generator)
            observed = np.bincount((drawn.reshape(draws, -1) + 1) @ digits, minlength=listed.max() + 1)[listed]
            assert observed.sum() == draws
            found.append(chi_square_p_value(observed, self.law(row, relation) * draws))
        return found


@cache
def _worst_divergence(contract: Callable[[], MechanismContract], relation: NeighboringRelation) -> Array:
    mechanism = contract()
    shape = (mechanism.max_count + 1,) * mechanism.num_items
    counts = np.array(list(np.ndindex(shape)))
    laws = np.array([mechanism.law(row, relation) for row in counts])
    first, second = neighbors(counts, relation, shape)
    delta0 = mechanism.event(relation).cost(ORDERS).delta0
    worst: Array = renyi_divergence(laws[first], laws[second], delta0).max(axis=0)
    return worst


def neighbors(counts: Array, relation: NeighboringRelation, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Return the indices of all ordered pairs of neighbors among ``counts`` ``[n, d]``, listed in C order of
    ``shape``.
    """
    steps = (-1, 0, 1) if relation is NeighboringRelation.REPLACE_RECORD else (0, 1)
    first, second = [], []
    for move in itertools.product(steps, repeat=counts.shape[1]):
        if not any(move):
            continue
        moved = counts + np.array(move)
        inside = np.flatnonzero(((moved >= 0) & (moved < np.array(shape))).all(axis=1))
        landed = np.ravel_multi_index(tuple(moved[inside].T), shape)
        first += [inside, landed]
        second += [landed, inside]
    return np.concatenate(first), np.concatenate(second)


def renyi_divergence(p: Array, q: Array, delta0: float = 0.0) -> Array:
    """Divergence of rows of p from rows of q, ``[n, m]`` each, of all ORDERS: ``[n, ORDERS]``.

    With ``delta0``, the divergence that is left when events of probability ``1 - delta0`` are singled out on
    both sides: each law gives up at most that much mass where it exceeds a multiple of the other. Infinite where
    that is not enough.
    """
    hopeless = np.zeros(len(p), dtype=np.bool_)
    if delta0 > 0:
        p, q = clip_excess(p, q, delta0), clip_excess(q, p, delta0)
        left_p, left_q = p.sum(axis=1, keepdims=True), q.sum(axis=1, keepdims=True)
        hopeless = np.minimum(left_p, left_q)[:, 0] < 1 - delta0 - 1e-9
        p, q = p / left_p, q / left_q
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p, log_q = np.log(p), np.log(q)
        found = []
        for order in ORDERS:
            terms = np.where(p == 0, -np.inf, order * log_p + (1 - order) * log_q)
            largest = terms.max(axis=1)
            found.append((np.log(np.exp(terms - largest[:, None]).sum(axis=1)) + largest) / (order - 1))
    divergence = np.column_stack(found)
    divergence[hopeless] = np.inf
    return divergence


def clip_excess(p: Array, q: Array, delta0: float) -> Array:
    """Return ``min(p, c q)`` per row with the c that takes ``delta0`` of p's mass (a hair less, for
    rounding).
    """
    low, high = np.zeros(len(p)), np.full(len(p), 1e6)
    for _ in range(100):
        middle = np.sqrt(np.maximum(low, 1e-6) * high)
        taken = np.maximum(p - middle[:, None] * q, 0).sum(axis=1)
        low, high = np.where(taken > delta0, middle, low), np.where(taken > delta0, high, middle)
    kept: Array = np.minimum(p, high[:, None] * q)
    return kept


def chi_square_p_value(observed: Array, expected: Array) -> float:
    """Return the p-value of a chi-square test, the rarest outcomes pooled until 5 are expected of them.

    What is seen of outcomes that are next to impossible is a p-value of 0.
    """
    if observed[expected < 1e-6].sum() > 0:
        return 0.0
    ascending = np.argsort(expected, kind="stable")
    pooled = int(np.searchsorted(np.cumsum(expected[ascending]), 5)) + 1
    seen, wanted = (
        np.append(each[ascending[:pooled]].sum(), each[ascending[pooled:]]) for each in (observed, expected)
    )
    if len(wanted) < 2:
        return 1.0
    return float(chi2.sf(((seen - wanted) ** 2 / wanted).sum(), len(wanted) - 1))
