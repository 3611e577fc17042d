"""The command `pate calibrate`: the noise that meets a target, as settings for ``label.yaml``."""

from dataclasses import MISSING, fields
from enum import Enum
from functools import partial
from typing import Any

import yaml

from pate._core.accounting.accountant import Target, epsilon_of
from pate._core.accounting.cost import NeighboringRelation, format_epsilon, format_exact
from pate._core.release.transaction import require_promise
from pate._core.settings import Partial, import_path
from pate._core.validation import given, require, require_in_open_unit_interval
from pate._labeling.aggregators.base import Aggregator, AnyAggregator, made_for, registered
from pate._labeling.aggregators.top_k import StableTopK
from pate._labeling.commands.parsing import run_command
from pate._labeling.release.completion import complete_aggregator, scale_to_target
from pate._labeling.votes.kinds import VoteShape


def calibrate(
    *,
    aggregator: AnyAggregator | None = None,
    target_epsilon: float,
    delta: float,
    num_queries: int,
    shape: VoteShape,
    neighboring_relation: NeighboringRelation = NeighboringRelation.REPLACE_RECORD,
    delta_test: float | None = None,
    answered: float = 0.9,
) -> dict[str, float]:
    """Find the noise that meets a target epsilon, print and return it.

    Args:
        aggregator: the mechanism: a name, with settings chosen for the target, or a class with
            settings. Only the proportions of its noise matter, because one factor scales all of it.
            None for ``StableTopK``.
        target_epsilon: the largest epsilon of all queries together.
        delta: the delta of the target.
        num_queries: number of queries.
        shape: the numbers of teachers and labels.
        neighboring_relation: the relation of the target.
        delta_test: the share of delta of each stability test of ``StableTopK``. None for half of
            ``delta`` over all queries.
        answered: the probability that a query with the predicted gap is answered, or labeled as it
            would be without noise.

    Returns:
        The parameters of the noise, ``epsilon`` and, if the aggregator predicts one, the ``gap`` in
        votes.

    Raises:
        ValueError: if no noise meets the target, the class needs settings that a target does not
            suggest, or the aggregator has another relation.
    """
    require_in_open_unit_interval(answered=answered)
    # otherwise a release by the printed settings would be refused
    require_promise(delta, num_units=shape.num_teachers)
    target = Target(
        epsilon=target_epsilon,
        delta=delta,
        num_queries=num_queries,
        neighboring_relation=neighboring_relation,
    )
    start: AnyAggregator = Partial(StableTopK) if aggregator is None else aggregator
    if isinstance(start, Partial) and start.missing == Partial(start.cls).missing:
        # a name without settings takes the relation of the target
        start = start.complete(neighboring_relation=neighboring_relation)
    relation = made_for(start)
    require(
        relation is neighboring_relation,
        f"--aggregator.neighboring_relation {neighboring_relation.name}, for which the target is",
        neighboring_relation=relation.name,
    )
    if isinstance(start, Partial) and "delta_test" in start.missing:
        start = start.complete(**given(delta_test=delta_test))
    else:
        name = (start.cls if isinstance(start, Partial) else type(start)).__name__
        require(delta_test is None, f"no delta_test for {name}", delta_test=delta_test)
    completed = complete_aggregator(start, target, shape, answered=answered)
    return _report(scale_to_target(completed, target, shape), target, shape, answered)


def _report(
    aggregator: Aggregator, target: Target, shape: VoteShape, answered: float
) -> dict[str, float]:
    """Print and return a calibrated aggregator's noise, its epsilon and the gap of an answer."""
    relation, delta = target.neighboring_relation, target.delta
    epsilon = epsilon_of(aggregator.event(shape, relation), count=target.num_queries, delta=delta)
    values = {field.name: getattr(aggregator, field.name) for field in fields(aggregator)}
    parameters = {
        name: value for name, value in values.items() if isinstance(value, float)
    } | aggregator.noise
    head = f"{aggregator.display_name} under {relation.value.upper()}"
    lines = [f"{head}, {target.num_queries} queries, delta = {format_exact(delta)}:"]
    lines += [f"    {name} = {format_exact(value)}" for name, value in parameters.items()]
    lines.append(
        f"    epsilon = {format_epsilon(epsilon, 4)} (target {format_exact(target.epsilon)})"
    )
    parameters["epsilon"] = epsilon
    if (gap := aggregator.gap_needed(shape, probability=answered)) is not None:
        lines.append(f"{gap.meaning} with probability {answered:g}.")
        if gap.votes > gap.available:
            lines.append(
                f"{shape.num_teachers} teachers cannot have it: ask fewer queries, or for a larger"
                " epsilon."
            )
        parameters["gap"] = gap.votes
    content = {
        "aggregator": _settings(aggregator),
        "num_queries": target.num_queries,
        "delta": delta,
    }
    print(
        "\n".join(lines) + "\n\n# label.yaml\n" + yaml.safe_dump(content, sort_keys=False), end=""
    )
    return parameters


def _settings(aggregator: Aggregator) -> dict[str, Any]:
    """Return an aggregator as written in YAML, by its short name if any, without defaults."""
    values = {field.name: getattr(aggregator, field.name) for field in fields(aggregator)}
    # a field without a default has MISSING, which no value equals
    defaults = {field.name: field.default for field in fields(aggregator)}
    defaults["neighboring_relation"] = MISSING
    short = registered().get(type(aggregator).__name__) is type(aggregator)
    return {
        "class_path": type(aggregator).__name__ if short else import_path(type(aggregator)),
        "init_args": {
            name: _written(value) for name, value in values.items() if value != defaults[name]
        },
    }


def _written(value: Any) -> Any:
    """Return the value of a setting as written in YAML."""
    if isinstance(value, Aggregator):
        return _settings(value)
    if isinstance(value, tuple):
        return [_written(item) for item in value]
    return value.name if isinstance(value, Enum) else value


main = partial(run_command, "calibrate", calibrate, grouped={"shape": VoteShape})
