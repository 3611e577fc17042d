"""Noisy sums of ballots that are moments, in rounds, and linear answers that follow from them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np
from scipy.special import expit

from pate._linear import labels_better_than_constant, match_logistic_moments, shrunk_means
from pate._validation import BoolArray, FloatArray, require, require_positive
from pate._votes import Ballots, Moments, Need, Scores, VoteShape
from pate._votes.geometry import Geometry
from pate._votes.voters import MomentQuery, Voters
from pate.accounting import Event, GaussianEvent, NeighboringRelation
from pate.aggregators._base import Aggregator, Release, features_of
from pate.aggregators._clipped_votes import MEDIAN_ERRORS, MEDIAN_SHARE, MEDIAN_SPARE, noisy_median
from pate.mechanisms._exact_normal import add_gaussian

# for the median: powers of 2^(1/4), down to the 3400th part of the largest norm
_DOUBLINGS, _CANDIDATES = 4, 48
# of the budget, which the number of voters takes: later rounds hardly depend on it
COUNT_SHARE = 0.02
KNOWN_SHARE = 0.02  # likewise, for the voters that know each label
_MEDIAN_SHARE = 0.05  # of the budget, which comparisons with a median take where that is enough
# of a slope's prior variance to the least noise
_RATIOS = np.concatenate(([0.0], np.geomspace(1e-3, 1e7, 41)))
_CONSTANT = (0.05, 1.0)  # the least and the largest entry that is the same for all samples
# prior standard deviation of a ratio of variances around 1: rounds diverge from a ratio of 2 on
_RATIO_DEVIATION = 0.5
_LARGEST_VARIANCE = 0.25  # of a label
# voters for each direction of the first part and unit of noise, below which a choice is a guess
_ENOUGH = 20.0
# of the prospect of the first part: columns lose much where they do not suffice, and random
# features little where columns do
_FIRST = 0.8
# standard deviations: hardly ever worse than a constant, over many labels and releases
_SIGNIFICANT = 3.0


@dataclass(frozen=True, kw_only=True)
class ScoreVotes(Aggregator):
    """Release linear answers to all queries, learned from noisy sums of voters' clipped moments.

    Choose it wherever queries have features, and voters are many, down to one for each record, or
    have scores to give: a score ranks where a vote of a small teacher is always no, and the noise
    follows the number of directions, whatever the number of queries. The answers are linear in the
    features. It is private linear learning by votes.

    A ballot is the mean product of a voter's weighted public coordinates and the residuals of its
    labels, or scores, from the public student of the rounds before. In each round ballots are
    clipped in L2 at 1.2 times their median norm, found by bisection among powers of ``2^(1/4)``,
    and added up. The student's moments on public samples are added back, so that a round estimates
    the moments without bias as far as public samples are like private ones; rounds are combined by
    precision. If private records vary more along a direction, the released residuals show it, since
    they change by more than the student's answers on public samples do: each direction has a ratio
    of both variances, at least 1, the posterior mean under a normal prior of mean 1 and deviation
    1/2, by which its estimates are divided. The release holds their mean, weighted by the precision
    with which rounds tell them (``variance_ratio``). The student is the posterior mean of all
    rounds under a Gaussian prior, with the variance that is most likely for the label and, counted
    as one label more, for all labels. The next round gives each direction the share of a ballot's
    norm by which the posterior is not shrunk there; the first gives the share that ridge regression
    with a penalty of the mean variance would leave.

    Where the features have parts, alternatives such as columns and random features of them
    (`pate.data.AutoFeatures`), the first round is asked once for each part, at the same share of
    the budget, and later rounds only along one part: the one whose answers explain most of the
    public samples in expectation, by the posterior after its first round and the precision that
    later rounds add. The first part is kept only if it is ahead by a quarter. With fewer than 20
    voters for each direction of the first part and unit of the noise multiplier, no other part is
    asked. The release names the columns of the part that is kept.

    The release holds answers ``noisy_counts / num_teachers`` that are a linear function of the
    features (it is ``linear``), so that a linear student of them is that function itself, and
    decisions: a label departs from its constant answer only if the expected gain on public samples
    is three posterior standard deviations. The constant answer gives a label if its level is one
    standard deviation above one half.

    Privacy: an adaptive composition of Gaussian mechanisms (Dong et al. (2022), Corollary 3.3),
    with squared inverse multipliers that add up to ``num_queries / multiplier_scores^2`` for a
    batch of any size. Under REPLACE_RECORD one voter changes its ballot, which moves a comparison
    by one and the clipped sum by at most twice the clip; sums are exact. Under ADD_REMOVE_TEACHER
    an absent voter counts as zero after the centering, so that the sum moves by no more than the
    clip; the dearer figure is charged for both. The number of voters, where it is private, is
    counted first, with noise: one voter moves it by one. Sums are divided by this count, and all
    else is computed from noisy sums and public features (Dwork & Roth (2014), Proposition 2.1).

    If labels may be unknown, which is declared and public, a voter casts zero for a label that it
    does not know, after the centering: the clip bounds its ballot as before. How many voters know
    each label is private. These ``C`` counts are released with noise: one voter moves them by
    ``sqrt(C)`` in L2 under both relations, since each moves by one at most. They are shrunk towards
    their mean, and the sum of a label is divided by its own count.

    Args:
        multiplier_scores: noise multiplier of one query; a release of ``n`` queries has one that
            is smaller by ``sqrt(n)``.
        rounds: the share of the budget, as a squared inverse multiplier, of each round; they add up
            to 1, and a rest of rounding, or a first round for each part, is divided out.
        neighboring_relation: the relation under which the cost is stated first.

    Raises:
        ValueError: on a multiplier or share that is not positive, or shares that do not add up to
            1.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("multiplier_scores",)

    multiplier_scores: float
    rounds: tuple[float, ...] = (0.1, 0.15, 0.25, 0.5)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "rounds", tuple(self.rounds))
        for i, share in enumerate(self.rounds):
            require_positive(**{f"rounds[{i}]": share})
        require(abs(sum(self.rounds) - 1) < 1e-9, "rounds that add up to 1", rounds=self.rounds)

    @property
    def needs(self) -> frozenset[Need]:
        """Votes of voters, who are asked in every round, and features, on which answers depend."""
        return frozenset({"features", Ballots | Scores | Moments})

    def event(
        self, shape: VoteShape, relation: NeighboringRelation | None = None, tier: int | None = None
    ) -> Event:
        """Describe the cost of one query."""
        return GaussianEvent(
            neighboring_relation=self.relation_of(relation), noise_multiplier=self.multiplier_scores
        )

    def weighed(self, voters: Voters) -> Voters:
        """Return voters, with weights if the aggregator gives any.

        Raises ``ValueError`` if they have personal budgets, by which only `PersonalVotes` weigh.
        """
        name = type(self).__name__
        require(voters.budgets is None, "PersonalVotes of records with budgets", aggregator=name)
        return voters

    def aggregate(
        self, votes: Ballots | Scores | Moments, *, generator: np.random.Generator
    ) -> Release:
        """Answer a batch of queries, which is paid for by all of them."""
        shape = (votes.num_queries, votes.num_labels)
        mask = np.ones(shape, dtype=np.bool_)
        if not mask.size:
            return Release(
                np.zeros(shape, dtype=np.uint8), mask, noisy_counts=np.zeros(shape), linear=True
            )
        voters = votes.voters
        *_, last = released(self, voters, len(mask), generator)
        answers, labels = last.learner.answers(features_of(votes))
        return Release(
            labels.astype(np.uint8),
            mask,
            noisy_counts=votes.num_teachers * answers,
            linear=True,
            columns=last.learner.columns if len(voters.by_part()) > 1 else None,
            variance_ratio=last.learner.variance_ratio,
        )


