"""How far a stage is: one bar in a terminal, lines elsewhere."""

import multiprocessing
import os
import signal
import threading

from pate._core import validation
from pate._core.validation import stage_bar


def _die_while_drawing() -> None:
    validation._Bar.get_lock().acquire()
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_forked_process_that_is_killed_while_drawing_blocks_no_bar() -> None:
    process = multiprocessing.get_context("fork").Process(target=_die_while_drawing)
    validation._Bar.get_lock()
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    drawing = threading.Thread(target=lambda: stage_bar(1, "a", unit="step").close(), daemon=True)
    drawing.start()
    drawing.join(5)
    assert not drawing.is_alive()
