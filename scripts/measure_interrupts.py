"""The effect of Ctrl-C on a starting command: `python -m scripts.measure_interrupts`."""

import argparse
import signal
import subprocess
import sys
import time
from collections import Counter

# as an installer writes it for the command
_SCRIPT = "import sys; from pate.__main__ import main; sys.exit(main())"
_LINE, _ENDED, _PYTHON, _TRACEBACK, _DONE, _OTHER = _OUTCOMES = (
    "one line, status 130",
    "ended by the signal, no line",
    "Python fails to start",
    "traceback",
    "had finished",
    "another status, or more lines",
)


def outcome(words: list[str], delay: float) -> str:
    """Return how a command ends that is interrupted ``delay`` seconds after it was started."""
    # a started process has the system's handlers again, unless a signal is ignored, as in
    # background jobs
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate()
    for sign, way in (("Fatal Python error", _PYTHON), ("Traceback", _TRACEBACK)):
        if sign in error:
            return way
    ways = {(130, 1): _LINE, (-signal.SIGINT, 0): _ENDED, (0, 0): _DONE}
    return ways.get((process.returncode, len(error.splitlines())), _OTHER)


def main(runs: int, last: int, step: int, words: list[str]) -> None:
    """Print a table of delays in milliseconds, with counts of the ways in which runs ended."""
    print(f"| ms | {' | '.join(_OUTCOMES)} |")
    print("|---|" + "---|" * len(_OUTCOMES))
    for delay in range(0, last + 1, step):
        ways = Counter(outcome(words, delay / 1000) for _ in range(runs))
        print(f"| {delay} | {' | '.join(str(ways[way]) for way in _OUTCOMES)} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--last", type=int, default=150, help="the longest delay, in milliseconds")
    parser.add_argument("--step", type=int, default=5)
    parser.add_argument("words", nargs="*", default=["account", "--help"])
    settings = parser.parse_args()
    main(settings.runs, settings.last, settings.step, settings.words)
