"""The audit of a ledger for one record, group or teacher: all releases again without it. PRIVATE.

Releases are made twice in a scratch folder, on the records and on the neighbor, and each draw has
the same outcome on both (`pate.lab.audit.forced`). The table of draws compares their moves with the
event that the ledger charged. The table of totals compares all moves together with each epsilon
that the statement prints for such a neighbor. The table of outputs compares public files and
printed lines, which noise does not pay for if they differ. The figures tell how much one person
moves a release, so that they are for the owner of the data alone.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml

from pate._core.accounting.charges import account, for_group_size
from pate._core.accounting.cost import NeighboringRelation
from pate._core.accounting.history import LedgerEntry, PrivacyUnit
from pate._core.accounting.ledger import Ledger, ledger_in, read_ledger
from pate._core.accounting.statement import Statement, sha256
from pate._core.files.reading import LARGE, digest, load_json, load_yaml
from pate._core.package import find
from pate._core.settings import decode_fields
from pate._core.validation import require, stage_bar
from pate._labeling.data.records import Records, Role, assign_teachers
from pate._labeling.data.source import DataSource
from pate._labeling.linear import is_linear
from pate._labeling.plan import RunPlan
from pate._labeling.release.between_runs import student_run, unit_of
from pate._labeling.release.label_settings import FORESEEN, LabelSettings
from pate._labeling.runs.released import ReleasedLabels, sealing_key
from pate._labeling.runs.run import (
    KEY_FILE,
    LABEL,
    STUDENT,
    TEACHERS_FIT,
    TEACHERS_VOTE,
    VOTES_IMPORT,
    Run,
    first_stage,
    labels_file,
    load_data,
    load_ledger,
)
from pate._labeling.runs.vote_store import finished_votes
from pate._labeling.stages.student import fit_student, student_settings
from pate._labeling.stages.teachers import load_plan
from pate._labeling.teachers import FIRST, ClosedFormPlan, assigned_units
from pate._labeling.votes.kinds import Ballots
from pate.lab.audit.forced import DivergedError, Draw, ForcedGenerator, Movement, release_labels

Whom = Literal["record", "group", "teacher"]
WARNING = "PRIVATE: an audit for one {whom}. It tells how much it moves what was released."
_ROUNDING = 1e-6
_STEPS = 10  # of networks, at most
_REPLACE, _REMOVE = NeighboringRelation.REPLACE_RECORD, NeighboringRelation.ADD_REMOVE_TEACHER


Verdict = Literal["passed", "refuted", "not tested"]

# the first that any test gives is that of the table
VERDICTS: Mapping[Verdict, str] = {
    "refuted": "REFUTED: this program does not do what the statement says.",
    "not tested": "INCONCLUSIVE: nothing is refuted, and some parts have no test.",
    "passed": "Nothing is refuted. This is no proof of a theorem, but a test of this program.",
}
STATUS: Mapping[Verdict, int] = {"refuted": 1, "not tested": 3, "passed": 0}
"""The exit status of a command by the verdict of its tables."""


@dataclass(frozen=True)
class Trial:
    """A row of a table.

    Attributes:
        subject: the part of the program that is tested.
        tried: the attempt, with its size.
        power: the faults that it would have found at this size.
        result: the figures of this attempt.
        verdict: ``refuted`` if a program without faults would rarely give this result.
    """

    subject: str
    tried: str
    power: str
    result: str
    verdict: Verdict


def untested(subject: str, reason: str) -> Trial:
    """Return the row of a subject that has no test."""
    return Trial(subject, "no test", "nothing", reason, "not tested")


def _verdict_of(tests: Iterable[Trial]) -> Verdict:
    """Return the verdict of a table: refuted if a test refutes, else untested if one is missing."""
    verdicts = {test.verdict for test in tests}
    return next(verdict for verdict in VERDICTS if verdict in verdicts)


@contextmanager
def scratch(run: Run, name: str) -> Iterator[Path]:
    """Yield an empty folder next to a run, and delete it; also one that a kill has left."""
    folder = run.root.parent / f".{run.root.name}-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _content_of(path: Path) -> Any:
    """Return the content of a file, of JSON or YAML without entries that are its own."""
    if path.suffix not in (".json", ".yaml"):
        return digest(path)

    def shared(content: Any) -> Any:
        if isinstance(content, dict):
            return {name: shared(part) for name, part in content.items() if name not in _OWN}
        return [shared(part) for part in content] if isinstance(content, list) else content

    return shared(load_json(path, LARGE) if path.suffix == ".json" else load_yaml(path))


class Without(DataSource):
    """The records of another source without some private ones.

    Args:
        source: the source.
        ids: the ids of these records.
    """

    def __init__(self, source: DataSource, ids: list[str]) -> None:
        super().__init__(
            features=source.feature_map,
            permanent_ids=source.permanent_ids,
            unknown_labels=source.unknown_labels,
            copies=source.copies,
        )
        self._source, self._ids = source, ids
        self.grouping, self.shifted = source.grouping, source.shifted

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the labels of the source."""
        return self._source.label_names

    def load(self, role: Role) -> Records:
        """Return the raw records of the source, without these if they are private."""
        records = self._source.load(role)
        if role is not Role.PRIVATE:
            return records
        return records.select(np.flatnonzero(~np.isin(records.ids, self._ids)))


