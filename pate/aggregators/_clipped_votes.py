"""Noisy counts of ballots, clipped at a private median of their norms over a whole release."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from pate._validation import FloatArray, IntArray, UInt8Array
from pate._votes import Ballots, Need, VoteShape
from pate._votes.voters import blocks
from pate.accounting import Event, GaussianEvent, NeighboringRelation
from pate.aggregators._base import Aggregator, Release, predictions_of
from pate.aggregators._outlook import Outlook
from pate.mechanisms._noise import add_gaussian, exceeds

_DOUBLINGS = 4  # candidates for the median between a number and its double
MEDIAN_SPARE = 1.2  # of the clip over the median, so that few ballots are clipped at all
# the noise of a comparison in the search, as a fraction of the teachers: three deviations from a
# half
MEDIAN_ERRORS = 6.0
MEDIAN_SHARE = 0.25  # the share of the budget above which the search is not worth it
# of the factors by which ballots are scaled: sums over 2^33 teachers are exact in float64
_BITS = 20


@dataclass(frozen=True, kw_only=True)
class ClippedVotes(Aggregator):
    """Add Gaussian noise to the counts of a release, as large as one teacher's clipped ballot.

    Choose it before `NoisyVotes` wherever ballots are at hand: a teacher gives few of all labels,
    or differs in few from a student, and the noise follows their number, whatever the number of
    labels. Their number is learned privately from the teachers: no setting depends on the data.

    A ballot holds a teacher's answers to all queries of a batch: the labels that it gives, or the
    labels in which it differs from predictions. Ballots of more than a clip of entries are scaled
    down to its square root in norm. The clip is 1.2 times the median number of entries, found by
    bisection among powers of ``2^(1/4)``, each step of which compares a noisy number of teachers
    with a half. The cost of the bisection is a public function of the numbers of teachers, queries
    and labels; if it took over a quarter of the budget, nothing is clipped.

    Privacy: an adaptive composition of Gaussian mechanisms (Dong et al. (2022), Corollary 3.3),
    with squared inverse multipliers that add up to ``num_queries / multiplier_clipped^2`` for a
    batch of any size, so that a batch costs as much as its queries one by one. Under REPLACE_RECORD
    and ADD_REMOVE_TEACHER alike a teacher moves each comparison by one at most, and the sum by at
    most ``sqrt(2 clip)``: two clipped ballots have no negative entry, so that their squared
    distance is at most the sum of their squared norms. No entry moves by more than one, which
    bounds it by ``sqrt(num_queries num_labels)`` too. Sums are exact: ballots are scaled by
    multiples of ``2^-20``, rounded down.

    >>> votes = Votes.from_ballots([[[1, 1, 0]] * 60 + [[1, 0, 0]] * 40])
    >>> aggregator = ClippedVotes(multiplier_clipped=1.0)
    >>> aggregator.aggregate(votes, generator=seeded_generator(0)).labels
    array([[1, 1, 0]], dtype=uint8)

    Args:
        multiplier_clipped: noise multiplier of one query; a release of ``n`` queries has one that
            is smaller by ``sqrt(n)``.
        around_predictions: whether ballots are read as differences from a student's rounded
            predictions.
        neighboring_relation: the relation under which the cost is stated first.

    Raises:
        ValueError: on a multiplier that is not positive.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("multiplier_clipped",)

    multiplier_clipped: float
    around_predictions: bool = False

    @classmethod
    def variants(cls, outlook: Outlook) -> Mapping[str, Sequence[Any]]:
        return {}  # predictions are there where a round came before

    @property
    def needs(self) -> frozenset[Need]:
        """The ballots, and the predictions that they are read around."""
        return frozenset({Ballots, "predictions"} if self.around_predictions else {Ballots})

    def event(
        self, shape: VoteShape, relation: NeighboringRelation | None = None, tier: int | None = None
    ) -> Event:
        return GaussianEvent(
            neighboring_relation=self.relation_of(relation),
            noise_multiplier=self.multiplier_clipped,
        )

    def aggregate(self, votes: Ballots, *, generator: np.random.Generator) -> Release:
        ballots, mask = votes.ballots, np.ones(votes.counts.shape, dtype=np.bool_)
        guess = np.zeros(mask.shape, dtype=np.uint8)
        if self.around_predictions:
            guess = (predictions_of(votes) > 0.5).astype(np.uint8)
        if not mask.size:
            return Release(guess, mask, noisy_counts=np.zeros(mask.shape), noise_std=1.0)
        sigma_unclipped = self.multiplier_clipped / math.sqrt(len(mask))
        share_spent, clip = 0.0, mask.size
        sizes = sizes_of(ballots, guess)
        bisection = Bisection(num_teachers=votes.num_teachers, most=mask.size)
        if (median_share := bisection.share(sigma_unclipped)) <= MEDIAN_SHARE:
            share_spent, clip = median_share, bisection.median(sizes, generator)
        sigma = sigma_unclipped / math.sqrt(1 - share_spent) * math.sqrt(min(2 * clip, mask.size))
        noisy = add_gaussian(
            clipped_sums(votes, guess, sizes, clip), sigma=sigma, generator=generator
        )
        counts = np.where(guess > 0, votes.num_teachers - noisy, noisy)
        labels = (2 * counts > votes.num_teachers).astype(np.uint8)
        return Release(labels, mask, noisy_counts=counts, noise_std=sigma)


