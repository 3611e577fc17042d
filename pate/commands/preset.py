"""Settings given to a command in addition to its options, in a module of its own so that `pate run` starts fast."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Settings given to a command in addition to its options, which override them.

    Attributes:
        files: YAML files of settings; later ones override earlier ones.
        run: folder of the run.
        overwrite: whether a stage whose settings changed is done again.
    """

    files: tuple[Path, ...] = ()
    run: Path | None = None
    overwrite: bool = False

    def options(self) -> list[str]:
        """Return the preset as options, to be put before all others.

        Only on a command line do files and options have a common order of precedence: in ``default_config_files``
        jsonargparse does not know short names of classes, `parse_object` refuses values that a later option would
        complete, and LightningCLI takes its subcommand from the command line.
        """
        files = [word for file in self.files for word in ("--config", str(file))]
        run = [] if self.run is None else ["--run", str(self.run)]
        return [*files, *run, *(["--overwrite"] if self.overwrite else [])]


ALONE = Preset()
"""The preset of a command that is given nothing but its options."""
