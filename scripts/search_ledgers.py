"""Search random ledgers for a printed total below the truth, by draws with forced outcomes.

    python -m scripts.search_ledgers --ledgers 300

A ledger has two to four releases of the same records: by record, by group, by the teachers of two
partitions, by teachers that start from an earlier student, or of imported votes for one patient;
some have a budget, or are for units that reach two teachers, and some are by other groups, in which
one record has moved, or many. Records lie in several files, under other ids and in other units, or
a part of them. All are made again without a record, a group or a teacher, or with altered records, and each draw has
the outcome that it had before (`pate.lab.audit.forced`). The path has then an exact epsilon between
these neighbors, or a lower bound. It is compared with each epsilon that a statement prints for
them. The records of a group are alike, so that they move sums in one direction, and the group and
the teacher that leave are those that move sums most. A ledger takes four seconds of one processor;
a TMPDIR in memory saves as much again.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pate import ClosedFormPlan, LabelSettings, RunPlan, StudentPlan
from pate._core.accounting.cost import NeighboringRelation
from pate._core.files.reading import digest
from pate._core.files.writing import write_json
from pate._core.settings import Partial
from pate._core.validation import IntArray, stage_bar
from pate._labeling.data.records import assign_teachers, parts_of_groups
from pate._labeling.release.label_settings import resolve_settings
from pate._labeling.runs.run import KEY_BYTES, KEY_FILE, LABEL, Run
from pate._labeling.runs.vote_store import finished_votes
from pate._labeling.stages.votes_import import NamedVotes, import_votes, open_votes_run, votes_from
from pate.aggregators import Canonical, NoisyVotes, Peeling
from pate.data import Arrays
from pate.lab.audit.forced import DivergedError, Draw, ForcedGenerator, Movement, release_labels

DELTA = 1e-5
LABELS, FEATURES = 3, 4
PRIVATE, PUBLIC = 240, 24
PARTITIONS = (8, 20)
"""The numbers of teachers of two partitions."""
OTHER, OTHER_IDS, PART = "other_group", "other_ids", "part"
"""The columns of the other groups, of the ids in other files, and whether a file of some has it."""
FILES = ("records", "copied", "some")
"""The files: of all records, of all again by other ids in another order and unit, and of a part."""
WORD = "patient"
"""The word for the unit of imported votes, whose patients are the groups."""
SLACK = 1e-6
"""The relative error of figures, as of `pate.accounting`."""

Unit = Literal["record", "group"]


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A release of a ledger.

    Attributes:
        unit: the protected unit.
        num_teachers: None for a teacher of each unit.
        start: the release, from 0, of the student that teachers start from; None without one.
        again: the earlier release whose votes are released once more; None for new teachers.
        aggregator: the aggregator without its noise; None for the default.
        epsilon: the target of this release.
        max_teachers: how many teachers a unit may reach.
        budget: the budget of the ledger; None to name none.
        most: the largest number of teachers that the records of a group reach; None for any.
        regrouped: whether the records have their other groups.
        file: the file, one of `FILES`.
        imported: whether votes are imported, for one patient.
    """

    unit: Unit
    num_teachers: int | None = None
    start: int | None = None
    again: int | None = None
    aggregator: Any = None
    epsilon: float = 1.0
    max_teachers: int = 1
    budget: float | None = None
    most: int | None = None
    regrouped: bool = False
    file: str = FILES[0]
    imported: bool = False

    @property
    def word(self) -> str:
        """The word for the unit in statements."""
        return WORD if self.imported else self.unit

    @property
    def column(self) -> str:
        """The column of the groups."""
        return OTHER if self.regrouped else "group"

    @property
    def has_partition(self) -> bool:
        """Whether teachers are others than records or groups."""
        return self.num_teachers is not None or self.most is not None

    @property
    def text(self) -> str:
        """The release in words."""
        words = [f"by {self.word} of {self.file}"]
        words += [f"{self.num_teachers} teachers"] if self.num_teachers else []
        words += [f"start_from release {self.start + 1}"] if self.start is not None else []
        words += [f"{self.most} teachers a group"] if self.most is not None else []
        words += [f"votes of release {self.again + 1}"] if self.again is not None else []
        words += [self.aggregator.cls.__name__] if self.aggregator is not None else []
        words += [f"epsilon {self.epsilon:g}", f"m = {self.max_teachers}"]
        words += [f"budget {self.budget:g}"] if self.budget is not None else []
        words += ["other groups"] if self.regrouped else []
        return ", ".join(words)

    def plan(self, folder: Path) -> ClosedFormPlan:
        """Return the plan of the teachers of a release whose runs lie in a folder."""
        start = None if self.start is None else str(folder / f"run{self.start}")
        return ClosedFormPlan(
            unit=self.unit,
            num_teachers=self.num_teachers,
            start_from=start,
            max_teachers_per_group=self.most,
        )

    @property
    def settings(self) -> LabelSettings:
        """The settings of the labels, without their noise."""
        return LabelSettings(
            self.aggregator,
            delta=DELTA,
            target_epsilon=self.epsilon,
            max_teachers_per_unit=self.max_teachers,
            max_epsilon=self.budget,
        )


