"""The public student of noisy moments: it asks the questions of the rounds of score votes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import expit, softmax

from pate._core.validation import BoolArray, FloatArray
from pate._labeling.linear import labels_better_than_constant, match_logistic_moments
from pate._labeling.votes.voters import Geometry, MomentQuery

Purpose = Literal["accuracy", "never_below_constant", "ranking"]
"""What a release is for."""


@dataclass(frozen=True, kw_only=True)
class Learning:
    """The settings of a `Learner`; none follows from records. Deviations are standard deviations.

    Attributes:
        prior_ratios: a slope's prior variances to choose from, over the least noise: none, and all
            that could matter.
        constant: the least and the largest entry of a ballot that is the same for all samples. With
            1, levels would have half of a ballot's squared norm, and a seventeenth is enough.
        penalty: the variance, in mean variances, from which on a direction is asked with half of
            its share in the first round. Less would ask all directions alike, where noise leaves a
            few of the widest ones.
        ratio_deviation: the prior deviation of a ratio of variances around 1. Rounds diverge from a
            ratio of 2 on.
        open_levels: a level within so many deviations of one half is asked again.
        common_level: the mean level from which on ballots are shorter if they begin at one half.
            Then they have one norm, no clip is sought, and the number of voters barely matters.
        significant: deviations until a model is rarely worse than a constant, over many
            labels and releases.
        likely: deviations until it is better than a constant on average.
        level_weight: by which the deviation of a level counts more than that of slopes, which have
            a prior.
        needed: deviations until labels seem to need parts after the first.
    """

    prior_ratios: tuple[float, ...] = (0.0, *np.geomspace(1e-3, 1e7, 41).tolist())
    constant: tuple[float, float] = (0.05, 0.25)
    penalty: float = 4.0
    ratio_deviation: float = 0.5
    open_levels: float = 1.5
    common_level: float = 0.25
    significant: float = 3.0
    likely: float = 1.0
    level_weight: float = 2.0
    needed: float = 2.0


LEARNING = Learning()
"""The settings of every release."""


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
    """

    def __init__(
        self,
        geometry: Geometry,
        num_labels: int,
        num_independent: float | FloatArray,
        later_share: float = 1.0,
        purpose: Purpose = "accuracy",
    ) -> None:
        self._geometry, self._num_independent = geometry, num_independent
        self._later_share, self._purpose = later_share, purpose
        variances = geometry.variances
        shape = (len(variances), num_labels)
        self._parts = [geometry.parts == part for part in np.unique(geometry.parts)]
        self._needed = False  # whether labels seem to depend on parts after the first
        # directions of little variance do not change the penalty
        kept = np.concatenate(
            [
                v / (v + LEARNING.penalty * (v**2).sum() / v.sum())
                for v in map(variances.__getitem__, self._parts)
            ]
        )
        self._shares, self._least = self._apportioned(kept), self._apportioned(kept**2)
        self._constant = LEARNING.constant[1]
        self._levels, self._slopes, self._errors = (
            np.zeros(num_labels),
            np.zeros(shape),
            np.zeros(shape),
        )
        # of each round: precisions [R, 1] or [R, C], moments of residuals and of the student's own
        # answers [R, C], both in units of slopes
        self._rounds: list[tuple[FloatArray, FloatArray, FloatArray]] = []
        self._ratios, self.variance_ratio = np.ones((len(variances), 1)), 1.0
        self._level_weighted, self._level_precision = np.zeros((2, num_labels))
        self._evidence = np.zeros(num_labels)

    def question(self) -> MomentQuery:
        """Return the question of the next round."""
        return MomentQuery(
            geometry=self._geometry,
            shares=self._shares,
            constant=self._constant,
            levels=self._levels,
            slopes=self._slopes,
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
        if not question.shares.any():
            return
        moments = samples.T.astype(np.float64) @ explained * (self._geometry.unit / len(samples))
        scale = (weights * variances)[:, None]
        self._rounds.append(
            ((scale / deviation) ** 2, mean[:-1] / scale, moments / variances[:, None])
        )
        self._infer()

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
        answers = self._geometry.linear(features, self._slopes) + self._levels
        samples = self._geometry.samples.astype(np.float64) * self._geometry.unit
        fitted = samples @ self._slopes
        level, steepness = match_logistic_moments(self._levels, fitted)
        above, departs = self._departing(samples, level + steepness * fitted)
        return answers, np.where(departs, level + steepness * (answers - self._levels) > 0, above)

    def _infer(self) -> None:
        """Find the posterior of the slopes, and the next question."""
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
        # a direction's share follows its shrinkage, in addition to one that favors wide
        # directions: the rest goes to the constant
        wanted = shrinkage.mean(axis=1) + self._least
        self._shares = self._apportioned(wanted)
        self._constant = float(np.clip(wanted.sum() ** -0.5, *LEARNING.constant))
        if not self._needed:
            self._slopes[~self._parts[0]] = self._errors[~self._parts[0]] = 0

    def _shrinkage(self, estimates: FloatArray, noise: FloatArray) -> FloatArray:
        """Return the shrinkage ``[R, C]``, by a prior for each part, and note the evidence."""
        of_parts = [_shrinkage(estimates[part], noise[part]) for part in self._parts]
        shrinkage, evidence, together = zip(*of_parts, strict=True)
        self._evidence = np.sum(evidence, axis=0)
        self._needed = max(together[1:], default=0.0) >= LEARNING.needed**2
        return np.concatenate(shrinkage)

    def _apportioned(self, wanted: FloatArray) -> FloatArray:
        """Return the shares ``[R]`` of directions that follow ``wanted``, and add up to 1."""
        shares, later = wanted / wanted.sum(), ~self._parts[0]
        share = float(shares[later].sum())
        if share > self._later_share and not self._needed:
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
        gains = (np.abs(2 * expit(logits) - 1) * differ).sum(axis=0)
        along = samples.T @ differ
        slopes = (along**2 * self._errors).sum(axis=0)
        level = differ.sum(axis=0) ** 2 * level_error
        if self._purpose != "never_below_constant":
            likely = np.sqrt(slopes + LEARNING.level_weight**2 * level)
            return above, (gains >= 2 * LEARNING.likely * likely) & differ.any(axis=0)
        squares = 4 * (slopes + level)
        enough = gains >= LEARNING.significant * np.sqrt(squares)
        # a prior that is found by noise is sure of itself: the label's own evidence says more
        evident = self._evidence >= LEARNING.significant**2 + 2 * math.log(len(gains))
        return above, labels_better_than_constant(gains, squares) & enough & evident & differ.any(
            axis=0
        )


def _shrunk_levels(levels: FloatArray, variances: FloatArray) -> FloatArray:
    """Return levels ``[C]`` shrunk as `shrunk_means` are, each by its own variance."""
    free, center = len(levels) - 3, levels.mean()
    if free < 1:
        return levels
    prior = max(float(((levels - center) ** 2).sum()) / free - float(variances.mean()), 0.0)
    return np.asarray(center + prior / (prior + variances) * (levels - center))


def _shrinkage(estimates: FloatArray, noise: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Return shrinkage ``[R, C]`` of estimates with ``noise`` variances, evidence ``[C]``, and all.

    It is the mean over a Gaussian prior's variances, weighted by their likelihood, in which the
    mean log-likelihood of all labels counts as one label more. Evidence for slopes is twice the
    largest gain in log-likelihood over slopes of 0: of each label, and of one variance for all.
    """
    squares, priors = estimates**2, np.array(LEARNING.prior_ratios) * noise.min()
    losses = np.array(
        [(squares / (prior + noise) + np.log(prior + noise)).sum(axis=0) for prior in priors]
    )
    together = losses + losses.mean(axis=1, keepdims=True)
    chosen = np.argmin(together, axis=0)
    parts = zip(priors, softmax(-together / 2, axis=0), strict=True)
    shrinkage = sum(weight * (prior / (prior + noise)) for prior, weight in parts)
    gains = losses[0] - losses
    evidence = gains[chosen, np.arange(len(chosen))]
    return np.asarray(shrinkage), evidence, float(gains.sum(axis=1).max())
