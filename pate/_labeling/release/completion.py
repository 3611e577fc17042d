"""An aggregator for a target: missing fields are filled in, and one factor scales all its noise.

First one release by itself. Then the shares of several releases under one target: public samples
that are drawn, score votes, and teachers that start from their student. Then the forms of an
aggregator that differ in one field. All of it follows from public numbers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pate._core.accounting.accountant import Target, calibrate_scale, epsilon_of
from pate._core.accounting.base import Event
from pate._core.accounting.charges import Budget, Charge
from pate._core.accounting.cost import NeighboringRelation, smallest_where
from pate._core.accounting.events import GaussianEvent
from pate._core.accounting.filters import affordable
from pate._core.release.transaction import require_promise
from pate._core.settings import Partial, parts
from pate._core.validation import MOST_VOTERS, require, require_given
from pate._labeling.aggregators.base import Aggregator, AnyAggregator, Outlook
from pate._labeling.aggregators.clipped_votes import Rounds
from pate._labeling.aggregators.noisy_votes import SiloVotes
from pate._labeling.aggregators.score_votes import ScoreVotes
from pate._labeling.release.label_settings import LabelSettings
from pate._labeling.votes.kinds import (
    Ballots,
    MaskedTotal,
    Moments,
    Scores,
    Votes,
    VoteShape,
    require_kind,
)

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
) -> LabelSettings:
    """Return settings for given votes: the number of queries, and noise that meets a target.

    They are votes of ``shape`` on ``size`` samples, of a kind. Repeating it changes nothing. The
    target covers the releases ``before``, which public samples or the same teachers came from.

    Raises ``ValueError`` if there are fewer samples than queries, no noise meets the target, the
    budget is below it, or the aggregator takes votes of another kind.
    """
    number = size if settings.num_queries is None else settings.num_queries
    require(number <= size, f"num_queries <= {size}", num_queries=number)
    require_promise(settings.delta, num_units=shape.num_teachers)
    require(
        settings.max_teachers_per_unit <= shape.num_teachers,
        f"max_teachers_per_unit <= {shape.num_teachers}",
        max_teachers_per_unit=settings.max_teachers_per_unit,
    )
    aggregator = settings.aggregator
    if isinstance(aggregator, Aggregator):
        aggregator.require_kind(kind)
    elif isinstance(aggregator, Partial) and aggregator.cls.splits_noise:
        # slow to complete, and no setting changes the kinds that it takes
        require_kind(kind, aggregator.cls.takes, aggregator.cls.__name__)
    if settings.target_epsilon is None:
        return replace(settings, num_queries=number)
    require(
        not before
        or settings.relation is NeighboringRelation.REPLACE_RECORD
        or shape.num_teachers == MOST_VOTERS,
        "an aggregator for replace_record with a target that covers an earlier release, whose"
        " teachers were others",
        neighboring_relation=settings.relation.value,
    )
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
    aggregator: AnyAggregator | None, target: Target, shape: VoteShape
) -> Aggregator:
    """Return an aggregator with its missing fields, before its noise is scaled to the target.

    Args:
        aggregator: the aggregator, or a `Partial` of one. None for `pate.aggregators.Rounds`.
        target: what all queries may cost together, under the aggregator's own relation.
        shape: the numbers of teachers and labels.

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
    return _completed(aggregator, "aggregator", target, shape)


def _noise_given(aggregator: AnyAggregator, place: str = "") -> list[tuple[str, bool]]:
    """Return the scales of noise, of aggregators within too, and whether each is given."""
    if isinstance(aggregator, Aggregator):
        return [(place + name, True) for name in aggregator.noise]
    settings = aggregator.settings
    noise = [(place + name, name in settings) for name in aggregator.cls.noise_parameters]
    for name, value in settings.items():
        for part in parts(value, Aggregator | Partial):
            noise += _noise_given(part, f"{place}{name}.")
    return noise


def _completed(value: Any, place: str, target: Target, shape: VoteShape) -> Any:
    """Return a setting at a ``place``, with all that partial aggregators in it lack."""
    if isinstance(value, list | tuple):
        return tuple(_completed(item, place, target, shape) for item in value)
    if not isinstance(value, Partial):
        return value
    cls = value.cls
    given = {
        name: _completed(part, f"{place}.{name}", target, shape)
        for name, part in value.settings.items()
    }
    missing = [name for name in Partial(cls).missing if name not in given]
    if {*missing} <= {*cls.noise_parameters} and not cls.splits_noise:
        return cls(**given, **dict.fromkeys(missing, 1.0))
    start = _starting_point(value, place, target, shape)
    return cls(**given, **{name: getattr(start, name) for name in missing})


def _starting_point(
    aggregator: Partial[Aggregator],
    place: str,
    target: Target,
    shape: VoteShape,
) -> Aggregator:
    """Return what the class of an aggregator chooses for a target, given some of its settings."""
    cls = aggregator.cls
    if cls.splits_noise:
        return _reached(
            cls.for_target(target, shape, delta_test=aggregator.setting("delta_test")),
            target,
        )
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
    return require_given(
        aggregator,
        f"a target that some noise reaches, with delta = {target.delta:g}",
        target_epsilon=target.epsilon,
    )


