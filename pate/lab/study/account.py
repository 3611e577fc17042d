"""The command `pate account`: the cost of queries from parameters, or the noise for a target.

autodp gives a second opinion. Its mechanisms become events, and accountants become its mechanisms.
"""

from __future__ import annotations

import math
import sys
import textwrap
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import yaml

from pate._core.accounting.accountant import (
    Accountant,
    Composed,
    Guarantee,
    RDPAccountant,
    Target,
)
from pate._core.accounting.cost import (
    DEFAULT_ORDERS,
    NeighboringRelation,
    explain_epsilon,
    format_epsilon,
    format_exact,
    remaining_delta,
)
from pate._core.accounting.curves import renyi_curve_rdp
from pate._core.accounting.events import (
    BoundedRangeEvent,
    Event,
    GaussianEvent,
    PureDPEvent,
    RenyiCurveEvent,
    RootPeelingEvent,
)
from pate._core.files.writing import text_table
from pate._core.settings import require_made, to_plain
from pate._core.transaction import require_promise
from pate._core.validation import (
    FloatArray,
    expecting,
    one_line,
    require,
    require_count,
    require_in_open_unit_interval,
)
from pate._labeling.aggregators.base import LEAST_ANSWERED, Aggregator, AnyAggregator, made_for
from pate._labeling.commands.parsing import run_command
from pate._labeling.release.label_settings import complete_aggregator, scale_to_target
from pate._labeling.votes.kinds import VoteShape

_LONGEST = 60  # characters of a reason
_LIKELY = 0.9  # how often teachers who all agree should be answered


def account(
    *,
    aggregator: AnyAggregator,
    num_queries: int,
    delta: float,
    shape: VoteShape,
    target_epsilon: float | None = None,
) -> dict[str, dict[str, float | None]]:
    """Print and return the cost of queries, from parameters only.

    With a target, one factor scales all noise of the aggregator, so that the queries together cost
    the target under its relation. Its settings are printed for ``label.yaml``.

    Args:
        aggregator: the mechanism. With a target a name is enough: settings without a default are
            chosen, and of given noise only the proportions matter.
        num_queries: number of queries.
        delta: the delta of every epsilon.
        shape: the numbers of teachers and labels.
        target_epsilon: the largest epsilon of all queries together. None for noise as it is given.

    Returns:
        For each relation: ``epsilon`` as in statements; epsilon from ``autodp`` by its own curves,
        None where it has none. ``delta0`` is the part of delta that is spent on failures, such as
        failures of stability tests.

    Raises:
        ValueError: on parameters out of range, or if no noise meets the target.
    """
    require_count(1, num_queries=num_queries)
    require_in_open_unit_interval(delta=delta)
    if target_epsilon is None:
        require_made("aggregator", aggregator)
        assert isinstance(aggregator, Aggregator)
    else:
        # otherwise a release by the printed settings would be refused
        require_promise(delta, num_units=shape.num_teachers)
        target = Target(
            epsilon=target_epsilon,
            delta=delta,
            num_queries=num_queries,
            neighboring_relation=made_for(aggregator),
        )
        aggregator = scale_to_target(complete_aggregator(aggregator, target, shape), target, shape)
    events = aggregator.events(shape)
    costs, refusals = {}, set()
    for relation, event in events.items():
        total = RDPAccountant(relation=relation, in_order=True).compose(event, num_queries)
        costs[relation.value], refused = _cost(total, event, delta)
        refusals.add(refused)
    name, _, settings = str(aggregator).replace("NeighboringRelation.", "").partition("(")
    lines = [
        f"epsilon of {num_queries} queries at delta = {format_exact(delta)} through {name}:",
        textwrap.indent(textwrap.fill(settings[:-1], 92), "    "),
        *_table(costs),
        *(f"    autodp {reason}, and gives no second opinion." for reason in refusals if reason),
    ]
    meaning = explain_epsilon(costs[aggregator.neighboring_relation.value]["epsilon"])
    lines += [] if meaning is None else [meaning]
    answered = aggregator.max_answer_probability(shape)
    if answered < _LIKELY:
        lines.append(
            f"{shape.num_teachers} teachers who all agree are answered with probability"
            f" {answered:.2g} at most\n    (`pate label` refuses less than {LEAST_ANSWERED}). Less"
            " noise (fewer queries, a larger delta)\n    or more teachers help."
        )
    if target_epsilon is not None:
        content = {
            "aggregator": to_plain(aggregator),
            "num_queries": num_queries,
            "delta": delta,
        }
        lines += ["", "# label.yaml", yaml.safe_dump(content, sort_keys=False).rstrip()]
    print("\n".join(lines))
    return costs


def _cost(total: RDPAccountant, event: Event, delta: float) -> tuple[dict[str, float | None], str]:
    """Return both epsilons of a sum of one event, and why autodp has none."""
    row = {"epsilon": total.get_epsilon(delta=delta), "autodp": None, "delta0": total.delta0}
    peer, reason = AutodpAccountant(), ""
    if find_spec("autodp") is None:
        reason = "is not installed"
    elif unknown := peer.unsupported([event]):
        reason = f"has no mechanism for {', '.join(unknown)}"
    else:
        try:
            row["autodp"] = total.guarantee(delta=delta, by=[peer]).epsilon
        except Exception as error:  # of code that is not ours
            said = one_line(f"{type(error).__name__}: {error}")
            reason = f"fails with {said[:_LONGEST]}"
    return row, reason


def _table(costs: Mapping[str, Mapping[str, float | None]]) -> list[str]:
    rows = [("    relation", "epsilon", "autodp", "delta0")]
    for relation, row in costs.items():
        peer = "-" if row["autodp"] is None else format_epsilon(row["autodp"], 4)
        ours = format_epsilon(row["epsilon"], 4)
        rows.append((f"    {relation}", ours, peer, f"{row['delta0']:.3g}"))
    return text_table(rows)


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


account_main = partial(run_command, "account", account, grouped={"shape": VoteShape})
