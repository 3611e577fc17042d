"""The stages `teachers fit` and `teachers vote`: all that they leave is PRIVATE."""

from __future__ import annotations

import csv
import io
import json
import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from tqdm import tqdm

from pate.data.partition import partition_records
from pate.data.records import Records, Role
from pate.data.source import DataSource
from pate.runs import (
    TEACHERS_FIT,
    TEACHERS_VOTE,
    Json,
    Run,
    code_version,
    digest,
    key_file,
    make_once,
    read_key,
    write_text,
)
from pate.stages.ledger_file import open_ledger
from pate.teachers.batches import own_records
from pate.teachers.chunk import NetworkFactory
from pate.teachers.devices import available_bytes, root_device
from pate.teachers.executors import Executor, Kind, run_jobs, share_of
from pate.teachers.forecast import forecast
from pate.teachers.losses import EntryLoss
from pate.teachers.sizing import choose_size
from pate.teachers.tally import Report
from pate.teachers.training import (
    Precision,
    TeacherPlan,
    chunk_file,
    load_chunk,
    read_chunk,
    read_origin,
    train_chunk,
)
from pate.teachers.voting import cast_votes, vote_chunk
from pate.validation import expect
from pate.vote_store import VoteStore

Unit = Literal["record", "group"]
Curves = Literal["csv", "tensorboard"]

_KEY_BYTES = 32
CHUNK_SIZE = "chunk_size.json"
"""In the teachers' folder: how many are trained at once, after `auto` and the memory guard."""


