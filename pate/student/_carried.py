"""A student that has left its run: its folder, and predictions from it, offline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from pate._files.json import Json, read_json
from pate._network_settings import restored_network
from pate._typing import Float32Array, UInt8Array
from pate._validation import require, require_count, require_known, require_label_names
from pate.accounting._statement import Statement
from pate.student._answers import Answers
from pate.student._decisions import PURPOSES
from pate.student._samples import InputFormat, Kind, Samples

SETTINGS, WEIGHTS, STATEMENT, STATEMENT_TEXT = (
    "model.json",
    "model.safetensors",
    "privacy.json",
    "privacy.txt",
)
"""The files of a carried student."""

FORMAT = 2
"""The version of the folder's format, which is raised when an older ``pate`` could not read it."""

_BATCH = 256


@dataclass(frozen=True, eq=False)
class CarriedStudent:
    """A student with all that a prediction needs; `load_student` makes it.

    Attributes:
        label_names: names of the ``C`` labels.
        input: what it takes: pictures, texts or features, and their shape.
        statement: the content of ``privacy.json``: what the labels that it learned from cost. Its
            `verify` makes it again from the releases that it lists.
        settings: the content of ``model.json``.
        module: the student as one torch module, from raw samples to probabilities and labels.
        device: where it computes.
    """

    label_names: tuple[str, ...]
    input: InputFormat
    statement: Statement = field(repr=False)
    settings: Mapping[str, Any] = field(repr=False)
    module: Answers = field(repr=False)
    device: torch.device

    def predict(self, samples: Samples, *, batch_size: int = _BATCH) -> UInt8Array:
        """Return labels ``[N, C]`` in {0, 1}; see `predict_proba` for what samples may be."""
        return self.answer(samples, batch_size=batch_size)[1]

    def predict_proba(self, samples: Samples, *, batch_size: int = _BATCH) -> Float32Array:
        """Return probabilities ``[N, C]``.

        Args:
            samples: an array ``[N, ...]`` as the student was trained on. Of pictures uint8 ``[N, 3,
                size, size]``, floats in [0, 1], or uint8 ``[N, height, width, 3]`` of any size; or
                a list of PIL pictures or of paths. Of texts, a list of them.
            batch_size: samples at a time.

        Raises:
            ValueError: in one line, if the samples do not fit.
        """
        return self.answer(samples, batch_size=batch_size)[0]

    def answer(
        self, samples: Samples, *, batch_size: int = _BATCH
    ) -> tuple[Float32Array, UInt8Array]:
        """Return probabilities and labels ``[N, C]`` of the same samples; see `predict_proba`."""
        require_count(1, batch_size=batch_size)
        array = isinstance(samples, np.ndarray | Tensor) and samples.ndim > 0
        listed = array or (isinstance(samples, Sequence) and not isinstance(samples, str))
        require(listed, "samples in a list or an array", samples=type(samples).__name__)
        num = len(samples)
        probabilities = np.empty((num, len(self.label_names)), dtype=np.float32)
        labels = np.empty(probabilities.shape, dtype=np.uint8)
        for start in range(0, num, batch_size):
            rows = slice(start, start + batch_size)
            batch = torch.from_numpy(np.array(self.input.batch(samples[rows]))).to(self.device)
            with torch.inference_mode():
                batch_probabilities, batch_labels = self.module(batch)
            probabilities[rows], labels[rows] = (
                batch_probabilities.cpu().numpy(),
                batch_labels.cpu().numpy(),
            )
        return probabilities, labels

    def describe(self) -> str:
        """Return the privacy statement as text, the content of ``privacy.txt``."""
        return self.statement.text


