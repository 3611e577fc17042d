"""The joint mechanism: a single choice among all ordered k-sequences.

Gillenwater, Joseph, Munoz Medina & Ribero (2022), "A joint exponential mechanism for differentially private top-k".
A sequence s loses ``L(s) = max_i (x_(i) - x_{s_i})`` against the sorted scores. With ``n_i(v)`` the number of
items whose score is at least ``x_(i) - v``, there are ``N(v) = prod_i (n_i(v) - i + 1)`` sequences that lose
at most v, and since ``exp(-L/s) = integral from L to infinity of exp(-v/s) dv / s``, the exponential
mechanism is: draw v with density proportional to ``N(v) exp(-v/s)``, then a uniform sequence that loses at
most v.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar, Literal

import numpy as np

from pate._typing import FloatArray, IntArray
from pate._validation import expect_count
from pate.accounting._events import Event
from pate.accounting._relation import NeighboringRelation
from pate.mechanisms._base import Checks, TopKMechanism, choice_event
from pate.mechanisms._noise import expect_noise
from pate.mechanisms._permute_flip import first_accepted, first_head, first_heads
from pate.mechanisms._ranking import REACH, Rows, are_near, distances, rank

JointNoise = Literal["gumbel", "exponential"]

_BLOCKS = 13  # blocks of the first envelope
_LEVEL_BLOCKS = 32  # blocks of the losses of a batch at first: more take longer to bound, fewer reject more candidates
_PARTS = 8  # into which a block is split
_REJECTED = 0.9  # share of candidates that may be rejected: one costs as much as a bound at one more loss
_TABLE = 1 << 16  # largest number of losses times k that is tabulated for every row of a batch of counts
_CHUNK = 1 << 18  # entries of the tables worked on at once


@dataclass(frozen=True, kw_only=True)
class JointMechanism(TopKMechanism):
    """Choose one ordered sequence of k distinct items among all of them.

    Gumbel noise: with probability proportional to ``exp(-L(s) / scale)`` (Gillenwater et al. (2022), Algorithm 1,
    without its tie-breaking terms, which a draw of v does not need). Exponential noise: by permute-and-flip over all
    sequences.

    Privacy: one choice of ``w / scale``, bounded range with Gumbel noise and pure DP with exponential noise, where
    ``w`` is that of `joint_window`.

    Args:
        k: length of the sequence, 1..d.
        scale: scale of the noise, in votes.
        noise: ``gumbel`` or ``exponential``.
    """

    checks: ClassVar[Checks] = {"noise": partial(expect_noise, JointNoise)}

    noise: JointNoise = "gumbel"

    def _select(self, rows: Rows, generator: np.random.Generator) -> IntArray:
        chosen = np.empty((len(rows), self.k), dtype=np.int64)
        step = _rows_at_once(rows, self.k)
        for start in range(0, len(rows), max(step, 1)):
            order, scores = rank(rows[start : start + max(step, 1)])
            if step > 1:
                below = distances(scores, scores[:, :1]).astype(np.int64)
                ranks = _draw_batch(below, self.k, self.scale, self.noise, generator)
            else:
                ranks = np.array([_draw_row(row, self.k, self.scale, self.noise, generator) for row in scores])
            chosen[start : start + len(order)] = np.take_along_axis(order, ranks, axis=1)
        return chosen

    def event(self, relation: NeighboringRelation) -> Event:
        window = joint_window(k=self.k, relation=relation) * self.sensitivity
        return choice_event(relation, eta=window / self.scale, noise=self.noise)


def joint_window(*, k: int, relation: NeighboringRelation) -> int:
    """Return the width of the window within which the losses of all sequences of votes move together.

    It is twice the count window, because ``x_(i)`` and ``x_{s_i}`` move within that independently. For k = 1 it is the
    count window itself, because ``x_(1)`` is common to all sequences.
    """
    expect_count(1, k=k)
    return relation.count_window if k == 1 else 2 * relation.count_window


def _rows_at_once(rows: Rows, k: int) -> int:
    """Return how many rows of a batch of counts are tabulated together; 1 if they are not."""
    if len(rows) == 1 or rows.dtype.kind == "f" or not rows.size:
        return 1
    spread = int(rows.max()) - int(rows.min())
    return max(2, _CHUNK // max(spread + 1, rows.shape[1])) if (spread + 1) * k <= _TABLE else 1


@dataclass(frozen=True, eq=False)
class _Losses:
    """What the items of one row lose in each of k places, given its descending scores ``[d]``.

    No loss is larger than `REACH` scales: a clip of the losses, which moves none of them farther than it was moved.
    """

    scores: Rows
    k: int
    scale: float

    @cached_property
    def furthest(self) -> float:
        """The largest loss."""
        return float(distances(self.scores[-1:], self.scores[:1], reach=REACH * self.scale)[0])

    @cached_property
    def _below(self) -> FloatArray | None:
        """Distances from the largest score, unless they would be rounded by more than matters."""
        return distances(self.scores, self.scores[:1]) if are_near(self.scores, self.scale) else None

    def reach(self, limits: FloatArray) -> IntArray:
        """Return ``n_i(v)`` for every v in ``limits``, ``[V, k]``: the number of items that may take place i."""
        if self._below is not None:
            return np.searchsorted(self._below, self._below[: self.k] + limits[:, None], side="right")
        # by bisection, so that each difference is exact before it is rounded: i + 1 items at least lose nothing
        num_items = self.scores.size
        low = np.tile(np.arange(1, self.k + 1), (limits.size, 1))
        high = np.full_like(low, num_items)
        while (low < high).any():
            middle = (low + high) // 2
            within = self.of(np.minimum(middle, num_items - 1)) <= limits[:, None]
            low, high = np.where(within & (low < high), middle + 1, low), np.where(within, high, middle)
        return np.where(limits[:, None] >= self.furthest, num_items, low)

    def log_sequences(self, limits: FloatArray) -> FloatArray:
        """Return the logarithm of how many sequences lose at most v, for every v in ``limits`` ``[V]``."""
        log_sequences: FloatArray = np.log(self.reach(limits) - np.arange(self.k)).sum(axis=1)
        return log_sequences

    def of(self, ranks: IntArray) -> FloatArray:
        """Return what items of ``ranks`` ``[.., k]`` lose in the k places, below 0 where they are too good for them."""
        return distances(self.scores[ranks], self.scores[: self.k], reach=REACH * self.scale)


def _draw_row(scores: Rows, k: int, scale: float, noise: JointNoise, generator: np.random.Generator) -> list[int]:
    """Draw one sequence as ranks from 0, ``[k]``, given descending scores ``[d]``.

    ``N`` is a step function that grows, so on a block of losses its value at the right end bounds it. Blocks
    are split until one in ten of the candidates from this envelope passes, or until splitting no longer helps.
    """
    losses = _Losses(scores, k, scale)
    if losses.furthest == 0:
        return _sequence(losses.reach(np.zeros(1))[0], generator)
    # blocks that halve towards 0, where exp(-v / scale) has its mass
    edges = np.concatenate(([0.0], losses.furthest * 0.5 ** np.arange(_BLOCKS)[::-1]))
    counts = losses.log_sequences(edges)  # in logarithms, as N exceeds the range of floats
    for _ in range(40):
        # mass of exp(-v/s) on each block, the last one without end
        with np.errstate(divide="ignore", over="ignore"):
            log_widths = np.append(-edges[:-1] / scale + np.log(-np.expm1(-np.diff(edges) / scale)), -edges[-1] / scale)
        upper = np.append(counts[1:], counts[-1]) + log_widths
        largest = upper.max()
        masses = np.exp(upper - largest)
        total = masses.sum()
        # N at the left end bounds the mass of a block from below
        excess = masses - np.exp(counts + log_widths - largest)
        if excess.sum() <= _REJECTED * total:
            break
        split = np.flatnonzero(excess[:-1] >= 0.1 * excess.max())
        starts, ends = edges[split], edges[split + 1]
        # split the blocks that lose most, by ratio where they are wide against their distance from 0
        low = np.maximum(starts, ends / 256)
        parts = np.arange(1, _PARTS)[:, None] / _PARTS
        middle = np.where(ends > 4 * starts, low * (ends / low) ** parts, starts + (ends - starts) * parts)
        middle = np.unique(middle[(middle > starts) & (middle < ends)])
        if not middle.size:
            break
        order = np.argsort(np.concatenate((edges, middle)))
        counts = np.concatenate((counts, losses.log_sequences(middle)))[order]
        edges = np.concatenate((edges, middle))[order]
    cumulative = np.cumsum(masses)

    def propose() -> tuple[list[int], float] | None:
        block = int(np.searchsorted(cumulative, generator.random() * cumulative[-1], side="right"))
        block = min(block, cumulative.size - 1)
        block_start = float(edges[block])
        if block == edges.size - 1:
            reach, bound = losses.reach(edges[-1:])[0], 0.0
        else:
            # a loss within the block, by the inverse of its exponential distribution
            width = float(edges[block + 1]) - block_start
            step = -scale * math.log1p(generator.random() * math.expm1(-width / scale))
            loss = min(block_start + step, float(edges[block + 1]))
            reach = losses.reach(np.array([loss]))[0]
            bound = float(counts[block + 1]) - float(np.log(reach - np.arange(k)).sum())
        # kept with probability N(loss) / N(right end); roundings may put the logarithm of that above 0
        if generator.standard_exponential() < bound - 1e-12:
            return None
        ranks = _sequence(reach, generator)
        if noise == "gumbel":
            return ranks, 1.0
        # the chance of the coin follows from what this sequence loses, not from the loss that was drawn
        worst = max(float(losses.of(np.array(ranks)).max()), 0.0)
        return ranks, math.exp(-worst / scale)

    if noise == "exponential":
        return first_head(float(largest) + math.log(total), propose, generator)
    return first_accepted(propose)


def _sequence(reach: IntArray, generator: np.random.Generator) -> list[int]:
    """Draw a uniform sequence of distinct ranks, the i-th below ``reach[i]``: Fisher-Yates on a growing prefix."""
    places = generator.integers(np.arange(reach.size), reach).tolist()
    moved: dict[int, int] = {}
    ranks = []
    for i, place in enumerate(places):
        ranks.append(moved.get(place, place))
        moved[place] = moved.get(i, i)
    return ranks


def _draw_batch(below: IntArray, k: int, scale: float, noise: JointNoise, generator: np.random.Generator) -> IntArray:
    """Draw one sequence per row of sorted integer deficits ``[B, d]`` as ranks, ``[B, k]``.

    With Gumbel noise losses are proposed in blocks; permute-and-flip needs their total mass, so all are tabulated.
    Losses are integers 0..M here, and all of the mass between l and l + 1 belongs to the sequences that lose at most l.
    """
    num_rows, num_items = below.shape
    furthest = int(below.max())
    first = np.arange(num_rows)[:, None] * (furthest + 1)
    reach = np.bincount((first + below).ravel(), minlength=num_rows * (furthest + 1)).reshape(num_rows, furthest + 1)
    np.cumsum(reach, axis=1, out=reach)  # how many deficits are at most l
    if noise == "gumbel":
        levels = _draw_levels(below, reach, k, scale, generator)
        limits = np.minimum(below[:, :k] + levels[:, None], furthest)
        return _sequence_batch(np.take_along_axis(reach, limits, axis=1), num_items, generator)
    levels = np.arange(furthest + 1)
    log_tail = -levels / scale
    log_step = math.log(-math.expm1(-1 / scale))
    log_masses = np.tile(log_tail + log_step, (num_rows, 1))
    log_masses[:, -1] = log_tail[-1]
    logs = np.log(np.maximum(np.arange(num_items + 1), 1))
    for i in range(k):
        at = np.minimum(below[:, i : i + 1] + levels, furthest)
        at += first
        log_masses += logs.take(reach.take(at) - i)
    largest = log_masses.max(axis=1)
    cumulative = np.exp(log_masses - largest[:, None])
    np.cumsum(cumulative, axis=1, out=cumulative)

    def propose(rows: IntArray) -> tuple[IntArray, FloatArray]:
        mass = generator.random(rows.size) * np.nextafter(cumulative[rows, -1], 0)
        level = np.argmax(cumulative[rows] > mass[:, None], axis=1)
        limit = np.minimum(below[rows, :k] + level[:, None], furthest)
        ranks = _sequence_batch(np.take_along_axis(reach[rows], limit, axis=1), num_items, generator)
        worst = (np.take_along_axis(below[rows], ranks, axis=1) - below[rows, :k]).max(axis=1)
        return ranks, np.exp(-np.maximum(worst, 0) / scale)

    return first_heads(largest + np.log(cumulative[:, -1]), propose, generator)


def _draw_levels(below: IntArray, reach: IntArray, k: int, scale: float, generator: np.random.Generator) -> IntArray:
    """Draw for each row the level ``[B]`` that bounds the loss of the sequence.

    Levels are proposed in blocks, weighted as if every level of a block had as many sequences as its last level, and
    accepted in proportion to the number that they really have.
    """
    num_rows, width = reach.shape
    first = np.arange(num_rows)[:, None] * width
    logs = np.log(np.maximum(np.arange(below.shape[1] + 1), 1))

    def log_sequences(rows: IntArray, levels: IntArray) -> FloatArray:
        total = np.zeros((len(rows), levels.shape[-1]))
        for i in range(k):
            at = np.minimum(below[rows, i : i + 1] + levels, width - 1)
            at += first[rows]
            total += logs.take(reach.take(at) - i)
        return total

    all_rows = np.arange(num_rows)
    num_blocks = min(width, _LEVEL_BLOCKS)
    while True:
        edges = np.unique(np.linspace(0, width, num_blocks + 1).astype(np.int64))
        starts, ends = edges[:-1], edges[1:] - 1
        # the mass of a block's levels: that of exponential noise between its edges, or beyond the last one
        log_mass = -starts / scale
        log_mass[:-1] += np.log(-np.expm1(-np.diff(starts) / scale))
        bounds = log_sequences(all_rows, ends[None])
        weights = bounds + log_mass
        weights -= weights.max(axis=1, keepdims=True)
        cumulative = np.cumsum(np.exp(weights), axis=1)
        if num_blocks == width:
            break
        # no level of a block has fewer sequences than its first
        accepted_mass = np.exp(weights + log_sequences(all_rows, starts[None]) - bounds).sum(axis=1)
        if (accepted_mass >= (1 - _REJECTED) * cumulative[:, -1]).all():
            break
        num_blocks = min(width, _PARTS * num_blocks)
    chosen = np.zeros(num_rows, dtype=np.int64)
    rows = np.arange(num_rows)
    while rows.size:
        mass = generator.random(rows.size) * np.nextafter(cumulative[rows, -1], 0)
        block = np.argmax(cumulative[rows] > mass[:, None], axis=1)
        # exponential noise within the block; the last level stands for all that lies beyond
        length = np.where(block == len(starts) - 1, np.inf, ends[block] + 1 - starts[block])
        noise = -scale * np.log1p(generator.random(rows.size) * np.expm1(-length / scale))
        levels = np.minimum(starts[block] + np.minimum(noise, float(width)).astype(np.int64), ends[block])
        log_share = log_sequences(rows, levels[:, None])[:, 0] - bounds[rows, block]
        accepted = np.log1p(-generator.random(rows.size)) < log_share
        accepted |= levels == ends[block]
        chosen[rows[accepted]] = levels[accepted]
        rows = rows[~accepted]
    return chosen


def _sequence_batch(reach: IntArray, num_items: int, generator: np.random.Generator) -> IntArray:
    """Draw a sequence, as `_sequence` does, for each row of ``reach`` ``[B, k]``."""
    k = reach.shape[1]
    places = generator.integers(np.arange(k), reach)
    # the first k steps of Fisher-Yates, in all rows at once
    pool = np.tile(np.arange(num_items), (len(reach), 1))
    rows = np.arange(len(reach))
    for i in range(k):
        chosen = pool[rows, places[:, i]]
        pool[rows, places[:, i]] = pool[:, i]
        pool[:, i] = chosen
    return pool[:, :k].copy()