def fit_teachers(
    run: Run,
    data: DataSource,
    network: NetworkFactory,
    num_teachers: int,
    num_steps: int,
    batch_size: int,
    optimizer: Callable[[Any], Optimizer] = torch.optim.AdamW,
    unit: Unit = "record",
    chunk_size: int | Literal["auto"] = 1,
    checkpoint_steps: int = 1000,
    positive_weight_power: float = 0.0,
    loss: EntryLoss | None = None,
    scheduler: Callable[[Optimizer], LRScheduler] | None = None,
    clip_norm: float | None = None,
    seed: int = 0,
    accelerator: str = "auto",
    precision: Precision = "32-true",
    threads: int = 1,
    workers: int = 1,
    executor: Kind | None = None,
    gpus: float = 0.0,
    share: str | None = None,
    logger: Curves = "csv",
    dry_run: bool = False,
) -> None:
    """Train the teachers, each on its own partition of the private data.

    Killed and started again, the stage goes on where it stopped and ends bit for bit where an unbroken one ends. Where
    it runs (threads, workers, executor, gpus, share) changes nothing of what it leaves, and may change on the way.

    Args:
        run: the run's folder.
        data: where the records come from.
        network: makes a teacher's network for an input shape and a number of labels.
        num_teachers: how many teachers, at least 2.
        num_steps: optimizer steps of every teacher, a public constant.
        batch_size: records per step.
        optimizer: makes a teacher's optimizer, which must work entry by entry (SGD, Adam, AdamW ...).
        unit: what privacy protects, a ``record`` or a ``group`` of records such as those of one person.
        chunk_size: how many teachers are trained at once, halved until they fit into memory; ``auto`` tries what is
            fastest and keeps to it.
        checkpoint_steps: steps between the checkpoints that a killed chunk goes on from.
        positive_weight_power: 0 to 1; more weighs rare positive labels more, within each partition.
        loss: the loss of a label: ``BinaryCrossEntropy`` (default), ``FocalLoss`` or ``AsymmetricLoss``.
        scheduler: makes the learning-rate schedule, stepped once per optimizer step; it may look at no loss.
        clip_norm: longest gradient of a teacher.
        seed: seed of initial weights, batch orders and dropout.
        accelerator: Lightning's accelerator.
        precision: ``32-true``, or ``bf16-mixed`` where the device is fast with it. ``16-mixed`` is not offered: its
            gradient scaler would let stacked teachers see each other.
        threads: processor threads of one operation; more than one costs small networks time.
        workers: how many chunks are trained at a time.
        executor: ``serial`` in this process, ``loky`` on local workers, ``ray`` on Ray; loky where there are several
            workers.
        gpus: share of a GPU that each worker on Ray takes.
        share: ``i/n`` trains every n-th chunk from the i-th on, ``rank`` takes i and n from torchrun or SLURM. Whoever
            trains the last chunk finishes the stage.
        logger: where curves of losses go in the teachers' folder, ``csv`` or ``tensorboard``; loggers that send them
            elsewhere are not offered, because they are PRIVATE.
        dry_run: say how large partitions are (PRIVATE), what memory and time it will take and where it will run; train
            and write nothing.
    """
    plan = TeacherPlan(
        network=network,
        optimizer=optimizer,
        num_teachers=num_teachers,
        num_steps=num_steps,
        batch_size=batch_size,
        chunk_size=1 if chunk_size == "auto" else chunk_size,
        checkpoint_steps=checkpoint_steps,
        positive_weight_power=positive_weight_power,
        loss=loss,
        scheduler=scheduler,
        clip_norm=clip_norm,
        seed=seed,
        accelerator=accelerator,
        precision=precision,
    )
    where = _executor(executor, workers, threads, gpus)
    installed = logger != "tensorboard" or find_spec("tensorboard") is not None
    expect(installed, "the package of pip install 'pate[tensorboard]'", logger=logger)
    share_of([], share)
    expect(not (share and run.overwrite), "overwrite without a share, which others would lose", share=share)
    torch.set_num_threads(threads)
    private, public = data.records(Role.PRIVATE), data.records(Role.PUBLIC)
    check_disjoint(private, public)
    known = unit == "record" or private.groups is not None
    expect(known, "groups of the private records (`group` in an .npz, identity_CelebA.txt in a folder)", unit=unit)

    def partitions_by(key: bytes) -> list[NDArray[np.int64]]:
        units = private.ids if private.groups is None or unit == "record" else private.groups
        return partition_records(private.ids, units, num_teachers=num_teachers, key=key)

    def choose() -> Json:
        available = available_bytes(root_device(accelerator)) // workers
        sizing = choose_size(plan, data.input_shape, data.num_labels, auto=chunk_size == "auto", available=available)
        for line in sizing.said:
            print(line, flush=True)
        return {"chunk_size": sizing.chunk_size}

    # workers may start in another folder
    folder = run.root.resolve() / TEACHERS_FIT.outputs[0]
    if dry_run:
        text = forecast(
            plan,
            [len(partition) for partition in partitions_by(read_key(run) or secrets.token_bytes(_KEY_BYTES))],
            shape=data.input_shape,
            num_labels=data.num_labels,
            auto=chunk_size == "auto",
            executor=where,
            share=share,
        )
        print(text, end="")
        return
    if run.overwrite or not run.is_finished(TEACHERS_FIT):
        # a copy of another ledger is refused before the run is begun with it
        open_ledger(run)
    key = _key(run)
    partitions = partitions_by(key)
    inputs = _inputs(data) | {"partition": digest(key)}
    made_from = digest(json.dumps([_plan_of(run), inputs], sort_keys=True, default=str))
    if not run.begin(TEACHERS_FIT, inputs, foreign=_foreign_chunks(folder, made_from)):
        return
    folder.mkdir(exist_ok=True)
    # chosen once and kept, because a teacher's chunk is part of how it is trained
    plan = replace(plan, chunk_size=make_once(folder / CHUNK_SIZE, choose)["chunk_size"])
    mine = share_of(plan.chunks(), share)
    with tqdm(total=len(mine) * num_steps, desc="teachers", unit="step") as progress:
        run_jobs(
            _train,
            mine,
            executor=where,
            shared=(plan, folder, made_from),
            pack=lambda teachers: own_records(private, partitions[teachers.start : teachers.stop]),
            is_done=lambda teachers: chunk_file(folder, teachers).is_file(),
            report=progress.update,
            steps=num_steps,
            progress=partial(_progress_file, folder),
        )
    missing = [teachers for teachers in plan.chunks() if not chunk_file(folder, teachers).is_file()]
    if missing:
        print(
            f"Share {share} is done. {len(missing)} of {len(plan.chunks())} chunks are left to other shares, the first"
            f" of them teachers {missing[0].start} to {missing[0].stop - 1}; who trains the last finishes the stage."
        )
        return
    losses = _losses(plan, folder)
    write_text(folder / "PRIVATE_log.csv", _log(private, partitions, losses[-1]))
    _log_curves(losses, num_steps, folder / "PRIVATE_losses", logger)
    files = [folder / CHUNK_SIZE, *(chunk_file(folder, teachers) for teachers in plan.chunks())]
    run.finish(TEACHERS_FIT, {file: digest(file) for file in files})


