"""The exact law of the canonical mechanism by classes of sets, for the figures of its paper."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from pate._core.mechanisms.canonical import (
    CanonicalMechanism,
    head_sums,
    log_counts,
    log_factorials,
)
from pate._core.mechanisms.exact_choice import as_batch
from pate._core.validation import FloatArray, IntArray, require

_BLOCK = 1 << 18  # entries of a table of classes that are summed at once
_GRID = 65  # tails whose sums over heads bound all others
# log of the ratio to the largest mass at which masses of a million tails are lost in rounding
_NEGLIGIBLE = 45.0


def great_bounds(k: int) -> tuple[int, int]:
    """Return how many of the best items a great subset has, and the last rank that it may have."""
    return -(-k // 10), 11 * k // 10


def good_bounds(k: int) -> tuple[int, int]:
    """Return how many of the best items a good subset has, and the last rank that it may have."""
    return -(-k // 100), 3 * k // 2


@dataclass(frozen=True, eq=False)
class ClassProbabilities:
    """Law of the class of the set that `CanonicalMechanism` draws with Gumbel noise.

    A probability is summed up when it is asked for; only `classes` fills a table of all classes.
    """

    log_heads: FloatArray
    """``[k]``: logarithm of the term of head h = 0..k-1, relative to the top-k."""
    log_tails: FloatArray
    """``[d - k]``: logarithm of the term of tail t = k+1..d, relative to the top-k."""

    @property
    def k(self) -> int:
        """Size of the set."""
        return self.log_heads.size

    @property
    def num_items(self) -> int:
        """The number of items d."""
        return self.k + self.log_tails.size

    @property
    def top(self) -> float:
        """Probability of the top-k itself."""
        return math.exp(-self._log_total)

    @property
    def great(self) -> float:
        """Probability of a great set (Shekelyan & Loukides (2022), A.2)."""
        return self._within(*great_bounds(self.k))

    @property
    def good(self) -> float:
        """Probability of a good set (Shekelyan & Loukides (2022), A.2)."""
        return self._within(*good_bounds(self.k))

    @property
    def tails(self) -> FloatArray:
        """``[d - k + 1]``: probability that the last member has rank k (top-k), k + 1, ..., d."""
        masses = self._log_masses(0, np.arange(self.log_tails.size))
        return np.exp(np.concatenate(([0.0], masses)) - self._log_total)

    @cached_property
    def classes(self) -> FloatArray:
        """``[k, d - k]``: probability of head h and tail ``t = k + 1 + column``."""
        log_masses = (
            self.log_tails[None, :] + self.log_heads[:, None] + log_counts(self.num_items, self.k)
        )
        log_masses -= self._log_total
        return np.exp(log_masses, out=log_masses)

    def within(self, *, head: int, tail: int) -> float:
        """Return the probability of all ``head`` best items and none of rank beyond ``tail``.

        Raises:
            ValueError: unless ``0 <= head <= k <= tail <= d``.
        """
        require(0 <= head <= self.k, f"0 <= head <= {self.k}", head=head)
        require(
            self.k <= tail <= self.num_items, f"{self.k} <= tail <= {self.num_items}", tail=tail
        )
        return self._within(head, tail)

    @cached_property
    def _log_total(self) -> float:
        """Logarithm of the weight of all sets, if the top-k has weight 1."""
        columns = np.arange(self.log_tails.size)
        if not self._heads_are_equal:
            at = np.unique(np.rint(np.geomspace(1, columns.size, _GRID)).astype(np.int64)) - 1
            head_sums = self._log_head_sums(0, at)
            # but for its own term, the mass of tail t is a sum over h of (t-h-2)! / (t-2)! with
            # constant factors, each the exponential of a convex function of t: so its logarithm is
            # convex, and a chord lies above it
            bound = self._log_tail_factors(columns) + np.interp(columns, at, head_sums)
            columns = columns[
                bound
                > max(0.0, float((self._log_tail_factors(at) + head_sums).max())) - _NEGLIGIBLE
            ]
        return float(logsumexp(np.append(self._log_masses(0, columns), 0.0)))

    @property
    def _heads_are_equal(self) -> bool:
        """Whether all heads add the same."""
        return bool(np.ptp(self.log_heads) == 0)

    def _within(self, head: int, tail: int) -> float:
        columns = np.arange(min(tail, self.num_items) - self.k)
        if head == self.k or not columns.size:
            return self.top
        log_mass = logsumexp(np.append(self._log_masses(head, columns), 0.0))
        return min(1.0, math.exp(log_mass - self._log_total))

    def _log_masses(self, first: int, columns: IntArray) -> FloatArray:
        """Return log weights of sets with the ``first`` items and the tails ``k + 1 + columns``."""
        if self._heads_are_equal:
            # of the t - 1 ranks before t all but the first are free to be chosen, whatever the head
            factorial, tails = log_factorials(self.num_items), columns + self.k + 1
            counts = (
                factorial[tails - 1 - first]
                - factorial[self.k - 1 - first]
                - factorial[tails - self.k]
            )
            return counts + self.log_tails[columns] + self.log_heads[0]
        return self._log_head_sums(first, columns) + self._log_tail_factors(columns)

    def _log_tail_factors(self, columns: IntArray) -> FloatArray:
        """Return ``(t-2)! / (t-k-1)!`` times the term of a tail, as logarithms."""
        factorial, tails = log_factorials(self.num_items), columns + self.k + 1
        return self.log_tails[columns] + factorial[tails - 2] - factorial[tails - self.k - 1]

    def _log_head_sums(self, first: int, columns: IntArray) -> FloatArray:
        """Return the rest of tails' weights: logarithms of sums over heads from the first one."""
        factorial, heads = log_factorials(self.num_items), np.arange(first, self.k)
        head_terms = self.log_heads[first:] - factorial[self.k - 1 - heads]
        tails, step = columns + self.k - 1, max(1, _BLOCK // heads.size)
        return np.concatenate(
            [
                head_sums(head_terms, heads, tails[start : start + step], factorial)
                for start in range(0, max(columns.size, 1), step)
            ]
        )


def class_probabilities(mechanism: CanonicalMechanism, scores: ArrayLike) -> ClassProbabilities:
    """Return the exact law of the class drawn with Gumbel noise from one row of scores ``[d]``."""
    require(mechanism.noise == "gumbel", "Gumbel noise", noise=mechanism.noise)
    terms = mechanism._terms(mechanism._ranked(as_batch(scores)[0])[1])
    return ClassProbabilities(terms.log_heads[0], terms.log_tails[0])