Table = Mapping[str, NDArray[Any]]
"""The arrays of `pate.data.Arrays`, private records first, and another group of each."""


def made_up(generator: np.random.Generator) -> Table:
    """Return records and samples; the records of a group are alike."""
    sizes = generator.choice((1, 2, 5, 12, 30), size=PRIVATE)
    number = int(np.searchsorted(np.cumsum(sizes), PRIVATE)) + 1
    groups = np.repeat(np.arange(number), sizes[:number])[:PRIVATE]
    centers = generator.standard_normal((number, FEATURES))
    centers *= 2 / np.linalg.norm(centers, axis=1, keepdims=True)
    answers = generator.integers(0, 2, (number, LABELS))
    features = centers[groups] + 0.2 * generator.standard_normal((PRIVATE, FEATURES))
    others = PUBLIC + 2
    # one record has moved, or many
    moved = generator.choice(PRIVATE, size=int(generator.choice((1, 60))), replace=False)
    regrouped = groups.copy()
    regrouped[moved] = generator.permutation(number)[0]
    return {
        "X": np.concatenate((features, generator.standard_normal((others, FEATURES)))),
        "Y": np.concatenate((answers[groups], np.zeros((others, LABELS)))).astype(np.uint8),
        "ids": np.char.mod("id-%04d", np.arange(PRIVATE + others)),
        "split": np.repeat([0, 1, 2], [PRIVATE, PUBLIC, 2]),
        "group": np.append(np.char.mod("g-%04d", groups), np.full(others, "public")),
        OTHER: np.append(np.char.mod("g-%04d", regrouped), np.full(others, "public")),
        OTHER_IDS: np.char.mod("no-%04d", generator.permutation(PRIVATE + others)),
        PART: np.append(generator.random(PRIVATE) < 0.6, np.ones(others, dtype=np.bool_)),
    }


def file_of(table: Table, planned: Planned) -> Table:
    """Return the arrays of a release's file, with ``row``, the number of each record."""
    seen = {**table, "group": table[planned.column], "row": np.arange(len(table["ids"]))}
    if planned.file != FILES[0]:
        ids = table["ids"], table[OTHER_IDS]
        # public samples keep theirs
        named = np.where(table["split"] == 0, ids[1], ids[0])
        seen |= {"X": 2 * table["X"], "ids": named}
        order = np.flatnonzero(table[PART] | (planned.file == "copied"))[::-1]
        seen = {name: array[order] for name, array in seen.items()}
    return seen


