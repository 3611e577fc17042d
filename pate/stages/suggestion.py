"""What an aggregator is where its class alone is named: the noise that it begins with, before a target scales it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from pate.accounting.calibration import Target
from pate.aggregators.base import Aggregator, Outlook
from pate.validation import expect
from pate.votes import Panel


def required(cls: type[Aggregator]) -> list[str]:
    """Return the names of the parameters of a class that have no default."""
    return [each.name for each in fields(cls) if each.default is MISSING and each.default_factory is MISSING]


def takes_unit_noise(cls: type[Aggregator], settings: Mapping[str, Any]) -> bool:
    """Whether a class with some of its settings needs nothing but noise, in proportions that no target changes."""
    own: Any = cls.for_target
    default: Any = Aggregator.for_target
    return set(required(cls)) <= {*settings, *cls.noise_parameters} and own.__func__ is default.__func__


def suggested(cls: type[Aggregator], settings: Mapping[str, Any], target: Target, panel: Panel) -> dict[str, Any]:
    """Return the parameters that a class still needs to be scaled to a target.

    Args:
        cls: the class.
        settings: those that are given.
        target: what all queries may cost together.
        panel: the numbers of teachers and labels.

    Returns:
        Noise of 1, or all that the class chooses for the target: its noise and what has no default.

    Raises:
        ValueError: if no noise meets the target, or the class needs settings that a target does not suggest.
    """
    if takes_unit_noise(cls, settings):
        return dict.fromkeys(cls.noise_parameters, 1.0)
    start = _start(cls, settings, target, panel)
    return {name: getattr(start, name) for name in dict.fromkeys((*required(cls), *cls.noise_parameters))}


def _start(cls: type[Aggregator], settings: Mapping[str, Any], target: Target, panel: Panel) -> Aggregator:
    """Return what a class chooses for a target, given some of its settings."""
    own: Any = cls.for_target
    default: Any = Aggregator.for_target
    if own.__func__ is not default.__func__:
        share = settings.get("delta_test")
        found = cls.for_target(target, panel, delta_test=None if share is None else float(share))
        reached = f"a target that some noise reaches, with delta = {target.delta:g}"
        expect(found is not None, reached, target_epsilon=target.epsilon)
        assert found is not None
        return found
    outlook = Outlook(
        panel=panel,
        num_queries=target.num_queries,
        delta=target.delta,
        relation=target.neighboring_relation,
        labels_per_sample=int(settings["k"]) if "k" in settings else None,
    )
    try:
        proposed = cls.proposals(outlook)
    except ValueError:
        lacking = [each for each in required(cls) if each not in (*settings, *cls.noise_parameters)]
        said = ", ".join(f"{each} (--aggregator.{each})" for each in lacking)
        expect(not lacking, f"{said} of {cls.__name__}, which no target suggests", **dict.fromkeys(lacking))
        raise
    expect(proposed, f"settings of {cls.__name__}, which proposes none for {panel.num_labels} labels", aggregator=None)
    return proposed[0]