@dataclass(frozen=True, kw_only=True)
class Bisection:
    """A private search for the median size of ballots.

    Args:
        num_teachers: the nominal number of teachers.
        most: the largest size that a ballot can have.
    """

    num_teachers: int
    most: int

    @property
    def candidates(self) -> IntArray:
        """The sizes among which the median is sought, ascending; the last one is the largest."""
        return _candidates(self.most)

    @property
    def num_steps(self) -> int:
        """The number of comparisons, at most."""
        return math.ceil(math.log2(max(2, len(self.candidates))))

    def share(self, noise_multiplier: float) -> float:
        """Return the cost of the comparisons, as an inverse square of the noise multiplier."""
        sigma = self.num_teachers / MEDIAN_ERRORS
        return self.num_steps * (noise_multiplier / sigma) ** 2

    def median(self, sizes: IntArray, generator: np.random.Generator) -> int:
        """Return the clip for ballots of ``sizes`` ``[T]``: a noisy median times a margin."""
        median = noisy_median(
            sizes,
            self.candidates,
            num_voters=self.num_teachers,
            sigma=self.num_teachers / MEDIAN_ERRORS,
            generator=generator,
        )
        return min(self.most, math.ceil(MEDIAN_SPARE * int(median)))


def noisy_median(
    sizes: IntArray | FloatArray,
    candidates: IntArray | FloatArray,
    *,
    num_voters: float,
    sigma: float,
    generator: np.random.Generator,
    weights: FloatArray | float = 1,
) -> float:
    """Return a candidate near the median of ``sizes``, by noisy bisection.

    Noise aside, half of the voters have ballots of its size or less. It takes at most ``ceil(log2
    m)`` comparisons with noise of ``sigma``, each of which one voter moves by its weight at most.

    Args:
        sizes: ``[V]``, sizes of ballots; empty ballots may be left out.
        candidates: ``[m]``, ascending.
        num_voters: the nominal number of voters.
        sigma: the standard deviation of the noise in a number of voters.
        generator: source of the noise.
        weights: ``[V]``, how much each voter counts, exact in sums; or one number for all.
    """
    low, high = 0, len(candidates) - 1
    while low < high:
        middle = (low + high) // 2
        above = (weights * (sizes > candidates[middle])).sum()
        enough = exceeds(-above, -num_voters / 2, sigma=sigma, generator=generator)
        low, high = (low, middle) if enough else (middle + 1, high)
    return float(candidates[high])


@lru_cache(maxsize=64)
def _candidates(most: int) -> IntArray:
    powers = np.arange(math.ceil(_DOUBLINGS * math.log2(most)) + 1) / _DOUBLINGS
    candidates = np.unique(np.ceil(most / 2.0**powers).astype(np.int64))
    candidates.setflags(write=False)
    return candidates


def sizes_of(ballots: UInt8Array, guess: UInt8Array) -> IntArray:
    """Return the number ``[T]`` of entries in which ballots ``[Q, T, C]`` differ from ``guess``."""
    total = np.zeros(ballots.shape[1], dtype=np.int64)
    for rows in blocks(len(ballots), ballots[:1].size):
        total += (ballots[rows] ^ guess[rows, None]).sum(axis=(0, 2), dtype=np.int64)
    return total


def clipped_sums(votes: Ballots, guess: UInt8Array, sizes: IntArray, clip: int) -> FloatArray:
    """Return the sums ``[Q, C]`` of differences from ``guess``, ballots clipped to ``sqrt(clip)``.

    They are exact multiples of ``2^-20``, in any order of addition (`factors_of`).
    """
    ballots, counts = votes.ballots, votes.counts.astype(np.float64)
    sums = np.where(guess > 0, votes.num_teachers - counts, counts)
    scaled = np.flatnonzero(sizes > clip)
    if len(scaled):
        excess = 1 - factors_of(sizes[scaled], clip)
        for rows in blocks(len(ballots), len(scaled) * votes.num_labels):
            sums[rows] -= excess @ (ballots[rows][:, scaled] ^ guess[rows, None]).astype(np.float64)
    return sums


def factors_of(sizes: IntArray, clip: int) -> FloatArray:
    """Return the factors ``sqrt(clip / size)``, rounded down, of ballots with sizes above ``clip``.

    The squared norm of a scaled ballot, ``size factor^2``, is at most ``clip``, with no rounding
    error.
    """
    distinct_sizes, which = np.unique(sizes, return_inverse=True)
    # integers of any length: the product is beyond 64 bits where ballots are long
    units = [math.isqrt((clip << 2 * _BITS) // size) for size in distinct_sizes.tolist()]
    return np.array(units, dtype=np.float64)[which.ravel()] / (1 << _BITS)
