"""The closed-form student: shrinkage and left-out answers are those of explicit refits, and noise
rarely departs."""

import math

import numpy as np
import pytest
from scipy.special import expit

from pate._labeling.linear import (
    _RATIOS,
    _RIDGE,
    Directions,
    _fit,
    _logistic,
    constant_logits,
    labels_better_than_constant,
    match_logistic_moments,
    ridge_posterior,
    shrunk_means,
)
from pate.student import fit_linear


def task(
    num: int, num_features: int, num_labels: int, *, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return features and the shares that a linear model gives them."""
    generator = np.random.default_rng(seed)
    features = generator.standard_normal((num, num_features))
    weights = generator.standard_normal((num_features, num_labels)) * 3 / num_features**0.5
    return features, expit(features @ weights + generator.normal(0, 0.5, num_labels))


def everywhere(targets: np.ndarray) -> np.ndarray:
    return np.ones(targets.shape, dtype=bool)


@pytest.mark.parametrize(("num", "num_features"), [(30, 4), (12, 40), (9, 9), (1, 5), (6, 1)])
def test_directions_put_features_back_together(num: int, num_features: int) -> None:
    features = 7 + np.random.default_rng(0).standard_normal((num, num_features))
    space = Directions.of(features)
    np.testing.assert_allclose(
        space.left * space.spread @ space.right.T, features - space.center, atol=1e-9
    )
    for columns in (space.left, space.right):
        np.testing.assert_allclose(columns.T @ columns, np.eye(len(space.spread)), atol=1e-7)
    assert len(space.spread) == min(num - 1, num_features) and (np.diff(space.spread) <= 0).all()


@pytest.mark.parametrize(
    ("num", "num_features", "noise_std"), [(25, 3, 0.01), (10, 30, 0.01), (25, 3, 0.3)]
)
def test_posterior_means_are_those_of_a_gaussian_process(
    num: int, num_features: int, noise_std: float
) -> None:
    """By one linear system for each label, with the prior that is the most likely for it and for
    all labels."""
    features, shares = task(num, num_features, 4)
    targets = shares + np.random.default_rng(1).normal(0, 0.05, shares.shape)
    centered = targets - targets.mean(axis=0)
    space = Directions.of(features)
    weights, shrinkage, noise = ridge_posterior(space, centered, noise_std)
    inner = features - features.mean(axis=0)

    def surprise(ratio: float, label: int) -> float:
        """Minus the log-likelihood of centered targets, the noise being its most likely one."""
        covariance = np.eye(num) + ratio / space.spread[0] ** 2 * inner @ inner.T
        residual = centered[:, label] @ np.linalg.solve(covariance, centered[:, label])
        level = max(residual / (num - 1), noise_std**2)
        return float(
            ((num - 1) * np.log(level) + residual / level + np.linalg.slogdet(covariance)[1]) / 2
        )

    np.testing.assert_allclose(_RATIOS, [0, *(10 ** (k / 4) for k in range(-12, 21))])
    losses = np.array(
        [[surprise(ratio, label) for label in range(4)] for ratio in _RATIOS.tolist()]
    )
    best = np.argmin(losses + losses.mean(axis=1, keepdims=True), axis=0)
    assert _RATIOS[best].all()
    for label, ratio in enumerate(_RATIOS[best].tolist()):
        assert shrinkage[0, label] / (1 - shrinkage[0, label]) == pytest.approx(ratio)
        prior = ratio / space.spread[0] ** 2 * noise[label] * inner @ inner.T
        mean = prior @ np.linalg.solve(prior + noise[label] * np.eye(num), centered[:, label])
        np.testing.assert_allclose(space.left @ weights[:, label], mean, atol=1e-7)


@pytest.mark.parametrize("noise_std", [None, 0.3, 1e-5])
@pytest.mark.parametrize(("num", "num_features"), [(20, 3), (6, 20), (30, 3)])
def test_gains_are_those_of_refits(num: int, num_features: int, noise_std: float | None) -> None:
    """Answers without one sample are those of a ridge regression of the others, with the prior as
    it is."""
    features, shares = task(num, num_features, 60)
    targets = (shares > 0.5).astype(float) if noise_std is None else shares
    raw = targets.mean(axis=0)
    space = Directions.of(features)
    _, kept, noise = ridge_posterior(space, targets - raw, noise_std or 0.0)
    means = shrunk_means(raw, noise / num)
    constant = means - 0.5 * (noise_std or 0.0) / math.sqrt(num) > 0.5
    refits = np.empty(targets.shape)
    for j, share in enumerate(kept[0].tolist()):
        penalty = space.spread[0] ** 2 * ((1 - share) / share if share else 1e12)
        for i in range(num):
            rest = np.arange(num) != i
            center, level = features[rest].mean(axis=0), targets[rest, j].mean()
            inner, outer = features[rest] - center, features[i] - center
            moments = inner.T @ (targets[rest, j] - level)
            slopes = np.linalg.solve(inner.T @ inner + np.eye(num_features) * penalty, moments)
            refits[i, j] = means[j] - raw[j] + level + outer @ slopes
    terms = np.where((refits > 0.5) != constant, np.where(constant, -1, 1) * (2 * targets - 1), 0)
    assert terms.any()
    _, constants, found = _fit(features, targets, noise_std)
    np.testing.assert_allclose(found.sum(axis=0), terms.sum(axis=0), atol=1e-9)
    np.testing.assert_allclose((found**2).sum(axis=0), (terms**2).sum(axis=0), atol=1e-9)
    expected = np.clip(np.where(constant, means, means.clip(0, 0.5)), 0.5 / num, 1 - 0.5 / num)
    np.testing.assert_allclose(expit(constants), expected, atol=1e-6)


@pytest.mark.parametrize("law", ["standard_normal", "standard_cauchy"])
def test_the_link_meets_both_moments_whatever_the_law_of_the_answers(law: str) -> None:
    """The second where the slope is within its bounds; beyond them it is on the side where they
    end."""
    generator = np.random.default_rng(4)
    fitted = getattr(generator, law)((60, 400))
    fitted -= fitted.mean(axis=0)
    fitted *= 10 ** generator.uniform(-3, 0, 400) / fitted.std(axis=0)
    means = expit(generator.normal(0, 3, 400))
    level, steepness = match_logistic_moments(means, fitted)
    predicted, slopes = expit(level + steepness * fitted), steepness * fitted.std(axis=0)
    np.testing.assert_allclose(
        predicted.mean(axis=0), means.clip(0.5 / 60, 1 - 0.5 / 60), rtol=1e-9
    )
    surplus = (predicted * fitted).mean(axis=0) / (fitted**2).mean(axis=0) - 1
    assert (surplus[slopes < 5.999] > -1e-6).all() and (surplus[slopes > 0.001] < 1e-6).all()
    assert ((slopes > 0.001) & (slopes < 5.999)).mean() > 0.2


def test_logistic_models_are_stationary_under_a_penalty_on_narrow_directions() -> None:
    features, shares = task(300, 4, 3, seed=1)
    space = Directions.of(features * [1.0, 1.0, 0.3, 0.01])
    intercepts, slopes = _logistic(space, shares)
    left = expit(intercepts + space.left @ slopes) - shares
    # slopes along the last direction, whose spread is a hundredth, are held back
    penalty = np.array([[_RIDGE * (space.spread[0] / width) ** 2] for width in space.spread])
    np.testing.assert_allclose(left.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(space.left.T @ left, -penalty * slopes, atol=1e-3)
    assert np.abs(penalty * slopes)[-1].max() > 0.1


def test_masked_targets_have_no_influence() -> None:
    features, shares = task(200, 3, 5)
    mask = np.random.default_rng(0).random(shares.shape) < 0.7
    first, second = (
        fit_linear(features, np.where(mask, shares, spoilt), mask, noise_std=0.05)
        for spoilt in (0.0, 1e9)
    )
    np.testing.assert_array_equal(first.weights, second.weights)
    # a label that shares no mask with another is what it is by itself
    for j in (0, 3):
        alone = fit_linear(
            features[mask[:, j]],
            shares[mask[:, j]][:, [j]],
            np.ones((mask[:, j].sum(), 1)),
            noise_std=0.05,
        )
        np.testing.assert_allclose(alone.weights[:, 0], first.weights[:, j], atol=1e-9)


def test_a_label_of_which_nothing_is_known_is_denied() -> None:
    features, shares = task(40, 3, 3)
    mask = everywhere(shares)
    mask[:, 1] = False
    student = fit_linear(features, shares, mask, noise_std=0.05)
    assert not student.predict(features)[:, 1].any() and student.departs.tolist() == [
        True,
        False,
        True,
    ]
    for num in (0, 1):
        few = fit_linear(features[:num], shares[:num], mask[:num])
        assert not few.departs.any() and np.isfinite(few.predict(features)).all()
        assert (few.predict(features)[:, 1] == 0).all()
    assert (fit_linear(features[:0], shares[:0], mask[:0]).predict(features) == 0).all()
    assert (fit_linear(features[:1], shares[:1], mask[:1]).predict(features)[:, 0] > 0.47).all()


@pytest.mark.parametrize("seed", range(6))
def test_departures_are_those_of_the_definition(seed: int) -> None:
    generator = np.random.default_rng(seed)
    for num in (1, 2, 5, 9, 40):
        squares = generator.exponential(10, num)
        gains = np.sqrt(squares) * generator.normal(0.7, 1.5, num)
        gains[0] = -np.sqrt(squares[0])  # worse by a standard error, and no more than that
        candidates = sorted(
            (j for j in range(num) if gains[j] >= -np.sqrt(squares[j])),
            key=lambda j: -gains[j] / np.sqrt(squares[j]),
        )
        sizes = [
            size
            for size in range(1, len(candidates) + 1)
            if gains[candidates[:size]].sum()
            >= math.sqrt(
                (4 + 2 * math.log(math.comb(num, size))) * squares[candidates[:size]].sum()
            )
        ]
        expected = candidates[: max(sizes, default=0)]
        assert np.flatnonzero(labels_better_than_constant(gains, squares)).tolist() == sorted(
            expected
        )
    assert labels_better_than_constant(np.array([2.0]), np.array([1.0])).all(), (
        "at the bound itself"
    )


def test_means_of_four_labels_are_shrunk_and_of_three_are_not() -> None:
    means, variances = np.array([0.1, 0.3, 0.5, 0.9]), np.array([0.01, 0.02, 0.03, 0.02])
    np.testing.assert_array_equal(shrunk_means(means[:3], variances[:3]), means[:3])
    # by Efron and Morris: (n - 3) times the variance, over the sum of squares around the mean
    share = 1 - 0.02 / (0.35**2 + 0.15**2 + 0.05**2 + 0.45**2)
    np.testing.assert_allclose(shrunk_means(means, variances), 0.45 + share * (means - 0.45))
    np.testing.assert_allclose(shrunk_means(means, variances * 100), 0.45)


@pytest.mark.parametrize("noise_std", [None, 0.05, 5.0])
def test_constant_answers_are_shrunk_means_of_what_was_released(noise_std: float | None) -> None:
    """Label by label, with the variance that its answers have, or the known one if that is more."""
    generator = np.random.default_rng(0)
    shares, mask = generator.random((30, 7)) ** np.arange(1, 8), generator.random((30, 7)) < 0.7
    mask[:, 3] = False
    mask[1:, 5], mask[2:, 6] = False, False
    mask[0, 5] = mask[:2, 6] = True
    released = [shares[mask[:, j], j] for j in range(7) if j != 3]
    variances = [label.var(ddof=1) if len(label) > 1 else 0.0 for label in released]
    known = (noise_std or 0) ** 2
    means = shrunk_means(
        np.array([label.mean() for label in released]),
        np.array(
            [
                max(variance, known) / len(label)
                for label, variance in zip(released, variances, strict=True)
            ]
        ),
    )
    half = 0.5 / np.array(list(map(len, released)))
    expected = means.clip(half, 1 - half)
    if noise_std is not None:
        above = means - 0.5 * noise_std * np.sqrt(2 * half) > 0.5
        expected = np.where(above, expected, expected.clip(0, 0.5))
    answers = expit(constant_logits(shares, mask, noise_std=noise_std))
    assert answers[3] == 0
    np.testing.assert_allclose(np.delete(answers, 3), expected, atol=1e-6)


def test_a_label_whose_mean_is_noise_is_denied() -> None:
    """Noise of 10 in 100 shares hides whether their mean is above one half; noise of 1 does not."""
    generator = np.random.default_rng(0)
    features, mask = generator.random((100, 2)), np.ones((100, 3), dtype=np.bool_)
    noise = generator.normal(size=(100, 3))
    noise -= noise.mean(axis=0)
    for noise_std, given_labels in ((1.0, [True, True, False]), (10.0, [False] * 3)):
        shares = [0.7, 0.8, 0.4] + noise_std * noise
        assert (constant_logits(shares, mask, noise_std=noise_std) > 0).tolist() == given_labels
        student = fit_linear(features, shares, mask, noise_std=noise_std)
        assert not student.departs.any()
        decided = student.predict(features) > 0.5
        np.testing.assert_array_equal(decided, np.tile(given_labels, (100, 1)))