def released(
    aggregator: ScoreVotes, voters: Voters, num_queries: int, generator: np.random.Generator
) -> Iterator[Round]:
    """Yield the rounds, of which each asks a question of its own."""
    voters = aggregator.weighed(voters)
    noise_multiplier, count = (
        aggregator.multiplier_scores / math.sqrt(num_queries),
        float(voters.num_voters),
    )
    left, private, knowing = 1.0, voters.num_private, voters.num_knowing
    if private is not None:
        count = noisy_count(private, noise_multiplier / math.sqrt(COUNT_SHARE), generator)
        left -= COUNT_SHARE
    divisor: float | FloatArray = count
    if knowing is not None:
        multiplier = noise_multiplier / math.sqrt(KNOWN_SHARE)
        divisor = noisy_knowing(knowing, count, multiplier, generator)
        left -= KNOWN_SHARE
    parts = voters.by_part()
    if count < _ENOUGH * noise_multiplier * parts[0].geometry.num_directions:
        parts = parts[:1]
    learners = [Learner.of(part, divisor) for part in parts]
    known_share = float(np.mean(divisor)) / count
    first, *later = aggregator.rounds
    all_shares = math.fsum([*later, *(first for _ in parts)])

    def asked(part: int, share: float) -> Round:
        learner = learners[part]
        question = learner.question()
        multiplier = noise_multiplier / math.sqrt(left * share / all_shares)
        moments = noisy_sum(parts[part], question, count, multiplier, generator, known_share)
        learner.learn(question, moments.total / divisor, moments.sigma / divisor)
        return Round(learner, part, question, count, known_share, moments)

    trials = [asked(part, first) for part in range(len(parts))]
    best = _best_part(learners, math.fsum(later) / first)
    yield from (trials[i] for i in (*(i for i in range(len(parts)) if i != best), best))
    for share in later:
        yield asked(best, share)


