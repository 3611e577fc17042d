"""The noise that makes a release meet its target epsilon, and fit into a budget of the same size."""

from __future__ import annotations

from pate.accounting.bisection import smallest_where
from pate.accounting.budget import Budget, affordable
from pate.accounting.calibration import Target, epsilon_of
from pate.aggregators.base import Aggregator
from pate.validation import expect
from pate.votes import Panel

_EXCESS = 3e-6  # relative; noise that exceeds the least by less is kept as it is
_TOLERANCE = 1e-6


def meeting(aggregator: Aggregator, target: Target, panel: Panel, budget: Budget | None = None) -> Aggregator:
    """Return an aggregator with all its noise scaled by the least factor at which a release meets its target.

    Noise that meets it already and hardly exceeds the least is kept to the last digit, so that settings that were
    written down mean the same when they are read again. With a budget, the release must be one that an unused ledger
    admits: its filter, fixed before the first release, may ask for a little more noise than the target.

    Args:
        aggregator: noise in any proportion.
        target: what all queries may cost together, under the aggregator's own relation.
        panel: the numbers of teachers and labels.
        budget: the budget of the ledger, under the same relation and at the same delta; None for none.

    Raises:
        ValueError: if no noise meets the target, it exceeds the budget, or the aggregator cannot serve the panel.
    """
    relation = target.neighboring_relation
    if budget is not None:
        most = f"target_epsilon <= {budget.max_epsilon} (--max_epsilon)"
        expect(target.epsilon <= budget.max_epsilon, most, target_epsilon=target.epsilon)

    def admitted(factor: float) -> bool:
        query = found.scaled(factor).event(panel, relation).cost()
        return budget is None or affordable(budget, query) >= target.num_queries

    def meets(factor: float) -> bool:
        event = found.scaled(factor).event(panel, relation).reaching(target.max_teachers_per_unit)
        return epsilon_of(event, count=target.num_queries, delta=target.delta) <= target.epsilon and admitted(factor)

    found = aggregator
    if meets(1.0) and not meets(1 - _EXCESS):
        return aggregator
    scaled = aggregator.calibrated(target, panel, tolerance=_TOLERANCE)
    reached = f"a target that some noise reaches, with delta = {target.delta:g}"
    expect(scaled is not None, reached, target_epsilon=target.epsilon)
    assert scaled is not None
    found = scaled
    if admitted(1.0):
        return found
    reached = f"a target that some noise keeps within {budget}"
    high = 1.01
    while not admitted(high):
        high *= high
        expect(high < 1e6, reached, target_epsilon=target.epsilon)
    return found.scaled(smallest_where(admitted, 1.0, high, tolerance=_TOLERANCE))