@dataclass(frozen=True, kw_only=True)
class Neighbor:
    """The records without some of them.

    Attributes:
        whom: what is left out.
        name: the id of the record, the name of the group, or the number of the teacher.
        ids: the ids of the records that are left out.
        partition: the partition that the teacher belongs to. None for a record or a group.
    """

    whom: Whom
    name: str
    ids: Sequence[str] = field(repr=False)
    partition: str | None = None

    def absent(self, run: Run) -> tuple[int, ...]:
        """Return the teachers of a run that take no part."""
        own = self.partition is not None and self.partition == unit_of(run).partition
        return (int(self.name),) if own else ()


def neighbor_of(run: Run, whom: Whom, name: str) -> Neighbor:
    """Return the neighbor of the records of a run without a record, a group or a teacher.

    Raises ``ValueError`` if there is none of that name.
    """
    imported = first_stage(run) is VOTES_IMPORT
    require(
        whom == "teacher" or not imported,
        "a teacher of imported votes, as no record of theirs is known",
        whom=whom,
    )
    number = 0
    if whom == "teacher":
        most = finished_votes(run).manifest().num_teachers
        require(
            name.isdecimal() and int(name) < most,
            f"the number of a teacher, 0 .. {most - 1}",
            teacher=name,
        )
        number = int(name)
    if imported:
        ballots = finished_votes(run).manifest().kind is Ballots
        require(ballots, "votes with the ballots of teachers")
        return Neighbor(whom=whom, name=name, ids=(), partition=unit_of(run).partition)
    private, plan = load_data(run).load(Role.PRIVATE), load_plan(run)
    if whom != "teacher":
        rows = np.flatnonzero(private.units(whom) == name)
        require(len(rows), f"a private {whom} of the run", name=name)
        return Neighbor(whom=whom, name=name, ids=private.ids[rows].tolist())
    teachers = plan.num_teachers
    require(teachers is not None, f"a {plan.unit}, as each one is a teacher", teacher=name)
    key = sealing_key(run)
    units = map(str, assigned_units(private, plan, key))
    assigned = assign_teachers(units, num_teachers=teachers, key=key)
    ids = private.ids[assigned == number].tolist()
    return Neighbor(whom=whom, name=name, ids=ids, partition=unit_of(run).partition)


@dataclass(frozen=True)
class _Known:
    """A release of the ledger that can be made again: and its run."""

    entry: LedgerEntry
    run: Run


def _runs_beside(run: Run) -> Iterator[Run]:
    """Yield the runs in the folder of a run, itself and first releases too, with its ledger."""
    home = run.root.resolve().parent
    for file in sorted([*home.glob("*/data.yaml"), *home.glob(f"*/{FIRST}/data.yaml")]):
        with suppress(ValueError):
            found = Run(file.parent, ledger=load_ledger(file.parent))
            if found.ledger_path.resolve() == run.ledger_path.resolve():
                yield found


def _known(entry: LedgerEntry, runs: Sequence[Run], neighbor: Neighbor) -> _Known | str:
    """Return a release with the run that made it, or the reason why it cannot be made again."""
    published = entry.published or {}
    kind, digest = published.get("kind"), published.get("sha256")
    if kind is None:
        return "it was broken off"
    for run in runs:
        with suppress(ValueError):
            same = (
                kind == "labels"
                and run.is_finished(LABEL)
                and ReleasedLabels.load(run.root).release == entry.release
                and sha256(labels_file(run)) == digest
            )
            if same and not neighbor.absent(run) and first_stage(run) is VOTES_IMPORT:
                return "its votes were imported, and their records are not known here"
            if same and not neighbor.absent(run) and not neighbor.ids:
                return "the records of an imported teacher are not known here"
            if same:
                return _Known(entry, run)
    return f"no folder beside the run's holds what {entry.run} released"


