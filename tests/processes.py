"""Commands in processes of their own, forked from a server that has imported once what takes seconds to import.

Such a process is what ``python -m pate`` starts but for the imports: it has a session, signals,
output and exit status of its own, runs what is registered to run at exit, and has given no warning
yet.
"""

import atexit
import io
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

import pate
from pate import cli

_CONTEXT = multiprocessing.get_context("forkserver")
_ROOT = Path(pate.__file__).parent
_MODULES = [
    ".".join(path.relative_to(_ROOT.parent).with_suffix("").parts)
    for path in sorted(_ROOT.rglob("*.py"))
]
# what the commands import when their turn comes
_CONTEXT.set_forkserver_preload(["torch._dynamo", "pytorch_lightning.cli", *_MODULES])


def _run(words: list[str], folder: Path, output: Path, environment: Mapping[str, str]) -> None:
    """Be the command ``pate`` with ``words``, in ``folder``."""
    os.setsid()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    for stream, name in ((sys.stdout, "out"), (sys.stderr, "err")):
        file = os.open(output.with_suffix(f".{name}"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, stream.fileno())
        os.close(file)
    sys.argv = ["pate", *words]
    try:
        code = cli.main(words)
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    sys.exit(code)


class Command:
    """A command that was started.

    Args:
        words: the arguments of ``pate``.
        folder: where it runs.
        output: its standard output and error are written to this path with the suffixes ``.out``
            and ``.err``.
        fresh: start a new interpreter in place of a fork.
        environment: variables that it has beside those of this process.
    """

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        output: Path,
        *,
        fresh: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._words, self._output = words, output
        self._process: ForkServerProcess | subprocess.Popen[bytes]
        if fresh:
            with (
                output.with_suffix(".out").open("w") as out,
                output.with_suffix(".err").open("w") as err,
            ):
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "pate", *words],
                    cwd=folder,
                    env={**os.environ, **(environment or {})},
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                    preexec_fn=partial(signal.signal, signal.SIGINT, signal.default_int_handler),
                )
        else:
            self._process = _CONTEXT.Process(
                target=_run, args=(list(words), folder, output, environment or {})
            )
            self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Return the exit status, the negative of a signal that ended it, or None while it runs."""
        return (
            self._process.poll()
            if isinstance(self._process, subprocess.Popen)
            else self._process.exitcode
        )

    def wait(self, timeout: float = 300) -> int:
        """Wait for the end, and return the exit status; a command that takes longer fails the
        test."""
        if isinstance(self._process, subprocess.Popen):
            return self._process.wait(timeout)
        self._process.join(timeout)
        assert self._process.exitcode is not None, (
            f"pate {' '.join(self._words)} takes more than {timeout} seconds"
        )
        return self._process.exitcode

    def wait_for(self, root: Path, sign: str) -> bool:
        """Wait until ``root`` has a file that matches ``sign``; False if the command ended
        before."""
        while not list(root.glob(sign)):
            if self.poll() is not None:
                return bool(list(root.glob(sign)))
            time.sleep(0.001)
        return True

    def send(self, number: signal.Signals, *, group: bool = False) -> None:
        """Send a signal to the command alone, or to all processes of its session, as a terminal
        does."""
        (os.killpg if group else os.kill)(self.pid, number)

    def has_processes(self) -> bool:
        """Return whether the command or a process that it started is still there."""
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    @property
    def out(self) -> str:
        return self._output.with_suffix(".out").read_text()

    @property
    def err(self) -> str:
        return self._output.with_suffix(".err").read_text()

    def end(self) -> None:
        """Kill what is left of it."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        if self.poll() is None:  # killed before it had a group of its own
            self._process.kill()
        self.wait()


@dataclass(frozen=True)
class Ended:
    """A command that ran in this process, with its exit status and what it printed."""

    code: int
    out: str
    err: str

    def wait(self) -> int:
        """Return the exit status."""
        return self.code


def run_here(*words: str, folder: Path) -> Ended:
    """Run ``pate`` with ``words`` in ``folder``, in this process, whose warnings are errors."""
    out, err = io.StringIO(), io.StringIO()
    with chdir(folder), redirect_stdout(out), redirect_stderr(err):
        code = cli.main(list(words))
    return Ended(code, out.getvalue(), err.getvalue())


Start = Callable[..., Command]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start ``pate`` with the words given, in ``folder`` or where the tests run; the end of the
    test kills it."""
    started: list[Command] = []

    def start(
        *words: str,
        folder: Path | None = None,
        fresh: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> Command:
        output = tmp_path / f"command{len(started)}"
        command = Command(words, folder or Path.cwd(), output, fresh=fresh, environment=environment)
        started.append(command)
        return command

    yield start
    for command in started:
        command.end()
