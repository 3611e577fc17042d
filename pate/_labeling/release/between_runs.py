"""What runs on the same private data share: one ledger, a released student, and whom it protects.

A run chooses its **ledger**: one for all runs on these data, where possible. The **student** that
teachers start from is compared with their data and their ledger. At the end the **units** that
releases are priced for: their word, the name of their groups, their teachers.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pate._core.accounting.charges import Charge
from pate._core.accounting.cost import NeighboringRelation
from pate._core.accounting.history import EACH, PrivacyUnit
from pate._core.accounting.ledger import Ledger, is_ledger_of, one_ledger, read_ledger
from pate._core.accounting.statement import AUDIT
from pate._core.files.reading import Json, digest, load_json
from pate._core.settings import decode, named_class, texts_in
from pate._core.validation import (
    Float32Array,
    FloatArray,
    expecting,
    require,
)
from pate._labeling.aggregators.base import Aggregator
from pate._labeling.data.feature_maps import save_map
from pate._labeling.data.records import Role
from pate._labeling.data.source import DataSource, expand_path
from pate._labeling.runs.carried import (
    ExportedStudent,
    LinearPredictor,
    load_student,
    student_digests,
)
from pate._labeling.runs.released import ReleasedLabels, require_student, sealing_key
from pate._labeling.runs.run import (
    EXPORTED,
    KEY_FILE,
    LABEL,
    MODEL,
    STUDENT,
    TEACHERS_FIT,
    VOTES_IMPORT,
    Run,
    StageState,
    describe_data,
    first_stage,
    labels_file,
    load_ledger,
    require_data_config,
)
from pate._labeling.teachers import FIRST, uses_groups


def choose_ledger(
    root: Path,
    requested: Path | None,
    beside: Path | None,
    *,
    what: str,
    began_with: Callable[[Json], bool],
    overwrite: bool = False,
) -> Path | None:
    """Return the absolute path of the ledger of the run at ``root``. None for the run's own.

    A run keeps the ledger that it began with. A new run takes the requested one, or else the file
    next to the data, unless no file can be created there. Writes nothing.

    Args:
        root: the run's folder.
        requested: the ledger that the user names, or None.
        beside: the ledger next to the records or votes. None if they have no place.
        what: a plural noun for them in errors.
        began_with: returns whether the run began with them, given the inputs that its first stage
            recorded.
        overwrite: whether the run's first stage is done again.

    Raises:
        ValueError: if the run began with another ledger than the requested one and is not
            overwritten; if it is overwritten with records that another ledger counts; if the ledger
            next to the data is read-only, or another one there may count them too.
    """
    begun = (root / "data.yaml").is_file()
    # another data.yaml, such as a recipe's, does not say which ledger counts the records
    of_a_run = (root / KEY_FILE).is_file() or (root / "public").is_dir()
    require(
        not begun or of_a_run,
        "a folder of a run, or a new one: choose another with `run`",
        with_a_data_yaml_of_yours=str(root),
    )
    recorded = load_ledger(root)
    run = Run(root, ledger=recorded)
    same = requested is None or expand_path(requested).resolve() == run.ledger_path.resolve()
    if begun and (same or not overwrite):
        require(
            same,
            f"`ledger` left out, or the ledger that {root} was begun with, {run.ledger_path}",
            ledger=str(requested),
        )
        state = run.state(first_stage(run))
        if overwrite and state is not None and _usable(beside) != recorded:
            # releases from other records belong in another ledger
            require(
                began_with(dict(state.inputs.digests)),
                f"the {what} that {root} was begun with, whose releases {run.ledger_path} counts."
                " Choose another run folder with `run`, or name the ledger of these by `ledger`",
            )
        return recorded
    return _usable(beside) if requested is None else expand_path(requested).absolute()


def ledger_setting(run: Run) -> str | None:
    """Return the place of the ledger among the settings of a run's first stage.

    The place affects no output, and the ledger may have moved since the stage began: as long as the
    run keeps its ledger, the place recorded then is returned.
    """
    begun = run.state(first_stage(run))
    if begun is not None and run.ledger == load_ledger(run.root):
        return begun.inputs.settings.get("ledger")
    return None if run.ledger is None else str(run.ledger)


def _usable(place: Path | None) -> Path | None:
    """Return the ledger at a place next to the data, or the one that may be made there."""
    if place is None:
        return None
    beside = one_ledger(place.absolute())
    # a ledger out of reach must not lead to a new budget
    require(
        not beside.exists() or (_may_write(beside) and _may_write(beside.parent)),
        "a writable ledger of the private data; `ledger` names another",
        path=str(beside),
    )
    return beside if beside.parent.is_dir() and _may_write(beside.parent) else None


def _may_write(path: Path) -> bool:
    # the superuser could write a file that is marked read-only, but must not
    return os.access(path, os.W_OK) and bool(
        path.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)
    )


def open_ledger(run: Run, max_teachers_per_unit: int = 1) -> Ledger:
    """Open the run's ledger for units that reach ``max_teachers_per_unit`` teachers.

    It is created if the run has not used it yet.

    Raises:
        ValueError: if the ledger existed and is missing, is a copy of one that is still in its
            place, or is unusable.
    """
    require_ledger(run)
    path = run.ledger_path
    if run.ledger is not None and run.data_config.is_file():
        # once the data have moved away, no new budget may begin in their old place
        require(
            path.parent.is_dir(),
            f"a folder for the ledger, whose place is `ledger:` in {run.data_config}",
            path=str(path),
        )
    return Ledger(path, home=path.resolve(), max_teachers_per_unit=max_teachers_per_unit)


def open_run(
    root: Path,
    data: DataSource | None = None,
    *,
    ledger: Path | None = None,
    overwrite: bool = False,
) -> Run:
    """Return the run at ``root`` with its ledger. Writes nothing.

    Args:
        root: the run's folder.
        data: the source of the records, which all stages of this run share. None for later stages,
            which read it from the folder.
        ledger: the ledger requested together with ``data``. None for the ledger of the run or of
            the data.
        overwrite: whether a stage with changed settings is done again.

    Raises:
        ValueError: if the ledger is missing or not the one that the run began with, or the run has
            imported votes in place of teachers.
    """
    run = Run(root, overwrite=overwrite, ledger=load_ledger(root))
    if data is not None:
        require(
            first_stage(run) is not VOTES_IMPORT,
            "a run folder of their own for teachers, without imported votes",
            run=str(run.root),
        )
        chosen = choose_ledger(
            root,
            ledger,
            data.ledger_path,
            what="private records",
            began_with=lambda begun: (
                begun.get(Role.PRIVATE.value) == data.fingerprint(Role.PRIVATE)
            ),
            overwrite=overwrite,
        )
        run = replace(run, ledger=chosen, data=data)
    elif run.state(first_stage(run)) is not None:
        require_data_config(run)  # it names the ledger
    require_ledger(run)
    return run


def require_ledger(run: Run) -> None:
    """Raise ``ValueError`` if the ledger that a run began with is missing, and so is its cost."""
    if run.ledger_path.exists():
        return
    spent = labels_file(run).exists() or run.state(LABEL) is not None
    first = first_stage(run)
    # a run that began with the ledger of its data does not switch to one of its own
    shared = run.inputs_of(first).settings.get("ledger") is not None
    finished = run.is_finished(first) and load_ledger(run.root) == run.ledger
    expected = (spent or shared) if run.ledger is None else finished
    if expected:
        require_present_ledger(run)


def require_present_ledger(run: Run) -> None:
    """Raise ``ValueError`` if the ledger of a run is missing."""
    require(
        run.ledger_path.exists(),
        f"the ledger of {run.root} where it was; if it was moved, name its place by `ledger:` in"
        f" {run.data_config}",
        missing=str(run.ledger_path),
    )


def ledger_scope(run: Run) -> str:
    """Return which releases the ledger of a run counts, in the words of statements.

    A named ledger counts all releases of the private data only if it lies in their place and no
    other ledger there may count them: runs that did not name it may have used the other one. With
    canaries among the records, the ledger counts the releases of an audit, wherever it lies.
    """
    first = first_stage(run)
    data = run.inputs_of(first).settings.get("data")
    if data is not None and getattr(named_class(data["class_path"]), "is_audit", False):
        return AUDIT
    state = run.state(first)
    return scope_beside(run.ledger, None if state is None else state.beside)


def scope_beside(ledger: Path | None, beside: Path | str | None) -> str:
    """Return the scope of a named ledger, if any, for data with the default ledger ``beside``."""
    if ledger is None:
        return "run"
    return "private data" if beside and is_ledger_of(ledger, Path(beside)) else "named"


_FOLDER = STUDENT.outputs[0] / MODEL


def student_run(run: Run, start_from: str) -> Run:
    """Return the run that released the student which the teachers of a run start from.

    Args:
        run: the run of the teachers.
        start_from: `FIRST`, a run's folder, or the folder of a student within its run.
    """
    place = run.root / FIRST if start_from == FIRST else Path(start_from)
    inside = place.match(str(_FOLDER))
    return Run(place.parents[len(_FOLDER.parts) - 1] if inside else place)


def start_digest(run: Run, start_from: str | None) -> dict[str, str]:
    """Return the digest of the student that teachers start from, by name; none without one."""
    if start_from is None:
        return {}
    # without its statement, which is that of all releases by now
    files = sorted((student_run(run, start_from).root / _FOLDER).glob("model.*"))
    return {"student": digest(*files)}


@dataclass(frozen=True, kw_only=True)
class Start:
    """A student that was released from the private records that teachers are about to see.

    Attributes:
        student: the student.
    """

    student: ExportedStudent

    @classmethod
    def of(cls, run: Run, plan: Mapping[str, Any], data: DataSource) -> Start:
        """Return the student that the teachers of a run start from, as their plan says.

        Its folder is read as data, not as code: of other packages than pate and torchvision only
        what the plan and the data name is imported, and everything that the run's own first release
        names, because that is of the same plan. Its weights are those that its run recorded when it
        had learned from labels that bear the seal of that run, and the digest of these labels is in
        the ledger.

        Raises:
            ValueError: in one line, if there is no student, its weights or labels were replaced,
                it has other labels or takes other features than the data, or its release is not in
                the ledger of the run.
        """
        released = student_run(run, plan["start_from"])
        require_student(released)
        folder, record = released.root / _FOLDER, released.root / EXPORTED
        own = released.root.resolve().is_relative_to(run.root.resolve())
        named = () if own else {*texts_in(plan), *texts_in(describe_data(data))}
        student = load_student(folder, trust=own or named)
        require(
            student.label_names == data.label_names,
            f"a student of the data's labels in {folder}",
            label_names=student.label_names,
        )
        require(
            record.is_file() and load_json(record) == student_digests(folder),
            f"the student that `pate student fit` exported to {folder}: run it again, got another",
        )
        shape = tuple(data.load(Role.PUBLIC).features.shape[1:])
        require(
            student.input.shape == shape,
            f"a student of samples of shape {list(shape)} in {folder}",
            shape=list(student.input.shape),
        )
        with expecting(
            f"a student whose release is in {run.ledger_path}, the ledger of these records",
            ValueError,
            got=f"that of {folder}",
        ):
            require(run.ledger_path.is_file(), "a ledger that holds it", ledger=None)
            student.statement.verify(ledger=run.ledger_path, released=labels_file(released))
        return cls(student=student)

    def answers(self, samples: Float32Array) -> FloatArray:
        """Return the probabilities ``[n, C]`` of raw samples ``[n, ...]``."""
        return np.asarray(self.student.predict_proba(samples), dtype=np.float64)

    def mapped_answers(self, data: DataSource) -> Callable[[Float32Array], FloatArray] | None:
        """Return `answers` of mapped samples, or None unless the student has the map of the data.

        That map has been fitted.
        """
        student, own = self.student.predictor, data.feature_map
        if not isinstance(student, LinearPredictor) or student.features is None or own is None:
            return None
        theirs, ours = (save_map(one, self.student.input.shape) for one in (student.features, own))
        same = theirs.settings == ours.settings and all(
            np.array_equal(values, ours.state[name]) for name, values in theirs.state.items()
        )
        return (lambda seen: student.decided(seen)[0].astype(np.float64)) if same else None


def require_start_for(run: Run, start_from: str, unit: PrivacyUnit) -> None:
    """Raise ``ValueError`` if a student's release was priced for less than a run's ``unit``."""
    labels = ReleasedLabels.read(labels_file(student_run(run, start_from)))
    entry = read_ledger(run.ledger_path).entries[labels.release - 1]
    before, relation = entry.privacy_unit, NeighboringRelation.REPLACE_RECORD
    require(
        before.held_by(unit, relation) is not None,
        f"a student whose release was priced for {unit.describe(relation)}, by the same groups",
        start_from=f"release {entry.release}, {before.why_alone(unit, relation)}",
    )


def released_before(run: Run) -> list[Charge]:
    """Return the charges that a run's target covers before its labels, if any.

    They are those of a first release of its own.
    """
    if run.inputs_of(TEACHERS_FIT).settings.get("start_from") != FIRST:
        return []
    released = ReleasedLabels.load(run.root / FIRST)
    aggregator: Aggregator = decode(Aggregator, released.aggregator)
    return [(aggregator.events(released.shape), len(released.ids))]


def unit_of(run: Run) -> PrivacyUnit:
    """Return for whom the releases of a run are priced, whose first stage has begun.

    Raises ``ValueError`` if its key is missing.
    """
    return unit_by(run.begun(first_stage(run)), sealing_key(run))


def unit_by(first: StageState, key: bytes) -> PrivacyUnit:
    """Return for whom the releases of a run are priced, by its first stage and its key."""
    settings = first.inputs.settings
    if "votes" in first.inputs.digests:  # imported
        return PrivacyUnit(
            unit=str(settings.get("unit", "record")),
            partition=_keyed(key, json.dumps(["imported votes", first.begun])),
        )
    return _unit(settings, first.grouping, first.begun, key)


def planned_unit(run: Run, plan: Any, data: DataSource) -> PrivacyUnit:
    """Return for whom a run will release, as far as it is known before its first stage.

    Args:
        run: the run.
        plan: the plan of its teachers.
        data: the source of its records.
    """
    if run.state(TEACHERS_FIT) is not None and not run.overwrite:
        return unit_of(run)
    grouping = data.grouping if uses_groups(plan) else None
    # no run has this key
    return _unit(vars(plan), grouping, 0, secrets.token_bytes(16))


def _unit(settings: Any, grouping: str | None, begun: int, key: bytes) -> PrivacyUnit:
    names = ("num_teachers", "unit", "max_teachers_per_group")
    number, unit, most = (settings.get(name) for name in names)
    each = number is None and most is None
    return PrivacyUnit(
        unit=unit,
        grouping=grouping,
        partition=EACH if each else _keyed(key, json.dumps([number, unit, most, begun])),
        max_teachers_per_group=most if grouping else None,
    )


def _keyed(key: bytes, text: str) -> str:
    return hashlib.blake2b(text.encode(), key=key, digest_size=8, person=b"partition").hexdigest()
