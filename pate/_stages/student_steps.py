"""The student from Python: `StudentCLI`, given plain data that are made of objects in place of a command line."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from jsonargparse import ArgumentError
from pytorch_lightning.utilities.seed import isolate_rng
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from pate._networks import expect_factory
from pate._runs import METRICS, STUDENT, Json, Run
from pate._runs.released import require_student
from pate._settings import encode, plain
from pate.student._decisions import Purpose


@dataclass(frozen=True, kw_only=True)
class StudentPlan:
    """How the student is trained: the content of ``student.yaml``.

    Classes and functions are given as they are, or with settings by `functools.partial`, such as
    ``partial(torch.optim.AdamW, lr=0.01)``.

    Args:
        network: makes the network for an input shape and a number of labels. One linear layer is fitted in closed form,
            and needs no optimizer.
        optimizer: makes the optimizer of its parameters; None for AdamW.
        scheduler: makes the learning-rate schedule, stepped every epoch; None for a constant rate.
        model: further arguments of `pate.student.Student`, such as ``{"pseudo_confidence": 0.95}``.
        data: arguments of `pate.student.StudentData`, such as ``{"batch_size": 64}``.
        trainer: arguments of Lightning's Trainer, such as ``{"max_epochs": 20}``.
        optimize: the figure that decisions serve. Cuts for F1 are chosen by public samples, at no cost.
    """

    network: Callable[[tuple[int, ...], int], nn.Module]
    optimizer: Callable[[Any], Optimizer] | None = None
    scheduler: Callable[[Optimizer], LRScheduler] | None = None
    model: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    trainer: Mapping[str, Any] = field(default_factory=dict)
    optimize: Purpose = "accuracy"

    def configuration(self) -> Json:
        """Return the plan as ``student.yaml`` says it.

        Raises ``ValueError`` in one line if a file could not hold it.
        """
        expect_factory(self.network)
        network = encode(Callable[[tuple[int, ...], int], nn.Module], self.network)
        model = {"network": network} | plain(self.model)
        if self.optimizer is not None:
            model["optimizer"] = encode(Callable[[Any], Optimizer], self.optimizer)
        if self.scheduler is not None:
            model["scheduler"] = encode(Callable[[Optimizer], LRScheduler], self.scheduler)
        parts = {"data": plain(self.data), "trainer": plain(self.trainer)}
        return {"model": model, **parts, "optimize": self.optimize}


def fit_student(run: Run, plan: StudentPlan) -> None:
    """Train the student of a run's released labels; one that was killed goes on from its last checkpoint.

    Raises:
        ValueError: if the labels are missing, or the student was begun with another plan.
    """
    _command("fit", run, plan.configuration())


def test_student(run: Run) -> Json:
    """Evaluate the student of a run on the test set, and return what ``metrics.json`` says then.

    Raises:
        ValueError: if there is no student.
    """
    require_student(run)
    settings = yaml.safe_load((run.root / STUDENT.config).read_text())
    _command("test", run, settings | {"verbose": False})
    figures: Json = json.loads((run.root / STUDENT.outputs[0] / METRICS).read_text())
    return figures


def _command(name: str, run: Run, content: Json) -> None:
    from pate._stages.student import StudentCLI

    arguments = {"subcommand": name, name: content | {"run": str(run.root), "overwrite": run.overwrite}}
    # a program's own random numbers and warnings are left as they are
    with isolate_rng(), warnings.catch_warnings():
        try:
            StudentCLI(arguments, exit_on_error=False)
        except ArgumentError as error:
            raise ValueError(f"Expected settings of a student, got {' '.join(str(error).split())}") from None
