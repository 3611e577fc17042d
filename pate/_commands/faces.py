"""The command `pate faces`."""

from functools import partial

from pate._commands.parsing import call
from pate.data.faces import write_celeba_folder

main = partial(call, "faces", write_celeba_folder)