@dataclass(kw_only=True)
class _Side:
    """One of two data sets, whose releases lie in a folder.

    Attributes:
        folder: the folder, the same for both while they are made.
        home: the folder of the runs that are made again.
        neighbor: the neighbor.
        is_left_out: whether these are the records of the neighbor.
        key: the key of all draws.
        kept: the draws of the first data set by release. None to make them.
        starts: the runs whose students others start from.
        draws: the draws of each release.
        failed: the releases that could not be made, and the reasons.
        printed: all that was printed.
    """

    folder: Path
    home: Path
    neighbor: Neighbor
    is_left_out: bool
    key: int
    kept: Mapping[int, Sequence[Draw]] | None = None
    starts: Sequence[Path] = ()
    draws: dict[int, Sequence[Draw]] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    printed: str = ""

    @property
    def ledger(self) -> Path:
        return ledger_in(self.folder)

    def make(self, known: _Known) -> None:
        """Make a release."""
        number = known.entry.release
        kept = None if self.kept is None else self.kept[number]
        generator, seen = ForcedGenerator(self.key + number, kept), StringIO()
        self.draws[number] = generator.draws
        with redirect_stdout(seen), redirect_stderr(seen), warnings.catch_warnings():
            warnings.simplefilter("always")
            try:
                self._labels(known, generator)
            except ValueError as error:
                self.failed[number] = str(error)
        if generator.drew_otherwise:
            self.failed[number] = "it draws numbers in a way of its own"
        self.printed += seen.getvalue()

    def _place(self, path: Path) -> Path:
        return self.folder / path.resolve().relative_to(self.home)

    def _data(self, run: Run) -> DataSource:
        data, ids = load_data(run), list(self.neighbor.ids) if self.is_left_out else []
        return Without(data, ids)

    def _labels(self, known: _Known, generator: ForcedGenerator) -> None:
        source, root = known.run, self._place(known.run.root)
        absent = self.neighbor.absent(source) if self.is_left_out else ()
        settings = decode_fields(LabelSettings, {**FORESEEN, **source.inputs_of(LABEL).settings})
        if first_stage(source) is VOTES_IMPORT:
            run = copied_to(root, source, self.ledger)
        else:
            plan, votes = load_plan(source), source.inputs_of(TEACHERS_VOTE).settings
            start = getattr(plan, "start_from", None)
            if start not in (None, FIRST):
                plan = replace(plan, start_from=str(self._place(student_run(source, start).root)))
            run = with_key(root, source, self.ledger)
            if not isinstance(plan, ClosedFormPlan):
                # more steps show no other teacher
                plan = replace(plan, num_steps=min(plan.num_steps, _STEPS))
            others = votes.get("absent") or []
            if not isinstance(plan, ClosedFormPlan):
                others = sorted({*others, *absent})
            again = RunPlan(
                root,
                self._data(source),
                teachers=plan,
                votes=votes.get("votes"),
                absent=others or None,
                ledger=self.ledger,
            )
            again.fit_teachers()
            again.vote()
        unlimited = replace(settings, max_epsilon=None, max_delta0=None, budget_filter=None)
        release_labels(run, unlimited, generator, absent=absent)
        if not source.is_finished(STUDENT):
            return
        learned = student_settings(source)
        with suppress(ValueError):  # these outcomes may have no answers to learn from
            if is_linear(learned["model"]["network"]):
                fit_student(run, learned)
            elif source.root.resolve() in self.starts:  # other networks take long
                find("run_student")("fit", run, learned)


def with_key(root: Path, run: Run, ledger: Path | None = None) -> Run:
    """Return a new run with the key of another, and a ledger."""
    copy = Run(root, ledger=ledger)
    copy.make_private()
    shutil.copy2(run.root / KEY_FILE, root / KEY_FILE)
    return copy


def copied_to(root: Path, run: Run, ledger: Path) -> Run:
    """Return a copy of a run without its labels and student in a new folder, with a ledger."""
    shutil.copytree(
        run.private,
        root / "private",
        ignore=shutil.ignore_patterns("label", "label.*", "student*", "*.ckpt"),
        copy_function=_link,
    )
    (root / "public").mkdir()
    content = load_yaml(run.data_config)
    (root / "data.yaml").write_text(yaml.safe_dump(content | {"ledger": str(ledger)}))
    return Run(root, ledger=ledger)


def _link(source: str, target: str) -> None:
    """Link large arrays, which are replaced and never changed in place; copy other files."""
    (os.link if source.endswith((".npy", ".pt")) else shutil.copy2)(source, target)


