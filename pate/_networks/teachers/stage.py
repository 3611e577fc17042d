"""The stages of teachers: each is trained on its own partition, and votes on each public sample.

How many are trained at once follows from the memory of a step on data of the public shape, so that
the choice reveals nothing about private records.
"""

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pate._core.files.reading import Json, digest
from pate._core.files.writing import (
    atomic_write,
    gigabytes,
    make_once,
    require_disk,
)
from pate._core.validation import Float32Array, FloatArray, require, stage_bar
from pate._labeling.data.records import Role
from pate._labeling.data.source import DataSource
from pate._labeling.linear import flat
from pate._labeling.release.between_runs import Start
from pate._labeling.runs.run import (
    KEY_BYTES,
    TEACHERS_FIT,
    TEACHERS_VOTE,
    Run,
    read_key,
)
from pate._labeling.runs.vote_store import VoteStore
from pate._labeling.stages.rehearsal import LEAST_LEARNED, learned, separable
from pate._labeling.stages.teachers import Poll, Teaching
from pate._labeling.teachers import CHUNK_SIZE, Execution
from pate._labeling.votes.kinds import Voting, kind_cast
from pate._networks.settings import require_logits, require_pictures
from pate._networks.teachers.executors import available_bytes, root_device, run_jobs
from pate._networks.teachers.plan import PartitionedRecords, TeacherPlan, draw_batches
from pate._networks.teachers.training import (
    TeacherChunk,
    TrainJob,
    VoteJob,
    chunk_file,
    foreign_files,
    make_networks,
)

_COMPARED = 64  # public samples, which tell two feature maps apart
_PASSES, _MOST_STEPS = 20, 1000  # over public samples, in which a network learns their answers

_COPIES = 4  # weights, gradients and the two moments of Adam
_SCRATCH = 2  # temporary copies of one weight while the optimizer works on it
_GAPS = 1.8  # what results of operations take with the gaps between them, as measured


def write_start(path: Path, start: Start, plan: TeacherPlan, data: DataSource) -> None:
    """Write the weights that all teachers start from, unless they are there.

    These are the weights of the student if its network has the same class and sees the same
    features. Otherwise a network of the teachers' class learns the student's answers to the public
    samples: these are public, so that it may pass over them many times.

    Args:
        path: the file, ``.safetensors``.
        start: the student.
        plan: how teachers are trained.
        data: the source of the public samples.
    """
    if path.is_file():
        return
    public = data.load(Role.PUBLIC), data.records(Role.PUBLIC)
    raw, seen = (records.features[np.arange(len(records))] for records in public)
    (network,) = make_networks(plan, tuple(seen.shape[1:]), data.num_labels, teachers=range(1))
    student: Any = start.student.module
    compared = slice(0, _COMPARED)
    same = type(student.network) is type(network) and _shapes(student.network) == _shapes(network)
    if same:
        with torch.inference_mode():
            mapped = student.features(torch.from_numpy(raw[compared]))
        same = mapped.shape == seen[compared].shape and np.allclose(
            mapped, seen[compared], atol=1e-4
        )
    if same:
        network.load_state_dict(student.network.state_dict())
    else:
        _learn(network, seen, start.answers(raw).astype(np.float32), plan)
    with atomic_write(path) as file:
        file.write(save({name: value.contiguous() for name, value in network.state_dict().items()}))


def _learn(
    network: nn.Module, samples: Float32Array, answers: Float32Array, plan: TeacherPlan
) -> None:
    """Train a network on answers ``[N, C]`` to public samples, by a teacher's optimizer."""
    passes = min(_MOST_STEPS, _PASSES * len(samples) // plan.batch_size)
    optimizer = plan.make_optimizer(network.parameters())
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(plan.seed)
        for rows in draw_batches(
            len(samples),
            seed=plan.seed,
            teacher=0,
            steps=range(max(plan.num_steps, passes)),
            batch_size=plan.batch_size,
        ):
            loss = binary_cross_entropy_with_logits(
                network(torch.from_numpy(samples[rows])), torch.from_numpy(answers[rows])
            )
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def _shapes(network: nn.Module) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in network.state_dict().items()}


