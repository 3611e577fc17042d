"""A study: mechanisms compared at one price, over numbers of items, epsilons, votes and seeds.

First the settings, and the votes, which come from files or have a given shape. Then a cell: one
release, compared with the exact top k of its votes or with a given truth. At the end the study,
whose finished cells are files of its folder, so that it goes on where it stopped.
"""

import inspect
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.special import stdtrit

from pate._core.accounting.accountant import Target
from pate._core.accounting.charges import account
from pate._core.accounting.cost import NeighboringRelation
from pate._core.accounting.events import BoundedRangeEvent, Event, PureDPEvent, leaves
from pate._core.files.reading import code_version, digest, load_json
from pate._core.files.writing import locked_output, make_folder, require_place, write_json
from pate._core.settings import Partial, decode, to_plain
from pate._core.transaction import require_promise
from pate._core.validation import (
    BoolArray,
    FloatArray,
    IntArray,
    expecting,
    require,
    require_count,
    require_distinct,
    require_positive,
    stage_bar,
)
from pate._labeling.aggregators.base import (
    Aggregator,
    AnyAggregator,
    Release,
    features_of,
    predictions_of,
)
from pate._labeling.release.label_settings import complete_aggregator, scale_to_target
from pate._labeling.teachers import most_processes
from pate._labeling.votes.kinds import Votes
from pate.lab.study.sources import (
    CountsFile,
    Source,
    Steps,
    Zipf,
    counts_of,
    shape_of,
    votes_of,
)

FREE = "from made-up histograms alone: nothing private was touched"
PUBLIC = "from votes that were declared public"
PRIVATE = "PRIVATE: compared with exact counts of private votes; not to be published"
FIGURES = ("answered", "accuracy", "recall", "precision", "exact", "great", "good")
"""What is measured of a release."""

_OF_GROUP = ("votes", "k", "epsilon", "mechanism")
_CONFIDENCE = 0.95
_FOR_SETTINGS = 1e-6  # delta of settings that a class chooses for a target without one

Figures = Mapping[str, float | None]


