"""The forms in which an aggregator is compared."""

from dataclasses import replace
from typing import Any

from pate.aggregators import Aggregator, Outlook
from pate.aggregators._clipped_votes import two_rounds


def with_first_round(aggregator: Aggregator, outlook: Outlook) -> Aggregator:
    """Return an aggregator, as the last of two rounds if it needs predictions."""
    return two_rounds(aggregator, outlook) if "predictions" in aggregator.needs else aggregator


def one_change_variants(aggregator: Aggregator, outlook: Outlook) -> dict[str, Aggregator]:
    """Return an aggregator with one field changed to each of its `variants`, by ``field=value``."""
    changed: dict[str, Aggregator] = {}
    for name, values in aggregator.variants(outlook).items():
        for value in values:
            change: dict[str, Any] = {name: value}
            if value != getattr(aggregator, name):
                changed[f"{name}={value}"] = replace(aggregator, **change)
    return changed
