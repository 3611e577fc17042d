"""Logs of trained teachers: a table with a line per teacher, and loss curves. PRIVATE."""

import csv
import io
from pathlib import Path
from shutil import rmtree

import numpy as np
from lightning_utilities.core.rank_zero import rank_zero_only
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger

from pate._files import make_folder
from pate._validation import Float32Array
from pate.data._checks import known_truth
from pate.teachers._jobs import CurveFormat
from pate.teachers._partitions import PartitionedRecords
from pate.teachers._plan import TeacherPlan
from pate.teachers._training import SavedChunk, chunk_file


def read_losses(plan: TeacherPlan, folder: Path) -> Float32Array:
    """Return the loss curves of all teachers, ``[points, num_teachers]``."""
    files = [chunk_file(folder, teachers) for teachers in plan.chunks()]
    return np.concatenate([SavedChunk.read(file).losses.numpy() for file in files], axis=1)


def teachers_table(data: PartitionedRecords, final_losses: Float32Array) -> str:
    """Return a CSV table of teachers: records, labels with both classes, final loss, votes."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["teacher", "records", "labels_of_both_classes", "final_loss", "votes"])
    for (teacher, rows), loss in zip(data.rows.items(), final_losses, strict=True):
        right, known = known_truth(data.records.labels[rows])
        both = int((right.any(axis=0) & (known & ~right).any(axis=0)).sum())
        votes = "trained" if len(rows) and np.isfinite(loss) else "constant"
        table.writerow([teacher, len(rows), both, f"{loss:.6g}", votes])
    return text.getvalue()


def log_curves(losses: Float32Array, num_steps: int, folder: Path, kind: CurveFormat) -> None:
    """Log the spread over teachers of losses ``[points, num_teachers]``, span by span."""
    rmtree(folder, ignore_errors=True)
    make_folder(folder)
    # whoever finishes writes, whatever its rank under torchrun
    rank_zero_only.rank = 0  # type: ignore[attr-defined]
    logger = (TensorBoardLogger if kind == "tensorboard" else CSVLogger)(
        folder, name="", version=""
    )
    shares = {"min": 0.0, "q10": 0.1, "median": 0.5, "q90": 0.9, "max": 1.0}
    for point, row in enumerate(losses, 1):
        finite = row[np.isfinite(row)]
        spread = (
            np.quantile(finite, list(shares.values())) if finite.size else [np.nan] * len(shares)
        )
        metrics = {
            "teachers_of_finite_loss": finite.size,
            **dict(zip(shares, map(float, spread), strict=True)),
        }
        logger.log_metrics(metrics, step=-(-point * num_steps // len(losses)))
    logger.finalize("success")
