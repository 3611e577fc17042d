"""Training of chunks of teachers, each a job that writes one file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, ModelCheckpoint
from safetensors.torch import load_file
from torch import Tensor
from torch.utils.data import DataLoader

from pate._validation import require
from pate.teachers._chunk import TeacherChunk, label_shares, make_networks, positive_weights
from pate.teachers._devices import make_trainer, quiet_lightning
from pate.teachers._jobs import ChunkJob, Report
from pate.teachers._partitions import ChunkBatches, PartitionedRecords
from pate.teachers._plan import TeacherPlan
from pate.teachers._saved import ORIGIN, SavedChunk, chunk_file, read_origin


@dataclass(frozen=True, kw_only=True)
class TrainJob(ChunkJob):
    """Trains the teachers of a chunk, from a checkpoint if any, and writes its `chunk_file`.

    Attributes:
        plan: how teachers are trained.
        data: the records of the teachers of the chunk, and possibly of others. PRIVATE.
        folder: the folder of the chunks' files and checkpoints.
        made_from: a digest of the key, the plan and the data, kept in the file and in the
            checkpoint.
    """

    plan: TeacherPlan
    data: PartitionedRecords
    folder: Path
    made_from: str = ""

    @property
    def start_file(self) -> Path | None:
        """The weights that all teachers start from, a file of this key, plan and data; None for none."""
        if self.plan.start_from is None:
            return None
        return self.folder / f"start_{self.made_from}.safetensors"

    @property
    def num_steps(self) -> int:
        """Optimizer steps of a chunk."""
        return self.plan.num_steps

    def is_done(self, teachers: range) -> bool:
        """Whether the chunk is trained."""
        return chunk_file(self.folder, teachers).is_file()

    def only(self, teachers: range) -> TrainJob:
        """Return the job with only the records of ``teachers``."""
        return replace(self, data=self.data.only(teachers))

    def lease_file(self, teachers: range) -> Path:
        """Return the file that names the process that trains a chunk together with others."""
        return chunk_file(self.folder, teachers).with_suffix(".lease")

    def steps_file(self, teachers: range) -> Path:
        """Return the file to which a worker writes the progress of a chunk."""
        return chunk_file(self.folder, teachers).with_suffix(".steps")

    def work(self, teachers: range, report: Report) -> None:
        """Train the chunk of ``teachers``.

        Raises ``ValueError`` if its file or checkpoint cannot be read or was made from something
        else.
        """
        target = chunk_file(self.folder, teachers)
        checkpoint = target.with_suffix(".ckpt")
        for path in (target, checkpoint):
            if path.is_file():
                same = read_origin(path) == self.made_from
                require(
                    same, "a chunk made from this key, this plan and these data", path=str(path)
                )
        if target.is_file():
            report(self.num_steps)
            return
        plan = self.plan
        module = make_chunk(plan, teachers, self.data, start=self.start_file)
        callbacks: list[Callback] = [_Steps(report), _Origin(self.made_from)]
        several = plan.num_steps > plan.checkpoint_steps
        if several:
            callbacks.append(
                ModelCheckpoint(
                    dirpath=self.folder,
                    filename=checkpoint.stem,
                    save_top_k=1,
                    every_n_epochs=1,
                    save_on_train_epoch_end=True,
                    enable_version_counter=False,
                )
            )
        with quiet_lightning():
            trainer = make_trainer(
                plan.accelerator,
                precision=plan.precision,
                max_epochs=-(-plan.num_steps // plan.checkpoint_steps),
                callbacks=callbacks,
                enable_checkpointing=several,
                reload_dataloaders_every_n_epochs=1,
            )
            batches = _ChunkData(plan, teachers, self.data)
            resumed = str(checkpoint) if checkpoint.is_file() else None
            trainer.fit(module, datamodule=batches, ckpt_path=resumed, weights_only=True)
        SavedChunk(
            made_from=self.made_from,
            state={name: value.cpu() for name, value in module.state_dict().items()},
            label_shares=module.label_shares.cpu(),
            losses=module.losses.cpu(),
        ).write(target)
        checkpoint.unlink(missing_ok=True)


def make_chunk(
    plan: TeacherPlan, teachers: range, data: PartitionedRecords, *, start: Path | None = None
) -> TeacherChunk:
    """Return the module of a chunk, from its teachers' partitions and public weights ``start``."""
    labels = [data.records.labels[data.rows[teacher]] for teacher in teachers]
    shape, num_labels = tuple(data.records.features.shape[1:]), data.records.labels.shape[1]
    networks = make_networks(plan, shape, num_labels, teachers=teachers)
    if start is not None:
        for network in networks:
            network.load_state_dict(load_file(start))
    return TeacherChunk(
        networks,
        plan,
        positive_weights=np.stack(
            [positive_weights(y, plan.positive_weight_power) for y in labels]
        ),
        label_shares=np.stack([label_shares(y) for y in labels]),
        seed=int(np.random.SeedSequence([plan.seed, teachers.start]).generate_state(1)[0]),
    )


def load_chunk(
    plan: TeacherPlan, teachers: range, shape: tuple[int, ...], num_labels: int, folder: Path
) -> TeacherChunk:
    """Load the trained teachers of a chunk.

    Raises ``ValueError`` if its file cannot be read or holds others.
    """
    saved = SavedChunk.read(chunk_file(folder, teachers))
    shares = saved.label_shares.numpy()
    require(
        len(shares) == len(teachers), f"{len(teachers)} teachers in a chunk", teachers=len(shares)
    )
    module = TeacherChunk(
        make_networks(plan, shape, num_labels, teachers=teachers),
        plan,
        positive_weights=np.ones((len(teachers), num_labels), dtype=np.float32),
        label_shares=shares,
    )
    module.load_state_dict(saved.state)
    return module.eval()


class _ChunkData(pl.LightningDataModule):
    """The batches of a chunk, an epoch of ``checkpoint_steps`` steps at a time."""

    def __init__(self, plan: TeacherPlan, teachers: range, data: PartitionedRecords) -> None:
        super().__init__()
        self._plan, self._teachers, self._data = plan, teachers, data

    def train_dataloader(self) -> DataLoader[tuple[Tensor, Tensor]]:
        assert self.trainer is not None
        start = self.trainer.current_epoch * self._plan.checkpoint_steps
        steps = range(start, min(start + self._plan.checkpoint_steps, self._plan.num_steps))
        batches = ChunkBatches(self._plan, self._data, teachers=self._teachers, steps=steps)
        return DataLoader(batches, batch_size=None, shuffle=False)


class _Origin(Callback):
    """Writes the digest of key, plan and data into checkpoints."""

    def __init__(self, made_from: str) -> None:
        self._made_from = made_from

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint[ORIGIN] = self._made_from


class _Steps(Callback):
    """Reports steps, including those before the checkpoint."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._report(trainer.global_step)

    def on_train_batch_end(self, *args: object, **kwargs: object) -> None:
        self._report(1)