def _start_of(run: Run) -> Path | None:
    """Return the run whose student the teachers of a run start from. None without one."""
    start = run.inputs_of(TEACHERS_FIT).settings.get("start_from")
    return None if start is None else student_run(run, start).root.resolve()


@dataclass(frozen=True, kw_only=True)
class NeighborAudit:
    """The audit of a ledger for a neighbor: the tables of draws, totals and outputs. PRIVATE.

    Attributes:
        neighbor: the neighbor.
        tables: the tests by the name of their table.
    """

    neighbor: Neighbor
    tables: Mapping[str, Sequence[Trial]]

    @property
    def verdict(self) -> Verdict:
        """Whether a test refutes or, if none does, one is missing."""
        return _verdict_of(test for tests in self.tables.values() for test in tests)

    @property
    def text(self) -> str:
        """All figures in words, three lines for a test."""
        parts = [WARNING.format(whom=self.neighbor.whom)]
        for name, tests in self.tables.items():
            lines = [f"{name.capitalize()}: {_verdict_of(tests)}"]
            for test in tests:
                lines += [
                    f"  {test.verdict:<10}  {test.subject}: {test.tried}",
                    f"  {'':<10}  would have found: {test.power}",
                    f"  {'':<10}  found: {test.result}",
                ]
            parts.append("\n".join(lines))
        return "\n\n".join([*parts, VERDICTS[self.verdict]]) + "\n"


def audit_neighbor(root: Path, whom: Whom, name: str) -> NeighborAudit:
    """Make the releases of a run's ledger again without a record, a group or a teacher.

    Nothing is written to the run, its ledger, or other runs.

    Args:
        root: the folder of a run that has labels.
        whom: what is left out.
        name: the id of the record, the name of the group, or the number of the teacher from 0.

    Raises:
        ValueError: if the run has no labels, or nothing of this name.
    """
    run = Run(root, ledger=load_ledger(root))
    run.require_finished(LABEL)
    neighbor, book = neighbor_of(run, whom, name), read_ledger(run.ledger_path)
    statement = Statement.read(run.root / LABEL.outputs[1]).today(book).content
    runs = [*_runs_beside(run)]
    found = {entry.release: _known(entry, runs, neighbor) for entry in book.entries}
    key, sides, outputs = secrets.randbits(120), list[_Side](), list[dict[str, Any]]()
    diverged = None
    steps = 2 * sum(isinstance(known, _Known) for known in found.values())
    with (
        scratch(run, "neighbor") as folder,
        stage_bar(steps, "neighbor", unit="release") as bar,
    ):
        for is_left_out in (False, True):
            side = _Side(
                folder=folder / "side",  # both in one place, so that no path differs
                home=run.root.resolve().parent,
                neighbor=neighbor,
                is_left_out=is_left_out,
                key=key,
                kept=sides[0].draws if sides else None,
                starts=[
                    start
                    for known in found.values()
                    if isinstance(known, _Known) and (start := _start_of(known.run)) is not None
                ],
            )
            side.folder.mkdir()
            Ledger(side.ledger, home=side.ledger.resolve())
            for number, known in found.items():
                if isinstance(known, str):
                    continue
                try:
                    side.make(known)
                except DivergedError as error:
                    diverged = f"release {number}: {error}"
                    break
                bar.update()
            outputs.append(_outputs(side))
            side.folder.rename(folder / f"side-{len(sides)}")
            sides.append(side)
    if diverged is None and sides[0].failed != sides[1].failed:
        diverged = "a release fails on one of both"
    if diverged is not None:
        other = _trial("draws", "their number, form and noise", "any that differ", diverged, False)
        return NeighborAudit(neighbor=neighbor, tables={"draws": [other]})
    found |= sides[0].failed
    moved = {
        number: Movement.between(draws, sides[1].draws[number])
        for number, draws in sides[0].draws.items()
        if number not in sides[0].failed
    }
    return NeighborAudit(
        neighbor=neighbor,
        tables={
            "draws": [
                _draws_test(entry, found[entry.release], neighbor, moved) for entry in book.entries
            ],
            "totals": [*_totals_tests(statement, run, neighbor, moved, len(book.entries))],
            "outputs": [*_outputs_tests(*outputs)],
        },
    )


def _trial(subject: str, tried: str, power: str, result: str, passed: bool) -> Trial:
    return Trial(subject, tried, power, result, "passed" if passed else "refuted")


