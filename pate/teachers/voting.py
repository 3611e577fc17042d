"""Votes of trained teachers on public samples, and the folder in which they are kept, bit-packed, per teacher."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from pate.data.module import Features
from pate.runs import replacing, write_json
from pate.teachers.chunk import TeacherChunk
from pate.teachers.devices import root_device
from pate.teachers.training import TeacherPlan, load_chunk
from pate.validation import expect
from pate.votes import Votes, count_packed, pack_ballots, unpack_ballots

UInt8Array = NDArray[np.uint8]

_MANIFEST = "manifest.json"


@torch.no_grad()
def cast_votes(chunk: TeacherChunk, features: Features, *, batch_size: int = 256) -> UInt8Array:
    """Return the packed votes of a chunk's teachers, ``[chunk, Q, ceil(C / 8)]``.

    A teacher says yes where its logit is above zero. One that had no records or whose weights are not finite says no to
    everything: a public constant, not an error.
    """
    chunk.eval()
    trained = chunk.is_trained()[:, None, None]
    packed = []
    for start in range(0, features.shape[0], batch_size):
        index = np.arange(start, min(start + batch_size, features.shape[0]))
        logits: torch.Tensor = chunk(torch.from_numpy(features[index]).to(chunk.device)[None])
        yes = (logits > 0) & trained
        packed.append(pack_ballots(yes.cpu().numpy()))
    return np.concatenate(packed, axis=1)


def vote_chunk(
    plan: TeacherPlan, teachers: range, features: Features, num_labels: int, folder: Path, store: VoteStore
) -> None:
    """Load the teachers of a chunk from ``folder``, let them vote on ``features`` ``[Q, ...]`` and keep their votes."""
    chunk = load_chunk(plan, teachers, tuple(features.shape[1:]), num_labels, folder)
    chunk = chunk.to(root_device(plan.accelerator))
    store.save_chunk(teachers, cast_votes(chunk, features))


@dataclass(frozen=True)
class VoteStore:
    """Votes on disk: one ``.npy`` of packed ballots per chunk, and a manifest that says what made them."""

    folder: Path

    def chunk_file(self, teachers: range) -> Path:
        """Return where the votes of a chunk are kept. The file's existence means that they are all there."""
        return self.folder / f"votes_{teachers.start:05d}.npy"

    def save_chunk(self, teachers: range, packed: UInt8Array) -> None:
        """Write the packed votes of a chunk."""
        with replacing(self.chunk_file(teachers)) as file:
            np.save(file, packed)

    def seal(self, *, ids: list[str], label_names: list[str], num_teachers: int, made_by: dict[str, str]) -> None:
        """Write the manifest: the samples voted on, and hashes of the teachers, the data and the code."""
        content = {"num_teachers": num_teachers, "label_names": label_names, "made_by": made_by, "ids": ids}
        write_json(self.folder / _MANIFEST, content)

    def manifest(self) -> dict[str, object]:
        """Return the manifest."""
        content: dict[str, object] = json.loads((self.folder / _MANIFEST).read_text())
        return content

    def load(self, *, ballots: bool = False) -> tuple[Votes, list[str]]:
        """Return the votes on all samples and the samples' ids; with what each teacher said if ``ballots``."""
        manifest = self.manifest()
        ids, num_labels = list(manifest["ids"]), len(manifest["label_names"])  # type: ignore[call-overload, arg-type]
        counts = np.zeros((len(ids), num_labels), dtype=np.uint16)
        said, num_teachers = [], 0
        for path in sorted(self.folder.glob("votes_*.npy")):
            packed = np.load(path)
            expect(packed.shape[1] == len(ids), f"votes on {len(ids)} samples in {path.name}", found=packed.shape[1])
            counts += count_packed(packed, num_labels)
            num_teachers += len(packed)
            if ballots:
                said.append(unpack_ballots(packed, num_labels))
        expect(
            num_teachers == manifest["num_teachers"],
            f"votes of {manifest['num_teachers']} teachers",
            found=num_teachers,
        )
        together = np.concatenate(said).transpose(1, 0, 2) if ballots else None
        return Votes(counts=counts, num_teachers=num_teachers, ballots=together), ids
