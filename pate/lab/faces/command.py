"""The command `pate faces`."""

from functools import partial
from pathlib import Path

from pate._labeling.commands.parsing import run_command
from pate.lab.faces.drawing import write_celeba_folder

main = partial(
    run_command,
    "faces",
    write_celeba_folder,
    special={"--output": {"type": Path, "required": True}},
)
