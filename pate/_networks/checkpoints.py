"""Checkpoints of Lightning, written atomically and with relative paths."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO

from pate._core.files.writing import atomic_write

_PLACES = ("dirpath", "best_model_path", "kth_best_model_path", "last_model_path")


class LocalCheckpoints(TorchCheckpointIO):
    """Writes each checkpoint through a draft in its own folder, with relative paths inside.

    Lightning uses the system's temporary folder, where a killed process would leave PRIVATE
    weights, and which may lie on another, smaller disk. Paths are relative to the checkpoint's
    folder, so that a checkpoint reveals nothing of the machine and may move with its run.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write the checkpoint, atomically."""
        folder = os.path.realpath(Path(path).parent)
        with atomic_write(Path(path)) as file:
            torch.save(_with_places(checkpoint, lambda place: os.path.relpath(place, folder)), file)

    def load_checkpoint(self, path: str | Path, *args: Any, **options: Any) -> dict[str, Any]:
        """Return the checkpoint, with paths from its present folder."""
        folder = os.path.realpath(Path(path).parent)
        content = super().load_checkpoint(path, *args, **options)
        return _with_places(content, lambda place: os.path.normpath(os.path.join(folder, place)))


def _with_places(checkpoint: dict[str, Any], move: Callable[[str], str]) -> dict[str, Any]:
    """Return a checkpoint with the places in its callbacks replaced by ``move``."""
    callbacks = {}
    for name, state in checkpoint.get("callbacks", {}).items():
        callbacks[name] = state | {key: move(state[key]) for key in _PLACES if state.get(key)}
        if "best_k_models" in state:
            callbacks[name]["best_k_models"] = {
                move(place): score for place, score in state["best_k_models"].items()
            }
    return checkpoint | {"callbacks": callbacks}
