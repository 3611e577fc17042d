"""Training of chunks of teachers. A chunk is an idempotent job that leaves one file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal, get_args

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from pytorch_lightning.callbacks import Callback, ModelCheckpoint
from torch.utils.data import DataLoader

from pate.data.records import Records
from pate.runs import replacing
from pate.teachers.batches import ChunkBatches
from pate.teachers.chunk import (
    NetworkFactory,
    OptimizerFactory,
    SchedulerFactory,
    TeacherChunk,
    check_entrywise,
    make_networks,
    positive_weights,
)
from pate.teachers.devices import make_trainer, quiet
from pate.teachers.losses import EntryLoss
from pate.teachers.tally import Report
from pate.validation import expect, expect_count, expect_positive

IntArray = NDArray[np.int64]

_ORIGIN = "made_from"
Precision = Literal["32-true", "bf16-mixed"]


@dataclass(frozen=True, kw_only=True)
class TeacherPlan:
    """How every teacher is trained. All of it is public, and the same whatever is in a partition.

    Args:
        network: makes a teacher's network.
        optimizer: makes its optimizer, which must work entry by entry.
        num_teachers: how many teachers.
        num_steps: optimizer steps of every teacher.
        batch_size: records per step.
        chunk_size: how many teachers are trained at once.
        checkpoint_steps: steps between the checkpoints that a killed chunk goes on from.
        positive_weight_power: 0 weighs positive and negative labels alike, 1 balances them within each teacher's own
            partition, and what lies between is between.
        loss: the loss of an entry, cross-entropy where None.
        scheduler: makes a learning-rate schedule, a function of the step alone; None for a constant rate.
        clip_norm: the gradient of each teacher is scaled down to this norm where it is longer; None for no limit.
        seed: seed of initial weights, batch orders and dropout. Not a secret: privacy does not rest on it.
        accelerator: Lightning's accelerator.
        precision: Lightning's precision. ``16-mixed`` is not among them: its gradient scaler skips a step of all
            stacked teachers when the gradient of one overflows, and so would let them see each other.
    """

    network: NetworkFactory
    optimizer: OptimizerFactory
    num_teachers: int
    num_steps: int
    batch_size: int
    chunk_size: int = 1
    checkpoint_steps: int = 1000
    positive_weight_power: float = 0.0
    loss: EntryLoss | None = None
    scheduler: SchedulerFactory | None = None
    clip_norm: float | None = None
    seed: int = 0
    accelerator: str = "auto"
    precision: Precision = "32-true"

    def __post_init__(self) -> None:
        expect_count(2, num_teachers=self.num_teachers)
        expect_count(
            1,
            num_steps=self.num_steps,
            batch_size=self.batch_size,
            chunk_size=self.chunk_size,
            checkpoint_steps=self.checkpoint_steps,
        )
        expect_count(0, seed=self.seed)
        precisions = get_args(Precision)
        expect(self.precision in precisions, f"precision in {', '.join(precisions)}", precision=self.precision)
        power = self.positive_weight_power
        expect(0 <= power <= 1, "0 <= positive_weight_power <= 1", positive_weight_power=power)
        if self.clip_norm is not None:
            expect_positive(clip_norm=self.clip_norm)
        if self.chunk_size > 1:
            check_entrywise(self.optimizer)

    def chunks(self) -> list[range]:
        """Return the teachers of each chunk, by number alone."""
        starts = range(0, self.num_teachers, self.chunk_size)
        return [range(start, min(start + self.chunk_size, self.num_teachers)) for start in starts]


def chunk_file(folder: Path, teachers: range) -> Path:
    """Return where a chunk's weights are kept. The file's existence means that the chunk is done."""
    return folder / f"teachers_{teachers.start:05d}.pt"


def make_chunk(plan: TeacherPlan, teachers: range, records: Records, partitions: list[IntArray]) -> TeacherChunk:
    """Make the module of a chunk from its teachers' partitions alone."""
    labels = [records.labels[partition] for partition in partitions]
    networks = make_networks(
        plan.network, tuple(records.features.shape[1:]), records.labels.shape[1], seed=plan.seed, teachers=teachers
    )
    return TeacherChunk(
        networks,
        optimizer=plan.optimizer,
        positive_weights=np.stack([positive_weights(y, plan.positive_weight_power) for y in labels]),
        has_records=np.array([len(y) > 0 for y in labels]),
        loss=plan.loss,
        scheduler=plan.scheduler,
        clip_norm=plan.clip_norm,
        num_steps=plan.num_steps,
        seed=int(np.random.SeedSequence([plan.seed, teachers.start]).generate_state(1)[0]),
    )


