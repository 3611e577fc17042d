"""Votes on disk: ballots, scores or counts of chunks of teachers, or the records of voters.

The needs of an aggregator determine what is read, with public features. From ballots, `NoisyVotes`
is given the counts, ``ClippedVotes`` the ballots, and ``Rounds`` of ``ClippedVotes`` the features
too:

    votes = load_votes(run, finished_votes(run), ids, aggregator.needs)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from pate._core.files.reading import (
    Json,
    digest,
    load_json,
    map_array,
    read_array,
    read_arrays,
)
from pate._core.files.writing import atomic_write, write_json
from pate._core.validation import (
    MOST_VOTERS,
    FloatArray,
    IntArray,
    StrArray,
    UInt8Array,
    expecting,
    require,
    require_distinct,
    require_given,
    require_known,
)
from pate._labeling.data.records import Records, Role, as_text
from pate._labeling.runs.run import (
    TEACHERS_FIT,
    TEACHERS_VOTE,
    VOTES_IMPORT,
    Run,
    first_stage,
    load_data,
)
from pate._labeling.votes.kinds import (
    Ballots,
    Counts,
    Moments,
    Need,
    NoisyTotal,
    Scores,
    Votes,
    VoteShape,
    rows_of,
    serves,
    unpack_ballots,
)
from pate._labeling.votes.voters import (
    Geometry,
    GroupVoters,
    RecordVoters,
    ScoreVoters,
    Voters,
    blocks,
)

Known = TypeVar("Known", bound=Counts)

FORMAT = 1
"""The version of votes on disk, which is raised when they change: another one is refused."""
_MANIFEST = "manifest.json"
_COUNTS = "_counts_"
_LEFT = "what `pate teachers vote` left in {}, and makes again with `overwrite`"
_KINDS = {kind.form: kind for kind in Votes.kinds.values()}


@dataclass(frozen=True, kw_only=True, eq=False)
class VoteFacts:
    """The public facts about votes, cast or yet to be cast.

    Attributes:
        ids: ``[N]``, ids of the samples.
        label_names: names of the labels.
        num_teachers: the nominal number of teachers.
        kind: the kind of the votes.
        features: ``[N, F]``, features that come with the votes. None without.
    """

    ids: StrArray
    label_names: Sequence[str]
    num_teachers: int
    kind: type[Votes]
    features: FloatArray | None = None

    @property
    def shape(self) -> VoteShape:
        """The numbers of teachers and labels."""
        return VoteShape(self.num_teachers, len(self.label_names))


@dataclass(frozen=True, kw_only=True)
class VoteManifest:
    """A description of votes on disk and their origin.

    Attributes:
        num_teachers: the nominal number of teachers, absent ones included.
        label_names: names of the labels, in the order of the ballots' columns.
        made_by: hashes of the ``teachers``, the ``data`` and the ``code``.
        chunks: digests of the files of votes, by file name. PRIVATE.
        ids: ids of the samples that were voted on, in the order of the ballots' rows.
        ballots: the word for the kind of the ballots, a public constant (see `kind`).
        format: the version of the manifest and of the files that it describes.
    """

    num_teachers: int
    label_names: Sequence[str]
    made_by: Mapping[str, str]
    chunks: Mapping[str, str]
    ids: Sequence[str]
    ballots: str = Ballots.form
    format: int = FORMAT

    @property
    def kind(self) -> type[Votes]:
        """The kind of the votes: `Counts` if the ballots of some teachers are not known."""
        kind = _KINDS[self.ballots]
        return Counts if kind is Ballots and any(_COUNTS in name for name in self.chunks) else kind

    @property
    def shape(self) -> VoteShape:
        """The numbers of teachers and labels."""
        return VoteShape(self.num_teachers, len(self.label_names))

    @classmethod
    def read(cls, path: Path) -> VoteManifest:
        """Read a manifest. Raises ``ValueError`` if it is missing or malformed."""
        content = _read(path)
        with expecting(_LEFT.format(path), ValueError, TypeError):
            require(
                content.get("format") == FORMAT, f"format {FORMAT}", format=content.get("format")
            )
            manifest = cls(**content)
            require_known("ballots", [manifest.ballots], _KINDS)
            require_distinct("ids", manifest.ids)
            _ = manifest.shape  # raises on other numbers
        return manifest


@dataclass(frozen=True)
class VoteStore:
    """Votes on disk: one ``.npy`` of packed ballots, or of scores, per chunk, and a `VoteManifest`.

    Each ``votes_00000.npy`` has a ``votes_00000.json`` with its origin and a digest of its content.
    The manifest holds all digests. If only the counts of teachers are known, such as 20 teachers
    from number 10 on, they are in ``votes_00010_counts_20.npy``.
    """

    folder: Path

    def chunk_file(self, teachers: range) -> Path:
        """Return a chunk's file: packed ``[chunk, Q, ceil(C / 8)]`` or scores ``[chunk, Q, C]``."""
        return self.folder / f"votes_{teachers.start:05d}.npy"

    @property
    def manifest_file(self) -> Path:
        """The file of the manifest."""
        return self.folder / _MANIFEST

    def has_chunk(self, teachers: range) -> bool:
        """Whether the votes of a chunk are complete."""
        path = self.chunk_file(teachers)
        return path.is_file() and path.with_suffix(".json").is_file()

    def save_chunk(self, teachers: range, votes: UInt8Array, *, made_from: str = "") -> None:
        """Write the votes of a chunk, and a record of their origin."""
        self._save(self.chunk_file(teachers), votes, made_from)

    def save_counts(self, teachers: range, counts: IntArray) -> None:
        """Write counts ``[Q, C]`` of teachers with unknown ballots."""
        path = self.folder / f"{self.chunk_file(teachers).stem}{_COUNTS}{len(teachers)}.npy"
        self._save(path, counts, "")

    def save_features(self, features: FloatArray) -> dict[Path, str]:
        """Write features ``[N, F]``, in the order of the ids; return the digest of their file."""
        return _save_arrays({self._features_file: features})

    def features(self, rows: IntArray | slice = slice(None)) -> FloatArray | None:
        """Return the features ``[Q, F]`` of some samples, or of all. None if there are none."""
        path = self._features_file
        return np.array(map_array(path)[rows]) if path.is_file() else None

    def has_features(self) -> bool:
        """Whether features came with the votes."""
        return self._features_file.is_file()

    @property
    def _features_file(self) -> Path:
        return self.folder / "features.npy"

    def _save(self, path: Path, array: NDArray[Any], made_from: str) -> None:
        (content,) = _save_arrays({path: array}).values()
        write_json(path.with_suffix(".json"), {"made_from": made_from, "digest": content})

    def provenance(self) -> dict[str, str]:
        """Return the origin of each stored chunk by file name; empty if its record is damaged."""
        origins = {path.with_suffix(".npy").name: "" for path in self._sidecars()}
        for path in self._sidecars():
            with suppress(ValueError):
                origins[path.with_suffix(".npy").name] = str(_read(path).get("made_from", ""))
        return origins

    def write_manifest(
        self,
        *,
        ids: Sequence[str],
        label_names: Sequence[str],
        num_teachers: int,
        made_by: Mapping[str, str],
        ballots: str = Ballots.form,
    ) -> dict[Path, str]:
        """Write the manifest of the stored chunks.

        Return the files of votes and the manifest with their digests. Raises ``ValueError`` if
        votes have changed since they were cast.
        """
        chunks = {
            path.with_suffix(".npy").name: str(_read(path).get("digest", ""))
            for path in self._sidecars()
        }
        self._check(chunks)
        plain = asdict(
            VoteManifest(
                num_teachers=num_teachers,
                label_names=label_names,
                made_by=made_by,
                chunks=chunks,
                ids=ids,
                ballots=ballots,
            )
        )
        write_json(self.manifest_file, plain)
        files = {self.folder / name: content for name, content in chunks.items()}
        return files | {self.manifest_file: digest(self.manifest_file)}

    def check(self) -> None:
        """Raise ``ValueError`` unless all votes are stored as they were cast, bit for bit."""
        self._check(self.manifest().chunks)

    def _check(self, chunks: Mapping[str, str]) -> None:
        for name, recorded in chunks.items():
            path = self.folder / name
            # digests of votes are PRIVATE and must not be printed
            unchanged = path.is_file() and digest(path) == recorded
            again = "Delete it, and `pate teachers vote` makes it again"
            require(unchanged, f"the votes that were cast. {again}", changed_or_missing=str(path))

    def _sidecars(self) -> list[Path]:
        return sorted(self.folder.glob("votes_*.json"))

    def manifest(self) -> VoteManifest:
        """Return the manifest. Raises ``ValueError`` if it is missing or damaged."""
        return VoteManifest.read(self.manifest_file)

    def facts(self) -> VoteFacts:
        """Return the public facts about the votes. Raises like `manifest`."""
        manifest = self.manifest()
        return VoteFacts(
            ids=np.array(manifest.ids),
            label_names=manifest.label_names,
            num_teachers=manifest.num_teachers,
            kind=manifest.kind,
            features=self.features(),
        )

    def load(self, kind: type[Known], *, rows: IntArray | None = None) -> tuple[Known, list[str]]:
        """Return the votes on some samples, and the ids of those samples.

        The files stay on disk: nothing of other samples is unpacked or kept.

        Args:
            kind: `Ballots`, or `Counts`, which are not stored where ballots are known, but counted.
            rows: ``[Q]``, indices among the samples of the manifest. None for all samples.

        Raises:
            ValueError: if the votes are of another kind, are missing, or do not have the shape that
                the manifest says.
        """
        manifest = self.manifest()
        require(
            issubclass(manifest.kind, kind),
            f"votes that are {kind.__name__}",
            votes=manifest.kind.__name__,
        )
        chosen = np.arange(len(manifest.ids)) if rows is None else np.asarray(rows)
        size, shape = len(chosen), manifest.shape
        ids = [manifest.ids[row] for row in chosen]
        if kind is Counts:
            counts = np.zeros((size, shape.num_labels), dtype=np.int64)
            for _, votes in self._blocks(manifest, chosen):
                counts += votes if votes.ndim == 2 else votes.sum(axis=0, dtype=np.int64)
            return cast(Known, Votes.from_counts(counts, shape.num_teachers)), ids
        ballots = np.empty((size, shape.num_teachers, shape.num_labels), dtype=np.uint8)
        for teachers, votes in self._blocks(manifest, chosen):
            ballots[:, teachers] = votes.swapaxes(0, 1)
        return cast(Known, Votes.from_ballots(ballots)), ids

    def _blocks(
        self, manifest: VoteManifest, rows: IntArray
    ) -> Iterator[tuple[slice, UInt8Array | IntArray]]:
        """Yield teachers in order, with ballots ``[t, Q, C]`` or counts ``[Q, C]`` of samples."""
        size, shape, done = len(manifest.ids), manifest.shape, 0
        for path in self._files():
            counted = _teachers_counted(path)
            if counted is None:
                packed = _mapped(path, (size, -(-shape.num_labels // 8)))
                for block in blocks(len(packed), len(rows) * shape.num_labels):
                    here = slice(done + block.start, done + block.stop)
                    _require_teachers(here.stop <= shape.num_teachers, shape, done + len(packed))
                    yield here, unpack_ballots(packed[block, rows], shape.num_labels)
                done += len(packed)
            else:
                done += counted
                _require_teachers(done <= shape.num_teachers, shape, done)
                yield (
                    slice(done - counted, done),
                    _counts_in(path, (size, shape.num_labels), counted)[rows],
                )
        _require_teachers(done == shape.num_teachers, shape, done)

    def scores(self) -> tuple[UInt8Array, ...]:
        """Return the scores ``[t, N, C]`` of all teachers in their order, mapped into memory.

        Raises ``ValueError`` if scores are missing, or do not have the shape that the manifest
        says.
        """
        manifest = self.manifest()
        num_samples, shape = len(manifest.ids), manifest.shape
        chunks = tuple(_mapped(path, (num_samples, shape.num_labels)) for path in self._files())
        num_teachers = sum(map(len, chunks))
        _require_teachers(num_teachers == shape.num_teachers, shape, num_teachers)
        return chunks

    def _files(self) -> list[Path]:
        # in the order of their first teachers, which may have more than five digits
        return sorted(
            self.folder.glob("votes_*.npy"),
            key=lambda path: int(path.stem.removeprefix("votes_").split(_COUNTS)[0]),
        )


def finished_votes(run: Run) -> VoteStore:
    """Return the votes of a run.

    Raises ``ValueError`` unless all of them were cast, or imported, and are unchanged.
    """
    run.require_finished(VOTES_IMPORT if first_stage(run) is VOTES_IMPORT else TEACHERS_VOTE)
    return VoteStore(run.root / TEACHERS_VOTE.outputs[0])


def _save_arrays(arrays: Mapping[Path, NDArray[Any]]) -> dict[Path, str]:
    """Write arrays to files; return the digest of each file."""
    for path, array in arrays.items():
        with atomic_write(path) as file:
            np.save(file, array)
    return {path: digest(path) for path in arrays}


def _require_teachers(right: bool, shape: VoteShape, found: int) -> None:
    require(right, f"votes of {shape.num_teachers} teachers", teachers=found)


def _read(path: Path) -> Json:
    with expecting(_LEFT.format(path), OSError, ValueError):
        content: Json = load_json(path, _MOST_LISTED)
        require(isinstance(content, dict), "an object", type=type(content).__name__)
    return content


def _teachers_counted(path: Path) -> int | None:
    """Return the number of teachers that a file counts. None if it holds ballots."""
    _, counts, number = path.stem.partition(_COUNTS)
    return int(number) if counts else None


def _mapped(path: Path, shape: tuple[int, int]) -> UInt8Array:
    """Map the ballots or scores in a file, on samples and in bytes of a ``shape``, into memory."""
    votes: UInt8Array = map_array(path)
    require(
        votes.dtype == np.uint8 and votes.ndim == 3 and votes.shape[1:] == shape,
        f"votes on {shape[0]} samples, {shape[1]} bytes each, in {path.name}",
        shape=votes.shape,
    )
    return votes


def _counts_in(path: Path, shape: tuple[int, int], num_teachers: int) -> IntArray:
    counts: IntArray = map_array(path)
    require(
        counts.dtype == np.int64 and counts.shape == shape,
        f"counts of {shape[0]} samples and {shape[1]} labels in {path.name}",
        shape=counts.shape,
    )
    # counts out of range are PRIVATE and must not be printed
    require(
        counts.min(initial=0) >= 0 and counts.max(initial=0) <= num_teachers,
        f"counts in 0..{num_teachers} in {path.name}",
        counts="others",
    )
    return counts


_MOST_LISTED = 1 << 28  # bytes of what a manifest lists, such as the ids of samples
_GEOMETRY = tuple(field.name for field in fields(Geometry) if field.name != "place")
_FACTS = ("unknown_labels", "shifted")


@dataclass(frozen=True)
class VoterStore:
    """Voters on disk, as `pate teachers fit` leaves those in closed form.

    ``public.npz`` holds the public directions. ``coordinates.npy`` and ``labels.npy`` have a row
    for each record. With ``groups.npy``, which gives the teacher of each record, the records are
    sorted by teacher. Without it each record is a teacher. ``public.npz``
    also says whether labels may be unknown, and public samples shifted.
    """

    folder: Path

    def save(
        self,
        records: Records,
        geometry: Geometry,
        groups: NDArray[Any] | None,
        **facts: bool,
    ) -> dict[Path, str]:
        """Write records and their teachers ``groups`` ``[N]``; return digests of the files.

        ``facts`` are public: ``unknown_labels`` and ``shifted``.
        """
        order = np.arange(len(records))
        labels = records.labels.astype(np.uint8, copy=False)
        arrays: dict[str, NDArray[Any]] = {"labels": labels}
        if groups is not None:
            order = np.argsort(groups, kind="stable")
            arrays = {name: array[order] for name, array in arrays.items()}
            arrays["groups"] = np.unique(groups[order], return_inverse=True)[1]
        # left by an earlier plan that was interrupted
        (self.folder / "groups.npy").unlink(missing_ok=True)
        files = [self.folder / "public.npz", self.folder / "coordinates.npy"]
        public: dict[str, Any] = {name: getattr(geometry, name) for name in _GEOMETRY}
        with atomic_write(files[0]) as file:  # not deflated: that takes a third of a fit
            np.savez(file, **public | facts)
        shape = (len(records), geometry.num_directions)
        with atomic_write(files[1]) as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": "<i4", "fortran_order": False, "shape": shape}
            )
            for rows in blocks(len(records), sum(geometry.axes.shape)):
                coordinates = geometry.coordinates(records.features[order[rows]])
                file.write(coordinates.astype("<i4").tobytes())
        return {path: digest(path) for path in files} | _save_arrays(
            {self.folder / f"{name}.npy": array for name, array in arrays.items()}
        )

    def load(self, *, num_voters: int) -> Voters:
        """Return the voters, of a nominal number. The facts about each record stay on disk."""
        arrays: dict[str, Any] = read_arrays(self.folder / "public.npz", _GEOMETRY, _FACTS)
        facts: dict[str, Any] = {name: bool(arrays.pop(name, False)) for name in _FACTS}
        public = {name: array if array.ndim else array.item() for name, array in arrays.items()}
        facts |= {
            name: (read_array if name == "groups" else map_array)(path)
            for name in ("coordinates", "labels", "groups")
            if (path := self.folder / f"{name}.npy").is_file()
        }
        return (GroupVoters if "groups" in facts else RecordVoters)(
            geometry=Geometry(**public),
            num_voters=num_voters,
            num_labels=facts["labels"].shape[1],
            **facts,
        )


def fingerprint_of_voters(run: Run) -> str:
    """Return a digest of everything that determines the ballots of a run's voters. PRIVATE.

    Raises ``ValueError`` unless `pate teachers fit` has finished and its files are unchanged.
    """
    run.require_finished(TEACHERS_FIT)
    state = run.begun(TEACHERS_FIT)
    return digest(state.inputs.digest, json.dumps(state.files, sort_keys=True))


def load_voters(run: Run) -> Voters:
    """Return the voters of a run in closed form, from its public numbers and private files."""
    number = run.inputs_of(TEACHERS_FIT).settings["num_teachers"] or MOST_VOTERS
    return VoterStore(run.root / TEACHERS_FIT.outputs[0]).load(num_voters=number)


MOST_SAMPLES = 4_096
"""For scores without features: the time to find directions grows with its third power."""


def load_votes(
    run: Run,
    store: VoteStore,
    ids: StrArray,
    needs: frozenset[Need],
    *,
    predictions: Path | None = None,
    total: NoisyTotal | None = None,
) -> Votes:
    """Return the votes on samples with ``ids`` ``[Q]``, with the side information that is needed.

    Args:
        run: the run; features come from its public records unless the votes have their own.
        store: its votes.
        ids: ``[Q]``, ids of samples that were voted on.
        needs: the needs of the aggregator.
        predictions: the file of a student's predictions.
        total: the sum of silos that mask their votes.

    Raises:
        ValueError: if the votes are of another kind, or without their sum or side information, or
            the public records are not those that were voted on.
    """
    manifest = store.manifest()
    kind, samples = manifest.kind, np.array(manifest.ids)
    rows = rows_of(ids, samples)
    votes: Votes
    if issubclass(kind, Counts):
        # read before features, which do not help an aggregator that lacks ballots
        votes, _ = store.load(Counts if serves(Counts, needs) else Ballots, rows=rows)
        if "features" in needs:
            votes = votes.with_public(features=public_features(run, store, rows))
    elif kind is Moments:
        votes = Votes.from_voters(load_voters(run), public_features(run, store, rows))
    elif kind is Scores:  # of all samples: voters learn from them
        has_data = run.inputs_of(first_stage(run)).settings.get("data") is not None
        if store.has_features() or has_data:
            public = public_features(run, store, np.arange(len(samples)))
        else:  # each sample is a direction of its own
            public = np.eye(len(samples))
        votes = Votes.from_voters(ScoreVoters.of(store.scores(), public), public[rows])
    else:
        total = require_given(total, "`silos`, the folder that the silos of this run send through")
        votes = Votes.from_total(total, len(ids), manifest.shape)
    if predictions is None:
        return votes
    return votes.with_public(predictions=read_predictions(predictions, ids, manifest.label_names))


def public_features(run: Run, store: VoteStore, rows: IntArray) -> FloatArray:
    """Return the public features ``[Q, F]`` of ``rows`` ``[Q]`` of the votes, flattened.

    They come with the votes, or from the public records of the run.

    Raises ``ValueError`` if these are not the records that were voted on.
    """
    if (brought := store.features(rows)) is not None:
        return brought
    manifest, data = store.manifest(), load_data(run)
    # the ids of imported votes were compared with the ids of the records
    if first_stage(run) is not VOTES_IMPORT:
        require(
            data.fingerprint(Role.PUBLIC) == manifest.made_by.get("data"),
            f"the public records that the teachers of {run.root} voted on",
        )
    public = data.records(Role.PUBLIC)
    samples = public.features[rows_of(np.array(manifest.ids)[rows], public.ids)]
    return np.asarray(samples, dtype=np.float64).reshape(len(rows), -1)


def require_features(data: Json | None, name: str, kind: type[Votes], num_samples: int) -> None:
    """Raise ``ValueError`` if votes bring no features and no ``data`` of public records has them.

    Scores of few samples need none: each sample is then a direction of its own.

    Args:
        data: the description of the public records. None without.
        name: the aggregator that needs features.
        kind: the kind of the votes.
        num_samples: the number of samples that were voted on.
    """
    needed = (
        f", or scores of {MOST_SAMPLES} samples at most"
        if kind is Scores
        else f", which {name} needs; another `aggregator` may need none"
    )
    require(
        data is not None or (kind is Scores and num_samples <= MOST_SAMPLES),
        f"features [N, F] in the votes, or a data.yaml with their public records{needed}",
        features=None,
        samples=num_samples,
    )


def read_predictions(path: Path, wanted: StrArray, label_names: Sequence[str]) -> FloatArray:
    """Return a student's probabilities ``[Q, C]`` for the samples with the ids ``wanted`` ``[Q]``.

    Raises:
        ValueError: if the file, a sample or a label is missing.
    """
    require_predictions(path)
    arrays = read_arrays(path, ("ids", "probabilities", "label_names"), unread=("labels",))
    names = [str(name) for name in arrays["label_names"]]
    require(
        names == list(label_names),
        f"`predictions` of the labels {', '.join(label_names)}",
        label_names=names,
    )
    return np.asarray(
        arrays["probabilities"][rows_of(wanted, as_text(arrays["ids"]))], dtype=np.float64
    )


def require_predictions(path: Path) -> None:
    """Raise ``ValueError`` if a file of predictions is missing."""
    require(path.is_file(), "`predictions`, an .npz that `pate predict` wrote", missing=str(path))
