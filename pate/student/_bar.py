"""The one bar of a student's training or evaluation, and the curves of its training."""

import csv
import math
from pathlib import Path
from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import ProgressBar
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.utilities import rank_zero_only

from pate._progress import stage_bar


class StageBar(ProgressBar):
    """A bar over all steps of a training, or over all batches of an evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self._shown = True
        self._bar = stage_bar(0, "student", unit="step", shown=False)  # until one begins

    def disable(self) -> None:
        """Show nothing from now on, as Lightning asks of all processes but one."""
        self._shown = False

    def enable(self) -> None:
        """Show the bar from now on."""
        self._shown = True

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin with the steps that a checkpoint had done."""
        self._begin("student fit", trainer.estimated_stepping_batches, initial=trainer.global_step)

    def on_train_batch_end(self, trainer: Trainer, *rest: Any) -> None:
        """Advance by the steps of a batch."""
        self._bar.update(trainer.global_step - self._bar.n)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Name the epoch, and the loss on held-out samples if there are any."""
        loss = trainer.callback_metrics.get("val_loss")
        epoch = f"epoch {trainer.current_epoch + 1}"
        text = epoch if loss is None else f"{epoch}, val_loss {loss:.4f}"
        self._bar.set_postfix_str(text, refresh=False)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the bar, which is full where training stopped early, too."""
        self._bar.total = self._bar.n
        self._bar.close()

    # validation during training has no bar of its own
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin a bar, unless training has one."""
        if trainer.state.fn == "validate":
            self._begin("student validate", sum(trainer.num_val_batches))

    def on_validation_batch_end(self, trainer: Trainer, *rest: Any) -> None:
        """Advance by a batch, unless training has the bar."""
        if trainer.state.fn == "validate":
            self._bar.update()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the bar, unless it is the bar of training."""
        if trainer.state.fn == "validate":
            self._bar.close()

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin a bar."""
        self._begin("student test", sum(trainer.num_test_batches))

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin a bar."""
        self._begin("student predict", sum(trainer.num_predict_batches))

    def _begin(self, name: str, total: float, *, initial: int = 0) -> None:
        number = int(total) if math.isfinite(total) else None
        self._bar = stage_bar(number, name, unit="step", initial=initial, shown=self._shown)

    def _step(self, *rest: Any, **more: Any) -> None:
        self._bar.update()

    def _end(self, *rest: Any, **more: Any) -> None:
        self._bar.close()

    on_test_batch_end = on_predict_batch_end = _step
    on_test_end = on_predict_end = on_exception = _end


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
