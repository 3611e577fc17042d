"""One target for several releases: public samples, score votes, teachers that start from these."""

import math
from collections.abc import Sequence

from pate._planning.completion import resolve_settings
from pate._release.label_settings import LabelSettings
from pate._release.public_samples import SampleSettings
from pate._validation import MOST_VOTERS, require, require_given
from pate._votes import Moments, VoteShape
from pate.accounting import GaussianEvent, Target, calibrate_scale, epsilon_of
from pate.accounting._charges import Charge
from pate.aggregators import Partial, ScoreVotes
from pate.data._records import Unit

_OF_SAMPLES = 0.2  # of the squared budget
_MANY = 10_000  # teachers, with which noise is tried before their number is known
_ANSWERED = 0.9  # the probability with which a query of the predicted gap is answered
_SPARE = 1.5  # teachers for each vote of that gap


def first_settings(settings: LabelSettings) -> LabelSettings:
    """Return the settings of the first release, for half of the squared budget.

    It has score votes on all public samples. The budget is a squared inverse noise multiplier, that
    of Gaussian noise which meets the target.

    Raises:
        ValueError: without a target epsilon, or with a budget, whose filter might admit the first
            release and not the second.
    """
    half = _share(settings, 1 / 2).for_group_size(settings.max_teachers_per_unit)
    return LabelSettings(
        Partial(ScoreVotes, neighboring_relation=settings.relation),
        delta=settings.delta,
        target_epsilon=epsilon_of(half, count=1, delta=settings.delta),
        max_teachers_per_unit=settings.max_teachers_per_unit,
        noise_seed=settings.noise_seed,
    )


def sample_settings(settings: LabelSettings, unit: Unit) -> SampleSettings:
    """Return the settings of public samples that are drawn, for a fifth of the squared budget.

    Raises ``ValueError`` as `first_settings` does.
    """
    return SampleSettings(
        noise_multiplier=_share(settings, _OF_SAMPLES).noise_multiplier,
        delta=settings.delta,
        relation=settings.relation,
        unit=unit,
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
    epsilon = require_given(
        settings.target_epsilon,
        "`target_epsilon`, which several releases share",
        target_epsilon=None,
    )

    def event(multiplier: float) -> GaussianEvent:
        return GaussianEvent(neighboring_relation=settings.relation, noise_multiplier=multiplier)

    target = Target(
        epsilon=epsilon,
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

    They are half as many again as the gap that a query needs. It is a public number, rounded up to
    two digits. A teacher without records repeats the released student, so that more teachers than
    records do no harm, and add nothing.

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
    gap = require_given(
        aggregator.gap_needed(shape, probability=_ANSWERED),
        f"num_teachers in teachers.yaml with {type(aggregator).__name__}",
        num_teachers=None,
    )
    number = max(2.0, _SPARE * gap.votes * shape.num_teachers / gap.available)
    digits = 10.0 ** max(0, math.floor(math.log10(number)) - 1)
    return int(math.ceil(number / digits) * digits)


def teachers_that_start(settings: LabelSettings, num_labels: int, size: int) -> int:
    """Return how many teachers start from the first of two releases (``start_from: first``).

    Args:
        settings: the settings of the second release.
        num_labels: the number of labels.
        size: the number of public samples, on which all records vote in the first.

    Raises:
        ValueError: as `teachers_for` and `first_settings` do.
    """
    shape = VoteShape(MOST_VOTERS, num_labels)
    first = resolve_settings(first_settings(settings), shape, size, Moments)
    return teachers_for(settings, num_labels, size, [first.charge(shape)])