@dataclass(frozen=True, kw_only=True)
class Study:
    """The settings of a study: all votes by all k, mechanisms, epsilons and seeds.

    Args:
        mechanisms: aggregators by class path, of this package and of others. A target finds the
            noise and what else is left out; of given noise only the proportions matter.
        k: numbers of items that are looked for. Mechanisms without a k are compared with the same
            top k.
        epsilons: the targets of all queries on one file of votes together.
        names: names of the mechanisms in the results, one each. None for class and settings.
        shown: the figure of the picture.
        votes: .npz files of ballots or counts, as for pate label --votes (PRIVATE).
        counts: histograms (PRIVATE): .npy files of whole numbers, or .npz files of such
            `counts`, a query each, or rows of a file. A user changes each count
            by 1 at most.
        simulate: histograms of a given shape.
        truth: with votes, an .npz with ids and Y [N, C] (0/1), in place of the exact top k.
        delta: the delta of targets. At 0 they are targets of pure epsilon by simple
            addition, which choices with noise of any law meet, and no tests.
        neighboring_relation: the relation that targets hold for.
        seeds: number of draws of the noise; intervals are over them.
        num_queries: number of samples of files of votes. None for all.
        query_seed: seed of their public order, as in pate label.
        public: whether all files are public, so that the results are, too.

    Raises:
        ValueError: on settings out of range, or without mechanisms, k, epsilons or votes.
    """

    mechanisms: list[AnyAggregator]
    k: tuple[int, ...]
    names: tuple[str, ...] | None = None
    epsilons: tuple[float, ...]
    delta: float = 1e-6
    neighboring_relation: NeighboringRelation = NeighboringRelation.REPLACE_RECORD
    seeds: int = 10
    shown: str = "recall"
    votes: tuple[Path, ...] = ()
    counts: tuple[Path | CountsFile, ...] = ()
    simulate: tuple[Steps | Zipf, ...] = ()
    truth: Path | None = None
    num_queries: int | None = None
    query_seed: int = 0
    public: bool = False

    def __post_init__(self) -> None:
        require(self.epsilons, "at least one epsilon", epsilons=self.epsilons)
        require_positive(**{f"epsilons[{i}]": value for i, value in enumerate(self.epsilons)})
        require_count(1, seeds=self.seeds)
        if self.delta != 0:
            require_promise(self.delta)
        for name in ("mechanisms", "k"):
            require(getattr(self, name), f"at least one value of {name}", **{name: "none"})
        require_count(1, **{f"k[{i}]": k for i, k in enumerate(self.k)})
        if self.num_queries is not None:
            require_count(1, num_queries=self.num_queries)
        require(
            self.votes or self.counts or self.simulate,
            "votes, counts or simulate",
            votes="none",
        )
        require(
            self.num_queries is None or self.votes,
            "no num_queries with histograms alone: each is one query",
            num_queries=self.num_queries,
        )
        require(
            self.truth is None or not (self.counts or self.simulate),
            "`truth` with files of votes alone",
            truth=str(self.truth),
        )
        require_distinct("k", self.k)
        require_distinct("epsilons", self.epsilons)
        require(self.shown in FIGURES, f"shown in {', '.join(FIGURES)}", shown=self.shown)
        require(
            self.names is None or len(self.names) == len(self.mechanisms),
            f"{len(self.mechanisms)} names, one for each mechanism",
            names=self.names,
        )
        require_distinct("names of mechanisms", self.named)
        places = [*map(str, self.votes), *map(str, self.counts), *map(repr, self.simulate)]
        require_distinct("votes", places)

    @property
    def named(self) -> list[str]:
        """The names of the mechanisms in the results."""
        return [*map(name_of, self.partials)] if self.names is None else [*self.names]

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
        """Return what a number of queries may cost together."""
        return Target(
            epsilon=epsilon,
            delta=self.delta or _FOR_SETTINGS,
            num_queries=num_queries,
            neighboring_relation=self.neighboring_relation,
        )

    def priced(self, mechanism: AnyAggregator, epsilon: float, votes: Votes) -> Aggregator:
        """Return a mechanism with the least noise that lets all queries together cost an epsilon.

        Raises:
            ValueError: if no noise meets the target.
        """
        target = self.target(epsilon, votes.num_queries)
        made = complete_aggregator(mechanism, target, votes.shape)
        if self.delta:
            return scale_to_target(made, target, votes.shape)
        cost = self.cost(made, votes)
        require(math.isfinite(cost), "a mechanism of pure epsilon at delta = 0", cost="none")
        # noise of twice the scale costs half
        return made.scaled(cost / epsilon)

    def cost(self, aggregator: Aggregator, votes: Votes) -> float:
        """Return the epsilon of all queries on some votes together."""
        event = aggregator.event(votes.shape, self.neighboring_relation)
        if not self.delta:
            return pure_epsilon(event) * votes.num_queries
        return self.target(1.0, votes.num_queries).epsilon_of(event, in_order=True)

    def draws(
        self,
        aggregator: Aggregator,
        votes: Votes,
        figures: Callable[[Release], Figures],
        seeds: Sequence[int],
    ) -> list[dict[str, Any]]:
        """Release votes by each seed, and return the cost, the noise and the figures of each.

        The cost ``spent`` is less than what is ``allowed`` where a release settled for less.
        """
        allowed, rows = self.cost(aggregator, votes), []
        for seed in seeds:
            release = aggregator.aggregate(votes, generator=np.random.default_rng(seed))
            spent = allowed
            if release.tiers is not None and self.delta:
                charges = aggregator.charges(release, votes.shape)
                total = account(charges, self.neighboring_relation)
                spent = total.get_epsilon(delta=self.delta)
            noise = json.dumps(aggregator.noise)
            rows.append({"seed": seed, "spent": spent, "noise": noise} | dict(figures(release)))
        return rows


