"""The stage `teachers fit`: teachers, each trained on its own partition of the private data. All of it is PRIVATE."""

from __future__ import annotations

import secrets
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch

from pate._data_file import describe_data
from pate._disk import expect_disk, make_folder
from pate._progress import stage_bar
from pate._release.ledger_file import ledger_setting, open_ledger
from pate._runs import (
    KEY_BYTES,
    TEACHERS_FIT,
    Inputs,
    Json,
    Run,
    digest,
    ensure_key,
    make_once,
    read_key,
    write_text,
)
from pate._runs.locks import FINISH, lease
from pate._settings import encode_fields
from pate._validation import expect
from pate.data._augmentation import expect_pictures
from pate.data._records import Role
from pate.data._source import DataSource
from pate.teachers._chunk import make_networks
from pate.teachers._devices import available_bytes, root_device
from pate.teachers._executors import run_jobs
from pate.teachers._jobs import Execution
from pate.teachers._log import log_curves, read_losses, teachers_table
from pate.teachers._partitions import PartitionedRecords, units_of
from pate.teachers._plan import CLOSED_FORM, ClosedFormPlan, CurveFormat, TeacherPlan
from pate.teachers._saved import CHUNK_SIZE, chunk_file, foreign_files
from pate.teachers._sizing import choose_size, describe_training, disk_bytes
from pate.teachers._training import TrainJob

_ONE_OF_MANY = (
    "Note: the data say whose record each is, but `unit: record` protects one record alone, not the person;"
    " `unit: group` protects all records of a person together."
)


def fit_teachers(
    run: Run,
    data: DataSource,
    plan: TeacherPlan,
    execution: Execution,
    *,
    logger: CurveFormat = "csv",
    dry_run: bool = False,
) -> None:
    """Train the teachers, each on its own partition of the private data.

    If it is killed and started again, the stage continues where it stopped, and its result is bit for bit that of an
    uninterrupted one.

    Args:
        run: the run's folder.
        data: the source of the records.
        plan: how teachers are trained.
        execution: where chunks are trained.
        logger: the format of the loss curves.
        dry_run: whether to print what training will take, and train and write nothing.

    Raises:
        ValueError: if settings, records or earlier files do not allow it.
    """
    installed = logger != "tensorboard" or find_spec("tensorboard") is not None
    expect(installed, "the package of pip install 'pate[tensorboard]'", logger=logger)
    expect(not (execution.shared and run.overwrite), "overwrite without shared, which others would lose", shared=True)
    torch.set_num_threads(execution.threads)
    private = data.records(Role.PRIVATE)
    data.expect_distinct()
    expect_pictures(plan.augment, data.input_shape)
    units_of(private, plan.unit)  # raises if there are none
    make_networks(plan, data.input_shape, data.num_labels, teachers=range(1))  # raises if they cannot be made
    if dry_run:
        sizes = PartitionedRecords.by_key(private, plan, read_key(run) or secrets.token_bytes(KEY_BYTES)).sizes
        text = describe_training(plan, sizes, shape=data.input_shape, num_labels=data.num_labels, execution=execution)
        print(text, end="")
        return
    partition = begin_fit(run, data, plan)
    if partition is None:
        return
    folder, key, made_from = partition
    partitioned = PartitionedRecords.by_key(private, plan, key)

    def choose() -> Json:
        available = available_bytes(root_device(plan.accelerator)) // execution.workers
        sizing = choose_size(plan, data.input_shape, data.num_labels, available=available)
        for line in sizing.messages:
            print(line, flush=True)
        return {"chunk_size": sizing.chunk_size}

    # chosen once and kept, because training depends on the chunk of a teacher
    sized_plan = replace(plan, chunk_size=make_once(folder / CHUNK_SIZE, choose)["chunk_size"])
    job = TrainJob(plan=sized_plan, data=partitioned, folder=folder, made_from=made_from)
    chunks = sized_plan.chunks()
    untrained = sum(len(teachers) for teachers in chunks if not job.is_done(teachers))
    expect_disk(disk_bytes(plan, data.input_shape, data.num_labels, untrained), folder, "teachers")
    with stage_bar(len(chunks) * plan.num_steps, "teachers", unit="step") as bar:
        run_jobs(job, chunks, execution, bar.update)
    with lease(folder / FINISH, wait=True):
        if run.is_finished(TEACHERS_FIT):  # by another process
            return
        for left in (*folder.glob(".teachers_*"), *folder.glob("*.lease")):  # by processes that were killed
            left.unlink(missing_ok=True)
        losses = read_losses(sized_plan, folder)
        write_text(folder / "PRIVATE_log.csv", teachers_table(partitioned, losses[-1]))
        log_curves(losses, plan.num_steps, folder / "PRIVATE_losses", logger)
        files = [folder / CHUNK_SIZE, *(chunk_file(folder, teachers) for teachers in chunks)]
        run.finish(TEACHERS_FIT, {file: digest(file) for file in files}, ledger_beside=data.ledger_path)


class Beginning(NamedTuple):
    """What the stage begins with."""

    folder: Path
    """Where the teachers are kept: an absolute path, because workers may start in another folder."""
    key: bytes
    """The key of the partition."""
    made_from: str
    """A digest of the key, the plan and the data."""


def begin_fit(run: Run, data: DataSource, plan: TeacherPlan | ClosedFormPlan) -> Beginning | None:
    """Begin the stage, or go on with it; return None if it is finished.

    Raises:
        ValueError: if it was begun with other settings or records, or its folder holds what others left.
    """
    closed_form = {"fit": CLOSED_FORM} if isinstance(plan, ClosedFormPlan) else {}
    settings = closed_form | encode_fields(plan) | {"data": describe_data(data)}
    if run.overwrite or not run.is_finished(TEACHERS_FIT):
        # a copy of another ledger is refused before the run is begun with it
        open_ledger(run)
    key = ensure_key(run, TEACHERS_FIT)
    digests = training_inputs(data, plan) | {"partition": digest(key)}
    inputs = Inputs({**settings, "ledger": ledger_setting(run)}, digests)
    made_from = origin_of(inputs)
    folder = run.root.resolve() / TEACHERS_FIT.outputs[0]
    if not run.begin(TEACHERS_FIT, inputs, foreign=foreign_files(folder, made_from)):
        return None
    make_folder(folder)
    if plan.unit == "record" and data.records(Role.PRIVATE).groups is not None:
        print(_ONE_OF_MANY, file=sys.stderr, flush=True)
    return Beginning(folder, key, made_from)


def origin_of(inputs: Inputs) -> str:
    """Return the digest that marks teachers which were made from ``inputs``, wherever their releases are counted."""
    return Inputs({name: value for name, value in inputs.settings.items() if name != "ledger"}, inputs.digests).digest


def training_inputs(data: DataSource, plan: TeacherPlan | ClosedFormPlan) -> dict[str, str]:
    """Return hashes of what teachers are made of: private records, and public ones if anything is fitted on them."""
    private_alone = data.feature_map is None and isinstance(plan, TeacherPlan)
    roles = (Role.PRIVATE,) if private_alone else (Role.PRIVATE, Role.PUBLIC)
    return {role.value: data.fingerprint(role) for role in roles}
