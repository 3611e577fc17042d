"""The joint mechanism: a single choice among all ordered k-sequences.

Gillenwater, Joseph, Munoz Medina & Ribero (2022), "A joint exponential mechanism for differentially
private top-k". A sequence s loses ``L(s) = max_i (x_(i) - x_{s_i})`` against the sorted scores.
With ``n_i(v)`` items of a score of at least ``x_(i) - v``, there are ``N(v) = prod_i
(n_i(v) - i + 1)`` sequences that lose at most v, and since ``exp(-L/s) = integral from L to
infinity of exp(-v/s) dv / s``, the exponential mechanism is: draw v with density proportional to
``N(v) exp(-v/s)``, then a uniform sequence that loses at most v.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial, reduce
from itertools import permutations
from typing import ClassVar

import numpy as np

from pate._core.accounting.cost import NeighboringRelation
from pate._core.accounting.events import Event
from pate._core.mechanisms.base import (
    Checks,
    Law,
    TopKMechanism,
    choice_event,
    choice_law,
    members_of,
    require_few,
    sets_of,
)
from pate._core.mechanisms.exact_choice import (
    REACH,
    SLACK,
    Chance,
    Picked,
    Proposals,
    cumulative_weights,
    distances,
    draw,
    has_near_ties,
    in_blocks,
    pick,
    rank,
)
from pate._core.mechanisms.noise import ChoiceNoise, require_noise
from pate._core.validation import FloatArray, IntArray, Rows, require_count

_BLOCKS = 13  # blocks of the first envelope
# blocks of the losses of a batch at first: more take longer to bound, fewer reject more
_LEVEL_BLOCKS = 32
_PARTS = 8  # into which a block is split
# share of candidates that may be rejected: one costs as much as a bound at one more loss
_REJECTED = 0.9
# largest number of losses times k that is tabulated for every row of a batch of counts
_TABLE = 1 << 16
_CHUNK = 1 << 18  # entries of the tables worked on at once


@dataclass(frozen=True, kw_only=True)
class JointMechanism(TopKMechanism):
    """Choose one ordered sequence of k distinct items among all of them.

    Gumbel noise: with probability proportional to ``exp(-L(s) / scale)`` (Gillenwater et al.
    (2022), Algorithm 1, without its tie-breaking terms, which a draw of v does not need).
    Exponential noise: by permute-and-flip over all sequences.

    Privacy: one choice of ``w / scale``, bounded range with Gumbel noise and pure DP with
    exponential noise, where ``w`` is the `joint_window`.

    >>> mechanism = JointMechanism(k=2, scale=2.0)
    >>> mechanism(np.array([90, 80, 10, 0]), generator=seeded_generator(0))
    array([0, 1])

    Args:
        k: length of the sequence, 1..d.
        scale: scale of the noise, in votes.
        noise: the law of the noise, as in `CanonicalMechanism`.
    """

    checks: ClassVar[Checks] = {"noise": partial(require_noise, ChoiceNoise)}

    noise: ChoiceNoise = "gumbel"

    def _select(self, rows: Rows, generator: np.random.Generator) -> IntArray:
        size, noise = _rows_at_once(rows, self.k), self.noise

        def draw_part(part: Rows) -> IntArray:
            order, scores = rank(part)
            if size > 1:
                below = distances(scores, scores[:, :1]).astype(np.int64)
                ranks = _draw_batch(below, self.k, self.scale, noise, generator)
            else:
                drawn = [_draw_row(row, self.k, self.scale, noise, generator) for row in scores]
                ranks = np.array(drawn, dtype=np.int64).reshape(-1, self.k)
            return np.take_along_axis(order, ranks, axis=1)

        return in_blocks(rows, draw_part, size=size)

    def event(self, relation: NeighboringRelation) -> Event:
        window = joint_window(k=self.k, relation=relation) * self.sensitivity
        return choice_event(relation, eta=window / self.scale, noise=self.noise)

    def law(self, scores: Rows) -> Law:
        k, num_items = self.k, scores.shape[1]
        require_few(math.perm(num_items, k), self.noise)
        sets = sets_of(num_items, k, "gumbel")
        # the sequences of a set one after another
        sequences = sets[:, list(permutations(range(k)))].reshape(-1, k)
        ranked = -np.sort(-scores, axis=1)
        losses = reduce(
            np.maximum,
            (ranked[:, i, None] - scores[:, column] for i, column in enumerate(sequences.T)),
        )
        chances = choice_law(-losses / self.scale, self.noise).reshape(
            len(scores), len(sets), math.factorial(k)
        )
        return Law(chances.sum(axis=2), members_of(sets, num_items))


def joint_window(*, k: int, relation: NeighboringRelation) -> int:
    """Return the width of the window within which the losses of all sequences of votes move.

    It is twice the count window, because ``x_(i)`` and ``x_{s_i}`` move within that independently.
    For k = 1 it is the count window itself, because ``x_(1)`` is common to all sequences.

    >>> joint_window(k=3, relation=NeighboringRelation.REPLACE_RECORD)
    4

    Returns:
        the width of the window, in votes.

    Raises:
        ValueError: on ``k < 1``.
    """
    require_count(1, k=k)
    return relation.score_range if k == 1 else 2 * relation.score_range


def _rows_at_once(rows: Rows, k: int) -> int:
    """Return how many rows of a batch of counts are tabulated together; 1 if they are not."""
    if len(rows) == 1 or rows.dtype.kind == "f" or not rows.size:
        return 1
    spread = int(rows.max()) - int(rows.min())
    return max(2, _CHUNK // max(spread + 1, rows.shape[1])) if (spread + 1) * k <= _TABLE else 1


@dataclass(frozen=True, eq=False)
class _Losses:
    """Losses of the items of one row in each of k places, given its descending scores ``[d]``.

    No loss is larger than `REACH` scales: a clip of the losses, which moves none of them farther
    than it was moved.
    """

    scores: Rows
    k: int
    scale: float

    @cached_property
    def max_loss(self) -> float:
        """The largest loss."""
        return float(distances(self.scores[-1:], self.scores[:1], reach=REACH * self.scale)[0])

    @cached_property
    def _distances(self) -> FloatArray | None:
        """Distances from the largest score, unless they would be rounded by more than matters."""
        return (
            distances(self.scores, self.scores[:1])
            if has_near_ties(self.scores, self.scale)
            else None
        )

    def reach(self, limits: FloatArray) -> IntArray:
        """Return ``n_i(v)``, how many items may take place i, for v in ``limits``: ``[V, k]``."""
        if self._distances is not None:
            # lifted by more than sums and differences are rounded: one sequence too many does no
            # harm
            return np.searchsorted(
                self._distances,
                (self._distances[: self.k] + limits[:, None]) * (1 + 2.0**-50),
                "right",
            )
        # by bisection, so that each difference is exact before it is rounded: i + 1 items at least
        # lose nothing
        num_items = self.scores.size
        low = np.tile(np.arange(1, self.k + 1), (limits.size, 1))
        high = np.full_like(low, num_items)
        while (low < high).any():
            middle = (low + high) // 2
            within = self.of(np.minimum(middle, num_items - 1)) <= limits[:, None]
            low, high = (
                np.where(within & (low < high), middle + 1, low),
                np.where(within, high, middle),
            )
        return np.where(limits[:, None] >= self.max_loss, num_items, low)

    def log_sequences(self, limits: FloatArray) -> FloatArray:
        """Return log numbers of the sequences that lose at most v, for ``limits`` ``[V]``."""
        return np.log(self.reach(limits) - np.arange(self.k)).sum(axis=1)

    def of(self, ranks: IntArray) -> FloatArray:
        """Return the losses of ``ranks`` ``[.., k]`` in their places, negative if too good."""
        return distances(self.scores[ranks], self.scores[: self.k], reach=REACH * self.scale)


def _proposals(
    ranks: IntArray,
    losses: FloatArray,
    starts: FloatArray,
    ends: FloatArray,
    reach: IntArray,
    blocks: Picked,
    scale: float,
    log_rates: FloatArray,
) -> Proposals:
    """Propose sequences ``[n, k]``, each uniform among those with ranks below ``reach`` ``[n, k]``.

    They are kept as often as a loss drawn from their block ``[starts, ends)`` is no smaller than
    their own.
    """
    worst, places = np.maximum(losses, starts), np.arange(reach.shape[1])
    with np.errstate(divide="ignore"):
        widths = -np.expm1(-np.maximum(ends - worst, 0) / scale)
        log_widths = np.log(widths) - worst / scale
    log_counts = np.log(reach - places).sum(axis=1)
    log_chances = log_counts + log_widths - blocks.log_shares - log_rates

    def loss(place: int) -> Fraction:
        return Fraction(float(losses[place])) / Fraction(scale)

    def chance(place: int) -> Chance:
        low, high = float(worst[place]), float(ends[place])
        if not low < high:
            return Chance(Fraction(0), Fraction(0))
        count, raised = (
            math.prod((reach[place] - places).tolist()),
            Fraction(float(log_rates[place])),
        )
        last = None if high == math.inf else Fraction(high) / Fraction(scale) + raised
        return Chance(count / blocks.share(place), Fraction(low) / Fraction(scale) + raised, last)

    return Proposals(ranks, log_chances, chance, losses / scale, loss)


class _RowBlocks:
    """Blocks of the losses of one row, each with a bound on its mass.

    ``N`` is a step function that grows, so on a block of losses its value at the right end bounds
    it. Blocks are split until one in ten of the proposals passes, or until splitting no longer
    helps.
    """

    def __init__(self, losses: _Losses) -> None:
        # blocks that halve toward 0, where exp(-v / scale) has its mass
        edges = np.concatenate(([0.0], losses.max_loss * 0.5 ** np.arange(_BLOCKS)[::-1]))
        counts = losses.log_sequences(edges)  # in logarithms, as N exceeds the range of floats
        for _ in range(40):
            log_widths = _log_widths(edges, losses.scale)
            upper = np.append(counts[1:], counts[-1]) + log_widths
            largest = upper.max()
            masses = np.exp(upper - largest)
            total = masses.sum()
            # N at the left end bounds the mass of a block from below
            excess = masses - np.exp(counts + log_widths - largest)
            if excess.sum() <= _REJECTED * total:
                break
            middle = _halfway(edges, excess)
            if not middle.size:
                break
            order = np.argsort(np.concatenate((edges, middle)))
            counts = np.concatenate((counts, losses.log_sequences(middle)))[order]
            edges = np.concatenate((edges, middle))[order]
        self._losses, self._edges = losses, edges
        self._cumulative = cumulative_weights(masses[None])
        self.log_rates = np.array([float(largest) + math.log(total) + SLACK])

    def propose(self, generator: np.random.Generator) -> Proposals:
        """Propose one sequence as ranks from 0."""
        edges, block = self._edges, pick(self._cumulative, generator)
        place = int(block.places[0])
        end = edges[place + 1 : place + 2] if place + 1 < edges.size else edges[-1:]
        reach = self._losses.reach(end)
        ranks = np.array([_sequence(reach[0], generator)])
        worst = np.maximum(self._losses.of(ranks).max(axis=1), 0.0)
        starts, ends = edges[block.places], np.append(edges[1:], np.inf)[block.places]
        return _proposals(
            ranks, worst, starts, ends, reach, block, self._losses.scale, self.log_rates
        )


def _log_widths(edges: FloatArray, scale: float) -> FloatArray:
    """Return the log mass of ``exp(-v / scale)`` on each block, the last one without end."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.append(
            -edges[:-1] / scale + np.log(-np.expm1(-np.diff(edges) / scale)), -edges[-1] / scale
        )