def pure_epsilon(event: Event) -> float:
    """Return the pure epsilon of an event by simple addition, infinite where none is known.

    A choice of bounded range eta is eta-DP, and the releases of an event add up (Dwork et al.
    (2006)), also where earlier ones decide later ones.
    """
    total = 0.0
    for leaf, count in leaves(event):
        if isinstance(leaf, BoundedRangeEvent):
            total += count * leaf.eta
        elif isinstance(leaf, PureDPEvent):
            total += count * leaf.epsilon
        else:
            return math.inf
    return total


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


def sources(study: Study) -> Iterator[tuple[Source, int]]:
    """Yield the votes of a study with each k. Raises ``ValueError`` on files of anything else."""
    number, seed = study.num_queries, study.query_seed
    for path in study.votes:
        yield from product([votes_of(path, study.truth, num_queries=number, seed=seed)], study.k)
    for place in study.counts:
        yield from product([counts_of(place)], study.k)
    for shape in study.simulate:
        yield from ((shape_of(shape, k), k) for k in study.k)


class Group(NamedTuple):
    """The cells that differ by their seed alone.

    Attributes:
        source: the votes.
        k: the number of items.
        name: the name of the mechanism.
        mechanism: the mechanism, before its noise is found.
        epsilon: the target.
    """

    source: Source
    k: int
    name: str
    mechanism: Partial[Aggregator]
    epsilon: float

    @property
    def complete(self) -> Partial[Aggregator]:
        """The mechanism with what the study knows of its settings."""
        cls = self.mechanism.cls
        of_study: dict[str, Any] = {"k": self.k}
        if self.source.histogram:
            of_study |= {"allow_empty": False, "rank_penalty": 1.0}
        names = {field.name for field in fields(cls)}
        settings = {name: value for name, value in of_study.items() if name in names}
        return Partial(cls, **settings | dict(self.mechanism.settings))

    def priced_as(self, study: Study) -> str:
        """Return the digest of all that its noise follows from, with the code.

        Groups of equal votes and other k may share it.
        """
        votes = self.source.votes
        facts = (votes.shape, votes.num_queries, type(votes).__name__, votes.features is None)
        return _digest(self, {"facts": repr(facts), "complete": to_plain(self.complete)}, study)

    def require_k(self) -> None:
        """Raise ``ValueError`` unless there are more items than k."""
        items = self.source.votes.num_labels
        if self.k >= items:
            raise ValueError(
                f"Expected k < {items}, the number of items, got k={self.k} ({self.words})"
            )

    @property
    def words(self) -> str:
        """Where an error is."""
        place = f"{self.name}, k = {self.k}, epsilon = {self.epsilon:g}"
        return f"{place}, {self.source.name}"

    def key(self, study: Study) -> str:
        """Return the digest of all that its cells follow from but the seeds, with the code."""
        content = {
            "name": self.name,
            "votes": self.source.identity,
            "k": self.k,
            "mechanism": to_plain(self.mechanism),
        }
        return _digest(self, content, study)


def _digest(group: Group, content: Mapping[str, Any], study: Study) -> str:
    everywhere = {
        "pate": code_version(),
        "code": digest(Path(inspect.getfile(group.mechanism.cls))),
        "epsilon": group.epsilon,
        "delta": study.delta,
        "relation": study.neighboring_relation.name,
    }
    return digest(json.dumps({**content, **everywhere}, sort_keys=True))[:32]


def calibrated(group: Group, study: Study, path: Path) -> Aggregator:
    """Return the mechanism of a group with its best noise for the target, as `pate account` does.

    It is read from a file, which is written where there is none. A histogram has no majorities, and
    ranks are penalized by one user each.

    Raises:
        ValueError: in one line that names the group, if the mechanism cannot serve the votes or no
            noise meets the target.
    """
    votes = group.source.votes
    try:
        if path.is_file():
            with expecting(f"noise in {path} (delete it to find it again)", ValueError):
                found = decode(Aggregator, load_json(path))
        else:
            found = study.priced(group.complete, group.epsilon, votes)
            write_json(path, to_plain(found))
        found.require_kind(type(votes))
        for need, known in (("features", features_of), ("predictions", predictions_of)):
            if need in found.needs:
                known(votes)
    except ValueError as error:
        raise ValueError(f"{error} ({group.words})") from None
    return found