def vote_teachers(
    run: Run,
    data: DataSource,
    plan: TeacherPlan,
    threads: int = 1,
    workers: int = 1,
    executor: Kind | None = None,
    gpus: float = 0.0,
    absent: list[int] | None = None,
) -> None:
    """Let the teachers vote on every public sample; each teacher's votes are kept bit-packed.

    The number of teachers is a public constant: one that is absent, such as a silo that stays away, casts no vote but
    counts among them.

    Args:
        run: the run's folder.
        data: where the samples come from.
        plan: how the teachers were trained.
        threads: processor threads of one operation.
        workers: how many chunks vote at a time.
        executor: ``serial`` in this process, ``loky`` on local workers, ``ray`` on Ray; loky where there are several
            workers.
        gpus: share of a GPU that each worker on Ray takes.
        absent: numbers of the teachers, from 0 on, that take no part: their ballots are rows of zeros. PRIVATE, as the
            votes are.
    """
    where = _executor(executor, workers, threads, gpus)
    away = sorted(absent or [])
    right = len(set(away)) == len(away) and all(0 <= teacher < plan.num_teachers for teacher in away)
    expect(right, f"absent teachers in 0..{plan.num_teachers - 1}, each once", absent=absent)
    run.require(TEACHERS_FIT)
    begun = run.state(TEACHERS_FIT)
    assert begun is not None, "a stage that is required has a state"
    changed = [f"other {name} records" for name, found in _inputs(data).items() if begun["inputs"].get(name) != found]
    expect(not changed, f"the data that `teachers fit` of {run.root} was begun with", found=changed)
    check_disjoint(data.load(Role.PRIVATE), data.load(Role.PUBLIC))
    # workers may start in another folder
    folder = run.root.resolve() / TEACHERS_FIT.outputs[0]
    files = [chunk_file(folder, teachers) for teachers in plan.chunks()]
    made_by = {"teachers": digest(*files), "data": data.fingerprint(Role.PUBLIC), "code": code_version()}
    store = VoteStore(run.root.resolve() / TEACHERS_VOTE.outputs[0])
    # votes stay what they are when only the code around them changes
    inputs = {name: made_by[name] for name in ("teachers", "data")}
    made_from = digest(json.dumps([inputs, away], sort_keys=True))
    foreign = [name for name, found in store.origins().items() if found != made_from]
    if not run.begin(TEACHERS_VOTE, inputs, foreign=foreign):
        return
    public = data.records(Role.PUBLIC)
    with tqdm(total=len(files), desc="votes", unit="chunk") as progress:
        run_jobs(
            _vote,
            plan.chunks(),
            executor=where,
            shared=(plan, public.features, data.num_labels, folder, store, away, made_from),
            pack=lambda teachers: None,
            is_done=store.has_chunk,
            report=progress.update,
            steps=1,
            public=True,
        )
    left = store.seal(
        ids=public.ids.tolist(),
        label_names=list(data.label_names),
        num_teachers=plan.num_teachers,
        made_by=made_by,
    )
    run.finish(TEACHERS_VOTE, left)


def count_votes(run: Run, data: DataSource, plan: TeacherPlan, role: Role) -> NDArray[np.int64]:
    """Return the vote counts of the teachers that took part, on the records of a role, ``[N, C]``. PRIVATE."""
    records = data.records(role)
    voted = run.state(TEACHERS_VOTE)
    away = (voted["config"].get("absent") if voted is not None else None) or []
    counts: NDArray[np.int64] = np.zeros(records.labels.shape, dtype=np.int64)
    for teachers in tqdm(plan.chunks(), desc=f"votes on {role.value}", unit="chunk"):
        chunk = _load(run, plan, teachers, data).to(root_device(plan.accelerator))
        packed = cast_votes(chunk, records.features)
        packed[np.isin(teachers, away)] = 0
        counts += np.unpackbits(packed, axis=-1, count=data.num_labels).sum(axis=0, dtype=np.int64)
    return counts


def check_disjoint(private: Records, public: Records) -> None:
    """Raise ``ValueError`` where a public sample has the id of a private record."""
    shared = np.intersect1d(private.ids, public.ids)
    expect(shared.size == 0, "public samples that are no private records", shared_ids=shared[:3].tolist())


