"""Reading of ``.npz`` files of plain arrays."""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from pate.validation import expect


def read_arrays(
    path: Path, required: Sequence[str], *, what: str = "an .npz file of plain arrays"
) -> dict[str, NDArray[Any]]:
    """Return the arrays of an ``.npz`` file by name.

    Args:
        path: the file.
        required: names of the arrays that it must hold.
        what: description of the file for error messages.

    Raises:
        ValueError: if the file is missing or damaged, holds pickled objects, or lacks an array.
    """
    expect(path.is_file(), what, missing=str(path))
    try:
        # numpy leaves a file open that it cannot read
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    # the exception depends on where a file is truncated or changed
    except (OSError, ValueError, EOFError, KeyError, RuntimeError, BadZipFile, zlib.error) as error:
        raise ValueError(f"Expected {what} in {path}, got: {error}") from None
    missing = [name for name in required if name not in arrays]
    expect(not missing, f"the arrays {', '.join(required)} in {path}", missing=missing)
    return arrays
