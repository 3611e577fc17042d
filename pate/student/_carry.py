"""The export of a trained student, for use without the run and its data. PUBLIC."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from pate._files import Json, atomic_folder
from pate._validation import BoolArray, Float32Array
from pate._version import __version__
from pate.data import DataSource, Role
from pate.data.features._saved import save_map
from pate.student._carried import FORMAT, SENTENCES, SETTINGS, STATEMENT, STATEMENT_TEXT, WEIGHTS
from pate.student._decisions import Metric
from pate.student._samples import InputFormat

Weights = Callable[[dict[str, Any]], bytes]


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained student without its feature map.

    Attributes:
        network: class path and arguments of the network, from features to logits ``[B, C]``, as
            settings that read no further files of weights.
        state: the arrays of the network, or tensors, by their names in it.
        departs: ``[C]``, whether the network decides a label.
        constant_logits: ``[C]``, the logits of the constant answer.
        label_names: names of the ``C`` labels.
        optimize: the metric that decisions optimize.
        cuts: ``[C]``, the probabilities above which labels are given.
    """

    network: Json | str
    state: Mapping[str, Any]
    departs: BoolArray
    constant_logits: Float32Array
    label_names: tuple[str, ...]
    optimize: Metric
    cuts: Float32Array


def weights_of_arrays(state: Mapping[str, NDArray[Any]]) -> bytes:
    """Return arrays as the content of a file of weights."""
    content: bytes = save({name: np.asarray(part, order="C") for name, part in state.items()})
    return content


def export_student(
    folder: Path,
    trained: Trained,
    source: DataSource,
    *,
    statement: Path,
    text: Path,
    weights: Weights,
) -> None:
    """Write a student into a folder that `pate.load_student` reads, completely or not at all.

    The folder holds the weights of feature map and network, their class paths and settings, the
    shape of the input, the names of the labels, and the privacy statement. All of this is public
    already. The same student has the same bytes.

    Args:
        folder: the folder, replaced if it exists.
        trained: the student.
        source: the records that it learned from, of which the public ones were read.
        statement: ``privacy.json`` of the released labels.
        text: ``privacy.txt`` of the released labels.
        weights: encodes arrays and tensors by name as the content of a file.

    Raises:
        ValueError: in one line, if the feature map or the network cannot be described; nothing is
            written then.
    """
    source.records(Role.PUBLIC)  # on which the map is fitted
    raw = InputFormat.of(source.load(Role.PUBLIC).features)
    mapped = None if source.feature_map is None else save_map(source.feature_map, raw.shape)
    state = {f"network.{name}": value for name, value in trained.state.items()}
    if mapped is not None:
        state |= {f"features.{name}": value for name, value in mapped.state.items()}
    state |= {"departs": trained.departs, "constant_logits": trained.constant_logits}
    names, cuts = trained.label_names, trained.cuts.tolist()
    # a gate keeps probabilities on one side of one half; it decides unless the cut is on that side
    above = (trained.constant_logits > 0).tolist()
    settings = {
        "format": FORMAT,
        "pate": __version__,
        "input": raw.to_dict(),
        "features": None if mapped is None else mapped.settings,
        "network": trained.network,
        "network_input": list(source.input_shape),
        "label_names": list(names),
        "optimize": trained.optimize,
        "cuts": cuts,
        "constant_decisions": {
            name: positive
            for name, positive, cut, departing in zip(
                names, above, cuts, trained.departs.tolist(), strict=True
            )
            if not departing and (cut <= 0.5 if positive else cut >= 0.5)
        },
    }
    content = weights(state)
    with atomic_folder(folder) as new:
        (new / WEIGHTS).write_bytes(content)
        (new / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n")
        if raw.model is not None:
            raw.model.pack(new / SENTENCES)
        (new / STATEMENT).write_bytes(statement.read_bytes())
        (new / STATEMENT_TEXT).write_bytes(text.read_bytes())
