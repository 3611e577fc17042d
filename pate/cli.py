"""The command `pate`: finds the subcommand and passes the remaining arguments to it."""

import os
import select
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from importlib import import_module
from types import FrameType
from typing import TextIO

import pate

# name: (module of pate._commands, function, summary)
_COMMANDS: dict[str, tuple[str, str, str]] = {
    "run": ("run", "main", "run all stages of a recipe, a folder or the name of a shipped one"),
    "init": ("recipes", "main", "write a recipe for data of your own, with comments"),
    "teachers fit": ("stages", "teachers_fit", "train the teachers on their partitions (PRIVATE)"),
    "teachers vote": (
        "stages",
        "teachers_vote",
        "let the teachers vote on the public samples (PRIVATE)",
    ),
    "forget": (
        "stages",
        "forget",
        "remake teachers and votes without some private records (PRIVATE)",
    ),
    "label": ("stages", "label", "release labels through a private mechanism"),
    "silo key": ("silo", "key", "make the signing key of a silo, or of the server"),
    "silo relay": ("silo", "relay", "serve an exchange to silos that share no folder"),
    "silo": ("silo", "main", "take part in labels from silos that keep their votes secret"),
    "student fit": ("stages", "student_fit", "train the student on the released labels"),
    "student validate": (
        "stages",
        "student_validate",
        "evaluate the student on held-out released labels",
    ),
    "student test": ("stages", "student_test", "evaluate the student on the test set"),
    "student predict": ("stages", "student_predict", "write the student's predictions"),
    "predict": (
        "students",
        "predict_main",
        "predict new pictures or arrays with an exported student",
    ),
    "export": ("students", "export_main", "write an exported student for torch or ONNX Runtime"),
    "choose": (
        "students",
        "choose_main",
        "choose a student by the private records, and pay for the choice",
    ),
    "references": ("stages", "references", "measure references for a student (PRIVATE)"),
    "report": ("report", "main", "write a page of HTML on a run"),
    "status": ("check", "status", "show the progress of each stage of a run, and its processes"),
    "submit": ("stages", "submit", "train or vote together in several jobs of a cluster"),
    "check": (
        "check",
        "check",
        "check that a run is as its commands left it, and print the next command",
    ),
    "pack": ("check", "pack", "write the public files of a run as one archive"),
    "audit": (
        "audit",
        "main",
        "test the noise, the isolation and the leaks of a recipe on a copy (NOT PRIVATE)",
    ),
    "topk": (
        "topk",
        "main",
        "release the top k of any histogram: pairs of users and items, or counts",
    ),
    "calibrate": ("calibrate", "main", "find the noise for a target epsilon"),
    "account": ("planning", "account_main", "compute the cost of queries from parameters"),
    "ledger show": ("check", "show", "list the releases of a ledger and their cost"),
    "ledger verify": ("check", "verify", "check a ledger by computing everything in it again"),
    "plan": ("planning", "plan_main", "plan the number of teachers from public facts"),
    "frontier": (
        "planning",
        "frontier_main",
        "draw label and student quality against epsilon for many aggregators",
    ),
    "faces": ("faces", "main", "draw faces and write them in CelebA's format"),
    "completion": (
        "parsing",
        "print_completion",
        "print a script for shell completion of all commands",
    ),
}

_READ_OWN_CODE = {
    *("run", "audit", "teachers fit", "teachers vote", "forget", "label", "references", "choose"),
    *(
        "student fit",
        "student validate",
        "student test",
        "student predict",
        "calibrate",
        "account",
        "frontier",
    ),
}
"""Commands whose settings are the user's own and may name classes in the working directory.

The other commands read files that others may have written: models, runs, statements, ledgers,
exchanges.
"""

_RAISE_AGAIN_AFTER = 0.1  # seconds until an interrupt that was dropped is raised again

_received: list[signal.Signals] = []
"""The signals that asked the running command to end."""


def main(args: Sequence[str] | None = None) -> int:
    """Run `pate` and return its exit status: 0, or 2 with one line on each fault in the input.

    The status is 130 after Ctrl-C and 143 after SIGTERM, each with one line, and 141 without a line
    if the output has no reader any more, as behind ``| head``.
    """
    words = list(sys.argv[1:] if args is None else args)
    name = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in _COMMANDS), None)
    _received.clear()
    try:
        try:
            return _run(words, name)
        finally:
            if sys.stdout is not None:  # closed by `>&-`
                # fails here, not later, if the output has no reader any more
                sys.stdout.flush()
    except (Exception, KeyboardInterrupt, SystemExit) as stop:
        line, status = _line_and_status(stop)
        if status is None:
            raise
        for stream in (sys.stdout, sys.stderr):
            _redirect_to_devnull(stream)
        if line is not None:
            for fault in line.split("\n"):
                print(f"pate {name}: {fault}" if name else f"pate: {fault}", file=sys.stderr)
            _redirect_to_devnull(sys.stderr)
        return status