def _priced(
    entry: LedgerEntry, run: Run, neighbor: Neighbor
) -> tuple[NeighboringRelation, int] | None:
    """Return the relation that prices a release for a neighbor, and for how many units.

    None if it was not.
    """
    if neighbor.whom == "teacher":
        return (_REMOVE, 1) if neighbor.absent(run) else None
    own = entry.privacy_unit
    units = own.held_by(PrivacyUnit(unit=neighbor.whom, grouping=own.grouping), _REPLACE)
    return None if units is None else (_REPLACE, units)


def _draws_test(
    entry: LedgerEntry,
    known: _Known | str,
    neighbor: Neighbor,
    moves: Mapping[int, Movement],
) -> Trial:
    subject = f"release {entry.release}, {entry.description} of {entry.run}"
    if isinstance(known, str):
        return untested(subject, f"it cannot be made again: {known}")
    moved, priced = moves[entry.release], _priced(entry, known.run, neighbor)
    if moved.untested:
        return untested(subject, "; ".join(moved.untested))
    delta = float((entry.published or {})["delta"])
    squares = f"squared moves of {moved.mu_squared:.6g}, epsilon {moved.epsilon(delta):.4g}"
    tried = "its draws, each with the same outcome"
    if priced is None:
        unit = (entry.published or {}).get("unit")
        power = f"nothing: it was priced for one {unit}, and not for this {neighbor.whom}"
        return _trial(subject, tried, power, squares, True)
    relation, units = priced
    charges = for_group_size([(entry.events, entry.count)], units)
    paid = account(charges, relation)
    most, epsilon = paid.cost.mu_squared, paid.get_epsilon(delta=delta)
    within = moved.mu_squared <= most * (1 + _ROUNDING) or bool(moved.laws)
    return _trial(
        subject,
        tried,
        f"any move beyond its price under {relation.value.upper()}",
        f"{squares}, where {most:.6g} and {epsilon:.4g} are paid for",
        within and moved.epsilon(delta) <= epsilon * (1 + _ROUNDING),
    )


def _totals_tests(
    statement: Mapping[str, Any],
    run: Run,
    neighbor: Neighbor,
    moves: Mapping[int, Movement],
    releases: int,
) -> Iterator[Trial]:
    truth = sum(moves.values(), Movement()).epsilon(float(statement["delta"]))
    whole = f"all draws of {len(moves)} of {releases} releases"
    settings = run.inputs_of(first_stage(run)).settings
    each = settings.get("num_teachers") is None and settings.get("unit") == neighbor.whom
    own = bool(neighbor.absent(run)) or each
    printed = {}
    for name, figures in statement["guarantees"].items():
        unit = figures.get("unit", statement["unit"])
        altered = neighbor.whom == unit or (neighbor.whom == "record" and unit == "group")
        if (own if name == _REMOVE else altered) and figures["epsilon"] is not None:
            printed[name.upper()] = float(figures["epsilon"])
    if not printed:
        power = f"nothing: no total is printed for one {neighbor.whom}"
        yield _trial("all releases", whole, power, f"epsilon = {truth:.4g}", True)
    for where, epsilon in printed.items():
        yield _trial(
            f"all releases under {where}",
            whole,
            "any epsilon above the one that the statement prints",
            f"epsilon = {truth:.4g}, where {epsilon:.4g} is printed",
            truth <= epsilon * (1 + _ROUNDING),
        )


# of a statement and its ledger: they differ between any two runs
_OWN = ("at", "digest", "token")
_TIMES = re.compile(r"\d+:\d\d")


def _outputs(side: _Side) -> dict[str, Any]:
    """Return the public files of a side by name, and the lines that were printed."""
    files = {
        path.relative_to(side.folder).as_posix(): _content_of(path)
        for path in side.folder.rglob("public/**/*")
        if path.is_file()
    }
    lines = side.printed.splitlines()
    return files | {"": [line for line in lines if not _TIMES.search(line)]}


def _outputs_tests(first: dict[str, Any], second: dict[str, Any]) -> Iterator[Trial]:
    lines, others = first.pop(""), second.pop("")
    differ = sorted({*first} ^ {*second} | {n for n in first if first[n] != second.get(n)})
    yield _trial(
        "public files",
        f"{len(first)} files of both, without times and names of the ledger's rows",
        "any byte that differs, although all draws have the same outcome",
        f"others differ: {', '.join(differ[:3])}" if differ else "no byte differs",
        not differ,
    )
    unlike = [line for line in [*lines, *others] if (line in lines) != (line in others)]
    yield _trial(
        "printed lines",
        f"{len(lines)} lines of both, without times and lines marked PRIVATE",
        "any line that differs",
        f"others differ: {unlike[0][:80]}" if unlike else "no line differs",
        lines == others,
    )
