"""All that determines labels, except the noise: settings of `pate label`, and votes.

First the settings, and the comparison of a release with its ledger before anything is spent. Then
an aggregator for a target: missing fields are filled in, and one factor scales all its noise. At
the end the shares of several releases under one target: score votes, and teachers that start from
their student. All of it follows from public numbers.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from pate._core.accounting.accountant import Target, calibrate_scale, epsilon_of
from pate._core.accounting.base import Event
from pate._core.accounting.charges import Budget, Charge, FilterName, affordable
from pate._core.accounting.cost import NeighboringRelation, smallest_where
from pate._core.accounting.events import ComposedEvent, GaussianEvent, RepeatedEvent
from pate._core.accounting.history import PrivacyUnit
from pate._core.files.reading import Json, code_version, digest
from pate._core.settings import Partial, encode, encode_fields, parts, require_made
from pate._core.transaction import require_payable_release, require_promise
from pate._core.validation import (
    MOST_VOTERS,
    IntArray,
    given,
    require,
    require_count,
    require_given,
)
from pate._labeling.aggregators.base import Aggregator, AnyAggregator, Outlook, made_for
from pate._labeling.aggregators.clipped_votes import Rounds
from pate._labeling.aggregators.noisy_votes import SiloVotes
from pate._labeling.aggregators.score_votes import ScoreVotes
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
    MaskedTotal,
    Moments,
    Scores,
    Votes,
    VoteShape,
    drawn_rows,
    require_kind,
)


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
        budget_filter: the filter that keeps this budget: ``renyi`` or ``gaussian``. None for the
            filter that admits most releases like this one. Among other releases, a Gaussian filter
            admits a third fewer choices and tests, and a Renyi filter a tenth fewer Gaussian ones.
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
            forecast of answers. The true number is private, and refuses nothing. None for none.
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
        if self.max_epsilon is None:
            for name in ("max_delta0", "budget_filter"):
                value = getattr(self, name)
                require(value is None, f"max_epsilon with {name}", **{name: value})
            return None
        return Budget(
            max_epsilon=self.max_epsilon,
            delta=self.delta,
            neighboring_relation=self.relation,
            max_delta0=self.max_delta0,
            filter=self.budget_filter,
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
        split: Any = cls
        made = split.for_target(target, shape, delta_test=aggregator.setting("delta_test"))
        return _reached(made, target)
    outlook = Outlook(
        shape=shape,
        num_queries=target.num_queries,
        delta=target.delta,
        relation=target.neighboring_relation,
        labels_per_sample=aggregator.setting("k"),
    )
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
        factor = calibrate_scale(
            lambda scale: event(scale * (1 - _EXCESS)), target, tolerance=_TOLERANCE, in_order=True
        )
        candidate = candidate.scaled(factor * (1 - _EXCESS))
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
