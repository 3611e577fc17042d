"""Peeling: k rounds of choosing one item, without replacement. The output is ordered."""

import math
from bisect import bisect_right

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate.accounting.events import Event, PureDPEvent, RepeatedEvent
from pate.accounting.relation import NeighboringRelation
from pate.mechanisms._scores import (
    ROWS,
    FloatArray,
    IntArray,
    as_rows,
    deficits,
    expect_k,
    k_smallest,
    noisy_deficits,
    rank,
)
from pate.mechanisms.flip import first_head
from pate.mechanisms.lipschitz import lipschitz_event
from pate.mechanisms.noise import Noise
from pate.validation import expect_count, expect_positive

_REACH = 30.0  # items further than this many scales below the best share one envelope
_MANY_ROWS, _FEW_ITEMS = 4, 1024  # at least so many rows of fewer items than this are peeled together, turn by turn


def cdp_peel(scores: ArrayLike, *, k: int, scale: float, generator: np.random.Generator) -> IntArray:
    """Peel k items by the exponential mechanism, drawn in one shot: the k largest scores with Gumbel noise,
    in order.

    Durfee & Rogers (2019), Lemma 4.2: the two have one law.

    Args:
        scores: ``[d]`` or ``[B, d]``, integers or floats.
        k: number of rounds, 1..d.
        scale: scale of the Gumbel noise, in votes.
        generator: source of the noise.

    Returns:
        Indices in the order of choice, int64 ``[k]`` or ``[B, k]``.

    Privacy: `cdp_peel_event`, for the ordered output. Raises ``ValueError`` as `lipschitz_top_k` does.
    """
    return largest_in_order(scores, k=k, scale=scale, noise="gumbel", generator=generator)


def cdp_peel_event(*, k: int, scale: float, neighboring_relation: NeighboringRelation) -> Event:
    """Event of `cdp_peel`: k bounded-range choices of ``eta = w / scale``, ``w`` the count window (Dong et
    al. (2020)).
    """
    return lipschitz_event(noise="gumbel", k=k, scale=scale, neighboring_relation=neighboring_relation)


def pnf_peel(scores: ArrayLike, *, k: int, scale: float, generator: np.random.Generator) -> IntArray:
    """Peel k items by permute-and-flip, each round with fresh noise (McKenna & Sheldon (2020)).

    Arguments, shapes and errors as in `cdp_peel`; ``scale`` is that of the exponential noise. Privacy:
    `pnf_peel_event`, for the ordered output.
    """
    rows, single = as_rows(scores)
    expect_positive(scale=scale)
    expect_k(k, rows.shape[1])
    if len(rows) >= _MANY_ROWS and rows.shape[1] < _FEW_ITEMS:
        chosen = _peel_batch(rows, k, scale, generator)
    else:
        chosen = np.empty((len(rows), k), dtype=np.int64)
        for row in range(len(rows)):
            order, below = rank(rows[row : row + 1])
            chosen[row] = order[0, _peel_row(below[0], k, scale, generator)]
    return chosen[0] if single else chosen


def pnf_peel_event(*, k: int, scale: float, neighboring_relation: NeighboringRelation) -> Event:
    """Event of `pnf_peel`: k pure choices of ``w / scale``, ``w`` the count window (McKenna & Sheldon
    (2020)).
    """
    relation = NeighboringRelation(neighboring_relation)
    expect_positive(scale=scale)
    expect_count(1, k=k)
    choice = PureDPEvent(neighboring_relation=relation, epsilon=relation.count_window / scale)
    return choice if k == 1 else RepeatedEvent(event=choice, count=k)


def largest_in_order(
    scores: ArrayLike, *, k: int, scale: float, noise: Noise, generator: np.random.Generator
) -> IntArray:
    """Report the k largest of scores with noise drawn once, in order. Shapes and errors as in `cdp_peel`."""
    rows, single = as_rows(scores)
    expect_positive(scale=scale)
    expect_k(k, rows.shape[1])
    chosen = np.empty((len(rows), k), dtype=np.int64)
    for start in range(0, len(rows), ROWS):
        noisy = noisy_deficits(rows[start : start + ROWS], noise, scale, generator)
        chosen[start : start + ROWS] = k_smallest(noisy, k)
    return chosen[0] if single else chosen


def _peel_batch(rows: NDArray[np.number], k: int, scale: float, generator: np.random.Generator) -> IntArray:
    chosen = np.empty((len(rows), k), dtype=np.int64)
    for start in range(0, len(rows), ROWS):
        left = deficits(rows[start : start + ROWS])
        each = np.arange(len(left))
        for turn in range(k):
            # distances below the best that is left, not below the best of all: huge spreads must not drown the noise
            noisy = left - left.min(axis=1, keepdims=True)
            noisy -= scale * generator.standard_exponential(left.shape)
            best = np.argmin(noisy, axis=1)
            chosen[start : start + ROWS, turn] = best
            left[each, best] = np.inf
    return chosen


def _peel_row(below: FloatArray, k: int, scale: float, generator: np.random.Generator) -> list[int]:
    """Peel ranks from ascending deficits ``[d]``, by a table of candidates that is made anew when it wears out."""
    taken = np.zeros(below.size, dtype=np.bool_)
    chosen: list[int] = []
    best = 0  # the first rank that is left
    while len(chosen) < k:
        table = _Candidates(below, taken, best, scale, generator)
        gone = 0.0
        while len(chosen) < k and gone <= table.total / 2 and table.reaches(best):
            item = first_head(table.relative_to(best), table.propose, generator)
            chosen.append(item)
            taken[item] = True
            gone += table.mass(item)
            while best < below.size and taken[best]:
                best += 1
    return chosen


class _Candidates:
    """Draws ranks in proportion to ``exp(-deficit / scale)``, rejecting those taken since the table was made.

    Masses are in units of the best rank's when the table was made. The items too far below it to be worth a place
    in the table share one envelope.
    """

    def __init__(
        self,
        below: FloatArray,
        taken: NDArray[np.bool_],
        best: int,
        scale: float,
        generator: np.random.Generator,
    ) -> None:
        self._below, self._taken, self._scale, self._generator = below, taken, scale, generator
        self._base = float(below[best])
        self._end = max(best + 1, int(np.searchsorted(below, self._base + _REACH * scale, side="right")))
        ranks = best + np.flatnonzero(~taken[best : self._end])
        self._ranks = ranks.tolist()
        self._cumulative = np.cumsum(np.exp((self._base - below[ranks]) / scale)).tolist()
        self._far = below.size - self._end
        self._far_mass = self.mass(self._end) if self._far else 0.0
        self._lift = 1.0
        self.total: float = self._cumulative[-1] + self._far * self._far_mass

    def mass(self, rank: int) -> float:
        return math.exp((self._base - float(self._below[rank])) / self._scale)

    def reaches(self, best: int) -> bool:
        """Tell whether ``best`` is near enough for its mass to be more than rounding."""
        return best < self._below.size and float(self._below[best]) - self._base <= _REACH * self._scale

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
