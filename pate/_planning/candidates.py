"""Candidates of a comparison: aggregators and their names in tables and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from pate._planning.outlook import Outlook
from pate._planning.proposals import all_proposals, forms, title, with_first_round
from pate.aggregators import Aggregator


class Candidate(NamedTuple):
    """An aggregator that is compared with others."""

    name: str
    """Its title; for a variant, the title of the original aggregator and the changed field."""
    family: str
    """The name of its class; if a round precedes it, that of the last round."""
    aggregator: Aggregator


def candidates(
    outlook: Outlook, aggregators: Sequence[Aggregator] | None = None, *, variants: bool = False
) -> list[Candidate]:
    """Return the candidates for votes that ``outlook`` describes, in the order of tables and pictures.

    Args:
        outlook: the votes.
        aggregators: what is compared; None for the proposals of all registered aggregators. Those
            that need predictions come as the last of two `Rounds`. Only the proportions of their
            noise matter.
        variants: whether each is followed by its other forms, unless these are candidates already.
    """
    if aggregators is None:
        aggregators = all_proposals(outlook)
    compared = [_candidate(aggregator, outlook) for aggregator in aggregators]
    if not variants:
        return compared
    seen_aggregators = [candidate.aggregator for candidate in compared]
    with_forms: list[Candidate] = []
    for aggregator, candidate in zip(aggregators, compared, strict=True):
        with_forms.append(candidate)
        for changed, form in forms(
            aggregator, replace(outlook, relation=aggregator.neighboring_relation)
        ).items():
            variant = _candidate(form, outlook)
            if variant.aggregator not in seen_aggregators:
                seen_aggregators.append(variant.aggregator)
                with_forms.append(variant._replace(name=f"{candidate.name}, {changed}"))
    return with_forms


def families_of(compared: Iterable[Candidate]) -> dict[str, str]:
    """Return the family of each candidate by its name."""
    return {candidate.name: candidate.family for candidate in compared}


def _candidate(aggregator: Aggregator, outlook: Outlook) -> Candidate:
    complete = with_first_round(
        aggregator, replace(outlook, relation=aggregator.neighboring_relation)
    )
    return Candidate(title(complete), type(aggregator).__name__, complete)
