"""All rivals at the same epsilons, on the same records: PRIVATE figures, measured without accounting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from pate._core.accounting.accountant import COARSE_ORDERS
from pate._core.validation import (
    FloatArray,
    StrArray,
    UInt8Array,
    require,
    stage_bar,
)
from pate._labeling.linear import match_logistic_moments
from pate._labeling.runs.released import DECISION_METRICS, average_precision
from pate.accounting import Event, Target, calibrate_scale
from pate.data import DataSource, Records, Role
from pate.student import agreement, choose_thresholds
from scripts.rivals.contributions import Contributions, PublicScale
from scripts.rivals.descent import Descent, descend
from scripts.rivals.moments import (
    Moments,
    moments_event,
    noised_crosses,
    noised_moments,
    noisy_coding,
    solve_known,
    solve_ridge,
)

_MOST_FEATURES = 4096  # the moments of features are a square
_STEPS = 200
_RIDGE = 1e-3  # keeps weights finite where a label can be told without error


@dataclass(frozen=True, kw_only=True)
class Arena:
    """The records that rivals learn from and are judged on.

    Attributes:
        private: the contributions of the private records. PRIVATE.
        public: ``[P, F + 1]``, features of the public records.
        test: ``[M, F + 1]``, features of the test records on the same scale.
        truth: ``[M, C]`` in {0, 1}, their labels.
    """

    private: Contributions
    public: FloatArray
    test: FloatArray
    truth: UInt8Array

    def __post_init__(self) -> None:
        num_features = self.public.shape[1] - 1
        mapped = f"at most {_MOST_FEATURES} features: map them by PublicPCA or FrozenBackbone in data.yaml"
        require(num_features <= _MOST_FEATURES, mapped, features=num_features)

    @cached_property
    def products(self) -> FloatArray:
        """The mean of ``x x^T`` over public records, ``[F + 1, F + 1]``."""
        mean: FloatArray = self.public.T @ self.public / len(self.public)
        return mean


def arena_of(data: DataSource, unit: str) -> Arena:
    """Return the records of a source, for units that are a ``record`` or a ``group``."""
    private, public, test = (data.records(role) for role in (Role.PRIVATE, Role.PUBLIC, Role.TEST))
    scale = PublicScale.of(public.features)
    return Arena(
        private=Contributions.of(private, scale, _units(private, unit)),
        public=scale(public.features).astype(np.float64),
        test=scale(test.features).astype(np.float64),
        truth=test.labels,
    )


def _units(records: Records, unit: str) -> StrArray:
    if unit == "record":
        return records.ids
    require(records.groups is not None, "groups of the private records", unit=unit)
    assert records.groups is not None
    return records.groups


@dataclass(frozen=True, kw_only=True)
class Score:
    """One rival at one epsilon, on the test set: medians over seeds.

    An epsilon of infinity means no privacy. ``accuracy`` and ``macro_f1`` are of decisions for
    accuracy, as a student's are by default; the last figure is of decisions that serve it
    (`pate.student.choose_thresholds`).
    """

    rival: str
    target_epsilon: float
    accuracy: float
    macro_f1: float
    mAP: float  # noqa: N815
    macro_f1_at_its_cut: float


class Learned(NamedTuple):
    """Weights ``[F + 1, C]``, and the constant added to each ``features @ weights``."""

    weights: FloatArray
    shift: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Rival:
    """A way to learn privately.

    Attributes:
        name: its name in tables.
        event: the cost of learning at a noise multiplier, under REPLACE_RECORD.
        learn: the weights learned at a noise multiplier.
        logistic: whether that gives logits; it gives shares otherwise.
    """

    name: str
    event: Callable[[float], Event]
    learn: Callable[[float, np.random.Generator], Learned]
    logistic: bool = False


def rivals_of(arena: Arena, descent: Descent | None) -> list[Rival]:
    """Return the rivals that an arena allows; without ``descent`` only the ones of one release."""
    moments = cache(partial(Moments.of, arena.private))

    def by_moments(noise: float, generator: np.random.Generator) -> Learned:
        clip, shift, rest = noisy_coding(arena.private, noise, generator=generator)
        noised = noised_moments(moments(clip, shift), rest, generator=generator)
        return Learned(solve_ridge(noised, rest), shift)

    def by_crosses(noise: float, generator: np.random.Generator) -> Learned:
        clip, shift, rest = noisy_coding(arena.private, noise, generator=generator)
        noised = noised_crosses(moments(clip, shift), arena.products, rest, generator=generator)
        return Learned(solve_known(noised, rest), shift)

    rivals = [
        Rival(name="least squares", event=moments_event, learn=by_moments),
        Rival(name="least squares, public features", event=moments_event, learn=by_crosses),
    ]
    if descent is not None:
        eigenvalues: FloatArray = np.linalg.eigvalsh(arena.products).astype(np.float64)

        def by_descent(noise: float, generator: np.random.Generator) -> Learned:
            return Learned(descend(arena.private, eigenvalues, descent, noise, generator=generator))

        name = "logistic regression by DP-SGD"
        rivals.append(Rival(name=name, event=descent.event, learn=by_descent, logistic=True))
    return rivals


def hold(
    arena: Arena,
    rivals: Sequence[Rival],
    epsilons: Sequence[float],
    seeds: range,
    delta: float = 1e-6,
) -> list[Score]:
    """Measure all rivals at all epsilons, a draw for each seed, and without privacy. PRIVATE."""
    scores = []
    total = len(rivals) * len(epsilons) * len(seeds)
    with stage_bar(total, "rivals", unit="fit") as bar:
        for rival, epsilon in product(rivals, epsilons):
            target = Target(epsilon=epsilon, delta=delta, num_queries=1)
            noise = calibrate_scale(rival.event, target, tolerance=1e-4, orders=COARSE_ORDERS)
            drawn = []
            for seed in seeds:
                learned = rival.learn(noise, np.random.default_rng(seed))
                drawn.append(judged(arena, learned, logistic=rival.logistic))
                bar.update(1)
            middle = {name: float(np.median([each[name] for each in drawn])) for name in drawn[0]}
            scores.append(Score(rival=rival.name, target_epsilon=epsilon, **middle))
    exact = Learned(solve_ridge(Moments.of(arena.private, math.inf), 1e-9))
    weights = Learned(fit_without_privacy(arena.private))
    constant = arena.private.labels.mean(axis=0, keepdims=True).astype(np.float64)
    for name, found in {
        "constant answer": figures(constant, constant, arena.truth),
        "least squares": judged(arena, exact, logistic=False),
        "logistic regression": judged(arena, weights, logistic=True),
    }.items():
        scores.append(Score(rival=f"{name}, not private", target_epsilon=math.inf, **found))
    return scores


def judged(arena: Arena, learned: Learned, *, logistic: bool) -> dict[str, float]:
    """Return the figures of learned logits, or of shares, which are linked as a student's are."""
    public, test = (
        features @ learned.weights + learned.shift for features in (arena.public, arena.test)
    )
    if not logistic:
        means = public.mean(axis=0)
        level, steepness = match_logistic_moments(means, public - means)
        public, test = level + steepness * (public - means), level + steepness * (test - means)
    return figures(expit(public), expit(test), arena.truth)


def figures(public: FloatArray, test: FloatArray, truth: UInt8Array) -> dict[str, float]:
    """Return metrics of probabilities ``[M, C]`` of test records, cut by public ones ``[P, C]``."""
    right, probabilities = truth > 0, np.broadcast_to(test, truth.shape)
    at_cut = {
        name: agreement(probabilities > row, right)
        for name, row in zip(DECISION_METRICS, choose_thresholds(public), strict=True)
    }
    return {
        "accuracy": at_cut["accuracy"]["accuracy"],
        "macro_f1": at_cut["accuracy"]["macro_f1"],
        "mAP": float(average_precision(probabilities, right).mean()),
        "macro_f1_at_its_cut": at_cut["macro_f1"]["macro_f1"],
    }


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
