"""Checks before anything is spent: of a release, and of an aggregator on synthetic votes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pate._release.label_settings import LabelSettings
from pate._release.transaction import require_payable_release
from pate._runs import LABEL, Run
from pate._settings import encode_fields
from pate._validation import FloatArray, IntArray, require
from pate._votes import Ballots, Counts, Moments, Scores, Votes, VoteShape, drawn_rows, serves
from pate._votes.store import read_predictions
from pate._votes.voters import RecordVoters
from pate.accounting import ComposedEvent, RepeatedEvent
from pate.accounting._charges import Charge
from pate.aggregators._base import LEAST_ANSWERED, Aggregator
from pate.aggregators._personal_votes import PersonalVotes
from pate.data import DataSource, Role


def require_possible(
    run: Run,
    settings: LabelSettings,
    shape: VoteShape,
    data: DataSource,
    *,
    unpaid: Sequence[Charge] = (),
) -> None:
    """Raise ``ValueError`` if the labels that a run is yet to release would be refused.

    Existing labels and releases under way are not checked: they have been paid for. Writes nothing.

    Args:
        run: the run, with the ledger that will pay.
        settings: the queries, the mechanism and the budget, complete.
        shape: the numbers of teachers and labels.
        data: the source of the public samples.
        unpaid: releases that the same command makes before this one. The ledger must be able to
            pay for all, so that none is refused after another was paid for.
    """
    if is_paid(run, settings):
        return
    aggregator, ids = settings.mechanism, data.load(Role.PUBLIC).ids
    count = len(ids) if settings.num_queries is None else settings.num_queries
    charge = aggregator.events(shape), count
    if unpaid:
        charge = _together(*unpaid, charge)
    relation = aggregator.neighboring_relation
    require_payable_release(
        run.ledger_path,
        charge,
        relation=relation,
        delta=settings.delta,
        budget=settings.budget,
        max_teachers_per_unit=settings.max_teachers_per_unit,
    )
    predictions = None
    if settings.predictions is not None:
        # chosen queries are not known yet, and may be any
        number = count if settings.query_choice is None else len(ids)
        queries = np.array(ids)[drawn_rows(len(ids), number, seed=settings.query_seed)]
        predictions = read_predictions(settings.predictions, queries, data.label_names)
    if "features" in aggregator.needs:
        require_answers(aggregator, shape)  # the stage rehearses the rest with its votes
    else:
        rehearse(aggregator, shape, predictions=predictions)


def _together(*charges: Charge) -> Charge:
    """Return several charges as one that is paid at once."""
    events = {
        relation: ComposedEvent(
            events=tuple(
                RepeatedEvent(event=event[relation], count=count) for event, count in charges
            )
        )
        for relation in charges[0][0]
    }
    return events, 1


def is_paid(run: Run, settings: LabelSettings) -> bool:
    """Return whether labels by these settings exist, or the ledger may hold their cost."""
    seeds = run.private / "label"
    if seeds.is_dir() and any(seeds.iterdir()):
        return True
    changed = run.overwrite and run.inputs_of(LABEL).settings != encode_fields(settings)
    return run.is_finished(LABEL) and not changed


def rehearse(
    aggregator: Aggregator,
    shape: VoteShape,
    *,
    predictions: FloatArray | None = None,
    features: FloatArray | None = None,
    like: Votes | None = None,
) -> None:
    """Run an aggregator on synthetic votes and discard its answers.

    It touches neither real votes nor the noise of a release. It tries batches of zero, one and
    several queries, because a screen may pass on any number of them. Counts are equal, nearly tied,
    or in even steps; the latter two also come with one count as large and one as small as possible.

    Args:
        aggregator: the aggregator.
        shape: the numbers of teachers and labels.
        predictions: ``[Q, C]``, a student's predictions for the queries, for an aggregator that
            needs them.
        features: ``[Q, F]``, the public features of the queries, for an aggregator that needs them.
        like: the votes to be released, of which only the kind and the public parts are read; None
            if they are yet to be cast.

    Raises:
        ValueError: if the aggregator raises it, if its release does not have the shape of the
            votes, or if no votes have at least `LEAST_ANSWERED` of the queries answered.
    """
    require_answers(aggregator, shape)
    if like is not None:
        predictions, features = like.predictions, like.features
    synthetic = _synthetic_votes(aggregator, shape, like, predictions, features)
    for count in (0, 1, synthetic.num_queries):
        votes, size = synthetic[:count], (count, shape.num_labels)
        release = aggregator.aggregate(
            votes, generator=np.random.Generator(np.random.Philox(key=0))
        )
        shapes = {
            name: np.shape(array)
            for name in ("labels", "mask", "noisy_counts")
            if (array := getattr(release, name)) is not None
        }
        require(
            set(shapes.values()) == {size},
            f"a release of {count} queries and {shape.num_labels} labels",
            **shapes,
        )
        if release.noisy_counts is not None and not release.linear:
            require(
                release.noise_std is not None and release.noise_std > 0,
                "noise_std > 0, of noisy counts",
                noise_std=release.noise_std,
            )
        if release.tiers is not None:
            require(
                release.tiers.shape == (count,),
                f"the tiers of {count} queries",
                shape=release.tiers.shape,
            )
        aggregator.charges(release, shape)


def require_answers(aggregator: Aggregator, shape: VoteShape) -> None:
    """Raise ``ValueError`` unless some votes have `LEAST_ANSWERED` of the queries answered."""
    answered = aggregator.max_answer_probability(shape)
    least, teachers = f"at least {LEAST_ANSWERED:.0%} of the queries answered", shape.num_teachers
    agreed = f"{least} where all {teachers} teachers agree"
    noise = " and ".join(f"{name}={scale:.4g}" for name, scale in aggregator.noise.items())
    ways = "fewer queries, a larger target_epsilon or delta, a lower threshold or more teachers"
    less = f"less noise than {noise} of {type(aggregator).__name__} ({ways})"
    require(answered >= LEAST_ANSWERED, f"{agreed}, by {less}", answered=float(f"{answered:.2g}"))


def _synthetic_votes(
    aggregator: Aggregator,
    shape: VoteShape,
    like: Votes | None,
    predictions: FloatArray | None,
    features: FloatArray | None,
) -> Votes:
    """Return synthetic votes that an aggregator takes, with the public side of ``like``."""
    counts, needs, moments = _synthetic_counts(shape), aggregator.needs, None
    budgets = aggregator.budgets if isinstance(aggregator, PersonalVotes) else (1.0,)
    known: dict[str, Any] = {
        name: np.resize(array, (len(counts), array.shape[1]))
        for name, array in (("predictions", predictions), ("features", features))
        if array is not None
    }
    # voters of ballots have a geometry if the aggregator asks for moments
    asks = any(serves(Scores, {need}) for need in needs if not isinstance(need, str))
    if isinstance(like, Scores | Moments) or (isinstance(like, Ballots) and asks):
        samples = like.voters.geometry.samples
        voters = RecordVoters(
            geometry=like.voters.geometry,
            num_voters=shape.num_teachers,
            num_labels=shape.num_labels,
            coordinates=np.resize(samples, (len(counts), samples.shape[1])),
            labels=(2 * counts > shape.num_teachers).astype(np.uint8),
            unknown_labels=like.voters.unknown_labels,
            budgets=None if like.voters.budgets is None else np.resize(budgets, len(counts)),
        )
        moments = Moments(voters=voters, **known)
        if serves(Moments, needs):
            return moments
    if serves(Counts, needs):
        return Counts(counts=counts, num_teachers=shape.num_teachers, **known)
    ballots = np.arange(shape.num_teachers)[None, :, None] < counts[:, None, :]
    return Ballots(ballots=ballots.astype(np.uint8), whole=moments, **known)


def _synthetic_counts(shape: VoteShape) -> IntArray:
    """Return counts ``[Q, C]``: equal, nearly tied, in steps, and the latter two with outliers."""
    most, half, labels = shape.num_teachers, shape.num_teachers // 2, np.arange(shape.num_labels)
    equal = [np.full_like(labels, count) for count in (0, most, half)]
    near_ties, stairs = half - labels % 2, np.maximum(half - labels, 0)
    with_outliers = [
        np.where(labels == 0, most, np.where(labels == labels[-1], 0, counts))
        for counts in (near_ties, stairs)
    ]
    return np.array([*equal, near_ties, stairs, *with_outliers])
