"""A run on disk: its folders, its stages and the progress of each stage."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pate.runs.files import Json, digest, write_json, write_text
from pate.validation import expect


@dataclass(frozen=True)
class Stage:
    """The files of a stage. All paths are relative to the run's folder.

    Attributes:
        name: the stage's name on the command line.
        state: the file that records the progress of the stage.
        config: the resolved configuration, a file for ``--config``.
        outputs: files and folders that the stage writes, moved aside when it is overwritten.
        paid: the outputs that cost privacy; if they are lost, they are not made again unless asked for.
        marked: whether each output records what it was made from, so that it can be trusted without the state.
    """

    name: str
    state: Path
    config: Path
    outputs: tuple[Path, ...]
    paid: tuple[Path, ...] = ()
    marked: bool = False


def _stage(name: str, place: str, *outputs: str, paid: tuple[str, ...] = (), marked: bool = False) -> Stage:
    file = name.replace(" ", "_")
    # private even for public stages: the state holds hashes of PRIVATE inputs
    state = Path("private") / f"{file}.json"
    made, bought = (tuple(Path(place) / path for path in paths) for paths in (outputs, paid))
    return Stage(name, state, Path(place) / f"{file}.yaml", made, bought, marked)


TEACHERS_FIT = _stage("teachers fit", "private", "teachers", marked=True)
TEACHERS_VOTE = _stage("teachers vote", "private", "votes", marked=True)
VOTES_IMPORT = Stage(
    "label --votes", Path("private/votes_import.json"), Path("private/votes_import.yaml"), (Path("private/votes"),)
)
"""The import of votes that were cast elsewhere, in place of both stages of teachers."""
LABEL = _stage("label", "public", "labels.npz", "privacy.json", "privacy.txt", paid=("labels.npz",))
STUDENT = _stage("student fit", "public", "student")
REFERENCES = _stage("references", "private", "references")

_INPUTS = {
    "private": "private records",
    "public": "public records",
    "data": "public records",
    "partition": "assignment of records to teachers",
    "code": "code of pate",
    "labels": "released labels",
}
"""What the inputs of stages are called in errors."""

FORMAT = 3
"""The version of a run's files, raised when they change: a run of another one is refused."""

METRICS = "metrics.json"
"""Name of the file with test-set metrics, in the folders of the student and of the references."""

REPORT = Path("public/report.html")
"""The page on a run that may be published, relative to its folder."""


MODEL = "model"
"""Name of the folder, in that of the student, that can be carried away."""


