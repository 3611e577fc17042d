"""Permute-and-flip in rounds, from a list too long to flip the coins of all its items.

The winner of a round is uniform among the items whose coins show heads, where the coin of an item
that lies ``l`` scales below the best one left shows heads with probability ``exp(-l)``. An item is
in band j if its chance is at most ``2^-j``, relative to an anchor, which was the best one when the
bands were made; the items far below share the last band. Proposals come at random times, and
propose an item of band j at the rate ``2^-j``. They are thinned to the rate of the law, as in
`pate._core.mechanisms.exact_choice.draw`, so that the work of a round does not grow with the items
left.
"""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from pate._core.mechanisms.exact_choice import MARGIN, Chance, happens, is_taken
from pate._core.mechanisms.noise import LazyReal
from pate._core.mechanisms.ranking import REACH, Rows, distances

_WORD = 64  # binary digits of a uniform number
# a number below this has a logarithm that the digits not drawn move by more than 2^-40
_FAINT = 1 << 40
_LATE = 30.0  # a time at which the best one was taken long ago, but for a chance of exp(-30)
_LEVELS = 48  # bands at most
_LEAD = 16.0  # scales by which the best one left falls until bands are made anew
# bands begin this much lower, by more than distances err
_EDGES = np.arange(1, _LEVELS + 1) * math.log(2) + 2.0**-20
_BATCH = 256  # words drawn at once


class _Proposal(NamedTuple):
    rank: int
    level: int
    place: int
    """In its band; none in the last one."""


class FlipRounds:
    """Rounds of permute-and-flip on descending scores ``[d]``. Each returns a rank in ``0..d-1``.

    Losses are the `distances` from the best one left, as float64 has them, over the scale.
    """

    def __init__(self, scores: Rows, scale: float, generator: np.random.Generator) -> None:
        self._scores, self._scale, self._generator = scores, scale, generator
        self._levels = min(_LEVELS, _WORD - 1 - len(scores).bit_length())
        self._words = _words(generator)
        self._taken = bytearray(len(scores))
        self._best, self._last_taken = 0, -1
        self._make_bands()

    def choose(self) -> int:
        """Return the rank that wins a round. It is left out of those that follow."""
        while self._taken[self._best]:
            self._best += 1
        if self._loss(self._anchor, self._best) > _LEAD:
            self._make_bands()
        found = self._winner()
        if found.level < self._levels:
            band = self._bands[found.level]
            if not isinstance(band, list):
                band = self._bands[found.level] = list(band)
            last = band.pop()
            if found.place < len(band):
                band[found.place] = last
            self._weight -= 1 << self._levels - found.level
        self._taken[found.rank] = 1
        self._last_taken = max(self._last_taken, found.rank)
        return found.rank

    def _make_bands(self) -> None:
        """Sort the items left into bands below the best one."""
        self._anchor = self._best
        left = self._scores[self._best :]
        below = distances(left, left[:1], reach=REACH * self._scale) / self._scale
        ends = np.searchsorted(below, _EDGES[: self._levels]) + self._best
        self._bands: list[Sequence[int]] = [
            self._left(start, end)
            for start, end in zip([self._best, *ends.tolist()], ends.tolist(), strict=False)
        ]
        self._rest = int(ends[-1])
        # in units of 2^-levels
        self._weight = len(self._scores) - self._rest
        self._weight += sum(
            len(band) << self._levels - level for level, band in enumerate(self._bands)
        )

    def _left(self, start: int, end: int) -> Sequence[int]:
        """Return the ranks that are left; most bands are never looked into."""
        ranks = range(start, end)
        return ranks if start > self._last_taken else [r for r in ranks if not self._taken[r]]

    def _winner(self) -> _Proposal:
        bits = self._weight.bit_length()
        rate = math.exp(self._loss(self._anchor, self._best)) * 2.0 ** (bits - self._levels)
        waits: list[LazyReal] = []
        time, faint = 0.0, False
        while True:
            mark, wait = next(self._words) >> _WORD - bits, next(self._words)
            waits.append(LazyReal(wait, _WORD))
            time -= _log(wait) / rate
            faint |= wait < _FAINT or time > _LATE
            found = self._proposed(mark)
            if found is None or not self._is_kept(found):
                continue
            loss = self._loss(self._best, found.rank)
            if not loss:
                return found
            coin = next(self._words)
            needed = math.inf if faint else math.log1p(-math.expm1(-loss) * math.expm1(time))
            ahead = -_log(coin) - needed
            if coin < _FAINT or not abs(ahead) > MARGIN * (1 + needed + len(waits)):
                slowness = Chance(
                    Fraction(2) ** (self._levels - bits),
                    self._exact_loss(self._anchor, self._best),
                )
                if is_taken(
                    self._exact_loss(self._best, found.rank),
                    waits,
                    slowness,
                    LazyReal(coin, _WORD),
                    self._generator,
                ):
                    return found
            elif ahead > 0:
                return found

    def _proposed(self, mark: int) -> _Proposal | None:
        """Return the item of a number below a power of two that is at least the weight of all."""
        if mark >= self._weight:
            return None
        shift = self._levels
        for level, band in enumerate(self._bands):
            weight = len(band) << shift
            if mark < weight:
                place = mark >> shift
                return _Proposal(band[place], level, place)
            mark -= weight
            shift -= 1
        rank = self._rest + mark
        return None if self._taken[rank] else _Proposal(rank, self._levels, 0)

    def _is_kept(self, found: _Proposal) -> bool:
        """Return whether a proposal of rate ``2^-level`` is one of rate ``exp(-loss)``."""
        loss = self._loss(self._anchor, found.rank)
        coin = next(self._words)
        ahead = found.level * math.log(2) - loss - _log(coin)
        if coin >= _FAINT and abs(ahead) > MARGIN * (1 + loss):
            return ahead > 0
        lost = self._exact_loss(self._anchor, self._best) + self._exact_loss(self._best, found.rank)
        return happens(
            Chance(Fraction(2) ** found.level, lost), LazyReal(coin, _WORD), self._generator
        )

    def _distance(self, upper: int, lower: int) -> float:
        # numbers of Python do not overflow
        far: float = self._scores[upper].item() - self._scores[lower].item()
        return min(float(far), REACH * self._scale)

    def _loss(self, upper: int, lower: int) -> float:
        return self._distance(upper, lower) / self._scale

    def _exact_loss(self, upper: int, lower: int) -> Fraction:
        return Fraction(self._distance(upper, lower)) / Fraction(self._scale)


def _words(generator: np.random.Generator) -> Iterator[int]:
    while True:
        yield from generator.integers(1 << _WORD, size=_BATCH, dtype=np.uint64).tolist()


def _log(word: int) -> float:
    return math.log((word + 0.5) * 2.0**-_WORD)
