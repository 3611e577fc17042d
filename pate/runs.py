"""A run on disk: its folders, its stages and what state they are in, and files that appear whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import yaml
from numpy.typing import NDArray

import pate

Json = dict[str, Any]


@dataclass(frozen=True)
class Stage:
    """What a stage leaves behind. All paths are relative to the run's folder.

    Attributes:
        name: as on the command line.
        state: the file that says how far the stage is.
        config: the resolved configuration, in a form that the command line takes.
        outputs: files and folders that the stage made, deleted when it is overwritten.
    """

    name: str
    state: Path
    config: Path
    outputs: tuple[Path, ...]


def _stage(name: str, place: str, *outputs: str) -> Stage:
    file = name.replace(" ", "_")
    # what a stage was begun with holds hashes of PRIVATE inputs
    state = Path("private") / f"{file}.json"
    return Stage(name, state, Path(place) / f"{file}.yaml", tuple(Path(place) / path for path in outputs))


TEACHERS_FIT = _stage("teachers fit", "private", "teachers")
TEACHERS_VOTE = _stage("teachers vote", "private", "votes")
LABEL = _stage("label", "public", "labels.npz", "privacy.json", "privacy.txt")
STUDENT = _stage("student fit", "public", "student")
REFERENCES = _stage("references", "private", "references")


class StageChangedError(ValueError):
    """A stage was begun with another configuration, or on other inputs."""


@dataclass(frozen=True)
class Run:
    """A run's folder.

    Args:
        root: the folder.
        overwrite: whether a stage whose configuration changed is done again, deleting what it left.
        config: the resolved configuration of the stage at hand, compared with the one that it was begun with.
        ledger: the ledger of the private data set, ``ledger.sqlite`` in the folder where it is None.
    """

    root: Path
    overwrite: bool = False
    config: Json = field(default_factory=dict)
    ledger: Path | None = None

    @property
    def private(self) -> Path:
        """Folder of what must not leave, mode 0700."""
        return self.root / "private"

    @property
    def public(self) -> Path:
        """Folder of what may be published."""
        return self.root / "public"

    @property
    def ledger_path(self) -> Path:
        """The ledger's file."""
        return self.ledger or self.root / "ledger.sqlite"

    @property
    def data_config(self) -> Path:
        """The resolved configuration of the data."""
        return self.root / "data.yaml"

    def needs(self, stage: Stage, inputs: Mapping[str, Any]) -> bool:
        """Whether ``stage`` is still to be done, in part or in whole, on ``inputs``.

        Raises `StageChangedError` where it was begun with another configuration or on other inputs, unless it is to be
        overwritten.
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
        return bool(changes) or not state["finished"]

    def begin(self, stage: Stage, inputs: Mapping[str, Any]) -> bool:
        """Say that ``stage`` begins, or goes on, on ``inputs``; False where it is finished. Raises like `needs`."""
        if not self.needs(stage, inputs):
            return False
        if self.changes(stage, inputs):
            self.clear(stage)
        self.root.mkdir(parents=True, exist_ok=True)
        self.private.mkdir(mode=0o700, exist_ok=True)
        self.public.mkdir(exist_ok=True)
        config = _normal(self.config)
        write_text(self.root / stage.config, yaml.safe_dump(config, sort_keys=False))
        if stage is TEACHERS_FIT:
            # the stage that brings the data says to all later ones where it is
            source = {name: config.get(name) for name in ("data", "ledger")}
            write_text(self.data_config, yaml.safe_dump(source, sort_keys=False))
        write_json(self.root / stage.state, {"finished": False, "config": config, "inputs": _normal(inputs)})
        return True

    def changes(self, stage: Stage, inputs: Mapping[str, Any]) -> list[str]:
        """Say what differs from the configuration and the inputs that ``stage`` was begun with, if it was."""
        state = self.state(stage)
        if state is None:
            return []
        return _differences(state["config"], _normal(self.config)) + _differences(state["inputs"], _normal(inputs))

    def finish(self, stage: Stage) -> None:
        """Say that ``stage`` is finished."""
        state = self.state(stage)
        assert state is not None, "a stage begins before it finishes"
        write_json(self.root / stage.state, state | {"finished": True})

    def is_finished(self, stage: Stage) -> bool:
        """Whether ``stage`` is finished."""
        state = self.state(stage)
        return state is not None and bool(state["finished"])

    def require(self, stage: Stage) -> None:
        """Raise ``ValueError`` unless ``stage`` is finished."""
        if not self.is_finished(stage):
            raise ValueError(f"Expected `pate {stage.name}` to be finished in {self.root}: run it first")

    def state(self, stage: Stage) -> Json | None:
        """Return how far a stage is, None where it was never begun."""
        path = self.root / stage.state
        return json.loads(path.read_text()) if path.is_file() else None

    def clear(self, stage: Stage) -> None:
        """Delete what a stage left behind; the ledger is never touched."""
        (self.root / stage.state).unlink(missing_ok=True)
        for output in stage.outputs:
            path = self.root / output
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a file beside ``path`` for writing, and rename it to ``path`` once it is whole and on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with beside.open(mode) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_json(path: Path, content: Json) -> None:
    """Write ``content`` as JSON, whole or not at all."""
    with replacing(path, "w") as file:
        json.dump(content, file, indent=2)
        file.write("\n")


def write_text(path: Path, text: str) -> None:
    """Write ``text``, whole or not at all."""
    with replacing(path, "w") as file:
        file.write(text)


def write_arrays(path: Path, **arrays: Any) -> None:
    """Write an ``.npz``, whole or not at all."""
    with replacing(path) as file:
        np.savez_compressed(file, **arrays)


def labels_file(run: Run) -> Path:
    """Return where the released labels of a run are."""
    return run.root / LABEL.outputs[0]


def read_labels(run: Run) -> dict[str, NDArray[Any]]:
    """Return what was released: ``ids`` ``[Q]``, ``labels`` and ``mask`` ``[Q, C]``, ``label_names`` ``[C]``."""
    with np.load(labels_file(run)) as archive:
        return {name: archive[name] for name in archive.files}


def digest(*parts: bytes | str | Path) -> str:
    """Return a hash of bytes, texts and the contents of files, in order."""
    total = hashlib.blake2b(digest_size=16)
    for part in parts:
        content = part.read_bytes() if isinstance(part, Path) else part.encode() if isinstance(part, str) else part
        total.update(len(content).to_bytes(8, "big") + content)
    return total.hexdigest()


@cache
def code_version() -> str:
    """Return the package's version and a hash of its source."""
    root = Path(pate.__file__).parent
    return f"{pate.__version__}+{digest(*sorted(root.rglob('*.py')))}"


def make_once(path: Path, make: Callable[[], Json]) -> Json:
    """Return the JSON content of ``path``, made where it is missing.

    Of several processes that make it at the same time, on one machine or on many, all return what the first one made.
    """
    if not path.is_file():
        beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            with beside.open("w") as file:
                json.dump(make(), file)
                file.flush()
                os.fsync(file.fileno())
            # unlike a rename, a link fails where the file is there
            os.link(beside, path)
        except FileExistsError:
            pass
        finally:
            beside.unlink(missing_ok=True)
    content: Json = json.loads(path.read_text())
    return content


def _normal(content: Mapping[str, Any]) -> Json:
    normal: Json = json.loads(json.dumps(content, default=str))
    return normal


def _differences(old: Any, new: Any, name: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        keys = list(dict.fromkeys([*old, *new]))
        return [d for key in keys for d in _differences(old.get(key), new.get(key), f"{name}.{key}".strip("."))]
    return [] if old == new else [f"{name}={new!r} (was {old!r})"]
