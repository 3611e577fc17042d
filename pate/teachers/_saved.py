"""The file of a trained chunk, and its checkpoint. PRIVATE."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor

from pate._files.os_errors import explain_shortage
from pate._files.writing import atomic_write
from pate._validation import require

ORIGIN = "made_from"
"""The entry of a chunk's files and checkpoints with the digest of partition key, plan and data."""


@dataclass(frozen=True, kw_only=True)
class SavedChunk:
    """The stored content of a trained chunk.

    Attributes:
        made_from: digest of the key, the plan and the data.
        state: weights and buffers of the teachers, by name.
        label_shares: ``[chunk, C]``, of each teacher's own records; NaN without records.
        losses: ``[points, chunk]`` float32, the loss curves.
    """

    made_from: str
    state: dict[str, Tensor]
    label_shares: Tensor
    losses: Tensor

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        with atomic_write(path) as file:
            content = {
                "state": self.state,
                "label_shares": self.label_shares,
                "losses": self.losses,
            }
            torch.save({ORIGIN: self.made_from, **content}, file)

    @classmethod
    def read(cls, path: Path) -> SavedChunk:
        """Read a chunk's file; large arrays are read when they are used.

        Raises ``ValueError`` if it cannot be read.
        """
        content = _load(path)
        state, shares, losses = (
            content.get("state"),
            content.get("label_shares"),
            content.get("losses"),
        )
        complete = (
            isinstance(state, dict) and isinstance(shares, Tensor) and isinstance(losses, Tensor)
        )
        require(
            complete,
            f"the weights of a chunk of teachers in {path}",
            keys=sorted(map(str, content)),
        )
        assert isinstance(state, dict) and isinstance(shares, Tensor) and isinstance(losses, Tensor)
        return cls(
            made_from=str(content.get(ORIGIN, "")), state=state, label_shares=shares, losses=losses
        )


def chunk_file(folder: Path, teachers: range) -> Path:
    """Return the file of a chunk's weights. Its existence means that the chunk is done."""
    return folder / f"teachers_{teachers.start:05d}.pt"


def read_origin(path: Path) -> str:
    """Return the ``made_from`` of a chunk's file or checkpoint, empty if it has none.

    Raises ``ValueError`` if it cannot be read.
    """
    return str(_load(path).get(ORIGIN, ""))


def foreign_files(folder: Path, made_from: str) -> list[str]:
    """Return the chunks' files and checkpoints in ``folder`` that have another digest."""
    files = sorted([*folder.glob("teachers_*.pt"), *folder.glob("teachers_*.ckpt")])
    return [path.name for path in files if read_origin(path) != made_from]


def _load(path: Path) -> dict[str, object]:
    try:
        content: dict[str, object] = torch.load(
            path, weights_only=True, map_location="cpu", mmap=True
        )
    # the exception that torch raises depends on where the file is truncated
    except (RuntimeError, OSError, EOFError, ValueError, KeyError, UnpicklingError) as error:
        if explain_shortage(error) is not None:
            raise  # it is the machine that fails, not the file
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"Expected a chunk of teachers in {path}, got a damaged file ({reason[:80]}):"
            " delete it, and `pate teachers fit` makes it again"
        ) from None
    return content
