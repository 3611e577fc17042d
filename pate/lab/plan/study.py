"""A study: mechanisms compared at one price, over numbers of items, epsilons, votes and seeds.

First the settings, and the votes, which come from files or are simulated. Then a cell: one release,
compared with the exact top k of its votes or with a given truth. At the end the study, whose
finished cells are files of its folder, so that it goes on where it stopped.
"""

import inspect
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.stats import t as student_t

from pate._core.accounting.accountant import Target, epsilon_of
from pate._core.accounting.charges import account
from pate._core.accounting.cost import NeighboringRelation
from pate._core.files.reading import code_version, digest, read_arrays, read_json
from pate._core.files.writing import locked_output, make_folder, require_place, write_json
from pate._core.own_code import OwnCode, finder_in_use
from pate._core.progress import stage_bar
from pate._core.release.histogram import read_counts
from pate._core.release.transaction import require_promise
from pate._core.settings import Partial, to_plain
from pate._core.validation import (
    BoolArray,
    FloatArray,
    IntArray,
    expecting,
    require,
    require_count,
    require_distinct,
    require_positive,
)
from pate._labeling.aggregators.base import (
    Aggregator,
    AnyAggregator,
    Release,
    features_of,
    predictions_of,
)
from pate._labeling.release.completion import complete_aggregator, scale_to_target
from pate._labeling.runs.named_votes import NamedVotes
from pate._labeling.votes.kinds import Counts, Votes, VoteShape, drawn_rows, rows_of
from pate.lab.plan.frontier import Simulation, simulated

FREE = "from simulated votes alone: nothing private was touched"
PUBLIC = "from votes that were declared public"
PRIVATE = "PRIVATE: compared with exact counts of private votes; not to be published"
FIGURES = ("answered", "accuracy", "recall", "precision", "exact")
"""What is measured of a release."""

_MANY = 2**32  # above the counts of a histogram, as in `pate topk`: no number of users is public
_CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class Study:
    """The settings of a study: all votes by all k, mechanisms, epsilons and seeds.

    Args:
        mechanisms: aggregators by class path, of this package and of others. A target finds the
            noise and what else is left out; of given noise only the proportions matter.
        k: numbers of items that are looked for. Mechanisms without a k are compared with the same
            top k.
        epsilons: the targets of all queries on one file of votes together.
        votes: .npz files of ballots or counts, as for pate label --votes (PRIVATE).
        counts: histograms, each one query: .csv, .npy or .npz files of whole numbers, as for pate
            topk --counts, of which a user changes each by 1 at most (PRIVATE).
        simulate: teachers to simulate, as for pate frontier.
        truth: with votes, an .npz with ids and Y [N, C] (0/1), in place of the exact top k.
        delta: the delta at which targets hold.
        neighboring_relation: the relation under which targets hold.
        seeds: number of draws of the noise; intervals are over them.
        num_queries: number of samples, of files of votes and simulated ones; None for all.
        query_seed: seed of the public order in which they are taken, as in pate label.
        public: whether all files are public, so that the results are, too.

    Raises:
        ValueError: on settings out of range, or without mechanisms, k, epsilons or votes.
    """

    mechanisms: list[AnyAggregator]
    k: tuple[int, ...]
    epsilons: tuple[float, ...]
    votes: tuple[Path, ...] = ()
    counts: tuple[Path, ...] = ()
    simulate: tuple[Simulation, ...] = ()
    truth: Path | None = None
    delta: float = 1e-6
    neighboring_relation: NeighboringRelation = NeighboringRelation.REPLACE_RECORD
    seeds: int = 10
    num_queries: int | None = None
    query_seed: int = 0
    public: bool = False

    def __post_init__(self) -> None:
        for name in ("mechanisms", "k", "epsilons"):
            require(getattr(self, name), f"at least one value of {name}", **{name: "none"})
        require_count(1, seeds=self.seeds, **{f"k[{i}]": k for i, k in enumerate(self.k)})
        require_positive(**{f"epsilons[{i}]": value for i, value in enumerate(self.epsilons)})
        require_promise(self.delta)
        if self.num_queries is not None:
            require_count(1, num_queries=self.num_queries)
        require(
            self.votes or self.counts or self.simulate,
            "votes, counts or simulate",
            votes="none",
        )
        require(
            self.num_queries is None or self.votes or self.simulate,
            "no num_queries with counts alone, each of which is one query",
            num_queries=self.num_queries,
        )
        require(
            self.truth is None or not (self.counts or self.simulate),
            "`truth` with files of votes alone",
            truth=str(self.truth),
        )
        require_distinct("k", self.k)
        require_distinct("epsilons", self.epsilons)
        require_distinct("names of mechanisms", map(name_of, self.partials))
        places = [*map(str, self.votes), *map(str, self.counts), *map(repr, self.simulate)]
        require_distinct("votes", places)

    @property
    def partials(self) -> list[Partial[Aggregator]]:
        """The mechanisms, with what is given of their settings."""
        return [_partial(each, self.neighboring_relation) for each in self.mechanisms]

    @property
    def notice(self) -> str:
        """One line on whether the results may be published."""
        if not (self.votes or self.counts):
            return FREE
        return PUBLIC if self.public else PRIVATE

    def target(self, epsilon: float, num_queries: int) -> Target:
        """Return what all queries on some votes may cost together."""
        return Target(
            epsilon=epsilon,
            delta=self.delta,
            num_queries=num_queries,
            neighboring_relation=self.neighboring_relation,
        )


