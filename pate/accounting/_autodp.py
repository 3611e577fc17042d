"""Conversion of autodp mechanisms to events, and of accountants to autodp, imported when needed."""

from typing import Any

import numpy as np

from pate._validation import FloatArray, require
from pate.accounting._accountant import RDPAccountant
from pate.accounting._cost import DEFAULT_ORDERS, NeighboringRelation, remaining_delta
from pate.accounting._curves import renyi_curve_rdp
from pate.accounting._events import RenyiCurveEvent


def from_autodp(
    mechanism: Any, *, relation: NeighboringRelation, orders: FloatArray = DEFAULT_ORDERS
) -> RenyiCurveEvent:
    """Return the event of an ``autodp`` mechanism: its finite Renyi-DP values on ``orders``.

    Args:
        mechanism: an ``autodp.autodp_core.Mechanism``.
        relation: the relation for which the noise of the mechanism was chosen. autodp does not
            record it.
        orders: Renyi orders above 1, ascending, ``[K]``.

    Raises:
        ValueError: if there is no curve; autodp loses the delta of an approximate one.
    """
    with np.errstate(all="ignore"):
        values = np.array([float(mechanism.RenyiDP(float(order))) for order in orders])
    finite = np.isfinite(values)
    require(
        finite.any(),
        "an autodp mechanism with a Renyi-DP curve",
        mechanism=getattr(mechanism, "name", mechanism),
    )
    return RenyiCurveEvent(
        neighboring_relation=relation,
        orders=tuple(orders[finite].tolist()),
        rdp=tuple(values[finite].tolist()),
    )


def to_autodp(accountant: RDPAccountant) -> Any:
    """Return the accountant's sum as one ``autodp`` mechanism, to cross-check epsilon.

    autodp 0.2.3 evaluates the curve at any order and ignores ``delta0``, which is therefore
    subtracted from ``delta`` before autodp sees it. Raises ``ImportError`` if autodp is not
    installed.
    """
    from autodp.autodp_core import Mechanism

    rdp, log_survival, *_ = accountant.cost
    finite = np.isfinite(rdp)
    orders, rdp = accountant.orders[finite], rdp[finite]

    def curve(alpha: float) -> float:
        return float(renyi_curve_rdp(alpha, orders, rdp)) if orders.size else float("inf")

    mechanism = Mechanism()
    mechanism.name = "pate"
    mechanism.propagate_updates(curve, "RDP")
    convert = mechanism.approxDP

    def with_delta0(delta: float) -> Any:
        rest = remaining_delta(delta, log_survival)
        return convert(rest) if rest > 0 else float("inf")

    mechanism.approxDP = with_delta0
    return mechanism
