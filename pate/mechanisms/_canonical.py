"""The canonical mechanism: a choice among all subsets of size k, at the cost of a single choice for any k.

Shekelyan & Loukides (2022). The utility of a subset is ``gamma * (its smallest score) - (1 - gamma)
* (the largest score left out)``. With ranks from 1, all subsets with the same head h (ranks 1..h
are in, h + 1 is out) and tail t (t is in, all beyond are out) have the same utility; there are
``binom(t - h - 2, k - h - 1)`` of them, and the top-k itself. So a class (h, t) is drawn first, and
then a uniform member of it.

The two losses differ in the top-k alone. The best score outside it is that of rank k + 1, and with
this score, as the formula says, the top-k is credited with its lead over the next item: the loss
"lead" is ours. The paper takes the score of rank k for it (Algorithm 1, Lemma A.23), so that no
loss is below 0 at ``gamma = 1/2``: the loss "published".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from pate._typing import FloatArray, IntArray
from pate._validation import require
from pate.accounting._events import Event
from pate.accounting._relation import NeighboringRelation
from pate.mechanisms._accuracy import chance_of_one, log_binomial, log_less_one
from pate.mechanisms._base import TopKMechanism, choice_event
from pate.mechanisms._canonical_law import ClassProbabilities, log_counts, log_factorials
from pate.mechanisms._exact_rejection import (
    SLACK,
    Chance,
    Proposals,
    cumulative_weights,
    draw,
    pick,
)
from pate.mechanisms._law import Law, choice_law, members_of, sets_of
from pate.mechanisms._noise import ChoiceNoise, require_noise
from pate.mechanisms._ranking import REACH, ROWS, Rows, as_batch, distances, rank, require_within

Sampler = tuple[Callable[[IntArray], Proposals], float]
CanonicalLoss = Literal["lead", "published"]

# largest table of classes that is evaluated in full for every row of a batch: none has e^352
# subsets
_TABLE = 1 << 16
_GRID = 13  # points of the first envelope


@dataclass(frozen=True, kw_only=True)
class CanonicalMechanism(TopKMechanism):
    """Choose one subset among all subsets of size k; it is released in ascending order of index.

    Gumbel noise: with probability proportional to ``exp(u / scale)`` for the utility
    ``u(S) = gamma min_S x - (1 - gamma) max_{not S} x``. Exponential noise: by permute-and-flip
    over all subsets with the same utility.

    The mechanism is that of Shekelyan & Loukides (2022), whose loss gives the top-k no credit for
    its lead over the next item: with ``loss="published"`` the last term of u(S) is the larger of
    ``max_{not S} x`` and the k-th largest score. That changes the utility of the top-k alone, and
    for the worse: at the same cost it is less likely, unless ``gamma = 1``, where both are one.
    ``loss="lead"`` is ours.

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
        table = _subset_table(rows.shape[1], self.k) if len(rows) > 1 else None
        for start in range(0, len(rows), ROWS):
            order, below = self._ranked(rows[start : start + ROWS])
            if table is None:
                ranks = np.stack([self._draw_row(row, generator) for row in below])
                chosen[start : start + ROWS] = np.take_along_axis(order, ranks, axis=1)
            else:
                chosen[start : start + ROWS] = self._draw_batch(order, below, table, generator)
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
        # the smallest score of any other set is the (k+1)-th at most, and the largest left out the
        # k-th at least: it loses the gap against a top-k that is credited with its lead, and gamma
        # times the gap against one that is not
        lost = gap / self.scale * (1.0 if self.loss == "lead" else self.gamma)
        require(
            self.gamma > 0 or self.loss == "lead",
            "gamma > 0 with the published loss",
            gamma=self.gamma,
        )
        return chance_of_one(log_less_one(log_binomial(num_items, self.k)), lost, self.noise)

    def class_probabilities(self, scores: ArrayLike) -> ClassProbabilities:
        """Return the exact law of the class that is drawn with Gumbel noise from one row of scores ``[d]``.

        Raises:
            ValueError: on scores that are not one row of more than k finite numbers, or with
                exponential noise.
        """
        rows, single = as_batch(scores)
        require(single, "one row of scores of shape [d]", shape=rows.shape)
        require_within(rows.shape[1], spare=self.spare, k=self.k)
        require(self.noise == "gumbel", "Gumbel noise", noise=self.noise)
        below = self._ranked(rows)[1]
        return ClassProbabilities(self._head_terms(below)[0], self._tail_terms(below)[0])

    def _ranked(self, rows: Rows) -> tuple[IntArray, FloatArray]:
        """Return the items of each rank, and how far below the k-th largest score theirs are, both ``[B, d]``.

        Scores enter by their distances from those of ranks k and k + 1 alone.
        """
        order, scores = rank(rows)
        return order, distances(scores, scores[:, self.k - 1 : self.k], reach=REACH * self.scale)

    def _tail_terms(self, below: FloatArray) -> FloatArray:
        """Return the log weights ``[.., d - k]`` that tails k + 1..d add to a class, relative to the top-k."""
        return -below[..., self.k :] / self.scale * self.gamma

    def _head_terms(self, below: FloatArray) -> FloatArray:
        """Return the log weights ``[.., k]`` that heads 0..k-1 add to a class, relative to the top-k."""
        outside = below[..., self._outside : self._outside + 1]
        return (below[..., : self.k] - outside) / self.scale * (1 - self.gamma)

    @property
    def _outside(self) -> int:
        """The rank, from 0, of the score that counts as the best one outside the top-k."""
        return self.k if self.loss == "lead" else self.k - 1

    def _draw_batch(
        self, order: IntArray, below: FloatArray, table: FloatArray, generator: np.random.Generator
    ) -> IntArray:
        """Draw one subset per row, all classes evaluated; the top-k has mass 1 and every subset at most that."""
        k = self.k
        log_heads, log_tails = self._head_terms(below), self._tail_terms(below)
        heads = np.exp(log_heads)
        masses = np.column_stack((np.ones(len(below)), (heads @ table) * np.exp(log_tails)))
        cumulative = cumulative_weights(masses)
        log_rates = np.log(masses.sum(axis=1)) + SLACK

        def propose(rows: IntArray) -> Proposals:
            column = pick(cumulative[rows], generator)
            tail = np.maximum(column.places - 1, 0)
            head = pick(cumulative_weights(heads[rows] * table.T[tail]), generator)
            log_weights = log_heads[rows, head.places] + log_tails[rows, tail]
            log_counts = np.log(table[head.places, tail]) - head.log_shares
            top = column.places == 0
            return self._proposals(
                np.where(top[:, None], [-1, k - 1], np.column_stack((head.places, tail + k))),
                np.where(top, 0.0, log_weights + log_counts) - column.log_shares - log_rates[rows],
                [below[row] for row in rows],
                log_rates[rows],
                lambda place: column.share(place) * (1 if top[place] else head.share(place)),
                np.where(top, 0.0, -log_weights),
            )

        head, tail = draw(log_rates, propose, generator, noise=self.noise).T
        chosen = order[:, :k].copy()
        others = np.flatnonzero(tail >= k)
        if others.size:
            ranks = _members(head[others], tail[others], k, generator)
            chosen[others] = np.take_along_axis(order[others], ranks, axis=1)
        return chosen

    def _proposals(
        self,
        classes: IntArray,
        log_chances: FloatArray,
        below: Sequence[FloatArray],
        log_rates: FloatArray,
        share: Callable[[int], Fraction],
        losses: FloatArray,
    ) -> Proposals:
        """Propose classes ``[n, 2]``, head and rank of the tail from 0; ``share`` is the chance of each.

        The head is -1 where the tail alone counts: in the top-k, and in all classes with ``gamma =
        1``.
        """

        def loss(place: int) -> Fraction:
            (head, tail), row = classes[place].tolist(), below[place]
            if tail < self.k:
                return Fraction(0)
            gamma, lead = Fraction(self.gamma), Fraction(row[self._outside]) - Fraction(row[head])
            return (gamma * Fraction(row[tail]) + (1 - gamma) * lead) / Fraction(self.scale)

        def chance(place: int) -> Chance:
            head, tail = classes[place].tolist()
            count = math.comb(tail - head - 1, self.k - 1 - max(head, 0))
            return Chance(count / share(place), loss(place) + Fraction(float(log_rates[place])))

        return Proposals(classes, log_chances, chance, losses, loss)

    def _draw_row(self, below: FloatArray, generator: np.random.Generator) -> IntArray:
        """Draw one subset as ranks from 0, ``[k]``."""
        k = self.k
        propose, log_rate = (self._tail_sampler if self.gamma == 1 else self._class_sampler)(
            below, generator
        )
        head, tail = draw(np.array([log_rate]), propose, generator, noise=self.noise)[0].tolist()
        if tail < k:
            return np.arange(k)
        # 0..head-1, some of head+1..tail-1, and tail
        body = (
            generator.choice(tail - head - 1, size=k - 1 - max(head, 0), replace=False) + head + 1
        )
        return np.concatenate((np.arange(max(head, 0)), body, [tail]))

    def _tail_sampler(self, below: FloatArray, generator: np.random.Generator) -> Sampler:
        """Propose classes for gamma = 1, where the last member alone counts.

        There are ``binom(t - 1, k - 1)`` subsets for each tail t in k..d.
        """
        k = self.k
        factorial = log_factorials(below.size)
        losses = below[k - 1 :] / self.scale
        log_masses = (
            factorial[k - 1 :] - factorial[: below.size - k + 1] - factorial[k - 1] - losses
        )
        largest = float(log_masses.max())
        masses = np.exp(log_masses - largest)
        cumulative = cumulative_weights(masses[None])
        log_rate = largest + math.log(masses.sum()) + SLACK

        def propose(rows: IntArray) -> Proposals:
            picked = pick(cumulative, generator)
            place = picked.places
            log_chances = log_masses[place] - picked.log_shares - log_rate
            classes = np.array([[-1, k - 1 + place[0]]])
            return self._proposals(
                classes, log_chances, [below], np.array([log_rate]), picked.share, losses[place]
            )

        return propose, log_rate

    def _class_sampler(self, below: FloatArray, generator: np.random.Generator) -> Sampler:
        """Propose classes by bounds on the masses of the tails, in O(d + 15 k).

        Summed over heads, the mass of tail t is the exponential of a term of t plus ``g(t) =
        logsumexp over h of row(h) + log (t-h-2)! - log (t-2)!``. Each summand is the exponential of
        minus a sum of h logarithms of ``t - 2 - i``, so g is convex, and a chord between two of its
        points lies above it.
        """
        k = self.k
        num_items = below.size
        factorial = log_factorials(num_items)
        heads = np.arange(k)
        log_heads, log_tails = self._head_terms(below), self._tail_terms(below)
        head_terms = log_heads - factorial[k - 1 - heads]
        tails = np.arange(k + 1, num_items + 1)
        tail_terms = log_tails - factorial[tails - k - 1] + factorial[tails - 2]

        def coupling(at: IntArray) -> FloatArray:
            terms = head_terms + factorial[at[:, None] - 2 - heads]
            largest = terms.max(axis=1)
            summed: FloatArray = np.log(np.exp(terms - largest[:, None]).sum(axis=1)) + largest
            return summed - factorial[at - 2]

        # tails at growing distances from the top-k, as g is steepest next to it
        grid = np.unique(np.rint(np.geomspace(1, num_items - k, _GRID)).astype(np.int64)) + k
        values = coupling(grid)
        while True:
            # the top-k has log mass 0
            log_masses = np.append(0.0, tail_terms + np.interp(tails, grid, values))
            largest = float(log_masses.max())
            masses = np.exp(log_masses - largest)
            # halve the stretches that matter, unless no chord lies well above the curve there
            matter = np.diff(np.cumsum(masses)[grid - k]) > 0.02 * masses.sum()
            middle = ((grid[1:] + grid[:-1]) // 2)[matter]
            exact_values = coupling(middle)
            if not (np.interp(middle, grid, values) - exact_values > 0.1).any():
                break
            grid, first = np.unique(np.append(grid, middle), return_index=True)
            values = np.append(values, exact_values)[first]
        cumulative = cumulative_weights(masses[None])
        log_rate = largest + math.log(masses.sum()) + SLACK

        def propose(rows: IntArray) -> Proposals:
            column = pick(cumulative, generator)
            log_rates = np.array([log_rate])
            if not column.places[0]:
                chances, top = -column.log_shares - log_rate, np.array([[-1, k - 1]])
                return self._proposals(top, chances, [below], log_rates, column.share, np.zeros(1))
            tail = k + column.places
            terms = head_terms + factorial[tail[0] - 2 - heads]
            head = pick(cumulative_weights(np.exp(terms - terms.max())[None]), generator)
            log_masses = terms[head.places] + tail_terms[tail - k - 1] - factorial[tail - 2]
            return self._proposals(
                np.column_stack((head.places, tail - 1)),
                log_masses - head.log_shares - column.log_shares - log_rate,
                [below],
                log_rates,
                lambda place: column.share(place) * head.share(place),
                -(log_heads[head.places] + log_tails[tail - k - 1]),
            )

        return propose, log_rate


@lru_cache(maxsize=16)
def _subset_table(num_items: int, k: int) -> FloatArray | None:
    if k * (num_items - k) > _TABLE:
        return None
    table: FloatArray = np.exp(log_counts(num_items, k))
    table.setflags(write=False)
    return table


def _members(head: IntArray, tail: IntArray, k: int, generator: np.random.Generator) -> IntArray:
    """Draw a uniform member of each class, ranks from 0 ``[n, k]``; ``tail`` is the rank of the last member."""
    chosen = np.empty((head.size, k), dtype=np.int64)
    chosen[:, -1] = tail
    for place in range(k - 1):
        # Floyd's sampling of the ranks between head and tail: a rank drawn twice gives way to the
        # last one allowed
        last = tail - k + place + 1
        drawn = generator.integers(head + 1, np.maximum(last, head + 1), endpoint=True)
        repeated = (chosen[:, :place] == drawn[:, None]).any(axis=1)
        chosen[:, place] = np.where(place < head, place, np.where(repeated, last, drawn))
    return chosen
