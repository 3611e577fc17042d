"""The answers of a network: labels that may not depart keep the side of the constant answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn.functional import softplus

from pate._files import Json
from pate._linear import LEAST, SHARPNESS
from pate._network_settings import restored_network
from pate._validation import BoolArray, Float32Array, expecting, require

_WHITE = 255


def gate(logits: Tensor, departs: Tensor, constants: Tensor) -> Tensor:
    """Return logits ``[B, C]``, bent to the constant answer's side for labels that do not depart.

    The constant answer decides such a label, and the network ranks its samples
    (`pate._linear.clamp_sign` in torch).

    Args:
        logits: ``[B, C]``, of the network.
        departs: ``[C]``, whether the network may decide a label.
        constants: ``[C]``, the logits of the constant answer; minus infinity where nothing was
            released.
    """
    sharp = SHARPNESS * logits
    bent = torch.where(
        constants > 0, softplus(sharp) / SHARPNESS + LEAST, -softplus(-sharp) / SHARPNESS
    )
    return torch.where(departs, logits, torch.where(constants == -torch.inf, constants, bent))


class Predictor(nn.Module):
    """A student as one module from raw samples to answers, with feature map, gate and cuts.

    Args:
        features: the map from raw samples to the input of the network; None for the samples.
        network: from features ``[B, ...]`` to logits ``[B, C]``.
        cuts: ``[C]``; a label is given where its probability is above its cut.
    """

    cuts: Tensor
    departs: Tensor
    constant_logits: Tensor

    def __init__(
        self, features: nn.Module | None, network: nn.Module, *, cuts: Sequence[float]
    ) -> None:
        super().__init__()
        self.features = nn.Identity() if features is None else features
        self.network = network
        self.register_buffer("cuts", torch.tensor(cuts, dtype=torch.float32), persistent=False)
        self.register_buffer("departs", torch.ones(len(cuts), dtype=torch.bool))
        self.register_buffer("constant_logits", torch.zeros(len(cuts)))

    def forward(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Return probabilities and labels, float32 and bool ``[B, C]``.

        Args:
            samples: float32 ``[B, ...]``, or pictures in uint8, with 255 as 1.
        """
        if samples.dtype == torch.uint8:
            samples = samples.float() / _WHITE
        logits = gate(self.network(self.features(samples)), self.departs, self.constant_logits)
        probabilities = logits.sigmoid()
        return probabilities, probabilities > self.cuts


@dataclass(frozen=True, eq=False)
class ModulePredictor:
    """A student as a torch module, from raw samples to answers in numpy.

    Attributes:
        module: a `Predictor`, which returns probabilities and labels.
        device: where it computes.
    """

    module: nn.Module
    device: str

    def __call__(self, samples: NDArray[Any]) -> tuple[Float32Array, BoolArray]:
        """Return probabilities and labels, float32 and bool ``[B, C]``."""
        with torch.inference_mode():
            probabilities, labels = self.module(torch.from_numpy(np.array(samples)).to(self.device))
        return probabilities.cpu().numpy(), labels.cpu().numpy()


def restore_module(path: Path, settings: Json, *, device: str, trust: bool) -> Predictor:
    """Return the student of a ``model.json``, with its weights.

    Args:
        path: the file of weights.
        settings: the content of ``model.json``.
        device: torch's name of where it computes.
        trust: whether networks and feature maps of other packages are imported and called too.

    Raises:
        ValueError: in one line, if file and settings do not fit together or cannot be used here.
    """
    shape, mapped = tuple(settings["input"]["shape"]), settings["features"]
    features = None if mapped is None else restored_network(mapped, shape, trust=trust)
    inputs, num_labels = tuple(settings["network_input"]), len(settings["label_names"])
    network = restored_network(settings["network"], inputs, num_labels, trust=trust)
    module = Predictor(features, network, cuts=settings["cuts"])
    try:
        module.load_state_dict(load_file(path))
    except (SafetensorError, OSError) as error:
        raise ValueError(f"Expected weights in {path}, got {error}") from None
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"Expected the layers that {path} has weights of, got {reason}") from None
    # torch reports a missing device in several ways
    with expecting(
        "a device of this machine", RuntimeError, AssertionError, got=f"device={device!r}"
    ):
        return module.to(torch.device(device)).eval().requires_grad_(False)


def weights_of_tensors(state: Mapping[str, Any]) -> bytes:
    """Return tensors, and arrays among them, as the content of a file of weights.

    Raises:
        ValueError: if a part is neither.
    """
    others = [name for name, part in state.items() if not isinstance(part, Tensor | np.ndarray)]
    require(not others, "a network whose state is tensors only", others=others[:3])
    # tensors that share memory, as tied layers do, have bytes of their own in the file
    return save(
        {
            name: torch.as_tensor(part).detach().cpu().contiguous().clone()
            for name, part in state.items()
        }
    )
