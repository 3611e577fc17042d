"""The command `pate submit`: jobs of a cluster that train or vote together."""

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from signal import SIGTERM, SIGUSR1, SIGUSR2
from typing import Any

from pate._commands.parsing import new_parser, run_folder
from pate._files import make_folder
from pate._validation import expecting, require, require_count, require_given

_SHARED = (["teachers", "fit"], ["teachers", "vote"])
_PREEMPTED = (128 + SIGTERM, -SIGTERM, -SIGUSR1, -SIGUSR2)
"""Exit statuses of a command that was signaled because its job is about to end."""


def main(args: Sequence[str]) -> None:
    """Run `pate submit`."""
    parser = new_parser(
        "submit",
        "Submit `pate teachers fit` or `pate teachers vote`, given after --, as jobs that share its"
        " chunks, through submitit. A job that is preempted or runs out of time is submitted again,"
        " and any number of jobs may fail: the others take over their chunks. Logs are PRIVATE and"
        " lie in private/jobs of the run.",
    )
    parser.add_argument("--jobs", type=int, required=True, help="the number of processes")
    parser.add_argument(
        "--cluster",
        choices=("slurm", "local"),
        default=None,
        help="slurm, or local for processes of this machine, for which the command waits; by"
        " default slurm if there is one",
    )
    parser.add_argument(
        "--parameters",
        type=dict[str, Any],
        default={},
        help="parameters of submitit: --parameters.timeout_min 60 --parameters.slurm_partition gpu"
        " --parameters.cpus_per_task 2",
    )
    end = args.index("--") if "--" in args else len(args)
    words = list(args[end + 1 :])
    options = parser.parse_args(list(args[:end]))
    require_count(1, jobs=options.jobs)
    require(
        words[:2] in _SHARED,
        "-- teachers fit or -- teachers vote with their options",
        command=" ".join(words),
    )
    run = require_given(run_folder(words), "--run of the command that is submitted")
    folder = run / "private" / "jobs"
    jobs = submitted(
        [*words, "--shared=true"], folder, options.jobs, options.cluster, options.parameters
    )
    print(
        f"Submitted {' '.join(job.job_id for job in jobs)}. Their progress: pate status {run}",
        flush=True,
    )
    if options.cluster == "local":
        failed = [job.job_id for job in jobs if job.exception() is not None]
        require(not failed, f"jobs that end well; {folder} has what they print", failed=failed)


def submitted(
    words: Sequence[str], folder: Path, jobs: int, cluster: str | None, parameters: dict[str, Any]
) -> list[Any]:
    """Submit ``pate`` with ``words`` as ``jobs`` jobs, and return submitit's jobs.

    Raises ``ValueError`` without submitit.
    """
    with expecting("the package submitit", ImportError, got="none: pip install 'pate[submitit]'"):
        import submitit

    class Worker(submitit.helpers.Checkpointable):
        """A process that is submitted again if it runs out of time."""

        def __call__(self) -> None:
            command = [sys.executable, "-P", "-m", "pate", *words]
            # SLURM also signals this process, which has the job submitted again and kills the
            # command, possibly minutes after SIGTERM
            while (done := subprocess.run(command)).returncode in _PREEMPTED:
                pass
            done.check_returncode()

    make_folder(folder)
    folder.chmod(0o700)  # also an existing folder
    # a cluster may not pass on PYTHONSAFEPATH, which keeps the working directory off Python's path
    python = f"{shlex.quote(sys.executable)} -P"
    executor = submitit.AutoExecutor(
        folder=folder, cluster=cluster, local_python=python, slurm_python=python
    )
    executor.update_parameters(name="pate", **parameters)
    with executor.batch():
        return [executor.submit(Worker()) for _ in range(jobs)]  # type: ignore[no-untyped-call]