def _partial(aggregator: AnyAggregator, relation: NeighboringRelation) -> Partial[Aggregator]:
    """Return a mechanism with those settings that are not the default, for a relation."""
    cls, settings = (
        (aggregator.cls, aggregator.settings)
        if isinstance(aggregator, Partial)
        else (type(aggregator), vars(aggregator))
    )
    defaults = {field.name: field.default for field in fields(cls)}
    given = {name: value for name, value in settings.items() if value != defaults[name]}
    own = given.pop("neighboring_relation", relation)
    require(
        NeighboringRelation(own) is relation,
        f"{cls.__name__} for the relation of the study, {relation.value}",
        neighboring_relation=own,
    )
    require("k" not in given, f"k of the study, not of {cls.__name__}", k=given.get("k"))
    return Partial(cls, neighboring_relation=relation, **given)


def name_of(mechanism: Partial[Aggregator]) -> str:
    """Return the name of a class with the settings that are given, but for the relation."""
    given = [
        f"{name}={value.cls.__name__ if isinstance(value, Partial) else value}"
        for name, value in mechanism.settings.items()
        if name != "neighboring_relation"
    ]
    return mechanism.cls.__name__ + (f" ({', '.join(given)})" if given else "")


class Source(NamedTuple):
    """Votes of a study.

    Attributes:
        name: the file, or the simulation in words.
        identity: a digest of all that they follow from.
        votes: the votes on the queries.
        truth: ``[Q, C]``, which labels are right; None for the exact top k.
        histogram: whether they are one histogram, without majorities.
    """

    name: str
    identity: str
    votes: Counts
    truth: BoolArray | None = None
    histogram: bool = False


def sources(study: Study) -> Iterator[Source]:
    """Yield the votes of a study. Raises ``ValueError`` on a file that is not what it should be."""

    def drawn(available: int) -> IntArray:
        wanted = available if study.num_queries is None else study.num_queries
        return drawn_rows(available, wanted, seed=study.query_seed)

    order = f"{study.num_queries} {study.query_seed}"
    for path in study.votes:
        named = NamedVotes.read(path)
        require(named.scores is None, "ballots or counts, which have a top k", votes=str(path))
        if named.ballots is not None:
            made: Counts = Votes.from_ballots(named.ballots)
        else:
            assert named.counts is not None and named.num_teachers is not None
            made = Votes.from_counts(named.counts, named.num_teachers)
        rows = drawn(len(named.ids))
        truth = None if study.truth is None else _truth(study.truth, named)[rows]
        files = [path] if study.truth is None else [path, study.truth]
        yield Source(
            str(path),
            digest(order, *files),
            made.with_public(features=named.features)[rows],
            truth,
        )
    for path in study.counts:
        scores = read_counts(path).scores
        require(
            scores.dtype.kind in "iu" and scores.min(initial=0) >= 0,
            "counts that are whole numbers >= 0",
            counts=str(path),
        )
        votes = Votes.from_counts(scores[None], _MANY)
        yield Source(str(path), digest("histogram", path), votes, histogram=True)
    for simulation in study.simulate:
        words = ", ".join(
            f"{field.name} {getattr(simulation, field.name)}"
            for field in fields(simulation)
            if getattr(simulation, field.name) != field.default
        )
        task = simulated(simulation).votes
        yield Source(f"simulated ({words})", digest(order, words), task[drawn(task.num_queries)])


def _truth(path: Path, named: NamedVotes) -> BoolArray:
    """Return the true labels ``[N, C]`` of the samples of a file of votes."""
    arrays = read_arrays(path, ("ids", "Y"), what="an .npz file of ids and Y")
    ids, labels = arrays["ids"], arrays["Y"]
    expected = (len(ids), len(named.label_names))
    require(labels.shape == expected, f"Y of shape {expected}", shape=labels.shape)
    require(np.isin(labels, (0, 1)).all(), "Y in {0, 1}", truth=str(path))
    return np.asarray(labels[rows_of(named.ids, ids)] == 1)


