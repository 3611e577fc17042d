"""What two laws tell beyond what is paid for each outcome, against other ways to the least
value."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import ndtr

from pate._core.testing.laws import (
    ORDERS,
    assert_noise_matters,
    beyond_gaussian,
    clip_excess,
    renyi_divergence,
    unpaid_loss,
)
from pate._core.validation import FloatArray


def least_loss(
    p: FloatArray, q: FloatArray, paid: FloatArray, delta0: FloatArray, order: float
) -> float:
    """Return the least of the loss by a general solver, from laws p' and q' in one vector."""
    m = len(p)

    def loss(laws: FloatArray) -> float:
        a, b = np.maximum(laws[:m], 1e-300), np.maximum(laws[m:], 1e-300)
        return float(
            np.log((a**order * b ** (1 - order) * np.exp(-(order - 1) * paid)).sum()) / (order - 1)
        )

    most = [(0.0, float(each)) for each in (*(p / (1 - delta0)), *(q / (1 - delta0)))]
    sums = (
        {"type": "eq", "fun": lambda laws, part=part: laws[part].sum() - 1}
        for part in (slice(m), slice(m, None))
    )
    found = minimize(loss, np.concatenate((p, q)), bounds=most, constraints=tuple(sums), tol=1e-13)
    return float(found.fun)


@pytest.mark.parametrize("seed", range(6))
def test_unpaid_loss_is_the_least_that_there_is(seed: int) -> None:
    chance = np.random.default_rng(seed)
    p, q = chance.dirichlet(np.ones(4), 2)
    at = int(np.searchsorted(ORDERS, 2))
    paid = chance.uniform(0, 0.5, 4)[:, None] * np.ones(ORDERS.size)
    delta0 = np.array([0.1, 0.02, 0.0, 0.1]) if seed % 2 else np.full(4, 0.05)
    found = unpaid_loss(p[None], q[None], paid, delta0)[0]
    assert found[at] > 0
    assert found[at] == pytest.approx(
        least_loss(p, q, paid[:, 0], delta0, float(ORDERS[at])), rel=1e-5
    )


def test_with_one_price_it_is_the_divergence_that_delta_leaves() -> None:
    p, q = np.random.default_rng(0).dirichlet(np.ones(5), (2, 20))
    found = unpaid_loss(p, q, np.full((5, ORDERS.size), 0.01), np.full(5, 0.03))
    np.testing.assert_allclose(
        np.maximum(found, 0), np.maximum(renyi_divergence(p, q, 0.03) - 0.01, 0), atol=1e-7
    )


def test_delta_is_spent_where_least_is_paid() -> None:
    """What seldom passes is paid at its price; delta is for the rest, which is not as likely and
    pays nothing."""
    p, q = np.array([[0.03, 0.5, 0.47]]), np.array([[0.002, 0.488, 0.51]])
    paid, delta0 = np.array([3.0, 0.0, 0.0])[:, None] * np.ones(ORDERS.size), 0.02
    assert unpaid_loss(p, q, paid, np.full(3, delta0)).max() <= 1e-9
    # by the likelihood ratio alone all of it goes to what passes, and a debt is seen where there is
    # none
    first, second = (clip_excess(*each, delta0) / (1 - delta0) for each in ((p, q), (q, p)))
    assert first[0].tolist() == pytest.approx([0.01 / 0.98, 0.5 / 0.98, 0.47 / 0.98])
    order = 20.0
    loss = np.log(
        (first**order * second ** (1 - order) * np.exp((1 - order) * paid[:, 0])).sum()
    ) / (order - 1)
    assert loss > 1e-3


def test_an_excess_below_the_precision_of_sums_is_seen() -> None:
    p, q = np.array([[1 - 1e-20, 1e-20]]), np.array([[1.0, 1e-30]])
    assert renyi_divergence(p, q, 1e-22)[0, -1] == pytest.approx(math.log(1e10), rel=0.02)


def test_an_outcome_pays_with_its_own_delta() -> None:
    """What is impossible under the other law has to be covered by the delta of what may be said in
    its place."""
    p, q = np.array([[0.01, 0.5, 0.49]]), np.array([[0.0, 0.5, 0.5]])
    free = np.full((3, ORDERS.size), 0.05)
    for delta0, owed in (
        ([0.02] * 3, False),
        ([0.02, 0.0, 0.0], True),
        ([0.0, 0.02, 0.02], False),
        ([0.0] * 3, True),
    ):
        assert np.isinf(unpaid_loss(p, q, free, np.array(delta0)).max()) == owed


@pytest.mark.parametrize("rare", [1e-9, 5e-11])
def test_a_rare_outcome_is_not_free(rare: float) -> None:
    """A failure of one in a billion, the delta of many a test of gaps, is seen if nobody pays for
    it."""
    p, q = np.array([[rare, 0.5, 0.5 - rare]]), np.array([[0.0, 0.5, 0.5]])
    assert np.isinf(unpaid_loss(p, q, np.ones((3, ORDERS.size)), np.zeros(3))).all()
    assert unpaid_loss(p, q, np.ones((3, ORDERS.size)), np.full(3, rare)).max() <= 0
    assert np.isinf(renyi_divergence(p, q, rare / 2)).all()
    assert np.isfinite(renyi_divergence(p, q, rare)).all()


def test_a_gaussian_may_cover_the_curve_and_not_the_law() -> None:
    """Of a bit the Renyi curve asks for less noise than its trade-off, on which epsilon of Gaussian
    noise rests."""
    p, q = np.array([[ndtr(0.5), ndtr(-0.5)]]), np.array([[ndtr(-0.5), ndtr(0.5)]])
    by_curve = float((2 * renyi_divergence(p, q) / ORDERS).max())
    found = [
        beyond_gaussian(p, q, np.full(2, mu_squared), np.zeros(2))
        for mu_squared in (1.0, 0.96, by_curve)
    ]
    assert abs(found[0]) < 1e-12
    assert found[1] > 1e-3
    assert by_curve < 0.7 and found[2] > 0.03


def test_a_cheap_tier_that_only_its_curve_covers() -> None:
    """What is reserved covers the bit and each tier pays its curve, but the rest of a bound on mu
    reveals more."""
    p, q = (np.array([[*(0.999 * ndtr([x, -x])), 0.001]]) for x in (0.5, -0.5))
    by_curve = float((2 * renyi_divergence(p[:, :2] / 0.999, q[:, :2] / 0.999) / ORDERS).max())
    mu_squared = np.array([by_curve, by_curve, 1.0])
    assert unpaid_loss(p, q, mu_squared[:, None] * ORDERS / 2, np.zeros(3)).max() <= 1e-9
    assert beyond_gaussian(p, q, np.ones(3), np.zeros(3)) <= 0
    assert beyond_gaussian(p, q, mu_squared, np.zeros(3)) > 0.01


def test_a_screen_settles_its_mu_and_its_delta() -> None:
    """A bit, and if it is 1 a second release that fails at times: each pays for itself, and nobody
    for less."""
    bit, second = (ndtr([-0.3, 0.3]), ndtr([0.2, -0.2])), (ndtr([-0.4, 0.4]), ndtr([0.4, -0.4]))
    p, q = (
        np.array([[one[0], *(one[1] * (0.9 * two + 0.1 * np.array(failed)))]])
        for one, two, failed in zip(bit, second, ((0, 1), (1, 0)), strict=True)
    )
    mu_squared, delta0 = np.array([0.25, 0.89, 0.89]), np.array([0, 0.1, 0.1])
    assert beyond_gaussian(p, q, mu_squared, delta0) <= 1e-12
    assert beyond_gaussian(p, q, mu_squared, np.zeros(3)) > 0.01
    assert beyond_gaussian(p, q, np.array([0.25, 0.6, 0.6]), delta0) > 0.01


def test_less_noise_that_no_test_sees_is_an_error() -> None:
    assert_noise_matters(1e-9, "sampler")
    with pytest.raises(AssertionError, match="with 20% less noise to differ"):
        assert_noise_matters(1e-3, "sampler")
