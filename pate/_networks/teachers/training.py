"""Chunks of teachers: trained together, sharing nothing, each a job that writes one PRIVATE file.

A chunk is one LightningModule. First its training, by a job that goes on from a checkpoint; then
its file, and the votes of its teachers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, LambdaCallback, ModelCheckpoint
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, Dataset

from pate._core.files.reading import regular
from pate._core.files.writing import atomic_write
from pate._core.validation import (
    UNKNOWN,
    Float32Array,
    FloatArray,
    UInt8Array,
    require,
)
from pate._labeling.data.records import Features, known_truth
from pate._labeling.runs.vote_store import VoteStore
from pate._labeling.votes.kinds import Voting, highest, pack_ballots
from pate._labeling.votes.voters import encode_scores
from pate._networks.settings import augmented, make_network
from pate._networks.teachers.executors import (
    ChunkJob,
    Report,
    load_tensors,
    make_trainer,
    quiet_lightning,
    root_device,
)
from pate._networks.teachers.plan import (
    BinaryCrossEntropy,
    PartitionedRecords,
    TeacherPlan,
    draw_batches,
)


def make_networks(
    plan: TeacherPlan, shape: tuple[int, ...], num_labels: int, *, teachers: range
) -> list[nn.Module]:
    """Return one network per teacher, with initial weights that depend only on (seed, teacher)."""
    networks = []
    for teacher in teachers:
        with torch.random.fork_rng(devices=[]):
            state = np.random.SeedSequence([plan.seed, teacher]).generate_state(1, np.uint64)
            torch.default_generator.manual_seed(int(state[0] >> 1))
            networks.append(make_network(plan.network, shape, num_labels))
    return networks


class TeacherChunk(pl.LightningModule):
    """Teachers trained side by side on their own batches, by one backward pass of summed losses.

    The gradient of the sum with respect to one teacher's weights involves only its own batch, and
    the optimizer works entry by entry: no teacher's weights depend on another's data. Buffers, such
    as the averages of batch norm, are stacked like weights.

    Args:
        networks: one network per teacher, all of one architecture. A single one is trained as it
            is; several are stacked.
        plan: how they are trained: optimizer, loss, schedule, clipping and number of steps.
        positive_weights: ``[chunk, C]`` float32 weights of positive labels in the loss, each from
            its own partition.
        label_shares: ``[chunk, C]`` float32, among each teacher's own records that know the label;
            NaN if none does. A teacher that knows no label is not trained.
        seed: seed of random layers, such as dropout.
    """

    positive_weights: Tensor
    has_records: Tensor
    label_shares: Tensor

    def __init__(
        self,
        networks: Sequence[nn.Module],
        plan: TeacherPlan,
        *,
        positive_weights: Float32Array,
        label_shares: Float32Array,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self._plan = plan
        self._loss = plan.loss or BinaryCrossEntropy()
        self._seed = seed
        self.chunk = len(networks)
        self.register_buffer(
            "positive_weights", torch.from_numpy(positive_weights)[:, None], persistent=False
        )
        self.register_buffer("label_shares", torch.from_numpy(label_shares), persistent=False)
        self.register_buffer(
            "has_records", self.label_shares.isfinite().any(1).float(), persistent=False
        )
        if self.chunk == 1:
            self.network = networks[0]
            return
        parameters, buffers = stack_module_state(list(networks))
        # "." means nesting in the names of a module's parameters
        self.stacked = nn.ParameterDict(
            {
                name.replace(".", "/"): nn.Parameter(_turned(p.detach()).contiguous())
                for name, p in parameters.items()
            }
        )
        # files hold matrices as the networks do
        self.stacked.register_state_dict_post_hook(_turn_all)  # type: ignore[no-untyped-call]
        self.stacked.register_load_state_dict_pre_hook(_turn_all)  # type: ignore[no-untyped-call]
        self._buffer_names = list(buffers)
        for name, buffer in buffers.items():
            self.register_buffer(_buffer_name(name), buffer)
        # a list hides the template from the module's own parameters
        self._template = [deepcopy(networks[0]).to("meta")]

    def forward(self, features: Tensor) -> Tensor:
        """Return logits ``[chunk, B, C]`` for features ``[chunk, B, ...]`` or ``[1, B, ...]``."""
        if self.chunk == 1:
            return self.network(features[0])[None]
        parameters = {name.replace("/", "."): _turned(p) for name, p in self.stacked.items()}
        buffers = {name: getattr(self, _buffer_name(name)) for name in self._buffer_names}
        template = self._template[0].train(self.training)

        def call(
            parameters: dict[str, Tensor], buffers: dict[str, Tensor], features: Tensor
        ) -> Tensor:
            return functional_call(template, (parameters, buffers), (features,))

        shared = features.shape[0] == 1
        return vmap(call, in_dims=(0, 0, None if shared else 0), randomness="different")(
            parameters, buffers, features[0] if shared else features
        )

    @torch.no_grad()
    def is_trained(self) -> Tensor:
        """Return which teachers know which labels, and have finite weights, ``[chunk, C]``."""
        if self.chunk == 1:
            values = [value[None] for value in self.network.state_dict().values()]
        else:
            values = [
                *self.stacked.values(),
                *(getattr(self, _buffer_name(name)) for name in self._buffer_names),
            ]
        finite = [torch.isfinite(value).reshape(self.chunk, -1).all(1) for value in values]
        return self.label_shares.isfinite() & torch.stack(finite).all(0)[:, None]

    def teacher_losses(self, features: Tensor, labels: Tensor) -> Tensor:
        """Return losses ``[chunk]`` on features ``[chunk, B, ...]``, labels ``[chunk, B, C]``.

        Each is the mean over known labels, which are not NaN; 0 if none is known.
        """
        logits = self(features)
        # losses are computed in float32, even from bfloat16 logits
        logits = logits.to(torch.promote_types(logits.dtype, labels.dtype))
        known = labels.isfinite()
        losses = self._loss(logits, labels.nan_to_num(), self.positive_weights)
        total = torch.where(known, losses, 0).flatten(1).sum(1)
        return total / known.flatten(1).sum(1).clamp(min=1)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Return the sum over teachers of their mean losses."""
        return (self.teacher_losses(*batch) * self.has_records).sum()

    def on_train_batch_start(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Seed the networks by the step, so that a resumed chunk continues as if uninterrupted."""
        _seed(self._seed * 1_000_003 + self.global_step, self.device)

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Clip each teacher's gradient by its own norm."""
        if self._plan.clip_norm is not None:
            clip_gradients(self.parameters(), self._plan.clip_norm, stacked=self.chunk > 1)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Return the optimizer, and its schedule by step."""
        optimizer = self._plan.make_optimizer(self.parameters())
        if self._plan.scheduler is None:
            return optimizer
        scheduler = self._plan.scheduler(optimizer)
        require(
            not isinstance(scheduler, ReduceLROnPlateau),
            "a scheduler that looks at no loss",
            scheduler=type(scheduler).__name__,
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], norm: float, *, stacked: bool) -> None:
    """Scale down each teacher's gradient over all its parameters if its norm exceeds ``norm``.

    ``stacked`` parameters are ``[chunk, ...]``. Otherwise all belong to one teacher.
    """
    gradients = [p.grad if stacked else p.grad[None] for p in parameters if p.grad is not None]
    squares = [gradient.reshape(len(gradient), -1).square().sum(1) for gradient in gradients]
    scale = (norm / (torch.stack(squares).sum(0).sqrt() + 1e-6)).clamp(max=1)
    for gradient in gradients:
        gradient.mul_(scale.view(-1, *[1] * (gradient.ndim - 1)))


def positive_weights(labels: UInt8Array, power: float) -> Float32Array:
    """Return weights of positive labels ``[C]`` from one partition's labels ``[n, C]``.

    ``((1 - m) / m)^power`` with ``m`` the smoothed share of positives among known labels; all ones
    at ``power = 0``.
    """
    right, known = known_truth(labels)
    share = (right.sum(axis=0) + 1) / (known.sum(axis=0) + 2)
    weights: FloatArray = ((1 - share) / share) ** power
    return weights.astype(np.float32)


def label_shares(labels: UInt8Array) -> Float32Array:
    """Return the share of each label, ``[C]``, among known labels ``[n, C]``; NaN without any."""
    right, known = known_truth(labels)
    num_known = known.sum(axis=0)
    shares: FloatArray = right.sum(axis=0) / np.where(num_known, num_known, np.nan)
    return shares.astype(np.float32)


def _turned(stacked: Tensor) -> Tensor:
    """Return matrices ``[chunk, a, b]`` as ``[chunk, b, a]``, and other weights as they are.

    The gradient of a linear layer arrives transposed. A weight in another order of memory would
    cost a copy of the gradient in each step.
    """
    return stacked.mT if stacked.ndim == 3 else stacked


def _turn_all(stacked: nn.ParameterDict, state: dict[str, Tensor], prefix: str, *_: object) -> None:
    for name in stacked:
        state[prefix + name] = _turned(state[prefix + name])


def _buffer_name(name: str) -> str:
    return "buffer/" + name.replace(".", "/")


def _seed(seed: int, device: torch.device) -> None:
    # torch.manual_seed looks for every kind of accelerator: a millisecond
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)


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
        """The weights that all teachers start from, by key, plan and data. None for none."""
        afresh = self.plan.start_from is None
        return None if afresh else self.folder / f"start_{self.made_from}.safetensors"

    @property
    def num_steps(self) -> int:
        """Optimizer steps of a chunk."""
        return self.plan.num_steps

    def file(self, teachers: range) -> Path:
        """Return the file of the chunk's weights."""
        return chunk_file(self.folder, teachers)

    def only(self, teachers: range) -> TrainJob:
        """Return the job with only the records of ``teachers``."""
        return replace(self, data=self.data.only(teachers))

    def work(self, teachers: range, report: Report) -> None:
        """Train the chunk of ``teachers``.

        Raises ``ValueError`` if its file or checkpoint cannot be read or was made from something
        else.
        """
        target = self.file(teachers)
        checkpoint = target.with_suffix(".ckpt")
        for path in (target, checkpoint):
            if path.is_file():
                require(
                    read_origin(path) == self.made_from,
                    "a chunk made from this key, this plan and these data",
                    path=str(path),
                )
        if target.is_file():
            report(self.num_steps)
            return
        plan = self.plan
        module = make_chunk(plan, teachers, self.data, start=self.start_file)
        callbacks: list[Callback] = [
            LambdaCallback(
                # with the steps before the checkpoint
                on_train_start=lambda trainer, module: report(trainer.global_step),
                on_train_batch_end=lambda *_: report(1),
                on_save_checkpoint=lambda trainer, module, checkpoint: checkpoint.update(
                    {ORIGIN: self.made_from}
                ),
            )
        ]
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
            trainer.fit(
                module,
                datamodule=_ChunkData(plan, teachers, self.data),
                ckpt_path=str(checkpoint) if checkpoint.is_file() else None,
                weights_only=True,
            )
        SavedChunk(
            made_from=self.made_from,
            state={name: value.cpu() for name, value in module.state_dict().items()},
            label_shares=module.label_shares.cpu(),
        ).write(target)
        # the trainer is part of cycles, and would keep all this with the next chunk
        module.to("meta")
        trainer.optimizers[0].state.clear()
        trainer.optimizers[0].param_groups.clear()
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
            network.load_state_dict(load_file(regular(start)))
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

    Returns:
        the teachers, stacked if they are several.

    Raises:
        ValueError: if the file cannot be read, or holds other teachers.
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


class ChunkBatches(Dataset[tuple[Tensor, Tensor]]):
    """Batches of a chunk of teachers for a range of steps.

    An item is ``(features [chunk, batch, ...], labels [chunk, batch, C])``, both float32, NaN where
    a label is unknown. A teacher without records sees zeros. Pictures are augmented as the plan
    says.
    """

    def __init__(
        self, plan: TeacherPlan, data: PartitionedRecords, *, teachers: range, steps: range
    ) -> None:
        self._records = data.records
        self._plan, self._teachers, self._steps = plan, teachers, steps
        self._empty = np.array([len(data.rows[teacher]) == 0 for teacher in teachers])
        # [steps, chunk, batch] rows of the records
        self._rows = np.zeros((len(steps), len(teachers), plan.batch_size), dtype=np.int64)
        for place, teacher in enumerate(teachers):
            if len(rows := data.rows[teacher]):
                self._rows[:, place] = rows[
                    draw_batches(
                        len(rows),
                        seed=plan.seed,
                        teacher=teacher,
                        steps=steps,
                        batch_size=plan.batch_size,
                    )
                ]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, step: int) -> tuple[Tensor, Tensor]:
        rows = self._rows[step]
        if self._empty.all():
            shape, num_labels = self._records.features.shape[1:], self._records.labels.shape[1]
            return torch.zeros(*rows.shape, *shape), torch.zeros(*rows.shape, num_labels)
        features = np.ascontiguousarray(self._records.features[rows])
        if self._plan.augment:
            for place, teacher in enumerate(self._teachers):
                features[place] = augmented(
                    torch.from_numpy(features[place]),
                    self._plan.augment,
                    self._plan.seed,
                    teacher,
                    self._steps[step],
                ).numpy()
        labels = self._records.labels[rows].astype(np.float32)
        labels[labels == UNKNOWN] = np.nan
        features[self._empty] = 0
        labels[self._empty] = 0
        return torch.from_numpy(features), torch.from_numpy(labels)


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


