"""The commands `pate student fit`, `validate`, `test` and `predict`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pytorch_lightning.cli import LightningArgumentParser, LightningCLI

from pate._commands.help import BriefHelp, example
from pate._commands.mistakes import CommandParser
from pate._commands.parsing import ALONE, Preset, run_folder, shows, with_saved
from pate._files.locks import lock_run
from pate._runs import STUDENT, Run
from pate._runs.released import require_student
from pate._stages.student import StudentCLI

_DESCRIPTIONS = {
    "fit": "Train a student on the released labels of a run.\n\nA network that is one linear layer, such as"
    " pate.models.Linear, is solved in closed form; any other is trained by descent and kept at the lowest loss on"
    " held-out released labels. Training that was killed resumes from its last checkpoint.",
    "validate": "Evaluate the student of a run on released labels that were held out of its training.\n\nIts network"
    " and all other settings come from the run.",
    "test": "Evaluate the student of a run on the test set, and write metrics.json next to it.\n\nIts network and all"
    " other settings come from the run.",
    "predict": "Write the student's predictions for the test set, or for the public samples, to predictions.npz next"
    " to it.\n\nIts network and all other settings come from the run.",
}


class _StudentParser(CommandParser, LightningArgumentParser):
    """A parser whose usage names all subcommands, even if only one was added."""

    def add_subcommands(self, *args: Any, **options: Any) -> Any:
        """Add the subcommands, as jsonargparse does."""
        return super().add_subcommands(
            *args, metavar=f"{{{','.join(LightningCLI.subcommands())}}}", **options
        )


def main(command: str, args: Sequence[str], preset: Preset = ALONE) -> None:
    """Run `pate student` with one of Lightning's commands."""
    root = run_folder(args) or preset.run
    if root is not None and not shows(args):
        if command != "validate":  # which writes nothing
            lock_run(root)
        if command != "fit":
            require_student(Run(root))
    # the settings of the training apply to all other subcommands
    completed = preset if command == "fit" else with_saved(args, preset, STUDENT.config)
    help_texts = {"description": _DESCRIPTIONS[command], "epilog": example(f"student {command}")}
    words = [command, *completed.options(), *args]
    StudentCLI(
        words, parser_class=_StudentParser, formatter_class=BriefHelp, **{command: help_texts}
    )


fit = partial(main, "fit")
validate = partial(main, "validate")
test = partial(main, "test")
predict = partial(main, "predict")
