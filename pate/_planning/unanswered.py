"""A release without answers: its price, and possible remedies, from public numbers."""

from __future__ import annotations

from pate._release.statements import StatedLabels
from pate._settings import decode
from pate.accounting._formatting import format_epsilon, format_exact
from pate.aggregators._base import Aggregator

_LIKELY = 0.9


def describe_unanswered(released: StatedLabels) -> str | None:
    """Return two lines on a release without answers, or None if there are answers."""
    if released.answered.any():
        return None
    aggregator: Aggregator = decode(Aggregator, released.aggregator)
    cost = released.statement["this_release"][released.statement["neighboring_relation"]]
    price = f"epsilon = {format_epsilon(cost['epsilon'])} at delta = {format_exact(cost['delta'])}"
    gap = aggregator.gap_needed(released.shape, probability=_LIKELY)
    needed = "" if gap is None else f" {gap.meaning} with probability {_LIKELY:g}."
    return (
        f"None of {len(released.ids)} queries was answered, and {price} is spent: the teachers"
        f" agree too little for this noise.{needed}\n"
        "Fewer queries, a larger epsilon, more teachers or another aggregator help; to ask again"
        " costs again."
    )
