"""The student from Python: a plan of objects becomes the plain data of a command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from pate._data_file import load_data
from pate._files import Json, read_json
from pate._networks import LINEAR, is_linear, require_factory
from pate._registry import find
from pate._runs import METRICS, STUDENT, Run
from pate._runs.released import ReleasedLabels, require_student
from pate._settings import to_plain
from pate._stages import student_stage
from pate._stages.student_stage import LinearPlan, student_folder
from pate.student._metrics import Metric

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler


@dataclass(frozen=True, kw_only=True)
class StudentPlan:
    """How the student is trained: the content of ``student.yaml``.

    Pass classes and functions as they are, or with settings by `functools.partial`, such as
    ``partial(torch.optim.AdamW, lr=0.01)``.

    Args:
        network: makes the network for an input shape and a number of labels. None for
            ``pate.models.Linear``, which is solved in closed form and has no settings of training.
        optimizer: makes the optimizer of its parameters; None for AdamW.
        scheduler: makes the learning-rate schedule, stepped every epoch; None for a constant rate.
        model: further arguments of `pate.student.Student`, such as ``{"pseudo_confidence": 0.95}``.
        data: arguments of `pate.student.StudentData`, such as ``{"batch_size": 64}``.
        trainer: arguments of Lightning's Trainer, such as ``{"max_epochs": 20}``.
        optimize: the figure that decisions serve. Cuts for F1 are chosen by public samples, at no
            cost.
    """

    network: Callable[[tuple[int, ...], int], nn.Module] | None = None
    optimizer: Callable[[Any], Optimizer] | None = None
    scheduler: Callable[[Optimizer], LRScheduler] | None = None
    model: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    trainer: Mapping[str, Any] = field(default_factory=dict)
    optimize: Metric = "accuracy"

    def configuration(self) -> Json:
        """Return the plan as the content of ``student.yaml``.

        Raises ``ValueError`` in one line if a file could not hold it.
        """
        parts = {"data": self.data, "trainer": self.trainer}
        content: Json = {name: to_plain(part) for name, part in parts.items() if part}
        content["model"] = model = to_plain(self.model)
        if self.network is not None:
            require_factory(self.network)
        makers = {"optimizer": self.optimizer, "scheduler": self.scheduler}
        if self.network is None or is_linear(to_plain(self.network)):
            model["network"] = {"class_path": LINEAR}
            model |= {name: to_plain(maker) for name, maker in makers.items() if maker is not None}
        else:
            model |= find("encode_makers")(network=self.network, **makers)
        return content | {"optimize": self.optimize}


def fit_student(run: Run, plan: StudentPlan) -> None:
    """Train the student of a run's released labels, from its last checkpoint if there is one.

    Raises:
        ValueError: if the labels are missing, or the student was begun with another plan.
    """
    content = plan.configuration()
    if is_linear(content["model"]["network"]):
        student_stage.fit(run, LinearPlan.of(content))
    else:
        find("run_student")("fit", run, content)


def test_student(run: Run) -> Json:
    """Evaluate the student of a run on the test set; return the content of ``metrics.json``.

    Raises:
        ValueError: if there is no student.
    """
    require_student(run)
    content = student_settings(run)
    if is_linear(content["model"]["network"]):
        student_stage.test(run, LinearPlan.of(content))
    else:
        find("run_student")("test", run, content | {"verbose": False})
    figures: Json = read_json((student_folder(run) / METRICS).read_text())
    return figures


def student_of_truth(run: Run, folder: Path) -> tuple[Json, Metric]:
    """Train the student of ``run`` anew on the true labels; return its test figures. PRIVATE.

    Args:
        run: a run with a trained student.
        folder: the folder for checkpoints of a network.

    Returns:
        The figures, and the one that decisions serve.
    """
    content = student_settings(run)
    if not is_linear(content["model"]["network"]):
        figures: tuple[Json, Metric] = find("network_of_truth")(run, content, folder)
        return figures
    plan = replace(LinearPlan.of(content), labels="truth")
    source, released = load_data(run), ReleasedLabels.load(run.root)
    return student_stage.Solved.by(plan, source, released).figures(source), plan.optimize


def student_settings(run: Run) -> Json:
    """Return the settings with which the student of a run was trained."""
    content: Json = yaml.safe_load((run.root / STUDENT.config).read_text())
    return content
