"""Peeling: choosing one item without replacement in each of k rounds; the output is ordered."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pate._typing import IntArray
from pate.accounting._events import Event
from pate.accounting._relation import NeighboringRelation
from pate.mechanisms._base import TopKMechanism, choice_event
from pate.mechanisms._exact_choice import smallest
from pate.mechanisms._noise import Noise
from pate.mechanisms._ranking import REACH, ROWS, Rows, below_rank, distances, rank


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
        chosen = np.empty((len(rows), self.k), dtype=np.int64)
        for start in range(0, len(rows), ROWS):
            order, scores = rank(rows[start : start + ROWS])
            ranks = self._peel(scores, generator)
            chosen[start : start + ROWS] = np.take_along_axis(order, ranks, axis=1)
        return chosen

    def _peel(self, scores: Rows, generator: np.random.Generator) -> IntArray:
        """Return ranks ``[B, k]``, given descending scores: permute-and-flip takes the largest with exponential noise.

        (Ding et al. (2021).)
        """
        ranks = np.empty((len(scores), self.k), dtype=np.int64)
        taken = np.zeros(scores.shape, dtype=np.bool_)
        for place in range(self.k):
            best = np.argmin(taken, axis=1)[:, None]
            below = distances(scores, np.take_along_axis(scores, best, axis=1), reach=REACH * self.scale)
            below[taken] = np.inf
            ranks[:, place] = smallest(below, 1, noise="exponential", scale=self.scale, generator=generator)[:, 0]
            taken[np.arange(len(scores)), ranks[:, place]] = True
        return ranks

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
