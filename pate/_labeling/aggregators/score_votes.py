"""Noisy sums of ballots that are moments, in rounds, and linear answers that follow from them.

`Learner` asks the questions of the rounds, and learns from the noisy answers. `ScoreVotes` pays for
them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, get_args

import numpy as np
from scipy.special import expit, logit, softmax

from pate._core.accounting.cost import NeighboringRelation
from pate._core.accounting.events import Event, GaussianEvent
from pate._core.mechanisms.noise import add_gaussian
from pate._core.validation import (
    BoolArray,
    FloatArray,
    expecting,
    require,
    require_positive,
)
from pate._labeling.aggregators.base import Aggregator, Release, features_of
from pate._labeling.aggregators.clipped_votes import (
    MEDIAN_ERRORS,
    MEDIAN_SHARE,
    MEDIAN_SPARE,
    noisy_median,
)
from pate._labeling.linear import labels_better_than_constant, match_logistic_moments, shrunk_means
from pate._labeling.votes.kinds import Ballots, Moments, Need, Scores, VoteShape
from pate._labeling.votes.voters import Geometry, MomentQuery, RecordVoters, ShapeQuery, Voters

Purpose = Literal["accuracy", "never_below_constant", "ranking"]
"""What a release is for."""


@dataclass(frozen=True, kw_only=True)
class Learning:
    """The settings of a `Learner`; none follows from records. Deviations are standard deviations.

    Attributes:
        prior_logits: prior variances of a label's logits to choose from, by which slopes along all
            directions of a part vary alike: none, and all that could matter. Labels that a line
            separates, along a narrow direction, have the largest ones.
        common_logits: the variance near which these are where noise tells little.
        constant: the least and the largest entry of a ballot that is the same for all samples. With
            1, levels would have half of a ballot's squared norm, and a seventeenth is enough.
        asked_logits: the prior variance of a label's logits that directions are asked for.
        narrow: the variance, in mean variances, of a direction that has half of this share: records
            vary more along narrow ones than public samples do, and have longer ballots.
        least_share: of all directions together, in proportion to their variances, in addition.
        ratio_deviation: the prior deviation of a ratio of variances around 1; rounds diverge at 2.
        open_levels: a level within so many deviations of one half is asked again.
        common_level: the mean level from which on ballots are shorter if they begin at one half.
            Then they have one norm, no clip is sought, and the number of voters barely matters.
        significant: deviations until a model is rarely worse than a constant.
        needed: deviations until labels seem to need a part after the first.
        thin: public samples that have a label, or lack it, below which the variance of a student's
            answers, over the number of samples, counts as noise `untold` times.
        least_penalty: of the student's slopes, in units of the curvature of its loss.
        linear: by which the share of errors in linear answers ties the student to them.
        steps: of descent at most, by which the student of a round is found.
        least_step: the change of a logit, for a deviation along a direction, at which it ends.
    """

    prior_logits: tuple[float, ...] = (0.0, *np.geomspace(0.1, 1e6, 29).tolist())
    common_logits: float = 1.5
    constant: tuple[float, float] = (0.05, 0.25)
    asked_logits: float = 4.0
    narrow: float = 0.1
    least_share: float = 1e-3
    ratio_deviation: float = 0.5
    open_levels: float = 1.5
    common_level: float = 0.25
    significant: float = 3.0
    needed: float = 2.0
    thin: float = 30.0
    untold: float = 6.0
    least_penalty: float = 1e-3
    linear: float = 100.0
    steps: int = 50
    least_step: float = 1e-4


LEARNING = Learning()
"""The settings of every release."""

_LARGEST = 1e30  # of a penalty


class Learner:
    """The student of noisy moments; public, since it sees only released sums and public features.

    Args:
        geometry: the public directions.
        num_labels: the number of labels.
        num_independent: about the number of samples on which a mean over all voters rests, of each
            label ``[C]`` or of all.
        later_share: the share of a ballot's squared norm, at most, that parts of the features after
            the first have until labels seem to need them.
        purpose: what decisions are for.
        plenty: about the number of voters for each unit of the noise multiplier of all rounds.
    """

    def __init__(
        self,
        geometry: Geometry,
        num_labels: int,
        num_independent: float | FloatArray,
        later_share: float = 1.0,
        purpose: Purpose = "accuracy",
        plenty: float = math.inf,
    ) -> None:
        self._geometry, self._num_independent = geometry, num_independent
        self._later_share, self._purpose, self._plenty = later_share, purpose, plenty
        variances = geometry.variances
        shape = (len(variances), num_labels)
        self._parts = [geometry.parts == part for part in np.unique(geometry.parts)]
        # [R], along the first part, and along others that labels seem to depend on
        self._needed = self._parts[0]
        self._shares = self._first = self._shares_of(np.full(num_labels, 0.25))
        self._constant = LEARNING.constant[1]
        self._levels, self._slopes, self._errors = (
            np.zeros(num_labels),
            np.zeros(shape),
            np.zeros(shape),
        )
        # the student: logits at the center [C], and their slopes [R, C]
        self._center, self._steep = np.zeros(num_labels), np.zeros(shape)
        # of each round: precisions [R, 1] or [R, C], moments of residuals and of the student's own
        # answers [R, C], both in units of slopes
        self._rounds: list[tuple[FloatArray, FloatArray, FloatArray]] = []
        self._asked: list[MomentQuery] = []
        self._ratios, self.variance_ratio = np.ones((len(variances), 1)), 1.0
        self._level_weighted, self._level_precision = np.zeros((2, num_labels))
        self._evidence = np.zeros(num_labels)

    def question(self) -> MomentQuery:
        """Return the question of the next round."""
        return MomentQuery(
            geometry=self._geometry,
            shares=self._shares,
            constant=self._constant,
            levels=expit(self._center) if self._asked else self._levels,
            slopes=self._steep,
        )

    def question_of_levels(self) -> MomentQuery | None:
        """Return a question about levels that may lie on either side of one half, or None."""
        near = np.abs(self._levels - 0.5) < LEARNING.open_levels * np.sqrt(self._level_errors)
        if not near.any():
            return None
        # before any was asked, as if a record had sqrt(C) labels
        common = self._levels[near].mean() if self._level_precision.any() else len(near) ** -0.5
        return MomentQuery(
            geometry=self._geometry,
            shares=np.zeros(len(self._shares)),
            constant=1.0,
            levels=0.5 * near * (common > LEARNING.common_level),
            slopes=np.zeros_like(self._slopes),
            asked=near,
        )

    def learn(self, question: MomentQuery, mean: FloatArray, deviation: float | FloatArray) -> None:
        """Add the noisy mean ``[R + 1, C]`` of ballots, with noise of ``deviation`` (``[C]``)."""
        samples, variances = self._geometry.samples, self._geometry.variances
        explained, weights = question.predictions(samples), question.weights
        level_precision = question.held * (question.constant / deviation) ** 2
        self._level_weighted += (
            mean[-1] / question.constant + explained.mean(axis=0)
        ) * level_precision
        self._level_precision += level_precision
        lowest, errors = 0.5 / len(samples), self._level_errors
        levels = _shrunk_levels(self._level_weighted * errors, errors)
        self._levels = levels.clip(lowest, 1 - lowest)
        self._center = logit(self._levels)
        if not self._rounds:
            self._shares = self._first = self._shares_of(self._levels * (1 - self._levels))
        if not question.shares.any():
            return
        moments = samples.T.astype(np.float64) @ explained * (self._geometry.unit / len(samples))
        scale = (weights * variances)[:, None]
        precision = np.broadcast_to((scale / deviation) ** 2, moments.shape)
        self._rounds.append((precision, mean[:-1] / scale, moments / variances[:, None]))
        self._asked.append(question)
        for _ in range(2):  # the second time with what the rounds missed by the first
            self._infer()
            self._match()

    @property
    def _level_errors(self) -> FloatArray:
        """Variances ``[C]`` of the levels; infinite before any of them was asked."""
        with np.errstate(divide="ignore"):
            return np.asarray(1 / self._level_precision)

    @property
    def columns(self) -> BoolArray:
        """``[F]``, the features that the answers depend on."""
        return np.asarray(self._geometry.axes.any(axis=1))

    def answers(self, features: FloatArray) -> tuple[FloatArray, BoolArray]:
        """Return linear answers ``[Q, C]`` to features ``[Q, F]``, and decisions ``[Q, C]``."""
        samples = self._geometry.samples.astype(np.float64) * self._geometry.unit
        fitted, levels, middle = samples @ self._steep, self._levels, np.zeros(1)
        above, departs = self._departing(samples, self._center + fitted)
        along = self._geometry.linear(features, self._steep)
        if self._geometry.place is not None:
            # the logistic student sees public samples at their own place
            fitted, middle = along, along.mean(axis=0)
            levels = expit(self._center + along).mean(axis=0)
        logits, inner = self._center + fitted, fitted - fitted.mean(axis=0)
        # the linear answers whose logistic student (`match_logistic_moments`) has these logits
        spread = np.maximum((inner**2).sum(axis=0), np.finfo(np.float64).tiny)
        factors = (inner * expit(logits)).sum(axis=0) / spread
        answers = levels + factors * (along - middle)
        return answers, np.where(departs, self._center + along > 0, above)

    def _infer(self) -> None:
        """Find the posterior of the slopes, and the next question."""
        variances = self._geometry.variances[:, None]
        drawn = self._levels * (1 - self._levels) / self._num_independent / variances
        released, residuals, students = (
            np.array(parts) for parts in zip(*self._rounds, strict=True)
        )
        # public samples vary otherwise than private ones, in proportion to what a round leaves to
        # be learned
        missed = self._missed()[:, None] / len(self._geometry.samples) / variances
        precisions = 1 / (1 / released + missed)
        precision = precisions.sum(axis=0)
        residual = (precisions * residuals).sum(axis=0) / precision
        student = (precisions * students).sum(axis=0) / precision
        noise = (precisions**2 / released).sum(axis=0) / precision**2 + drawn

        def posterior() -> tuple[FloatArray, FloatArray, FloatArray]:
            estimates, errors = residual / self._ratios + student, noise / self._ratios**2
            shrinkage = self._shrinkage(estimates, errors)
            return estimates * shrinkage, shrinkage * errors, shrinkage

        shrinkage = posterior()[2]
        # residuals are the moment of the labels, which has a normal prior with mean 0, minus the
        # ratio times the student's moment: normal in the ratio
        fixed = (1 - shrinkage) / noise
        changes = precisions * (students - student)
        known = fixed * student**2 + (changes * (students - student)).sum(axis=0)
        found = fixed * residual * student + (changes * residuals).sum(axis=0)
        prior = LEARNING.ratio_deviation**-2
        ratios = (prior - found.sum(axis=1)) / (prior + known.sum(axis=1))
        self._ratios = np.maximum(ratios, 1)[:, None]
        moved = (changes * (students - student)).sum(axis=(0, 2))
        if moved.any():
            self.variance_ratio = float(moved @ self._ratios[:, 0] / moved.sum())
        self._slopes, self._errors, shrinkage = posterior()
        # what the student of the first part leaves to be explained by others; it has the moments of
        # the labels on public samples, and others on records, which looks like bends where few of
        # these samples have a label
        answered = [i for i, each in enumerate(self._asked) if each.slopes.any()]
        if answered and not self._needed.all():
            left, samples = released[answered].sum(axis=0), self._geometry.samples
            mistaken = (
                LEARNING.untold * self.question().predictions(samples).var(axis=0) / len(samples)
            )
            mistaken *= len(samples) * np.minimum(self._levels, 1 - self._levels) < LEARNING.thin
            errors = 1 / left + drawn + mistaken / variances
            rest = (released[answered] * residuals[answered]).sum(axis=0) / left
            for part in self._parts[1:]:
                *_, gain = _shrinkage(rest[part], errors[part], self._prior(part))
                self._needed = self._needed | part & (gain >= LEARNING.needed**2)
        self._moments = (residual / self._ratios + student) * variances
        self._less = (1 / precision + drawn) / noise * (1 / np.maximum(shrinkage, 1 / _LARGEST) - 1)
        # a direction's share follows its shrinkage, in addition to its first share: the rest goes
        # to the constant
        wanted = shrinkage.mean(axis=1) + self._first
        self._shares = self._apportioned(wanted)
        self._constant = float(np.clip(wanted.sum() ** -0.5, *LEARNING.constant))
        self._slopes[~self._needed] = self._errors[~self._needed] = 0
        self._less[~self._needed] = _LARGEST

    def _missed(self) -> FloatArray:
        """Return the mean square ``[R, C]`` by which the student moved since each round."""
        now = self.question().predictions(self._geometry.samples)
        return np.array(
            [
                ((now - each.predictions(self._geometry.samples)) ** 2).mean(axis=0)
                for each in self._asked
            ]
        )

    def _match(self) -> None:
        """Find the logistic student whose moments on public samples are those of the labels.

        Its slopes have a penalty by which they are shrunk as those of the linear answers are, if
        they are small. Another pulls them towards these answers' own logistic fit, the more the
        less is known: few public samples, or much noise, do not tell the difference. Found by
        Nesterov's method, in float32: the curvature along each direction is at most a quarter.
        """
        samples, unit = self._geometry.samples, np.sqrt(self._geometry.variances)[:, None]
        rows = (samples * (self._geometry.unit / unit.T)).astype(np.float32)
        linear = self._slopes * unit
        fitted = (rows @ linear.astype(np.float32)).astype(np.float64)
        _, steepness = match_logistic_moments(self._levels, fitted)
        toward = steepness * linear
        tiny = 1e-20
        squares = np.maximum((toward**2).sum(axis=0), tiny)
        anchor = (1 / (1 + self._less)).sum(axis=0) / (len(rows) * squares)
        unsure = (self._errors * unit**2).sum(axis=0) / np.maximum((linear**2).sum(axis=0), tiny)
        anchor *= 1 + LEARNING.linear * unsure
        shrunk = self._levels * (1 - self._levels) * (self._less + LEARNING.least_penalty)
        before, slopes, center, momentum = toward, toward, self._center, 1.0
        for _ in range(LEARNING.steps):
            after = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
            look = slopes + (momentum - 1) / after * (slopes - before)
            predicted = expit(center.astype(np.float32) + rows @ look.astype(np.float32))
            gradient = rows.T @ predicted / len(rows) - self._moments / unit
            gradient += shrunk * look + anchor * (look - toward)
            before, momentum = slopes, after
            slopes = look - gradient / (0.25 + shrunk + anchor)
            raised = 4 * (self._levels - predicted.mean(axis=0, dtype=np.float64))
            center = center + raised
            if max(np.abs(slopes - before).max(), np.abs(raised).max()) < LEARNING.least_step:
                break
        self._center, self._steep = center, slopes / unit

    def _shrinkage(self, estimates: FloatArray, noise: FloatArray) -> FloatArray:
        """Return the shrinkage ``[R, C]``, by a prior for each part, and note the evidence."""
        of_parts = [
            _shrinkage(estimates[part], noise[part], self._prior(part)) for part in self._parts
        ]
        shrinkage, evidence, _ = zip(*of_parts, strict=True)
        self._evidence = np.sum(evidence, axis=0)
        return np.concatenate(shrinkage)

    def _prior(self, part: BoolArray) -> FloatArray:
        """Return variances ``[C]`` of slopes along the directions of a part for logits of 1."""
        spread = self._levels * (1 - self._levels)
        return np.asarray(spread**2 / self._geometry.variances[part].sum())

    def _shares_of(self, spread: FloatArray) -> FloatArray:
        """Return shares ``[R]`` by which slopes have the least posterior variance after all rounds.

        Labels have variances ``spread`` ``[C]``. The optimum adds precision until all that is asked
        has one posterior variance. What is narrower than that already is asked next to nothing. The
        first part has as much as all others, which share by their numbers of directions.
        """
        unheard = (2 * RecordVoters.spare / self._plenty) ** 2 * spread.sum()
        unheard /= LEARNING.asked_logits * (spread**2).mean()
        sizes = np.array([part.sum() for part in self._parts])
        sizes[0] = sizes[1:].sum() or 1
        wanted = []
        for part, share in zip(self._parts, sizes / sizes.sum(), strict=True):
            v = self._geometry.variances[part] / self._geometry.variances[part].sum()
            levelled = _levelled(unheard / share / v) * v / (v + LEARNING.narrow / len(v))
            wanted.append(share * (levelled + LEARNING.least_share * v))
        return self._apportioned(np.concatenate(wanted))

    def _apportioned(self, wanted: FloatArray) -> FloatArray:
        """Return the shares ``[R]`` of directions that follow ``wanted``, and add up to 1."""
        shares, later = wanted / wanted.sum(), ~self._needed
        share = float(shares[later].sum())
        if share > self._later_share:
            factors = self._later_share / share, (1 - self._later_share) / (1 - share)
            shares *= np.where(later, *factors)
        return np.asarray(shares)

    def _departing(self, samples: FloatArray, logits: FloatArray) -> tuple[BoolArray, BoolArray]:
        """Return the constant answers to labels ``[C]``, and which labels their model may decide.

        A decision of a model gains ``|2 p - 1|`` over the opposite one in expectation. The linear
        answers say how uncertain the sum is, by the posterior of slopes and levels.
        """
        level_error = self._level_errors
        # a label that most records have is denied as wrongly as others are given
        above = np.asarray(self._levels - np.sqrt(level_error) > 0.5)
        differ = (logits > 0) != above
        if self._purpose != "never_below_constant":
            return above, differ.any(axis=0)
        gains = (np.abs(2 * expit(logits) - 1) * differ).sum(axis=0)
        along = samples.T @ differ
        of_slopes = (along**2 * self._errors).sum(axis=0)
        squares = 4 * (of_slopes + differ.sum(axis=0) ** 2 * level_error)
        enough = gains >= LEARNING.significant * np.sqrt(squares)
        # a prior that is found by noise is sure of itself: the label's own evidence says more
        evident = self._evidence >= LEARNING.significant**2 + 2 * math.log(len(gains))
        return above, labels_better_than_constant(gains, squares) & enough & evident & differ.any(
            axis=0
        )


def _levelled(heights: FloatArray) -> FloatArray:
    """Return what fills up heights ``[R]`` to one level, and adds up to 1."""
    above = heights - heights.min()
    ascending = np.sort(above)
    levels = (1 + np.cumsum(ascending)) / np.arange(1, len(heights) + 1)
    level = levels[np.flatnonzero(levels > ascending)[-1]]
    return np.asarray(np.maximum(level - above, 0))


def _shrunk_levels(levels: FloatArray, variances: FloatArray) -> FloatArray:
    """Return levels ``[C]`` shrunk as `shrunk_means` are, each by its own variance."""
    free, center = len(levels) - 3, levels.mean()
    if free < 1:
        return levels
    prior = max(float(((levels - center) ** 2).sum()) / free - float(variances.mean()), 0.0)
    return np.asarray(center + prior / (prior + variances) * (levels - center))


def _shrinkage(
    estimates: FloatArray, noise: FloatArray, unit: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """Return shrinkage ``[R, C]`` of estimates with ``noise`` variances, evidence ``[C]``, and all.

    It is the mean over a Gaussian prior's variances, weighted by their likelihood, in which the
    mean log-likelihood of all labels counts as one label more, and by a half-Cauchy prior of their
    roots (Gelman (2006)). Evidence for slopes is twice the largest gain in log-likelihood over
    slopes of 0: of each label, and of one variance for all.
    """
    squares, priors = estimates**2, np.multiply.outer(LEARNING.prior_logits, unit)
    losses = np.array(
        [(squares / (prior + noise) + np.log(prior + noise)).sum(axis=0) for prior in priors]
    )
    together = losses + losses.mean(axis=1, keepdims=True)
    chosen = np.argmin(together, axis=0)
    # no slopes are as likely as the least
    variances = np.maximum(LEARNING.prior_logits, LEARNING.prior_logits[1])
    deviations = np.sqrt(variances / LEARNING.common_logits)[:, None]
    likely = softmax(-together / 2 - np.log(deviations + 1 / deviations), axis=0)
    parts = zip(priors, likely, strict=True)
    shrinkage = sum(weight * (prior / (prior + noise)) for prior, weight in parts)
    gains = losses[0] - losses
    evidence = gains[chosen, np.arange(len(chosen))]
    return np.asarray(shrinkage), evidence, float(gains.sum(axis=1).max())


@dataclass(frozen=True, kw_only=True)
class Spending:
    """The shares of the budget, as squared inverse multipliers; none follows from records.

    Attributes:
        count: of the number of voters, where it is private. Later rounds depend on it little.
        known: of the numbers of voters that know each label, where these are private; likewise.
        shape: of each of two rounds about the moments of records, where public samples may be
            shifted. The second asks about what the first left.
        least_square: the least variance of moved samples, in those before.
        median: of the comparisons for a clip, where so little is enough.
        level_rounds: rounds about levels of labels alone, which few records pay for first. After
            the first, only levels near one half are asked.
        level_error: the error of levels that their share pays for.
        many_labels: the number of labels from which on this share grows no more.
        least_levels: the share below which levels need a single round of their own, which makes
            later ballots shorter: others tell them, too.
        least_share: the least share of such a round.
        most_levels: the largest share of the budget for levels, so that slopes are learned, too.
        ranking_levels: the same where rankings count, which need no levels.
        enough_voters: voters for each direction of the first part, and unit of noise, below which
            no other part is asked.
        plenty_voters: the number from which on other parts have all of their share.
        later_share: of a ballot's squared norm, for other parts before labels seem to need them.
        clip_plenty: voters by a round's noise between which a clip grows from `Voters.spare`
            medians to 1.2.
        clip_candidates: norms among which the median is sought.
        clip_doublings: candidates for each factor of 2: a clip is 9% off at most.
    """

    count: float = 0.02
    known: float = 0.02
    shape: tuple[float, ...] = (0.03, 0.06)
    least_square: float = 0.1
    median: float = 0.05
    level_rounds: int = 3
    level_error: float = 0.05
    many_labels: int = 16
    least_levels: float = 0.1
    least_share: float = 0.01
    most_levels: float = 0.3
    ranking_levels: float = 0.15
    enough_voters: float = 20.0
    plenty_voters: float = 160.0
    later_share: float = 0.5
    clip_plenty: tuple[float, float] = (350.0, 1400.0)
    clip_candidates: int = 48
    clip_doublings: int = 4


SPENDING = Spending()
"""The shares of each release."""


@dataclass(frozen=True, kw_only=True)
class ScoreVotes(Aggregator):
    """Release linear answers to all queries, learned from noisy sums of voters' clipped moments.

    Choose it wherever queries have features, and voters are many, down to one for each record, or
    have scores to give: a score ranks where a vote of a small teacher is always no, and the noise
    follows the number of directions, whatever the number of queries. The answers are linear in the
    features. It is private linear learning by votes.

    A ballot is the mean product of a voter's weighted public coordinates and the residuals of its
    labels, or scores, from the public student of the rounds before. In each round ballots are
    clipped in L2 and added up: at 1.2 times their median norm, found by bisection among powers of
    ``2^(1/4)``, or, of records, at down to 0.8 times where noise is large, since noise follows the
    clip. Where the search would take much, the public student says the norm. The student's moments
    on public samples are added back, so that a round estimates the moments without bias as far as
    public samples are like private ones. They differ by more the more a student leaves to be
    learned: rounds are combined by the precision that is left after the mean square of its later
    changes, over the number of public samples. If private records vary more along a direction, the
    released residuals show it, since they change by more than the student's answers on public
    samples do: each direction has a ratio of both variances, at least 1, the posterior mean under a
    normal prior of mean 1 and deviation 1/2, by which its estimates are divided. The release holds
    their mean, weighted by the precision with which rounds tell them (``variance_ratio``). Linear
    answers are the posterior mean of all rounds under Gaussian priors, weighted by how likely these
    variances of its logits are for the label and, counted as one label more, for all labels: where
    noise tells little, variances near 1.5 are. The student is logistic: its moments on public
    samples are those that the rounds tell, its small slopes are shrunk as those of the linear
    answers, and these pull it towards their own logistic fit where public samples are few or noise
    is large. The first round shares a ballot's norm out so that the posterior variance of slopes
    would be least after all rounds, if logits had a prior variance of 4: wide directions have equal
    shares, and narrow ones, which noise hides, next to none. So more budget, or more voters, ask
    narrower directions. The next rounds give each the share by which the posterior is not shrunk
    there, and one of the first in all. Levels of labels have a seventeenth of the squared norm at
    most. A round about levels of labels alone comes before all others: for 0.01 of the budget, or
    up to 0.034 if an error of 0.05 takes as much.

    Few records tell little more than the labels that most of them have. They spend up to three
    tenths of the budget on levels first, in three rounds: as much as an error of 0.05 takes, by the
    noisy number of voters and that of labels (16 at most), if that is more than a tenth. A ballot
    then holds a voter's labels, or their differences from one half where these are shorter. The
    second and third of these rounds ask only for labels whose level is within one and a half
    deviations of one half, and take a share for so many. Without any they are left out.

    Where the features have parts, such as columns and how they bend (`pate.data.AutoFeatures`), a
    ballot is about all of them at once. Slopes have a prior for each part. Parts after the first
    have half a ballot's squared norm at most, by their numbers of directions. Each has slopes of 0
    until released sums show that labels depend on it: by two standard deviations of what a logistic
    student leaves, with one prior variance for all labels. Of a label that fewer than 30 public
    samples have, what these samples mistake in that student counts as noise. The half is
    proportionally less with fewer than 160 voters for each direction of the first part and unit of
    the noise multiplier. With fewer than 20, no other part is asked, nor where three rounds are
    about levels. The release names the columns that are asked.

    The release holds answers ``noisy_counts / num_teachers`` that are a linear function of the
    features (it is ``linear``), so that a linear student of them is that function itself, and
    decisions. A label departs from its constant answer, which gives it if its level is one standard
    deviation above one half, by the ``purpose`` of the release:

    - ``accuracy``: wherever the model differs: better on average, and now and then a little worse.
    - ``never_below_constant``: if the expected gain on public samples is three posterior standard
      deviations, and the label's own evidence agrees.
    - ``ranking``: as for accuracy, with a share of 0.15 at most for levels. Order among samples is
      better where records are few, and labels that most of them have may be denied.

    Privacy: an adaptive composition of Gaussian mechanisms (Koskela, Tobaben & Honkela (2023)),
    with squared inverse multipliers that add up to ``num_queries / multiplier_scores^2`` for a
    batch of any size. The share of a round follows from what was released before it, and what is
    left for later rounds, which spend all of it, does not depend on its outcome. Under
    REPLACE_RECORD one voter changes its ballot, which moves a comparison by one and the clipped sum
    by at most twice the clip, or ``sqrt(2)`` clips if no ballot has a negative entry; sums are
    exact. Under ADD_REMOVE_TEACHER an absent voter counts as zero after the centering, so that the
    sum moves by no more than the clip. The dearer figure is charged for both. The number of voters,
    where it is private, is counted first, with noise: one voter moves it by one. Sums are divided
    by this count, and all else is computed from noisy sums and public features (Dwork & Roth
    (2014), Proposition 2.1).

    If public samples may be shifted, which is declared and public, two rounds come first, which
    take 0.09 of the budget. Ballots hold a record's coordinates and their squares, clipped as
    others are, and public samples are moved and scaled to these noisy moments.

    If labels may be unknown, which is declared and public, a voter casts zero for a label that it
    does not know, after the centering: the clip bounds its ballot as before. How many voters know
    each label is private. These ``C`` counts are released with noise: one voter moves them by
    ``sqrt(C)`` in L2 under both relations, since each moves by one at most. They are shrunk towards
    their mean, and the sum of a label is divided by its own count.

    Args:
        multiplier_scores: noise multiplier of one query. A release of ``n`` queries has one that
            is smaller by ``sqrt(n)``.
        rounds: the share of the budget, as a squared inverse multiplier, of each round. They add up
            to 1, and a rest of rounding is divided out.
        purpose: what the release is for: ``accuracy``, ``never_below_constant`` or ``ranking``.
        neighboring_relation: the relation of the cost that is stated first.

    Raises:
        ValueError: on a multiplier or share that is not positive, or shares that do not add up to
            1.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("multiplier_scores",)
    takes: ClassVar[frozenset[Need]] = frozenset({"features", Ballots | Scores | Moments})

    multiplier_scores: float
    rounds: tuple[float, ...] = (0.1, 0.15, 0.25, 0.5)
    purpose: Purpose = "accuracy"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.purpose in get_args(Purpose),
            f"a purpose among {', '.join(get_args(Purpose))}",
            purpose=self.purpose,
        )
        with expecting("a list of shares in `rounds`", TypeError):
            object.__setattr__(self, "rounds", tuple(self.rounds))
        require_positive(**{f"rounds[{i}]": share for i, share in enumerate(self.rounds)})
        require(abs(sum(self.rounds) - 1) < 1e-9, "rounds that add up to 1", rounds=self.rounds)

    def event(
        self, shape: VoteShape, relation: NeighboringRelation | None = None, tier: int | None = None
    ) -> Event:
        """Describe the cost of one query."""
        return GaussianEvent(
            neighboring_relation=self.relation_of(relation), noise_multiplier=self.multiplier_scores
        )

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
        *_, last = released(self, votes.voters, len(mask), generator)
        answers, labels = last.learner.answers(features_of(votes))
        return Release(
            labels.astype(np.uint8),
            mask,
            noisy_counts=votes.num_teachers * answers,
            linear=True,
            columns=last.learner.columns if votes.voters.geometry.parts.any() else None,
            variance_ratio=last.learner.variance_ratio,
        )


