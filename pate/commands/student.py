"""The commands `pate student fit`, `validate`, `test` and `predict`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pate.commands.parsing import ALONE, BriefHelp, Preset, run_folder, with_saved
from pate.runs import STUDENT
from pate.runs.locks import lock_run
from pate.stages.student import StudentCLI


def main(command: str, args: Sequence[str], preset: Preset = ALONE) -> None:
    """Run `pate student` with one of Lightning's commands."""
    root = run_folder(args) or preset.run
    if root is not None and command != "validate":  # which writes nothing
        lock_run(root)
    # the settings of the training apply to all other subcommands
    known = preset if command == "fit" else with_saved(args, preset, STUDENT.config)
    StudentCLI([command, *known.options(), *args], formatter_class=BriefHelp)


fit = partial(main, "fit")
validate = partial(main, "validate")
test = partial(main, "test")
predict = partial(main, "predict")
