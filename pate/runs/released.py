"""The labels of a run, in one file that says what they are, what released them and under which number of the ledger."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from typing import IO, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from pate.runs import TEACHERS_FIT, Run, digest, key_file, labels_file, read_key
from pate.validation import expect

_SEAL = "seal"
_NEEDED = ("ids", "label_names", "labels", "mask", "release", "num_teachers", "delta", "aggregator", _SEAL)


def write_released(file: IO[bytes], run: Run, arrays: Mapping[str, Any]) -> None:
    """Write ``arrays`` into ``file`` as an ``.npz``, with a seal that only this run can make.

    The seal is a hash of all arrays, keyed by the run's partition key. It says nothing of votes or records.

    Args:
        file: open for writing, at its start.
        run: the run.
        arrays: ``ids`` ``[Q]``, ``labels`` and ``mask`` ``[Q, C]``, ``label_names`` ``[C]``, the numbers ``release``,
            ``num_teachers`` and ``delta``, the ``aggregator`` as JSON, and what else the aggregator released.
    """
    plain: dict[str, Any] = {name: np.asarray(array) for name, array in arrays.items()}
    np.savez_compressed(file, **plain, seal=np.array(_seal(run, plain)))


def read_released(run: Run) -> dict[str, NDArray[Any]]:
    """Return what `write_released` wrote into the run.

    Raises:
        ValueError: if the file is missing, damaged or changed, or comes from another run.
    """
    path = labels_file(run)
    expect(path.is_file(), "the labels that `pate label` left", missing=str(path))
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    # what is raised depends on where a file ends or was changed
    except (OSError, ValueError, EOFError, KeyError, RuntimeError, BadZipFile, zlib.error) as error:
        raise ValueError(f"Expected the labels that `pate label` left in {path}, got: {error}") from None
    missing = [name for name in _NEEDED if name not in arrays]
    expect(not missing, f"labels with what released them in {path}", missing=missing)
    seal = str(arrays.pop(_SEAL))
    expect(seal == _seal(run, arrays), f"labels in {path} as `pate label` of this run left them", seal=seal)
    return arrays


def sealing_key(run: Run) -> bytes:
    """Return the key of the run's partitions, which seals its labels.

    Raises ``ValueError`` where it is missing, damaged or not the one that `pate teachers fit` used.
    """
    key, path = read_key(run), str(key_file(run))
    expect(key is not None, "the key of the run's partitions. Put it back", missing=path)
    assert key is not None
    begun = run.state(TEACHERS_FIT)
    same = begun is None or begun["inputs"].get("partition") == digest(key)
    expect(same, "the key that `pate teachers fit` partitioned with. Put it back", changed=path)
    return key


def _seal(run: Run, arrays: Mapping[str, NDArray[Any]]) -> str:
    total = hashlib.blake2b(digest_size=16, key=sealing_key(run), person=b"pate labels")
    for name, array in sorted(arrays.items()):
        head = json.dumps([name, array.dtype.str, array.shape]).encode()
        total.update(len(head).to_bytes(8, "big") + head + np.ascontiguousarray(array).tobytes())
    return total.hexdigest()
