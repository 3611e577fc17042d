"""How far a stage is: one bar in a terminal, lines elsewhere."""

import multiprocessing
import os
import re
import signal
import threading
import time

import pytest

from pate._core import progress
from pate._core.progress import stage_bar, step_bar


def test_a_short_stage_prints_nothing_where_there_is_no_terminal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with stage_bar(3, "votes", unit="chunk") as bar:
        for _ in range(3):
            bar.update()
    captured = capfd.readouterr()
    assert captured.err == captured.out == ""


def test_a_step_that_takes_long_is_told_of_meanwhile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with step_bar(2, "release") as bar:
        bar.update(2)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "_PAUSE", 0.01)
    with step_bar(2, "release") as bar:
        bar.update()
        time.sleep(0.1)
        lines = capsys.readouterr().err.splitlines()
        bar.update()
    assert len(lines) > 3
    assert all(
        re.fullmatch(r"release: 1 of 2 steps in 00:00, (\?|\d\d:\d\d) to go", line)
        for line in lines[1:]
    )


def _die_while_drawing() -> None:
    progress._Bar.get_lock().acquire()
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_forked_process_that_is_killed_while_drawing_blocks_no_bar() -> None:
    process = multiprocessing.get_context("fork").Process(target=_die_while_drawing)
    progress._Bar.get_lock()
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    drawing = threading.Thread(target=lambda: stage_bar(1, "a", unit="step").close(), daemon=True)
    drawing.start()
    drawing.join(5)
    assert not drawing.is_alive()
