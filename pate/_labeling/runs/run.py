"""A run on disk: its stages with their files and progress, its key, and its ``data.yaml``.

The key of its partition is PRIVATE. ``data.yaml``, which its first stage writes, names the source
of its records and its ledger.
"""

from __future__ import annotations

import json
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import yaml
from jsonargparse import ArgumentError

from pate._core.accounting.ledger import ledger_in, read_ledger
from pate._core.files.reading import (
    Json,
    digest,
    load_json,
    load_yaml,
    read_text,
)
from pate._core.files.writing import make_once, write_json, write_text
from pate._core.settings import SettingsParser, encode
from pate._core.validation import expecting, owner_reads, require, require_given, require_known
from pate._labeling.data.records import FeatureMap, Role
from pate._labeling.data.source import DataSource


@dataclass(frozen=True)
class Stage:
    """The files of a stage. All paths are relative to the run's folder.

    Attributes:
        name: the stage's name on the command line.
        state: the file that records the progress of the stage.
        config: the resolved configuration, a file for ``--config``.
        outputs: files and folders that the stage writes, deleted when it is overwritten.
        paid: whether the first output costs privacy, and is made again only on request.
        self_describing: whether each output records its inputs, so that it can be trusted without
            the state.
    """

    name: str
    state: Path
    config: Path
    outputs: tuple[Path, ...]
    paid: bool = False
    self_describing: bool = False


def _stage(name: str, place: str, *outputs: str, **facts: bool) -> Stage:
    file = name.replace(" ", "_")
    # PRIVATE even for public stages: the state holds hashes of private inputs
    state = Path("private") / f"{file}.json"
    made = tuple(Path(place) / path for path in outputs)
    return Stage(name, state, Path(place) / f"{file}.yaml", made, **facts)


TEACHERS_FIT = _stage("teachers fit", "private", "teachers", self_describing=True)
TEACHERS_VOTE = _stage("teachers vote", "private", "votes", self_describing=True)
VOTES_IMPORT = Stage(
    "label --votes",
    Path("private/votes_import.json"),
    Path("private/votes_import.yaml"),
    (Path("private/votes"),),
)
"""The import of votes that were cast elsewhere, in place of both stages of teachers."""
LABEL = _stage("label", "public", "labels.npz", "privacy.json", "privacy.txt", paid=True)
STUDENT = _stage("student fit", "public", "student")

_INPUTS = {
    "private": "private records",
    "public": "public records",
    "data": "public records",
    "partition": "assignment of records to teachers",
    "code": "code of pate",
    "labels": "released labels",
    "queries": "chosen samples",
    "student": "released student",
}
"""The names of the inputs of stages in errors."""

FORMAT = 4
"""The version of a run's files, raised when they change: a run of another version is refused."""

METRICS = "metrics.json"
"""Name of the file with test-set metrics, in the folder of the student."""

REPORT = Path("public/report.html")
"""The publishable page on a run, relative to its folder."""
SIGNED = (Path("public/privacy.intoto.json"), Path("public/privacy.intoto.json.sig"))
"""The digests of what a run publishes, and the owner's signature, relative to its folder."""


MODEL = "model"
"""Name of the folder, in the student's folder, that can leave the run."""

EXPORTED = Path("private/student_model.json")
"""The digests of the student in `MODEL`, relative to the run's folder."""


