"""The stages `teachers fit` and `teachers vote`: all that they leave is PRIVATE."""

from __future__ import annotations

import csv
import io
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.optim import Optimizer
from tqdm import tqdm

from pate.data.celeba import ImageFiles
from pate.data.module import DataModule, Records, Role
from pate.data.partition import partition_records
from pate.runs import TEACHERS_FIT, TEACHERS_VOTE, Run, code_version, digest, load_or_make, write_text
from pate.teachers.chunk import NetworkFactory
from pate.teachers.training import TeacherPlan, chunk_file, load_chunk, train_chunk
from pate.teachers.voting import VoteStore, cast_votes
from pate.validation import expect, expect_count

Unit = Literal["record", "group"]


def fit_teachers(
    run: Run,
    data: DataModule,
    network: NetworkFactory,
    num_teachers: int,
    num_steps: int,
    batch_size: int,
    optimizer: Callable[[Any], Optimizer] = torch.optim.AdamW,
    unit: Unit = "record",
    chunk_size: int = 1,
    checkpoint_steps: int = 1000,
    positive_weight_power: float = 0.0,
    seed: int = 0,
    accelerator: str = "auto",
    threads: int = 1,
) -> None:
    """Train the teachers, each on its own partition of the private data.

    Killed and started again, the stage goes on where it stopped and ends bit for bit where an unbroken one ends.

    Args:
        run: the run's folder.
        data: where the records come from.
        network: makes a teacher's network for an input shape and a number of labels.
        num_teachers: how many teachers, at least 2.
        num_steps: optimizer steps of every teacher, a public constant.
        batch_size: records per step.
        optimizer: makes a teacher's optimizer, which must work entry by entry (SGD, Adam, AdamW ...).
        unit: what privacy protects, a ``record`` or a ``group`` of records such as those of one person.
        chunk_size: how many teachers are trained at once.
        checkpoint_steps: steps between the checkpoints that a killed chunk goes on from.
        positive_weight_power: 0 to 1; more weighs rare positive labels more, within each partition.
        seed: seed of initial weights, batch orders and dropout.
        accelerator: Lightning's accelerator.
        threads: processor threads of one operation; more than one costs small networks time.
    """
    plan = TeacherPlan(
        network=network,
        optimizer=optimizer,
        num_teachers=num_teachers,
        num_steps=num_steps,
        batch_size=batch_size,
        chunk_size=chunk_size,
        checkpoint_steps=checkpoint_steps,
        positive_weight_power=positive_weight_power,
        seed=seed,
        accelerator=accelerator,
    )
    expect_count(1, threads=threads)
    torch.set_num_threads(threads)
    private, public = data.records(Role.PRIVATE), data.records(Role.PUBLIC)
    check_disjoint(private, public)
    if not run.begin(TEACHERS_FIT, {"private": fingerprint(data, Role.PRIVATE)}):
        return
    folder = run.root / TEACHERS_FIT.outputs[0]
    folder.mkdir(exist_ok=True)
    key = load_or_make(run.private / "partition.json", lambda: {"key": secrets.token_hex(32)})["key"]
    partitions = partition_records(
        private.ids,
        private.groups if unit == "group" else private.ids,
        num_teachers=num_teachers,
        key=bytes.fromhex(key),
    )
    with tqdm(total=len(plan.chunks()) * num_steps, desc="teachers", unit="step") as progress:
        for teachers in plan.chunks():
            chunk = partitions[teachers.start : teachers.stop]
            train_chunk(plan, teachers, private, chunk, folder, progress)
    write_text(folder / "PRIVATE_log.csv", _log(plan, private, partitions, folder))
    run.finish(TEACHERS_FIT)


def vote_teachers(run: Run, data: DataModule, plan: TeacherPlan) -> None:
    """Let the teachers vote on every public sample; each teacher's votes are kept bit-packed."""
    run.require(TEACHERS_FIT)
    files = [chunk_file(run.root / TEACHERS_FIT.outputs[0], teachers) for teachers in plan.chunks()]
    made_by = {"teachers": digest(*files), "data": fingerprint(data, Role.PUBLIC), "code": code_version()}
    # votes stay what they are when only the code around them changes
    if not run.begin(TEACHERS_VOTE, {name: made_by[name] for name in ("teachers", "data")}):
        return
    store = VoteStore(run.root / TEACHERS_VOTE.outputs[0])
    public = data.records(Role.PUBLIC)
    for teachers in tqdm(plan.chunks(), desc="votes", unit="chunk"):
        if not store.chunk_file(teachers).is_file():
            store.save_chunk(teachers, cast_votes(_load(run, plan, teachers, data), public.features))
    store.seal(
        ids=public.ids.tolist(),
        label_names=list(data.label_names),
        num_teachers=plan.num_teachers,
        made_by=made_by,
    )
    run.finish(TEACHERS_VOTE)


def count_votes(run: Run, data: DataModule, plan: TeacherPlan, role: Role) -> NDArray[np.int64]:
    """Return the teachers' vote counts on the records of a role, ``[N, C]``. PRIVATE."""
    records = data.records(role)
    counts = np.zeros(records.labels.shape, dtype=np.int64)
    for teachers in tqdm(plan.chunks(), desc=f"votes on {role.value}", unit="chunk"):
        packed = cast_votes(_load(run, plan, teachers, data), records.features)
        counts += np.unpackbits(packed, axis=-1, count=counts.shape[1]).sum(axis=0, dtype=np.int64)
    return counts


def fingerprint(data: DataModule, role: Role) -> str:
    """Return a hash of the raw records of a role. Pictures count by name, size and time of change."""
    raw = data.load(role)
    if isinstance(raw.features, ImageFiles):
        stats = [(path.name, (stat := path.stat()).st_size, stat.st_mtime_ns) for path in raw.features.paths]
        content = repr(stats).encode()
    else:
        content = np.ascontiguousarray(raw.features[np.arange(len(raw))]).tobytes()
    names = "\n".join([*data.label_names, "", *raw.ids.tolist(), "", *raw.groups.tolist()])
    return digest(names, raw.labels.tobytes(), content)


def check_disjoint(private: Records, public: Records) -> None:
    """Raise ``ValueError`` where a public sample has the id of a private record."""
    shared = np.intersect1d(private.ids, public.ids)
    expect(shared.size == 0, "public samples that are no private records", shared_ids=shared[:3].tolist())


def _load(run: Run, plan: TeacherPlan, teachers: range, data: DataModule) -> Any:
    folder: Path = run.root / TEACHERS_FIT.outputs[0]
    return load_chunk(plan, teachers, data.input_shape, data.num_labels, folder)


def _log(plan: TeacherPlan, records: Records, partitions: list[NDArray[np.int64]], folder: Path) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["teacher", "records", "labels_of_both_classes", "final_loss", "votes"])
    losses = np.concatenate(
        [torch.load(chunk_file(folder, teachers), weights_only=True)["losses"].numpy() for teachers in plan.chunks()]
    )
    for teacher, (rows, loss) in enumerate(zip(partitions, losses, strict=True)):
        labels = records.labels[rows]
        both = int((labels.min(axis=0) != labels.max(axis=0)).sum()) if len(rows) else 0
        votes = "trained" if len(rows) and np.isfinite(loss) else "constant"
        writer.writerow([teacher, len(rows), both, f"{loss:.6g}", votes])
    return text.getvalue()