@dataclass(frozen=True)
class Inputs:
    """All that the outputs of a stage follow from: where any of it changed, they are not those of this command.

    Attributes:
        settings: the settings of the stage as plain data, encoded by `pate.settings`.
        digests: digests of what the stage reads, by name.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """One digest of them all."""
        return digest(json.dumps([self.settings, self.digests], sort_keys=True))


class StageChangedError(ValueError):
    """A stage was begun with another configuration or other inputs, or its outputs have changed since."""


@dataclass(frozen=True)
class Run:
    """A run's folder.

    Args:
        root: the folder.
        overwrite: whether to redo a stage whose configuration changed, deleting its outputs.
        ledger: the ledger of the private data set; None for ``ledger.sqlite`` in the run's folder.
    """

    root: Path
    overwrite: bool = False
    ledger: Path | None = None

    @property
    def private(self) -> Path:
        """The folder of files that must not be published, mode 0700."""
        return self.root / "private"

    @property
    def public(self) -> Path:
        """The folder of files that may be published."""
        return self.root / "public"

    @property
    def ledger_path(self) -> Path:
        """The ledger's file."""
        return self.ledger or self.root / "ledger.sqlite"

    @property
    def data_config(self) -> Path:
        """The resolved configuration of the data."""
        return self.root / "data.yaml"

    def needs(self, stage: Stage, inputs: Inputs) -> bool:
        """Return whether ``stage`` still has work to do on ``inputs``.

        Args:
            stage: the stage.
            inputs: what its outputs follow from.

        Raises:
            StageChangedError: unless ``overwrite``, if the stage was begun with another configuration or other inputs,
                or if its outputs have changed since, or are lost and cost privacy.
        """
        state = self.state(stage)
        if state is None:
            return True
        changes = self.changes(stage, inputs)
        if changes and not self.overwrite:
            raise StageChangedError(
                f"Expected the settings that `{stage.name}` of {self.root} was begun with, got {'; '.join(changes)}."
                " Choose another run folder with --run, or do it again with --overwrite"
            )
        if changes or not state["finished"]:
            return True
        lost = self.lost(stage)
        # what is left would be used again, and a change in it would go unnoticed later
        damaged = self._damaged(stage, contents=bool(stage.paid or lost))
        bought = sorted(set(lost) & {path.as_posix() for path in stage.paid})
        if (bought or damaged) and not self.overwrite:
            raise StageChangedError(self._what_is_wrong(stage, [f"{path} missing" for path in bought] + damaged))
        return bool(lost or damaged)

    def begin(self, stage: Stage, inputs: Inputs, *, foreign: Sequence[str] = (), release: int | None = None) -> bool:
        """Record that ``stage`` begins, or continues, on ``inputs``.

        Args:
            stage: the stage.
            inputs: what its outputs follow from.
            foreign: names of files in its folder that were made from other settings, keys or data. They are refused, or
                deleted with all other outputs if the stage is overwritten.
            release: the number of the release that the stage writes, if it writes one.

        Returns:
            False if the stage is finished already.

        Raises:
            StageChangedError: as `needs` does, and on foreign files.
        """
        if not self.needs(stage, inputs):
            self._say_where_data_are(stage, inputs)
            return False
        new = self.state(stage) is None and not stage.marked
        damaged = self.overwrite and self._damaged(stage, contents=True)
        if new or damaged or self.changes(stage, inputs):
            self.clear(stage)
        elif foreign:
            if not self.overwrite:
                raise StageChangedError(
                    f"Expected files of {self.root} made from the settings, the key and the data of this"
                    f" `{stage.name}`, got {', '.join(foreign[:3])} made from others. Do it again with --overwrite"
                )
            self.clear(stage)
        self.root.mkdir(parents=True, exist_ok=True)
        self.private.mkdir(mode=0o700, exist_ok=True)
        self.public.mkdir(exist_ok=True)
        self._empty_trash(stage)
        config = dict(inputs.settings)
        write_text(self.root / stage.config, yaml.safe_dump(config, sort_keys=False))
        state = {"format": FORMAT, "finished": False, "config": config, "inputs": dict(inputs.digests)}
        state |= {} if release is None else {"release": release}
        write_json(self.root / stage.state, state)
        # after the state, which says what the first stage was: data.yaml alone would be that of teachers
        self._say_where_data_are(stage, inputs)
        return True

    def _say_where_data_are(self, stage: Stage, inputs: Inputs) -> None:
        if stage in (TEACHERS_FIT, VOTES_IMPORT):
            # all later stages read their data and their ledger from it
            source = {"data": inputs.settings.get("data"), "ledger": self.ledger and str(self.ledger)}
            text = yaml.safe_dump(source, sort_keys=False)
            if not self.data_config.is_file() or self.data_config.read_text() != text:
                write_text(self.data_config, text)

    def changes(self, stage: Stage, inputs: Inputs) -> list[str]:
        """Return how inputs differ from those that ``stage`` was begun with; empty if it was not begun."""
        state = self.state(stage)
        if state is None:
            return []
        return _differences(state["config"], inputs.settings) + _other_inputs(state["inputs"], inputs.digests)

    def finish(self, stage: Stage, files: Mapping[Path, str] | None = None) -> None:
        """Record that ``stage`` is finished, with its ``files`` in the run's folder and the `digest` of each."""
        state = self.state(stage)
        assert state is not None, "a stage begins before it finishes"
        left = {
            path.resolve().relative_to(self.root.resolve()).as_posix(): {"bytes": path.stat().st_size, "digest": found}
            for path, found in (files or {}).items()
        }
        write_json(self.root / stage.state, state | {"finished": True, "files": left})

    def is_finished(self, stage: Stage) -> bool:
        """Return whether ``stage`` is finished."""
        state = self.state(stage)
        return state is not None and bool(state["finished"])

    def require(self, stage: Stage) -> None:
        """Raise ``ValueError`` unless ``stage`` is finished and all its files exist unchanged."""
        if not self.is_finished(stage):
            raise ValueError(f"Expected `pate {stage.name}` to be finished in {self.root}: run it first")
        wrong = [f"{name} missing" for name in self.lost(stage)] or self._damaged(stage, contents=True)
        if wrong:
            raise StageChangedError(self._what_is_wrong(stage, wrong))

    def state(self, stage: Stage) -> Json | None:
        """Return the recorded progress of a stage, None if it was never begun; ``ValueError`` if it is damaged."""
        path = self.root / stage.state
        if not path.is_file():
            return None
        again = f"Delete it, and `pate {stage.name}` makes it again"
        if stage.paid:
            again = "Put it back, or delete it and do it again with --overwrite, which is a new release and costs again"
        try:
            state: Json = json.loads(path.read_text())
        except ValueError as error:
            raise ValueError(
                f"Expected what `pate {stage.name}` wrote in {path}, got no JSON ({error}). {again}"
            ) from None
        whole = isinstance(state, dict) and all(isinstance(state.get(name), dict) for name in ("config", "inputs"))
        if not (whole and isinstance(state.get("finished"), bool) and isinstance(state.get("files", {}), dict)):
            raise ValueError(f"Expected what `pate {stage.name}` wrote in {path}, got another content. {again}")
        other = f"a run of this version of pate. Choose another run folder with --run (run={str(self.root)!r})"
        expect(state.get("format") == FORMAT, other, format=state.get("format"))
        return state

    def lost(self, stage: Stage) -> list[str]:
        """Return the outputs of a finished stage that are missing, relative to the run's folder."""
        names = [output.as_posix() for output in stage.outputs] + list(self._files(stage))
        return [name for name in names if not (self.root / name).exists()]

    def clear(self, stage: Stage) -> None:
        """Delete a stage's outputs and its state; the ledger is never touched.

        Each output is first moved aside by one rename, and the state is removed last, so that a process killed in
        between never leaves outputs without the state that says what they were made from.
        """
        for output in stage.outputs:
            path = self.root / output
            if path.exists():
                path.rename(path.with_name(f"{_trash(path)}{secrets.token_hex(8)}"))
        if stage is LABEL:
            # a page that states less than what other labels cost must not stay beside them
            (self.root / REPORT).unlink(missing_ok=True)
        (self.root / stage.state).unlink(missing_ok=True)
        self._empty_trash(stage)

    def _empty_trash(self, stage: Stage) -> None:
        for output in stage.outputs:
            path = self.root / output
            for old in path.parent.glob(f"{_trash(path)}*"):
                if old.is_dir():
                    # another process may do the same
                    shutil.rmtree(old, ignore_errors=True)
                else:
                    old.unlink(missing_ok=True)

    def _files(self, stage: Stage) -> Json:
        files: Json = (self.state(stage) or {}).get("files", {})
        return files

    def _damaged(self, stage: Stage, *, contents: bool) -> list[str]:
        """Return the files of a finished stage that differ in size or, if asked for, in ``contents``."""
        wrong = []
        for name, left in self._files(stage).items():
            path = self.root / name
            if path.is_file():
                size = path.stat().st_size
                if size != left["bytes"]:
                    wrong.append(f"{name} of {size} bytes (was {left['bytes']})")
                elif contents and digest(path) != left["digest"]:
                    wrong.append(f"{name} changed since")
        return wrong

    def _what_is_wrong(self, stage: Stage, wrong: Sequence[str]) -> str:
        lost = all(each.endswith(" missing") for each in wrong)
        again = f"{'' if lost else 'Delete it, and '}`pate {stage.name}` makes it again"
        if stage.paid:
            again = "Put it back, or do it again with --overwrite, which is a new release and costs again"
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        return f"Expected what `pate {stage.name}` left in {self.root}, got {', '.join(wrong[:3])}{more}. {again}"