class Group(NamedTuple):
    """The cells that differ by their seed alone.

    Attributes:
        source: the votes.
        k: the number of items.
        mechanism: the mechanism, before its noise is found.
        epsilon: the target.
    """

    source: Source
    k: int
    mechanism: Partial[Aggregator]
    epsilon: float

    @property
    def words(self) -> str:
        """Where an error is."""
        place = f"{name_of(self.mechanism)}, k = {self.k}, epsilon = {self.epsilon:g}"
        return f"{place}, {self.source.name}"

    def key(self, study: Study, seed: int) -> str:
        """Return the digest of all that a cell follows from, the code of the mechanism included."""
        own = Path(inspect.getfile(self.mechanism.cls))
        content = {
            "pate": code_version(),
            "code": digest(own),
            "votes": self.source.identity,
            "k": self.k,
            "mechanism": to_plain(self.mechanism),
            "epsilon": self.epsilon,
            "delta": study.delta,
            "relation": study.neighboring_relation.name,
            "seed": seed,
        }
        return digest(json.dumps(content, sort_keys=True))[:32]


def calibrated(group: Group, study: Study) -> Aggregator:
    """Return the mechanism of a group with its best noise for the target, as `pate calibrate` does.

    Of a histogram `pate topk` has other settings: it has no majorities, and ranks are penalized by
    one user each.

    Raises:
        ValueError: in one line that names the group, if the mechanism cannot serve the votes or no
            noise meets the target.
    """
    source, k, mechanism, epsilon = group
    cls, votes = mechanism.cls, source.votes
    of_study: dict[str, Any] = {"k": k}
    if source.histogram:
        of_study |= {"allow_empty": False, "rank_penalty": 1.0}
    names = {field.name for field in fields(cls)}
    settings = {name: value for name, value in of_study.items() if name in names}
    target = study.target(epsilon, votes.num_queries)
    try:
        require(k < votes.num_labels, f"k < {votes.num_labels}, the number of items", k=k)
        partial = Partial(cls, **settings | dict(mechanism.settings))
        found = scale_to_target(
            complete_aggregator(partial, target, votes.shape), target, votes.shape
        )
        found.require_kind(type(votes))
        for need, known in (("features", features_of), ("predictions", predictions_of)):
            if need in found.needs:
                known(votes)
    except ValueError as error:
        raise ValueError(f"{error} ({group.words})") from None
    return found


def hits(released: BoolArray, counts: NDArray[np.integer], k: int) -> IntArray:
    """Return how many released items ``[Q, C]`` are in a top k of the counts ``[Q, C]``.

    Of equal counts at the k-th place, any are.
    """
    last = -np.sort(-counts, axis=1)[:, k - 1 : k]
    above, level = counts > last, counts == last
    places = k - above.sum(axis=1)
    found: IntArray = (released & above).sum(axis=1) + np.minimum(
        (released & level).sum(axis=1), places
    )
    return found


def figures_of(release: Release, source: Source, k: int) -> dict[str, float | None]:
    """Return the figures of a release, by name; what is not released counts as not found.

    ``answered`` is the share of labels that are decided, ``accuracy`` that of right ones among all
    labels. ``recall`` is the share of the right items that are released, ``precision`` that of
    released items that are right (None where none is), and ``exact`` the share of queries with
    exactly the right items.
    """
    released = (release.labels > 0) & release.mask
    counts = source.votes.counts
    sizes = released.sum(axis=1)
    if source.truth is None:
        right, found = np.full(len(counts), k), hits(released, counts, k)
    else:
        right, found = source.truth.sum(axis=1), (released & source.truth).sum(axis=1)
    wrong = sizes + right - 2 * found
    return {
        "answered": float(release.mask.mean()),
        "accuracy": float(1 - wrong.mean() / counts.shape[1]),
        "recall": float(found.sum() / right.sum()) if right.any() else None,
        "precision": float(found.sum() / sizes.sum()) if sizes.any() else None,
        "exact": float((wrong == 0).mean()),
    }


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """The results of a study.

    Attributes:
        study: the settings.
        rows: a row for each cell, by votes, k, epsilon, mechanism and seed.
    """

    study: Study
    rows: tuple[Mapping[str, Any], ...]

    def values(self, figure: str, **where: Any) -> FloatArray:
        """Return a figure for each seed of the cells that ``where`` names, NaN where there is none."""
        found = [
            row[figure]
            for row in self.rows
            if all(row[name] == value for name, value in where.items())
        ]
        return np.array([np.nan if value is None else value for value in found], dtype=np.float64)

    def interval(self, figure: str, **where: Any) -> tuple[float, float]:
        """Return the mean over seeds, and half of its interval of 95% by Student's t.

        Both are NaN where a seed has no figure, and the half for one seed.
        """
        values = self.values(figure, **where)
        mean, number = float(values.mean()), len(values)
        if number < 2:
            return mean, math.nan
        quantile = float(student_t.ppf((1 + _CONFIDENCE) / 2, number - 1))
        return mean, quantile * float(values.std(ddof=1)) / math.sqrt(number)


