"""The law of the canonical mechanism: the first rank that a set misses, and its last rank.

All sets with the same head h (ranks 1..h are in, h + 1 is out) and tail t (t is in, all beyond are
out) are equally likely; there are ``binom(t - h - 2, k - h - 1)`` of them, and their weight is a
product of a term of h and one of t. Where the term of h is the same for all heads, as with ``gamma
= 1``, the sums over heads are binomials themselves, and everything here takes O(d) time and memory.
Otherwise sums take O(k) time for each tail that can matter, in blocks of a few megabytes: at k =
1,000 of 18,000 items some hundred tails do.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.special import gammaln

from pate._validation import FloatArray, IntArray, require
from pate.mechanisms._ranking import good_bounds, great_bounds

_BLOCK = 1 << 18  # entries of a table of classes that are summed at once
_GRID = 65  # tails at which sums over heads are taken to bound all others
# log of the ratio to the largest mass at which masses of a million tails are lost in rounding
_NEGLIGIBLE = 45.0


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
        """Probability of a great set, in the sense of `pate.mechanisms.grade`."""
        return self._within(*great_bounds(self.k))

    @property
    def good(self) -> float:
        """Probability of a good set, in the sense of `pate.mechanisms.grade`."""
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
        """Logarithm of the weight of all sets, of which the top-k has 1."""
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
        return _log_sum(np.append(self._log_masses(0, columns), 0.0))

    @property
    def _heads_are_equal(self) -> bool:
        """Whether all heads add the same."""
        return bool(np.ptp(self.log_heads) == 0)

    def _within(self, head: int, tail: int) -> float:
        columns = np.arange(min(tail, self.num_items) - self.k)
        if head == self.k or not columns.size:
            return self.top
        masses = np.append(self._log_masses(head, columns), 0.0)
        return min(1.0, math.exp(_log_sum(masses) - self._log_total))

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
            flat: FloatArray = counts + self.log_tails[columns] + self.log_heads[0]
            return flat
        return self._log_head_sums(first, columns) + self._log_tail_factors(columns)

    def _log_tail_factors(self, columns: IntArray) -> FloatArray:
        """Return ``(t-2)! / (t-k-1)!`` times the term of a tail, as logarithms."""
        factorial, tails = log_factorials(self.num_items), columns + self.k + 1
        factors: FloatArray = (
            self.log_tails[columns] + factorial[tails - 2] - factorial[tails - self.k - 1]
        )
        return factors

    def _log_head_sums(self, first: int, columns: IntArray) -> FloatArray:
        """Return the rest of tails' weights: logarithms of sums over heads from the first one."""
        k = self.k
        factorial = log_factorials(self.num_items)
        heads = np.arange(first, k)
        head_terms = self.log_heads[first:] - factorial[k - 1 - heads]
        # row t - k - 1 and column h - first hold log (t - 2 - h)!
        windows = np.lib.stride_tricks.sliding_window_view(factorial, heads.size)[:, ::-1]
        summed = np.empty(columns.size)
        step = max(1, _BLOCK // heads.size)
        for start in range(0, columns.size, step):
            terms = windows[columns[start : start + step]] + head_terms
            largest = terms.max(axis=1)
            terms -= largest[:, None]
            summed[start : start + step] = np.log(np.exp(terms, out=terms).sum(axis=1)) + largest
        return summed - factorial[columns + k - 1]


def _log_sum(terms: FloatArray) -> float:
    largest = float(terms.max())
    return largest + math.log(float(np.exp(terms - largest).sum()))


@lru_cache(maxsize=4)
def log_factorials(size: int) -> FloatArray:
    """Return ``log i!`` for i in 0..size-1, read-only."""
    table: FloatArray = gammaln(np.arange(1, size + 1))
    table.setflags(write=False)
    return table


def log_counts(num_items: int, k: int) -> FloatArray:
    """Return logarithms ``[k, d - k]`` of the numbers of subsets, by head and tail - k - 1."""
    factorial = log_factorials(num_items)
    heads: IntArray = np.arange(k)[:, None]
    tails: IntArray = np.arange(k + 1, num_items + 1)[None, :]
    counts: FloatArray = (
        factorial[tails - heads - 2] - factorial[k - heads - 1] - factorial[tails - k - 1]
    )
    return counts
