"""Votes of trained teachers on public samples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from pate._typing import UInt8Array
from pate._vote_store import VoteStore
from pate._votes import pack_ballots
from pate.data._records import Features
from pate.teachers._chunk import TeacherChunk
from pate.teachers._devices import root_device
from pate.teachers._jobs import ChunkJob, Report
from pate.teachers._plan import TeacherPlan
from pate.teachers._training import load_chunk


@dataclass(frozen=True, kw_only=True)
class VoteJob(ChunkJob):
    """Lets the teachers of a chunk vote on all samples, and stores their packed votes.

    Attributes:
        plan: how the teachers were trained.
        teachers_folder: the folder of the chunks' files.
        samples: features of the public samples, ``[Q, ...]``.
        num_labels: number of labels of a sample.
        store: where the votes are stored.
        absent: numbers of the teachers that cast no vote: their rows are zeros. PRIVATE.
        made_from: a digest of the teachers, the samples and the absent teachers, stored beside the votes.
    """

    public: ClassVar[bool] = True

    plan: TeacherPlan
    teachers_folder: Path
    samples: Features
    num_labels: int
    store: VoteStore
    absent: tuple[int, ...] = ()
    made_from: str = ""

    @property
    def num_steps(self) -> int:
        """Always one: a chunk votes in one step."""
        return 1

    def is_done(self, teachers: range) -> bool:
        """Whether the votes of the chunk are stored."""
        return self.store.has_chunk(teachers)

    def work(self, teachers: range, report: Report) -> None:
        """Cast and store the votes of the chunk of ``teachers``. Raises ``ValueError`` like `load_chunk`."""
        shape = tuple(self.samples.shape[1:])
        chunk = load_chunk(self.plan, teachers, shape, self.num_labels, self.teachers_folder)
        packed = cast_votes(chunk.to(root_device(self.plan.accelerator)), self.samples)
        packed[np.isin(teachers, self.absent)] = 0
        self.store.save_chunk(teachers, packed, made_from=self.made_from)
        report(1)


@torch.no_grad()
def cast_votes(chunk: TeacherChunk, features: Features, *, batch_size: int = 256) -> UInt8Array:
    """Return the packed votes of a chunk's teachers, ``[chunk, Q, ceil(C / 8)]``.

    A teacher gives a label if its logit is above zero. A teacher without records, or whose weights are not finite,
    gives no label at all: a public rule, not an error.
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