def run_study(study: Study, output: Path, *, workers: int = 1) -> StudyResult:
    """Run the cells of a study that its folder lacks, and return all of them.

    All noise is found, and all that public facts rule out refused, before the first release. A cell
    is a file of ``output/cells``, under a digest of its settings, votes, and code.

    Args:
        study: the settings.
        output: the folder of the study.
        workers: number of processes.

    Raises:
        ValueError: on votes or a target that a mechanism cannot serve, before the first release.
    """
    require_count(1, workers=workers)
    require_place(output)
    cells = output / "cells"
    groups = [
        Group(source, k, mechanism, epsilon)
        for source, k, epsilon, mechanism in product(
            sources(study), study.k, study.epsilons, study.partials
        )
    ]
    files = [[cells / f"{g.key(study, seed)}.json" for seed in range(study.seeds)] for g in groups]
    make_folder(output)
    with locked_output(output / "study.csv"):
        todo = [
            (group, {seed: path for seed, path in enumerate(paths) if not path.is_file()})
            for group, paths in zip(groups, files, strict=True)
        ]
        todo = [(group, missing) for group, missing in todo if missing]
        found = _in_processes(
            workers, study, "noise", calibrated, [(group, study) for group, _ in todo]
        )
        jobs = [
            (group, aggregator, study, missing)
            for (group, missing), aggregator in zip(todo, found, strict=True)
        ]
        _in_processes(workers, study, "study", _release_cells, jobs)
    rows = [_read_cell(path) for paths in files for path in paths]
    return StudyResult(study=study, rows=tuple(rows))


def _read_cell(path: Path) -> Mapping[str, Any]:
    with expecting(f"a finished cell in {path} (delete it to make it again)", ValueError):
        row: Mapping[str, Any] = read_json(path.read_text())
    return row


Made = TypeVar("Made")


def _in_processes(
    workers: int,
    study: Study,
    name: str,
    function: Callable[..., Made],
    calls: Sequence[tuple[Any, ...]],
) -> list[Made]:
    """Return a function's results for several arguments, in order."""
    # private votes are not to be mapped from a file of all workers
    size = None if study.notice == PRIVATE else "1M"
    pool = Parallel(n_jobs=min(workers, len(calls) or 1), return_as="generator", max_nbytes=size)
    results = []
    with stage_bar(len(calls), name, unit="group") as bar:
        for result in pool(delayed(_called)(finder_in_use(), function, each) for each in calls):
            results.append(result)
            bar.update()
    return results


def _called(finder: OwnCode | None, function: Callable[..., Made], arguments: Any) -> Made:
    """Call a function in a worker, in which the finder has imported the user's own classes."""
    return function(*arguments)


def _release_cells(
    group: Group, aggregator: Aggregator, study: Study, missing: Mapping[int, Path]
) -> None:
    """Release the votes of a group by each missing seed, and write its cells."""
    source, votes = group.source, group.source.votes
    relation, shape = study.neighboring_relation, votes.shape
    allowed = epsilon_of(
        aggregator.event(shape, relation), count=votes.num_queries, delta=study.delta
    )
    for seed, path in missing.items():
        release = aggregator.aggregate(votes, generator=np.random.default_rng(seed))
        spent = allowed
        if release.tiers is not None:
            spent = account(aggregator.charges(release, shape), relation).get_epsilon(
                delta=study.delta
            )
        row = {
            "votes": source.name,
            **_facts(shape, votes.num_queries, histogram=source.histogram),
            "k": group.k,
            "mechanism": name_of(group.mechanism),
            "epsilon": group.epsilon,
            "delta": study.delta,
            "relation": relation.value,
            "seed": seed,
            "spent": spent,
            "noise": json.dumps(aggregator.noise),
        }
        write_json(path, row | figures_of(release, source, group.k))


def _facts(shape: VoteShape, num_queries: int, *, histogram: bool) -> dict[str, int | None]:
    return {
        "num_queries": num_queries,
        "num_teachers": None if histogram else shape.num_teachers,
        "num_labels": shape.num_labels,
    }
