"""Random augmentation of pictures in training: a public setting, and a function of the step."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from pate._core.validation import require

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
