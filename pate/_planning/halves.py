"""One target for two releases: of score votes first, and then of teachers that start from what was released."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pate._planning.completion import resolve_settings
from pate._release.label_settings import LabelSettings
from pate._validation import require
from pate._votes import VoteShape
from pate.accounting._accountant import Target, calibrate_scale, epsilon_of
from pate.accounting._charges import Charge
from pate.accounting._events import GaussianEvent
from pate.aggregators import Partial, ScoreVotes

_MANY = 10_000  # teachers, with which noise is tried before their number is known
_ANSWERED = 0.9  # the probability with which a query of the predicted gap is answered
_SPARE = 1.5  # teachers for each vote of that gap


def first_settings(settings: LabelSettings) -> LabelSettings:
    """Return the settings of the first release: score votes on all public samples, for half of the squared budget.

    The budget is a squared inverse noise multiplier, that of Gaussian noise which meets the target.

    Raises:
        ValueError: without a target epsilon, or with a budget, whose filter might admit the first
            release and not the second.
    """
    require(
        settings.max_epsilon is None,
        "no `max_epsilon` with start_from: first, whose target covers both releases",
        max_epsilon=settings.max_epsilon,
    )
    require(
        settings.target_epsilon is not None,
        "`target_epsilon`, which both releases share",
        target_epsilon=None,
    )
    assert settings.target_epsilon is not None
    relation, reach = settings.relation, settings.max_teachers_per_unit

    def event(multiplier: float) -> GaussianEvent:
        return GaussianEvent(neighboring_relation=relation, noise_multiplier=multiplier)

    target = Target(
        epsilon=settings.target_epsilon,
        delta=settings.delta,
        num_queries=1,
        neighboring_relation=relation,
        max_teachers_per_unit=reach,
    )
    half = event(math.sqrt(2) * calibrate_scale(event, target)).for_group_size(reach)
    return LabelSettings(
        Partial(ScoreVotes, neighboring_relation=relation),
        delta=settings.delta,
        target_epsilon=epsilon_of(half, count=1, delta=settings.delta),
        max_teachers_per_unit=reach,
        noise_seed=settings.noise_seed,
    )


def teachers_for(
    settings: LabelSettings, num_labels: int, size: int, before: Sequence[Charge]
) -> int:
    """Return how many teachers answer by what is left of a target: half as many again as the gap that a query needs.

    It is a public number, rounded up to two digits. A teacher without records repeats the released
    student, so that more teachers than records do no harm, and add nothing.

    Args:
        settings: the settings of the second release.
        num_labels: the number of labels.
        size: the number of public samples.
        before: the charges of the earlier releases that the target covers.

    Raises:
        ValueError: if no gap is predicted for the aggregator.
    """
    # a delta promises something for fewer teachers than one over it
    shape = VoteShape(min(_MANY, math.ceil(1 / settings.delta) - 1), num_labels)
    aggregator = resolve_settings(settings, shape, size, before=before).mechanism
    gap = aggregator.gap_needed(shape, probability=_ANSWERED)
    name = type(aggregator).__name__
    require(gap is not None, f"num_teachers in teachers.yaml with {name}", num_teachers=None)
    assert gap is not None
    number = max(2.0, _SPARE * gap.votes * shape.num_teachers / gap.available)
    digits = 10.0 ** max(0, math.floor(math.log10(number)) - 1)
    return int(math.ceil(number / digits) * digits)
