"""Features that are computed once and kept on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from pate._files import lease, write_text
from pate._progress import stage_bar
from pate._validation import Float32Array, IntArray

# steps between two marks of how far it is
_MARK = 20


def kept_features(
    target: Path, num: int, step: int, compute: Callable[[IntArray], Float32Array]
) -> Float32Array:
    """Return features ``[num, ...]``, memory-mapped from a file, computed first if it is missing.

    They may be PRIVATE: the folder is made with mode 0700. A computation that was killed goes on
    where the features end.

    Args:
        target: the file, named by all that the features depend on.
        num: number of records.
        step: records at a time.
        compute: returns the features of consecutive rows.
    """
    if target.is_file():  # in a folder that may be readable only
        return np.asanyarray(np.load(target, mmap_mode="r"))
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # another command that computes the same features is waited for
    with lease(target.with_suffix(".lock"), wait=True):
        if not target.is_file():
            partial, mark = target.with_suffix(".partial"), target.with_suffix(".rows")
            done = int(mark.read_text()) if mark.is_file() and partial.is_file() else 0
            mapped = np.load(partial, mmap_mode="r+") if done else None
            # a bar without figures: how many private records there are is nothing to print
            with stage_bar(num, "features", unit="record", initial=done, counted=False) as bar:
                for count, start in enumerate(range(done, max(num, 1), step), 1):
                    rows = np.arange(start, min(start + step, num))
                    found = compute(rows)
                    if mapped is None:
                        mapped = np.lib.format.open_memmap(
                            partial, mode="w+", dtype=np.float32, shape=(num, *found.shape[1:])
                        )
                        partial.chmod(0o600)
                    mapped[rows] = found
                    if count % _MARK == 0:
                        mapped.flush()
                        write_text(mark, str(int(rows[-1]) + 1))
                    bar.update(len(rows))
            if mapped is not None:
                mapped.flush()
            partial.rename(target)
            mark.unlink(missing_ok=True)
    return np.load(target, mmap_mode="r")