class Top:
    """The top k of counts ``[Q, C]``, with any of the equal counts at the k-th place."""

    def __init__(self, counts: NDArray[np.integer], k: int) -> None:
        last = -np.partition(-counts, k - 1, axis=1)[:, k - 1 : k]
        self._above, self._level = counts > last, counts == last
        self._places = k - self._above.sum(axis=1)

    def hits(self, released: BoolArray) -> IntArray:
        """Return how many released items ``[Q, C]`` are in it, as many as any choice allows."""
        level = np.minimum((released & self._level).sum(axis=1), self._places)
        found: IntArray = (released & self._above).sum(axis=1) + level
        return found


class Judge:
    """Measures releases of some votes for a k; what is not released counts as not found."""

    def __init__(self, source: Source, k: int) -> None:
        self._source, self._k = source, k
        counts = source.votes.counts
        top, most = partial(Top, counts), counts.shape[1]
        self._top = top(k)
        self._grades = {
            "great": (top(-(-k // 10)), -(-k // 10), top(min(11 * k // 10, most))),
            "good": (top(-(-k // 100)), -(-k // 100), top(min(3 * k // 2, most))),
        }

    def figures(self, release: Release) -> dict[str, float | None]:
        """Return the figures of a release, by name.

        ``answered`` is the share of labels that are decided, ``accuracy`` that of right ones among
        all labels. ``recall`` is the share of the right items that are released, ``precision`` that
        of released items that are right (None where none is), and ``exact`` the share of queries
        with exactly the right items. A ``great`` set of k items has the best ``k / 10`` (rounded
        up) and none of rank beyond ``1.1 k``, a ``good`` one the best ``k / 100`` and none beyond
        ``1.5 k`` (Shekelyan & Loukides (2022)). Both are None with a given truth.
        """
        truth, k = self._source.truth, self._k
        released = (release.labels > 0) & release.mask
        sizes = released.sum(axis=1)
        if truth is None:
            right, found = np.full(len(released), k), self._top.hits(released)
        else:
            right, found = truth.sum(axis=1), (released & truth).sum(axis=1)
        wrong = sizes + right - 2 * found
        grades = {
            name: None
            if truth is not None
            else float(
                (
                    (sizes == k) & (best.hits(released) == number) & (worst.hits(released) == k)
                ).mean()
            )
            for name, (best, number, worst) in self._grades.items()
        }
        return {
            "answered": float(release.mask.mean()),
            "accuracy": float(1 - wrong.mean() / released.shape[1]),
            "recall": float(found.sum() / right.sum()) if right.any() else None,
            "precision": float(found.sum() / sizes.sum()) if sizes.any() else None,
            "exact": float((wrong == 0).mean()),
            **grades,
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

    @cached_property
    def _groups(self) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
        groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
        for row in self.rows:
            groups.setdefault(tuple(row[name] for name in _OF_GROUP), []).append(row)
        return groups

    def values(self, figure: str, **where: Any) -> FloatArray:
        """Return a figure for each seed of the cells that ``where`` names, NaN where there is none.

        Args:
            figure: a column of the table.
            **where: values of ``votes``, ``k``, ``mechanism`` and ``epsilon``, or of some of them.
        """
        asked = [(_OF_GROUP.index(name), value) for name, value in where.items()]
        found = [
            row[figure]
            for place, rows in self._groups.items()
            if all(place[i] == value for i, value in asked)
            for row in rows
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
        quantile = float(stdtrit(number - 1, (1 + _CONFIDENCE) / 2))
        return mean, quantile * float(values.std(ddof=1)) / math.sqrt(number)


Made = TypeVar("Made")


def in_processes(
    workers: int,
    name: str,
    function: Callable[..., Made],
    calls: Sequence[tuple[Any, ...]],
    *,
    private: bool,
) -> list[Made]:
    """Return a function's results for several arguments, in order; votes may be ``private``."""
    # private votes are not to be mapped from a file of all workers
    size = None if private else "1M"
    pool = Parallel(
        n_jobs=min(workers, len(calls) or 1, most_processes()),
        return_as="generator",
        max_nbytes=size,
    )
    results = []
    with stage_bar(len(calls), name, unit="group") as bar:
        for result in pool(delayed(function)(*each) for each in calls):
            results.append(result)
            bar.update()
    return results


def run_study(study: Study, output: Path, *, workers: int = 1) -> StudyResult:
    """Run the cells of a study that its folder lacks, and return all of them.

    All noise is found, and all that public facts rule out refused, before the first release. Noise
    and cells are files of ``output/noise`` and ``output/cells``, as soon as they are there, under
    digests of their settings, votes, and code.

    Args:
        study: the settings.
        output: the folder of the study.
        workers: number of processes.

    Raises:
        ValueError: on votes or a target that a mechanism cannot serve, before the first release.
    """
    require_count(1, workers=workers)
    require_place(output)
    groups = [
        Group(source, k, name, mechanism, epsilon)
        for (source, k), epsilon, (name, mechanism) in product(
            sources(study), study.epsilons, zip(study.named, study.partials, strict=True)
        )
    ]
    files = [output / "cells" / f"{group.key(study)}.json" for group in groups]
    make_folder(output)
    private = study.notice == PRIVATE
    with locked_output(output / "study.csv"):
        made = [_read_cells(path) for path in files]
        todo = [i for i, cells in enumerate(made) if len(cells) < study.seeds]
        for group in groups:
            group.require_k()
        keys = {i: groups[i].priced_as(study) for i in todo}
        first = {keys[i]: groups[i] for i in reversed(todo)}
        calls = [
            (group, study, output / "noise" / f"{key}.json")
            for key, group in reversed(first.items())
        ]
        found = in_processes(workers, "noise", calibrated, calls, private=private)
        priced = dict(zip(reversed(first), found, strict=True))
        jobs = [(groups[i], priced[keys[i]], study, files[i], made[i]) for i in todo]
        for i, cells in zip(
            todo, in_processes(workers, "study", _release_cells, jobs, private=private), strict=True
        ):
            made[i] = cells
    return StudyResult(
        study=study, rows=tuple(row for cells in made for row in cells[: study.seeds])
    )


def _read_cells(path: Path) -> list[Mapping[str, Any]]:
    """Return the cells of a file by seed, none where there is no file."""
    if not path.is_file():
        return []
    with expecting(f"finished cells in {path} (delete it to make them again)", ValueError):
        content = load_json(path)
    rows: Any = content.get("cells") if isinstance(content, dict) else None
    if isinstance(rows, list) and all(
        isinstance(row, dict) and row.keys() >= {*_OF_GROUP, "seed"} for row in rows
    ):
        return rows
    print(f"pate study: no cells in {path}; they are made again", file=sys.stderr)
    return []


def _release_cells(
    group: Group,
    aggregator: Aggregator,
    study: Study,
    path: Path,
    made: Sequence[Mapping[str, Any]],
) -> list[Mapping[str, Any]]:
    """Release the votes of a group by the seeds that are missing; write and return its cells."""
    source, votes = group.source, group.source.votes
    place = {
        "votes": source.name,
        "num_queries": votes.num_queries,
        "num_teachers": None if source.histogram else votes.num_teachers,
        "num_labels": votes.num_labels,
        "k": group.k,
        "mechanism": group.name,
        "epsilon": group.epsilon,
        "delta": study.delta,
        "relation": study.neighboring_relation.value,
    }
    seeds = range(len(made), study.seeds)
    drawn = study.draws(aggregator, votes, Judge(source, group.k).figures, seeds)
    cells = [*made, *(place | row for row in drawn)]
    write_json(path, {"cells": cells})
    return cells
