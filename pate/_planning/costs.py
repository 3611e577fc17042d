"""The cost of queries by several accountants, computed from parameters."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from typing import Any

from pate._validation import require_count, require_in_open_unit_interval
from pate.accounting import DEFAULT_ORDERS, RDPAccountant, to_autodp
from pate.accounting._charges import Events
from pate.accounting._events import BoundedRangeEvent, Event, GaussianEvent, leaves

EPSILONS = ("tightest", "optimal", "classic", "exact", "autodp", "dp_accounting")


def costs_of(
    events: Events, *, num_queries: int, delta: float
) -> dict[str, dict[str, float | None]]:
    """Return the total cost of several equal queries.

    Args:
        events: the event of one query under each relation.
        num_queries: number of queries asked.
        delta: the delta of every epsilon.

    Returns:
        For each relation: the ``tightest`` epsilon, as in statements; epsilon of the curve by the
        ``optimal`` and the ``classic`` conversion; the ``exact`` epsilon if all events are
        Gaussian; epsilon from ``autodp`` for the same curve, and from ``dp_accounting`` by its own
        curves, if they are installed. A missing figure is None. ``delta0`` is the part of delta
        that is spent on failures, such as failures of stability tests.

    Raises:
        ValueError: on parameters out of range.
    """
    require_count(1, num_queries=num_queries)
    require_in_open_unit_interval(delta=delta)
    costs: dict[str, dict[str, float | None]] = {}
    for relation, event in events.items():
        total = RDPAccountant(relation=relation).compose(event, num_queries)
        gaussian = all(type(leaf) is GaussianEvent for leaf, _ in leaves(event))
        costs[relation.value] = {
            "tightest": total.get_epsilon(delta=delta),
            "optimal": total.get_epsilon(delta=delta, conversion="optimal"),
            "classic": total.get_epsilon(delta=delta, conversion="classic"),
            "exact": total.get_epsilon(delta=delta, conversion="exact") if gaussian else None,
            "autodp": _by_autodp(total, delta),
            "dp_accounting": _by_dp_accounting(event, num_queries, delta),
            "delta0": total.delta0,
        }
    return costs


def _by_autodp(total: RDPAccountant, delta: float) -> float | None:
    """Return epsilon of the same curve by the conversion and search of autodp."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return float(to_autodp(total).get_approxDP(delta))
        except ImportError:
            return None


def _by_dp_accounting(event: Event, count: int, delta: float) -> float | None:
    """Return epsilon from dp_accounting, by privacy-loss distribution or, for zCDP, by Renyi DP."""
    if find_spec("dp_accounting") is None:
        return None
    import dp_accounting
    from dp_accounting import pld, rdp

    parts: list[Any] = []
    gaussian = True
    for leaf, n in leaves(event, count):
        if isinstance(leaf, GaussianEvent):
            single = dp_accounting.GaussianDpEvent(leaf.noise_multiplier)
        elif isinstance(leaf, BoundedRangeEvent):
            single, gaussian = dp_accounting.ZCDpEvent(leaf.eta**2 / 8), False
        else:
            return None
        parts.append(dp_accounting.SelfComposedDpEvent(single, n))
    accountant = (
        pld.PLDAccountant() if gaussian else rdp.RdpAccountant(orders=DEFAULT_ORDERS[:-1].tolist())
    )
    return float(accountant.compose(dp_accounting.ComposedDpEvent(parts)).get_epsilon(delta))
