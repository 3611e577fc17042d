"""The command `pate calibrate`: the noise that meets a target, and what to write into ``label.yaml``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import MISSING, fields
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from pate.accounting.calibration import Target, epsilon_of
from pate.accounting.figures import epsilon_text, exact_text
from pate.accounting.relation import NeighboringRelation
from pate.aggregators import Aggregator, registered
from pate.commands.parsing import call
from pate.commands.unscaled import completed
from pate.settings import path_of
from pate.validation import expect, expect_open_unit
from pate.votes import Panel

_GROUPED: dict[str, type] = {"panel": Panel}


def calibrate(
    *,
    aggregator: Aggregator,
    target_epsilon: float,
    delta: float,
    num_queries: int,
    panel: Panel,
    neighboring_relation: NeighboringRelation = NeighboringRelation.REPLACE_RECORD,
    answered: float = 0.9,
) -> dict[str, float]:
    """Find the noise that meets a target epsilon, print and return it.

    Args:
        aggregator: the mechanism: a name alone, or a class with settings. Only the proportions of its noise matter: all
            of it is scaled by one factor.
        target_epsilon: the largest epsilon of all queries together.
        delta: the delta at which it holds.
        num_queries: number of queries asked.
        panel: the numbers of teachers and labels.
        neighboring_relation: the relation under which the target holds.
        answered: the probability with which a query of the predicted gap is answered, or labelled as without noise.

    Returns:
        The parameters of the noise, ``epsilon`` and, if the aggregator predicts one, the ``gap`` in votes.

    Raises:
        ValueError: if no noise meets the target, or the aggregator is for another relation.
    """
    expect_open_unit(answered=answered)
    target = _target(target_epsilon, delta, num_queries, neighboring_relation)
    own, wanted = aggregator.neighboring_relation, target.neighboring_relation
    same = f"--aggregator.neighboring_relation {wanted.name}, for which the target is"
    expect(own is wanted, same, neighboring_relation=own.name)
    return _report(aggregator.calibrated(target, panel), target, panel, answered)


def calibrate_kind(
    *,
    aggregator: str = "StableTopK",
    target_epsilon: float,
    delta: float,
    num_queries: int,
    panel: Panel,
    neighboring_relation: NeighboringRelation = NeighboringRelation.REPLACE_RECORD,
    delta_test: float | None = None,
    answered: float = 0.9,
) -> dict[str, float]:
    """Find the noise that meets a target epsilon, print and return it.

    Args:
        aggregator: the mechanism: the name of a class of this package or of an installed one, or the path of any other,
            which chooses its settings by the target; or a class with settings, whose noise may be in any proportion.
        target_epsilon: the largest epsilon of all queries together.
        delta: the delta at which it holds.
        num_queries: number of queries asked.
        panel: the numbers of teachers and labels.
        neighboring_relation: the relation under which the target holds.
        delta_test: what each stability test of ``StableTopK`` adds to delta. None for half of ``delta`` over all
            queries.
        answered: the probability with which a query of the predicted gap is answered, or labelled as without noise.

    Returns:
        The parameters of the noise, ``epsilon`` and, if the aggregator predicts one, the ``gap`` in votes.

    Raises:
        ValueError: if no noise meets the target, or the class needs settings that a target does not suggest.
    """
    expect_open_unit(answered=answered)
    target = _target(target_epsilon, delta, num_queries, neighboring_relation)
    found = _kind(aggregator).for_target(target, panel, delta_test=delta_test, answered=answered)
    return _report(found, target, panel, answered)


def _kind(name: str) -> type[Aggregator]:
    """Return the class of a short name or of a class path."""
    known = registered()
    module, _, cls = name.rpartition(".")
    try:
        found = getattr(import_module(module), cls) if module else known.get(name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"Expected --aggregator with the path of a class, got {name}: {error}") from None
    right = isinstance(found, type) and issubclass(found, Aggregator)
    expect(right, f"--aggregator among {', '.join(known)}, or the path of another one", aggregator=name)
    assert found is not None
    return found


def _target(epsilon: float, delta: float, num_queries: int, relation: NeighboringRelation) -> Target:
    return Target(epsilon=epsilon, delta=delta, num_queries=num_queries, neighboring_relation=relation)


def _report(aggregator: Aggregator | None, target: Target, panel: Panel, answered: float) -> dict[str, float]:
    """Print and return the noise of a calibrated aggregator, its epsilon and the gap that a query needs."""
    reached = f"a target that some noise reaches, with delta = {target.delta:g}"
    expect(aggregator is not None, reached, target_epsilon=target.epsilon)
    assert aggregator is not None
    relation, delta = target.neighboring_relation, target.delta
    epsilon = epsilon_of(aggregator.event(panel, relation), count=target.num_queries, delta=delta)
    values = {field.name: getattr(aggregator, field.name) for field in fields(aggregator)}
    found = {name: value for name, value in values.items() if isinstance(value, float)} | aggregator.noise
    head = f"{aggregator.title} under {relation.value.upper()}"
    lines = [f"{head}, {target.num_queries} queries, delta = {exact_text(delta)}:"]
    lines += [f"    {name} = {exact_text(value)}" for name, value in found.items()]
    lines.append(f"    epsilon = {epsilon_text(epsilon, 4)} (target {exact_text(target.epsilon)})")
    found["epsilon"] = epsilon
    if (gap := aggregator.gap_needed(panel, probability=answered)) is not None:
        lines.append(f"{gap.meaning} with probability {answered:g}.")
        if gap.votes > gap.available:
            lines.append(f"{panel.num_teachers} teachers cannot have it: ask fewer queries, or for a larger epsilon.")
        found["gap"] = gap.votes
    content = {"aggregator": _settings(aggregator), "num_queries": target.num_queries, "delta": delta}
    print("\n".join(lines) + "\n\n# label.yaml\n" + yaml.safe_dump(content, sort_keys=False), end="")
    return found


def _settings(aggregator: Aggregator) -> dict[str, Any]:
    """Return an aggregator as written in YAML: by its short name if it has one, without default values."""
    given: dict[str, Any] = {}
    for field in fields(aggregator):
        value = getattr(aggregator, field.name)
        if field.name == "neighboring_relation" or field.default is MISSING or value != field.default:
            given[field.name] = _written(value)
    short = registered().get(type(aggregator).__name__) is type(aggregator)
    return {"class_path": type(aggregator).__name__ if short else path_of(type(aggregator)), "init_args": given}


def _written(value: Any) -> Any:
    """Return the value of a setting as written in YAML."""
    if isinstance(value, Aggregator):
        return _settings(value)
    if isinstance(value, tuple):
        return [_written(each) for each in value]
    return value.name if isinstance(value, Enum) else value


def main(args: Sequence[str]) -> None:
    """Run `pate calibrate`."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for option in ("--aggregator", "--config"):
        early.add_argument(option, nargs="?")  # the command's own parser says that a value is missing
    given, rest = early.parse_known_args(list(args))
    settings = any(word.startswith("--aggregator.") for word in rest)
    if given.aggregator is None:
        by_name = not settings and given.config is None
    else:
        # a path with no settings may be that of a class or of a file
        by_name = not settings and all(map(str.isidentifier, given.aggregator.split(".")))
        by_name = by_name and not Path(given.aggregator).is_file()
    if by_name:
        call("calibrate", calibrate_kind, args, grouped=_GROUPED)
    else:
        call("calibrate", calibrate, args, grouped=_GROUPED, completed=completed)
