"""Exact laws of StableTopK with Gaussian noise on the gaps for two neighbors, and their distance.

Of sorted counts, each of which one teacher raises by 0 or 1, gap j moves by ``b_j - b_(j+1)``: the
gaps that move, move up and down in turn. Algorithm 2 of Zhu & Wang (2022) chooses a gap by noisy
widths and releases the set above it if its test passes, or else nothing, not even which gap it
chose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from scipy.special import gammaln, log_ndtr, ndtr

from pate._core.validation import (
    FloatArray,
    IntArray,
    require,
    require_count,
    require_in_open_unit_interval,
    require_positive,
)
from pate.mechanisms import sort_counts

# an integrand that is smooth on the scale of 1 and falls as a normal density: exact to rounding
_POINTS = np.arange(-12.0, 12.0, 0.02)
_LOG_DENSITY = -(_POINTS**2) / 2 + np.log(0.02 / np.sqrt(2 * np.pi))
_RARE = -60.0  # log of a probability that is left out of a delta, which makes it smaller


def group_law(sizes: Sequence[int], scores: Sequence[float], sd: float) -> FloatArray:
    """Return the probability ``[G]`` that the largest noisy score lies in each group, noise normal of ``sd``.

    Args:
        sizes: ``[G]``, how many scores a group has, each at least 1.
        scores: ``[G]``, the score of each of them.
        sd: standard deviation of the noise.
    """
    require_positive(sd=sd)
    require_count(1, **{f"sizes[{i}]": size for i, size in enumerate(sizes)})
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
class GapNoise:
    """Noise of the choice of a gap and of its test, and the published threshold.

    Args:
        choice: standard deviation of the noise on each gap, in votes.
        test: standard deviation of the noise of the test, in votes.
        delta_test: the failure of the test that the threshold is made for.
    """

    choice: float
    test: float
    delta_test: float

    def __post_init__(self) -> None:
        require_positive(choice=self.choice, test=self.test)
        require_in_open_unit_interval(delta_test=self.delta_test)

    def passed(self, width: int) -> float:
        """Return the probability that a gap of ``width`` votes passes (Zhu & Wang (2022), Algorithm 2, line 4)."""
        threshold = math.sqrt(2 * math.log(1 / self.delta_test))
        return float(ndtr((max(1, width) - 1) / self.test - threshold))


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two neighbors with equal gaps within groups, under ADD_REMOVE_TEACHER.

    Args:
        up: number of gaps that grow by a vote.
        down: number of gaps that shrink by a vote; as many as grow, or one more or fewer.
        wide_up: width of each that grows, before, in votes, at least 1.
        wide_down: width of each that shrinks, before, in votes, at least 1.
        still: number of gaps of 0 votes that stay.
        noise: of the mechanism.
    """

    up: int
    down: int
    wide_up: int
    wide_down: int
    still: int = 0
    noise: GapNoise

    def __post_init__(self) -> None:
        require_count(1, up=self.up, down=self.down, wide_up=self.wide_up, wide_down=self.wide_down)
        require_count(0, still=self.still)
        require(
            abs(self.up - self.down) <= 1,
            "gaps that grow and shrink in turn",
            up=self.up,
            down=self.down,
        )

    @cached_property
    def choices(self) -> tuple[FloatArray, FloatArray]:
        """The laws of the group of the chosen gap, before and after: those that grow, that shrink, that stay."""
        sizes = [self.up, self.down, *([self.still] if self.still else [])]
        widths = [
            [self.wide_up + move, self.wide_down - move, *([0] if self.still else [])]
            for move in (0, 1)
        ]
        before, after = (
            group_law(sizes, group_widths, self.noise.choice) for group_widths in widths
        )
        return before, after

    @cached_property
    def laws(self) -> tuple[FloatArray, FloatArray]:
        """The laws ``[3]`` of the release, before and after.

        A set above a gap that grows; above one that shrinks; nothing, or a set above a gap of 0.
        Which of these it is follows from the size of the set, so that they are no further apart
        than the releases themselves. Sets of a group are equally likely; where gaps are wider than
        a vote, they are the same sets on both neighbors.
        """

        def law(choice: FloatArray, move: int) -> FloatArray:
            released = (
                choice[0] * self.noise.passed(self.wide_up + move),
                choice[1] * self.noise.passed(self.wide_down - move),
            )
            return np.array([*released, 1 - sum(released)])

        return law(self.choices[0], 0), law(self.choices[1], 1)

    @cached_property
    def counts(self) -> tuple[IntArray, IntArray]:
        """Vote counts of both neighbors, descending; the largest is the least number of teachers."""
        first, second = (1, self.up), (-1, self.down)
        turns = (first, second) if self.up > self.down else (second, first)
        moves = np.array([turns[i % 2][0] for i in range(self.up + self.down)] + [0] * self.still)
        gaps = np.select([moves > 0, moves < 0], [self.wide_up, self.wide_down], 0)
        before = np.append(np.cumsum(gaps[::-1])[::-1], 0)
        # a count rises by the moves of all gaps below it, up to a common shift that keeps it within
        # 0 and 1
        rises = np.append(np.cumsum(moves[::-1])[::-1], 0)
        rises -= rises.min()
        require(rises.max() <= 1, "counts that rise by 0 or 1", rises=rises.tolist())
        return before, before + rises

    @property
    def num_teachers(self) -> int:
        """The least number of teachers that have these counts."""
        return max(int(counts.max()) for counts in self.counts)