def _halfway(edges: FloatArray, excess: FloatArray) -> FloatArray:
    """Return new edges in the blocks that lose most by their bounds."""
    split = np.flatnonzero(excess[:-1] >= 0.1 * excess.max())
    starts, ends = edges[split], edges[split + 1]
    # by ratio where blocks are wide against their distance from 0
    low = np.maximum(starts, ends / 256)
    parts = np.arange(1, _PARTS)[:, None] / _PARTS
    middle = np.where(
        ends > 4 * starts, low * (ends / low) ** parts, starts + (ends - starts) * parts
    )
    return np.unique(middle[(middle > starts) & (middle < ends)])


def _draw_row(
    scores: Rows, k: int, scale: float, noise: ChoiceNoise, generator: np.random.Generator
) -> IntArray:
    """Draw one sequence as ranks from 0, ``[k]``, given descending scores ``[d]``."""
    losses = _Losses(scores, k, scale)
    if losses.max_loss == 0:
        return np.array(_sequence(losses.reach(np.zeros(1))[0], generator))
    blocks = _RowBlocks(losses)
    return draw(blocks.log_rates, lambda _: blocks.propose(generator), generator, noise=noise)[0]


def _sequence(reach: IntArray, generator: np.random.Generator) -> list[int]:
    """Draw a uniform sequence of distinct ranks, the i-th below ``reach[i]`` (Fisher-Yates)."""
    places = generator.integers(np.arange(reach.size), reach).tolist()
    moved: dict[int, int] = {}
    ranks = []
    for i, place in enumerate(places):
        ranks.append(moved.get(place, place))
        moved[place] = moved.get(i, i)
    return ranks


