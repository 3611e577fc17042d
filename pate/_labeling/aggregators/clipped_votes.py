"""Noisy counts of ballots that are clipped, one by one or together, and rounds of such releases.

`TauVoting` clips each ballot of a query at a public norm. `ClippedVotes` clips all that a teacher
casts in a release, at a private median of these norms. `Rounds` releases the same queries several
times, each around a student of the releases before, and joins them into one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np

from pate._core.accounting.accountant import COARSE_ORDERS
from pate._core.accounting.cost import NeighboringRelation
from pate._core.accounting.events import ComposedEvent, Event, GaussianEvent
from pate._core.mechanisms.noise import add_gaussian, exceeds
from pate._core.validation import (
    FloatArray,
    IntArray,
    UInt8Array,
    expecting,
    require,
    require_given,
    require_positive,
)
from pate._labeling.aggregators.base import (
    Aggregator,
    Outlook,
    Release,
    features_of,
    predictions_of,
)
from pate._labeling.linear import student_of
from pate._labeling.votes.kinds import Ballots, Counts, Moments, Need, Scores, Votes, VoteShape
from pate._labeling.votes.voters import blocks

Norm = Literal["l2", "l1"]


# of the scales of ballots: sums over 2^23 teachers are exact in float64
_TAU_BITS = 30


@dataclass(frozen=True, kw_only=True)
class TauVoting(Aggregator):
    """Scale every ballot down to a norm of at most tau, add them up, and add Gaussian noise.

    Choose it if most ballots have few labels, or few that differ from a public student's
    predictions: the noise depends on tau, not on the number of labels. Ballots of a larger norm are
    scaled down, so the soft counts are too low.

    Privacy: a Gaussian mechanism on the clipped sums. Its L2 sensitivity is the largest norm of a
    clipped ballot under ADD_REMOVE_TEACHER, and of the difference of two under REPLACE_RECORD,
    taken exactly over all ballots: at most ``tau`` and ``min(sqrt(2) tau, sqrt(C))`` for the L2
    norm (Dziedzic et al. (2023), tau voting). Around predictions it is as under REPLACE_RECORD for
    both: a teacher that takes no part differs from the student in every label that the student
    gives, so that any two clipped ballots may be neighbors.

    >>> votes = Votes.from_ballots([[[1, 1, 0]] * 60 + [[1, 0, 0]] * 40])
    >>> aggregator = TauVoting(tau=2.0, sigma_tau=3.0, threshold_tau=50.0)
    >>> aggregator.aggregate(votes, generator=seeded_generator(0)).labels
    array([[1, 1, 0]], dtype=uint8)

    Args:
        tau: the largest norm of a ballot.
        sigma_tau: standard deviation of the noise on each sum, in votes.
        threshold_tau: the noisy sum above which a label is given, in votes: a public constant, such
            as half the number of teachers.
        norm: ``l2`` or ``l1``, the norm that is clipped.
        neighboring_relation: the relation of the cost that is stated first.
        around_predictions: whether ballots are read as differences from the student's rounded
            predictions, a label keeping its prediction unless ``threshold_tau`` teachers differ.
        soft: whether the noisy counts are released with the labels.

    Raises:
        ValueError: on a norm, threshold or deviation that is not positive, or another name of a
            norm.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("sigma_tau",)

    tau: float
    sigma_tau: float
    threshold_tau: float
    norm: Norm = "l2"
    around_predictions: bool = False
    soft: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(tau=self.tau, threshold_tau=self.threshold_tau)
        require(self.norm in get_args(Norm), f"norm among {get_args(Norm)}", norm=self.norm)

    @classmethod
    def defaults(cls, outlook: Outlook) -> Sequence[Mapping[str, Any]]:
        # three that rarely clip a ballot of k labels, or of k differences from a student
        half, root = outlook.shape.num_teachers / 2, math.sqrt(outlook.k)
        choices: list[dict[str, Any]] = [
            {"tau": 1.25 * root},
            {"tau": outlook.k, "norm": "l1"},
            {"tau": root, "around_predictions": True},
        ]
        return [{"threshold_tau": half, **choice} for choice in choices]

    @property
    def needs(self) -> frozenset[Need]:
        """The ballots, and the predictions that they are read around."""
        return frozenset({Ballots, "predictions"} if self.around_predictions else {Ballots})

    def event(
        self, shape: VoteShape, relation: NeighboringRelation | None = None, tier: int | None = None
    ) -> Event:
        resolved = self.relation_of(relation)
        return GaussianEvent(
            neighboring_relation=resolved,
            noise_multiplier=self.sigma_tau / self.sensitivity(shape.num_labels, resolved),
        )

    def sensitivity(self, num_labels: int, relation: NeighboringRelation) -> float:
        """Return the largest L2 move of the clipped sums by one teacher."""
        sizes = np.arange(num_labels + 1)
        squares = sizes * self._weights(sizes) ** 2
        if relation is NeighboringRelation.ADD_REMOVE_TEACHER and not self.around_predictions:
            return math.sqrt(float(squares.max()))
        # two ballots differ most where they share no label: without those, the larger weighs no
        # less in the others
        disjoint = sizes[:, None] + sizes <= num_labels
        return math.sqrt(float((squares[:, None] + squares)[disjoint].max()))

    def aggregate(self, votes: Ballots, *, generator: np.random.Generator) -> Release:
        noisy = add_gaussian(self.clipped_sums(votes), sigma=self.sigma_tau, generator=generator)
        guess = guess_of(votes, self.around_predictions)
        labels = (noisy > self.threshold_tau).astype(np.uint8) ^ guess
        mask = np.ones(labels.shape, dtype=np.bool_)
        if not self.soft:
            return Release(labels, mask)
        counts = np.where(guess > 0, votes.num_teachers - noisy, noisy)
        return Release(labels, mask, counts, self.sigma_tau)

    def clipped_sums(self, votes: Ballots) -> FloatArray:
        """Return the sums ``[Q, C]`` of clipped ballots, without noise."""
        sums = np.empty(votes.counts.shape)
        ballots = votes.ballots
        guess = guess_of(votes, self.around_predictions)
        for rows in blocks(len(sums), ballots[:1].size):
            differing = ballots[rows] ^ guess[rows, None]
            weights = self._weights(differing.sum(axis=2, dtype=np.int64))
            sums[rows] = (weights[:, None] @ differing.astype(np.float64))[:, 0]
        return sums

    def _weights(self, sizes: IntArray) -> FloatArray:
        """Return the factors that scale ballots of ``sizes`` labels down, for exact sums."""
        norms = np.maximum(sizes, 1) if self.norm == "l1" else np.sqrt(np.maximum(sizes, 1))
        return np.floor(np.minimum(1.0, self.tau / norms) * 2.0**_TAU_BITS) / 2**_TAU_BITS


