"""What is hopeless is refused, or said, before it is paid for.

`refuse_hopeless` refuses by public facts every release that is yet to be paid for: runs, `pate
label`, the estimator and silos reach it by `RunPlan.check`, in `require_possible`.
`describe_hopeless` knows private records, and speaks to their owner alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pate._core.release.transaction import suited_delta
from pate._core.validation import UNKNOWN, UInt8Array, require
from pate._labeling.aggregators.base import LEAST_ANSWERED, Aggregator
from pate._labeling.runs.vote_store import VoteFacts
from pate._labeling.teachers import ClosedFormPlan
from pate._labeling.votes.kinds import VoteShape

if TYPE_CHECKING:
    from pate._labeling.release.label_settings import LabelSettings


def refuse_hopeless(settings: LabelSettings, votes: VoteFacts) -> None:
    """Raise ``ValueError`` if public facts tell that a release will be of no use.

    Some votes must have `LEAST_ANSWERED` of the queries answered.

    Args:
        settings: the settings of the release, complete.
        votes: the public facts about its votes, which may be yet to be cast.
    """
    aggregator, shape = settings.mechanism, votes.shape
    answered = aggregator.max_answer_probability(shape)
    noise = " and ".join(f"{name}={scale:.4g}" for name, scale in aggregator.noise.items())
    require(
        answered >= LEAST_ANSWERED,
        f"at least {LEAST_ANSWERED:.0%} of the queries answered where all {shape.num_teachers}"
        f" teachers agree, by less noise than {noise} of {type(aggregator).__name__} (fewer"
        " queries, a larger target_epsilon or delta, a lower threshold or more teachers)",
        answered=float(f"{answered:.2g}"),
    )


_LIKELY = 0.9
REMEDY = (
    "Fewer queries, a larger epsilon, more teachers, teachers that start from a release"
    " (start_from) or another aggregator help"
)


def describe_gap(aggregator: Aggregator, shape: VoteShape) -> str | None:
    """Return a line on the gap that a query needs and the widest that the teachers can have.

    It says what would help if they cannot have that gap. None if no gap is predicted.
    """
    gap = aggregator.gap_needed(shape, probability=_LIKELY)
    if gap is None:
        return None
    line = (
        f"{gap.meaning} with probability {_LIKELY:g}; {shape.num_teachers} teachers can have at"
        f" most {gap.available:g}."
    )
    return line if gap.votes <= gap.available else f"{line} {REMEDY}."


_MANY_NOISES = 10  # votes for each unit of noise, below which a constant answer is about as good


def describe_hopeless(plan: Any, settings: LabelSettings, num_units: int) -> Iterator[str]:
    """Yield a line for each reason why a release promises or shows next to nothing. PRIVATE.

    Args:
        plan: how teachers are made.
        settings: the settings of the release, complete.
        num_units: the number of private units, which is PRIVATE.
    """
    delta, units = settings.delta, f"{num_units} private records (or groups)"
    if delta * num_units >= 1:
        yield (
            f"{units} and delta = {delta:g}, not below one over their number: a program that"
            f" publishes one of them would be as private. delta = {suited_delta(num_units):g}"
            " suits."
        )
    yield from describe_few(plan, num_units)
    noise = min(settings.mechanism.noise.values(), default=0.0)
    alone = isinstance(plan, ClosedFormPlan) and plan.start_from is None
    if alone and num_units < _MANY_NOISES * noise:
        yield (
            f"{units}, each with a vote, for noise of {noise:.3g} votes: labels will barely be"
            " better than a constant answer. Use more records or a larger epsilon."
        )


def describe_few(plan: Any, num_units: int) -> Iterator[str]:
    """Yield a line if there are too few private units for the networks of a plan. PRIVATE."""
    # a teacher without records repeats the released student
    trained = not isinstance(plan, ClosedFormPlan) and plan.start_from is None
    if trained and num_units < 2 * plan.num_teachers:
        yield (
            f"{num_units} private records (or groups) for {plan.num_teachers} teachers:"
            " most have one or none, and learn nothing. Choose fewer teachers, or `fit:"
            " closed_form`."
        )


_MOST_NAMED = 40  # labels


def describe_absent(labels: UInt8Array, names: Sequence[str]) -> Iterator[str]:
    """Yield a line if no private record has some of the labels ``[N, C]``, or all have. PRIVATE."""
    have, known = (labels == 1).sum(axis=0).tolist(), (labels != UNKNOWN).sum(axis=0).tolist()
    if none := [name for name, number in zip(names, have, strict=True) if not number]:
        yield (
            f"no private record has {_listed(none)}: nothing can be learned about such"
            " labels. Are their names as in the file?"
        )
    facts = zip(names, have, known, strict=True)
    if always := [name for name, number, known in facts if 0 < number == known]:
        yield (
            f"all private records that know {_listed(always)} have it: it will always"
            " be given. If a gap means 0 there, write 0."
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
