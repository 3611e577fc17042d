"""The command `pate account`: the cost of queries from parameters, or the noise for a target."""

import textwrap
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import yaml

from pate._core.accounting.accountant import (
    CONVERSIONS,
    Conversion,
    RDPAccountant,
    Target,
    epsilon_of,
)
from pate._core.accounting.cost import (
    NeighboringRelation,
    explain_epsilon,
    format_epsilon,
    format_exact,
)
from pate._core.accounting.events import Event
from pate._core.release.transaction import require_promise
from pate._core.settings import require_made, to_plain
from pate._core.tables import text_table
from pate._core.validation import one_line, require_count, require_in_open_unit_interval
from pate._labeling.aggregators.base import LEAST_ANSWERED, Aggregator, AnyAggregator, made_for
from pate._labeling.commands.parsing import run_command
from pate._labeling.release.completion import complete_aggregator, scale_to_target
from pate._labeling.release.hopeless import describe_gap
from pate._labeling.votes.kinds import VoteShape
from pate.lab.study.autodp import AutodpAccountant

_EPSILONS = (*CONVERSIONS, "autodp")
_LONGEST = 60  # characters of a reason


def account(
    *,
    aggregator: AnyAggregator,
    num_queries: int,
    delta: float,
    shape: VoteShape,
    target_epsilon: float | None = None,
    plot: Path | None = None,
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
        plot: a file for a plot of epsilon against the number of queries.

    Returns:
        For each relation: the ``tightest`` epsilon, as in statements; epsilon of the curve by the
        ``optimal`` and the ``classic`` conversion; the ``exact`` epsilon if all events are
        Gaussian, else None; epsilon from ``autodp`` by its own curves, None where it has none.
        ``delta0`` is the part of delta that is spent on failures, such as failures of stability
        tests.

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
        total = RDPAccountant(relation=relation).compose(event, num_queries)
        costs[relation.value], refused = _cost(total, event, delta)
        refusals.add(refused)
    name, _, settings = str(aggregator).replace("NeighboringRelation.", "").partition("(")
    lines = [
        f"epsilon of {num_queries} queries at delta = {format_exact(delta)} through {name}:",
        textwrap.indent(textwrap.fill(settings[:-1], 92), "    "),
        *_table(costs),
        *(f"    autodp {reason}, and gives no second opinion." for reason in refusals if reason),
    ]
    meaning = explain_epsilon(costs[aggregator.neighboring_relation.value]["tightest"])
    lines += [] if meaning is None else [meaning]
    answered = aggregator.max_answer_probability(shape)
    if answered < LEAST_ANSWERED:
        lines.append(
            f"{shape.num_teachers} teachers who all agree are answered with probability"
            f" {answered:.2g} at most:\n    `pate label` refuses this. Less noise (fewer queries, a"
            " larger delta) or more teachers\n    are needed."
        )
    if plot is not None:
        draw_epsilons(Path(plot), events, aggregator.neighboring_relation, num_queries, delta)
        lines.append(f"Epsilon against queries: {plot}")
    if target_epsilon is not None:
        gap = describe_gap(aggregator, shape)
        lines += [] if gap is None else [textwrap.fill(gap, 100)]
        content = {
            "aggregator": to_plain(aggregator),
            "num_queries": num_queries,
            "delta": delta,
        }
        lines += ["", "# label.yaml", yaml.safe_dump(content, sort_keys=False).rstrip()]
    print("\n".join(lines))
    return costs


def _cost(total: RDPAccountant, event: Event, delta: float) -> tuple[dict[str, float | None], str]:
    """Return all epsilons of a sum of one event, and why autodp has none."""
    row: dict[str, float | None] = {
        name: None if total.unsupported(name) else total.get_epsilon(delta=delta, conversion=name)
        for name in CONVERSIONS
    }
    peer, reason = AutodpAccountant(), ""
    row["autodp"], row["delta0"] = None, total.delta0
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
    rows: list[tuple[str, ...]] = [("    relation", *_EPSILONS, "delta0")]
    for relation, row in costs.items():
        epsilons = (
            "-" if row[name] is None else format_epsilon(row[name], 4) for name in _EPSILONS
        )
        rows.append((f"    {relation}", *epsilons, f"{row['delta0']:.3g}"))
    return text_table(rows)


def draw_epsilons(
    path: Path,
    events: Mapping[NeighboringRelation, Event],
    configured: NeighboringRelation,
    num_queries: int,
    delta: float,
) -> None:
    """Plot epsilon against the number of queries under both relations, by two conversions."""
    from matplotlib.figure import Figure

    from pate.lab.study.output import save_figure

    counts = np.unique(np.linspace(1, num_queries, 60).astype(int))
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    styles: dict[Conversion, str] = {"tightest": "-", "classic": ":"}
    for relation, event in events.items():
        for conversion, style in styles.items():
            epsilons = [
                epsilon_of(event, count=count, delta=delta, conversion=conversion)
                for count in counts.tolist()
            ]
            axes.plot(
                counts,
                epsilons,
                style,
                color="tab:blue" if relation is configured else "tab:orange",
                label=f"{relation.value}{' (configured)' * (relation is configured)}, {conversion}",
            )
    axes.set(
        xlabel="queries", ylabel=f"epsilon at delta = {delta:g}", xlim=(0, None), ylim=(0, None)
    )
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    save_figure(path, figure, dpi=150)


account_main = partial(run_command, "account", account, grouped={"shape": VoteShape})
