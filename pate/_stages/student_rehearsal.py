"""A rehearsal: the student trains for one batch before any budget is spent."""

from typing import Any

import numpy as np
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import Callback

from pate._files import Json
from pate._runs import Run
from pate._runs.released import ReleasedLabels
from pate._stages.student import StudentCLI, run_student
from pate._validation import require_known
from pate.data import DataSource, Role
from pate.student import Student, StudentData


def rehearse_student(run: Run, content: Json, source: DataSource, *, num_queries: int) -> None:
    """Train a student for one batch of made-up labels of the public samples, and discard it.

    Writes nothing.

    Args:
        run: the run of the student.
        content: the settings of `pate student fit`.
        source: the records, of which the public ones are read.
        num_queries: the number of queries that will be labeled.

    Raises:
        ValueError: in one line, if a student cannot be trained by these settings.
    """
    # any mix of labels; the last query has no answer, as there may be samples without labels
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
            # settings of several processes are checked; one process suffices for the rest
            if trainer.world_size > 1:
                model.trainer = trainer
                model.setup("fit")
                trainer = Trainer(accelerator="cpu", devices=1, callbacks=callbacks, **quiet)
            trainer.fit(model, self.datamodule)
            # callbacks do not look for their metrics after a single batch
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
        run_student("fit", run, content | {"trainer": content["trainer"] | quiet}, Rehearsal)
    except OSError:  # a problem of the machine
        raise
    except Exception as error:
        line = " ".join(str(error).split())
        if not line.startswith("Expected "):
            line = (
                "Expected a student that can be trained on one batch, got"
                f" {type(error).__name__}: {line[:300]}"
            )
        raise ValueError(line) from error
