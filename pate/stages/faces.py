"""The command `pate faces`."""

from functools import partial

from pate.data.faces import write_celeba_folder
from pate.stages.command import call

main = partial(call, "faces", write_celeba_folder)