def _best_part(learners: Sequence[Learner], growth: float) -> int:
    """Return the number of the part that promises to explain most."""
    if len(learners) == 1:
        return 0
    explained = np.array([learner.prospect(growth) for learner in learners])
    explained[0] *= _FIRST
    return int(np.argmax(explained))


class Round(NamedTuple):
    """A round of a release."""

    learner: Learner
    """The student after it, which later rounds change."""
    part: int
    """The part of the features that it asks along."""
    question: MomentQuery
    num_voters: float
    """The number of voters, noisy if it is private."""
    known_share: float
    """About the share of their labels that voters know."""
    moments: NoisySum


class NoisySum(NamedTuple):
    """The release of one round."""

    total: FloatArray
    """``[R + 1, C]``, the noisy sum of the clipped ballots."""
    sigma: float
    """The standard deviation of the noise."""
    clip: float
    """The largest norm of a ballot."""


def noisy_count(number: float, noise_multiplier: float, generator: np.random.Generator) -> float:
    """Return a noisy number of voters, at least twice the standard deviation of its noise.

    One voter moves it by its weight.

    Sums are divided by it: where noise may be all that was counted, a smaller number would magnify
    noise.
    """
    noisy = add_gaussian(np.array([float(number)]), sigma=noise_multiplier, generator=generator)
    return max(float(noisy[0]), 2 * noise_multiplier)


def noisy_knowing(
    knowing: FloatArray, count: float, noise_multiplier: float, generator: np.random.Generator
) -> FloatArray:
    """Return noisy numbers ``[C]`` of the voters that know each label, out of about ``count``.

    One voter moves each of ``knowing`` ``[C]`` by 1 at most, and so all by ``sqrt(C)`` in L2. The
    noisy numbers are shrunk towards their mean. None is below twice the standard deviation of its
    noise, as in `noisy_count`, unless that is above ``count``.
    """
    sigma = noise_multiplier * math.sqrt(len(knowing))
    noisy = add_gaussian(knowing, sigma=sigma, generator=generator)
    shrunk = shrunk_means(noisy, np.full(len(noisy), sigma**2))
    return np.asarray(np.clip(shrunk, min(2 * sigma, count), count))


def noisy_sum(
    voters: Voters,
    question: MomentQuery,
    count: float,
    noise_multiplier: float,
    generator: np.random.Generator,
    known_share: float = 1.0,
) -> NoisySum:
    """Return a noisy sum of clipped ballots: a Gaussian mechanism of ``noise_multiplier`` in all.

    The search for the clip is included; it starts at the least norm that is worth it, for voters
    that know a ``known_share`` of their labels, and expects about ``count`` voters. Comparisons
    take a twentieth of the budget or, so that their noise stays within a sixth of the voters, up to
    a quarter; if it is then more than a third of them, nothing is clipped.
    """
    candidates, paid = clip_candidates(voters, question, known_share), 0.0
    steps, clip = math.ceil(math.log2(len(candidates))), question.largest_norm
    cheap, dear = (
        noise_multiplier * math.sqrt(steps / share) for share in (_MEDIAN_SHARE, MEDIAN_SHARE)
    )
    sigma = min(cheap, max(dear, count / MEDIAN_ERRORS))
    if steps and sigma <= count / 3:
        norms, weights = voters.norms(question), voters.weights
        median = noisy_median(
            norms, candidates, num_voters=count, sigma=sigma, generator=generator, weights=weights
        )
        clip, paid = MEDIAN_SPARE * median, steps * (noise_multiplier / sigma) ** 2
    deviation = 2 * clip * noise_multiplier / math.sqrt(1 - paid)
    total = add_gaussian(voters.clipped_sum(question, clip), sigma=deviation, generator=generator)
    return NoisySum(total, deviation, clip)


def clip_candidates(voters: Voters, question: MomentQuery, known_share: float) -> FloatArray:
    """Return the norms ``[m]`` among which the median is sought, ascending: public numbers."""
    norms = question.largest_norm * 2.0 ** (-np.arange(_CANDIDATES)[::-1] / _DOUBLINGS)
    least = voters.least_norm(question) * math.sqrt(known_share)
    return np.asarray(norms[np.append(norms[1:] > least, True)])