def released(
    aggregator: ScoreVotes, voters: Voters, num_queries: int, generator: np.random.Generator
) -> Iterator[Round]:
    """Yield the rounds. Each asks a question of its own."""
    noise_multiplier, count = (
        aggregator.multiplier_scores / math.sqrt(num_queries),
        float(voters.num_voters),
    )
    left, private, knowing = 1.0, voters.num_private, voters.num_knowing
    if private is not None:
        count = noisy_count(private, noise_multiplier / math.sqrt(SPENDING.count), generator)
        left -= SPENDING.count
    divisor: float | FloatArray = count
    if knowing is not None:
        multiplier = noise_multiplier / math.sqrt(SPENDING.known)
        divisor = noisy_knowing(knowing, count, multiplier, generator)
        left -= SPENDING.known
    most = SPENDING.ranking_levels if aggregator.purpose == "ranking" else SPENDING.most_levels
    of_levels = share_of_levels(voters.num_labels, count, noise_multiplier, most)
    cheap = SPENDING.level_rounds * of_levels <= SPENDING.least_levels
    few = private is not None and not cheap
    first_part = voters.geometry.first_part
    plenty = count / (noise_multiplier * first_part.num_directions)
    if few or plenty < SPENDING.enough_voters:
        voters = voters.along(first_part)
    if voters.shifted:
        for share in SPENDING.shape:
            multiplier = noise_multiplier / math.sqrt(share)
            voters = voters.along(shifted_geometry(voters, count, multiplier, generator))
            left -= share
    learner = Learner(
        voters.geometry,
        voters.num_labels,
        # of models the mean is learned, whatever number of samples they rest on
        math.inf if private is None else divisor,
        SPENDING.later_share * min(1.0, plenty / SPENDING.plenty_voters),
        aggregator.purpose,
        count / noise_multiplier,
    )
    known_share = float(np.mean(divisor)) / count

    def asked(share: float, question: MomentQuery) -> Round:
        multiplier = noise_multiplier / math.sqrt(left * share)
        moments = noisy_sum(voters, question, count, multiplier, generator, known_share)
        learner.learn(question, moments.total / divisor, moments.sigma / divisor)
        return Round(learner, question, count, known_share, moments)

    rest = 1.0
    for _ in range(SPENDING.level_rounds if few else int(cheap)):
        question = learner.question_of_levels()
        if question is None:
            break
        share = share_of_levels(int(question.held.sum()), count, noise_multiplier, most)
        share = max(share, SPENDING.least_share)
        rest -= share
        yield asked(share, question)
    unit = rest / math.fsum(aggregator.rounds)
    for share in aggregator.rounds:
        yield asked(unit * share, learner.question())


