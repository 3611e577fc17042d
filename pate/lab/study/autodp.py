"""Conversion of autodp mechanisms to events, and of events and accountants to autodp.

autodp is imported when needed.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pate._core.accounting.accountant import RDPAccountant
from pate._core.accounting.cost import DEFAULT_ORDERS, NeighboringRelation, remaining_delta
from pate._core.accounting.curves import renyi_curve_rdp
from pate._core.accounting.events import (
    BoundedRangeEvent,
    Event,
    GaussianEvent,
    PureDPEvent,
    RenyiCurveEvent,
    RootPeelingEvent,
)
from pate._core.accounting.proofs import Accountant, Composed, Guarantee
from pate._core.validation import FloatArray, expecting, require

# of an event, and of the module of autodp's mechanisms: its own mechanism, and how often it is
# asked
_MECHANISMS: Mapping[type[Event], Callable[[Any, Any], tuple[Any, int]]] = {
    GaussianEvent: lambda event, zoo: (zoo.GaussianMechanism(sigma=event.noise_multiplier), 1),
    BoundedRangeEvent: lambda event, zoo: (zoo.ExponentialMechanism(eps=event.eta), 1),
    RootPeelingEvent: lambda event, zoo: (zoo.ExponentialMechanism(eps=event.eta), event.count),
    PureDPEvent: lambda event, zoo: (zoo.PureDP_Mechanism(eps=event.epsilon), 1),
    RenyiCurveEvent: lambda event, zoo: (_given_curve(event.orders, event.rdp, zoo), 1),
}


class AutodpAccountant(Accountant):
    """The mechanisms, composition and conversion of autodp: a second opinion.

    Its curve of a choice of bounded range is that of concentrated DP, which is above ours. Its
    guarantees raise ``ImportError`` if autodp is not installed.
    """

    def supports(self, event: Event) -> bool:
        return type(event) in _MECHANISMS

    def guarantee(
        self, composed: Composed, *, delta: float, below: float = math.inf
    ) -> Guarantee | None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            zoo, transformers = _autodp()
            parts, counts = [], []
            for leaf, number in composed.leaves():
                mechanism, times = _MECHANISMS[type(leaf)](leaf, zoo)
                parts.append(mechanism)
                counts.append(number * times)
            epsilon = float(transformers.Composition()(parts, counts).get_approxDP(delta))
        return composed.proven(epsilon, delta) if epsilon < below else None


def _autodp() -> tuple[Any, Any]:
    """Import autodp, which puts the parent of the working directory on the path."""
    before = sys.path.copy()
    try:
        with expecting(
            "the package autodp", ImportError, got="none: pip install 'pate[accounting]'"
        ):
            from autodp import mechanism_zoo, transformer_zoo
    finally:
        sys.path[:] = before
    return mechanism_zoo, transformer_zoo


def _given_curve(orders: Any, rdp: Any, zoo: Any) -> Any:
    mechanism = zoo.Mechanism()
    mechanism.name, mechanism.params = "pate", {}
    known, values = np.asarray(orders), np.asarray(rdp)
    mechanism.propagate_updates(
        lambda alpha: float(renyi_curve_rdp(alpha, known, values)) if known.size else np.inf, "RDP"
    )
    return mechanism


def from_autodp(
    mechanism: Any, *, relation: NeighboringRelation, orders: FloatArray = DEFAULT_ORDERS
) -> RenyiCurveEvent:
    """Return the event of an ``autodp`` mechanism: its finite Renyi-DP values on ``orders``.

    Args:
        mechanism: an ``autodp.autodp_core.Mechanism``.
        relation: the relation for which the noise of the mechanism was chosen. autodp does not
            record it.
        orders: Renyi orders above 1, ascending, ``[K]``.

    Returns:
        the event, with the curve on ``orders``.

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
    subtracted from ``delta`` before autodp sees it.

    Returns:
        an ``autodp.autodp_core.Mechanism``.

    Raises:
        ImportError: if autodp is not installed.
    """
    rdp, log_survival, *_ = accountant.cost
    finite = np.isfinite(rdp)
    mechanism = _given_curve(accountant.orders[finite], rdp[finite], _autodp()[0])
    convert = mechanism.approxDP

    def with_delta0(delta: float) -> Any:
        rest = remaining_delta(delta, log_survival)
        return convert(rest) if rest > 0 else float("inf")

    mechanism.approxDP = with_delta0
    return mechanism
