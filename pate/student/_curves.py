"""The curves of a student's training, in one file despite interruptions."""

import csv
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.utilities import rank_zero_only

_STEP = "step"


class Curves(CSVLogger):
    """A CSVLogger with one version, which resumed training continues.

    Args:
        folder: the folder of ``logs/version_0/metrics.csv``.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, name="logs", version=0)

    @rank_zero_only
    def resume(self, step: int) -> None:
        """Keep the log of the first ``step`` steps; the rest will be logged again."""
        folder = Path(self.log_dir)
        earlier: list[dict[str, Any]] = []
        for old in folder.glob("metrics.csv"):
            with old.open(newline="") as file:
                rows = [
                    {name: value for name, value in row.items() if value}
                    for row in csv.DictReader(file)
                ]
            earlier = [row for row in rows if int(row[_STEP]) < step]
        for old in folder.glob("*"):
            # Lightning would warn before it deletes old files
            old.unlink()
        self.experiment.metrics.extend(earlier)

    @rank_zero_only
    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Write the log, so that training resumed from the checkpoint has the curves up to it."""
        self.save()