def shifted_geometry(
    voters: Voters, count: float, noise_multiplier: float, generator: np.random.Generator
) -> Geometry:
    """Return the geometry with samples moved and scaled to the noisy moments of records.

    A Gaussian mechanism of ``noise_multiplier``. Changes along the directions of a part are shrunk
    as slopes are, and are 0 if noise may be all there is.
    """
    geometry = voters.geometry
    learner = Learner(geometry, 1, math.inf, SPENDING.later_share, plenty=count / noise_multiplier)
    question = ShapeQuery(**vars(learner.question()))
    sums = noisy_sum(voters, question, count, noise_multiplier, generator)
    noisy = question.moments(sums.total / count)
    errors = question.moments(np.full(question.ballot_shape, sums.sigma / count))
    changes = np.empty(noisy.shape)
    for part in np.unique(geometry.parts):
        along = geometry.parts == part
        means = _beyond_noise(noisy[0, along], errors[0, along])
        wider, error = noisy[1, along] - means**2 - 1, errors[1, along]
        precision = error**-2
        common = np.average(wider, weights=precision, keepdims=True)
        sure = _beyond_noise(common, precision.sum(keepdims=True) ** -0.5)
        changes[:, along] = means, sure + _beyond_noise(wider - common, error)
    return geometry.moved(changes[0], np.sqrt(np.maximum(1 + changes[1], SPENDING.least_square)))