@dataclass(frozen=True)
class StageInputs:
    """Everything that determines the outputs of a stage, which any change puts out of date.

    Attributes:
        settings: the settings of the stage as plain data, encoded by `pate._core.settings`.
        digests: digests of the files and records that the stage reads, by name.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)

    def differences(self, now: StageInputs) -> list[str]:
        """Return the differences between these inputs and ``now``, in words."""
        return _differences(self.settings, now.settings) + other_inputs(self.digests, now.digests)

    @property
    def digest(self) -> str:
        """One digest of all inputs."""
        return digest(json.dumps([self.settings, self.digests], sort_keys=True))


@dataclass(frozen=True)
class StageState:
    """The progress of a stage: the content of its file in the run's private folder.

    Attributes:
        inputs: the inputs that it began with.
        finished: whether it has ended.
        files: the bytes and the digest of each file that it wrote, by its name in the run's folder.
        release: the number of the release that it wrote. None for a stage that releases nothing.
        beside: for a run's first stage: the place of a ledger next to the private data.
        grouping: for teachers: the name of the groups of their records, if these matter.
        begun: for a run's first stage: the number of releases in its ledger when it began. It tells
            teachers from others that an earlier release of the run had.
        untested: for the student: whether the data have no test records.
    """

    inputs: StageInputs
    finished: bool = False
    files: Mapping[str, Json] = field(default_factory=dict)
    release: int | None = None
    beside: str | None = None
    grouping: str | None = None
    begun: int = 0
    untested: bool = False

    @classmethod
    def from_dict(cls, state: Json) -> Self:
        """Return the state that `to_dict` encoded. Raises ``ValueError`` on other content."""
        for name, kind in {"config": dict, "inputs": dict, "finished": bool, "files": dict}.items():
            value = state.get(name, {} if name == "files" else None)
            require(isinstance(value, kind), name)  # digests are private
        files = state.get("files", {}).values()
        require(all(isinstance(each, dict) and each.keys() >= _OF_FILE for each in files), "files")
        more = {name: state[name] for name in _MORE if name in state}
        return cls(StageInputs(state["config"], state["inputs"]), state["finished"], **more)

    def to_dict(self) -> Json:
        """Return plain JSON types."""
        begun = {"config": dict(self.inputs.settings), "inputs": dict(self.inputs.digests)}
        more = {name: getattr(self, name) for name in _MORE if getattr(self, name)}
        return {"format": FORMAT, "finished": self.finished, **begun, **more}


_MORE = ("files", "release", "beside", "grouping", "begun", "untested")
"""The facts about a state that its file names where there are any."""
_OF_FILE = {"bytes", "digest"}
"""What is kept of each file."""
_OF_TEACHERS = {
    "num_teachers": int | None,
    "unit": str,
    "start_from": str | None,
    "max_teachers_per_group": int | None,
}
"""The settings of teachers that later stages read, with their types."""


def other_inputs(old: Mapping[str, str | None], new: Mapping[str, str]) -> list[str]:
    """Name the inputs that differ, without their digests: some are PRIVATE."""
    changes = {
        name: f"other {_INPUTS.get(name, name)}"
        for name in [*old, *new]
        if old.get(name) != new.get(name)
    }
    for name in changes.keys() & {"private", "data"}:
        changes[name] += (
            " (pictures are known by names, sizes and times: `cp -a` keeps the times in a copy of"
            " their folder; embedded texts are also known by the files of their model)"
        )
    return list(changes.values())


def _differences(old: Any, new: Any, name: str = "") -> list[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return [
            d
            for key in dict.fromkeys([*old, *new])
            for d in _differences(old.get(key), new.get(key), f"{name}.{key}".strip("."))
        ]
    if isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        items = enumerate(zip(old, new, strict=True))
        return [d for i, (before, now) in items for d in _differences(before, now, f"{name}[{i}]")]
    return [] if old == new else [f"{name}={new!r:.200} (was {old!r:.200})"]


class StageChangedError(ValueError):
    """A stage began with other settings or inputs, or its outputs have changed since."""


@dataclass(frozen=True)
class Run:
    """A run's folder.

    Args:
        root: the folder.
        overwrite: whether to redo a stage whose configuration changed, deleting its outputs.
        ledger: the ledger of the private data set. None for one in the run's folder.
        data: the source of its records, if it is open. None for the one that data.yaml describes.
    """

    root: Path
    overwrite: bool = False
    ledger: Path | None = None
    data: DataSource | None = None

    @property
    def private(self) -> Path:
        """The folder of files that must not be published, mode 0700."""
        return self.root / "private"

    def tell_owner(self, line: str, *, keep: bool = True) -> None:
        """Write a line on private records to ``private/notes.txt``, and print it for the owner.

        What a command prints without ``--owner`` depends on nothing private: logs are shared.

        Args:
            line: the line.
            keep: whether the file is written, which a dry run does not do.
        """
        if keep:
            self.make_private()
            with (self.private / "notes.txt").open("a") as notes:
                notes.write(f"{line}\n")
        if owner_reads.get():
            print(f"PRIVATE: {line}", file=sys.stderr, flush=True)

    def make_private(self) -> None:
        """Make the private folder, or close an existing one to other users of this machine."""
        self.private.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.private.stat().st_mode & 0o077:
            self.private.chmod(0o700)

    @property
    def public(self) -> Path:
        """The folder of files that may be published."""
        return self.root / "public"

    @property
    def ledger_path(self) -> Path:
        """The ledger's file."""
        return self.ledger or ledger_in(self.root)

    @property
    def data_config(self) -> Path:
        """The resolved configuration of the data."""
        return self.root / "data.yaml"

    def needs(self, stage: Stage, inputs: StageInputs) -> bool:
        """Return whether ``stage`` still has work to do on ``inputs``.

        Args:
            stage: the stage.
            inputs: the inputs that determine its outputs.

        Raises:
            StageChangedError: unless ``overwrite``, if the stage began with other settings or
                inputs, or if its outputs have changed since, or are lost and cost privacy.
        """
        state = self.state(stage)
        if state is None:
            return True
        changes = self.input_changes(stage, inputs)
        if changes and not self.overwrite:
            more = f"; {len(changes) - 4} more" if len(changes) > 4 else ""
            ways = (
                "Do it again with `overwrite`, which costs no privacy"
                if stage is STUDENT
                else "Choose another run folder with `run`, or do it again with `overwrite`: new"
                " labels cost again"
            )
            raise StageChangedError(
                f"Expected the settings that `pate {stage.name}` of {self.root} was begun with,"
                f" got {'; '.join(changes[:4])}{more}. {ways}"
            )
        if changes or not state.finished:
            return True
        lost = self.missing_outputs(stage)
        # the remaining files would be used again, and a change in them go unnoticed later
        damaged = self._damaged(stage, contents=bool(stage.paid or lost))
        bought = stage.outputs[0].as_posix() if stage.paid else None
        problems = [f"{path} missing" for path in lost if path == bought] + damaged
        if problems and not self.overwrite:
            raise self._damage_error(stage, problems)
        return bool(lost or damaged)

    def begin(
        self,
        stage: Stage,
        inputs: StageInputs,
        *,
        foreign: Sequence[str] = (),
        release: int | None = None,
    ) -> bool:
        """Record that ``stage`` begins, or continues, on ``inputs``.

        Args:
            stage: the stage.
            inputs: the inputs that determine its outputs.
            foreign: names of files in its folder that were made from other settings, keys or data.
                They are refused, or deleted with all other outputs if the stage is overwritten.
            release: the number of the release that the stage writes, if any.

        Returns:
            False if the stage is finished already.

        Raises:
            StageChangedError: as `needs` does, and on foreign files.
        """
        if not self.needs(stage, inputs):
            self._write_data_config(stage, inputs)
            return False
        new = self.state(stage) is None and not stage.self_describing
        damaged = self.overwrite and self._damaged(stage, contents=True)
        outdated = new or damaged or self.input_changes(stage, inputs)
        if foreign and not outdated and not self.overwrite:
            raise StageChangedError(
                f"Expected files of {self.root} made from the settings, the key and the data of"
                f" this `pate {stage.name}`, got {', '.join(foreign[:3])} made from others."
                " Do it again with `overwrite`"
            )
        if foreign or outdated:
            self.clear(stage)
        self.root.mkdir(parents=True, exist_ok=True)
        self.make_private()
        self.public.mkdir(exist_ok=True)
        write_text(self.root / stage.config, yaml.safe_dump(dict(inputs.settings), sort_keys=False))
        before = self.state(stage) or StageState(inputs, begun=self._releases_before(stage))
        self.record(
            stage, replace(before, inputs=inputs, finished=False, files={}, release=release)
        )
        # after the state, which tells an import of votes from a training of teachers
        self._write_data_config(stage, inputs)
        return True

    def _releases_before(self, stage: Stage) -> int:
        first = stage in (TEACHERS_FIT, VOTES_IMPORT) and self.ledger_path.exists()
        return len(read_ledger(self.ledger_path).entries) if first else 0

    def _write_data_config(self, stage: Stage, inputs: StageInputs) -> None:
        if stage in (TEACHERS_FIT, VOTES_IMPORT):
            # all later stages read their data and their ledger from it
            ledger = self.ledger and str(self.ledger)
            source = {"data": inputs.settings.get("data"), "ledger": ledger}
            text = yaml.safe_dump(source, sort_keys=False)
            if not self.data_config.is_file() or read_text(self.data_config) != text:
                write_text(self.data_config, text)

    def input_changes(self, stage: Stage, inputs: StageInputs) -> list[str]:
        """Return how inputs differ from the inputs that ``stage`` began with, if it has begun."""
        state = self.state(stage)
        return [] if state is None else state.inputs.differences(inputs)

    def finish(
        self,
        stage: Stage,
        files: Mapping[Path, str] | None = None,
        *,
        ledger_beside: Path | None = None,
        untested: bool = False,
    ) -> None:
        """Record that ``stage`` is finished, in one write.

        Args:
            stage: the stage.
            files: its files in the run's folder, with the `digest` of each.
            ledger_beside: for a run's first stage: the place of a ledger next to the private data,
                if there is one.
            untested: for the student: whether the data have no test records.
        """
        outputs = {
            path.resolve().relative_to(self.root.resolve()).as_posix(): {
                "bytes": path.stat().st_size,
                "digest": content,
            }
            for path, content in (files or {}).items()
        }
        beside = None if ledger_beside is None else str(ledger_beside.absolute())
        facts: Json = {"files": outputs, "beside": beside, "untested": untested}
        self.record(stage, replace(self.begun(stage), finished=True, **facts))

    def is_finished(self, stage: Stage) -> bool:
        """Return whether ``stage`` is finished."""
        state = self.state(stage)
        return state is not None and state.finished

    def require_finished(self, stage: Stage) -> None:
        """Raise ``ValueError`` unless ``stage`` is finished and all its files exist unchanged."""
        state = self.state(stage)
        if state is None or not state.finished:
            left = [
                output.as_posix()
                for output in stage.outputs
                if state is None and not stage.self_describing and (self.root / output).exists()
            ]
            require(not left, f"{self.root / stage.state} beside {', '.join(left)}. Put it back")
            raise ValueError(
                f"Expected `pate {stage.name}` to be finished in {self.root}: run it first"
            )
        wrong = [f"{name} missing" for name in self.missing_outputs(stage)] or self._damaged(
            stage, contents=True
        )
        if wrong:
            raise self._damage_error(stage, wrong)

    def begun(self, stage: Stage) -> StageState:
        """Return the recorded progress of a stage that has begun."""
        state = self.state(stage)
        assert state is not None, f"{stage.name} has begun"
        return state

    def inputs_of(self, stage: Stage) -> StageInputs:
        """Return the inputs that a stage began with; empty ones if it has not begun."""
        state = self.state(stage)
        return StageInputs() if state is None else state.inputs

    def record(self, stage: Stage, state: StageState) -> None:
        """Write the progress of a stage."""
        write_json(self.root / stage.state, state.to_dict())

    def state(self, stage: Stage) -> StageState | None:
        """Return the recorded progress of a stage, or None if it has not begun.

        Raises ``ValueError`` if the record is damaged.
        """
        path = self.root / stage.state
        if not path.is_file():
            return None
        again = (
            "Put it back, or delete it and do it again with `overwrite`, which is a new release"
            " and costs again"
            if stage.paid
            else f"Delete it, and `pate {stage.name}` makes it again"
        )
        written = f"what `pate {stage.name}` wrote. {again}"
        with expecting(written, ValueError, AttributeError, got=path):
            content = load_json(path)
            state = StageState.from_dict(content)
        require(
            content.get("format") == FORMAT,
            "a run of this version of pate. Choose another run folder with `run`"
            f" (run={str(self.root)!r})",
            format=content.get("format"),
        )
        wrong = [
            name
            for name, kind in (_OF_TEACHERS.items() if stage is TEACHERS_FIT else ())
            if not isinstance(state.inputs.settings.get(name, ()), kind)
        ]
        require(not wrong, written, file=str(path), wrong=wrong)
        return state

    def missing_outputs(self, stage: Stage) -> list[str]:
        """Return the outputs of a finished stage that are missing, relative to the run's folder."""
        state = self.state(stage)
        files = () if state is None else state.files
        # outputs without a suffix are folders, whose files have names and digests of their own
        paths = {name: self.root / name for name in (*map(Path.as_posix, stage.outputs), *files)}
        return [
            name
            for name, path in paths.items()
            if not (path.is_file() if path.suffix else path.exists())
        ]

    def clear(self, stage: Stage) -> None:
        """Delete a stage's outputs and its state. The ledger is never touched.

        The state is removed last, so that a process killed in between never leaves outputs without
        the record of their inputs. The statement of an output follows it in the list, and is
        deleted before it.
        """
        for output in reversed(stage.outputs):
            path = self.root / output
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        if stage is LABEL:
            # these would understate the cost once other labels are released
            for page in (REPORT, *SIGNED):
                (self.root / page).unlink(missing_ok=True)
        (self.root / stage.state).unlink(missing_ok=True)

    def _damaged(self, stage: Stage, *, contents: bool) -> list[str]:
        """Return the files of a finished stage that changed in size or, on request, contents."""
        wrong, state = [], self.state(stage)
        for name, recorded in (state.files if state is not None else {}).items():
            path = self.root / name
            if path.is_file():
                size = path.stat().st_size
                if size != recorded["bytes"]:
                    wrong.append(f"{name} of {size} bytes (was {recorded['bytes']})")
                elif contents and digest(path) != recorded["digest"]:
                    wrong.append(f"{name} changed since")
        return wrong

    def _damage_error(self, stage: Stage, wrong: Sequence[str]) -> StageChangedError:
        lost = all(problem.endswith(" missing") for problem in wrong)
        again = (
            "Put it back, or do it again with `overwrite`, which is a new release and costs again"
            if stage.paid
            else f"{'' if lost else 'Delete it, and '}`pate {stage.name}` makes it again"
        )
        named = ", ".join(wrong[:3]) + (f" and {len(wrong) - 3} more" if len(wrong) > 3 else "")
        return StageChangedError(
            f"Expected what `pate {stage.name}` left in {self.root}, got {named}. {again}"
        )