def fit_teachers(run: Run, data: DataSource, plan: TeacherPlan, execution: Execution) -> Teaching:
    """Train the teachers, each on its own partition of the private data.

    After an interruption the stage continues where it stopped, with the same result bit for bit.

    Args:
        run: the run's folder.
        data: the source of the records.
        plan: how teachers are trained.
        execution: where chunks are trained.

    Raises:
        ValueError: if settings or records do not allow it.
    """
    torch.set_num_threads(execution.threads)
    private, shape = data.records(Role.PRIVATE), data.input_shape
    data.require_distinct()
    require_pictures(plan.augment, shape)
    private.units(plan.unit)  # raises if there are none
    require_logits(plan.network, data, seed=plan.seed)
    require_learning(plan, data)

    def describe() -> None:
        key = read_key(run) or secrets.token_bytes(KEY_BYTES)
        sizes = PartitionedRecords.by_key(private, plan, key).sizes
        run.tell_owner(describe_sizes(sizes), keep=False)
        num = data.num_labels
        print(describe_training(plan, shape=shape, num_labels=num, execution=execution), end="")

    def train(folder: Path, key: bytes, made_from: str, start: Start | None) -> dict[Path, str]:
        partitioned = PartitionedRecords.by_key(private, plan, key)

        def choose() -> Json:
            available = available_bytes(root_device(plan.accelerator)) // execution.workers
            return {"chunk_size": fitting_size(plan, shape, data.num_labels, available=available)}

        # chosen once and kept, because training depends on the chunk of a teacher
        sized_plan = replace(plan, chunk_size=make_once(folder / CHUNK_SIZE, choose)["chunk_size"])
        job = TrainJob(plan=sized_plan, data=partitioned, folder=folder, made_from=made_from)
        if start is not None and job.start_file is not None:
            write_start(job.start_file, start, plan, data)
        chunks = sized_plan.chunks()
        untrained = sum(len(teachers) for teachers in chunks if not job.is_done(teachers))
        require_disk(disk_bytes(plan, shape, data.num_labels, untrained), folder, "teachers")
        with stage_bar(len(chunks) * plan.num_steps, "teachers", unit="step") as bar:
            run_jobs(job, chunks, execution, bar.update)
        files = [folder / CHUNK_SIZE, *(chunk_file(folder, teachers) for teachers in chunks)]
        return {file: digest(file) for file in files}

    return Teaching(describe, train, foreign_files)


def vote_teachers(
    run: Run,
    data: DataSource,
    plan: TeacherPlan,
    execution: Execution,
    *,
    voting: Voting | None,
    absent: Sequence[int] | None,
) -> Poll:
    """Let the teachers vote on every public sample. Each teacher's votes are kept.

    Args:
        run: the run's folder.
        data: the source of the samples.
        plan: how the teachers were trained.
        execution: where the teachers vote.
        voting: how they vote. None for the way of an earlier call, or ``bits``.
        absent: numbers, from 0, of the teachers that take no part. Their ballots are rows of zeros,
            and they still count, because the number of teachers is a public constant. Like the
            votes, this list is PRIVATE. None for the list of an earlier call, if any.

    Raises:
        ValueError: if an absent teacher is not there, or the teachers have changed.
    """
    before = run.inputs_of(TEACHERS_VOTE).settings
    form: Voting = before.get("votes", "bits") if voting is None else voting
    absent = before.get("absent") if absent is None else absent
    away = sorted(map(int, absent or []))
    in_range = len({*away} & {*range(plan.num_teachers)}) == len(away)
    require(in_range, f"absent teachers in 0..{plan.num_teachers - 1}, each once", absent=absent)
    run.require_finished(TEACHERS_FIT)
    # workers may start in another folder
    folder, chunks = run.root.resolve() / TEACHERS_FIT.outputs[0], plan.chunks()

    def cast(store: VoteStore, made_from: str) -> None:
        job = VoteJob(
            plan=plan,
            teachers_folder=folder,
            samples=data.records(Role.PUBLIC).features,
            num_labels=data.num_labels,
            store=store,
            voting=form,
            absent=tuple(away),
            made_from=made_from,
        )
        with stage_bar(len(chunks), "votes", unit="chunk") as bar:
            run_jobs(job, chunks, execution, bar.update)

    teachers = digest(*(chunk_file(folder, teachers) for teachers in chunks))
    settings = {"votes": form, "absent": away}
    return Poll(kind_cast(form), plan.num_teachers, settings, teachers, cast)


