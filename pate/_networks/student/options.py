"""The options of `pate student` that no setting of its network, data or trainer gives."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pate._labeling.student.metrics import Metric

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "--seed_everything": {
        "type": bool | int,
        "default": 0,
        "help": "seed of all random numbers without one of their own; true for a random seed",
    },
    "--run": {"type": Path, "required": True, "help": "folder of the run"},
    "--optimize": {
        "type": Metric,
        "default": "accuracy",
        "help": "the figure that decisions serve: cuts for F1 are chosen by public samples, at no"
        " cost",
    },
    "--overwrite": {"action": "store_true", "help": "train again if the settings changed"},
}
