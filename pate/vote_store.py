"""Votes on disk: the packed ballots of chunks of teachers, and a manifest that describes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from pate.runs import Json, digest, replacing, write_json
from pate.typing import IntArray, UInt8Array
from pate.validation import expect
from pate.votes import Panel, Votes, teacher_blocks, unpack_ballots

_MANIFEST = "manifest.json"


@dataclass(frozen=True, kw_only=True)
class VoteManifest:
    """A description of votes on disk and of what they were made from.

    Attributes:
        num_teachers: the nominal number of teachers, absent ones included.
        label_names: names of the labels, in the order of the ballots' columns.
        made_by: hashes of the ``teachers``, the ``data`` and the ``code``.
        chunks: digests of the files of votes, by file name. PRIVATE.
        ids: ids of the samples that were voted on, in the order of the ballots' rows.
    """

    num_teachers: int
    label_names: Sequence[str]
    made_by: Mapping[str, str]
    chunks: Mapping[str, str]
    ids: Sequence[str]

    @property
    def panel(self) -> Panel:
        """The numbers of teachers and labels."""
        return Panel(self.num_teachers, len(self.label_names))

    def write(self, path: Path) -> None:
        """Write the manifest as JSON, whole or not at all."""
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> VoteManifest:
        """Read a manifest. Raises ``ValueError`` if it is missing or malformed."""
        content = _read(path)
        found: Json = {field.name: content.get(field.name) for field in fields(cls)}
        try:
            for name in ("label_names", "ids"):
                right = isinstance(found[name], list) and all(isinstance(each, str) for each in found[name])
                expect(right, f"{name} as a list of texts", **{name: type(found[name]).__name__})
            for name in ("made_by", "chunks"):
                right = isinstance(found[name], dict) and all(isinstance(each, str) for each in found[name].values())
                expect(right, f"{name} as texts by name", **{name: type(found[name]).__name__})
            Panel(found["num_teachers"], len(found["label_names"]))
        except ValueError as error:
            raise _damaged(path, error) from None
        return cls(**found)


@dataclass(frozen=True)
class VoteStore:
    """Votes on disk: one ``.npy`` of packed ballots per chunk, and a `VoteManifest`.

    Beside each ``votes_00000.npy`` lies ``votes_00000.json`` with what it was made from and a digest of its content;
    the manifest holds all digests.
    """

    folder: Path

    def chunk_file(self, teachers: range) -> Path:
        """Return the file of a chunk's packed votes, ``[chunk, Q, ceil(C / 8)]`` uint8."""
        return self.folder / f"votes_{teachers.start:05d}.npy"

    @property
    def manifest_file(self) -> Path:
        """The file of the manifest."""
        return self.folder / _MANIFEST

    def has_chunk(self, teachers: range) -> bool:
        """Whether the votes of a chunk are complete."""
        path = self.chunk_file(teachers)
        return path.is_file() and path.with_suffix(".json").is_file()

    def save_chunk(self, teachers: range, packed: UInt8Array, *, made_from: str = "") -> None:
        """Write the packed votes of a chunk, and beside them a record of what they were made from."""
        path = self.chunk_file(teachers)
        with replacing(path) as file:
            np.save(file, packed)
        write_json(path.with_suffix(".json"), {"made_from": made_from, "digest": digest(path)})

    def origins(self) -> dict[str, str]:
        """Return what each stored chunk was made from, by file name; an empty string if the record is damaged."""
        found = {}
        for path in self._marks():
            try:
                origin = str(_read(path).get("made_from", ""))
            except ValueError:
                origin = ""
            found[path.with_suffix(".npy").name] = origin
        return found

    def seal(
        self, *, ids: Sequence[str], label_names: Sequence[str], num_teachers: int, made_by: Mapping[str, str]
    ) -> dict[Path, str]:
        """Write the manifest of the stored chunks.

        Return the files of votes and the manifest with their digests. Raises ``ValueError`` if votes have changed since
        they were cast.
        """
        chunks = {path.with_suffix(".npy").name: str(_read(path).get("digest", "")) for path in self._marks()}
        self._check(chunks)
        path = self.manifest_file
        VoteManifest(num_teachers=num_teachers, label_names=label_names, made_by=made_by, chunks=chunks, ids=ids).write(
            path
        )
        return {self.folder / name: found for name, found in chunks.items()} | {path: digest(path)}

    def check(self) -> None:
        """Raise ``ValueError`` unless all votes are stored as they were cast, bit for bit."""
        self._check(self.manifest().chunks)

    def _check(self, chunks: Mapping[str, str]) -> None:
        for name, cast in chunks.items():
            path = self.folder / name
            # digests of votes are PRIVATE, and not to be printed
            whole = path.is_file() and digest(path) == cast
            again = "Delete it, and `pate teachers vote` makes it again"
            expect(whole, f"the votes that were cast. {again}", changed_or_missing=str(path))

    def _marks(self) -> list[Path]:
        return sorted(self.folder.glob("votes_*.json"))

    def manifest(self) -> VoteManifest:
        """Return the manifest. Raises ``ValueError`` if it is missing or damaged."""
        return VoteManifest.read(self.manifest_file)

    def load(self, *, rows: IntArray | None = None, ballots: bool = False) -> tuple[Votes, list[str]]:
        """Return the votes on some samples, and the ids of those samples.

        The files stay on disk: nothing of other samples is unpacked or kept.

        Args:
            rows: ``[Q]``, indices among the samples of the manifest; None for all samples.
            ballots: whether to return the ballots ``[Q, T, C]`` too.

        Raises:
            ValueError: if votes are missing, or do not have the shape that the manifest says.
        """
        manifest = self.manifest()
        ids, num_labels, num_teachers = manifest.ids, manifest.panel.num_labels, manifest.num_teachers
        chosen = np.arange(len(ids)) if rows is None else np.asarray(rows)
        counts = np.zeros((len(chosen), num_labels), dtype=np.int64)
        said = np.empty((len(chosen), num_teachers if ballots else 0, num_labels), dtype=np.uint8)
        found, width = 0, -(-num_labels // 8)
        files = sorted(self.folder.glob("votes_*.npy"), key=_first_teacher)
        for path, packed in ((path, np.load(path, mmap_mode="r")) for path in files):
            wanted = packed.dtype == np.uint8 and packed.ndim == 3 and packed.shape[1:] == (len(ids), width)
            expect(wanted, f"votes on {len(ids)} samples, {width} bytes each, in {path.name}", found=packed.shape)
            expect(found + len(packed) <= num_teachers, f"votes of {num_teachers} teachers", found=found + len(packed))
            for block in teacher_blocks(len(packed), counts.size):
                own = unpack_ballots(packed[block] if rows is None else packed[block, chosen], num_labels)
                counts += own.sum(axis=0, dtype=np.int64)
                if ballots:
                    said[:, found : found + len(own)] = own.transpose(1, 0, 2)
                found += len(own)
        expect(found == num_teachers, f"votes of {num_teachers} teachers", found=found)
        votes = Votes(counts=counts, num_teachers=num_teachers, ballots=said if ballots else None)
        return votes, [ids[row] for row in chosen]


def _read(path: Path) -> Json:
    try:
        content: Json = json.loads(path.read_text())
        expect(isinstance(content, dict), "an object", found=type(content).__name__)
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from None
    return content


def _damaged(path: Path, error: Exception) -> ValueError:
    again = "`pate teachers vote --overwrite` makes it again"
    return ValueError(f"Expected what `pate teachers vote` left in {path}, got {error}: {again}")


def _first_teacher(path: Path) -> int:
    return int(path.stem.removeprefix("votes_"))
