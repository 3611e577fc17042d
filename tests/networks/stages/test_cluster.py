"""`pate status` says how far a run is, and `pate submit` hands its stages to a cluster."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

# Its import configures logging anew and closes all handlers, of which absl's (dp-accounting has it)
# closes a stream that is not `sys.stderr`. Within a test with `capsys` this is the one that pytest
# captures, and every later test would fail.
import submitit

from pate import cli
from pate._core.files.writing import lease
from pate._labeling.commands.stages import submitted
from tests.conftest import make_arrays
from tests.networks.conftest import recipe
from tests.networks.stages.test_teachers import begin, same_partition
from tests.processes import Start

Captured = pytest.CaptureFixture[str]


def test_a_finished_run_has_finished_stages(finished: Path, capsys: Captured) -> None:
    assert cli.main(["status", str(finished)]) == 0
    stages = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [(words[:-1], words[-1]) for words in stages] == [
        (words, "finished")
        for words in (["teachers", "fit"], ["teachers", "vote"], ["label"], ["student", "fit"])
    ]
    assert cli.main(["status", str(finished.parent)]) == 2
    assert "the folder of a run that was begun" in capsys.readouterr().err


def test_chunks_are_counted_and_those_at_work_are_named(tmp_path: Path, capsys: Captured) -> None:
    np.savez(tmp_path / "data.npz", **make_arrays())  # type: ignore[arg-type]
    folder = recipe(tmp_path / "recipe", tmp_path / "data.npz", steps=5)
    words = [f"--config={folder / part}.yaml" for part in ("data", "teachers")]
    begin(words, tmp_path / "run")
    capsys.readouterr()
    teachers = tmp_path / "run" / "private" / "teachers"
    (teachers / "teachers_00008.lease").write_text("process 1 on a machine that is gone")
    with lease(teachers / "teachers_00004.lease"):
        assert cli.main(["status", str(tmp_path / "run")]) == 0
    first, worker, *others = capsys.readouterr().out.splitlines()
    assert first == "teachers fit   1 of 3 chunks"
    assert worker.strip().startswith("teachers_00004: process ")
    assert [line.split()[-2:] for line in others] == [["not", "begun"]] * 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--jobs=2"], "-- teachers fit or -- teachers vote with their options"),
        (["--jobs=2", "--", "label", "--run=run"], "got command='label --run=run'"),
        (["--jobs=0", "--", "teachers", "vote", "--run=run"], "an integer jobs >= 1"),
        (["--jobs=2", "--", "teachers", "vote"], "--run of the command that is submitted"),
        (["--jobs=2", "--cluster=abacus", "--", "teachers", "vote", "--run=run"], "abacus"),
    ],
)
def test_what_cannot_be_submitted_is_refused(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        status = cli.main(["submit", *words])
    except SystemExit as stop:  # of an option that cannot be parsed
        status = int(stop.code or 0)
    assert status == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_without_submitit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert (
        cli.main(["submit", "--jobs=2", "--", "teachers", "vote", f"--run={tmp_path / 'run'}"]) == 2
    )
    assert "pip install 'pate[submitit]'" in capsys.readouterr().err


@pytest.mark.slow
def test_jobs_on_this_machine_train_and_vote(tmp_path: Path, capsys: Captured) -> None:
    np.savez(tmp_path / "data.npz", **make_arrays())  # type: ignore[arg-type]
    folder, run = recipe(tmp_path / "recipe", tmp_path / "data.npz", steps=5), tmp_path / "run"
    files = [f"--config={folder / part}.yaml" for part in ("data", "teachers")]
    submit = ["submit", "--jobs=2", "--cluster=local", "--parameters.timeout_min=5", "--"]
    assert cli.main([*submit, "teachers", "fit", *files, "--run", str(run)]) == 0
    assert cli.main([*submit, "teachers", "vote", "--run", str(run)]) == 0
    assert cli.main(["status", str(run)]) == 0
    assert capsys.readouterr().out.count("finished") == 2
    assert (run / "private").stat().st_mode & 0o077 == 0
    assert cli.main([*submit, "teachers", "vote", "--absent=[99]", "--run", str(run)]) == 2
    assert "Expected jobs that end well" in capsys.readouterr().err


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """The words of a command, and the run that it made in one process that nobody disturbed."""
    place = tmp_path_factory.mktemp("alone")
    np.savez(place / "data.npz", **make_arrays())  # type: ignore[arg-type]
    folder = recipe(place / "recipe", place / "data.npz", steps=300, chunk_size=1)
    words = [
        "teachers",
        "fit",
        *(f"--config={folder / part}.yaml" for part in ("data", "teachers")),
    ]
    words.append(f"--ledger={place}/ledger.sqlite")
    assert cli.main([*words, f"--run={place / 'run'}"]) == 0
    return words, place / "run"


def teachers_of(run: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in (run / "private" / "teachers").glob("*")
        if path.is_file()
    }


def slurm(tasks: list[int], ranks: int = 1) -> list[dict[str, str]]:
    """The variables of the tasks of an array, each of which srun starts as many times as it has
    ranks."""
    array = {"COUNT": len(tasks), "MIN": min(tasks), "MAX": max(tasks)}
    return [
        {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in (array | {"ID": task}).items()}
        | {"SLURM_ARRAY_JOB_ID": "7", "SLURM_JOB_ID": str(8 + task), "SLURM_JOB_NAME": "teachers"}
        | {"SLURM_NTASKS": str(ranks), "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)}
        for task in tasks
        for rank in range(ranks)
    ]


SCHEDULED = {
    "--array=0-6:2": slurm([0, 2, 4, 6]),
    "--array=3,5, submitted again": slurm([3, 5]),
    "array x srun": slurm([1, 4], ranks=2),
    "qsub -J 0-4:2": [
        {"PBS_ARRAY_INDEX": str(index), "PBS_JOBID": f"7[{index}]"} for index in (0, 2, 4)
    ],
    "bsub -J teachers[2-4]": [
        {"LSB_JOBINDEX": str(index), "LSB_JOBINDEX_END": "4"} for index in (2, 3, 4)
    ],
    "completionMode: Indexed": [
        {"JOB_COMPLETION_INDEX": index, "HOSTNAME": f"pod-{index}"} for index in "02"
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", SCHEDULED)
def test_tasks_leave_the_same_teachers_however_they_are_counted(
    scheduler: str, alone: tuple[list[str], Path], tmp_path: Path, start: Start
) -> None:
    words, expected = alone
    run = tmp_path / "run"
    same_partition(expected, run)
    words = [*words, f"--run={run}", "--shared=true"]
    first, *others = [start(*words, environment=variables) for variables in SCHEDULED[scheduler]]
    assert first.wait_for(run, "private/teachers/*.ckpt"), first.err
    first.send(signal.SIGKILL)  # its node is lost
    for task in others:
        assert task.wait() == 0, task.err
    assert teachers_of(run) == teachers_of(expected)


def processes_below(pid: int) -> Iterator[int]:
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield int(child)
        yield from processes_below(int(child))


@pytest.mark.slow
def test_a_job_that_is_preempted_is_submitted_again(
    alone: tuple[list[str], Path], tmp_path: Path
) -> None:
    pytest.importorskip("submitit")
    words, expected = alone
    run, logs = tmp_path / "run", tmp_path / "run" / "private" / "jobs"
    same_partition(expected, run)
    (job,) = submitted(
        [*words, f"--run={run}", "--shared=true"], logs, 1, "local", {"timeout_min": 60}
    )

    def wait_for(sign: str) -> None:
        while not list((run / "private" / "teachers").glob(sign)):
            assert not job.done(), job.stderr()
            time.sleep(0.01)

    def signal_all(number: signal.Signals) -> None:
        """Signal all processes of the job, as SLURM does; the first one here is the scheduler."""
        for pid in list(processes_below(job._process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    try:
        wait_for("*.ckpt")
        signal_all(signal.SIGCONT)
        signal_all(signal.SIGTERM)
        wait_for("teachers_00002.pt")  # in what is left of its time
        signal_all(signal.SIGUSR2)
        job.result()
        assert "Requeued job" in job.stdout()
        assert teachers_of(run) == teachers_of(expected)
    finally:
        for pid in [*processes_below(job._process.pid), job._process.pid] if not job.done() else []:
            os.kill(pid, signal.SIGKILL)


def test_what_jobs_print_lies_in_a_closed_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []

    class Executor:
        def __init__(self, folder: Path, cluster: str | None, **_: str) -> None:
            modes.extend(path.stat().st_mode & 0o777 for path in (folder, folder.parent))
            raise ValueError("no cluster")

    monkeypatch.setattr(submitit, "AutoExecutor", Executor)
    words = [
        "submit",
        "--jobs=2",
        "--cluster=local",
        "--",
        "teachers",
        "vote",
        f"--run={tmp_path / 'run'}",
    ]
    (tmp_path / "run" / "private" / "jobs").mkdir(parents=True, mode=0o755)  # of an earlier version
    (tmp_path / "run" / "private").chmod(0o700)
    assert cli.main(words) == 2
    (tmp_path / "run" / "private" / "jobs").rmdir()
    (tmp_path / "run" / "private").rmdir()
    assert cli.main(words) == 2
    assert modes == [0o700] * 4
