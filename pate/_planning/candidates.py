"""Candidates of a comparison: aggregators and their names in tables and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import NamedTuple

from pate._planning.proposals import (
    one_change_variants,
    with_first_round,
)
from pate.aggregators import Aggregator, Outlook, registered


class Candidate(NamedTuple):
    """An aggregator that is compared with others."""

    name: str
    """The display name; for a variant, the name of the original and the changed field."""
    family: str
    """The name of the class; with a preceding round, the class of the last round."""
    aggregator: Aggregator


def candidates(
    outlook: Outlook, aggregators: Sequence[Aggregator] | None = None, *, variants: bool = False
) -> list[Candidate]:
    """Return the candidates for votes described by ``outlook``, in the order of tables.

    Args:
        outlook: the votes.
        aggregators: the aggregators to compare; None for the proposals of all registered ones.
            Aggregators that need predictions become the last of two `Rounds`. Only the proportions
            of their noise matter.
        variants: whether each is followed by its other forms, unless these are candidates already.
    """
    if aggregators is None:
        aggregators = [each for cls in registered().values() for each in cls.proposals(outlook)]
    compared = _named_apart(
        [_candidate(aggregator, outlook) for aggregator in aggregators], aggregators
    )
    if not variants:
        return compared
    seen_aggregators = [candidate.aggregator for candidate in compared]
    with_forms: list[Candidate] = []
    for aggregator, candidate in zip(aggregators, compared, strict=True):
        with_forms.append(candidate)
        for changed, form in one_change_variants(
            aggregator, replace(outlook, relation=aggregator.neighboring_relation)
        ).items():
            variant = _candidate(form, outlook)
            if variant.aggregator not in seen_aggregators:
                seen_aggregators.append(variant.aggregator)
                with_forms.append(variant._replace(name=f"{candidate.name}, {changed}"))
    return with_forms


def _named_apart(compared: list[Candidate], aggregators: Sequence[Aggregator]) -> list[Candidate]:
    """Return candidates with distinct names: equal names get the settings that differ."""
    named = []
    for candidate, aggregator in zip(compared, aggregators, strict=True):
        namesakes = [
            other
            for other, another in zip(aggregators, compared, strict=True)
            if another.name == candidate.name and type(other) is type(aggregator)
        ]
        apart = [
            f", {field.name}={value}"
            for field in fields(aggregator)
            if len({repr(getattr(other, field.name)) for other in namesakes}) > 1
            for value in [getattr(aggregator, field.name)]
        ]
        named.append(candidate._replace(name=candidate.name + "".join(apart)))
    return named


def _candidate(aggregator: Aggregator, outlook: Outlook) -> Candidate:
    complete = with_first_round(
        aggregator, replace(outlook, relation=aggregator.neighboring_relation)
    )
    return Candidate(complete.display_name, type(aggregator).__name__, complete)
