"""The aggregators of a class that are worth comparing, and their titles.

A class says so itself where it can: by class methods ``proposals(outlook)``, ``variants(outlook)`` and
``for_target(target, panel, delta_test=, answered=)``, a method ``gap_needed(panel, probability=)`` and a property
``marks``. None of them is part of `Aggregator`; a plug-in brings those that it likes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pate._validation import expect
from pate._votes import Panel
from pate.accounting._calibration import Target
from pate.aggregators._base import Aggregator
from pate.aggregators._outlook import Gap, Outlook
from pate.aggregators._plugins import registered
from pate.aggregators._rounds import Rounds


def title(aggregator: Aggregator) -> str:
    """Return the name of the class, with the ``marks`` of this instance in brackets: words, or aggregators within."""
    marks = [title(mark) if isinstance(mark, Aggregator) else mark for mark in getattr(aggregator, "marks", ())]
    named = ", ".join(mark for mark in marks if mark)
    return type(aggregator).__name__ + (f" ({named})" if named else "")


def proposals(cls: type[Aggregator], outlook: Outlook) -> tuple[Aggregator, ...]:
    """Return the instances of a class worth comparing on the votes that ``outlook`` describes, under its relation.

    They are the ``proposals(outlook)`` of the class, and by default one instance if it needs nothing but noise. Noise
    that they lack is 1: only its proportions matter.
    """
    hook = getattr(cls, "proposals", None)
    if hook is None:
        proposed: Sequence[Aggregator] = (cls.blank(),) if set(cls.required) <= set(cls.noise_parameters) else ()
    else:
        proposed = hook(outlook)
    return tuple(_with_unit_noise(aggregator, outlook) for aggregator in proposed)


def propose(outlook: Outlook) -> list[Aggregator]:
    """Return the proposals of all registered aggregators; those that need predictions as the last of two `Rounds`."""
    return [preceded(aggregator, outlook) for aggregator in all_proposals(outlook)]


def all_proposals(outlook: Outlook) -> list[Aggregator]:
    """Return the proposals of all registered aggregators as they are, without rounds before those that need them."""
    return [aggregator for cls in registered().values() for aggregator in proposals(cls, outlook)]


def preceded(aggregator: Aggregator, outlook: Outlook) -> Aggregator:
    """Return an aggregator with a round before it if it needs predictions."""
    return Rounds.before(aggregator, outlook) if aggregator.needs_predictions else aggregator


def variants(cls: type[Aggregator], outlook: Outlook) -> Mapping[str, Sequence[Any]]:
    """Return the public settings that give a class another form: all values worth comparing, by field.

    Each value suits any instance of the class on the panel of ``outlook``, and none needs more of the votes than the
    others. By default there are none.
    """
    hook = getattr(cls, "variants", None)
    values: Mapping[str, Sequence[Any]] = {} if hook is None else hook(outlook)
    return values


def forms(aggregator: Aggregator, outlook: Outlook) -> dict[str, Aggregator]:
    """Return an aggregator with one field changed to another of its `variants`, by ``field=value``."""
    changed: dict[str, Aggregator] = {}
    for name, values in variants(type(aggregator), outlook).items():
        for value in values:
            change: dict[str, Any] = {name: value}
            if value != getattr(aggregator, name):
                changed[f"{name}={value}"] = replace(aggregator, **change)
    return changed


def gap_needed(aggregator: Aggregator, panel: Panel, *, probability: float) -> Gap | None:
    """Return the gap at which a query is answered as without noise with the given probability, in (0, 1).

    None if the class cannot predict one.
    """
    hook = getattr(aggregator, "gap_needed", None)
    gap: Gap | None = None if hook is None else hook(panel, probability=probability)
    return gap


def for_target(
    cls: type[Aggregator], target: Target, panel: Panel, *, delta_test: float | None = None, answered: float = 0.9
) -> Aggregator | None:
    """Return the instance of a class that meets a target; None if no noise does.

    It is what the class's own ``for_target`` splits its noise to, by ``delta_test``, what each stability test adds to
    delta, and ``answered``, the probability with which a query is to be answered; else the first of its proposals,
    calibrated.

    Raises:
        ValueError: if the class proposes no settings.
    """
    hook = getattr(cls, "for_target", None)
    if hook is not None:
        split: Aggregator | None = hook(target, panel, delta_test=delta_test, answered=answered)
        return split
    name = cls.__name__
    expect(delta_test is None, f"no delta_test for {name}", delta_test=delta_test)
    outlook = Outlook(
        panel=panel, num_queries=target.num_queries, delta=target.delta, relation=target.neighboring_relation
    )
    proposed = proposals(cls, outlook)
    expect(proposed, f"settings of {name}, which proposes none for {panel.num_labels} labels", aggregator=name)
    return proposed[0].calibrated(target, panel)


def _with_unit_noise(aggregator: Aggregator, outlook: Outlook) -> Aggregator:
    missing = [name for name in aggregator.noise_parameters if name in aggregator.missing]
    settings: dict[str, Any] = dict.fromkeys(missing, 1.0)
    return replace(aggregator, neighboring_relation=outlook.relation, **settings)
