"""Everything that determines labels, except the noise: settings of `pate label`, and votes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from pate._data_file import load_data, public_digest
from pate._files import code_version, digest
from pate._release.promise import require_promise
from pate._runs import Run, StageInputs, first_stage
from pate._runs.released import Queries
from pate._settings import encode, encode_fields, require_made
from pate._validation import IntArray, given, require, require_count
from pate._votes import MaskedTotal, Moments, Votes, VoteShape, drawn_rows
from pate._votes.store import (
    VoteManifest,
    VoteStore,
    fingerprint_of_voters,
    require_features,
    require_predictions,
)
from pate.accounting import NeighboringRelation
from pate.accounting._charges import Budget, Charge, FilterName
from pate.aggregators._base import Aggregator, AnyAggregator, made_for

QueryChoice = Literal["entropy", "margin", "k_center"]
"""A choice of the samples that are asked about."""


@dataclass(frozen=True)
class LabelSettings:
    """The queries to the teachers, the mechanism that answers them, and the budget.

    Args:
        aggregator: the mechanism, by name or path. With a target epsilon, its noise may be left
            out, as in ``Partial(StableTopK)``, or the whole aggregator. None means ``Rounds`` of
            ``ClippedVotes``, which need ballots and features, or ``ScoreVotes`` for ballots that
            are scores or moments.
        delta: the delta of the statement, at most 1e-3 and below one over the number of teachers.
            A tenth of one over the number of private records, or less, is usual: 1e-6 for 80,000.
            It must exceed the cost of the mechanism's tests.
        num_queries: number of public samples to label; None for all samples with votes.
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
        query_seed: seed of the public order in which samples are queried.
        query_choice: the choice of the num_queries samples, at no cost. None for the first in that
            order; ``entropy`` or ``margin`` for those on which the student that teachers start from
            is least certain, over all labels or on one; ``k_center`` for samples far from each
            other in public features.
        noise_seed: a fixed seed of the noise, for tests and teaching: the result is NOT private.
            None for noise from the operating system's entropy.
        target_epsilon: the largest epsilon of this release, at this delta and under the
            aggregator's relation: one factor scales all noise to meet it. None to use the noise as
            given. Whoever sees all that is published guesses right at most 73.2% of the time at
            epsilon 1, 88.1% at 2 and 98.3% at 4 whether any one record is there.
        max_teachers_per_unit: the largest number of teachers that one unit (a record, a patient)
            reaches, such as a patient in several silos. The target and the budget are for such
            units, and so are the figures of this and all later statements of the ledger, unless
            another release declared more.
        predictions: an ``.npz`` with ``ids`` and ``probabilities``: predictions for public samples
            by a student of an earlier release, for an aggregator that needs them.

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
    query_choice: QueryChoice | None = None
    noise_seed: int | None = None
    target_epsilon: float | None = None
    predictions: Path | None = None
    max_teachers_per_unit: int = 1
    max_delta0: float | None = None
    budget_filter: FilterName | None = None

    def __post_init__(self) -> None:
        require_count(1, **given(num_queries=self.num_queries))
        require_count(0, query_seed=self.query_seed, **given(noise_seed=self.noise_seed))
        if self.query_choice is not None:
            choices, choice = get_args(QueryChoice), self.query_choice
            require(choice in choices, f"query_choice in {', '.join(choices)}", query_choice=choice)
            require(
                self.num_queries is not None,
                f"`num_queries`, which {choice} chooses among the samples",
                num_queries=None,
            )
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
            require(
                file is None, f"no `predictions`, of which {name} makes no use", predictions=file
            )

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


def label_inputs(
    run: Run, settings: LabelSettings, store: VoteStore, queries: Queries
) -> StageInputs:
    """Return everything that determines labels, except the noise. PRIVATE.

    The manifest holds the digests of all votes, which were compared with their files. Raises
    ``ValueError`` if the votes are moments of other records than the teachers'.
    """
    manifest = store.manifest()
    if manifest.kind is Moments:
        same = fingerprint_of_voters(run) == manifest.made_by.get("teachers")
        again = "`pate teachers vote` with `overwrite` takes those that are there"
        require(same, f"the teachers of {run.root} that have voted: {again}")
    digests = {"votes": digest(store.manifest_file)}
    if settings.query_choice is not None:
        digests["queries"] = digest(json.dumps(queries.ids.tolist()))
    if settings.predictions is not None:
        require_predictions(settings.predictions)
        digests["predictions"] = digest(settings.predictions)
    if "features" in settings.mechanism.needs and not store.has_features():
        described = run.inputs_of(first_stage(run)).settings.get("data")
        name = type(settings.mechanism).__name__
        require_features(described, name, manifest.kind, len(manifest.ids))
        if described is not None:
            digests["public"] = public_digest(load_data(run))
    return StageInputs(encode_fields(settings), digests)


def queries_on(
    manifest: VoteManifest, settings: LabelSettings, rows: IntArray | None = None
) -> Queries:
    """Return the queries of a release: samples in their public order, and the aggregator.

    Args:
        manifest: of the votes.
        settings: the settings of the release.
        rows: ``[Q]``, the rows of `chosen_rows`; None for those that are first in a seeded order.
    """
    ids = np.array(manifest.ids)
    if rows is None:
        number = settings.num_queries or len(ids)
        rows = drawn_rows(len(ids), number, seed=settings.query_seed)
    return Queries(
        ids=ids[rows],
        label_names=tuple(manifest.label_names),
        num_teachers=manifest.num_teachers,
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