def fitting_size(
    plan: TeacherPlan, shape: tuple[int, ...], num_labels: int, *, available: int
) -> int:
    """Return ``plan.chunk_size``, halved until a chunk fits into memory, and say so.

    A chunk is the teachers that are trained at once.

    Args:
        plan: how teachers are trained.
        shape: shape of a record's features.
        num_labels: number of labels.
        available: bytes of memory that one chunk may take.
    """
    size = plan.chunk_size
    while size > 1 and chunk_bytes(plan, shape, num_labels, size) > available:
        size //= 2
    if size < plan.chunk_size:
        needed = gigabytes(chunk_bytes(plan, shape, num_labels, plan.chunk_size))
        print(
            f"A chunk of {plan.chunk_size} teachers needs about {needed} of"
            f" {gigabytes(available)} GB: halved to {size}.",
            flush=True,
        )
    return size


def chunk_bytes(plan: TeacherPlan, shape: tuple[int, ...], num_labels: int, size: int) -> int:
    """Estimate the bytes that a chunk of ``size`` needs in training, and no more of in voting.

    It takes a step on torch's ``meta`` device, which computes only shapes.
    """
    # stacked networks are alike: the needs of many follow from the needs of two
    stacked = min(size, 2)
    chunk = _trial_chunk(plan, shape, num_labels, stacked).to("meta")
    state = [p.nbytes for p in chunk.parameters()]
    features = torch.empty(stacked, plan.batch_size, *shape, device="meta")
    labels = torch.empty(stacked, plan.batch_size, num_labels, device="meta")
    with _Allocated() as held:
        chunk.teacher_losses(features, labels).sum().backward()  # type: ignore[no-untyped-call]
    # gradients are among the results
    step = max(_GAPS * (held.peak - sum(state)), _SCRATCH * max(state))
    fresh = sum(state) if stacked > 1 else 0  # networks before they are stacked
    return int((_COPIES * sum(state) + fresh + step + features.nbytes) * size / stacked)


