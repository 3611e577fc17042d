"""What one teacher learns from its records: a ridge regression in closed form, fitted to a learning curve."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import least_squares
from scipy.special import expit, logit, ndtr, ndtri

from pate._planning.facts import Facts
from pate._typing import FloatArray
from pate._validation import require

_TYPICAL = (0.8, 1.5, 1.0)  # signal, noise and ridge where no curve says more
_FIRM = (0.1, 0.3, 0.1)  # how firmly logarithms (log-odds of the signal) stay there
_POINT = 0.002  # the error of a point of a curve
_WORST = 0.02  # a curve that is missed by more is not one of a learner


@dataclass(frozen=True, kw_only=True)
class Learner:
    """A teacher as a ridge regression on its own records.

    A label is given where ``signal`` times the extent along its own direction, and independent
    noise for the rest of a unit of variance, exceed a threshold. Along a direction that holds the
    share ``l`` of the variance of the features, a teacher of ``n`` records finds the true weight
    with noise of variance ``noise / n``, and shrinks it to ``l / (l + ridge / n)`` of its size. So
    teachers of few records make errors of their own, which average out, and all understate the same
    weights, which does not.

    Args:
        signal: correlation of a label's extent with the features, 0 to 1.
        noise: variance of a weight learnt from one record; 1.57 for a probit regression of a
            balanced label.
        ridge: the records' worth of shrinkage.
    """

    signal: float
    noise: float
    ridge: float

    def shrinkage(self, spectrum: FloatArray, records: float) -> FloatArray:
        """Return the factors ``[F]`` by which teachers shrink the weight of each direction."""
        return np.asarray(spectrum / (spectrum + self.ridge / records))

    def accuracy(self, facts: Facts, records: float) -> float:
        """Return the share of labels that one teacher of so many records gets right on new samples."""
        spectrum, far = facts.spectrum, ndtri(1 - facts.densities)[:, None]
        shrinkage = self.shrinkage(spectrum, records)
        own_variance = self.signal**2 * float(shrinkage**2 @ spectrum)
        shared = self.signal**2 * float(shrinkage @ spectrum)
        nodes, weights = _quadrature()
        mean = math.sqrt(own_variance) * nodes
        unexplained = math.sqrt(max(1 - shared**2 / own_variance, 1e-12))
        true = ndtr((shared / own_variance * mean - far) / unexplained)
        blur = math.sqrt(self.noise / records * (1 + float(shrinkage @ shrinkage)))
        given_label = ndtr((mean - far) / blur)
        right = true * given_label + (1 - true) * (1 - given_label)
        return float((right @ weights).mean())


def fit_learner(facts: Facts) -> Learner:
    """Return the learner whose accuracy follows the curve of ``facts``; a typical one where there is no curve.

    Each point is fitted with an error of 0.002; what few points leave undetermined stays near the
    typical learner.

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
