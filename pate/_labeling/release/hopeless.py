"""What is hopeless is refused, or said, before it is paid for.

`refuse_hopeless` refuses by public facts every release that is yet to be paid for: runs, `pate
label`, the estimator and silos reach it by `RunPlan.check`. `describe_hopeless` knows private
records, and speaks to their owner alone. Both go by the same `voters_needed` and
`effective_columns`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt
from typing import Any

import numpy as np

from pate._core.release.transaction import suited_delta
from pate._core.validation import MOST_VOTERS, UNKNOWN, FloatArray, UInt8Array, require
from pate._labeling.aggregators.base import LEAST_ANSWERED
from pate._labeling.aggregators.clipped_votes import ClippedVotes, Rounds
from pate._labeling.aggregators.noisy_votes import NoisyVotes, SiloVotes
from pate._labeling.release.label_settings import LabelSettings
from pate._labeling.runs.vote_store import VoteFacts
from pate._labeling.teachers import ClosedFormPlan
from pate._labeling.votes.kinds import Moments

_UNSTATED = 100_000  # records, beyond which a public number of them must be stated
_MOST_COLUMNS = 10  # for each record
_MOST_NOISE = 5  # for each vote of a part, where a student learns from moments or clipped votes


def refuse_hopeless(
    settings: LabelSettings,
    votes: VoteFacts,
    *,
    is_taught: bool = False,
    records: int | None = None,
    columns: float = 0.0,
) -> None:
    """Raise ``ValueError`` if public facts tell that a release will be of no use.

    Some votes must have `LEAST_ANSWERED` of the queries answered. If all teachers agree on all
    queries, noise must leave something of it.

    Args:
        settings: the settings of the release, complete.
        votes: the public facts about its votes, which may be yet to be cast.
        is_taught: whether there are public samples, of which a student learns.
        records: the public number of records. None if none is stated.
        columns: the `effective_columns` of public samples, where ``records`` are stated.
    """
    aggregator, shape = settings.mechanism, votes.shape
    name, number = type(aggregator).__name__, settings.num_queries or len(votes.ids)
    answered = aggregator.max_answer_probability(shape)
    noise = " and ".join(f"{name}={scale:.4g}" for name, scale in aggregator.noise.items())
    require(
        answered >= LEAST_ANSWERED,
        f"at least {LEAST_ANSWERED:.0%} of the queries answered where all {shape.num_teachers}"
        f" teachers agree, by less noise than {noise} of {name} (fewer"
        " queries, a larger target_epsilon or delta, a lower threshold or more teachers)",
        answered=float(f"{answered:.2g}"),
    )
    if settings.allow_few:
        return
    require(not is_taught or len(votes.ids) > 1, "two public samples or more", samples=1)
    require(
        columns <= _MOST_COLUMNS * (records or 0),
        f"at most {_MOST_COLUMNS} columns for each of {records} records (nominal_records), after"
        " those that follow from others: map the features to fewer",
        columns=round(columns),
    )
    advice = f"for noise of {noise} (fewer queries or labels, or a larger target_epsilon)"
    if votes.kind is Moments and shape.num_teachers == MOST_VOTERS:
        needed, least = voters_needed(settings, shape.num_labels), records or _UNSTATED
        stated = "nominal_records" if records else f"{_UNSTATED:,} records or nominal_records"
        require(needed <= least, f"{stated} >= {needed:,.0f} {advice}", nominal_records=records)
    most = {NoisyVotes: sqrt(number) / 2, SiloVotes: sqrt(number) / 2}
    most |= dict.fromkeys((ClippedVotes, Rounds), float(_MOST_NOISE))
    least_noise, bound = min(aggregator.noise.values(), default=0.0), most.get(type(aggregator))
    require(
        bound is None or least_noise <= bound * shape.num_teachers,
        f"num_teachers >= {least_noise / (bound or 1):,.0f} {advice}",
        num_teachers=shape.num_teachers,
    )


def voters_needed(settings: LabelSettings, num_labels: int) -> float:
    """Return how many records must vote for labels that are better than a constant answer.

    They share one sensitivity among labels. With 5 labels at epsilon 2, 420 records suffice, and
    with 500 labels 2,000 barely do.
    """
    noise = min(settings.mechanism.noise.values(), default=0.0)
    return max(5.0, 2 * sqrt(num_labels)) * noise


def effective_columns(features: FloatArray) -> float:
    """Return how many columns samples ``[P, F]`` have that do not follow from others.

    It is ``tr(S)^2 / tr(S^2)`` of their covariance S, without bias by the number of samples.
    """
    centered = features - features.mean(axis=0)
    products = centered @ centered.T
    others = products[~np.eye(len(products), dtype=np.bool_)]
    # the mean of products is what centering leaves
    squares = float(others.var()) if others.size else 0.0
    return float(np.diag(products).mean() ** 2 / squares) if squares else 0.0


REMEDY = (
    "Fewer queries, a larger epsilon, more teachers, teachers that start from a release"
    " (start_from) or another aggregator help"
)


def describe_hopeless(
    plan: Any, settings: LabelSettings, num_units: int, *, num_labels: int = 1, columns: float = 0.0
) -> Iterator[str]:
    """Yield a line for each reason why a release promises or shows next to nothing. PRIVATE.

    Args:
        plan: how teachers are made.
        settings: the settings of the release, complete.
        num_units: the number of private units, which is PRIVATE.
        num_labels: the number of labels.
        columns: the `effective_columns` of public samples.
    """
    delta, units = settings.delta, f"{num_units} private records (or groups)"
    if delta * num_units >= 1:
        yield (
            f"{units} and delta = {delta:g}, not below one over their number: a program that"
            f" publishes one of them would be as private. delta = {suited_delta(num_units):g}"
            " suits."
        )
    yield from describe_few(plan, num_units)
    needed = voters_needed(settings, num_labels)
    alone = isinstance(plan, ClosedFormPlan) and plan.start_from is None
    if alone and num_units < needed:
        noise = min(settings.mechanism.noise.values(), default=0.0)
        yield (
            f"{units}, each with a vote, for noise of {noise:.3g} votes and {num_labels} labels:"
            " these will barely be better than a constant answer. Use more records"
            f" ({needed:,.0f}), fewer labels or a larger epsilon."
        )
    if columns > _MOST_COLUMNS * num_units:
        yield f"{units} for {columns:,.0f} columns: little can be learned. Map them to fewer."


_ENOUGH, _UNLIKE = 30, 1.5  # samples, and the ratio of deviations, that tell scales apart


def describe_unlike(private: FloatArray, public: FloatArray) -> Iterator[str]:
    """Yield a line if most columns of samples ``[N, F]`` are on another scale. PRIVATE."""
    if min(len(private), len(public)) < _ENOUGH:
        return
    spread, other = public.std(axis=0), private.std(axis=0)
    ratio = np.maximum(spread, other) / np.maximum(np.minimum(spread, other), 1e-30)
    far = np.abs(private.mean(axis=0) - public.mean(axis=0)) > 2 * np.maximum(spread, other)
    varied = (spread > 0) | (other > 0)
    if varied.any() and (share := ((ratio > _UNLIKE) | far)[varied].mean()) > 0.5:
        yield (
            f"{share:.0%} of the columns have another scale in public samples: what is learned on"
            " these will not fit the records. Are their units the same?"
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
