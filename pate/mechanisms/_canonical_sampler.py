"""Sampling from the canonical mechanism: a class of subsets first, then a uniform member of it.

A class is a head and a tail, as ranks from 0: the best rank that is left out, and the rank of the
last member. The top-k itself is (-1, k - 1). Each sampler proposes classes at a known rate, and
`draw` decides exactly which proposal is kept:

- `TableSampler` evaluates all classes of a batch of rows,
- `TailSampler` needs the tail only, because heads have no weight with ``gamma = 1``,
- `EnvelopeSampler` bounds the masses of the tails of one long row.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from pate._validation import FloatArray, IntArray
from pate.mechanisms._canonical_law import log_factorials
from pate.mechanisms._exact_rejection import (
    SLACK,
    Chance,
    Proposals,
    cumulative_weights,
    draw,
    pick,
)
from pate.mechanisms._noise import ChoiceNoise

_GRID = 13  # points of the first envelope
_MASS = 0.02  # share of the mass from which a stretch of the envelope is halved
_EXCESS = 0.1  # by which the envelope may exceed the logarithm of a mass


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
        """Propose ``classes`` ``[n, 2]``, each of which was drawn with the probability ``share``.

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
    """Proposes by the masses of all classes of a batch; the top-k has mass 1, other sets less."""

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
        self.log_masses = (
            factorial[k - 1 :] - factorial[: below.size - k + 1] - factorial[k - 1] - self.losses
        )
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

    Summed over heads, the mass of tail t, a rank from 1, is the exponential of a term of t plus
    ``g(t) = logsumexp over h of row(h) + log (t-h-2)! - log (t-2)!``. Each summand is the
    exponential of minus a sum of h logarithms of ``t - 2 - i``, so g is convex, and a chord between
    two of its points lies above it.
    """

    def __init__(self, terms: ClassTerms, generator: np.random.Generator) -> None:
        """Bound the masses of all tails of the only row."""
        super().__init__(terms, generator)
        k, num_items = terms.k, terms.below.shape[1]
        self.factorial = log_factorials(num_items)
        self.heads = np.arange(k)
        self.head_terms = terms.log_heads[0] - self.factorial[k - 1 - self.heads]
        tails = np.arange(k + 1, num_items + 1)
        self.tail_terms = (
            terms.log_tails[0] - self.factorial[tails - k - 1] + self.factorial[tails - 2]
        )
        largest, masses = self._envelope(tails)
        self.cumulative = cumulative_weights(masses[None])
        self.log_rates = np.array([largest + math.log(masses.sum()) + SLACK])

    def _coupling(self, tails: IntArray) -> FloatArray:
        """Return ``g`` at tails, ranks from 1."""
        terms = self.head_terms + self.factorial[tails[:, None] - 2 - self.heads]
        largest = terms.max(axis=1)
        summed: FloatArray = np.log(np.exp(terms - largest[:, None]).sum(axis=1)) + largest
        return summed - self.factorial[tails - 2]

    def _envelope(self, tails: IntArray) -> tuple[float, FloatArray]:
        """Bound the masses of the top-k, which is 1, and of all ``tails``.

        Return the logarithm of the largest bound, and all bounds divided by it.
        """
        k = self.terms.k
        # tails at growing distances from the top-k, as g is steepest next to it
        grid = np.unique(np.rint(np.geomspace(1, tails.size, _GRID)).astype(np.int64)) + k
        values = self._coupling(grid)
        while True:
            log_masses = np.append(0.0, self.tail_terms + np.interp(tails, grid, values))
            largest = float(log_masses.max())
            masses = np.exp(log_masses - largest)
            # halve the stretches that matter, unless no chord lies well above the curve there
            matter = np.diff(np.cumsum(masses)[grid - k]) > _MASS * masses.sum()
            middle = ((grid[1:] + grid[:-1]) // 2)[matter]
            exact_values = self._coupling(middle)
            if not (np.interp(middle, grid, values) - exact_values > _EXCESS).any():
                return largest, masses
            grid, first = np.unique(np.append(grid, middle), return_index=True)
            values = np.append(values, exact_values)[first]

    def propose(self, rows: IntArray) -> Proposals:
        """Pick the top-k or a tail by the envelope, then a head by its mass."""
        k, column = self.terms.k, pick(self.cumulative, self.generator)
        if not column.places[0]:
            top = np.array([[-1, k - 1]])
            return self._proposals(rows, top, -column.log_shares, np.zeros(1), column.share)
        tail = k + column.places  # from 1
        terms = self.head_terms + self.factorial[tail[0] - 2 - self.heads]
        head = pick(cumulative_weights(np.exp(terms - terms.max())[None]), self.generator)
        column_of = tail - k - 1
        log_masses = terms[head.places] + self.tail_terms[column_of] - self.factorial[tail - 2]
        log_terms = self.terms.log_heads[0, head.places] + self.terms.log_tails[0, column_of]
        return self._proposals(
            rows,
            np.column_stack((head.places, tail - 1)),
            log_masses - head.log_shares - column.log_shares,
            -log_terms,
            lambda place: column.share(place) * head.share(place),
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
