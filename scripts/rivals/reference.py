"""A logistic regression without privacy, on the same features as the rivals'."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from pate._core.validation import FloatArray
from scripts.rivals.contributions import Contributions

_STEPS = 200
_RIDGE = 1e-3  # keeps weights finite where a label can be told without error


def fit_without_privacy(private: Contributions) -> FloatArray:
    """Return weights ``[F, C]`` of the least logistic loss over all units, by L-BFGS. PRIVATE."""
    x, labels = private.features.astype(np.float64), private.labels.astype(np.float64)
    size = (x.shape[1], labels.shape[1])
    shares = private.shares[:, None]

    def loss(flat: FloatArray) -> tuple[float, FloatArray]:
        weights = flat.reshape(size)
        logits = x @ weights
        total = (shares * (np.logaddexp(0, logits) - labels * logits)).sum() + _RIDGE / 2 * (
            flat**2
        ).sum()
        slope = x.T @ (shares * (expit(logits) - labels)) + _RIDGE * weights
        return float(total), slope.ravel()

    options = {"maxiter": _STEPS, "ftol": 1e-7}
    optimum = minimize(loss, np.zeros(size).ravel(), jac=True, method="L-BFGS-B", options=options)
    weights: FloatArray = optimum.x.reshape(size)
    return weights
