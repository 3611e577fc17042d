"""The commands `pate student` for trained networks, through LightningCLI."""

from collections.abc import Sequence
from typing import Any

from pytorch_lightning.cli import LightningArgumentParser, LightningCLI

from pate._core.files.reading import Json
from pate._labeling.commands.parsing import BriefHelp, CommandParser, example
from pate._labeling.commands.stages import DESCRIPTIONS
from pate._networks.student.stage import StudentCLI, StudentSettings


class _StudentParser(CommandParser, LightningArgumentParser):
    """A parser that names all subcommands in its usage, even if only one was added."""

    def add_subcommands(self, *args: Any, **options: Any) -> Any:
        """Add the subcommands, as jsonargparse does."""
        return super().add_subcommands(
            *args, metavar=f"{{{','.join(LightningCLI.subcommands())}}}", **options
        )


def run_network_command(command: str, args: Sequence[str]) -> None:
    """Run `pate student` with one of Lightning's commands, of a network that is trained."""
    _run(StudentCLI, command, args)


def read_network_fit(args: Sequence[str]) -> Json:
    """Return the settings of `pate student fit` as plain data, or end with status 2."""
    return _run(StudentSettings, "fit", args).settings


def _run(kind: type[StudentCLI], command: str, args: Sequence[str]) -> StudentCLI:
    description = {"description": DESCRIPTIONS[command], "epilog": example(f"student {command}")}
    options: dict[str, Any] = {"formatter_class": BriefHelp, command: description}
    return kind([command, *args], parser_class=_StudentParser, **options)
