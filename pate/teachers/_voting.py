"""Votes of trained teachers on public samples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from pate._validation import UInt8Array
from pate._votes import Voting, highest, pack_ballots
from pate._votes.store import VoteStore
from pate._votes.voters import encode_scores
from pate.data._records import Features
from pate.teachers._chunk import TeacherChunk
from pate.teachers._devices import root_device
from pate.teachers._jobs import ChunkJob, Report
from pate.teachers._plan import TeacherPlan
from pate.teachers._training import load_chunk


@dataclass(frozen=True, kw_only=True)
class VoteJob(ChunkJob):
    """Lets the teachers of a chunk vote on all samples, and stores their votes.

    Attributes:
        plan: how the teachers were trained.
        teachers_folder: the folder of the chunks' files.
        samples: features of the public samples, ``[Q, ...]``.
        num_labels: number of labels of a sample.
        store: where the votes are stored.
        voting: how they vote.
        absent: numbers of the teachers that cast no vote: their rows are zeros. PRIVATE.
        made_from: a digest of the teachers, the samples and the absent teachers, stored with the
            votes.
    """

    public: ClassVar[bool] = True

    plan: TeacherPlan
    teachers_folder: Path
    samples: Features
    num_labels: int
    store: VoteStore
    voting: Voting = "bits"
    absent: tuple[int, ...] = ()
    made_from: str = ""

    @property
    def num_steps(self) -> int:
        """Always one: a chunk votes in one step."""
        return 1

    def is_done(self, teachers: range) -> bool:
        """Whether the votes of the chunk are stored."""
        return self.store.has_chunk(teachers)

    def lease_file(self, teachers: range) -> Path:
        """Return the file that names the process that lets a chunk vote together with others."""
        return self.store.chunk_file(teachers).with_suffix(".lease")

    def work(self, teachers: range, report: Report) -> None:
        """Cast and store the votes of the chunk of ``teachers``.

        Raises ``ValueError`` like `load_chunk`.
        """
        shape = tuple(self.samples.shape[1:])
        chunk = load_chunk(self.plan, teachers, shape, self.num_labels, self.teachers_folder)
        votes = cast_votes(chunk.to(root_device(self.plan.accelerator)), self.samples, self.voting)
        votes[np.isin(teachers, self.absent)] = 0
        self.store.save_chunk(teachers, votes, made_from=self.made_from)
        report(1)


@torch.no_grad()
def cast_votes(
    chunk: TeacherChunk, features: Features, voting: Voting = "bits", *, batch_size: int = 256
) -> UInt8Array:
    """Return a chunk's votes: packed ``[chunk, Q, ceil(C / 8)]``, or scores ``[chunk, Q, C]``.

    With ``bits`` a teacher gives a label if its logit is above zero; ``scores`` are its
    probabilities, as `encode_scores` returns them. With ``quantile_bits`` it gives a label to the
    samples of its largest logits, and to such a share of them as has the label among its own
    records; for these, the logits of the chunk are held at once.

    A teacher without records, or with weights that are not finite, gives no label or score at all,
    and none of a label that no record of its own knows: a public rule, not an error.
    """
    chunk.eval()
    trained = chunk.is_trained()[:, None]
    parts = []
    for start in range(0, features.shape[0], batch_size):
        index = np.arange(start, min(start + batch_size, features.shape[0]))
        logits: torch.Tensor = chunk(torch.from_numpy(features[index]).to(chunk.device)[None])
        if voting == "bits":
            parts.append(pack_ballots(((logits > 0) & trained).cpu().numpy()))
        elif voting == "scores":
            parts.append(
                encode_scores(torch.where(trained, logits, torch.nan).sigmoid().cpu().numpy())
            )
        else:
            parts.append(logits.cpu().numpy())
    votes = np.concatenate(parts, axis=1)
    if voting != "quantile_bits":
        return votes
    shares = torch.where(trained[:, 0], chunk.label_shares, 0).cpu().numpy()
    return np.stack(
        [pack_ballots(highest(*teacher)) for teacher in zip(votes, shares, strict=True)]
    )