class _Allocated(TorchDispatchMode):
    """Notes the largest number of bytes that the results of operations hold at a time."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._live: dict[StorageWeakRef, int] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for storage in (t.untyped_storage() for t in tree_leaves(made) if isinstance(t, Tensor)):
            self._live[StorageWeakRef(storage)] = storage.nbytes()  # type: ignore[no-untyped-call]
        expired = [ref for ref in self._live if ref.expired()]  # type: ignore[no-untyped-call]
        for ref in expired:
            del self._live[ref]
        # convolutions work on copies in another layout
        copied = tree_leaves((args, made)) if "convolution" in str(func) else []
        scratch = sum(each.nbytes for each in copied if isinstance(each, Tensor))
        self.peak = max(self.peak, sum(self._live.values()) + scratch)
        return made


def disk_bytes(
    plan: TeacherPlan, shape: tuple[int, ...], num_labels: int, num_teachers: int
) -> int:
    """Return the bytes on disk of the weights and buffers of so many teachers."""
    (network,) = make_networks(plan, shape, num_labels, teachers=range(1))
    return num_teachers * sum(
        tensor.numel() * tensor.element_size() for tensor in network.state_dict().values()
    )


def _trial_chunk(
    plan: TeacherPlan, shape: tuple[int, ...], num_labels: int, size: int
) -> TeacherChunk:
    chunk = TeacherChunk(
        make_networks(plan, shape, num_labels, teachers=range(size)),
        plan,
        positive_weights=np.ones((size, num_labels), dtype=np.float32),
        label_shares=np.ones((size, num_labels), dtype=np.float32),
    )
    return chunk.train()


_TAUGHT = 32  # public samples
_LOOKS = (20, 40, 80, 160, 320)  # steps after which learning is measured
_LEAST_FALL = 1e-3  # of the loss by the last step, where learning is slow
_PATIENCE = 5.0  # seconds after which the next look is the last, and slow learning enough


def require_learning(plan: TeacherPlan, data: DataSource) -> None:
    """Raise ``ValueError`` unless a fresh network learns separable labels by the plan's optimizer.

    The labels of a few public samples are made up. The loss must fall, and decisions exceed
    `LEAST_LEARNED`. By the last look, a lower loss and logits that moved towards the labels are
    enough, since a plan may take more steps than this.

    Args:
        plan: how a teacher is trained. Its number of steps is not looked at.
        data: the source of public samples.
    """
    features = data.records(Role.PUBLIC).features
    rows = np.unique(np.linspace(0, features.shape[0] - 1, _TAUGHT).astype(np.int64))
    samples = np.ascontiguousarray(features[rows], dtype=np.float32)
    truth = separable(flat(samples), data.num_labels)
    if len({*truth[:, 0].tolist()}) < 2:  # all samples are alike
        return
    device, begun = root_device(plan.accelerator), time.perf_counter()
    # one in 1,000 is wrong, so that answers without bound cost without bound
    unsure = torch.from_numpy(truth * 0.998 + 0.001)
    x, y = (torch.from_numpy(a).float()[None].to(device) for a in (samples, truth))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(plan.seed)
        chunk = _trial_chunk(plan, samples.shape[1:], data.num_labels, 1).to(device)
        optimizer = plan.make_optimizer(chunk.parameters())

        @torch.no_grad()
        def look() -> tuple[float, list[FloatArray]]:
            chunk.eval()  # several times, as answers may be random
            logits = [chunk(x)[0].double().cpu() for _ in range(3)]
            losses = [float(binary_cross_entropy_with_logits(z, unsure)) for z in logits]
            return max(losses), [z.numpy() for z in logits]

        first, before = look()
        for step in range(1, _LOOKS[-1] + 1):
            loss = chunk.train().teacher_losses(x, y).sum()
            if loss.requires_grad:  # else nothing is learned
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                chunk.on_before_optimizer_step(optimizer)
                optimizer.step()
            if step not in _LOOKS:
                continue
            late = time.perf_counter() - begun > _PATIENCE or step == _LOOKS[-1]
            now, after = look()
            accuracy = min(learned(z > 0, truth) for z in after)
            changes = [z - z0 for z, z0 in zip(after, before, strict=True)]
            moved = min(learned(z > z.mean(axis=0), truth) for z in changes)
            if now < first and accuracy > LEAST_LEARNED:
                return
            if late or not np.isfinite(now):
                break
    require(
        now < (1 - _LEAST_FALL) * first and moved > LEAST_LEARNED,
        f"a network {type(chunk.network).__name__} that learns made-up labels of {len(rows)} public"
        f" samples by {type(optimizer).__name__}, with accuracy > {LEAST_LEARNED} and a loss below"
        f" the first, {first:.3g}",
        accuracy=round(accuracy, 3),
        loss=float(f"{now:.3g}"),
        steps=step,
    )


def describe_training(
    plan: TeacherPlan,
    *,
    shape: tuple[int, ...],
    num_labels: int,
    execution: Execution,
) -> str:
    """Describe the memory and disk that training takes.

    Args:
        plan: how teachers are trained.
        shape: shape of a record's features.
        num_labels: number of labels.
        execution: where chunks are trained.
    """
    available = available_bytes(root_device(plan.accelerator)) // execution.workers
    size = fitting_size(plan, shape, num_labels, available=available)
    needed = gigabytes(chunk_bytes(plan, shape, num_labels, size))
    disk = gigabytes(disk_bytes(plan, shape, num_labels, plan.num_teachers))
    return (
        f"Chunks of {size} teachers, {plan.num_steps} steps of {plan.batch_size} records.\n"
        f"Memory: about {needed} GB per worker, of {gigabytes(available)} GB that it may take.\n"
        f"Disk: about {disk} GB of teachers.\n"
    )


def describe_sizes(sizes: Sequence[int]) -> str:
    """Describe the numbers of records of the partitions, ``[num_teachers]``. PRIVATE."""
    smallest, median, largest = (round(float(q)) for q in np.quantile(sizes, [0, 0.5, 1]))
    return (
        f"{sum(sizes)} records in {len(sizes)} partitions of {smallest} to {largest}, median"
        f" {median}; {sum(not size for size in sizes)} without a record."
    )