class _Levels:
    """Blocks of the levels of losses of rows of sorted integer deficits ``[B, d]``.

    Losses are integers 0..M here, and all of the mass between l and l + 1 belongs to the sequences
    that lose at most l. Levels of losses are taken in blocks, as if every level of a block had as
    many sequences as its last one.
    """

    def __init__(self, below: IntArray, k: int, scale: float) -> None:
        self._below, self._k, self._scale = below, k, scale
        num_rows = len(below)
        self._width = width = int(below.max()) + 1
        self._first = np.arange(num_rows)[:, None] * width
        places = (self._first + below).ravel()
        self._reach = np.bincount(places, minlength=num_rows * width).reshape(num_rows, width)
        np.cumsum(self._reach, axis=1, out=self._reach)  # how many deficits are at most l
        self._logs = np.log(np.maximum(np.arange(below.shape[1] + 1), 1))
        num_blocks = min(width, _LEVEL_BLOCKS)
        while not self._divided(num_blocks):
            num_blocks = min(width, _PARTS * num_blocks)
        self._cumulative = cumulative_weights(self._masses)

    def _divided(self, num_blocks: int) -> bool:
        """Divide the levels into so many blocks; return whether these are enough."""
        edges = np.unique(np.linspace(0, self._width, num_blocks + 1).astype(np.int64))
        self._starts, self._levels = starts, levels = edges[:-1], edges[1:] - 1
        # the mass of a block's levels: the mass of exponential noise between its edges, or beyond
        # the last one
        log_mass = -starts / self._scale
        log_mass[:-1] += np.log(-np.expm1(-np.diff(starts) / self._scale))
        bounds = self._log_sequences(levels)
        upper = bounds + log_mass
        largest = upper.max(axis=1, keepdims=True)
        self._masses = np.exp(upper - largest)
        totals = self._masses.sum(axis=1)
        self.log_rates = largest[:, 0] + np.log(totals) + SLACK
        if num_blocks == self._width:
            return True
        # no level of a block has fewer sequences than its first
        accepted = np.exp(upper - largest + self._log_sequences(starts) - bounds).sum(axis=1)
        return bool((accepted >= (1 - _REJECTED) * totals).all())

    def _log_sequences(self, levels: IntArray) -> FloatArray:
        total = np.zeros((len(self._below), levels.size))
        for i in range(self._k):
            at = np.minimum(self._below[:, i : i + 1] + levels, self._width - 1)
            at += self._first
            total += self._logs.take(self._reach.take(at) - i)
        return total

    def propose(self, rows: IntArray, generator: np.random.Generator) -> Proposals:
        """Propose a sequence for each of some rows ``[n]``."""
        block, below = pick(self._cumulative[rows], generator), self._below[rows]
        starts, top = self._starts.astype(np.float64), below[:, : self._k]
        limits = np.minimum(top + self._levels[block.places][:, None], self._width - 1)
        within = np.take_along_axis(self._reach[rows], limits, axis=1)
        ranks = _sequence_batch(within, below.shape[1], generator)
        worst = (np.take_along_axis(below, ranks, axis=1) - top).max(axis=1)
        return _proposals(
            ranks,
            np.maximum(worst, 0).astype(np.float64),
            starts[block.places],
            np.append(starts[1:], np.inf)[block.places],
            within,
            block,
            self._scale,
            self.log_rates[rows],
        )


def _draw_batch(
    below: IntArray, k: int, scale: float, noise: ChoiceNoise, generator: np.random.Generator
) -> IntArray:
    """Draw one sequence per row of sorted integer deficits ``[B, d]`` as ranks, ``[B, k]``."""
    levels = _Levels(below, k, scale)
    return draw(
        levels.log_rates, lambda rows: levels.propose(rows, generator), generator, noise=noise
    )


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
