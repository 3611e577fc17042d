"""The stages of a run: the files, the inputs and the progress of each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pate._files import Json, digest
from pate._validation import require


@dataclass(frozen=True)
class Stage:
    """The files of a stage. All paths are relative to the run's folder.

    Attributes:
        name: the stage's name on the command line.
        state: the file that records the progress of the stage.
        config: the resolved configuration, a file for ``--config``.
        outputs: files and folders that the stage writes, moved aside when it is overwritten.
        paid_outputs: the outputs that cost privacy, which are made again only on request
        self_describing: whether each output records its inputs, so that it can be trusted without
            the state.
    """

    name: str
    state: Path
    config: Path
    outputs: tuple[Path, ...]
    paid_outputs: tuple[Path, ...] = ()
    self_describing: bool = False


def _stage(
    name: str,
    place: str,
    *outputs: str,
    paid_outputs: tuple[str, ...] = (),
    self_describing: bool = False,
) -> Stage:
    file = name.replace(" ", "_")
    # PRIVATE even for public stages: the state holds hashes of private inputs
    state = Path("private") / f"{file}.json"
    made, bought = (
        tuple(Path(place) / path for path in paths) for paths in (outputs, paid_outputs)
    )
    return Stage(name, state, Path(place) / f"{file}.yaml", made, bought, self_describing)


TEACHERS_FIT = _stage("teachers fit", "private", "teachers", self_describing=True)
TEACHERS_VOTE = _stage("teachers vote", "private", "votes", self_describing=True)
VOTES_IMPORT = Stage(
    "label --votes",
    Path("private/votes_import.json"),
    Path("private/votes_import.yaml"),
    (Path("private/votes"),),
)
"""The import of votes that were cast elsewhere, in place of both stages of teachers."""
LABEL = _stage(
    "label", "public", "labels.npz", "privacy.json", "privacy.txt", paid_outputs=("labels.npz",)
)
STUDENT = _stage("student fit", "public", "student")
REFERENCES = _stage("references", "private", "references")

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
"""Name of the file with test-set metrics, in the folders of the student and of the references."""

REPORT = Path("public/report.html")
"""The publishable page on a run, relative to its folder."""

DISCLOSURE = Path("public/disclosure")
"""The folder of a disclosure, relative to the run's folder."""

MODEL = "model"
"""Name of the folder, in the student's folder, that can leave the run."""

EXPORTED = Path("private/student_model.json")
"""The digests of the student in `MODEL`, relative to the run's folder."""


@dataclass(frozen=True)
class StageInputs:
    """Everything that determines the outputs of a stage, which any change puts out of date.

    Attributes:
        settings: the settings of the stage as plain data, encoded by `pate._settings`.
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
        release: the number of the release that it wrote; None for a stage that releases nothing.
        beside: for a run's first stage: the place of a ledger next to the private data.
        again: for teachers that are forgetting records: the settings of the stages to run again,
            by their names.
        forgotten: for teachers: the number of units that they forgot and the data may still hold.
    """

    inputs: StageInputs
    finished: bool = False
    files: Mapping[str, Json] = field(default_factory=dict)
    release: int | None = None
    beside: str | None = None
    again: Mapping[str, Json] = field(default_factory=dict)
    forgotten: int = 0

    @classmethod
    def from_dict(cls, state: Json) -> Self:
        """Return the state that `to_dict` encoded. Raises ``ValueError`` on other content."""
        for name, kind in {"config": dict, "inputs": dict, "finished": bool}.items():
            require(
                isinstance(state.get(name), kind), "the state of a stage", **{name: state.get(name)}
            )
        files = state.get("files", {})
        require(isinstance(files, dict), "the state of a stage", files=files)
        begun = StageInputs(state["config"], state["inputs"])
        more = {
            name: state[name]
            for name in ("release", "beside", "again", "forgotten")
            if name in state
        }
        return cls(begun, state["finished"], files, **more)

    def to_dict(self) -> Json:
        """Return plain JSON types."""
        begun = {"config": dict(self.inputs.settings), "inputs": dict(self.inputs.digests)}
        more = {
            "files": dict(self.files),
            "release": self.release,
            "beside": self.beside,
            "again": dict(self.again),
            "forgotten": self.forgotten,
        }
        return {"format": FORMAT, "finished": self.finished, **begun} | {
            k: v for k, v in more.items() if v
        }


def other_inputs(old: Mapping[str, str | None], new: Mapping[str, str]) -> list[str]:
    """Name the inputs that differ, without their digests, some of which are PRIVATE."""
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
        keys = list(dict.fromkeys([*old, *new]))
        return [
            d
            for key in keys
            for d in _differences(old.get(key), new.get(key), f"{name}.{key}".strip("."))
        ]
    if isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        items = enumerate(zip(old, new, strict=True))
        return [d for i, (before, now) in items for d in _differences(before, now, f"{name}[{i}]")]
    return [] if old == new else [f"{name}={new!r} (was {old!r})"]
