"""What teachers and students share in training: checkpoints, and augmentation.

Checkpoints of Lightning are written atomically and with relative paths. Random augmentation of
pictures is a public setting, and a function of the step.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO
from torch import Tensor, nn

from pate._core.files.writing import atomic_write
from pate._core.validation import require

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


Transforms = Sequence[Callable[[Tensor], Tensor]]
"""Each alters one picture ``[channels, height, width]``, like ``torchvision.transforms.v2``."""


def require_pictures(augment: Sequence[nn.Module] | None, input_shape: Sequence[int]) -> None:
    """Raise ``ValueError`` if records that are not pictures are to be augmented."""
    require(
        not augment or len(input_shape) == 3,
        "records of shape [channels, height, width] for augment, after any feature map",
        shape=tuple(input_shape),
    )


def augmented(pictures: Tensor, augment: Transforms, *seeds: int) -> Tensor:
    """Return pictures ``[B, channels, height, width]``, each altered by itself.

    The random draws depend only on the ``seeds``, and torch's own generator is left as it was.

    Raises ``ValueError`` if the shape of a picture is changed.
    """
    state = np.random.SeedSequence(seeds).generate_state(1, np.uint64)[0] >> np.uint64(1)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(state))
        altered = [_altered(picture, augment) for picture in pictures]
    shape = tuple(pictures.shape[1:])
    for picture in altered:
        require(
            picture.shape == shape,
            f"augment that leaves pictures in shape {shape}",
            shape=tuple(picture.shape),
        )
    return torch.stack(altered).to(pictures.dtype)


def _altered(picture: Tensor, augment: Transforms) -> Tensor:
    for alter in augment:
        picture = alter(picture)
    return picture
