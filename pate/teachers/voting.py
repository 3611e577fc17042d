"""Votes of trained teachers on public samples."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from pate.data.records import Features
from pate.teachers.chunk import TeacherChunk
from pate.teachers.devices import root_device
from pate.teachers.training import TeacherPlan, load_chunk
from pate.vote_store import VoteStore
from pate.votes import pack_ballots

UInt8Array = NDArray[np.uint8]


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
    plan: TeacherPlan,
    teachers: range,
    features: Features,
    num_labels: int,
    folder: Path,
    store: VoteStore,
    *,
    absent: Collection[int] = (),
    made_from: str = "",
) -> None:
    """Load the teachers of a chunk from ``folder``, let them vote on ``features`` ``[Q, ...]`` and keep their votes.

    Teachers that are ``absent`` cast no vote: a row of zeros. ``made_from`` is a digest of the teachers, the samples
    and who is absent, kept beside the votes.
    """
    chunk = load_chunk(plan, teachers, tuple(features.shape[1:]), num_labels, folder)
    chunk = chunk.to(root_device(plan.accelerator))
    packed = cast_votes(chunk, features)
    packed[np.isin(teachers, list(absent))] = 0
    store.save_chunk(teachers, packed, made_from=made_from)
