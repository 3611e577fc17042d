"""What a command is given beside its options; a module of its own, so that `pate run` starts without the parsers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Preset:
    """What a command is given beside its options, which override it.

    Attributes:
        files: YAML files of settings, the later over the earlier.
        run: folder of the run.
        overwrite: whether a stage whose settings changed is done again.
    """

    files: tuple[Path, ...] = ()
    run: Path | None = None
    overwrite: bool = False

    def options(self) -> list[str]:
        """Return the preset as options, to be put before all others.

        Files and options have one order of precedence on a command line only: in ``default_config_files`` jsonargparse
        does not know short names of classes, `parse_object` refuses what a later option would complete, and
        LightningCLI takes its subcommand from the command line.
        """
        files = [word for file in self.files for word in ("--config", str(file))]
        run = [] if self.run is None else ["--run", str(self.run)]
        return [*files, *run, *(["--overwrite"] if self.overwrite else [])]


ALONE = Preset()
"""A command that is given its options and nothing else."""