def require_student(run: Run) -> None:
    """Raise ``ValueError`` unless a run's student is finished, and learned from the labels that are there now."""
    run.require(STUDENT)
    state = run.state(STUDENT)
    learned = state is not None and labels_file(run).is_file() and state["inputs"]["labels"] == digest(labels_file(run))
    again = "`pate student fit --overwrite` trains one of these"
    expect(learned, f"a student of the labels in {labels_file(run)}. {again}", student="of earlier labels")


def _trash(path: Path) -> str:
    return f".{path.name}.trash-"


def first_stage(run: Run) -> Stage:
    """Return the stage that a run begins with: the import of its votes, or else the training of its teachers."""
    return VOTES_IMPORT if (run.root / VOTES_IMPORT.state).is_file() else TEACHERS_FIT


def voting_stage(run: Run) -> Stage:
    """Return the stage that leaves the votes of a run."""
    return VOTES_IMPORT if first_stage(run) is VOTES_IMPORT else TEACHERS_VOTE


def labels_file(run: Run) -> Path:
    """Return the file of a run's released labels."""
    return run.root / LABEL.outputs[0]


def _other_inputs(old: Json, new: Mapping[str, str]) -> list[str]:
    """Return in words which inputs differ; their digests would tell nobody anything, and those of votes are PRIVATE."""
    said = {name: f"other {_INPUTS.get(name, name)}" for name in [*old, *new] if old.get(name) != new.get(name)}
    for name in said.keys() & {"private", "data"}:
        said[name] += (
            " (pictures are known by names, sizes and times: `cp -a` keeps the times in a copy of their folder)"
        )
    return list(said.values())


def _differences(old: Any, new: Any, name: str = "") -> list[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = list(dict.fromkeys([*old, *new]))
        return [d for key in keys for d in _differences(old.get(key), new.get(key), f"{name}.{key}".strip("."))]
    return [] if old == new else [f"{name}={new!r} (was {old!r})"]