ORIGIN = "made_from"
"""The entry of a chunk's files and checkpoints with the digest of partition key, plan and data."""


@dataclass(frozen=True, kw_only=True)
class SavedChunk:
    """The stored content of a trained chunk.

    Attributes:
        made_from: digest of the key, the plan and the data.
        state: weights and buffers of the teachers, by name.
        label_shares: ``[chunk, C]``, of each teacher's own records; NaN without records.
    """

    made_from: str
    state: dict[str, Tensor]
    label_shares: Tensor

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        with atomic_write(path) as file:
            torch.save(
                {
                    ORIGIN: self.made_from,
                    "state": self.state,
                    "label_shares": self.label_shares,
                },
                file,
            )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a chunk's file; large arrays are read when they are used.

        Raises ``ValueError`` if it cannot be read.
        """
        content = load_tensors(path, _CHUNK)
        kinds = {"state": dict, "label_shares": Tensor}
        require(
            all(isinstance(content.get(name), kind) for name, kind in kinds.items()),
            f"the weights of a chunk of teachers in {path}",
            keys=sorted(map(str, content)),
        )
        parts = {name: content[name] for name in kinds}
        return cls(made_from=str(content.get(ORIGIN, "")), **parts)


_CHUNK = "a chunk of teachers, which `pate teachers fit` makes again where it was deleted"


def chunk_file(folder: Path, teachers: range) -> Path:
    """Return the file of a chunk's weights. Its existence means that the chunk is done."""
    return folder / f"teachers_{teachers.start:05d}.pt"