def _beyond_noise(values: FloatArray, errors: FloatArray) -> FloatArray:
    """Return changes shrunk by their prior, or zeros if noise may be all there is."""
    shrinkage, _, evidence = _shrinkage(values[:, None], errors[:, None] ** 2, np.ones(1))
    return values * shrinkage[:, 0] * (evidence >= LEARNING.significant**2)


def share_of_levels(
    num_labels: int, count: float, noise_multiplier: float, most: float = SPENDING.most_levels
) -> float:
    """Return the share of the budget for a round about the levels of ``num_labels`` labels.

    It follows from the noisy number of voters: the nominal one of records is the largest there is.
    """
    needed = (noise_multiplier / count / SPENDING.level_error) ** 2
    return min(min(num_labels, SPENDING.many_labels) * needed, most) / SPENDING.level_rounds


class Round(NamedTuple):
    """A round of a release."""

    learner: Learner
    """The student after it, which later rounds change."""
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

    One voter moves it by 1.

    Sums are divided by it, and a smaller number would magnify noise.
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

    The search for the clip is included. It starts at the least norm that is worth it, for voters
    that know a ``known_share`` of labels, and expects about ``count`` voters. Comparisons
    take a twentieth of the budget. Where their noise would be more than a sixth of the voters, the
    norm that the public student expects is the median. Without one, comparisons take up to a
    quarter of the budget, and nothing is clipped if noise is then more than a third of the voters.
    """
    candidates, paid = clip_candidates(voters, question, known_share), 0.0
    steps, clip = math.ceil(math.log2(len(candidates))), question.largest_norm
    cheap, dear = (
        noise_multiplier * math.sqrt(steps / share) for share in (SPENDING.median, MEDIAN_SHARE)
    )
    sigma = min(cheap, max(dear, count / MEDIAN_ERRORS))
    expected = voters.expected_norm(question) * math.sqrt(known_share)
    plenty = count / noise_multiplier
    spare = np.interp(plenty, SPENDING.clip_plenty, (voters.spare, MEDIAN_SPARE))
    if expected and cheap > count / MEDIAN_ERRORS:
        clip = min(spare * expected, clip)
    elif steps and sigma <= count / 3:
        norms = voters.norms(question)
        median = noisy_median(norms, candidates, num_voters=count, sigma=sigma, generator=generator)
        clip, paid = spare * median, steps * (noise_multiplier / sigma) ** 2
    deviation = question.reach * clip * noise_multiplier / math.sqrt(1 - paid)
    total = add_gaussian(voters.clipped_sum(question, clip), sigma=deviation, generator=generator)
    return NoisySum(total, deviation, clip)


def clip_candidates(voters: Voters, question: MomentQuery, known_share: float) -> FloatArray:
    """Return the norms ``[m]`` among which the median is sought, ascending: public numbers."""
    norms = question.largest_norm * 2.0 ** (
        -np.arange(SPENDING.clip_candidates)[::-1] / SPENDING.clip_doublings
    )
    least = voters.least_norm(question) * math.sqrt(known_share)
    return np.asarray(norms[np.append(norms[1:] > least, True)])
