"""The canonical mechanism: one choice among all subsets of size k, at the same cost for any k.

Shekelyan & Loukides (2022). The utility of a subset is ``gamma * (its smallest score) - (1 - gamma)
* (the largest score left out)``. All subsets of a class have the same utility. A class is a head
and a tail, as ranks from 0: the best rank that is left out, and the rank of the last member. The
top-k itself is (-1, k - 1). With ranks from 1, there are ``binom(t - h - 2, k - h - 1)`` sets of
head h (ranks 1..h are in, h + 1 is out) and tail t (t is in, all beyond are out), and their weight
is a product of a term of h and one of t.

The two losses differ only in the utility of the top-k. The loss "lead" is ours: as the formula
says, the best score outside the top-k is the score of rank k + 1, which credits the top-k with its
lead over the next item. The loss "published" takes the score of rank k in its place (Algorithm 1,
Lemma A.23), so that no loss is below 0 at ``gamma = 1/2``.

The law. Where the term of h is the same for all heads, as with ``gamma = 1``, the sums over heads
are binomials themselves, and everything here takes O(d) time and memory. Otherwise sums take O(k)
time for each tail that can matter, in blocks of a few megabytes: at k = 1,000 of 18,000 items some
hundred tails do.

Sampling. A class is drawn first, and then a uniform member of it. Each sampler proposes classes at
a known rate, and `draw` decides exactly which proposal is kept:

- `TableSampler` evaluates all classes of a batch of rows,
- `TailSampler` needs the tail only, because heads have no weight with ``gamma = 1``,
- `EnvelopeSampler` bounds the masses of the tails of one long row.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, reduce
from typing import ClassVar, Literal, get_args

import numpy as np
from scipy.special import gammaln

from pate._core.accounting.cost import NeighboringRelation
from pate._core.accounting.events import Event
from pate._core.mechanisms.base import (
    Law,
    TopKMechanism,
    choice_event,
    choice_law,
    members_of,
    sets_of,
)
from pate._core.mechanisms.exact_choice import (
    REACH,
    SLACK,
    Chance,
    Proposals,
    cumulative_weights,
    distances,
    draw,
    in_blocks,
    pick,
    rank,
)
from pate._core.mechanisms.noise import ChoiceNoise, require_noise
from pate._core.validation import (
    FloatArray,
    IntArray,
    Rows,
    is_real,
    read_only,
    require,
)


def head_sums(
    head_terms: FloatArray, heads: IntArray, tails: IntArray, factorial: FloatArray
) -> FloatArray:
    """Return ``logsumexp over h of row(h) + log (t-h)! - log t!`` for tails t, ``[n]``."""
    terms = factorial[tails[:, None] - heads]
    terms += head_terms
    largest = terms.max(axis=1)
    terms -= largest[:, None]
    summed: FloatArray = np.log(np.exp(terms, out=terms).sum(axis=1)) + largest
    return summed - factorial[tails]


@lru_cache(maxsize=4)
def log_factorials(size: int) -> FloatArray:
    """Return ``log i!`` for i in 0..size-1, read-only."""
    return read_only(gammaln(np.arange(1, size + 1)))


def log_counts(num_items: int, k: int) -> FloatArray:
    """Return logarithms ``[k, d - k]`` of the numbers of subsets, by head and tail - k - 1."""
    factorial = log_factorials(num_items)
    heads: IntArray = np.arange(k)[:, None]
    tails: IntArray = np.arange(k + 1, num_items + 1)[None, :]
    return factorial[tails - heads - 2] - factorial[k - heads - 1] - factorial[tails - k - 1]


_POINTS = 13  # points of the first envelope
_PROBES = np.array([1, 3, 5]) / 6  # shares of the mass of an envelope
_LIGHT = 10.0  # a run is light whose logarithm is this far below the heaviest tail
_EXCESS = 0.7  # by which the envelope may exceed the logarithm of a mass


@dataclass(frozen=True, eq=False, kw_only=True)
class ClassTerms:
    """Weights of classes relative to the top-k: a term of the head times a term of the tail."""

    below: FloatArray
    """``[B, d]``: how far the score of each rank lies below the k-th largest, in votes."""
    k: int
    scale: float
    gamma: float
    outside: int
    """The rank, from 0, of the score that counts as the best one outside the top-k."""

    @cached_property
    def log_heads(self) -> FloatArray:
        """``[B, k]``: logarithms of the terms of heads 0..k-1."""
        outside = self.below[:, self.outside : self.outside + 1]
        return (self.below[:, : self.k] - outside) / self.scale * (1 - self.gamma)

    @cached_property
    def log_tails(self) -> FloatArray:
        """``[B, d - k]``: logarithms of the terms of tails k..d-1."""
        return -self.below[:, self.k :] / self.scale * self.gamma

    def loss(self, row: int, head: int, tail: int) -> Fraction:
        """Return the exact loss of a class against the top-k, in scales of noise."""
        if tail < self.k:
            return Fraction(0)
        below, gamma = self.below[row], Fraction(self.gamma)
        lead = Fraction(below[self.outside]) - Fraction(below[head])
        return (gamma * Fraction(below[tail]) + (1 - gamma) * lead) / Fraction(self.scale)


class ClassSampler(ABC):
    """Draws the class of each row.

    Attributes:
        log_rates: ``[B]``, logarithms of how often proposals are made in a unit of time.
    """

    log_rates: FloatArray

    def __init__(self, terms: ClassTerms, generator: np.random.Generator) -> None:
        self.terms = terms
        self.generator = generator

    def draw(self, noise: ChoiceNoise) -> IntArray:
        """Return a head and a tail for each row, ``[B, 2]``."""
        return draw(self.log_rates, self.propose, self.generator, noise=noise)

    @abstractmethod
    def propose(self, rows: IntArray) -> Proposals:
        """Propose a class for each of ``rows`` ``[n]``."""

    def _proposals(
        self,
        rows: IntArray,
        classes: IntArray,
        log_weights: FloatArray,
        losses: FloatArray,
        share: Callable[[int], Fraction],
    ) -> Proposals:
        """Propose ``classes`` ``[n, 2]``, each drawn with the probability ``share``.

        ``log_weights`` ``[n]`` are logarithms of masses over shares. The head may be -1 wherever
        its term does not count.
        """
        log_rates, terms = self.log_rates[rows], self.terms

        def loss(place: int) -> Fraction:
            return terms.loss(int(rows[place]), *classes[place].tolist())

        def chance(place: int) -> Chance:
            head, tail = classes[place].tolist()
            count = math.comb(tail - head - 1, terms.k - 1 - max(head, 0))
            return Chance(count / share(place), loss(place) + Fraction(float(log_rates[place])))

        return Proposals(classes, log_weights - log_rates, chance, losses, loss)


class TableSampler(ClassSampler):
    """Proposes by the masses of all classes of a batch. The top-k has mass 1, other sets less."""

    def __init__(
        self, terms: ClassTerms, counts: FloatArray, generator: np.random.Generator
    ) -> None:
        """Evaluate all classes, which have ``counts`` ``[k, d - k]`` subsets."""
        super().__init__(terms, generator)
        self.counts = counts
        self.heads = np.exp(terms.log_heads)
        tails = (self.heads @ counts) * np.exp(terms.log_tails)
        masses = np.column_stack((np.ones(len(tails)), tails))
        self.cumulative = cumulative_weights(masses)
        self.log_rates = np.log(masses.sum(axis=1)) + SLACK

    def propose(self, rows: IntArray) -> Proposals:
        """Pick a tail by its mass, then a head."""
        k, column = self.terms.k, pick(self.cumulative[rows], self.generator)
        top, tail = column.places == 0, np.maximum(column.places - 1, 0)
        head = pick(cumulative_weights(self.heads[rows] * self.counts.T[tail]), self.generator)
        log_terms = self.terms.log_heads[rows, head.places] + self.terms.log_tails[rows, tail]
        log_counts = np.log(self.counts[head.places, tail]) - head.log_shares
        return self._proposals(
            rows,
            np.where(top[:, None], [-1, k - 1], np.column_stack((head.places, tail + k))),
            np.where(top, 0.0, log_terms + log_counts) - column.log_shares,
            np.where(top, 0.0, -log_terms),
            lambda place: column.share(place) * (1 if top[place] else head.share(place)),
        )


class TailSampler(ClassSampler):
    """Proposes tails of one row for ``gamma = 1``, in O(d); tail t has ``binom(t, k - 1)`` sets."""

    def __init__(self, terms: ClassTerms, generator: np.random.Generator) -> None:
        """Evaluate all tails of the only row."""
        super().__init__(terms, generator)
        k, below = terms.k, terms.below[0]
        factorial = log_factorials(below.size)
        self.losses = below[k - 1 :] / terms.scale
        self.log_masses = factorial[k - 1 :] - factorial[: below.size - k + 1]
        self.log_masses -= factorial[k - 1]
        self.log_masses -= self.losses
        largest = float(self.log_masses.max())
        masses = np.exp(self.log_masses - largest)
        self.cumulative = cumulative_weights(masses[None])
        self.log_rates = np.array([largest + math.log(masses.sum()) + SLACK])

    def propose(self, rows: IntArray) -> Proposals:
        """Pick a tail by its mass."""
        tail = pick(self.cumulative, self.generator)
        return self._proposals(
            rows,
            np.array([[-1, self.terms.k - 1 + tail.places[0]]]),
            self.log_masses[tail.places] - tail.log_shares,
            self.losses[tail.places],
            tail.share,
        )


class EnvelopeSampler(ClassSampler):
    """Proposes classes of one row by bounds on the masses of its tails, in O(d + 15 k).

    Summed over heads, the mass of tail t, a rank from 1, is the exponential of ``f(t) + g(t) -
    loss(t)``, where ``f(t) = log (t-2)! - log (t-k-1)!`` and ``g(t) = logsumexp over h of row(h) +
    log (t-h-2)! - log (t-2)!``. Each summand of g is the exponential of minus a sum of h logarithms
    of ``t - 2 - i``, so g is convex, and a chord between two points of a grid lies above it. As f
    and the loss grow with t and g falls, one bound holds for a run of tails: f at the last one, the
    others at the first. Runs of little mass are proposed as one, tails of other runs each by its
    chord.
    """

    def __init__(self, terms: ClassTerms, generator: np.random.Generator) -> None:
        """Bound the masses of all tails of the only row."""
        super().__init__(terms, generator)
        k, num_items = terms.k, terms.below.shape[1]
        self.factorial = log_factorials(num_items)
        self.heads = np.arange(k)
        self.head_terms = terms.log_heads[0] - self.factorial[k - 1 - self.heads]
        # f and the loss of each tail, from rank k + 1 on
        self.growth = self.factorial[k - 1 : num_items - 1] - self.factorial[: num_items - k]
        self.losses = -terms.log_tails[0]
        self.ends, masses, largest = self._envelope()
        self.cumulative = cumulative_weights(masses[None])
        self.log_rates = np.array([largest + math.log(masses.sum()) + SLACK])

    def _coupling(self, tails: IntArray) -> FloatArray:
        """Return ``g`` at tails, counted from 0."""
        return head_sums(self.head_terms, self.heads, tails + self.terms.k - 1, self.factorial)

    def _envelope(self) -> tuple[IntArray, FloatArray, float]:
        """Return the last tails of runs, bounds on their masses, and the largest as a logarithm.

        Tails are counted from 0 for rank k + 1. The top-k, of tail -1, is the first run. Bounds are
        relative to the largest.
        """
        beyond = np.arange(self.growth.size)
        step = 1 << beyond.size.bit_length() // 2
        firsts = beyond[::step]
        lasts = np.append(firsts[1:], beyond.size) - 1
        constants = self.growth[lasts] - self.losses[firsts] + np.log(lasts - firsts + 1)
        # points at growing distances from the top-k, as g is steepest next to it
        grid = np.unique(np.rint(np.geomspace(1, beyond.size, _POINTS)).astype(np.int64)) - 1
        values = self._coupling(grid)
        while True:
            runs = constants + np.interp(firsts, grid, values)
            heaviest = max(0.0, float((self.growth[grid] + values - self.losses[grid]).max()))
            low, high = np.flatnonzero(runs >= min(heaviest - _LIGHT, runs.max()))[[0, -1]]
            tails = slice(firsts[low], lasts[high] + 1)
            bounds = self.growth[tails] - self.losses[tails]
            bounds += np.interp(beyond[tails], grid, values)
            ends = np.concatenate(([-1], lasts[:low], beyond[tails], lasts[high + 1 :]))
            bounds = np.concatenate(([0.0], runs[:low], bounds, runs[high + 1 :]))
            largest = float(bounds.max())
            bounds -= largest
            masses = np.exp(bounds, out=bounds)
            # add points where mass lies, unless no chord lies well above the curve there
            total = np.cumsum(masses)
            probes = np.unique(ends[np.searchsorted(total, total[-1] * _PROBES)])
            probes = probes[probes >= 0]
            exact_values = self._coupling(probes)
            if (np.interp(probes, grid, values) - exact_values <= _EXCESS).all():
                return ends, masses, largest
            grid, first = np.unique(np.append(grid, probes), return_index=True)
            values = np.append(values, exact_values)[first]

    def propose(self, rows: IntArray) -> Proposals:
        """Pick the top-k or a run of tails by the envelope, one of them, and a head by its mass."""
        k, run = self.terms.k, pick(self.cumulative, self.generator)
        if not run.places[0]:
            top = np.array([[-1, k - 1]])
            return self._proposals(rows, top, -run.log_shares, np.zeros(1), run.share)
        last = self.ends[run.places]
        width = last - self.ends[run.places - 1]
        tail = last - self.generator.integers(width)
        terms = self.head_terms + self.factorial[tail[0] + k - 1 - self.heads]
        head = pick(cumulative_weights(np.exp(terms - terms.max())[None]), self.generator)
        log_masses = terms[head.places] - self.factorial[tail + k - 1]
        log_masses += self.growth[tail] - self.losses[tail]
        return self._proposals(
            rows,
            np.column_stack((head.places, tail + k)),
            log_masses - head.log_shares - run.log_shares + np.log(width),
            self.losses[tail] - self.terms.log_heads[0, head.places],
            lambda place: run.share(place) * head.share(place) / int(width[place]),
        )


def draw_member(head: int, tail: int, k: int, generator: np.random.Generator) -> IntArray:
    """Return a uniform member of one class, as ranks ``[k]``."""
    if tail < k:
        return np.arange(k)
    before = max(head, 0)
    # ranks up to the head, some of those between head and tail, and the tail
    between = generator.choice(tail - head - 1, size=k - 1 - before, replace=False) + head + 1
    return np.concatenate((np.arange(before), between, [tail]))


def draw_members(
    head: IntArray, tail: IntArray, k: int, generator: np.random.Generator
) -> IntArray:
    """Return a uniform member of each class ``[n]``, the top-k excluded, as ranks ``[n, k]``."""
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


CanonicalLoss = Literal["lead", "published"]

# largest table of classes that is evaluated in full for every row of a batch: none has e^352
# subsets
_TABLE = 1 << 16


@dataclass(frozen=True, kw_only=True)
class CanonicalMechanism(TopKMechanism):
    """Choose one subset among all subsets of size k. It is released in ascending order of index.

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

    spare: ClassVar[int] = 1

    gamma: float = 0.5
    noise: ChoiceNoise = "gumbel"
    loss: CanonicalLoss = "lead"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(is_real(self.gamma) and 0 <= self.gamma <= 1, "0 <= gamma <= 1", gamma=self.gamma)
        require_noise(ChoiceNoise, noise=self.noise)
        require(
            self.loss in get_args(CanonicalLoss),
            f"a loss among {get_args(CanonicalLoss)}",
            loss=self.loss,
        )

    def _select(self, rows: Rows, generator: np.random.Generator) -> IntArray:
        counts = _subset_table(rows.shape[1], self.k) if len(rows) > 1 else None

        def draw_part(part: Rows) -> IntArray:
            order, below = self._ranked(part)
            if counts is None:
                drawn = [self._draw_row(row, generator) for row in below]
                ranks = np.array(drawn, dtype=np.int64).reshape(-1, self.k)
            else:
                ranks = self._draw_batch(below, counts, generator)
            return np.take_along_axis(order, ranks, axis=1)

        return np.sort(in_blocks(rows, draw_part), axis=1)

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

    def _ranked(self, rows: Rows) -> tuple[IntArray, FloatArray]:
        """Return the item of each rank, and how far its score lies below the k-th, ``[B, d]`` each.

        Only the distances of scores from the scores of ranks k and k + 1 matter.
        """
        order, scores = rank(rows)
        return order, distances(scores, scores[:, self.k - 1 : self.k], reach=REACH * self.scale)

    def _terms(self, below: FloatArray) -> ClassTerms:
        return ClassTerms(
            below=below,
            k=self.k,
            scale=self.scale,
            gamma=self.gamma,
            outside=self.k if self.loss == "lead" else self.k - 1,
        )

    def _draw_batch(
        self, below: FloatArray, counts: FloatArray, generator: np.random.Generator
    ) -> IntArray:
        """Draw one subset for each row, as ranks from 0, ``[B, k]``."""
        head, tail = TableSampler(self._terms(below), counts, generator).draw(self.noise).T
        ranks = np.tile(np.arange(self.k), (len(below), 1))
        others = np.flatnonzero(tail >= self.k)
        if others.size:
            ranks[others] = draw_members(head[others], tail[others], self.k, generator)
        return ranks

    def _draw_row(self, below: FloatArray, generator: np.random.Generator) -> IntArray:
        """Draw one subset for one row ``[d]``, as ranks from 0, ``[k]``."""
        sampler = TailSampler if self.gamma == 1 else EnvelopeSampler
        head, tail = sampler(self._terms(below[None]), generator).draw(self.noise)[0].tolist()
        return draw_member(head, tail, self.k, generator)


@lru_cache(maxsize=16)
def _subset_table(num_items: int, k: int) -> FloatArray | None:
    if k * (num_items - k) > _TABLE:
        return None
    return read_only(np.exp(log_counts(num_items, k)))
