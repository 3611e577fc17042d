"""The command `pate account`."""

import textwrap
from functools import partial
from pathlib import Path

from pate._commands.parsing import run_command
from pate._planning.comparison import EPSILONS, costs_of
from pate._planning.plots import draw_epsilons
from pate._planning.tables import text_table
from pate._settings import require_made
from pate._votes import VoteShape
from pate.accounting._autodp import unknown_to_autodp
from pate.accounting._formatting import explain_epsilon, format_epsilon, format_exact
from pate.aggregators import Aggregator
from pate.aggregators._base import LEAST_ANSWERED


def account(
    *,
    aggregator: Aggregator,
    num_queries: int,
    delta: float,
    shape: VoteShape,
    plot: Path | None = None,
) -> dict[str, dict[str, float | None]]:
    """Print and return the cost of queries, from parameters only.

    Args:
        aggregator: the mechanism.
        num_queries: number of queries.
        delta: the delta of every epsilon.
        shape: the numbers of teachers and labels.
        plot: a file for a plot of epsilon against the number of queries.

    Returns:
        The result of `costs_of`.

    Raises:
        ValueError: on parameters out of range.
    """
    require_made("aggregator", aggregator)
    events = aggregator.events(shape)
    costs = costs_of(events, num_queries=num_queries, delta=delta)
    name, _, settings = str(aggregator).replace("NeighboringRelation.", "").partition("(")
    print(f"epsilon of {num_queries} queries at delta = {format_exact(delta)} through {name}:")
    print(textwrap.fill(settings[:-1], 96, initial_indent="    ", subsequent_indent="    "))
    rows: list[tuple[str, ...]] = [("    relation", *EPSILONS, "delta0")]
    for name, row in costs.items():
        epsilons = (
            "-" if row[column] is None else format_epsilon(row[column], 4) for column in EPSILONS
        )
        rows.append((f"    {name}", *epsilons, f"{row['delta0']:.3g}"))
    print("\n".join(text_table(rows)))
    unknown = unknown_to_autodp(next(iter(events.values())))
    if unknown:
        print(f"    autodp has no mechanism for {', '.join(unknown)}, and gives no second opinion.")
    meaning = explain_epsilon(costs[aggregator.neighboring_relation.value]["tightest"])
    if meaning is not None:
        print(meaning)
    answered = aggregator.max_answer_probability(shape)
    if answered < LEAST_ANSWERED:
        print(
            f"{shape.num_teachers} teachers who all agree are answered with probability"
            f" {answered:.2g} at most:\n    `pate label` refuses this. Less noise (fewer queries, a"
            " larger delta) or more teachers\n    are needed."
        )
    if plot is not None:
        draw_epsilons(Path(plot), events, aggregator.neighboring_relation, num_queries, delta)
        print(f"Epsilon against queries: {plot}")
    return costs


main = partial(run_command, "account", account, grouped={"shape": VoteShape})