def sequence(generator: np.random.Generator) -> list[Planned]:
    """Return the releases of a ledger."""
    releases: list[Planned] = []
    budget = float(generator.choice((3.0, 6.0))) if generator.random() < 0.3 else None
    regrouped = generator.random() < 0.3
    files = FILES[: int(generator.integers(1, len(FILES) + 1))]
    words = generator.random() < 0.2
    for place in range(int(generator.integers(2, 5))):
        planned = Planned(
            unit="group" if generator.random() < 0.4 else "record",
            epsilon=float(generator.choice((0.5, 1.0, 2.0, 4.0))),
            max_teachers=2 if generator.random() < 0.2 else 1,
            budget=budget if generator.random() < 0.7 else None,
            regrouped=regrouped and generator.random() < 0.5,
            file=str(generator.choice(files)),
        )
        kind, earlier = generator.random(), int(generator.integers(max(place, 1)))
        teachers = int(generator.choice(PARTITIONS))
        used = {one.start for one in releases} | {one.again for one in releases}
        if place and kind < 0.35:
            of_counts = Partial(NoisyVotes), Partial(Canonical, k=1), Partial(Peeling, k=2)
            chosen = of_counts[int(generator.integers(len(of_counts)))]
            planned = replace(planned, num_teachers=teachers, start=earlier, aggregator=chosen)
        elif place and kind < 0.5 and releases[earlier].again is None and earlier not in used:
            votes = replace(releases[earlier], start=None, again=earlier)
            planned = replace(votes, epsilon=planned.epsilon, max_teachers=planned.max_teachers)
        elif words and kind < 0.7:
            planned = replace(planned, imported=True, num_teachers=teachers, unit="group")
            planned = replace(planned, aggregator=Partial(NoisyVotes), regrouped=False)
        elif kind < 0.75:
            planned = replace(planned, num_teachers=teachers)
        if planned.start is not None and releases[planned.start].again is not None:
            planned = replace(planned, start=None, aggregator=None)
        if planned.start is not None and planned.start in {one.again for one in releases}:
            planned = replace(planned, start=None, aggregator=None)
        if planned.unit == "record" and planned.again is None and generator.random() < 0.3:
            planned = replace(planned, most=int(generator.choice((2, 5))))
        if planned.budget is not None:
            planned = replace(planned, epsilon=min(planned.epsilon, planned.budget))
        releases.append(planned)
    return releases


class Made(NamedTuple):
    """A release: the content of its ``privacy.json``, a digest of its ``labels.npz``, its draws."""

    statement: Mapping[str, Any]
    labels: str
    draws: Sequence[Draw]


def make(
    folder: Path,
    table: Table,
    releases: Sequence[Planned],
    *,
    kept: Sequence[Made | None] | None = None,
    absent: Mapping[int, Sequence[int]] | None = None,
) -> list[Made | None]:
    """Make releases one after the other on one ledger; None in place of one that is refused.

    Args:
        folder: a new folder.
        table: the records.
        releases: the releases.
        kept: the same releases of the first data set, whose outcomes are forced; None to draw.
        absent: the numbers of teachers that take no part, by the number of the release.
    """
    folder.mkdir()
    ledger = folder / "ledger.sqlite"
    made: list[Made | None] = []
    for place, planned in enumerate(releases):
        earlier = [origin for origin in (planned.start, planned.again) if origin is not None]
        if any(made[origin] is None for origin in earlier):
            made.append(None)
            continue
        first = None if kept is None else kept[place]
        draws = ForcedGenerator(place, None if first is None else first.draws)
        root = folder / f"run{place if planned.again is None else planned.again}"
        run = Run(root, ledger=ledger, overwrite=planned.again is not None)
        data = _source(folder, table, planned)
        try:
            if planned.again is None:
                write_json(root / KEY_FILE, {"key": key_of(place).hex()})
            if planned.imported and planned.again is None:
                votes = votes_from(_votes(table, planned, key_of(place)), unit=WORD)
                import_votes(open_votes_run(root, votes, ledger=ledger), votes, data)
            elif planned.again is None:
                plan = RunPlan(root, data, teachers=planned.plan(folder), ledger=ledger)
                plan.fit_teachers()
                plan.vote()
            manifest = finished_votes(run).manifest()
            settings = resolve_settings(
                planned.settings, manifest.shape, len(manifest.ids), manifest.kind
            )
            release_labels(run, settings, draws, absent=(absent or {}).get(place, ()))
        except ValueError:  # by a budget, or because the ledger does not allow it
            made.append(None)
            continue
        assert not draws.drew_otherwise, "all noise is seen"
        if any(other.start == place for other in releases):
            RunPlan(root, data, student=StudentPlan()).fit_student()
        labels, statement, _ = (root / output for output in LABEL.outputs)
        content = json.loads(statement.read_text())
        made.append(Made(statement=content, labels=digest(labels), draws=draws.draws))
    return made


