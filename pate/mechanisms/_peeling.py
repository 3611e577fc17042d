"""Peeling: choosing one item without replacement in each of k rounds; the output is ordered."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from pate._validation import IntArray
from pate.accounting import Event, NeighboringRelation
from pate.mechanisms._accuracy import chance_by_flips, chance_by_peeling
from pate.mechanisms._base import TopKMechanism, choice_event
from pate.mechanisms._exact_choice import sample_k_smallest
from pate.mechanisms._exact_normal import DIGITS
from pate.mechanisms._law import Law, peeling_law
from pate.mechanisms._noise import Noise
from pate.mechanisms._ranking import REACH, ROWS, Rows, below_rank, distances, rank

_LONG = 1024  # items from which a list is peeled by itself
_COIN = 16  # binary digits of uniform numbers that are drawn for all items
_LEAD = 60.0  # scales up to which they are in float32's range


@dataclass(frozen=True, kw_only=True)
class GumbelPeeling(TopKMechanism):
    """Peel k items by the exponential mechanism: the k largest with one draw of Gumbel noise.

    Both have the same law (Durfee & Rogers (2019), Lemma 4.2).

    Privacy: k bounded-range choices of ``w / scale`` for the ordered output (Dong, Durfee & Rogers
    (2020)); ``w`` is 1 vote under ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD.

    >>> mechanism = GumbelPeeling(k=2, scale=2.0)
    >>> mechanism(np.array([90, 80, 10, 0]), generator=seeded_generator(0))
    array([0, 1])

    Args:
        k: number of rounds, 1..d.
        scale: scale of the Gumbel noise, in votes.
    """

    short_name: ClassVar[str] = "peeling"
    ordered: ClassVar[bool] = True

    def _select(self, rows: Rows, generator: np.random.Generator) -> IntArray:
        return one_shot(rows, self.k, self.scale, "gumbel", generator)

    def event(self, relation: NeighboringRelation) -> Event:
        return choice_event(
            relation, eta=self.window(relation) / self.scale, noise="gumbel", count=self.k
        )

    def law(self, scores: Rows) -> Law:
        return peeling_law(scores, self.k, self.scale, "gumbel")

    def _accuracy(self, gap: float, num_items: int) -> float:
        return chance_by_peeling(self.k, num_items - self.k, gap / self.scale)


@dataclass(frozen=True, kw_only=True)
class PermuteAndFlipPeeling(TopKMechanism):
    """Peel k items by permute-and-flip, each round with fresh noise (McKenna & Sheldon (2020)).

    Privacy: k pure choices of ``w / scale`` for the ordered output; ``w`` is 1 vote under
    ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD.

    >>> mechanism = PermuteAndFlipPeeling(k=2, scale=2.0)
    >>> mechanism(np.array([90, 80, 10, 0]), generator=seeded_generator(0))
    array([0, 1])

    Args:
        k: number of rounds, 1..d.
        scale: scale of the exponential noise, in votes.
    """

    short_name: ClassVar[str] = "permute_and_flip"
    ordered: ClassVar[bool] = True

    def _select(self, rows: Rows, generator: np.random.Generator) -> IntArray:
        chosen = np.empty((len(rows), self.k), dtype=np.int64)
        step, peel = (1, self._peel_long) if rows.shape[1] >= _LONG else (ROWS, self._peel)
        for start in range(0, len(rows), step):
            order, scores = rank(rows[start : start + step])
            ranks = peel(scores, generator)
            chosen[start : start + step] = np.take_along_axis(order, ranks, axis=1)
        return chosen

    def _peel(self, scores: Rows, generator: np.random.Generator) -> IntArray:
        """Return ranks ``[B, k]`` of descending scores, by the largest with exponential noise.

        (Ding et al. (2021).)
        """
        ranks = np.empty((len(scores), self.k), dtype=np.int64)
        taken = np.zeros(scores.shape, dtype=np.bool_)
        for place in range(self.k):
            best = np.argmin(taken, axis=1)[:, None]
            below = distances(
                scores, np.take_along_axis(scores, best, axis=1), reach=REACH * self.scale
            )
            below[taken] = np.inf
            ranks[:, place] = sample_k_smallest(
                below, 1, noise="exponential", scale=self.scale, generator=generator
            )[:, 0]
            taken[np.arange(len(scores)), ranks[:, place]] = True
        return ranks

    def _peel_long(self, scores: Rows, generator: np.random.Generator) -> IntArray:
        """Return ranks ``[1, k]`` like `_peel`, from one long row ``[1, d]``.

        No item comes before the best one unless its noise reaches that far: unless its uniform
        number is at most ``exp(-below / scale)``. Two bytes of these numbers leave out nearly all;
        the others draw what follows.
        """
        items, reach = scores[0], REACH * self.scale
        ranks, taken, best = (
            np.empty((1, self.k), dtype=np.int64),
            np.zeros(items.size, dtype=np.bool_),
            0,
        )
        below = distances(items, items[:1], reach=reach)
        chances = np.exp(-below / self.scale).astype(np.float32)
        for place in range(self.k):
            best += int(np.argmin(taken[best:]))
            lead = float(below[best]) / self.scale
            if lead > _LEAD:
                below, lead = distances(items, items[best : best + 1], reach=reach), 0.0
                chances = np.exp(-np.maximum(below / self.scale, 0.0)).astype(np.float32)
            words = generator.integers(1 << 64, size=items.size // 4 + 1, dtype=np.uint64)
            coins = words.view(np.uint16)[: items.size]
            # one unit more: chances in float32, and their products, err by less than 2^-21 of 2^16
            heads = np.flatnonzero(
                coins <= chances * np.float32(2.0**_COIN * math.exp(lead)) + np.float32(1)
            )
            heads = heads[~taken[heads]]
            if heads.size > 1:
                digits = generator.integers(1 << (DIGITS - _COIN), size=heads.size)
                tails = (
                    (coins[heads].astype(np.int64) << (DIGITS - _COIN)) | digits
                ) * 2.0**-DIGITS
                near = distances(items[heads], items[best : best + 1], reach=reach)
                heads = heads[
                    sample_k_smallest(
                        near[None],
                        1,
                        noise="exponential",
                        scale=self.scale,
                        generator=generator,
                        tails=tails[None],
                    )[0]
                ]
            ranks[0, place] = heads[0]
            taken[heads[0]] = True
        return ranks

    def event(self, relation: NeighboringRelation) -> Event:
        return choice_event(
            relation, eta=self.window(relation) / self.scale, noise="exponential", count=self.k
        )

    def law(self, scores: Rows) -> Law:
        return peeling_law(scores, self.k, self.scale, "exponential")

    def _accuracy(self, gap: float, num_items: int) -> float:
        return chance_by_flips(self.k, num_items - self.k, gap / self.scale)


def one_shot(
    rows: Rows, k: int, scale: float, noise: Noise, generator: np.random.Generator
) -> IntArray:
    """Return the indices ``[B, k]`` of the k largest of ``rows`` with noise, in order."""
    chosen = np.empty((len(rows), k), dtype=np.int64)
    for start in range(0, len(rows), ROWS):
        part = rows[start : start + ROWS]

        def exact(row: int, place: int, part: Rows = part) -> Fraction:
            return -Fraction(part[row, place].item())

        chosen[start : start + ROWS] = sample_k_smallest(
            below_rank(part, k, reach=REACH * scale),
            k,
            noise=noise,
            scale=scale,
            generator=generator,
            exact=exact,
        )
    return chosen
