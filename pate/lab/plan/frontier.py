"""The frontier: aggregators compared by their labels, and a student's figures, at each epsilon.

First what is compared: candidates, settings and results. Then the task, votes on public samples
with data for training and evaluating a student. Its teachers may be simulated before any are
trained, and nothing private is touched then. At the end the measurements.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pate._core.progress import stage_bar
from pate._core.settings import Partial
from pate._core.validation import (
    BoolArray,
    FloatArray,
    UInt8Array,
    require,
    require_count,
    require_in_open_unit_interval,
)
from pate._labeling.aggregators.base import (
    Aggregator,
    AnyAggregator,
    Outlook,
    Release,
    features_of,
    registered,
)
from pate._labeling.aggregators.clipped_votes import two_rounds
from pate._labeling.data.records import Role, known_truth
from pate._labeling.linear import LinearStudent, fit_linear, flat, student_of
from pate._labeling.release.completion import (
    DEFAULTS,
    complete_aggregator,
    one_change_variants,
)
from pate._labeling.runs.run import Run, load_data
from pate._labeling.runs.vote_store import finished_votes, load_votes
from pate._labeling.student.metrics import agreement, average_precision
from pate._labeling.votes.kinds import (
    Ballots,
    Counts,
    Moments,
    Need,
    Scores,
    Votes,
    drawn_rows,
    require_kind,
)
from pate.lab.plan.engine import FREE, Row, Terms
from pate.lab.plan.sources import Task, votes_of


class Candidate(NamedTuple):
    """An aggregator that is compared with others."""

    name: str
    """The display name; for a variant, the name of the original and the changed field."""
    family: str
    """The name of the class; with a preceding round, the class of the last round."""
    aggregator: Any
    """The aggregator, or a class that splits its noise by the target."""


def candidates(
    outlook: Outlook, aggregators: Sequence[Aggregator] | None = None, *, variants: bool = False
) -> list[Candidate]:
    """Return the candidates for votes described by ``outlook``, in the order of tables.

    Args:
        outlook: the votes.
        aggregators: the aggregators to compare. None for the proposals of all registered ones.
            Aggregators that need predictions become the last of two `Rounds`. Only the proportions
            of their noise matter.
        variants: whether each is followed by its other forms, unless these are candidates already.
    """
    if aggregators is None:
        aggregators = [each for cls in registered().values() for each in cls.proposals(outlook)]
    compared = _named_apart(
        [_candidate(aggregator, outlook) for aggregator in aggregators], aggregators
    )
    if not variants:
        return compared
    seen_aggregators = [candidate.aggregator for candidate in compared]
    with_forms: list[Candidate] = []
    for aggregator, candidate in zip(aggregators, compared, strict=True):
        with_forms.append(candidate)
        for changed, form in one_change_variants(
            aggregator, replace(outlook, relation=aggregator.neighboring_relation)
        ).items():
            variant = _candidate(form, outlook)
            if variant.aggregator not in seen_aggregators:
                seen_aggregators.append(variant.aggregator)
                with_forms.append(variant._replace(name=f"{candidate.name}, {changed}"))
    return with_forms


def _named_apart(compared: list[Candidate], aggregators: Sequence[Aggregator]) -> list[Candidate]:
    """Return candidates with distinct names: equal names get the settings that differ."""
    named = []
    for candidate, aggregator in zip(compared, aggregators, strict=True):
        namesakes = [
            other
            for other, another in zip(aggregators, compared, strict=True)
            if another.name == candidate.name and type(other) is type(aggregator)
        ]
        apart = [
            f", {field.name}={value}"
            for field in fields(aggregator)
            if len({repr(getattr(other, field.name)) for other in namesakes}) > 1
            for value in [getattr(aggregator, field.name)]
        ]
        named.append(candidate._replace(name=candidate.name + "".join(apart)))
    return named


def _candidate(aggregator: Aggregator, outlook: Outlook) -> Candidate:
    complete = with_first_round(
        aggregator, replace(outlook, relation=aggregator.neighboring_relation)
    )
    return Candidate(complete.display_name, type(aggregator).__name__, complete)


def with_first_round(aggregator: Aggregator, outlook: Outlook) -> Aggregator:
    """Return an aggregator, as the last of two rounds if it needs predictions."""
    return two_rounds(aggregator, outlook) if "predictions" in aggregator.needs else aggregator


PRIVATE = "PRIVATE: computed from private votes without accounting for it; not to be published"
LABEL_FIGURES = ("answered", "label_accuracy", "label_macro_f1")
_QUERIES = 600
STUDENT_FIGURES = ("student_accuracy", "student_macro_f1", "student_mAP")


@dataclass(frozen=True, kw_only=True)
class Comparison(Terms):
    """Settings common to all aggregators that are compared.

    Args:
        epsilons: the targets.
        delta: their delta.
        num_queries: number of public samples to label, the same ones for each aggregator; None for
            600, or for all samples of a run or a file that has fewer.
        neighboring_relation: the relation that the targets hold for, and for which proposed
            aggregators are made.
        student: whether a linear student is trained on the released labels and evaluated on the
            test set.
        cutoff: the lowest probability of a label that the student gives.
        seeds: number of times that the noise is drawn; medians are shown.
        query_seed: seed of the public order of samples, as in ``pate label``.
        variants: whether the other forms of each aggregator are compared too, such as other laws of
            its noise: one setting changed at a time, as its class declares.

    Raises:
        ValueError: on parameters out of range, or without an epsilon.
    """

    epsilons: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0)
    seeds: int = 3
    num_queries: int | None = None
    student: bool = False
    cutoff: float = 0.5
    query_seed: int = 0
    variants: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_queries is not None:
            require_count(1, num_queries=self.num_queries)
        require_in_open_unit_interval(cutoff=self.cutoff)

    def number(self, available: int) -> int:
        """Return the number of queries where so many samples have votes."""
        return min(_QUERIES, available) if self.num_queries is None else self.num_queries

    @property
    def figures(self) -> tuple[str, ...]:
        """Names of the figures that are measured."""
        return (*LABEL_FIGURES, *(STUDENT_FIGURES if self.student else ()))

    @property
    def title(self) -> str:
        """The settings in one line."""
        return (
            f"{self.number(_QUERIES)} queries, delta {self.delta:g},"
            f" {self.neighboring_relation.value.upper()}"
        )


@dataclass(frozen=True, kw_only=True)
class Frontier:
    """The results of a comparison.

    Attributes:
        comparison: the settings.
        rows: for each aggregator and epsilon that it can meet, medians over seeds of the noise.
            Figures of a student are NaN without one.
        references: figures of references by name, such as a constant answer.
        private: whether the votes, and so all results, are private.
        families: the class of each aggregator by its name, where variants are compared; else empty.
    """

    comparison: Comparison
    rows: tuple[Row, ...]
    references: dict[str, dict[str, float]]
    private: bool
    families: Mapping[str, str] = field(default_factory=dict)

    @property
    def notice(self) -> str:
        """One line on whether the results may be published."""
        return PRIVATE if self.private else FREE

    @property
    def names(self) -> list[str]:
        """The names of all aggregators that meet a target."""
        return list(dict.fromkeys(row["aggregator"] for row in self.rows))

    @property
    def targets(self) -> list[float]:
        """The epsilons that an aggregator meets, ascending."""
        return sorted({row["target_epsilon"] for row in self.rows})


def ranked(frontier: Frontier, figures: Sequence[str]) -> list[str]:
    """Return the names of all aggregators by their mean rank over targets and ``figures``.

    The best comes first. An aggregator without a figure at a target ranks last there.
    """
    names, ranks = frontier.names, np.zeros(len(frontier.names))
    found = {(row["aggregator"], row["target_epsilon"]): row for row in frontier.rows}
    for target, figure in product(frontier.targets, figures):
        values = [found.get((name, target), {}).get(figure, math.nan) for name in names]
        losses = -np.nan_to_num(values, nan=-math.inf, neginf=-math.inf)
        ranks += np.searchsorted(np.sort(losses), losses)
    return [names[i] for i in np.argsort(ranks, kind="stable")]


def best_of_families(frontier: Frontier, figures: Sequence[str]) -> list[str]:
    """Return the best aggregator of each family, in the order of `ranked`."""
    best: dict[str, str] = {}
    for name in ranked(frontier, figures):
        best.setdefault(frontier.families.get(name, name), name)
    return list(best.values())


def reached(row: Row, measured: str) -> float:
    """Return a figure; those of released labels count for the share of labels that are released."""
    return float((row["answered"] if measured in LABEL_FIGURES[1:] else 1.0) * row[measured])


def best_at(rows: Sequence[Row], measured: str) -> dict[float, Row]:
    """Return the best row at each target by what is `reached`; a missing figure never wins."""
    best: dict[float, Row] = {}
    known = [row for row in rows if not math.isnan(reached(row, measured))]
    for row in sorted(known, key=lambda row: reached(row, measured), reverse=True):
        best.setdefault(row["target_epsilon"], row)
    return dict(sorted(best.items()))


def load_task(
    root: Path, comparison: Comparison, aggregators: Sequence[AnyAggregator] | None = None
) -> Task[Votes]:
    """Return the task of a run: votes on the drawn samples, as a comparison needs them. PRIVATE.

    Args:
        root: the folder of the run.
        comparison: its settings. Test samples are read only for a student.
        aggregators: the aggregators to compare. Ballots and features are read if one of them needs
            these, or is a class alone, or for None.

    Raises:
        ValueError: if the teachers have not voted, or on fewer samples than there are queries, or
            their votes are of a kind that an aggregator does not take, or have no majority to
            compare labels with and there is no student.
    """
    run = Run(root)
    store = finished_votes(run)
    manifest = store.manifest()
    kind = manifest.kind
    available = len(manifest.ids)
    rows = drawn_rows(available, comparison.number(available), seed=comparison.query_seed)
    made = [each for each in aggregators or () if isinstance(each, Aggregator)]
    if len(made) < len(aggregators or ()):
        aggregators = None
    needs = frozenset[Need]().union(*(each.needs for each in made))
    if issubclass(kind, Counts):
        # a round of clipped ballots, which trains a student, precedes aggregators with predictions
        if aggregators is None or "predictions" in needs:
            needs |= {Ballots, "features"}
    else:
        require(comparison.student, f"student=True for {kind.__name__}, which have no majority")
    require_kind(kind, needs | {Counts | Scores | Moments}, "the comparison")
    test: dict[str, Any] = {}
    if comparison.student:
        needs |= {"features"}
        records = load_data(run).records(Role.TEST)
        features = flat(records.features[np.arange(len(records))])
        test = {"test_features": features, "test_labels": records.labels}
    votes = load_votes(run, store, np.array(manifest.ids)[rows], needs)
    return Task(votes=votes, private=True, **test)


def file_task(path: Path, comparison: Comparison) -> Task[Counts]:
    """Return the task of a file of votes, as for ``pate label --votes``. PRIVATE.

    Raises:
        ValueError: with a student, for whom there are no test samples, or as `votes_of` does.
    """
    require(not comparison.student, "no student with a file of votes, which has no test samples")
    number, seed = comparison.num_queries, comparison.query_seed
    votes = votes_of(path, None, num_queries=number, seed=seed).votes
    return Task(votes=votes[np.arange(comparison.number(votes.num_queries))], private=True)


def measure(
    task: Task[Votes], name: str, aggregator: AnyAggregator, epsilon: float, comparison: Comparison
) -> Row | None:
    """Return the row of an aggregator at a target epsilon, or None if no noise meets it."""
    votes = task.votes

    def figures(release: Release) -> dict[str, float]:
        found = label_quality(release, votes)
        if comparison.student:
            student = student_of(release, features_of(votes), votes.num_teachers)
            found |= score_student(student, task, cutoff=comparison.cutoff)
        return found

    try:
        priced = comparison.priced(aggregator, epsilon, votes)
    except ValueError:
        return None
    drawn = comparison.draws(priced, votes, figures, range(comparison.seeds))
    medians = {
        each: float(np.median([row[each] for row in drawn]))
        for each in ("spent", *comparison.figures)
    }
    return {
        "aggregator": name,
        "target_epsilon": epsilon,
        "epsilon": comparison.cost(priced, votes),
        "realised_epsilon": medians.pop("spent"),
        "parameters": json.dumps({each: round(scale, 4) for each, scale in priced.noise.items()}),
        **dict.fromkeys((*LABEL_FIGURES, *STUDENT_FIGURES), math.nan),
        **medians,
    }


def score_student(student: LinearStudent, task: Task[Votes], *, cutoff: float) -> dict[str, float]:
    """Return the metrics of a student on the test set."""
    return _metrics(student.predict(task.test_features), task.test_labels, cutoff=cutoff)


def _metrics(probabilities: FloatArray, truth: UInt8Array, *, cutoff: float) -> dict[str, float]:
    right, known = known_truth(truth)
    figures = agreement(probabilities > cutoff, right, known)
    return {
        "student_accuracy": figures["accuracy"],
        "student_macro_f1": figures["macro_f1"],
        "student_mAP": float(average_precision(probabilities, right, known).mean()),
    }


def label_quality(release: Release, votes: Votes) -> dict[str, float]:
    """Return the share of released labels, and their agreement with the majority (NaN if none)."""
    labeled, answered = release.labels > 0, release.mask
    if not isinstance(votes, Counts):
        return dict.fromkeys(LABEL_FIGURES, math.nan) | {"answered": float(answered.mean())}
    majority = majority_of(votes)
    both = (labeled & majority & answered).sum(axis=0)
    either = (labeled & answered).sum(axis=0) + (majority & answered).sum(axis=0)
    occurring = either > 0
    return {
        "answered": float(answered.mean()),
        "label_accuracy": float(((labeled == majority) & answered).sum() / answered.sum())
        if answered.any()
        else math.nan,
        "label_macro_f1": float((2 * both[occurring] / either[occurring]).mean())
        if occurring.any()
        else math.nan,
    }


def majority_of(votes: Counts) -> BoolArray:
    """Return ``[Q, C]``, which labels more than half of the teachers gave."""
    return np.asarray(2 * votes.counts.astype(np.int64) > votes.num_teachers)


def references(task: Task[Votes], *, student: bool, cutoff: float) -> dict[str, dict[str, float]]:
    """Return the figures of the references that aggregators are compared with, by name.

    The ``constant answer`` gives each label its more common value, among noiseless majorities for
    released labels and among true test labels for a student. It is the best answer that does not
    look at a sample, which a useful student must beat. The ``noiseless majority`` releases the
    majority of the teachers' votes, the ``noiseless counts`` their exact numbers. Both would cost
    an infinite epsilon. Votes without counts have neither, and no figures of released labels.
    """
    votes = task.votes
    found = {"constant answer": dict.fromkeys(LABEL_FIGURES, math.nan)}
    if isinstance(votes, Counts):
        majority = majority_of(votes)
        answered = np.ones(majority.shape, dtype=np.bool_)
        common = np.broadcast_to(majority.mean(axis=0) > 0.5, majority.shape)
        found = {
            name: label_quality(Release(labels.astype(np.uint8), answered), votes)
            for name, labels in (("constant answer", common), ("noiseless majority", majority))
        }
    if not student:
        return found
    right, known = known_truth(task.test_labels)
    usual = np.broadcast_to(2 * right.sum(axis=0) > known.sum(axis=0), right.shape)
    found["constant answer"] |= _metrics(usual.astype(np.float64), task.test_labels, cutoff=cutoff)
    if isinstance(votes, Counts):
        exact, shares = found["noiseless majority"], votes.counts / votes.num_teachers
        for name, taught in (("noiseless majority", majority), ("noiseless counts", shares)):
            learned = fit_linear(features_of(votes), taught, answered)
            found[name] = exact | score_student(learned, task, cutoff=cutoff)
    return found


def _sorted_out(
    task: Task[Votes], comparison: Comparison, aggregators: Sequence[AnyAggregator]
) -> tuple[list[Aggregator], list[Candidate]]:
    """Return aggregators, and as candidates classes that split their noise by the target."""
    made: list[Aggregator] = []
    split: list[Candidate] = []
    target = comparison.target(max(comparison.epsilons), task.votes.num_queries)
    for each in aggregators:
        if isinstance(each, Aggregator):
            made.append(each)
            continue
        relation = {"neighboring_relation": comparison.neighboring_relation}
        partial = Partial(each.cls, **relation | dict(each.settings))
        complete = complete_aggregator(partial, target, task.votes.shape)
        if each.cls.splits_noise and not set(each.settings) >= set(each.cls.noise_parameters):
            split.append(Candidate(each.cls.__name__, each.cls.__name__, partial))
        else:
            made.append(complete)
    return made, split


def frontier(
    task: Task[Votes], comparison: Comparison, aggregators: Sequence[AnyAggregator] | None = None
) -> Frontier:
    """Measure labels, and a student, against epsilon for several aggregators on the same votes.

    Args:
        task: the votes on the queries, and the data for a student.
        comparison: the settings common to all aggregators.
        aggregators: the aggregators to compare, or classes; one factor scales all noise of each of
            them to meet each target. Aggregators that need predictions become the last of two
            `Rounds`. None for the proposals of all registered aggregators or, for votes without
            counts, of the one that a target alone takes.

    Returns:
        A row for each aggregator and epsilon that it can meet, as PRIVATE as the votes.

    Raises:
        ValueError: if the votes are on another number of queries, or an aggregator cannot serve
            them.
    """
    num_queries = task.votes.num_queries
    require(
        comparison.num_queries in (None, num_queries),
        f"votes on {comparison.num_queries} queries",
        num_queries=num_queries,
    )
    outlook = Outlook.of(
        task.votes, delta=comparison.delta, relation=comparison.neighboring_relation
    )
    if aggregators is None and type(task.votes) in DEFAULTS:
        aggregators = DEFAULTS[type(task.votes)].proposals(outlook)
    made, split = _sorted_out(task, comparison, aggregators or ())
    given = None if aggregators is None else made
    compared = candidates(outlook, given, variants=comparison.variants)
    for candidate in compared:
        # what cannot serve the votes is refused, and what meets no target left out
        candidate.aggregator.event(task.votes.shape, comparison.neighboring_relation)
    compared += split
    rows: list[Row] = []
    with stage_bar(len(compared) * len(comparison.epsilons), "frontier", unit="point") as bar:
        for (name, _, aggregator), epsilon in product(compared, comparison.epsilons):
            bar.set_postfix_str(name, refresh=False)
            row = measure(task, name, aggregator, epsilon, comparison)
            rows += [] if row is None else [row]
            bar.update()
    return Frontier(
        comparison=comparison,
        rows=tuple(rows),
        references=references(task, student=comparison.student, cutoff=comparison.cutoff),
        private=task.private,
        families={each.name: each.family for each in compared} if comparison.variants else {},
    )
