"""autodp as a second opinion on events, and its mechanisms as events."""

import math
import warnings

import numpy as np
import pytest

from pate._core.accounting.accountant import RenyiAccountant
from pate._core.accounting.curves import pure_dp_rdp
from pate._core.accounting.events import leaves
from pate.accounting import (
    DEFAULT_ORDERS,
    BoundedRangeEvent,
    ComposedEvent,
    Event,
    RenyiCurveEvent,
    RootPeelingEvent,
    from_autodp,
    to_autodp,
)
from pate.lab.study.account import _MECHANISMS, AutodpAccountant
from tests.core.accounting.test_accountant import REPLACE, accountant, gaussian, pure, stable_top_k

ORDERS = tuple(DEFAULT_ORDERS.tolist())
CURVE = tuple(order / 1250 for order in ORDERS)
# by which part autodp may be above us: its curve of a choice is that of concentrated DP
PEERS: list[tuple[Event, float]] = [
    (gaussian(25.0), 1e-3),
    (pure(0.05), 1e-3),
    (ComposedEvent(events=(gaussian(25.0), pure(0.05))), 1e-3),
    (RenyiCurveEvent(orders=ORDERS, rdp=CURVE, neighboring_relation=REPLACE), 1e-3),
    (BoundedRangeEvent(eta=0.05, neighboring_relation=REPLACE), 0.4),
    (RootPeelingEvent(eta=0.05, count=4, neighboring_relation=REPLACE), 0.4),
]


@pytest.mark.parametrize("count", [1, 1000])
@pytest.mark.parametrize(
    ("event", "above"), PEERS, ids=lambda each: getattr(type(each), "__name__", "")
)
def test_epsilon_equals_that_of_autodp(event: Event, above: float, count: int) -> None:
    pytest.importorskip("autodp")
    warnings.simplefilter("ignore")
    ours = accountant((event, count))
    assert AutodpAccountant().unsupported([event]) == []
    for delta in (1e-8, 1e-5):
        epsilon = ours.guarantee(delta=delta, by=[RenyiAccountant()]).epsilon
        theirs = ours.guarantee(delta=delta, by=[AutodpAccountant()]).epsilon
        assert epsilon * (1 - 1e-3) <= theirs <= epsilon * (1 + above)
        assert epsilon == pytest.approx(float(to_autodp(ours).get_approxDP(delta)), rel=1e-3)


def test_autodp_knows_every_event_with_a_mechanism_of_its_own() -> None:
    """All others have no figure, and are named."""
    pytest.importorskip("autodp")
    assert {type(leaf) for event, _ in PEERS for leaf, _ in leaves(event)} == set(_MECHANISMS)
    event = stable_top_k(REPLACE, scale_gap=39, sigma=60, delta_test=1e-9)
    assert AutodpAccountant().unsupported([event]) == ["StabilityTestEvent"]


def test_mechanisms_come_from_autodp_and_go_back() -> None:
    warnings.simplefilter("ignore")
    zoo = pytest.importorskip("autodp.mechanism_zoo")
    event = from_autodp(zoo.GaussianMechanism(sigma=4.0), relation=REPLACE)
    assert event.neighboring_relation is REPLACE
    mine = accountant((event, 10))
    np.testing.assert_allclose(mine.rdp, accountant((gaussian(4.0), 10)).rdp, rtol=1e-9)
    laplace = from_autodp(zoo.LaplaceMechanism(b=2.0), relation=REPLACE)
    assert (accountant((laplace, 1)).rdp <= pure_dp_rdp(DEFAULT_ORDERS, 0.5) * (1 + 1e-9)).all()
    again = from_autodp(to_autodp(mine), relation=REPLACE)
    np.testing.assert_allclose(accountant((again, 1)).rdp, mine.rdp, rtol=1e-9)
    with pytest.raises(ValueError, match="Expected an autodp mechanism with a Renyi-DP curve"):
        from_autodp(zoo.Mechanism(), relation=REPLACE)
    # the orders at which a curve is finite
    short = zoo.Mechanism()
    short.propagate_updates(lambda order: order / 8 if order < 9 else math.inf, "RDP")
    finite = from_autodp(short, relation=REPLACE)
    assert finite.orders == tuple(DEFAULT_ORDERS[DEFAULT_ORDERS < 9].tolist())
    assert finite.rdp == pytest.approx(np.array(finite.orders) / 8)
