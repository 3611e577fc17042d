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
from pate._labeling.commands.table import command_of, commands

_RAISE_AGAIN_AFTER = 0.1  # seconds until an interrupt that was dropped is raised again

_received: list[signal.Signals] = []
"""The signals that asked the running command to end."""


def main(args: Sequence[str] | None = None) -> int:
    """Run `pate` and return its exit status: 0, or 2 with one line on each fault in the input.

    The status is 4 if a release that is not finished may be paid for, 130 after Ctrl-C and 143
    after SIGTERM, each with one line, and 141 without a line if the output has no reader any more,
    as behind ``| head``.
    """
    words = list(sys.argv[1:] if args is None else args)
    name = command_of(words)
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
    with _signal_handling():
        if os.path.lexists("matplotlibrc"):
            # matplotlib reads it from the working directory of its import: import it elsewhere
            with chdir(os.path.dirname(os.__file__)):
                import_module("matplotlib")
        from pate._core.validation import owner_reads
        from pate._labeling.commands.places import importable, with_shipped_files, without_code

        rest, folders, owner = without_code(words[len(name.split()) :])
        owner_reads.set(owner)
        with importable(folders):
            commands()[name].load()(with_shipped_files(rest))
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

    from pate._core.package import MissingExtraError
    from pate._core.transaction import UnfinishedReleaseError
    from pate._core.validation import explain_os_error

    told = isinstance(stop, ValueError | MissingExtraError)
    unfinished = isinstance(stop, UnfinishedReleaseError)  # has the shortage behind it in its line
    line = (None if unfinished else explain_os_error(stop)) or (str(stop) if told else None)
    if isinstance(stop, RecursionError):
        line = "Expected settings and files that are nested less deeply"
    if isinstance(stop, OverflowError):
        line = f"Expected numbers that a float holds, got a larger one: {stop}"
    if line is None:
        return None, None
    from pate._core.validation import InputError, one_line
    from pate._labeling.commands.places import with_options

    faults = stop.args if isinstance(stop, InputError) else [line]
    text = "\n".join(one_line(with_options(fault)) for fault in faults)
    return text, 4 if unfinished else 2


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
    """Let Ctrl-C and SIGTERM end the block. A further SIGTERM does not disturb its cleanup.

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
        name: command for name, command in commands().items() if name.split()[: len(stage)] == stage
    }
    if not shown:
        from pate._core.validation import did_you_mean

        asked = " ".join(stage[:2])
        meant = did_you_mean(asked, commands())
        raise ValueError(f"unknown command: {asked}{meant} (`pate --help` lists them)")
    text = [
        "usage: pate <command> [options]",
        "",
        "Multi-label classifiers with differential privacy, by private aggregation of teacher"
        " ensembles.",
        "",
    ]
    text += [f"  {name:<17} {command.summary}" for name, command in shown.items()]
    text += ["", "`pate <command> --help` lists the settings of a command."]
    print("\n".join(text))
    return 0