def _source(folder: Path, table: Table, planned: Planned) -> Arrays:
    """Return the source of a release's file, which is written."""
    path = folder / f"{planned.file}-{planned.column}.npz"
    arrays = file_of(table, planned)
    names = ("X", "Y", "ids", "split", "group")
    np.savez(path, **{name: arrays[name] for name in names})  # type: ignore[arg-type, unused-ignore]
    source = Arrays(path)
    source.grouping = planned.column  # as an owner does, who knows of other groups
    return source


def _votes(table: Table, planned: Planned, key: bytes) -> NamedVotes:
    """Return ballots of teachers of a file's patients, by the likeness of samples to theirs."""
    teachers, seen = _teachers_of(table, planned, key), file_of(table, planned)
    own, public = seen["row"][seen["split"] == 0], seen["split"] == 1
    sums = np.zeros((planned.num_teachers or 1, FEATURES, LABELS))
    moments = table["X"][own][:, :, None] * (2.0 * table["Y"][own] - 1)[:, None]
    np.add.at(sums, teachers[own], moments)
    ballots = (np.einsum("nf,tfc->ntc", seen["X"][public], sums) > 0).astype(np.uint8)
    names = tuple(f"label_{j}" for j in range(LABELS))
    return NamedVotes(ids=seen["ids"][public], label_names=names, ballots=ballots)


def key_of(place: int) -> bytes:
    """Return the key of the partition of a release."""
    return bytes([place]) * KEY_BYTES


