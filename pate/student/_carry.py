"""What a trained student leaves for those who have neither the run nor its data. PUBLIC."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import save
from torch import Tensor, nn

from pate._files.json import Json
from pate._files.writing import atomic_folder
from pate._network_settings import without_weights
from pate._validation import require
from pate._version import __version__
from pate.data._records import Role
from pate.data._source import DataSource
from pate.data.features._modules import as_module
from pate.student._answers import Answers
from pate.student._carried import FORMAT, SETTINGS, STATEMENT, STATEMENT_TEXT, WEIGHTS
from pate.student._decisions import Purpose
from pate.student._samples import InputFormat


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained student, apart from where its samples come from.

    Attributes:
        network: from features to logits ``[B, C]``.
        settings: class path and arguments of the network, as the configuration of the run has them.
        departs: ``[C]``, whether the network decides a label.
        constant_logits: ``[C]``, the logits of the constant answer.
        label_names: names of the ``C`` labels.
        optimize: the figure that decisions serve.
        cuts: ``[C]``, the probabilities above which labels are given.
    """

    network: nn.Module
    settings: Json | str
    departs: Tensor
    constant_logits: Tensor
    label_names: tuple[str, ...]
    optimize: Purpose
    cuts: Tensor


def write_student(
    folder: Path, trained: Trained, source: DataSource, *, statement: Path, text: Path
) -> None:
    """Write a student into a folder that `pate.load_student` reads, completely or not at all.

    The folder holds the weights of feature map and network, their class paths and settings, the
    shape of the input, the names of the labels, and the privacy statement: what is public already.
    The same student has the same bytes.

    Args:
        folder: the folder, replaced if it is there.
        trained: the student.
        source: the records that it learned from, of which the public ones were read.
        statement: ``privacy.json`` of the released labels.
        text: ``privacy.txt`` of the released labels.

    Raises:
        ValueError: in one line, if the feature map or the network cannot be described; nothing is
            written then.
    """
    raw = InputFormat.of(source.load(Role.PUBLIC).features)
    mapped = None if source.feature_map is None else as_module(source.feature_map, raw.shape)
    names, departs, cuts = trained.label_names, trained.departs.cpu(), trained.cuts.tolist()
    module = Answers(None if mapped is None else mapped.module, trained.network, cuts=cuts)
    state = module.state_dict() | {
        "departs": departs,
        "constant_logits": trained.constant_logits.cpu(),
    }
    others = [name for name, value in state.items() if not isinstance(value, Tensor)]
    require(not others, "a network whose state is tensors alone", others=others[:3])
    # a gate keeps probabilities on one side of one half, which decides where the cut is not on that
    # side
    above = (trained.constant_logits.cpu() > 0).tolist()
    settings = {
        "format": FORMAT,
        "pate": __version__,
        "input": raw.to_dict(),
        "features": None if mapped is None else mapped.settings,
        "network": without_weights(trained.settings, trained.network),
        "network_input": list(source.input_shape),
        "label_names": list(names),
        "optimize": trained.optimize,
        "cuts": cuts,
        "constant_decisions": {
            name: positive
            for name, positive, cut, departing in zip(
                names, above, cuts, departs.tolist(), strict=True
            )
            if not departing and (cut <= 0.5 if positive else cut >= 0.5)
        },
    }
    # tensors that share memory, as tied layers do, have bytes of their own in the file
    weights = save(
        {name: value.detach().cpu().contiguous().clone() for name, value in state.items()}
    )
    with atomic_folder(folder) as new:
        (new / WEIGHTS).write_bytes(weights)
        (new / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n")
        (new / STATEMENT).write_bytes(statement.read_bytes())
        (new / STATEMENT_TEXT).write_bytes(text.read_bytes())