def first_stage(run: Run) -> Stage:
    """Return the first stage of a run: the import of its votes, or the training of its teachers."""
    return VOTES_IMPORT if (run.root / VOTES_IMPORT.state).is_file() else TEACHERS_FIT


def labels_file(run: Run) -> Path:
    """Return the file of a run's released labels."""
    return run.root / LABEL.outputs[0]


KEY_BYTES = 32
"""Length of the key of the partitions."""

KEY_FILE = Path("private/partition.json")
"""The file of the key of a run's partitions, relative to its folder."""


def read_key(run: Run) -> bytes | None:
    """Return the key of the partitions, or None if there is none yet.

    Raises:
        ValueError: if the file is damaged. The message does not reveal the key.
    """
    path = run.root / KEY_FILE
    if not path.is_file():
        return None
    try:
        key = bytes.fromhex(load_json(path)["key"])
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"Expected a key of hexadecimal digits, got something else in {path}. Put it back"
        ) from None
    require(16 <= len(key) <= 64, f"a key of 16 to 64 bytes in {path}", length=len(key))
    return key


def ensure_key(run: Run, stage: Stage) -> bytes:
    """Return the key of the partitions, generated unless the run's first ``stage`` has begun.

    Raises ``ValueError`` if the stage began with a key that is now lost.
    """
    key = read_key(run)
    if key is None:
        again = "train all teachers again" if stage is TEACHERS_FIT else "import the votes again"
        require(
            run.overwrite or run.state(stage) is None,
            f"the key that `pate {stage.name}` was begun with. Put it back, or {again} with"
            " `overwrite`",
            missing=str(run.root / KEY_FILE),
        )
        run.make_private()
        make_once(run.root / KEY_FILE, lambda: {"key": secrets.token_hex(KEY_BYTES)})
        key = read_key(run)
    assert key is not None, "the key exists by now"
    return key