class Learner:
    """The student of noisy moments; public, since it sees only released sums and public features.

    Args:
        geometry: the public directions.
        num_labels: the number of labels.
        num_independent: about the number of samples on which a mean over all voters rests, of each
            label ``[C]`` or of all.
    """

    def __init__(
        self, geometry: Geometry, num_labels: int, num_independent: float | FloatArray
    ) -> None:
        self._geometry, self._num_independent = geometry, num_independent
        variances = geometry.variances
        shape = (len(variances), num_labels)
        ridge = (variances / (variances + variances.mean())) ** 2
        self._ridge = self._shares = ridge / ridge.sum()
        self._constant = _CONSTANT[1]
        self._levels, self._slopes, self._errors = (
            np.zeros(num_labels),
            np.zeros(shape),
            np.zeros(shape),
        )
        # of each round: precisions [R, 1] or [R, C], moments of residuals and of the student's own
        # answers [R, C], both in units of slopes
        self._rounds: list[tuple[FloatArray, FloatArray, FloatArray]] = []
        self._ratios, self.variance_ratio = np.ones((len(variances), 1)), 1.0
        self._level_precision: float | FloatArray = 0.0
        self._level_weighted = np.zeros(num_labels)
        self._evidence = np.zeros(num_labels)

    @classmethod
    def of(cls, voters: Voters, divisor: float | FloatArray) -> Self:
        """Return the student of means over about ``divisor`` voters, one number or ``[C]``.

        Of models it learns the mean, whatever number of samples they rest on.
        """
        independent = math.inf if voters.num_private is None else divisor
        return cls(voters.geometry, voters.num_labels, independent)

    def question(self) -> MomentQuery:
        """Return the question of the next round."""
        return MomentQuery(
            geometry=self._geometry,
            shares=self._shares,
            constant=self._constant,
            levels=self._levels,
            slopes=self._slopes,
        )

    def learn(self, question: MomentQuery, mean: FloatArray, deviation: float | FloatArray) -> None:
        """Add the noisy mean ``[R + 1, C]`` of ballots, with noise of ``deviation`` (``[C]``)."""
        samples, variances = self._geometry.samples, self._geometry.variances
        explained, weights = question.predictions(samples), question.weights
        moments = samples.T.astype(np.float64) @ explained * (self._geometry.unit / len(samples))
        scale = (weights * variances)[:, None]
        self._rounds.append(
            ((scale / deviation) ** 2, mean[:-1] / scale, moments / variances[:, None])
        )
        level_precision = (question.constant / deviation) ** 2
        self._level_weighted += (
            mean[-1] / question.constant + explained.mean(axis=0)
        ) * level_precision
        self._level_precision = self._level_precision + level_precision
        self._infer()

    @property
    def columns(self) -> BoolArray:
        """``[F]``, the features on which the answers depend."""
        return np.asarray(self._geometry.axes.any(axis=1))

    def prospect(self, growth: float) -> float:
        """Return the variance of the answers over public samples that later rounds would explain.

        It is expected of the posterior means, the sum over labels, once precision has grown by
        ``growth`` times its value so far, given what has been released. More than a label can vary,
        which noise alone may promise, counts as that much.
        """
        estimates, noise, drawn = self._estimated
        priors, losses = _losses(estimates, noise)
        losses = losses + losses.mean(axis=1, keepdims=True)
        weights = np.exp((losses.min(axis=0) - losses) / 2)
        later = (noise - drawn) / (1 + growth) + drawn
        explained = np.empty_like(losses)
        for i, prior in enumerate(priors):
            shrinkage = prior / (prior + noise)
            # the variance that the posterior loses is the variance that its mean gains
            gained = shrinkage * noise - prior * later / (prior + later)
            squares = (shrinkage * estimates) ** 2 + gained
            explained[i] = np.minimum(self._geometry.variances @ squares, _LARGEST_VARIANCE)
        return float((weights * explained / weights.sum(axis=0)).sum())

    def answers(self, features: FloatArray) -> tuple[FloatArray, BoolArray]:
        """Return linear answers ``[Q, C]`` to features ``[Q, F]``, and decisions ``[Q, C]``."""
        answers = self._geometry.linear(features) @ self._slopes + self._levels
        samples = self._geometry.samples.astype(np.float64) * self._geometry.unit
        fitted = samples @ self._slopes
        level, steepness = match_logistic_moments(self._levels, fitted)
        above, departs = self._departing(samples, level + steepness * fitted)
        return answers, np.where(departs, level + steepness * (answers - self._levels) > 0, above)

    def _infer(self) -> None:
        """Find the posterior of the slopes, and the next question."""
        lowest = 0.5 / len(self._geometry.samples)
        levels = self._level_weighted / self._level_precision
        self._levels = shrunk_means(levels, np.full(len(levels), 1 / self._level_precision)).clip(
            lowest, 1 - lowest
        )
        variances = self._geometry.variances[:, None]
        drawn = self._levels * (1 - self._levels) / self._num_independent / variances
        precisions, residuals, students = (
            np.array(parts) for parts in zip(*self._rounds, strict=True)
        )
        precision = precisions.sum(axis=0)
        residual = (precisions * residuals).sum(axis=0) / precision
        student = (precisions * students).sum(axis=0) / precision
        noise = 1 / precision + drawn

        def posterior() -> tuple[FloatArray, FloatArray, FloatArray]:
            estimates, errors = residual / self._ratios + student, noise / self._ratios**2
            shrinkage, self._evidence = _shrinkage(estimates, errors)
            return estimates * shrinkage, shrinkage * errors, shrinkage

        shrinkage = posterior()[2]
        # residuals are the moment of the labels, which has a normal prior with mean 0, minus the
        # ratio times the student's moment: normal in the ratio
        fixed = (1 - shrinkage) / noise
        changes = precisions * (students - student)
        known = fixed * student**2 + (changes * (students - student)).sum(axis=0)
        found = fixed * residual * student + (changes * residuals).sum(axis=0)
        prior = _RATIO_DEVIATION**-2
        ratios = (prior - found.sum(axis=1)) / (prior + known.sum(axis=1))
        self._ratios = np.maximum(ratios, 1)[:, None]
        moved = (changes * (students - student)).sum(axis=(0, 2))
        if moved.any():
            self.variance_ratio = float(moved @ self._ratios[:, 0] / moved.sum())
        self._slopes, self._errors, shrinkage = posterior()
        squared = self._ratios**2
        self._estimated = residual / self._ratios + student, noise / squared, drawn / squared
        # a direction's share follows its shrinkage, in addition to its share in the first round:
        # the rest goes to the constant
        wanted = shrinkage.mean(axis=1) + self._ridge
        self._shares = wanted / wanted.sum()
        self._constant = float(np.clip(wanted.sum() ** -0.5, *_CONSTANT))

    def _departing(self, samples: FloatArray, logits: FloatArray) -> tuple[BoolArray, BoolArray]:
        """Return the constant answers to labels ``[C]``, and which labels their model may decide.

        A decision of a model gains ``|2 p - 1|`` over the opposite one in expectation. The linear
        answers say how uncertain the sum is, by the posterior of slopes and levels.
        """
        level_error = 1 / self._level_precision
        # a label that most records have is denied as wrongly as others are given
        above = np.asarray(self._levels - np.sqrt(level_error) > 0.5)
        differ = (logits > 0) != above
        gains = (np.abs(2 * expit(logits) - 1) * differ).sum(axis=0)
        along = samples.T @ differ
        squares = 4 * (
            (along**2 * self._errors).sum(axis=0) + differ.sum(axis=0) ** 2 * level_error
        )
        enough = gains >= _SIGNIFICANT * np.sqrt(squares)
        # a prior that is found by noise is sure of itself: the label's own evidence says more
        evident = self._evidence >= _SIGNIFICANT**2 + 2 * math.log(len(gains))
        return above, labels_better_than_constant(gains, squares) & enough & evident & differ.any(
            axis=0
        )


def _shrinkage(estimates: FloatArray, noise: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the shrinkage of estimates ``[R, C]`` with ``noise`` variances, and evidence ``[C]``.

    A label's slopes have a Gaussian prior with the most likely variance, among ratios to the least
    noise; the mean log-likelihood of all labels counts as one label more. Evidence for slopes is
    twice the gain in the label's own log-likelihood over slopes of 0.
    """
    priors, losses = _losses(estimates, noise)
    chosen = np.argmin(losses + losses.mean(axis=1, keepdims=True), axis=0)
    evidence = losses[0] - losses[chosen, np.arange(len(chosen))]
    return priors[chosen] / (priors[chosen] + noise), evidence


def _losses(estimates: FloatArray, noise: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return prior variances ``[G]``, and twice the negative log-likelihood of each, ``[G, C]``."""
    squares, priors = estimates**2, _RATIOS * noise.min()
    losses = np.array(
        [(squares / (prior + noise) + np.log(prior + noise)).sum(axis=0) for prior in priors]
    )
    return priors, losses
