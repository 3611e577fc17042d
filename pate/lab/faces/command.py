"""The command `pate faces`."""

from functools import partial, wraps
from pathlib import Path
from typing import Any

from pate._labeling.commands.parsing import run_command
from pate._labeling.data.records import Role
from pate._labeling.data.source import SPLIT_OF_ROLE
from pate.lab.faces.drawing import partition, write_celeba_folder


@wraps(write_celeba_folder)
def _write(output: Path, *, num: int, **options: Any) -> None:
    write_celeba_folder(output, num=num, **options)
    roles = partition(num, options["private_fraction"], options["public_fraction"])
    for role in (Role.PRIVATE, Role.PUBLIC):
        if SPLIT_OF_ROLE[role] not in roles:
            print(
                f"None of {num} faces is {role.value}: `pate run` needs some. More faces (--num)"
                " have them."
            )


main = partial(run_command, "faces", _write, special={"--output": {"type": Path, "required": True}})
