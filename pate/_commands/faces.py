"""The command `pate faces`."""

from functools import partial
from pathlib import Path

from pate._commands.parsing import run_command
from pate.data.faces import write_celeba_folder

main = partial(
    run_command,
    "faces",
    write_celeba_folder,
    special={"--output": {"type": Path, "required": True}},
)
