"""The linear student: its fits are what they say, and noise in shares is borne."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from pate.student.linear import LinearStudent, _fit, _with_intercept, fit_logistic, fit_released, fit_shares


def task(num: int = 400, num_labels: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, the shares of teachers, and directions that are of rank 2 among the labels."""
    generator = np.random.default_rng(seed)
    features = generator.standard_normal((num, 5))
    weights = generator.standard_normal((5, 2)) @ generator.standard_normal((2, num_labels))
    return features, expit(features @ weights), weights


def test_logistic_fit_is_the_minimum_of_its_loss() -> None:
    features, shares, _ = task(60, 3)
    targets = shares + np.random.default_rng(1).normal(0, 0.4, shares.shape)
    mask = np.random.default_rng(2).random(shares.shape) < 0.8
    x = _with_intercept(features)
    weights, _ = _fit(x, targets, mask.astype(float), 2.0, np.zeros((6, 3)))
    for j in range(3):

        def loss(w: np.ndarray, j: int = j) -> float:
            z = x[mask[:, j]] @ w
            return float((np.logaddexp(0, z) - targets[mask[:, j], j] * z).sum() + w[:-1] @ w[:-1] + 5e-4 * w[-1] ** 2)

        np.testing.assert_allclose(weights[:, j], minimize(loss, np.zeros(6), tol=1e-12).x, atol=1e-4)


def test_left_out_loss_is_that_of_fits_without_each_sample() -> None:
    features, shares, _ = task(60, 2)
    targets = shares + np.random.default_rng(1).normal(0, 0.3, shares.shape)
    x, seen = _with_intercept(features), np.ones(shares.shape)
    _, approximate = _fit(x, targets, seen, 3.0, np.zeros((6, 2)))
    exact = np.zeros(2)
    for i in range(len(x)):
        kept = np.arange(len(x)) != i
        weights, _ = _fit(x[kept], targets[kept], seen[kept], 3.0, np.zeros((6, 2)))
        z = x[i] @ weights
        exact += np.logaddexp(0, z) - targets[i] * z
    np.testing.assert_allclose(approximate, exact, rtol=0.01)


def test_entries_outside_the_mask_have_no_part() -> None:
    features, shares, _ = task()
    mask = np.random.default_rng(0).random(shares.shape) < 0.5
    spoilt = np.where(mask, shares, 9.0)
    first, second = (fit_logistic(features, each, mask).weights for each in (shares, spoilt))
    np.testing.assert_array_equal(first, second)


def test_shares_without_much_noise_are_least_squares() -> None:
    features, shares, _ = task()
    student = fit_shares(features, shares, noise_std=1e-6)
    direct = np.linalg.lstsq(_with_intercept(features), shares, rcond=None)[0]
    np.testing.assert_allclose(student.weights, direct, atol=1e-8)
    assert not student.logistic


def test_noise_alone_leaves_the_mean() -> None:
    generator = np.random.default_rng(0)
    features = generator.standard_normal((500, 40))
    shares = 0.3 + generator.normal(0, 2.0, (500, 10))
    plain = np.linalg.lstsq(_with_intercept(features), shares, rcond=None)[0][:-1]
    shrunk = fit_shares(features, shares, noise_std=2.0).weights[:-1]
    assert np.linalg.norm(shrunk) < 0.75 * np.linalg.norm(plain)


def test_shrinking_across_labels_beats_least_squares_under_noise() -> None:
    features, shares, _ = task(300, 12)
    fresh = task(2000, 12)[0]
    truth = np.linalg.lstsq(_with_intercept(features), shares, rcond=None)[0]
    errors = []
    for seed in range(20):
        noisy = shares + np.random.default_rng(seed).normal(0, 1.0, shares.shape)
        plain = np.linalg.lstsq(_with_intercept(features), noisy, rcond=None)[0]
        shrunk = fit_shares(features, noisy, noise_std=1.0).weights
        errors.append([((_with_intercept(fresh) @ (w - truth)) ** 2).mean() for w in (plain, shrunk)])
    plain_error, shrunk_error = np.mean(errors, axis=0)
    assert shrunk_error < 0.8 * plain_error


def test_soft_targets_beat_thresholded_ones_under_noise() -> None:
    """What the noise costs a label is far more than what it costs the count behind it."""
    features, shares, weights = task(400)
    fresh = np.random.default_rng(9).standard_normal((4000, 5))
    truth = fresh @ weights > 0
    right = []
    for seed in range(5):
        noisy = shares + np.random.default_rng(seed).normal(0, 1.0, shares.shape)
        soft = fit_released(features, noisy, np.ones(shares.shape), noise_std=1.0)
        hard = fit_released(features, noisy > 0.5, np.ones(shares.shape))
        right.append([((each.predict(fresh) > 0.5) == truth).mean() for each in (soft, hard)])
    assert np.mean(right, axis=0)[0] > np.mean(right, axis=0)[1]


def test_the_better_of_both_is_taken() -> None:
    features, shares, _ = task(800)
    sharp = expit(8 * np.log(shares / (1 - shares)))
    assert fit_released(features, sharp, np.ones(shares.shape), noise_std=1e-3).logistic
    generator = np.random.default_rng(0)
    flat = 0.5 + 0.01 * features @ generator.standard_normal((5, 12))
    noisy = flat + generator.normal(0, 3.0, flat.shape)
    assert isinstance(fit_released(features, noisy, np.ones(flat.shape), noise_std=3.0), LinearStudent)


def test_a_label_that_nobody_has_keeps_finite_weights() -> None:
    features, shares, _ = task()
    labels = (shares > 0.5).astype(float)
    labels[:, 0] = 0
    student = fit_logistic(features, labels, np.ones(labels.shape))
    assert np.isfinite(student.weights).all()
    assert (student.predict(features)[:, 0] < 0.01).all()


def test_what_cannot_be_fitted_raises() -> None:
    features, shares, _ = task(20)
    with pytest.raises(ValueError, match="Expected an integer released >= 1, got released=0"):
        fit_logistic(features, shares, np.zeros(shares.shape))
    with pytest.raises(ValueError, match="targets of shape"):
        fit_logistic(features, shares[:10], np.ones((10, 6)))
    with pytest.raises(ValueError, match="a mask of shape"):
        fit_logistic(features, shares, np.ones((20, 2)))
    with pytest.raises(ValueError, match="at most 2048 features"):
        fit_shares(np.zeros((20, 3000)), shares, noise_std=1.0)
    with pytest.raises(ValueError, match="noise_std > 0"):
        fit_shares(features, shares, noise_std=0.0)
    with pytest.raises(ValueError, match="ridges > 0"):
        fit_logistic(features, shares, np.ones(shares.shape), ridges=(0.0,))