def read_origin(path: Path) -> str:
    """Return the ``made_from`` of a chunk's file or checkpoint, empty if it has none.

    Raises ``ValueError`` if it cannot be read.
    """
    return str(load_tensors(path, _CHUNK).get(ORIGIN, ""))


def foreign_files(folder: Path, made_from: str) -> list[str]:
    """Return the chunks' files and checkpoints in ``folder`` that have another digest."""
    return [
        path.name
        for path in sorted([*folder.glob("teachers_*.pt"), *folder.glob("teachers_*.ckpt")])
        if read_origin(path) != made_from
    ]


@dataclass(frozen=True, kw_only=True)
class VoteJob(ChunkJob):
    """Lets the teachers of a chunk vote on all samples, and stores their votes.

    Attributes:
        plan: how the teachers were trained.
        teachers_folder: the folder of the chunks' files.
        samples: features of the public samples, ``[Q, ...]``.
        num_labels: number of labels of a sample.
        store: where the votes are stored.
        voting: how they vote.
        absent: numbers of the teachers that cast no vote: their rows are zeros. PRIVATE.
        made_from: a digest of the teachers, the samples and the absent teachers, stored with the
            votes.
    """

    public: ClassVar[bool] = True

    plan: TeacherPlan
    teachers_folder: Path
    samples: Features
    num_labels: int
    store: VoteStore
    voting: Voting = "bits"
    absent: tuple[int, ...] = ()
    made_from: str = ""

    @property
    def num_steps(self) -> int:
        """Always one: a chunk votes in one step."""
        return 1

    def file(self, teachers: range) -> Path:
        """Return the file of the chunk's votes."""
        return self.store.chunk_file(teachers)

    def is_done(self, teachers: range) -> bool:
        """Whether the votes of the chunk are stored, with their origin."""
        return self.store.has_chunk(teachers)

    def work(self, teachers: range, report: Report) -> None:
        """Cast and store the votes of the chunk of ``teachers``.

        Raises ``ValueError`` like `load_chunk`.
        """
        shape = tuple(self.samples.shape[1:])
        chunk = load_chunk(self.plan, teachers, shape, self.num_labels, self.teachers_folder)
        votes = cast_votes(
            chunk.to(root_device(self.plan.accelerator)),
            self.samples,
            self.voting,
            batch_size=self.plan.batch_size,  # less memory than in training
        )
        votes[np.isin(teachers, self.absent)] = 0
        self.store.save_chunk(teachers, votes, made_from=self.made_from)
        report(1)