def scale_to_target(
    aggregator: Aggregator, target: Target, shape: VoteShape, budget: Budget | None = None
) -> Aggregator:
    """Return an aggregator with its noise scaled by the least factor that meets a target.

    Noise that already meets the target and barely exceeds the least is kept to the last digit, so
    that settings read from a file stay the same. The cost is that of a statement, which uses the
    order of releases. With a budget, the release must be one that an
    unused ledger admits: its filter, fixed before the first release, may ask for a little more
    noise than the target.

    Args:
        aggregator: noise in any proportion.
        target: what all queries may cost together, under the aggregator's own relation.
        shape: the numbers of teachers and labels.
        budget: the budget of the ledger, at the same delta, for the same relation and units. None
            for none.

    Raises:
        ValueError: if no noise meets the target, it exceeds the budget, or the aggregator cannot
            serve the shape.
    """
    relation = target.neighboring_relation
    if budget is not None:
        require(
            target.epsilon <= budget.max_epsilon,
            f"target_epsilon <= {budget.max_epsilon} (`max_epsilon`)",
            target_epsilon=target.epsilon,
        )

    def event(factor: float) -> Event:
        return candidate.scaled(factor).event(shape, relation)

    def admitted(factor: float) -> bool:
        query = event(factor).for_group_size(target.max_teachers_per_unit)
        return budget is None or affordable(budget, query.cost()) >= target.num_queries

    def meets(factor: float) -> bool:
        priced = event(factor)
        return admitted(factor) and (
            target.epsilon_of(priced) <= target.epsilon
            or target.epsilon_of(priced, in_order=True) <= target.epsilon
        )

    candidate = aggregator
    if meets(1.0) and not meets(1 - _EXCESS):
        return aggregator
    candidate = _reached(aggregator.calibrated(target, shape, tolerance=_TOLERANCE), target)
    if meets(1 - _EXCESS):  # in their order releases cost less than by their sum
        candidate = candidate.scaled(
            calibrate_scale(event, target, tolerance=_TOLERANCE, in_order=True)
        )
    if admitted(1.0):
        return candidate
    high = 1.01
    while not admitted(high):
        high *= high
        require(
            high < 1e6,
            f"a target that some noise keeps within {budget}",
            target_epsilon=target.epsilon,
        )
    return candidate.scaled(smallest_where(admitted, 1.0, high, tolerance=_TOLERANCE))


_MANY = 10_000  # teachers that noise is tried with before their number is known
_ANSWERED = 0.9  # the probability of an answer if no more than those who must agree do
_SPARE = 1.5  # teachers for each of them


def first_settings(settings: LabelSettings) -> LabelSettings:
    """Return the settings of the first release, for half of the squared budget.

    It has score votes on all public samples. The budget is a squared inverse noise multiplier, that
    of Gaussian noise which meets the target.

    Raises:
        ValueError: without a target epsilon, or with a budget, whose filter might admit the first
            release and not the second.
    """
    return LabelSettings(
        Partial(ScoreVotes, neighboring_relation=settings.relation),
        delta=settings.delta,
        target_epsilon=epsilon_of(
            _share(settings, 1 / 2).for_group_size(settings.max_teachers_per_unit),
            count=1,
            delta=settings.delta,
        ),
        max_teachers_per_unit=settings.max_teachers_per_unit,
        noise_seed=settings.noise_seed,
    )


def _share(settings: LabelSettings, share: float) -> GaussianEvent:
    """Return Gaussian noise that takes a share of the squared budget of a target.

    Raises ``ValueError`` without a target, or with a budget.
    """
    require(
        settings.max_epsilon is None,
        "no `max_epsilon` where one target covers several releases",
        max_epsilon=settings.max_epsilon,
    )

    def event(multiplier: float) -> GaussianEvent:
        return GaussianEvent(neighboring_relation=settings.relation, noise_multiplier=multiplier)

    target = Target(
        epsilon=require_given(
            settings.target_epsilon,
            "`target_epsilon`, which several releases share",
            target_epsilon=None,
        ),
        delta=settings.delta,
        num_queries=1,
        neighboring_relation=settings.relation,
        max_teachers_per_unit=settings.max_teachers_per_unit,
    )
    return event(calibrate_scale(event, target) / math.sqrt(share))


def teachers_for(
    settings: LabelSettings, num_labels: int, size: int, before: Sequence[Charge]
) -> int:
    """Return how many teachers answer by the rest of a target.

    They are half as many again as those who must agree for an answer. It is a public number,
    rounded up to two digits. A teacher without records repeats the released student, so that more
    teachers than records do no harm, and add nothing.

    Args:
        settings: the settings of the second release.
        num_labels: the number of labels.
        size: the number of public samples.
        before: the charges of the earlier releases that the target covers.

    Raises:
        ValueError: if the aggregator does not tell how many must agree.
    """
    # a delta promises something for fewer teachers than one over it
    shape = VoteShape(min(_MANY, math.ceil(1 / settings.delta) - 1), num_labels)
    aggregator = resolve_settings(settings, shape, size, before=before).mechanism
    agreeing = require_given(
        aggregator.teachers_to_answer(_ANSWERED, num_labels),
        f"num_teachers in teachers.yaml with {type(aggregator).__name__}",
        num_teachers=None,
    )
    number = max(2.0, _SPARE * agreeing)
    digits = 10.0 ** max(0, math.floor(math.log10(number)) - 1)
    return int(math.ceil(number / digits) * digits)
