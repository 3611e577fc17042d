"""Peeling: choosing one item without replacement in each of k rounds; the output is ordered."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pate._typing import BoolArray, IntArray
from pate.accounting._events import Event
from pate.accounting._relation import NeighboringRelation
from pate.mechanisms._base import TopKMechanism, choice_event
from pate.mechanisms._exact_choice import smallest
from pate.mechanisms._noise import Noise
from pate.mechanisms._permute_flip import first_head
from pate.mechanisms._ranking import REACH, ROWS, Rows, are_near, below_rank, distances, rank

_TABLE = 30.0  # items further than this many scales below the best share one envelope
_MANY_ROWS, _FEW_ITEMS = 4, 1024  # at least so many rows of fewer items than this are peeled together, round by round


@dataclass(frozen=True, kw_only=True)
class GumbelPeeling(TopKMechanism):
    """Peel k items by the exponential mechanism: the k largest scores with Gumbel noise drawn once, in order.

    Both have the same law (Durfee & Rogers (2019), Lemma 4.2).

    Privacy: k bounded-range choices of ``w / scale`` for the ordered output (Dong, Durfee & Rogers (2020)); ``w`` is 1
    vote under ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD.

    Args:
        k: number of rounds, 1..d.
        scale: scale of the Gumbel noise, in votes.
    """

    def _select(self, rows: Rows, generator: np.random.Generator) -> IntArray:
        return one_shot(rows, self.k, self.scale, "gumbel", generator)

    def event(self, relation: NeighboringRelation) -> Event:
        return choice_event(relation, eta=self.window(relation) / self.scale, noise="gumbel", count=self.k)


@dataclass(frozen=True, kw_only=True)
class PermuteAndFlipPeeling(TopKMechanism):
    """Peel k items by permute-and-flip, each round with fresh noise (McKenna & Sheldon (2020)).

    Privacy: k pure choices of ``w / scale`` for the ordered output; ``w`` is 1 vote under ADD_REMOVE_TEACHER and 2
    under REPLACE_RECORD.

    Args:
        k: number of rounds, 1..d.
        scale: scale of the exponential noise, in votes.
    """

    def _select(self, rows: Rows, generator: np.random.Generator) -> IntArray:
        if len(rows) >= _MANY_ROWS and rows.shape[1] < _FEW_ITEMS and are_near(rows, self.scale):
            return _peel_batch(rows, self.k, self.scale, generator)
        chosen = np.empty((len(rows), self.k), dtype=np.int64)
        for row in range(len(rows)):
            order, scores = rank(rows[row : row + 1])
            chosen[row] = order[0, _peel_row(scores[0], self.k, self.scale, generator)]
        return chosen

    def event(self, relation: NeighboringRelation) -> Event:
        return choice_event(relation, eta=self.window(relation) / self.scale, noise="exponential", count=self.k)


def one_shot(rows: Rows, k: int, scale: float, noise: Noise, generator: np.random.Generator) -> IntArray:
    """Return the indices ``[B, k]`` of the k largest scores of ``rows`` ``[B, d]`` with noise drawn once, in order."""
    chosen = np.empty((len(rows), k), dtype=np.int64)
    for start in range(0, len(rows), ROWS):
        part = rows[start : start + ROWS]
        chosen[start : start + ROWS] = smallest(
            below_rank(part, k, reach=REACH * scale),
            k,
            noise=noise,
            scale=scale,
            generator=generator,
            exact=lambda row, place, part=part: -Fraction(part[row, place].item()),  # type: ignore[misc]
        )
    return chosen


def _peel_batch(rows: Rows, k: int, scale: float, generator: np.random.Generator) -> IntArray:
    chosen = np.empty((len(rows), k), dtype=np.int64)
    for start in range(0, len(rows), ROWS):
        remaining = below_rank(rows[start : start + ROWS], 1)
        indices = np.arange(len(remaining))
        for place in range(k):
            noisy = remaining - scale * generator.standard_exponential(remaining.shape)
            best = np.argmin(noisy, axis=1)
            chosen[start : start + ROWS, place] = best
            remaining[indices, best] = np.inf
    return chosen


def _peel_row(scores: Rows, k: int, scale: float, generator: np.random.Generator) -> list[int]:
    """Peel ranks from descending scores ``[d]`` by a table of candidates, rebuilt when too many are taken."""
    taken = np.zeros(scores.size, dtype=np.bool_)
    chosen: list[int] = []
    best = 0  # the first rank that is left
    while len(chosen) < k:
        table = _Candidates(scores, taken, best, scale, generator)
        gone = 0.0
        while len(chosen) < k and gone <= table.total / 2 and table.reaches(best):
            item = first_head(table.relative_to(best), table.propose, generator)
            chosen.append(item)
            taken[item] = True
            gone += table.mass(item)
            while best < scores.size and taken[best]:
                best += 1
    return chosen


class _Candidates:
    """Draws ranks in proportion to ``exp(-deficit / scale)``, rejecting those taken since the table was built.

    Masses are in units of the mass that the best rank had when the table was built, from which all distances are taken.
    Items too far below it to be worth a place in the table share one envelope.
    """

    def __init__(self, scores: Rows, taken: BoolArray, best: int, scale: float, generator: np.random.Generator) -> None:
        self._taken, self._scale, self._generator, self._best = taken, scale, generator, best
        self._below = distances(scores[best:], scores[best : best + 1], reach=REACH * scale)
        self._end = best + max(1, int(np.searchsorted(self._below, _TABLE * scale, side="right")))
        ranks = best + np.flatnonzero(~taken[best : self._end])
        self._ranks = ranks.tolist()
        self._cumulative = np.cumsum(np.exp(-self._below[ranks - best] / scale)).tolist()
        self._far = scores.size - self._end
        self._far_mass = self.mass(self._end) if self._far else 0.0
        self._lift = 1.0
        self.total: float = self._cumulative[-1] + self._far * self._far_mass

    def mass(self, rank: int) -> float:
        return math.exp(-float(self._below[rank - self._best]) / self._scale)

    def reaches(self, best: int) -> bool:
        """Whether ``best`` is near enough for its mass to exceed rounding errors."""
        place = best - self._best
        return place < self._below.size and float(self._below[place]) <= _TABLE * self._scale

    def relative_to(self, best: int) -> float:
        """Make ``best`` the item whose coin always shows heads; return the log of the total in units of its mass."""
        self._lift = 1 / self.mass(best)
        return math.log(self.total * self._lift)

    def propose(self) -> tuple[int, float] | None:
        mass = self._generator.random() * self.total
        if mass < self._cumulative[-1]:
            rank = self._ranks[bisect_right(self._cumulative, mass)]
        else:
            rank = self._end + int(self._generator.integers(self._far))
            if self._generator.random() * self._far_mass >= self.mass(rank):
                return None
        return None if self._taken[rank] else (rank, min(1.0, self.mass(rank) * self._lift))
