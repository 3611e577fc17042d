"""The student from Python: `StudentCLI`, given plain data that are made of objects in place of a command line."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from jsonargparse import ArgumentError
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.utilities.seed import isolate_rng
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from pate._files.json import Json, read_json
from pate._networks import require_factory
from pate._runs import METRICS, STUDENT, Run
from pate._runs.released import ReleasedLabels, require_student
from pate._settings import encode, plain
from pate._validation import require_known
from pate.data._records import Role
from pate.data._source import DataSource
from pate.student._decisions import Purpose

if TYPE_CHECKING:
    from pate._stages.student import StudentCLI
    from pate.student._module import Student


@dataclass(frozen=True, kw_only=True)
class StudentPlan:
    """How the student is trained: the content of ``student.yaml``.

    Classes and functions are given as they are, or with settings by `functools.partial`, such as
    ``partial(torch.optim.AdamW, lr=0.01)``.

    Args:
        network: makes the network for an input shape and a number of labels. One linear layer is
            fitted in closed form, and needs no optimizer.
        optimizer: makes the optimizer of its parameters; None for AdamW.
        scheduler: makes the learning-rate schedule, stepped every epoch; None for a constant rate.
        model: further arguments of `pate.student.Student`, such as ``{"pseudo_confidence": 0.95}``.
        data: arguments of `pate.student.StudentData`, such as ``{"batch_size": 64}``.
        trainer: arguments of Lightning's Trainer, such as ``{"max_epochs": 20}``.
        optimize: the figure that decisions serve. Cuts for F1 are chosen by public samples, at no
            cost.
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
        require_factory(self.network)
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
    figures: Json = read_json((run.root / STUDENT.outputs[0] / METRICS).read_text())
    return figures


def rehearse_student(run: Run, content: Json, source: DataSource, *, num_queries: int) -> None:
    """Train a student for one batch of made-up labels of the public samples, and discard it.

    Writes nothing.

    Args:
        run: the run whose student it will be.
        content: the settings of `pate student fit`.
        source: the records, of which the public ones are read.
        num_queries: the number of queries that will be labelled.

    Raises:
        ValueError: in one line, if a student cannot be trained by these settings.
    """
    from pytorch_lightning import Trainer

    from pate._stages.student import StudentCLI
    from pate.student._data import StudentData

    # any mix of labels; the last query has no answer, so that there may be samples without labels
    labels = np.indices((num_queries, source.num_labels)).sum(axis=0) % 2
    made_up = ReleasedLabels(
        ids=source.records(Role.PUBLIC).ids[:num_queries],
        label_names=source.label_names,
        num_teachers=1,
        delta=0.0,
        aggregator={},
        release=0,
        labels=labels.astype(np.uint8),
        mask=np.broadcast_to(
            np.arange(num_queries)[:, None] < max(1, num_queries - 1), labels.shape
        ),
    )

    class MadeUpData(StudentData):
        def _read(self) -> tuple[DataSource, ReleasedLabels]:
            return source, made_up

    class Rehearsal(StudentCLI):
        data_class = MadeUpData

        def fit(self, model: Student, ckpt_path: str | None = None, **_: Any) -> None:
            trainer = self.trainer
            callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
            if (
                trainer.world_size > 1
            ):  # whose settings are checked, while one process is enough for the rest
                model.trainer = trainer
                model.setup("fit")
                trainer = Trainer(accelerator="cpu", devices=1, callbacks=callbacks, **quiet)
            trainer.fit(model, self.datamodule)
            # one batch is no occasion for callbacks to look for theirs
            wanted = {
                monitor for callback in callbacks if (monitor := getattr(callback, "monitor", None))
            }
            require_known("metrics to monitor", sorted(wanted), trainer.callback_metrics)

    quiet: Json = {
        "fast_dev_run": True,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    try:
        _command("fit", run, content | {"trainer": content["trainer"] | quiet}, Rehearsal)
    except OSError:  # of the machine
        raise
    except Exception as error:
        line = " ".join(str(error).split())
        if not line.startswith("Expected "):
            line = f"Expected a student that can be trained on one batch, got {type(error).__name__}: {line[:300]}"
        raise ValueError(line) from error


def _command(name: str, run: Run, content: Json, kind: type[StudentCLI] | None = None) -> None:
    from pate._stages.student import StudentCLI

    arguments = {
        "subcommand": name,
        name: content | {"run": str(run.root), "overwrite": run.overwrite},
    }
    # a program's own random numbers and warnings are left as they are
    with isolate_rng(), warnings.catch_warnings():
        try:
            (kind or StudentCLI)(arguments, exit_on_error=False)
        except ArgumentError as error:
            raise ValueError(
                f"Expected settings of a student, got {' '.join(str(error).split())}"
            ) from None