@dataclass(frozen=True, kw_only=True)
class Neighbor:
    """A change of the records.

    Attributes:
        whom: whose records change, or `WORD`.
        units: how many records, groups or teachers change.
        rows: ``[n]``, the records that change.
        regrouped: whether they are of one of the other groups.
        removed: whether they are removed; otherwise they are altered.
        absent: the teachers that take no part, by the number of the release.
    """

    whom: Any
    units: int
    rows: IntArray
    regrouped: bool = False
    removed: bool = True
    absent: Mapping[int, Sequence[int]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The change in words."""
        change = "removed" if self.removed else "altered"
        return f"{self.units} {self.whom}(s) with {len(self.rows)} records {change}"

    def changed(self, table: Table) -> Table:
        """Return the neighbor of the records."""
        if self.removed:
            return {name: np.delete(array, self.rows, axis=0) for name, array in table.items()}
        altered = {name: np.array(array) for name, array in table.items()}
        altered["X"][self.rows] *= -4
        altered["Y"][self.rows] = 1 - altered["Y"][self.rows]
        return altered


def neighbors(
    table: Table, releases: Sequence[Planned], generator: np.random.Generator
) -> Iterator[Neighbor]:
    """Yield neighbors of records: groups and teachers are those that move sums most."""
    for units in (1, 2):
        rows = generator.choice(PRIVATE, size=units, replace=False)
        yield Neighbor(whom="record", units=units, rows=rows, removed=generator.random() < 0.5)
    moved = np.flatnonzero(table["group"][:PRIVATE] != table[OTHER][:PRIVATE])
    yield Neighbor(whom="record", units=1, rows=moved[:1])
    for regrouped in sorted({planned.regrouped for planned in releases}):
        groups = np.unique(table[OTHER if regrouped else "group"][:PRIVATE], return_inverse=True)[1]
        yield Neighbor(
            whom="group",
            units=1,
            rows=np.flatnonzero(groups == _heaviest(table, groups)[0]),
            regrouped=regrouped,
            removed=generator.random() < 0.5,
        )
    for place, planned in enumerate(releases):
        if planned.imported:
            rows = np.flatnonzero(table["group"] == generator.choice(table["group"][:PRIVATE]))
            yield Neighbor(whom=WORD, units=1, rows=rows, removed=generator.random() < 0.5)
        if not planned.has_partition or planned.again is not None:
            continue
        teachers = _teachers_of(table, planned, key_of(place))
        leaving = _heaviest(table, teachers)[: int(generator.integers(1, 3))]
        same = [place, *(i for i, other in enumerate(releases) if other.again == place)]
        yield Neighbor(
            whom="teacher",
            units=len(leaving),
            rows=np.flatnonzero(np.isin(teachers, leaving)),
            # parts that vote leave with their records
            absent=dict.fromkeys(same, leaving.tolist() if planned.num_teachers else []),
        )


def _teachers_of(table: Table, planned: Planned, key: bytes) -> IntArray:
    """Return the number of the teacher of each private record, ``[N]``; -1 if its file lacks it."""
    seen = file_of(table, planned)
    own = seen["split"] == 0
    ids, groups = seen["ids"][own], seen["group"][own]
    names = groups if planned.unit == "group" else ids
    if planned.most is not None:
        names = parts_of_groups(ids, groups, planned.most, key=key)
    teachers = np.full(len(table["ids"]), -1)
    teachers[seen["row"][own]] = (
        np.unique(names, return_inverse=True)[1]
        if planned.num_teachers is None
        else assign_teachers(names.tolist(), num_teachers=planned.num_teachers, key=key)
    )
    return teachers


def _heaviest(table: Table, owners: IntArray) -> IntArray:
    """Return the owners of records ``[N]`` in the order in which they move a sum of moments.

    Records of -1 have none.
    """
    own = np.flatnonzero(owners >= 0)
    signs = 2.0 * table["Y"][own] - 1
    moments = (table["X"][own, :, None] * signs[:, None, :]).reshape(len(own), -1)
    sums = np.zeros((owners.max() + 1, moments.shape[1]))
    np.add.at(sums, owners[own], moments)
    return np.argsort(-np.linalg.norm(sums, axis=1), kind="stable")


class Fault(NamedTuple):
    """A printed total below the truth, or a public difference that is not paid for."""

    neighbor: Neighbor
    text: str
    excess: float


class Searched(NamedTuple):
    """How many releases were made and printed totals compared, and the faults, of one ledger."""

    releases: int
    compared: int
    faults: Sequence[Fault]


def search(generator: np.random.Generator, folder: Path, releases: Sequence[Planned]) -> Searched:
    """Search a ledger with random records, in an empty folder."""
    table, faults, compared = made_up(generator), list[Fault](), 0
    first = make(folder / "records", table, releases)
    for number, neighbor in enumerate(neighbors(table, releases, generator)):
        place = folder / f"neighbor{number}"
        changed = neighbor.changed(table)
        try:
            second = make(place, changed, releases, kept=first, absent=neighbor.absent)
            for where, epsilon, truth in totals(releases, neighbor, first, second):
                compared += 1
                if truth > epsilon * (1 + SLACK):
                    text = f"{where}: {epsilon:.3f} printed, {truth:.3f} true"
                    faults.append(Fault(neighbor, text, truth / epsilon))
        except DivergedError as error:
            faults.append(Fault(neighbor, str(error), math.inf))
    return Searched(sum(one is not None for one in first), compared, faults)


def totals(
    releases: Sequence[Planned],
    neighbor: Neighbor,
    first: Sequence[Made | None],
    second: Sequence[Made | None],
) -> Iterator[tuple[str, float, float]]:
    """Yield each printed total for a neighbor: where it is printed, epsilon, and the true one.

    Raises:
        DivergedError: if a release of the neighbor differs, though its draws have equal outcomes.
    """
    moved = Movement()
    for place, (one, other) in enumerate(zip(first, second, strict=True)):
        name = f"release {place + 1}"
        if one is None or other is None:
            if one is not other:
                raise DivergedError(f"{name} is refused for one of both data sets")
            continue
        if one.labels != other.labels:
            raise DivergedError(f"the labels of {name} differ")
        if _figures(one.statement) != _figures(other.statement):
            raise DivergedError(f"the totals of {name} are not the same on both data sets")
        moved += Movement.between(one.draws, other.draws)
        assert not moved.untested, "each choice has a law"
        if neighbor.whom == "group" and neighbor.regrouped is not releases[place].regrouped:
            continue  # no total is for one of the other groups
        truth = moved.epsilon(DELTA)
        each = not releases[place].has_partition
        own = neighbor.whom == releases[place].unit if each else place in neighbor.absent
        for where, epsilon in _printed_totals(one.statement, neighbor, own_teachers=own):
            yield f"{name}, {where}", epsilon, truth


def _printed_totals(
    statement: Mapping[str, Any], neighbor: Neighbor, *, own_teachers: bool
) -> Iterator[tuple[str, float]]:
    """Yield the epsilons that a statement prints for a neighbor, and where.

    ``own_teachers`` are teachers of the release that is stated, or its records or groups where each
    of them is a teacher.
    """
    whom, units = neighbor.whom, neighbor.units
    parts = [("guarantees", statement["max_teachers_per_unit"], statement["guarantees"])]
    parts += [("reach", row["teachers"], row) for row in statement["reach"]]
    for part, most, figures in parts:
        for relation in NeighboringRelation:
            unit = statement["guarantees"][relation.value].get("unit", statement["unit"])
            figure = figures[relation.value]
            epsilon = figure["epsilon"] if part == "guarantees" else figure
            if relation is NeighboringRelation.REPLACE_RECORD:
                covered = whom == unit or (whom == "record" and unit == "group")
            else:
                covered = neighbor.removed and own_teachers
            if covered and units <= most and epsilon is not None:
                where = relation.value.upper()
                yield where if part == "guarantees" else f"{where}, m = {most}", float(epsilon)


def _figures(statement: Mapping[str, Any]) -> Any:
    """Return the totals of a statement, and for whom they are."""
    guarantees = statement["guarantees"].values()
    return [(each.get("unit"), each["epsilon"]) for each in guarantees], statement["reach"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Search ledgers, and print the faults; end with status 1 if there are any."""
    parser = argparse.ArgumentParser(
        description="Search random ledgers for a total below the truth."
    )
    parser.add_argument("--ledgers", type=int, default=300, help="their number")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first one")
    parsed = parser.parse_args(arguments)
    refuted = made = compared = 0
    with stage_bar(parsed.ledgers, "search", unit="ledger") as bar:
        for seed in range(parsed.seed, parsed.seed + parsed.ledgers):
            generator = np.random.default_rng(seed)
            releases = sequence(generator)
            with TemporaryDirectory() as folder, redirect_stderr(StringIO()):
                found = search(generator, Path(folder), releases)
            made, compared = made + found.releases, compared + found.compared
            if found.faults:
                refuted += 1
                worst = max(found.faults, key=lambda fault: fault.excess)
                faults = f"ledger {seed}, {len(found.faults)} faults"
                print(f"{faults}; {worst.neighbor.text}: {worst.text}")
                for number, planned in enumerate(releases, 1):
                    print(f"    {number}. {planned.text}", flush=True)
            bar.update()
    print(
        f"{parsed.ledgers} ledgers, {made} releases, {compared} totals:"
        f" {refuted} ledgers print a total below the truth"
    )
    if refuted:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