@torch.no_grad()
def cast_votes(
    chunk: TeacherChunk, features: Features, voting: Voting = "bits", *, batch_size: int = 256
) -> UInt8Array:
    """Return a chunk's votes: packed ``[chunk, Q, ceil(C / 8)]``, or scores ``[chunk, Q, C]``.

    With ``bits`` a teacher gives a label if its logit is above zero; ``scores`` are its
    probabilities, as `encode_scores` returns them. With ``quantile_bits`` it gives a label to the
    samples of its largest logits, and to such a share of them as has the label among its own
    records; for these, the logits of the chunk are held at once.

    A teacher without records, or with weights that are not finite, gives no label or score at all,
    and none of a label that no record of its own knows: a public rule, not an error.

    Returns:
        uint8, in the order of the teachers of the chunk and of the rows of ``features``.
    """
    chunk.eval()
    trained = chunk.is_trained()[:, None]
    parts = []
    for start in range(0, features.shape[0], batch_size):
        index = np.arange(start, min(start + batch_size, features.shape[0]))
        logits: Tensor = chunk(torch.from_numpy(features[index]).to(chunk.device)[None])
        if voting == "bits":
            parts.append(pack_ballots(((logits > 0) & trained).cpu().numpy()))
        elif voting == "scores":
            parts.append(
                encode_scores(torch.where(trained, logits, torch.nan).sigmoid().cpu().numpy())
            )
        else:
            parts.append(logits.cpu().numpy())
    votes = np.concatenate(parts, axis=1)
    if voting != "quantile_bits":
        return votes
    shares = torch.where(trained[:, 0], chunk.label_shares, 0).cpu().numpy()
    return np.stack(
        [pack_ballots(highest(*teacher)) for teacher in zip(votes, shares, strict=True)]
    )