def train_chunk(
    plan: TeacherPlan,
    teachers: range,
    records: Records,
    partitions: list[IntArray],
    folder: Path,
    report: Report,
    *,
    made_from: str = "",
) -> None:
    """Train the teachers of a chunk, from its last checkpoint if it has one, and leave `chunk_file`.

    Args:
        plan: how teachers are trained.
        teachers: those of the chunk.
        records: the records, of which the partitions are part.
        partitions: the rows of ``records`` of each of ``teachers``.
        folder: where the chunk's file is left.
        report: is told of steps as they are done.
        made_from: a digest of the key, the plan and the data, kept in the file and in the checkpoint.

    Raises ``ValueError`` where a file or a checkpoint of the chunk cannot be read or was made from something else.
    """
    target = chunk_file(folder, teachers)
    partial = target.with_suffix(".ckpt")
    for path in (target, partial):
        if path.is_file():
            own = read_origin(path) == made_from
            expect(own, "a chunk made from this key, this plan and these data", path=str(path))
    if target.is_file():
        report(plan.num_steps)
        return
    module = make_chunk(plan, teachers, records, partitions)
    callbacks: list[Callback] = [_Steps(report), _Origin(made_from)]
    several = plan.num_steps > plan.checkpoint_steps
    if several:
        callbacks.append(
            ModelCheckpoint(
                dirpath=folder,
                filename=partial.stem,
                save_top_k=1,
                every_n_epochs=1,
                save_on_train_epoch_end=True,
                enable_version_counter=False,
            )
        )
    with quiet():
        trainer = make_trainer(
            plan.accelerator,
            precision=plan.precision,
            max_epochs=-(-plan.num_steps // plan.checkpoint_steps),
            callbacks=callbacks,
            enable_checkpointing=several,
            reload_dataloaders_every_n_epochs=1,
        )
        data = _ChunkData(plan, teachers, records, partitions)
        trainer.fit(module, datamodule=data, ckpt_path=str(partial) if partial.is_file() else None, weights_only=True)
    with replacing(target) as file:
        state = {name: value.cpu() for name, value in module.state_dict().items()}
        sizes = torch.tensor([len(partition) for partition in partitions])
        torch.save({_ORIGIN: made_from, "state": state, "sizes": sizes, "losses": module.losses.cpu()}, file)
    partial.unlink(missing_ok=True)


def load_chunk(
    plan: TeacherPlan, teachers: range, shape: tuple[int, ...], num_labels: int, folder: Path
) -> TeacherChunk:
    """Load the trained teachers of a chunk. Raises ``ValueError`` where its file cannot be read or holds others."""
    saved = read_chunk(chunk_file(folder, teachers))
    expect(len(saved["sizes"]) == len(teachers), f"{len(teachers)} teachers in a chunk", found=len(saved["sizes"]))
    module = TeacherChunk(
        make_networks(plan.network, shape, num_labels, seed=plan.seed, teachers=teachers),
        optimizer=plan.optimizer,
        positive_weights=np.ones((len(teachers), num_labels), dtype=np.float32),
        has_records=(saved["sizes"] > 0).numpy(),
    )
    module.load_state_dict(saved["state"])
    return module.eval()


def read_chunk(path: Path) -> dict[str, Any]:
    """Return what a chunk's file or checkpoint holds; large arrays are read when they are used.

    Raises ``ValueError`` where it cannot be read.
    """
    try:
        content: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu", mmap=True)
    # what torch raises depends on where the file ends
    except (RuntimeError, OSError, EOFError, ValueError, KeyError, UnpicklingError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"Expected a chunk of teachers in {path}, got a damaged file ({reason[:80]}):"
            " delete it, and `pate teachers fit` makes it again"
        ) from None
    return content


def read_origin(path: Path) -> str:
    """Return the ``made_from`` of a chunk's file or checkpoint, empty where it has none. Raises like `read_chunk`."""
    return str(read_chunk(path).get(_ORIGIN, ""))


class _ChunkData(pl.LightningDataModule):
    """The batches of a chunk, an epoch of ``checkpoint_steps`` steps at a time."""

    def __init__(self, plan: TeacherPlan, teachers: range, records: Records, partitions: list[IntArray]) -> None:
        super().__init__()
        self._plan, self._teachers, self._records, self._partitions = plan, teachers, records, partitions

    def train_dataloader(self) -> DataLoader[Any]:
        assert self.trainer is not None
        start = self.trainer.current_epoch * self._plan.checkpoint_steps
        batches = ChunkBatches(
            self._records,
            self._partitions,
            teachers=self._teachers,
            steps=range(start, min(start + self._plan.checkpoint_steps, self._plan.num_steps)),
            batch_size=self._plan.batch_size,
            seed=self._plan.seed,
        )
        return DataLoader(batches, batch_size=None, shuffle=False)


class _Origin(Callback):
    """Keeps in checkpoints what they were made from."""

    def __init__(self, made_from: str) -> None:
        self._made_from = made_from

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint[_ORIGIN] = self._made_from


class _Steps(Callback):
    """Tells of steps, those before the checkpoint included."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._report(trainer.global_step)

    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        self._report(1)
