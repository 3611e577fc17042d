"""A student as one torch module, and its export as a program of torch or ONNX.

Feature map, gate and cuts are inside. Labels that may not depart keep the side of the constant
answer.
"""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn.functional import softplus

from pate._core.files.reading import Json, regular
from pate._core.files.writing import atomic_write, output_errors
from pate._core.validation import BoolArray, Float32Array, expecting, require
from pate._labeling.linear import LEAST, SHARPNESS
from pate._labeling.runs.carried import ExportedStudent, ExportFormat
from pate._networks.settings import restored_network


def gate(logits: Tensor, departs: Tensor, constants: Tensor) -> Tensor:
    """Return logits ``[B, C]``, bent to the constant answer's side for labels that do not depart.

    The constant answer decides such a label, and the network ranks its samples
    (`pate._labeling.linear.clamp_sign` in torch).

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
        features: the map from raw samples to the input of the network. None for the samples.
        network: from features ``[B, ...]`` to logits ``[B, C]``.
        cuts: ``[C]``. A label is given where its probability is above its cut.
    """

    def __init__(
        self, features: nn.Module | None, network: nn.Module, *, cuts: Sequence[float]
    ) -> None:
        super().__init__()
        self.features = nn.Identity() if features is None else features
        self.network = network
        self.cuts = nn.Buffer(torch.tensor(cuts, dtype=torch.float32), persistent=False)
        self.departs = nn.Buffer(torch.ones(len(cuts), dtype=torch.bool))
        self.constant_logits = nn.Buffer(torch.zeros(len(cuts)))

    def forward(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Return probabilities and labels, float32 and bool ``[B, C]``.

        Args:
            samples: float32 ``[B, ...]``, or pictures in uint8, with 255 as 1.
        """
        if samples.dtype == torch.uint8:
            samples = samples.float() / 255
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


def restore_module(
    path: Path, settings: Json, *, device: str, trust: bool | Collection[str]
) -> Predictor:
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
        module.load_state_dict(load_file(regular(path)))
    except (SafetensorError, OSError) as error:
        raise ValueError(f"Expected weights in {path}, got {error}") from None
    except RuntimeError as error:
        raise ValueError(
            f"Expected the layers that {path} has weights of, got"
            f" {' '.join(str(error).split())[:300]}"
        ) from None
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


METADATA = "pate.json"
"""Name of the metadata: an extra file of a torch program, a property of an ONNX model."""

_SUFFIXES: dict[str, str] = {"torch.export": ".pt2", "onnx": ".onnx"}


def export_program(student: ExportedStudent, output: Path, *, format: ExportFormat) -> None:
    """Write a student as a program that needs neither ``pate`` nor the class of its network.

    The input is named by its kind: ``pictures``, uint8 ``[N, 3, size, size]`` that are cropped and
    resized already, or ``features``, float32 ``[N, ...]``; N is any number. The outputs are
    ``probabilities``, float32 ``[N, C]``, and ``labels``, bool ``[N, C]``. The metadata `METADATA`
    describe them, with the names of the labels and the privacy statement.

    Args:
        student: the student, on the processor.
        output: the file.
        format: ``torch.export``, for ``torch.export.load``; or ``onnx``, which needs the extra
            ``onnx``.

    Raises:
        ValueError: in one line, if packages are missing, the suffix of the output does not fit the
            format, or the network cannot be exported.
    """
    suffix = _SUFFIXES[format]
    require(
        output.suffix == suffix,
        f"an output of format {format} that ends in {suffix}",
        output=str(output),
    )
    missing = [
        name for name in ("onnx", "onnxscript") if format == "onnx" and find_spec(name) is None
    ]
    require(
        not missing, "the packages of the extra onnx (pip install 'pate[onnx]')", missing=missing
    )
    input_format = student.input
    # torch might specialize a program traced on one sample to batches of one
    example = torch.zeros(
        2,
        *input_format.shape,
        dtype=torch.uint8 if input_format.kind == "pictures" else torch.float32,
    )
    try:
        with _quiet():
            program = torch.export.export(
                student.module,
                (example,),
                dynamic_shapes=({0: torch.export.Dim("N")},),
                strict=False,
            )
    # torch raises errors of many classes and any length
    except Exception as error:
        raise ValueError(
            f"Expected a network that torch.export takes, got {type(error).__name__}:"
            f" {str(error).strip().splitlines()[0]}"
        ) from None
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            node.meta.pop("stack_trace", None)  # paths on this machine
    metadata = describe_program(student)
    content = io.BytesIO()  # torch aborts the process where it cannot write to a file
    if format == "torch.export":
        torch.export.save(program, content, extra_files={METADATA: metadata})
    else:
        with _quiet():
            converted = torch.onnx.export(
                program,
                dynamo=True,
                input_names=[input_format.kind],
                output_names=["probabilities", "labels"],
                verbose=False,
            )
        assert converted is not None  # the result of an export by dynamo
        converted.model.metadata_props[METADATA] = metadata
        content.write(converted.model_proto.SerializeToString())
    with output_errors(output), atomic_write(output) as file:
        file.write(content.getbuffer())


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence logs and output of torch while it traces a network."""
    logging.disable(logging.WARNING)
    try:
        with redirect_stderr(io.StringIO()), warnings.catch_warnings():
            # torch 2.6 and 2.7, of transforms in a list: only the names of modules in its traces
            # are lost
            warnings.filterwarnings("ignore", "Unable to find the path of the module", UserWarning)
            yield
    finally:
        logging.disable(logging.NOTSET)


def describe_program(student: ExportedStudent) -> str:
    """Return the metadata of an exported student, as JSON."""
    return json.dumps(
        {
            "pate": student.settings["pate"],
            "input": {"name": student.input.kind} | student.input.to_dict(),
            "outputs": {
                "probabilities": "float32 [N, C]",
                "labels": "bool [N, C], probabilities above the cuts",
            },
            "cuts": student.settings["cuts"],
            "label_names": list(student.label_names),
            "privacy": student.describe(),
        },
        indent=2,
    )
