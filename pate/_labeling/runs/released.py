"""The file of a run's released labels, with their aggregator and the number of their release.

`ReleasedLabels` is the border between PRIVATE and PUBLIC: its content may be published, and nothing
else that is computed from votes may. At the end the public folder: the files that may be there, and
an error for any other.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from pate._core.files.reading import Json, digest, opened, read_arrays, read_json
from pate._core.validation import (
    MOST_VOTERS,
    BoolArray,
    FloatArray,
    IntArray,
    StrArray,
    UInt8Array,
    require,
    require_given,
    require_positive,
)
from pate._labeling.runs.run import (
    KEY_FILE,
    LABEL,
    LINEAR_MODEL,
    METRICS,
    MODEL,
    REPORT,
    SIGNED,
    STUDENT,
    TEACHERS_FIT,
    Run,
    first_stage,
    labels_file,
    read_key,
)
from pate._labeling.votes.kinds import VoteShape

FORMAT = 1
"""The version of ``labels.npz``, which is raised when it changes: another one is refused."""
_BLOCK = 1 << 20  # bytes read at once
_SEAL = "seal"
_KINDS = {
    "format": "iu",
    "ids": "U",
    "label_names": "U",
    "num_teachers": "iu",
    "delta": "f",
    "aggregator": "U",
    "release": "iu",
    "labels": "iu",
    "mask": "b",
    _SEAL: "U",
}
_OPTIONAL_KINDS = {
    "values": "f",
    "noise_std": "fiu",
    "steps": "iu",
    "columns": "b",
    "variance_ratio": "f",
}
"""The kinds of the arrays' types, by their names."""
_UNLIKE = 1.4
"""The ratio of variances from which samples are unlike; in one source it was below 1.2."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Queries:
    """The queries of a release: public facts, fixed before any vote is read.

    Attributes:
        ids: ``[Q]``, ids of the public samples in the order of the queries.
        label_names: names of the ``C`` labels.
        num_teachers: the nominal number of teachers.
        delta: the delta of the statement.
        aggregator: class path and settings of the aggregator, as JSON.
    """

    ids: StrArray
    label_names: tuple[str, ...]
    num_teachers: int
    delta: float
    aggregator: Json

    @property
    def shape(self) -> VoteShape:
        """The numbers of teachers and labels."""
        return VoteShape(self.num_teachers, len(self.label_names))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReleasedLabels(Queries):
    """The answers to `Queries`, the content of ``labels.npz``. PUBLIC.

    Attributes:
        release: number of the release in the ledger.
        labels: ``[Q, C]`` in {0, 1}; 0 where nothing was released.
        mask: ``[Q, C]``, True for released labels.
        noisy_counts: ``[Q, C]``, noisy counts of teachers. None if the aggregator released none.
            Named ``values`` in the file.
        noise_std: standard deviation of the Gaussian noise in ``noisy_counts``, in votes, above 0.
            None without counts, and for answers of a linear model, for which the file holds 0.
        tiers: ``[Q]``, the price tier of each query. None if all queries cost the same. Named
            ``steps`` in the file.
        linear: whether ``noisy_counts`` are ``num_teachers`` times the answers of a linear model.
        columns: ``[F]``, the features that such a model reads. None for all of them.
        variance_ratio: about the variance of private records over that of public samples, along
            directions on which such a model depends. None if the release does not tell.
    """

    release: int
    labels: UInt8Array
    mask: BoolArray
    noisy_counts: FloatArray | None = None
    noise_std: float | None = None
    tiers: IntArray | None = None
    linear: bool = False
    columns: BoolArray | None = None
    variance_ratio: float | None = None

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(samples={len(self.ids)}, answered={int(self.answered.sum())},"
            f" labels={len(self.label_names)}, release={self.release}, delta={self.delta:g})"
        )

    @property
    def unlike(self) -> str | None:
        """One sentence if the release shows public samples to be unlike private records."""
        if self.variance_ratio is None or self.variance_ratio < _UNLIKE:
            return None
        return (
            f"The release shows records of about {self.variance_ratio:.1f} times the variance of"
            " public samples:\nare these samples of another kind, or only the records scaled?"
        )

    @property
    def answered(self) -> BoolArray:
        """``[Q]``: whether at least one label of each query was released."""
        return np.asarray(self.mask.any(axis=1))

    @property
    def facts(self) -> Json:
        """The facts about the labels in their statement, by its keys."""
        return {
            "release": self.release,
            "num_queries": len(self.ids),
            # None if each unit is a teacher, because their number is private
            "num_teachers": None if self.num_teachers == MOST_VOTERS else self.num_teachers,
            "num_labels": len(self.label_names),
            "delta": self.delta,
            "aggregator": self.aggregator,
            "num_answered": int(self.answered.sum()),
        }

    def save(self, file: IO[bytes], key: bytes) -> None:
        """Write an ``.npz`` with a seal that only the run can make. It is on disk on return.

        The seal is a hash of all arrays, keyed by the run's partition key. It reveals nothing about
        votes or records.

        Args:
            file: the file, open for writing at its start.
            key: the `sealing_key` of the run that the labels belong to.
        """
        arrays: dict[str, Any] = {
            "format": np.array(FORMAT),
            "ids": self.ids,
            "label_names": np.array(self.label_names),
            "num_teachers": np.array(self.num_teachers),
            "delta": np.array(self.delta, dtype=np.float64),
            "aggregator": np.array(json.dumps(self.aggregator)),
            "release": np.array(self.release),
            "labels": np.asarray(self.labels),
            "mask": np.asarray(self.mask),
        }
        optional = {
            "values": self.noisy_counts,
            "noise_std": None if self.noisy_counts is None else self.noise_std or 0.0,
            "steps": self.tiers,
            "columns": self.columns,
            "variance_ratio": self.variance_ratio,
        }
        arrays |= {name: np.asarray(part) for name, part in optional.items() if part is not None}
        np.savez_compressed(file, **arrays, seal=np.array(_seal(arrays, key)))
        file.truncate()
        file.flush()
        os.fsync(file.fileno())

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """Read the labels of the run in ``folder``.

        Raises:
            ValueError: if the file is missing, damaged or changed, or comes from another run.
        """
        run = Run(Path(folder))
        path = labels_file(run)
        arrays = _read(path)
        seal = str(arrays.pop(_SEAL))
        require(
            seal == _seal(arrays, sealing_key(run)),
            f"labels in {path} as `pate label` of this run left them",
            seal=seal,
        )
        return cls._of(arrays)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file that `save` wrote from the public files, without the key to check its seal.

        Raises:
            ValueError: if the file is missing or damaged, or its arrays do not fit together.
        """
        return cls._of(_read(path))

    @classmethod
    def _of(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        values, noise = arrays.get("values"), arrays.get("noise_std")
        ratio = arrays.get("variance_ratio")
        return cls(
            ids=arrays["ids"],
            label_names=tuple(arrays["label_names"].tolist()),
            num_teachers=int(arrays["num_teachers"]),
            delta=float(arrays["delta"]),
            aggregator=read_json(str(arrays["aggregator"])),
            release=int(arrays["release"]),
            labels=arrays["labels"],
            mask=arrays["mask"],
            noisy_counts=values,
            noise_std=None if values is None or not noise else float(noise),
            tiers=arrays.get("steps"),
            linear=values is not None and not noise,
            columns=arrays.get("columns"),
            variance_ratio=None if ratio is None else float(ratio),
        )


def _read(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays in a file of labels, with their types and shapes checked."""
    arrays = read_arrays(
        path, [*_KINDS], [*_OPTIONAL_KINDS], what="the labels that `pate label` left"
    )
    shape = {"ids": arrays["ids"].shape[:1], "label_names": arrays["label_names"].shape[:1]}
    table = shape["ids"] + shape["label_names"]
    shapes = shape | {"steps": shape["ids"]} | dict.fromkeys(("labels", "mask", "values"), table)
    for name, array in arrays.items():
        wanted = (array.size,) if name == "columns" else shapes.get(name, ())
        fits = array.shape == wanted and array.dtype.kind in (_KINDS | _OPTIONAL_KINDS)[name]
        require(
            fits, f"{name} of shape {wanted} in {path}", shape=array.shape, dtype=str(array.dtype)
        )
    require(
        arrays["format"] == FORMAT,
        f"labels of format {FORMAT}, which this version of pate reads, in {path}",
        format=int(arrays["format"]),
    )
    if "variance_ratio" in arrays:
        require_positive(variance_ratio=float(arrays["variance_ratio"]))
    return arrays


def sealing_key(run: Run) -> bytes:
    """Return the key of the run's partitions, which seals its labels.

    Raises:
        ValueError: if it is missing, damaged or not the key that the run began with.
    """
    path, first = str(run.root / KEY_FILE), first_stage(run)
    key = require_given(read_key(run), "the key of the run's partitions. Put it back", missing=path)
    begun = run.state(first)
    did = "partitioned" if first is TEACHERS_FIT else "began"
    require(
        begun is None or begun.inputs.digests.get("partition") == digest(key),
        f"the key that `pate {first.name}` {did} with. Put it back",
        changed=path,
    )
    return key


def _seal(arrays: Mapping[str, NDArray[Any]], key: bytes) -> str:
    total = hashlib.blake2b(digest_size=16, key=key, person=b"pate labels")
    for name, array in sorted(arrays.items()):
        head = json.dumps([name, array.dtype.str, array.shape]).encode()
        total.update(len(head).to_bytes(8, "big") + head + np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def require_student(run: Run) -> None:
    """Raise ``ValueError`` unless a run's student is finished and learned its present labels."""
    run.require_finished(STUDENT)
    # raises if the labels are missing or damaged
    ReleasedLabels.load(run.root)
    require(
        run.inputs_of(STUDENT).digests.get("labels") == digest(labels_file(run)),
        f"a student of the labels in {labels_file(run)}, not of earlier labels. `pate student fit`"
        " with `overwrite` trains one of these",
    )


_STUDENT = STUDENT.outputs[0].as_posix()
_PUBLISHED = (
    *(path.as_posix() for path in (LABEL.config, STUDENT.config, *LABEL.outputs, REPORT)),
    *(path.as_posix() for path in SIGNED),
    *(f"{_STUDENT}/{name}" for name in ("*.ckpt", "linear.safetensors", METRICS)),
    *(f"{_STUDENT}/{name}/*" for name in (MODEL, LINEAR_MODEL, "logs")),
)
"""Patterns of the files that commands leave in ``public/``. A star stands for folders, too."""


def published_files(run: Run) -> list[Path]:
    """Return the files in the run's public folder, relative to the run's folder, sorted by name."""
    paths = (path for path in run.public.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted((path.relative_to(run.root) for path in paths), key=Path.as_posix)


def unexpected_public_files(run: Run) -> Iterator[str]:
    """Yield an error for each file in the run's public folder that must not be published."""
    private = _private_files(run)
    secret = [] if (key := read_key(run)) is None else [key, key.hex().encode()]
    for name in published_files(run):
        path = run.root / name
        if path.is_symlink() or not path.is_file():
            yield f"Expected plain files in {run.public}, got {name}. Delete it"
        elif not _is_expected(name):
            yield f"Expected what `pate` leaves in {run.public}, got {name}. Move it elsewhere"
        elif original := private.get(path.stat().st_size, {}).get(digest(path)):
            yield (
                f"Expected nothing private in {run.public}, got {name}, a copy of {original}."
                " Delete it"
            )
        elif _holds(path, secret):
            yield (
                f"Expected nothing private in {run.public}, got {name} with the run's key."
                " Delete it"
            )


def _holds(path: Path, words: Sequence[bytes]) -> bool:
    """Return whether a file, read in blocks, has one of some words."""
    longest, kept = max(map(len, words), default=0), b""
    with opened(path) as file:
        while words and (block := file.read(_BLOCK)):
            kept += block
            if any(word in kept for word in words):
                return True
            kept = kept[-longest:]
    return False


def _is_expected(name: Path) -> bool:
    hidden = any(part.startswith(".") or part.startswith("PRIVATE") for part in name.parts)
    return not hidden and any(fnmatch(name.as_posix(), pattern) for pattern in _PUBLISHED)


def _private_files(run: Run) -> dict[int, dict[str, str]]:
    """Return the names of private files by size and digest, without settings and empty files.

    Only files as large as a public one are read.
    """
    files: dict[int, dict[str, str]] = {}
    sizes = {(run.root / name).lstat().st_size for name in published_files(run)} - {0}
    for path in sorted(run.private.rglob("*")):
        size = path.stat().st_size if path.is_file() and path.suffix != ".yaml" else 0
        if size in sizes:
            files.setdefault(size, {})[digest(path)] = path.relative_to(run.root).as_posix()
    return files
