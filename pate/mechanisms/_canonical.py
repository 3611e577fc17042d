"""The canonical mechanism: one choice among all subsets of size k, at the same cost for any k.

Shekelyan & Loukides (2022). The utility of a subset is ``gamma * (its smallest score) - (1 - gamma)
* (the largest score left out)``. With ranks from 1, all subsets with the same head h (ranks 1..h
are in, h + 1 is out) and tail t (t is in, all beyond are out) have the same utility; there are
``binom(t - h - 2, k - h - 1)`` of them, and the top-k itself. So a class (h, t) is drawn first, and
then a uniform member of it (`_canonical_classes`).

The two losses differ only in the utility of the top-k. The loss "lead" is ours: as the formula
says, the best score outside the top-k is the score of rank k + 1, which credits the top-k with its
lead over the next item. The loss "published" takes the score of rank k in its place (Algorithm 1,
Lemma A.23), so that no loss is below 0 at ``gamma = 1/2``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from pate._validation import FloatArray, IntArray, require
from pate.accounting import Event, NeighboringRelation
from pate.mechanisms._base import TopKMechanism, choice_event
from pate.mechanisms._canonical_classes import (
    ClassProbabilities,
    ClassTerms,
    EnvelopeSampler,
    TableSampler,
    TailSampler,
    draw_member,
    draw_members,
    log_counts,
)
from pate.mechanisms._law import (
    Law,
    NotStatedError,
    chance_of_one,
    choice_law,
    log_binomial,
    log_less_one,
    members_of,
    sets_of,
)
from pate.mechanisms._noise import ChoiceNoise, require_noise
from pate.mechanisms._ranking import REACH, ROWS, Rows, as_batch, distances, rank, require_within

CanonicalLoss = Literal["lead", "published"]

# largest table of classes that is evaluated in full for every row of a batch: none has e^352
# subsets
_TABLE = 1 << 16


@dataclass(frozen=True, kw_only=True)
class CanonicalMechanism(TopKMechanism):
    """Choose one subset among all subsets of size k; it is released in ascending order of index.

    Gumbel noise: with probability proportional to ``exp(u / scale)`` for the utility
    ``u(S) = gamma min_S x - (1 - gamma) max_{not S} x``. Exponential noise: by permute-and-flip
    over all subsets with the same utility.

    Shekelyan & Loukides (2022) give the top-k no credit for its lead over the next item: with
    ``loss="published"`` the last term of u(S) is the larger of ``max_{not S} x`` and the k-th
    largest score. This lowers the utility of the top-k and of no other subset: at the same cost the
    top-k is less likely, unless ``gamma = 1``, where both losses are equal. ``loss="lead"`` is
    ours.

    Privacy: for any k, gamma and loss a single choice of ``w / scale``, bounded range with Gumbel
    noise and pure DP with exponential noise; ``w`` is 1 vote under ADD_REMOVE_TEACHER and 2 under
    REPLACE_RECORD. All scores move within a window of width w, and with them the smallest score of
    a subset, the largest left out, and the k-th largest. So the utilities of all subsets move
    together within ``gamma`` times that window minus ``1 - gamma`` times it, which has width w (the
    argument of Shekelyan & Loukides (2022), which holds for both losses).

    >>> mechanism = CanonicalMechanism(k=2, scale=2.0)
    >>> mechanism(np.array([90, 80, 10, 0]), generator=seeded_generator(0))
    array([0, 1])

    Args:
        k: size of the subset, 1..d-1.
        scale: scale of the noise, in votes.
        gamma: weight of the smallest score chosen, in [0, 1]; 1 takes O(d) time after sorting.
        noise: ``gumbel`` or ``exponential``.
        loss: ``lead`` (ours) or ``published``.

    Raises:
        ValueError: on ``k < 1``, ``scale <= 0``, ``gamma`` outside [0, 1], an unknown noise or an
            unknown loss.
    """

    short_name: ClassVar[str] = "canonical"
    spare: ClassVar[int] = 1

    gamma: float = 0.5
    noise: ChoiceNoise = "gumbel"
    loss: CanonicalLoss = "lead"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.gamma <= 1, "0 <= gamma <= 1", gamma=self.gamma)
        require_noise(ChoiceNoise, noise=self.noise)
        require(
            self.loss in get_args(CanonicalLoss),
            f"a loss among {get_args(CanonicalLoss)}",
            loss=self.loss,
        )

    def _select(self, rows: Rows, generator: np.random.Generator) -> IntArray:
        chosen = np.empty((len(rows), self.k), dtype=np.int64)
        counts = _subset_table(rows.shape[1], self.k) if len(rows) > 1 else None
        for start in range(0, len(rows), ROWS):
            order, below = self._ranked(rows[start : start + ROWS])
            if counts is None:
                ranks = np.stack([self._draw_row(row, generator) for row in below])
            else:
                ranks = self._draw_batch(below, counts, generator)
            chosen[start : start + ROWS] = np.take_along_axis(order, ranks, axis=1)
        chosen.sort(axis=1)
        return chosen

    def event(self, relation: NeighboringRelation) -> Event:
        return choice_event(relation, eta=self.window(relation) / self.scale, noise=self.noise)

    def law(self, scores: Rows) -> Law:
        num_items = scores.shape[1]
        inside = sets_of(num_items, self.k, self.noise)
        members = members_of(inside, num_items)
        outside = np.nonzero(~members)[1].reshape(len(inside), -1)
        best_left_out = reduce(np.maximum, (scores[:, column] for column in outside.T))
        if self.loss == "published":
            best_left_out = np.maximum(best_left_out, np.sort(scores, axis=1)[:, -self.k, None])
        least = reduce(np.minimum, (scores[:, column] for column in inside.T))
        utilities = self.gamma * least - (1 - self.gamma) * best_left_out
        return Law(choice_law(utilities / self.scale, self.noise), members)

    def _accuracy(self, gap: float, num_items: int) -> float:
        # the smallest score of any other set is at most the (k+1)-th, and the largest left out at
        # least the k-th: it loses the gap against a top-k that is credited with its lead, and
        # gamma times the gap against one that is not
        lost = gap / self.scale * (1.0 if self.loss == "lead" else self.gamma)
        if self.gamma == 0 and self.loss == "published":
            raise NotStatedError("Expected gamma > 0 with the published loss, got gamma=0.0")
        return chance_of_one(log_less_one(log_binomial(num_items, self.k)), lost, self.noise)

    def class_probabilities(self, scores: ArrayLike) -> ClassProbabilities:
        """Return the exact law of the class drawn with Gumbel noise from one row of scores ``[d]``.

        Raises:
            ValueError: on scores that are not one row of more than k finite numbers, or with
                exponential noise.
        """
        rows, single = as_batch(scores)
        require(single, "one row of scores of shape [d]", shape=rows.shape)
        require_within(rows.shape[1], spare=self.spare, k=self.k)
        require(self.noise == "gumbel", "Gumbel noise", noise=self.noise)
        terms = self._terms(self._ranked(rows)[1])
        return ClassProbabilities(terms.log_heads[0], terms.log_tails[0])

    def _ranked(self, rows: Rows) -> tuple[IntArray, FloatArray]:
        """Return the item of each rank, and how far its score lies below the k-th, ``[B, d]`` each.

        Only the distances of scores from the scores of ranks k and k + 1 matter.
        """
        order, scores = rank(rows)
        return order, distances(scores, scores[:, self.k - 1 : self.k], reach=REACH * self.scale)

    def _terms(self, below: FloatArray) -> ClassTerms:
        outside = self.k if self.loss == "lead" else self.k - 1
        return ClassTerms(
            below=below, k=self.k, scale=self.scale, gamma=self.gamma, outside=outside
        )

    def _draw_batch(
        self, below: FloatArray, counts: FloatArray, generator: np.random.Generator
    ) -> IntArray:
        """Draw one subset for each row, as ranks from 0, ``[B, k]``."""
        sampler = TableSampler(self._terms(below), counts, generator)
        head, tail = sampler.draw(self.noise).T
        ranks = np.tile(np.arange(self.k), (len(below), 1))
        others = np.flatnonzero(tail >= self.k)
        if others.size:
            ranks[others] = draw_members(head[others], tail[others], self.k, generator)
        return ranks

    def _draw_row(self, below: FloatArray, generator: np.random.Generator) -> IntArray:
        """Draw one subset for one row ``[d]``, as ranks from 0, ``[k]``."""
        sampler = (TailSampler if self.gamma == 1 else EnvelopeSampler)(
            self._terms(below[None]), generator
        )
        head, tail = sampler.draw(self.noise)[0].tolist()
        return draw_member(head, tail, self.k, generator)


@lru_cache(maxsize=16)
def _subset_table(num_items: int, k: int) -> FloatArray | None:
    if k * (num_items - k) > _TABLE:
        return None
    table: FloatArray = np.exp(log_counts(num_items, k))
    table.setflags(write=False)
    return table
