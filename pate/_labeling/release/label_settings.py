"""All that determines labels, except the noise: settings of `pate label`, votes, and their checks.

Before anything is spent, a release is compared with its ledger, and its aggregator answers
synthetic votes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from pate._core.accounting.charges import Budget, Charge, FilterName
from pate._core.accounting.cost import NeighboringRelation
from pate._core.accounting.events import ComposedEvent, RepeatedEvent
from pate._core.accounting.history import PrivacyUnit
from pate._core.files.reading import Json, code_version, digest
from pate._core.release.transaction import require_payable_release, require_promise
from pate._core.settings import encode, encode_fields, require_made
from pate._core.validation import IntArray, given, require, require_count
from pate._labeling.aggregators.base import Aggregator, AnyAggregator, made_for
from pate._labeling.runs.released import Queries
from pate._labeling.runs.run import LABEL, Run, StageInputs, first_stage, load_data, public_digest
from pate._labeling.runs.vote_store import (
    VoteFacts,
    VoteStore,
    fingerprint_of_voters,
    read_predictions,
    require_features,
    require_predictions,
)
from pate._labeling.votes.kinds import (
    Ballots,
    Counts,
    MaskedTotal,
    Moments,
    Scores,
    Votes,
    VoteShape,
    drawn_rows,
    serves,
)
from pate._labeling.votes.voters import RecordVoters


@dataclass(frozen=True)
class LabelSettings:
    """The queries to the teachers, the mechanism that answers them, and the budget.

    >>> settings = LabelSettings(target_epsilon=1.0, delta=1e-6)
    >>> settings = LabelSettings(NoisyVotes(sigma_votes=40.0), delta=1e-6, num_queries=100)

    Args:
        aggregator: the mechanism, by name or path. With a target epsilon, its noise may be left
            out, as in ``Partial(StableTopK)``, or the whole aggregator. None means ``Rounds`` of
            ``ClippedVotes``, which need ballots and features, or ``ScoreVotes`` for ballots that
            are scores or moments.
        delta: the delta of the statement, at most 1e-3 and below one over the number of teachers.
            A tenth of one over the number of private records, or less, is usual: 1e-6 for 80,000.
            It must exceed the cost of the mechanism's tests.
        num_queries: number of public samples to label. None for all samples with votes.
        max_epsilon: the budget of the ledger, at this delta and under the aggregator's relation,
            for units that reach max_teachers_per_unit teachers. A release is refused before
            anything is spent if it would take the total of all releases beyond the budget, or if
            its units reach more teachers. The first budget given is final.
        max_delta0: the part of delta that this budget reserves for failures of tests, including
            the tests of later releases. None for a tenth, or for the amount that this release
            would need if it were repeated until the budget is spent.
        budget_filter: the filter that keeps this budget: ``renyi``, ``gaussian`` or ``mixed``. None
            for the filter that admits most releases like this one. Among other releases, a Gaussian
            filter admits a third fewer choices and tests, a Renyi filter a tenth fewer Gaussian
            ones, and a mixed filter 1% fewer of narrow cost and a third fewer of the rest.
        query_seed: seed of the public order of queries.
        noise_seed: a fixed seed of the noise, for tests and teaching: the result is NOT private.
            None for noise from the operating system's entropy.
        target_epsilon: the largest epsilon of this release, at this delta and under the
            aggregator's relation: one factor scales all noise to meet it. None to use the noise as
            given. An observer of all that is published guesses right at most 73.2% of the time at
            epsilon 1, 88.1% at 2 and 98.3% at 4 whether any one record is there.
        max_teachers_per_unit: the largest number of teachers that one unit (a record, a patient)
            reaches, such as a patient in several silos. The target and the budget are for such
            units, and so are the figures of this and all later statements of the ledger, unless
            another release declared more.
        predictions: an ``.npz`` with ``ids`` and ``probabilities``: predictions for public samples
            by a student of an earlier release, for an aggregator that needs them.
        nominal_records: a public number of private records, such as on a data card, for the
            forecast of answers. The true number is private, and never read for it. None for none.
        allow_few: whether to pay where less than one answer is forecast, or noise hides all.

    Raises:
        ValueError: if a number is outside its range, the aggregator is incomplete and there is no
            target, or predictions are missing, or given to an aggregator that takes none.
    """

    aggregator: AnyAggregator | None = None
    _: KW_ONLY
    delta: float
    num_queries: int | None = None
    max_epsilon: float | None = None
    query_seed: int = 0
    noise_seed: int | None = None
    target_epsilon: float | None = None
    predictions: Path | None = None
    max_teachers_per_unit: int = 1
    max_delta0: float | None = None
    budget_filter: FilterName | None = None
    nominal_records: int | None = None
    allow_few: bool = False

    def __post_init__(self) -> None:
        require_count(
            1, **given(num_queries=self.num_queries, nominal_records=self.nominal_records)
        )
        require_count(0, query_seed=self.query_seed, **given(noise_seed=self.noise_seed))
        require_promise(self.delta)
        require_count(1, max_teachers_per_unit=self.max_teachers_per_unit)
        _ = self.budget  # checks its parts
        if self.target_epsilon is None:
            require(
                self.aggregator is not None, "`aggregator`, or `target_epsilon`, which finds one"
            )
            require_made("aggregator", self.aggregator, ", or `target_epsilon`, which finds it")
        if not isinstance(self.aggregator, Aggregator):
            return  # its needs are known once the target has completed it
        name, file = type(self.aggregator).__name__, self.predictions and str(self.predictions)
        if "predictions" in self.aggregator.needs:
            require(file, f"`predictions`, which {name} needs", predictions=file)
        else:
            require(file is None, f"no `predictions`, which {name} does not use", predictions=file)

    @property
    def mechanism(self) -> Aggregator:
        """The aggregator. Raises ``ValueError`` if a target is yet to choose it."""
        if not isinstance(self.aggregator, Aggregator):
            raise ValueError(
                "Expected an aggregator, got none: it is found for a target once the votes are"
                " known"
            )
        return self.aggregator

    @property
    def relation(self) -> NeighboringRelation:
        """The relation of the target and of the budget."""
        return made_for(Aggregator if self.aggregator is None else self.aggregator)

    def order_of(self, available: int) -> IntArray:
        """Return the rows of the queries among the available samples, in their public order.

        Raises ``ValueError`` if there are fewer.
        """
        return drawn_rows(available, self.num_queries or available, seed=self.query_seed)

    def charge(self, shape: VoteShape) -> Charge:
        """Return the amount that a release by these settings, which are complete, reserves."""
        assert self.num_queries is not None, "settings are complete"
        return self.mechanism.events(shape), self.num_queries

    @property
    def budget(self) -> Budget | None:
        """The requested budget, or None."""
        return Budget.declared(
            self.max_epsilon,
            delta=self.delta,
            neighboring_relation=self.relation,
            max_delta0=self.max_delta0,
            budget_filter=self.budget_filter,
            max_teachers_per_unit=self.max_teachers_per_unit,
        )


def label_inputs(run: Run, settings: LabelSettings, store: VoteStore) -> StageInputs:
    """Return everything that determines labels, except the noise. PRIVATE.

    The manifest holds the digests of all votes, which were compared with their files. Raises
    ``ValueError`` if the votes are moments of other records than the teachers'.
    """
    manifest = store.manifest()
    if manifest.kind is Moments:
        require(
            fingerprint_of_voters(run) == manifest.made_by.get("teachers"),
            f"the teachers of {run.root} that have voted: `pate teachers vote` with `overwrite`"
            " takes those that are there",
        )
    digests = {"votes": digest(store.manifest_file)}
    if settings.predictions is not None:
        require_predictions(settings.predictions)
        digests["predictions"] = digest(settings.predictions)
    if "features" in settings.mechanism.needs and not store.has_features():
        described = run.inputs_of(first_stage(run)).settings.get("data")
        require_features(
            described, type(settings.mechanism).__name__, manifest.kind, len(manifest.ids)
        )
        if described is not None:
            digests["public"] = public_digest(load_data(run))
    return StageInputs(_determining(settings), digests)


def _determining(settings: LabelSettings) -> Json:
    """Return all settings but `FORESEEN`, which change no label."""
    content = encode_fields(settings)
    return {name: content[name] for name in content if name not in FORESEEN}


FORESEEN: Json = {"nominal_records": None, "allow_few": True}
"""Settings of the forecast of a release that is paid for."""


def queries_on(votes: VoteFacts, settings: LabelSettings) -> Queries:
    """Return the queries of a release: samples in their public order, and the aggregator."""
    return Queries(
        ids=votes.ids[settings.order_of(len(votes.ids))],
        label_names=tuple(votes.label_names),
        num_teachers=votes.num_teachers,
        delta=float(settings.delta),
        aggregator=encode(Aggregator, settings.mechanism),
    )


def digest_of(aggregator: Aggregator, inputs: StageInputs, votes: Votes) -> str:
    """Return a digest of the budget and of all that determines the answers but noise. PRIVATE.

    Other code may turn the same noise into other answers, so that it makes another release. Voters
    follow from votes, which the inputs name, and from features.
    """
    arrays = (
        b"" if array is None else array.tobytes() for array in (votes.predictions, votes.features)
    )
    total = (votes.total.identity,) if isinstance(votes, MaskedTotal) else ()
    return digest(
        inputs.digest, code_version(), np.__version__, *arrays, *total, *code_of(aggregator)
    )


def code_of(aggregator: Aggregator) -> Iterator[Path]:
    """Yield the source files of an aggregator and of the aggregators within it, of any package."""
    file = getattr(sys.modules[type(aggregator).__module__], "__file__", None)
    if file is not None:
        yield Path(file)
    for field in fields(aggregator):
        value = getattr(aggregator, field.name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Aggregator):
                yield from code_of(item)


def require_possible(
    run: Run,
    settings: LabelSettings,
    votes: VoteFacts,
    *,
    unit: PrivacyUnit,
    unpaid: Sequence[Charge] = (),
) -> None:
    """Raise ``ValueError`` if the labels that a run is yet to release would be refused.

    Existing labels and releases under way are not checked: they have been paid for. Writes nothing.

    Args:
        run: the run, with the ledger that will pay.
        settings: the queries, the mechanism and the budget, complete.
        votes: the public facts about the votes.
        unit: for whom they will be priced, as far as it is known.
        unpaid: releases that the same command makes before this one. The ledger must be able to
            pay for all, so that none is refused after another was paid for.
    """
    if is_paid(run, settings):
        return
    charge = settings.charge(votes.shape)
    if unpaid:  # as one that is paid at once
        together = {
            relation: ComposedEvent(
                events=tuple(
                    RepeatedEvent(event=events[relation], count=number)
                    for events, number in (*unpaid, charge)
                )
            )
            for relation in NeighboringRelation
        }
        charge = together, 1
    require_payable_release(
        run.ledger_path,
        charge,
        relation=settings.mechanism.neighboring_relation,
        delta=settings.delta,
        budget=settings.budget,
        max_teachers_per_unit=settings.max_teachers_per_unit,
        privacy_unit=unit,
    )
    if settings.predictions is not None:
        rows = settings.order_of(len(votes.ids))
        read_predictions(settings.predictions, votes.ids[rows], votes.label_names)


def is_paid(run: Run, settings: LabelSettings) -> bool:
    """Return whether labels by these settings exist, or the ledger may hold their cost."""
    seeds = run.private / "label"
    if seeds.is_dir() and any(seeds.iterdir()):
        return True
    changed = run.overwrite and run.inputs_of(LABEL).settings != _determining(settings)
    return run.is_finished(LABEL) and not changed


def rehearse(
    aggregator: Aggregator,
    shape: VoteShape,
    *,
    like: Votes | None = None,
) -> None:
    """Run an aggregator on synthetic votes and discard its answers.

    It touches neither real votes nor the noise of a release. It tries batches of zero, one and
    several queries, because a screen may pass on any number of them. Counts are equal, nearly tied,
    or in even steps. The latter two also come with one count as large and one as small as possible.

    Args:
        aggregator: the aggregator.
        shape: the numbers of teachers and labels.
        like: the votes to be released. Only their kind and public parts are read. None
            for votes without public parts.

    Raises:
        ValueError: if the aggregator raises it, or its release does not have the shape of the
            votes.
    """
    synthetic = _synthetic_votes(aggregator, shape, like)
    for count in (0, 1, synthetic.num_queries):
        votes, size = synthetic[:count], (count, shape.num_labels)
        try:
            release = aggregator.aggregate(
                votes, generator=np.random.Generator(np.random.Philox(key=0))
            )
        except (ValueError, OSError):
            raise
        except Exception as error:
            raise ValueError(
                f"Expected {type(aggregator).__name__} to answer made-up votes, got"
                f" {type(error).__name__}: {' '.join(str(error).split())[:200]}"
            ) from error
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


def _synthetic_votes(aggregator: Aggregator, shape: VoteShape, like: Votes | None) -> Votes:
    """Return synthetic votes that an aggregator takes, with the public side of ``like``."""
    counts, needs, moments = _synthetic_counts(shape), aggregator.needs, None
    known: dict[str, Any] = {
        name: np.resize(array, (len(counts), array.shape[1]))
        for name in ("predictions", "features")
        if (array := getattr(like, name, None)) is not None
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
