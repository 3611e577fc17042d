"""What two laws tell beyond what is paid for each outcome, against other ways to the least value."""

import numpy as np
import pytest
from scipy.optimize import minimize

from pate.testing.laws import ORDERS, clip_excess, renyi_divergence, unpaid_loss
from pate.typing import FloatArray


def least_loss(p: FloatArray, q: FloatArray, paid: FloatArray, delta0: FloatArray, order: float) -> float:
    """Return the least of the loss by a general solver, from laws p' and q' in one vector."""
    m = len(p)

    def loss(laws: FloatArray) -> float:
        a, b = np.maximum(laws[:m], 1e-300), np.maximum(laws[m:], 1e-300)
        return float(np.log((a**order * b ** (1 - order) * np.exp(-(order - 1) * paid)).sum()) / (order - 1))

    most = [(0.0, float(each)) for each in (*(p / (1 - delta0)), *(q / (1 - delta0)))]
    sums = ({"type": "eq", "fun": lambda laws, part=part: laws[part].sum() - 1} for part in (slice(m), slice(m, None)))
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
    assert found[at] == pytest.approx(least_loss(p, q, paid[:, 0], delta0, float(ORDERS[at])), rel=1e-5)


def test_with_one_price_it_is_the_divergence_that_delta_leaves() -> None:
    p, q = np.random.default_rng(0).dirichlet(np.ones(5), (2, 20))
    found = unpaid_loss(p, q, np.full((5, ORDERS.size), 0.01), np.full(5, 0.03))
    np.testing.assert_allclose(np.maximum(found, 0), np.maximum(renyi_divergence(p, q, 0.03) - 0.01, 0), atol=1e-7)


def test_delta_is_spent_where_least_is_paid() -> None:
    """What seldom passes is paid at its price; delta is for the rest, which is not as likely and pays nothing."""
    p, q = np.array([[0.03, 0.5, 0.47]]), np.array([[0.002, 0.488, 0.51]])
    paid, delta0 = np.array([3.0, 0.0, 0.0])[:, None] * np.ones(ORDERS.size), 0.02
    assert unpaid_loss(p, q, paid, np.full(3, delta0)).max() <= 1e-9
    # by the likelihood ratio alone all of it goes to what passes, and a debt is seen where there is none
    first, second = (clip_excess(*each, delta0) / (1 - delta0) for each in ((p, q), (q, p)))
    assert first[0].tolist() == pytest.approx([0.01 / 0.98, 0.5 / 0.98, 0.47 / 0.98])
    order = 20.0
    loss = np.log((first**order * second ** (1 - order) * np.exp((1 - order) * paid[:, 0])).sum()) / (order - 1)
    assert loss > 1e-3


def test_an_outcome_pays_with_its_own_delta() -> None:
    """What is impossible under the other law has to be covered by the delta of what may be said in its place."""
    p, q = np.array([[0.01, 0.5, 0.49]]), np.array([[0.0, 0.5, 0.5]])
    free = np.full((3, ORDERS.size), 0.05)
    for delta0, owed in (([0.02] * 3, False), ([0.02, 0.0, 0.0], True), ([0.0, 0.02, 0.02], False), ([0.0] * 3, True)):
        assert np.isinf(unpaid_loss(p, q, free, np.array(delta0)).max()) == owed