def guess_of(votes: Ballots, around_predictions: bool) -> UInt8Array:
    """Return the labels ``[Q, C]`` that ballots differ from: rounded predictions, or none."""
    if not around_predictions:
        return np.zeros(votes.counts.shape, dtype=np.uint8)
    return (predictions_of(votes) > 0.5).astype(np.uint8)


_DOUBLINGS = 4  # candidates for the median between a number and its double
MEDIAN_SPARE = 1.2  # of the clip over the median, so that few ballots are clipped at all
# the noise of a comparison in the search, as a fraction of the teachers: three deviations from a
# half
MEDIAN_ERRORS = 6.0
MEDIAN_SHARE = 0.25  # the share of the budget above which the search is not worth it
# of the scales of ballots: sums over 2^33 teachers are exact in float64
_BITS = 20


@dataclass(frozen=True, kw_only=True)
class ClippedVotes(Aggregator):
    """Add Gaussian noise to the counts of a release, as large as one teacher's clipped ballot.

    Choose it before `NoisyVotes` wherever ballots are at hand: a teacher gives few of all labels,
    or differs in few from a student, and the noise follows their number, whatever the number of
    labels. Their number is learned privately from the teachers: no setting depends on the data.

    A ballot holds a teacher's answers to all queries of a batch: the labels that it gives, or the
    labels where it differs from predictions. Ballots of more than a clip of entries are scaled
    down to its square root in norm. The clip is 1.2 times the median number of entries, found by
    bisection among powers of ``2^(1/4)``. Each step compares a noisy number of teachers
    with a half. The cost of the bisection is a public function of the numbers of teachers, queries
    and labels. If it took over a quarter of the budget, nothing is clipped.

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
        neighboring_relation: the relation of the cost that is stated first.

    Raises:
        ValueError: on a multiplier that is not positive.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("multiplier_clipped",)

    multiplier_clipped: float
    around_predictions: bool = False

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
        guess = guess_of(votes, self.around_predictions)
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
        """The sizes among which the median is sought, ascending. The last one is the largest."""
        powers = np.arange(math.ceil(_DOUBLINGS * math.log2(self.most)) + 1) / _DOUBLINGS
        return np.unique(np.ceil(self.most / 2.0**powers).astype(np.int64))

    @property
    def num_steps(self) -> int:
        """The number of comparisons, at most."""
        return math.ceil(math.log2(max(2, len(self.candidates))))

    def share(self, noise_multiplier: float) -> float:
        """Return the cost of the comparisons, as an inverse square of the noise multiplier."""
        return self.num_steps * (noise_multiplier / (self.num_teachers / MEDIAN_ERRORS)) ** 2

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
) -> float:
    """Return a candidate near the median of ``sizes``, by noisy bisection.

    Noise aside, half of the voters have ballots of its size or less. It takes at most ``ceil(log2
    m)`` comparisons with noise of ``sigma``. One voter moves each by 1 at most.

    Args:
        sizes: ``[V]``, sizes of ballots; empty ballots may be left out.
        candidates: ``[m]``, ascending.
        num_voters: the nominal number of voters.
        sigma: the standard deviation of the noise in a number of voters.
        generator: source of the noise.
    """
    low, high = 0, len(candidates) - 1
    while low < high:
        middle = (low + high) // 2
        above = (sizes > candidates[middle]).sum()
        enough = exceeds(-above, -num_voters / 2, sigma=sigma, generator=generator)
        low, high = (low, middle) if enough else (middle + 1, high)
    return float(candidates[high])


def sizes_of(ballots: UInt8Array, guess: UInt8Array) -> IntArray:
    """Return the number ``[T]`` of entries where ballots ``[Q, T, C]`` differ from ``guess``."""
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


_FIRST = 0.25  # share of the budget of the first of two rounds


@dataclass(frozen=True, kw_only=True)
class Rounds(Aggregator):
    """Release the same queries in rounds, each with predictions of a student of earlier rounds.

    Choose it wherever the queries have features: a student of a cheap first round is right on most
    entries, and a mechanism that pays only for differences from it makes the rest of the budget go
    further. With ``--target_epsilon`` and nothing else this is what `pate label` does:
    `ClippedVotes` for a quarter of the budget, then `ClippedVotes` around their student for the
    rest.

    Noisy counts of all rounds are averaged by the inverse of their variances. A round that releases
    no counts, or not all entries, or answers of a linear model, stands for itself.

    Privacy: the adaptive composition of all rounds, under REPLACE_RECORD and ADD_REMOVE_TEACHER as
    each of them says, which is reserved before the first. A student is a function of released
    labels and public features, so it costs nothing (Dwork & Roth (2014), Proposition 2.1), and a
    later round may depend on its predictions in any way.

    Args:
        rounds: the aggregators in their order, for the same relation. All but the first may need
            predictions.
        neighboring_relation: the relation of the cost that is stated first.

    Raises:
        ValueError: without a round, if a round is for another relation, or if the first needs
            predictions.
    """

    rounds: tuple[Aggregator, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        with expecting("a list of aggregators in `rounds`", TypeError):
            object.__setattr__(self, "rounds", tuple(self.rounds))
        require(self.rounds, "at least one round", rounds=self.rounds)
        for i, aggregator in enumerate(self.rounds):
            relation, setting = aggregator.neighboring_relation, f"rounds[{i}].neighboring_relation"
            require(
                relation is self.neighboring_relation,
                f"rounds for {self.neighboring_relation.value}",
                **{setting: relation.value},
            )
        first, asked = type(self.rounds[0]).__name__, self.rounds[0].needs
        require(
            "predictions" not in asked, "a first round that needs no predictions", rounds_0=first
        )

    @classmethod
    def defaults(cls, outlook: Outlook) -> Sequence[Mapping[str, Any]]:
        around = ClippedVotes(
            multiplier_clipped=1.0, around_predictions=True, neighboring_relation=outlook.relation
        )
        return [{"rounds": two_rounds(around, outlook).rounds}]

    @property
    def noise(self) -> dict[str, float]:
        return {
            f"rounds[{i}].{name}": scale
            for i, part in enumerate(self.rounds)
            for name, scale in part.noise.items()
        }

    @property
    def needs(self) -> frozenset[Need]:
        """The needs of its rounds, but for predictions: a student between rounds gives them.

        The student needs features.
        """
        needs = frozenset[Need]().union(*(part.needs for part in self.rounds)) - {"predictions"}
        # a sum of silos is opened once
        return needs | {"features", Counts | Scores | Moments} if len(self.rounds) > 1 else needs

    def event(
        self, shape: VoteShape, relation: NeighboringRelation | None = None, tier: int | None = None
    ) -> Event:
        """Describe the cost of one query in all rounds; ``tier`` is a tier of the last."""
        resolved = self.relation_of(relation)
        *before, last = self.rounds
        events = (part.event(shape, resolved) for part in before)
        return ComposedEvent(events=(*events, last.event(shape, resolved, tier)))

    def scaled(self, factor: float) -> Self:
        return replace(self, rounds=tuple(part.scaled(factor) for part in self.rounds))

    def aggregate(self, votes: Votes, *, generator: np.random.Generator) -> Release:
        first, *later = self.rounds
        total = first.aggregate(votes, generator=generator)
        for aggregator in later:
            features = features_of(votes)
            student = student_of(total, features, votes.num_teachers)
            asked = votes.with_public(predictions=student.predict(features))
            answers = aggregator.aggregate(asked, generator=generator)
            total = combined(total, answers, votes.num_teachers)
        return total

    def max_answer_probability(self, shape: VoteShape) -> float:
        return min(part.max_answer_probability(shape) for part in self.rounds)


def two_rounds(last: Aggregator, outlook: Outlook) -> Rounds:
    """Return two rounds: `ClippedVotes`, then ``last``, which needs predictions.

    The first has twice the noise that gives it epsilon 1 by itself, the last such noise
    over the root of three quarters. If both compose as Gaussian mechanisms do, the first takes a
    quarter of any budget. Only the proportions matter.

    Raises:
        ValueError: if no noise of ``last`` meets epsilon 1 at the delta of ``outlook``.
    """
    target, relation = outlook.target(epsilon=1.0), outlook.relation
    first = ClippedVotes(multiplier_clipped=1.0, neighboring_relation=relation).calibrated(
        target, outlook.shape, orders=COARSE_ORDERS
    )
    assert first is not None
    final = require_given(
        last.calibrated(target, outlook.shape, orders=COARSE_ORDERS),
        "a last round that can meet a target",
        last=type(last).__name__,
    )
    return Rounds(
        rounds=(first.scaled(_FIRST**-0.5), final.scaled((1 - _FIRST) ** -0.5)),
        neighboring_relation=relation,
    )


def combined(earlier: Release, release: Release, num_teachers: int) -> Release:
    """Combine two releases of the same queries: average their counts by the noise in them.

    The later release is returned unless both have noisy counts of all entries. A release of several
    tiers never has them: a screen that confirms a student mixes the student's opinion with counts.
    Neither has a linear model, as its answers have no noise of their own.
    """
    before, after = _all_counts(earlier), _all_counts(release)
    if before is None or after is None:
        return release
    weights = before[1] ** -2, after[1] ** -2
    counts = (weights[0] * before[0] + weights[1] * after[0]) / sum(weights)
    labels = (2 * counts > num_teachers).astype(np.uint8)
    return release._replace(labels=labels, noisy_counts=counts, noise_std=sum(weights) ** -0.5)


def _all_counts(release: Release) -> tuple[FloatArray, float] | None:
    """Return noisy counts of all entries and the deviation of their noise, or None."""
    if release.noisy_counts is None or release.noise_std is None or release.tiers is not None:
        return None
    return (release.noisy_counts, release.noise_std) if release.mask.all() else None