def _run(words: list[str], name: str | None) -> int:
    """Run the command ``name``, or help."""
    if words[:1] == ["--version"]:
        print(f"pate {pate.__version__}")
        return 0
    if name is None:
        return _help(words)
    module, function, _ = _COMMANDS[name]
    with _signal_handling():
        from pate._files import release_locks
        from pate._own_code import own_code

        if os.path.lexists("matplotlibrc"):
            # matplotlib reads it from the working directory of its import: import it elsewhere
            with chdir(os.path.dirname(os.__file__)):
                import_module("matplotlib")
        try:
            options = import_module("pate._commands.recipes").with_shipped_files(
                words[len(name.split()) :]
            )
            arguments = (options, *([_COMMANDS] if name == "completion" else []))
            with own_code(trusted=name in _READ_OWN_CODE):
                getattr(import_module(f"pate._commands.{module}"), function)(*arguments)
        finally:
            release_locks()
    return 0


def _line_and_status(stop: BaseException) -> tuple[str | None, int | None]:
    """Return the message and the exit status of a command that raised ``stop``.

    The message has a line for each fault of the input. There is no status for bugs.
    """
    # an interrupt may surface as another error, from an import that it cut short, or as Lightning's
    # exit
    if _received or isinstance(stop, KeyboardInterrupt):
        terminated = _received[:1] == [signal.SIGTERM]
        how = "terminated" if terminated else "interrupted"
        return f"{how}; the same command resumes from here", 143 if terminated else 130
    if isinstance(stop, SystemExit):
        return None, None
    if isinstance(stop, BrokenPipeError) and any(map(_reader_is_gone, (sys.stdout, sys.stderr))):
        return None, 128 + signal.SIGPIPE

    from pate._files import explain_os_error

    line = explain_os_error(stop) or (str(stop) if isinstance(stop, ValueError) else None)
    if isinstance(stop, RecursionError):
        line = "Expected settings and files that are nested less deeply"
    if line is None:
        return None, None
    from pate._commands.parsing import with_options
    from pate._validation import InputError, one_line

    faults = stop.args if isinstance(stop, InputError) else [line]
    return "\n".join(one_line(with_options(fault)) for fault in faults), 2


def was_stopped() -> bool:
    """Return whether a signal asked the running command, or the last one, to end."""
    return bool(_received)


def _redirect_to_devnull(stream: TextIO | None) -> None:
    """Redirect an unwritable stream to nowhere, because the interpreter flushes it at its end."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _reader_is_gone(stream: TextIO | None) -> bool:
    """Return whether a stream is a pipe without a reader."""
    if stream is None:
        return False
    try:
        polled = select.poll()
        polled.register(stream.fileno(), select.POLLOUT)
    except (OSError, ValueError):  # no file, as under a test
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in polled.poll(0))


@contextmanager
def _signal_handling() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the block; a further SIGTERM does not disturb its cleanup.

    Python drops an interrupt in a finalizer, and libraries drop some in their imports: it is raised
    again until the command ends or cleans up.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        first = not _received
        if number != signal.SIGALRM:
            _received.append(signal.Signals(number))
        if first:
            before[signal.SIGALRM] = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, _RAISE_AGAIN_AFTER)
        # during its cleanup the command still handles the first interrupt
        if first or number == signal.SIGINT or sys.exception() is None:
            raise KeyboardInterrupt

    before = {}
    # a program that calls `main` in a thread handles signals itself
    if threading.current_thread() is threading.main_thread():
        before[signal.SIGTERM] = signal.signal(signal.SIGTERM, stop)
        # `nohup` has it ignored
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            before[signal.SIGINT] = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        if _received:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _help(words: list[str]) -> int:
    """Print the commands, or only the commands of a stage that is named."""
    stage = [word for word in words if word not in ("-h", "--help")]
    shown = {
        name: entry for name, entry in _COMMANDS.items() if name.split()[: len(stage)] == stage
    }
    if not shown:
        from difflib import get_close_matches

        close = get_close_matches(" ".join(stage[:2]), _COMMANDS, n=1)
        meant = f"; did you mean {close[0]}?" if close else ""
        raise ValueError(
            f"unknown command: {' '.join(stage[:2])}{meant} (`pate --help` lists them)"
        )
    text = [
        "usage: pate <command> [options]",
        "",
        "Multi-label classifiers with differential privacy, by private aggregation of teacher"
        " ensembles.",
        "",
    ]
    text += [f"  {name:<17} {entry[-1]}" for name, entry in shown.items()]
    text += ["", "`pate <command> --help` lists the settings of a command."]
    print("\n".join(text))
    return 0
