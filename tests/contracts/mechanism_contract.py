"""What every mechanism must show: its sampler follows its law, and its law costs no more than its event says.

A subclass gives the sampler, the exact output law by its plain definition, the event, and small score
vectors. The law is enumerated for every vector of counts in ``{0..max_count}^num_items`` and compared between
all neighbors.
"""

import itertools
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pytest
from scipy.stats import chi2

from pate.accounting.curves import DEFAULT_ORDERS, cost
from pate.accounting.events import Event
from pate.accounting.relation import NeighboringRelation
from pate.mechanisms import seeded_generator

ORDERS = np.concatenate((DEFAULT_ORDERS[::12], DEFAULT_ORDERS[-1:]))
RELATIONS = tuple(NeighboringRelation)
Outcome = tuple[int, ...]


class MechanismContract:
    """Inherit, fill in, and name the class ``Test...``."""

    num_items = 3
    max_count = 3
    draws = 25_000
    single_draws = 1_000
    grid: Sequence[Sequence[float]] = ((3, 2, 0), (1, 1, 1), (0, 3, 3), (2, 0, 1))
    relations: Sequence[NeighboringRelation] = RELATIONS
    loose_because = ""
    """Why no pair of neighbors need come within 10% of the event's curve; empty where one must, at some
    order.
    """
    tolerance = 1e-7
    """Relative error of the enumerated law."""

    def outcomes(self) -> list[Outcome]:
        """List all outputs."""
        raise NotImplementedError

    def law(self, scores: np.ndarray, relation: NeighboringRelation) -> np.ndarray:
        """Return the probability of each outcome, by the plain definition."""
        raise NotImplementedError

    def sample(
        self, scores: np.ndarray, noise: float, relation: NeighboringRelation, generator: np.random.Generator
    ) -> np.ndarray:
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
        self._skip(relation)
        for scores in self.grid:
            law = self.law(np.asarray(scores), relation)
            assert law.min() >= 0
            assert law.sum() == pytest.approx(1, abs=max(1e-6, self.tolerance))

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_sampler_follows_the_law(self, relation: NeighboringRelation) -> None:
        self._skip(relation)
        assert min(self._p_values(1.0, relation, self.draws, single=False)) > 1e-4

    def test_single_rows_follow_the_law(self) -> None:
        assert min(self._p_values(1.0, self.relations[0], self.single_draws, single=True)) > 1e-4

    def test_a_fifth_less_noise_is_caught(self) -> None:
        assert min(self._p_values(0.8, self.relations[0], self.draws, single=False)) < 1e-6

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_divergence_between_all_neighbors_is_within_the_curve(
        self, relation: NeighboringRelation
    ) -> None:
        self._skip(relation)
        worst = self.worst_divergence(relation)
        rdp = cost(self.event(relation), ORDERS).rdp
        assert (worst <= rdp * (1 + self.tolerance) + 1e-9).all(), (worst / rdp).max()

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_curve_is_tight(self, relation: NeighboringRelation) -> None:
        self._skip(relation)
        if self.loose_because:
            pytest.skip(self.loose_because)
        worst = self.worst_divergence(relation)
        assert (worst / cost(self.event(relation), ORDERS).rdp).max() >= 0.9

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_event_states_the_relation(self, relation: NeighboringRelation) -> None:
        self._skip(relation)
        assert self.event(relation).neighboring_relation is relation

    def worst_divergence(self, relation: NeighboringRelation) -> np.ndarray:
        """Return the largest divergence over all pairs of neighbors, ``[ORDERS]``."""
        return _worst_divergence(type(self), relation)

    def _skip(self, relation: NeighboringRelation) -> None:
        if relation not in self.relations:
            pytest.skip("not offered under this relation")

    def _p_values(
        self, noise: float, relation: NeighboringRelation, draws: int, *, single: bool
    ) -> list[float]:
        index = {outcome: i for i, outcome in enumerate(self.outcomes())}
        found = []
        for seed, scores in enumerate(self.grid):
            row = np.asarray(scores)
            generator = seeded_generator(seed)
            if single:
                drawn = np.array([self.sample(row, noise, relation, generator) for _ in range(draws)])
            else:
                drawn = self.sample(np.tile(row, (draws, 1)), noise, relation, generator)
            values, counts = np.unique(drawn.reshape(draws, -1), axis=0, return_counts=True)
            observed = np.zeros(len(index))
            for value, count in zip(values, counts, strict=True):
                observed[index[tuple(value.tolist())]] = count
            found.append(chi_square_p_value(observed, self.law(row, relation) * draws))
        return found


@lru_cache(maxsize=256)
def _worst_divergence(contract: type[MechanismContract], relation: NeighboringRelation) -> np.ndarray:
    mechanism = contract()
    shape = (mechanism.max_count + 1,) * mechanism.num_items
    counts = np.array(list(np.ndindex(shape)))
    laws = np.array([mechanism.law(row, relation) for row in counts])
    first, second = neighbors(counts, relation, shape)
    delta0 = cost(mechanism.event(relation), ORDERS).delta0
    return renyi_divergence(laws[first], laws[second], delta0).max(axis=0)


def neighbors(
    counts: np.ndarray, relation: NeighboringRelation, shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
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


def renyi_divergence(p: np.ndarray, q: np.ndarray, delta0: float = 0.0) -> np.ndarray:
    """Divergence of rows of p from rows of q, ``[n, m]`` each, of all ORDERS: ``[n, ORDERS]``.

    With ``delta0``, the divergence that is left when events of probability ``1 - delta0`` are singled out on
    both sides: each law gives up at most that much mass where it exceeds a multiple of the other.
    """
    if delta0 > 0:
        p, q = clip_excess(p, q, delta0), clip_excess(q, p, delta0)
        p, q = p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p, log_q = np.log(p), np.log(q)
        terms = ORDERS[:, None] * log_p[:, None, :] + (1 - ORDERS[:, None]) * log_q[:, None, :]
    terms[np.broadcast_to((p == 0)[:, None, :], terms.shape)] = -np.inf
    return np.logaddexp.reduce(terms, axis=2) / (ORDERS - 1)


def clip_excess(p: np.ndarray, q: np.ndarray, delta0: float) -> np.ndarray:
    """Return ``min(p, c q)`` per row with the c that takes ``delta0`` of p's mass (a hair less, for
    rounding).
    """
    low, high = np.zeros(len(p)), np.full(len(p), 1e6)
    for _ in range(100):
        middle = np.sqrt(np.maximum(low, 1e-6) * high)
        taken = np.maximum(p - middle[:, None] * q, 0).sum(axis=1)
        low, high = np.where(taken > delta0, middle, low), np.where(taken > delta0, high, middle)
    return np.minimum(p, high[:, None] * q)


def chi_square_p_value(observed: np.ndarray, expected: np.ndarray) -> float:
    """Return the p-value of a chi-square test, with outcomes expected fewer than 5 times pooled."""
    rare = expected < 5
    seen = np.append(observed[~rare], observed[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    if wanted[-1] < 1e-3:
        if seen[-1] > 0:
            return 0.0
        seen, wanted = seen[:-1], wanted[:-1]
    if len(wanted) < 2:
        return 1.0
    return float(chi2.sf(((seen - wanted) ** 2 / wanted).sum(), len(wanted) - 1))
