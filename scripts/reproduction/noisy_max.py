"""Report-noisy-max on gaps with Gaussian noise: exact laws on neighbors, their divergence, and their epsilon.

Of C sorted counts, each of which one teacher raises by 0 or 1, gap j moves by ``b_j - b_(j+1)``: the gaps that move,
move up and down in turn. A pair of neighbors is described by groups of gaps that are alike: those that move up, those
that move down, and those that stay. Whoever sees which gap was chosen in each of many queries on the same pair sees, in
effect, how often each group was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import gammaln, log_ndtr

from pate.mechanisms import sort_counts
from pate.typing import FloatArray, IntArray
from pate.validation import expect, expect_count, expect_positive

# an integrand that is smooth on the scale of 1 and falls as a normal density: exact to rounding
_POINTS = np.arange(-12.0, 12.0, 0.02)
_LOG_DENSITY = -(_POINTS**2) / 2 + np.log(0.02 / np.sqrt(2 * np.pi))


def group_law(sizes: Sequence[int], scores: Sequence[float], sd: float) -> FloatArray:
    """Return the probability ``[G]`` that the largest noisy score lies in each group, noise normal of ``sd``.

    Args:
        sizes: ``[G]``, how many scores a group has, each at least 1.
        scores: ``[G]``, the score of each of them.
        sd: standard deviation of the noise.
    """
    expect_positive(sd=sd)
    expect_count(1, **{f"sizes[{i}]": size for i, size in enumerate(sizes)})
    level = np.asarray(scores, dtype=np.float64) / sd
    counts = np.asarray(sizes, dtype=np.float64)
    law = np.empty(len(counts))
    for i in range(len(counts)):
        # the winner has noise t; all others stay below it
        others = counts - (np.arange(len(counts)) == i)
        below = log_ndtr(_POINTS[:, None] + level[i] - level) @ others
        law[i] = counts[i] * np.exp(below + _LOG_DENSITY).sum()
    total: FloatArray = law / law.sum()
    return total


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two neighbors whose gaps are alike within groups, under ADD_REMOVE_TEACHER.

    Args:
        up: number of gaps that grow by a vote.
        down: number of gaps that shrink by a vote; as many as grow, or one more or fewer.
        still: number of gaps that stay.
        above: by how many votes the gaps that shrink are wider than those that grow, before.
        still_above: the same of those that stay.
        sd: standard deviation of the noise on each gap.
    """

    up: int
    down: int
    still: int = 0
    above: int = 0
    still_above: int = 0
    sd: float

    def __post_init__(self) -> None:
        expect_count(1, up=self.up, down=self.down)
        expect_count(0, still=self.still)
        expect(abs(self.up - self.down) <= 1, "gaps that grow and shrink in turn", up=self.up, down=self.down)

    @property
    def num_candidates(self) -> int:
        """The number of gaps."""
        return self.up + self.down + self.still

    @cached_property
    def laws(self) -> tuple[FloatArray, FloatArray]:
        """The laws of the group of the chosen gap, before and after."""
        sizes = [self.up, self.down, *([self.still] if self.still else [])]
        before = [0, self.above, *([self.still_above] if self.still else [])]
        after = [1, self.above - 1, *before[2:]]
        return group_law(sizes, before, self.sd), group_law(sizes, after, self.sd)

    def renyi(self, orders: FloatArray) -> FloatArray:
        """Return the larger Renyi divergence ``[K]`` of the two directions: gaps of a group are equally likely."""
        p, q = (np.log(law) for law in self.laws)

        def divergence(log_p: FloatArray, log_q: FloatArray) -> FloatArray:
            inner = np.exp(orders[:, None] * log_p + (1 - orders[:, None]) * log_q).sum(axis=1)
            return np.asarray(np.log(inner) / (orders - 1), dtype=np.float64)

        return np.maximum(divergence(p, q), divergence(q, p))

    def counts(self) -> tuple[IntArray, IntArray]:
        """Return vote counts ``[C]`` of both neighbors, descending, whose gaps between labels are these.

        Raises:
            ValueError: if a gap would be negative.
        """
        base = 1 - min(self.above, 0, self.still_above if self.still else 0)
        first, second = (self.up, 1), (self.down, -1)
        turns = [first, second] if self.up >= self.down else [second, first]
        moves: list[int] = []
        for i in range(self.up + self.down):
            moves.append(turns[i % 2][1])
        moves += [0] * self.still
        levels = {1: base, -1: base + self.above, 0: base + self.still_above}
        gaps = np.array([levels[move] for move in moves])
        expect((gaps + moves >= 0).all(), "gaps of at least 0", gaps=gaps.tolist())
        lower = np.concatenate((np.cumsum(gaps[::-1])[::-1], [0]))
        # a label's count rises by the moves of all gaps below it, up to a common shift that keeps it within 0 and 1
        rises = np.concatenate((np.cumsum(np.array(moves)[::-1])[::-1], [0]))
        rises = rises - rises.min()
        expect(rises.max() <= 1, "counts that rise by 0 or 1", rises=rises.tolist())
        return lower, lower + rises


def gaps_of(counts: IntArray, num_teachers: int) -> IntArray:
    """Return the gaps ``[C - 1]`` between sorted counts, as the mechanism takes them."""
    return np.asarray(sort_counts(counts, upper=num_teachers).gaps[1:-1], dtype=np.int64)


def worst_pair(num_candidates: int, sd: float, order: float, *, step: int = 4, reach: int = 60) -> Pair:
    """Return the pair of the largest divergence at ``order`` on a grid of levels, for at most ``num_candidates`` gaps.

    Gaps that stay are left out of the contest by being far narrower, or take part at the level of those that grow.
    """
    best: tuple[float, Pair] | None = None
    for moving in sorted({2, 3, 4, 6, 8, 12, 20, 30, num_candidates - 1, num_candidates}):
        if not 2 <= moving <= num_candidates:
            continue
        for down in {moving // 2, moving - moving // 2}:
            for above in range(-reach, reach + 1, step):
                still = num_candidates - moving
                pair = Pair(up=moving - down, down=down, still=still, above=above, still_above=min(0, above), sd=sd)
                found = float(pair.renyi(np.array([order]))[0])
                if best is None or found > best[0]:
                    best = (found, pair)
    assert best is not None
    return best[1]


def composed_delta(pair: Pair, epsilon: float, count: int) -> float:
    """Return the exact delta at ``epsilon`` of ``count`` queries on a pair of two groups, the larger direction.

    How often the first group was chosen is binomial on both neighbors, and all that the choices tell.
    """
    expect(pair.still == 0, "a pair without gaps that stay", still=pair.still)
    expect_count(1, count=count)
    often = np.arange(count + 1)
    ways = gammaln(count + 1) - gammaln(often + 1) - gammaln(count - often + 1)
    logs = [ways + often * np.log(law[0]) + (count - often) * np.log(law[1]) for law in pair.laws]

    def one_way(log_p: FloatArray, log_q: FloatArray) -> float:
        excess = epsilon + log_q - log_p
        return float((np.exp(log_p) * np.maximum(0.0, -np.expm1(np.minimum(excess, 0.0)))).sum())

    return max(one_way(logs[0], logs[1]), one_way(logs[1], logs[0]))


def composed_epsilon(pair: Pair, delta: float, count: int) -> float:
    """Return the least epsilon at which ``count`` queries on a pair are (epsilon, ``delta``)-indistinguishable."""
    low, high = 0.0, 1.0
    while composed_delta(pair, high, count) > delta:
        low, high = high, 2 * high
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if composed_delta(pair, middle, count) > delta else (low, middle)
    return low