def load_student(folder: Path | str, *, device: str = "cpu", trust: bool = False) -> CarriedStudent:
    """Return the student in a folder that `pate student fit` left, such as ``runs/faces/public/student/model``.

    Neither the run nor its data are needed, and nothing is downloaded. The folder is data: of what
        it names, networks
    and transforms of pate and torchvision alone are imported and called.

    Args:
        folder: the folder.
        device: torch's name of where it computes, such as ``cuda``.
        trust: whether networks and feature maps of other packages are imported and called too.

    Raises:
        ValueError: in one line, if the folder holds no whole student, or its network's class is not
            trusted or cannot be imported.
    """
    root = Path(folder)
    settings = _read_settings(root)
    statement = Statement.read(_file(root / STATEMENT))
    _file(root / STATEMENT_TEXT)
    input_format, names = InputFormat.from_dict(settings["input"]), tuple(settings["label_names"])
    mapped = settings["features"]
    features = None if mapped is None else restored_network(mapped, input_format.shape, trust=trust)
    network = restored_network(
        settings["network"], tuple(settings["network_input"]), len(names), trust=trust
    )
    module = Answers(features, network, cuts=settings["cuts"])
    try:
        module.load_state_dict(_read_weights(root / WEIGHTS))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(
            f"Expected the layers that {root / WEIGHTS} has weights of, got {reason}"
        ) from None
    try:
        place = torch.device(device)
        module = module.to(place).eval().requires_grad_(False)
    # torch reports a missing device in several ways
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"Expected a device of this machine, got device={device!r} ({error})"
        ) from None
    return CarriedStudent(names, input_format, statement, settings, module, place)


def _file(path: Path) -> Path:
    require(
        path.is_file(),
        "the model/ that `pate student fit` leaves in public/student of a run",
        missing=str(path),
    )
    return path


def _read_json(path: Path) -> Json:
    try:
        content: Json = read_json(_file(path).read_text())
    except ValueError as error:
        raise ValueError(f"Expected JSON in {path}, got {error}") from None
    require(isinstance(content, dict), f"an object in {path}", type=type(content).__name__)
    return content


def _read_settings(root: Path) -> Json:
    path = root / SETTINGS
    content = _read_json(path)
    version = content.get("format")
    require(
        version == FORMAT,
        f"a student of format {FORMAT}, which this version of pate reads",
        format=version,
    )
    missing = [name for name in _KEYS if name not in content]
    require(not missing, f"{', '.join(_KEYS)} in {path}", missing=missing)
    require_known(f"keys of {path}", content, [*_KEYS, "format", "pate", "constant_decisions"])
    wrong = [name for name, right in _KEYS.items() if not right(content[name])]
    require(not wrong, f"settings of a student in {path}", wrong=wrong)
    require_label_names(f"label names of {path}", content["label_names"])
    num_cuts, num_labels = len(content["cuts"]), len(content["label_names"])
    require(
        num_cuts == num_labels, f"a cut for each of {num_labels} labels in {path}", cuts=num_cuts
    )
    return content


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) > 0
        and all(type(size) is int and size > 0 for size in value)
    )


def _is_network(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, dict) and isinstance(value.get("class_path"), str)
    )


_KEYS: dict[str, Callable[[Any], bool]] = {
    "input": lambda value: (
        isinstance(value, dict)
        and value.get("kind") in get_args(Kind)
        and _is_shape(value.get("shape"))
    ),
    "features": lambda value: value is None or _is_network(value),
    "network": _is_network,
    "network_input": _is_shape,
    "label_names": lambda value: (
        isinstance(value, list) and all(isinstance(name, str) for name in value)
    ),
    "optimize": lambda value: value in PURPOSES,
    "cuts": lambda value: (
        isinstance(value, list) and all(type(cut) is float and 0 <= cut <= 1 for cut in value)
    ),
}
"""The required keys of ``model.json``, and a check of each value."""


def _read_weights(path: Path) -> dict[str, Tensor]:
    try:
        weights: dict[str, Tensor] = load_file(_file(path))
    except (SafetensorError, OSError) as error:
        raise ValueError(f"Expected weights in {path}, got {error}") from None
    return weights
