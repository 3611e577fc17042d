"""What is compared: aggregators under the names that tables and pictures give them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from pate.aggregators import Aggregator, Outlook
from pate.planning.proposals import all_proposals, forms, preceded, title


class Candidate(NamedTuple):
    """An aggregator that is compared with others."""

    name: str
    """Its title; a variant has that of the aggregator it was made from, and the field that is another."""
    family: str
    """The name of the class that it shows, which is that of the last round where one comes before it."""
    aggregator: Aggregator


def candidates(
    outlook: Outlook, aggregators: Sequence[Aggregator] | None = None, *, variants: bool = False
) -> list[Candidate]:
    """Return what is compared on votes that ``outlook`` describes, in the order in which it is shown.

    Args:
        outlook: the votes.
        aggregators: what is compared; None for the proposals of all registered aggregators. Those that need predictions
            come as the last of two `Rounds`. Only the proportions of their noise matter.
        variants: whether the other forms of each follow it, but for those that are compared anyway.
    """
    if aggregators is None:
        aggregators = all_proposals(outlook)
    compared = [_candidate(each, outlook) for each in aggregators]
    if not variants:
        return compared
    seen_aggregators = [candidate.aggregator for candidate in compared]
    with_forms: list[Candidate] = []
    for each, candidate in zip(aggregators, compared, strict=True):
        with_forms.append(candidate)
        for changed, form in forms(each, replace(outlook, relation=each.neighboring_relation)).items():
            variant = _candidate(form, outlook)
            if variant.aggregator not in seen_aggregators:
                seen_aggregators.append(variant.aggregator)
                with_forms.append(variant._replace(name=f"{candidate.name}, {changed}"))
    return with_forms


def families_of(compared: Iterable[Candidate]) -> dict[str, str]:
    """Return the family of each candidate by its name."""
    return {candidate.name: candidate.family for candidate in compared}


def _candidate(aggregator: Aggregator, outlook: Outlook) -> Candidate:
    complete = preceded(aggregator, replace(outlook, relation=aggregator.neighboring_relation))
    return Candidate(title(complete), type(aggregator).__name__, complete)
