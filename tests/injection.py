"""Commands that fail or are killed at any of their file operations, those of SQLite included.

A server is a process with ``injection.c`` loaded. It imports what commands need once, and forks for
each command.
"""

import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pate.accounting import read_ledger

LINES = ("pate ", "ValueError: ", "LedgerAccessError: ", "UnfinishedReleaseError: ", "OSError: ")
HERE = Path(__file__)
MODES = ("count", "EIO", "ENOSPC", "EIO, done", "EIO from here on", "kill", "kill, torn or done")
"""The modes of ``injection.c``: an operation fails, fails though it was done, all that follow fail
too with all reads, or the process is killed before, in the middle of a write, or after."""


EVERYWHERE = ("EIO", "ENOSPC", "kill")
"""The modes that the tests of the night try at every operation, and others at 40."""


@dataclass(frozen=True)
class Ended:
    """A command that ended: its status, negative for a signal, its operations and its output."""

    code: int
    operations: int
    err: str


class Injector:
    """The server, to which commands are sent."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def __call__(
        self,
        work: list[str] | str,
        *,
        folder: Path,
        number: int = 0,
        mode: str = "count",
        key: int = 1,
    ) -> Ended:
        """Run ``pate`` with words, or a function ``module:name`` of a folder, in ``folder``.

        Args:
            work: the words or the function.
            folder: where it runs. Operations below it are counted.
            number: the operation that fails or is killed, from 0.
            mode: one of `MODES`.
            key: the key of a new release's noise.
        """
        job = {"work": work, "folder": str(folder), "number": number, "key": key}
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(job | {"mode": MODES.index(mode)}), file=self._process.stdin, flush=True)
        return Ended(**json.loads(self._process.stdout.readline()))


@contextmanager
def injector(place: Path, warm: str) -> Iterator[Injector]:
    """Start a server that has called ``warm``, a ``module:function`` of a folder.

    Its library is in ``place``.
    """
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("no C compiler, or not Linux")
    library = place / "injection.so"
    source = str(HERE.with_suffix(".c"))
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), source, "-ldl"], check=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.injection", str(library), warm],
        cwd=HERE.parent.parent,
        # a process with threads must not fork
        env={**os.environ, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Injector(process)
    finally:
        process.communicate()


@dataclass(frozen=True)
class Case:
    """A command that pays once, however it is interrupted.

    Attributes:
        work: as an `Injector` takes it.
        before: the folder that it runs in, before it begins.
        place: the folder that it runs in, with the same name each time.
        bits: returns what it releases, from its folder and its end.
        stated: whether its release is complete in a folder, so that a failure that follows may say
            that nothing else was spent.
        again: whether a command that ended is repeated at no cost. A fit is another release.
    """

    work: list[str] | str
    before: Path
    place: Path
    bits: Callable[[Path, Ended], Any]
    stated: Callable[[Path], bool]
    again: bool = True

    def begin(self) -> int:
        """Make the folder anew, and return how many releases its ledgers hold."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.before, self.place)
        return self.paid()

    def paid(self) -> int:
        """Return how many releases the ledgers hold, as a copy shows."""
        copy = self.place.with_name("copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.place, copy)  # whoever opens a ledger ends what a kill left in it
        return sum(len(read_ledger(path).entries) for path in copy.rglob("*.sqlite"))

    def unbroken(self, run: Injector) -> tuple[int, int, dict[int, Any]]:
        """Return the number of operations and of releases, and the bits by key, of a whole command."""
        bits = {}
        for key in (1, 2):
            self.begin()
            ended = run(self.work, folder=self.place, key=key)
            assert ended.code == 0, ended
            bits[key] = self.bits(self.place, ended)
        return ended.operations, self.paid(), bits


def try_points(
    run: Injector, case: Case, modes: Sequence[str], *, most: int | None = None, seed: int = 0
) -> int:
    """Interrupt a case at each operation in each mode, or at ``most`` points; return how many.

    The same command then ends with one charge, and with the bits of the noise that was paid for.
    """
    operations, paid_once, bits = case.unbroken(run)
    assert operations > 5 and bits
    points = [(mode, number) for mode in modes for number in range(operations)]
    if most is not None:
        points = random.Random(seed).sample(points, min(most, len(points)))
    faults = []
    for mode, number in points:
        before = case.begin()
        broken = run(case.work, folder=case.place, number=number, mode=mode)
        paid, stated = case.paid(), case.stated(case.place)
        ended = paid > before and stated and not case.again
        again = broken if ended else run(case.work, folder=case.place, key=2)
        killed = ended and "kill" in mode  # it shows nothing any more
        made = bits[1] if killed else case.bits(case.place, again)
        wrong = {
            "status": broken.code not in ((-signal.SIGKILL,) if "kill" in mode else (0, 2, 4)),
            "spent at status 2": broken.code == 2 and paid > before and not stated,
            "traceback": "Traceback" in broken.err + again.err,
            "no line": broken.code in (2, 4) and not broken.err.splitlines()[-1].startswith(LINES),
            "not told": broken.code == 4 and not broken.err.endswith("and pays once\n"),
            "no end": again.code != 0 and not killed,
            "paid": case.paid() != paid_once,
            "bits": made != bits[1] if paid > before else made not in bits.values(),
        }
        if any(wrong.values()):
            faults.append((mode, number, [name for name in wrong if wrong[name]], broken, again))
    print(f"{len(points)} points, {len(faults)} faults")
    assert not faults, "\n".join(map(str, faults))
    return len(points)


def _work(library: Any, job: dict[str, Any], output: int) -> int:
    """Do one job in a process of its own, and return its status."""
    from importlib import import_module

    from pate import cli
    from pate._core import transaction
    from pate._labeling.runs.run import KEY_BYTES

    os.chdir(job["folder"])
    for stream in (sys.stdout, sys.stderr):
        os.dup2(output, stream.fileno())
    token_hex, token_bytes = secrets.token_hex, secrets.token_bytes
    patch = pytest.MonkeyPatch()
    patch.setattr(transaction, "draw_key", lambda: job["key"])
    # one key of partitions
    patch.setattr(secrets, "token_hex", lambda n=None: "5e" * n if n == KEY_BYTES else token_hex(n))
    patch.setattr(
        secrets, "token_bytes", lambda n=None: b"^" * n if n == KEY_BYTES else token_bytes(n)
    )
    if job["mode"]:  # a rehearsal writes nothing in the folder; the repeated command has one
        patch.setattr("pate._labeling.plan.RunPlan.rehearse", lambda plan: None)
    library.arm(job["folder"].encode(), job["number"], job["mode"])
    if isinstance(job["work"], list):
        return cli.main(job["work"])
    module, name = job["work"].split(":")
    try:
        getattr(import_module(module), name)(Path(job["folder"]))
    except (ValueError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 4 if isinstance(error, transaction.UnfinishedReleaseError) else 2
    return 0


def _serve() -> None:
    import ctypes
    import gc
    import tempfile
    from importlib import import_module

    library = ctypes.CDLL(sys.argv[1])
    module, name = sys.argv[2].split(":")
    with redirect_stdout(None), tempfile.TemporaryDirectory() as folder:
        getattr(import_module(module), name)(Path(folder))
    gc.freeze()
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+", errors="replace") as file:
            counted, count = os.pipe()
            child = os.fork()
            if not child:
                code = 1
                try:
                    code = _work(library, json.loads(line), file.fileno())
                except BaseException:
                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os.write(count, json.dumps([library.operations(), [*sys.modules]]).encode())
                    os._exit(code)
            os.close(count)
            with os.fdopen(counted) as told:
                number, modules = json.loads(told.read() or "[-1, []]")
            for module in set(modules) - set(sys.modules):  # the next one has them
                with suppress(ImportError):
                    import_module(module)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            file.seek(0)
            ended = {"code": code, "operations": number, "err": file.read()}
        print(json.dumps(ended), flush=True)


if __name__ == "__main__":
    _serve()