def _inputs(data: DataSource) -> dict[str, str]:
    """Return hashes of what teachers are trained on: private records, and public ones where features are fitted."""
    roles = (Role.PRIVATE,) if data.feature_map is None else (Role.PRIVATE, Role.PUBLIC)
    return {role.value: data.fingerprint(role) for role in roles}


def _plan_of(run: Run) -> Json:
    """Return the settings that say how teachers are trained; where releases are booked is not among them."""
    return {name: value for name, value in run.config.items() if name != "ledger"}


def _key(run: Run) -> bytes:
    """Return the key of the partition, made where no teacher was trained with another.

    Raises ``ValueError`` where the key of a stage that was begun is lost.
    """
    key = read_key(run)
    if key is None:
        fresh = run.overwrite or run.state(TEACHERS_FIT) is None
        again = "Put it back, or train all teachers again with --overwrite"
        expect(fresh, f"the key that `teachers fit` was begun with. {again}", missing=str(key_file(run)))
        run.private.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_once(key_file(run), lambda: {"key": secrets.token_hex(_KEY_BYTES)})
        key = read_key(run)
    assert key is not None, "it was made once"
    return key


def _foreign_chunks(folder: Path, made_from: str) -> list[str]:
    """Return the chunks' files and checkpoints that were made from something else."""
    files = sorted([*folder.glob("teachers_*.pt"), *folder.glob("teachers_*.ckpt")])
    return [path.name for path in files if read_origin(path) != made_from]


def _executor(kind: Kind | None, workers: int, threads: int, gpus: float) -> Executor:
    return Executor(kind=kind or ("loky" if workers > 1 else "serial"), workers=workers, threads=threads, gpus=gpus)


def _train(shared: Any, own: Any, teachers: range, report: Report) -> None:
    plan, folder, made_from = shared
    records, partitions = own
    train_chunk(plan, teachers, records, partitions, folder, report, made_from=made_from)


def _progress_file(folder: Path, teachers: range) -> Path:
    return chunk_file(folder, teachers).with_suffix(".steps")


def _vote(shared: Any, own: None, teachers: range, report: Report) -> None:
    plan, features, num_labels, folder, store, absent, made_from = shared
    vote_chunk(plan, teachers, features, num_labels, folder, store, absent=absent, made_from=made_from)
    report(1)


def _load(run: Run, plan: TeacherPlan, teachers: range, data: DataSource) -> Any:
    folder: Path = run.root / TEACHERS_FIT.outputs[0]
    return load_chunk(plan, teachers, data.input_shape, data.num_labels, folder)


def _losses(plan: TeacherPlan, folder: Path) -> NDArray[np.float32]:
    """Return the curves of losses, ``[points, num_teachers]``."""
    files = [chunk_file(folder, teachers) for teachers in plan.chunks()]
    return np.concatenate([read_chunk(file)["losses"].numpy() for file in files], axis=1)


def _log(records: Records, partitions: list[NDArray[np.int64]], losses: NDArray[np.float32]) -> str:
    """Return a table with a line per teacher."""
    lines: list[list[object]] = [["teacher", "records", "labels_of_both_classes", "final_loss", "votes"]]
    for teacher, (rows, loss) in enumerate(zip(partitions, losses, strict=True)):
        labels = records.labels[rows]
        both = int((labels.min(axis=0) != labels.max(axis=0)).sum()) if len(rows) else 0
        votes = "trained" if len(rows) and np.isfinite(loss) else "constant"
        lines.append([teacher, len(rows), both, f"{loss:.6g}", votes])
    return _csv(lines)


def _log_curves(losses: NDArray[np.float32], num_steps: int, folder: Path, kind: Curves) -> None:
    """Log how losses ``[points, num_teachers]`` spread over teachers, by the step at the end of each span of steps."""
    rmtree(folder, ignore_errors=True)
    logger = (TensorBoardLogger if kind == "tensorboard" else CSVLogger)(folder, name="", version="")
    shares = {"min": 0.0, "q10": 0.1, "median": 0.5, "q90": 0.9, "max": 1.0}
    for point, row in enumerate(losses, 1):
        finite = row[np.isfinite(row)]
        spread = np.quantile(finite, list(shares.values())) if finite.size else [np.nan] * len(shares)
        metrics = {"teachers_of_finite_loss": finite.size, **dict(zip(shares, map(float, spread), strict=True))}
        logger.log_metrics(metrics, step=-(-point * num_steps // len(losses)))
    logger.finalize("success")


def _csv(lines: list[list[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()
