"""A model of one teacher: a ridge regression in closed form, fitted to a learning curve."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import least_squares
from scipy.special import expit, logit, ndtr, ndtri

from pate._planning.facts import TaskFacts
from pate._validation import FloatArray, require

_TYPICAL = (0.8, 1.5, 1.0)  # signal, noise and ridge without a curve
_FIRM = (0.1, 0.3, 0.1)  # the weights that pull logarithms (log-odds of the signal) to these
_POINT = 0.002  # the error of a point of a curve
_WORST = 0.02  # the largest error at which a learner explains a curve


@dataclass(frozen=True, kw_only=True)
class Learner:
    """A teacher as a ridge regression on its own records.

    A sample has a label if ``signal`` times its extent along the label's direction, plus
    independent noise that completes the variance to 1, exceeds a threshold. Along a direction with
    the share ``l`` of the variance of the features, a teacher of ``n`` records finds the true
    weight with noise of variance ``noise / n``, and shrinks it to ``l / (l + ridge / n)`` of its
    size. So teachers of few records make individual errors, which average out, and all understate
    the same weights, which does not.

    Args:
        signal: correlation of a label's extent with the features, 0 to 1.
        noise: variance of a weight learned from one record; 1.57 for a probit regression of a
            balanced label.
        ridge: the strength of the shrinkage, in records.
    """

    signal: float
    noise: float
    ridge: float

    def shrinkage(self, spectrum: FloatArray, records: float) -> FloatArray:
        """Return the factors ``[F]`` by which teachers shrink the weight of each direction."""
        return np.asarray(spectrum / (spectrum + self.ridge / records))

    def accuracy(self, facts: TaskFacts, records: float) -> float:
        """Return the share of labels that a teacher of ``records`` records gets right."""
        spectrum, thresholds = facts.spectrum, ndtri(1 - facts.densities)[:, None]
        shrinkage = self.shrinkage(spectrum, records)
        variance = self.signal**2 * float(shrinkage**2 @ spectrum)
        shared = self.signal**2 * float(shrinkage @ spectrum)
        nodes, weights = _quadrature()
        mean = math.sqrt(variance) * nodes
        unexplained = math.sqrt(max(1 - shared**2 / variance, 1e-12))
        true = ndtr((shared / variance * mean - thresholds) / unexplained)
        blur = math.sqrt(self.noise / records * (1 + float(shrinkage @ shrinkage)))
        given_label = ndtr((mean - thresholds) / blur)
        correct = true * given_label + (1 - true) * (1 - given_label)
        return float((correct @ weights).mean())


def fit_learner(facts: TaskFacts) -> Learner:
    """Return the learner that fits the curve of ``facts``, or a typical one without a curve.

    Each point has an error of 0.002. Parameters that few points leave undetermined stay near those
    of the typical learner.

    Raises:
        ValueError: if no learner comes within 0.02 of each point.
    """
    start = np.array([logit(_TYPICAL[0]), math.log(_TYPICAL[1]), math.log(_TYPICAL[2])])
    if facts.curve is None:
        return _learner(start)
    curve = facts.curve

    def misses(place: FloatArray) -> FloatArray:
        learner = _learner(place)
        errors = [
            (learner.accuracy(facts, records) - aim) / _POINT for records, aim in curve.items()
        ]
        return np.array([*errors, *((place - start) * _FIRM)])

    shifts = ((0, 0, 0), (-1, 0, -2), (2, 0, 1))
    fits = [least_squares(misses, start + np.array(shift), max_nfev=60) for shift in shifts]
    learner = _learner(min(fits, key=lambda fit: float(fit.cost)).x)
    for records, aim in curve.items():
        reached = learner.accuracy(facts, records)
        require(
            abs(reached - aim) <= _WORST,
            f"a learning curve that a linear teacher can follow (curve: {records} records)",
            accuracy=aim,
            nearest=round(reached, 4),
        )
    return learner


@lru_cache(maxsize=1)
def _quadrature() -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights of the mean over a standard normal variable."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    return nodes, weights / weights.sum()


def _learner(place: FloatArray) -> Learner:
    signal, noise, ridge = place
    return Learner(signal=float(expit(signal)), noise=math.exp(noise), ridge=math.exp(ridge))