def load_data(run: Run) -> DataSource:
    """Return the source of a run's records: the open one, or what its ``data.yaml`` describes.

    Raises ``ValueError`` if that file is missing, names no data, describes other data than the run
    began with, or names a class that cannot be imported.
    """
    if run.data is not None:
        return run.data
    require_data_config(run)
    if first_stage(run) is VOTES_IMPORT:
        require(
            run.inputs_of(VOTES_IMPORT).settings.get("data") is not None,
            "the run's public and test records; the same `pate label --votes`, with a data.yaml,"
            " adds them",
            run=str(run.root),
        )
    return read_data(run.data_config)


def describe_data(source: DataSource) -> Json:
    """Return the description of a source in a ``data.yaml``, with absolute paths.

    Raises ``ValueError`` if a file cannot hold its arguments. It can hold paths, numbers and texts.
    """
    try:
        return encode(DataSource, source, absolute_paths=True)
    except ValueError as error:
        raise ValueError(
            f"{error}. Later stages read the records again, as data.yaml describes them"
        ) from None


def read_data(path: Path) -> DataSource:
    """Return the source of records that a ``data.yaml`` describes.

    Raises ``ValueError`` if the file is missing or describes no source.
    """
    require(path.is_file(), "a data.yaml that names public and test records", missing=str(path))
    parser = SettingsParser(exit_on_error=False)
    parser.add_argument("--data", type=DataSource, required=True)
    parser.add_argument("--ledger", type=str | None, default=None)
    parser.add_argument("--config", action="config")
    with expecting(f"a source of records under `data:` in {path}", ArgumentError):
        source: DataSource = parser.instantiate(parser.parse_args(["--config", str(path)])).data
    return source