def gaps_of(counts: IntArray, num_teachers: int) -> IntArray:
    """Return the gaps ``[C - 1]`` between sorted counts, as the mechanism takes them."""
    return np.asarray(sort_counts(counts, upper=num_teachers).gaps[1:-1], dtype=np.int64)


def choice_divergence(pair: Pair, order: float) -> float:
    """Return the larger Renyi divergence at ``order`` of the choices of a gap, were they seen."""
    p, q = (np.log(law) for law in pair.choices)
    return max(
        float(np.log(np.exp(order * one + (1 - order) * other).sum()) / (order - 1))
        for one, other in ((p, q), (q, p))
    )


@cache
def _outcomes(count: int) -> tuple[FloatArray, FloatArray]:
    """How often each of three outcomes occurs in ``count`` queries, ``[N, 3]``, and the log of in how many ways."""
    first, second = np.meshgrid(np.arange(count + 1), np.arange(count + 1), indexing="ij")
    inside = first + second <= count
    often = np.stack(
        [first[inside], second[inside], count - first[inside] - second[inside]], axis=1
    ).astype(np.float64)
    return often, gammaln(count + 1) - gammaln(often + 1).sum(axis=1)


@dataclass(frozen=True)
class Composed:
    """The releases of ``count`` queries of one pair of laws ``[3]``: an exact sum over how often each occurs."""

    laws: tuple[FloatArray, FloatArray]
    count: int

    def __post_init__(self) -> None:
        require_count(1, count=self.count)

    @cached_property
    def _logs(self) -> tuple[tuple[FloatArray, FloatArray], ...]:
        """In both directions the log probabilities that are not rare, on either neighbor."""
        often, ways = _outcomes(self.count)
        p, q = (ways + often @ np.log(law) for law in self.laws)
        return tuple((one[one > _RARE], other[one > _RARE]) for one, other in ((p, q), (q, p)))

    def delta(self, epsilon: float) -> float:
        """Return the least delta at ``epsilon``, the larger direction."""
        return max(
            float(
                (
                    np.exp(one) * np.maximum(0.0, -np.expm1(np.minimum(epsilon + other - one, 0.0)))
                ).sum()
            )
            for one, other in self._logs
        )

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon at ``delta``, to 1e-4 and from below."""
        if self.delta(0.0) <= delta:
            return 0.0
        low, high = 0.0, 1.0
        while self.delta(high) > delta:
            low, high = high, 2 * high
        while high - low > 1e-4:
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return low


def worst_pair(
    num_teachers: int, *, num_gaps: int, noise: GapNoise, delta: float, count: int, step: int = 40
) -> tuple[Pair, float]:
    """Return the pair of the largest epsilon found on a grid, and that epsilon: the true worst may be more.

    Gaps of one group are equally wide, 320 to 480 votes by ``step``, and of the groups that one
    teacher moves.
    """
    best: tuple[Pair, float] | None = None
    widths = range(320, 481, step)
    most = min(num_gaps, num_teachers // widths[0])
    shapes = {
        (up, moving - up)
        for moving in range(2, most + 1)
        for up in (moving // 2, moving - moving // 2)
    }
    for up, down in sorted(shapes):
        for wide_up in widths:
            for wide_down in widths:
                if up * wide_up + down * wide_down > num_teachers:
                    continue
                still = num_gaps - up - down
                pair = Pair(
                    up=up, down=down, wide_up=wide_up, wide_down=wide_down, still=still, noise=noise
                )
                if pair.num_teachers > num_teachers:
                    continue
                composed = Composed(pair.laws, count)
                if best is None or composed.delta(best[1]) > delta:
                    best = pair, composed.epsilon(delta)
    require(
        best is not None, "teachers enough for two gaps of 320 votes", num_teachers=num_teachers
    )
    assert best is not None
    return best
