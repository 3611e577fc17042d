"""An aggregator for a target: missing fields are filled in, and all its noise is scaled by one factor."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pate._release.label_settings import LabelSettings
from pate._release.promise import require_promise
from pate._settings import parts
from pate._validation import require, require_given
from pate._votes import Ballots, MaskedTotal, Moments, Scores, Votes, VoteShape
from pate.accounting._accountant import Target
from pate.accounting._bisection import smallest_where
from pate.accounting._charges import Budget, Charge
from pate.accounting._filters import affordable
from pate.aggregators import Aggregator, Outlook, Partial, Rounds, ScoreVotes, SiloVotes
from pate.aggregators._base import AnyAggregator
from pate.aggregators._personal_votes import by_budgets

_EXCESS = 3e-6  # relative; noise that exceeds the least by less is kept as it is
_TOLERANCE = 1e-6
DEFAULTS: Mapping[type[Votes], type[Aggregator]] = {
    Scores: ScoreVotes,
    Moments: ScoreVotes,
    MaskedTotal: SiloVotes,
}
"""What a target alone takes of votes of a kind, in place of `Rounds`."""


def resolve_settings(
    settings: LabelSettings,
    shape: VoteShape,
    size: int,
    kind: type[Votes] = Ballots,
    *,
    before: Sequence[Charge] = (),
    budgets: Sequence[float] = (),
) -> LabelSettings:
    """Return settings for given votes: the number of queries, and noise that meets the target if there is one.

    They are votes of ``shape`` on ``size`` samples, of a kind. Repeating it changes nothing. The
    target covers the releases ``before``, which public samples or the same teachers came from. If
    records have personal ``budgets``, the aggregator weighs them. Raises ``ValueError`` if there are fewer samples than queries, no noise meets the target, the
    budget is below it, or the aggregator takes votes of another kind.
    """
    number = size if settings.num_queries is None else settings.num_queries
    require(number <= size, f"num_queries <= {size}", num_queries=number)
    require_promise(settings.delta, num_units=shape.num_teachers)
    reach = settings.max_teachers_per_unit
    require(
        reach <= shape.num_teachers,
        f"max_teachers_per_unit <= {shape.num_teachers}",
        max_teachers_per_unit=reach,
    )
    aggregator = settings.aggregator
    if budgets:
        aggregator = by_budgets(aggregator, budgets, settings.delta)
        settings = replace(settings, aggregator=aggregator)
    if isinstance(aggregator, Aggregator):
        aggregator.require_kind(kind)
    elif isinstance(aggregator, Partial) and aggregator.cls.splits_noise:
        # slow to complete, and no setting changes the kinds that it takes
        object.__new__(aggregator.cls).require_kind(kind)
    if settings.target_epsilon is None:
        return replace(settings, num_queries=number)
    target = Target(
        epsilon=settings.target_epsilon,
        delta=settings.delta,
        num_queries=number,
        neighboring_relation=settings.relation,
        max_teachers_per_unit=settings.max_teachers_per_unit,
        before=before,
    )
    if aggregator is None and kind in DEFAULTS:
        aggregator = Partial(DEFAULTS[kind])
    scaled = scale_to_target(
        complete_aggregator(aggregator, target, shape), target, shape, settings.budget
    )
    scaled.require_kind(kind)
    return replace(settings, num_queries=number, aggregator=scaled)


def complete_aggregator(
    aggregator: AnyAggregator | None, target: Target, shape: VoteShape, *, answered: float = 0.9
) -> Aggregator:
    """Return an aggregator with its missing fields filled in, before its noise is scaled to the target.

    Args:
        aggregator: the aggregator, or a `Partial` of one; None for `pate.aggregators.Rounds`.
        target: what all queries may cost together, under the aggregator's own relation.
        shape: the numbers of teachers and labels.
        answered: the probability with which a query is to be answered, for classes that split their
            noise by it.

    Returns:
        The same aggregator if nothing is missing. Otherwise missing noise is 1, or its class
        chooses it for the target together with the other missing fields; so do aggregators within.

    Raises:
        ValueError: if some noise is missing but not all, no noise meets the target, or the class
            needs settings that a target does not suggest.
    """
    if aggregator is None:
        aggregator = Partial(Rounds, neighboring_relation=target.neighboring_relation)
    if isinstance(aggregator, Aggregator):
        return aggregator
    noise = _noise_given(aggregator)
    require(
        len({is_given for _, is_given in noise}) < 2,
        f"all noise of {aggregator.cls.__name__} or none of it",
        missing=", ".join(f"`aggregator.{name}`" for name, is_given in noise if not is_given),
    )
    return _completed(aggregator, "aggregator", target, shape, answered)


def _noise_given(aggregator: AnyAggregator, place: str = "") -> list[tuple[str, bool]]:
    """Return the scales of noise, those of aggregators within included, and whether each is given."""
    if isinstance(aggregator, Aggregator):
        return [(place + name, True) for name in aggregator.noise]
    settings = aggregator.settings
    noise = [(place + name, name in settings) for name in aggregator.cls.noise_parameters]
    for name, value in settings.items():
        for part in parts(value, Aggregator | Partial):
            noise += _noise_given(part, f"{place}{name}.")
    return noise


def _completed(value: Any, place: str, target: Target, shape: VoteShape, answered: float) -> Any:
    """Return the value of a setting at a ``place``, with all that partial aggregators in it lack."""
    if isinstance(value, list | tuple):
        return tuple(_completed(item, place, target, shape, answered) for item in value)
    if not isinstance(value, Partial):
        return value
    cls = value.cls
    given = {
        name: _completed(part, f"{place}.{name}", target, shape, answered)
        for name, part in value.settings.items()
    }
    missing = [name for name in Partial(cls).missing if name not in given]
    if {*missing} <= {*cls.noise_parameters} and not cls.splits_noise:
        found: dict[str, Any] = dict.fromkeys(missing, 1.0)
    else:
        start = _starting_point(value, place, target, shape, answered)
        found = {name: getattr(start, name) for name in missing}
    return cls(**given, **found)


def _starting_point(
    aggregator: Partial[Aggregator],
    place: str,
    target: Target,
    shape: VoteShape,
    answered: float,
) -> Aggregator:
    """Return what the class of an aggregator chooses for a target, given some of its settings."""
    cls = aggregator.cls
    if cls.splits_noise:
        start = cls.for_target(
            target, shape, delta_test=aggregator.setting("delta_test"), answered=answered
        )
        return _reached(start, target)
    outlook = Outlook.at(target, shape, labels_per_sample=aggregator.setting("k"))
    try:
        proposed = cls.proposals(outlook)
    except ValueError:
        others = [name for name in aggregator.missing if name not in cls.noise_parameters]
        words = ", ".join(f"{name} (`{place}.{name}`)" for name in others)
        require(not others, f"{words} of {cls.__name__}, which no target suggests")
        raise
    require(
        proposed,
        f"settings of {cls.__name__}, which proposes none for {shape.num_labels} labels",
    )
    return proposed[0]


def _reached(aggregator: Aggregator | None, target: Target) -> Aggregator:
    """Return an aggregator that meets a target. Raises ``ValueError`` where none does."""
    reached = f"a target that some noise reaches, with delta = {target.delta:g}"
    return require_given(aggregator, reached, target_epsilon=target.epsilon)


def scale_to_target(
    aggregator: Aggregator, target: Target, shape: VoteShape, budget: Budget | None = None
) -> Aggregator:
    """Return an aggregator with all its noise scaled by the least factor at which a release meets its target.

    Noise that already meets the target and hardly exceeds the least is kept to the last digit, so
    that settings read from a file stay the same. With a budget, the release must be one that an
    unused ledger admits: its filter, fixed before the first release, may ask for a little more
    noise than the target.

    Args:
        aggregator: noise in any proportion.
        target: what all queries may cost together, under the aggregator's own relation.
        shape: the numbers of teachers and labels.
        budget: the budget of the ledger, at the same delta, for the same relation and units; None
            for none.

    Raises:
        ValueError: if no noise meets the target, it exceeds the budget, or the aggregator cannot
            serve the shape.
    """
    relation = target.neighboring_relation
    if budget is not None:
        most = f"target_epsilon <= {budget.max_epsilon} (`max_epsilon`)"
        require(target.epsilon <= budget.max_epsilon, most, target_epsilon=target.epsilon)

    def admitted(factor: float) -> bool:
        query = (
            candidate.scaled(factor)
            .event(shape, relation)
            .for_group_size(target.max_teachers_per_unit)
        )
        return budget is None or affordable(budget, query.cost()) >= target.num_queries

    def meets(factor: float) -> bool:
        event = candidate.scaled(factor).event(shape, relation)
        return target.epsilon_of(event) <= target.epsilon and admitted(factor)

    candidate = aggregator
    if meets(1.0) and not meets(1 - _EXCESS):
        return aggregator
    candidate = _reached(aggregator.calibrated(target, shape, tolerance=_TOLERANCE), target)
    if admitted(1.0):
        return candidate
    reached = f"a target that some noise keeps within {budget}"
    high = 1.01
    while not admitted(high):
        high *= high
        require(high < 1e6, reached, target_epsilon=target.epsilon)
    return candidate.scaled(smallest_where(admitted, 1.0, high, tolerance=_TOLERANCE))