def public_digest(source: DataSource) -> str:
    """Return a digest of the public records and of their feature map."""
    features = encode(FeatureMap | None, source.feature_map, absolute_paths=True)
    return digest(json.dumps(features, sort_keys=True), source.fingerprint(Role.PUBLIC))


def require_data_config(run: Run) -> None:
    """Raise ``ValueError`` if ``data.yaml`` is missing, damaged, or describes other data.

    The first stage recorded the data that it began with.
    """
    first = first_stage(run)
    begun, content = run.state(first), _read_data_config(run.root)
    if begun is None:
        require(content is not None, "a run with a data.yaml", run=str(run.root))
        return
    again = f"The same `pate {first.name}` puts it back"
    content = require_given(
        content, f"the data.yaml of a run. {again}", missing=str(run.data_config)
    )
    other = "import the votes again" if first is VOTES_IMPORT else "train other teachers"
    require(
        content["data"] == begun.inputs.settings.get("data"),
        f"the data that `pate {first.name}` was begun with. {again}, or {other} with `overwrite`",
        changed=str(run.data_config),
    )


def read_locations(root: Path) -> tuple[DataSource | None, Path]:
    """Return the source that a run's ``data.yaml`` names, or None, and the place of its ledger.

    Unlike `load_data` it reads nothing private, so that it cannot compare them with the record of
    the first stage.

    Raises:
        ValueError: if that file is missing or damaged, or names a source that cannot be made.
    """
    path = root / "data.yaml"
    require(path.is_file(), "the folder of a run, with its data.yaml", missing=str(path))
    content = require_given(_read(path), "where data and ledger lie", damaged=str(path))
    source = None if content["data"] is None else read_data(path)
    return source, Run(
        root, ledger=Path(content["ledger"]) if content.get("ledger") else None
    ).ledger_path


def load_ledger(root: Path) -> Path | None:
    """Return the ledger that a run's ``data.yaml`` names. None without a ledger or a file.

    Raises ``ValueError`` if that file is damaged.
    """
    ledger = (_read_data_config(root) or {}).get("ledger")
    return Path(ledger) if ledger else None


def _read_data_config(root: Path) -> Json | None:
    path = root / "data.yaml"
    if not path.is_file():
        return None
    content, first = _read(path), first_stage(Run(root))
    # votes from elsewhere need no data
    require(
        content is not None and (content["data"] or first is VOTES_IMPORT),
        f"where data and ledger lie. Delete it, and the same `pate {first.name}` puts it back",
        damaged=str(path),
    )
    return content


def _read(path: Path) -> Json | None:
    """Return the content of a ``data.yaml``, or None if it is damaged.

    Raises ``ValueError`` on an unknown key.
    """
    try:
        content = load_yaml(path)
    except ValueError:
        return None
    if not isinstance(content, dict):
        return None
    require_known(f"keys of {path}", map(str, content), ("data", "ledger"))
    return content if "data" in content and isinstance(content.get("ledger"), str | None) else None
