"""Disk space and folders for labels, tried before the labels are paid for."""

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO

from pate._files import atomic_write
from pate._runs import LABEL, Run, labels_file
from pate._runs.released import Queries

_STATEMENT_BYTES = 1 << 20


@contextmanager
def preallocate_labels(run: Run, queries: Queries) -> Iterator[IO[bytes]]:
    """Open the file that becomes labels.npz after the block, with its space reserved on disk.

    Raises ``ValueError`` if the folders cannot be written, their files cannot be replaced, or the
    disk is full.
    """
    # labels, mask, noisy counts and steps, the queries, and the statement
    names = queries.ids.nbytes + len(json.dumps([queries.label_names, queries.aggregator]))
    size = 18 * len(queries.ids) * len(queries.label_names) + names + _STATEMENT_BYTES
    with ExitStack() as stack:
        try:
            for folder in (run.public, run.root, run.private):
                probe = run.private / f".probe.{secrets.token_hex(8)}"
                probe.touch()
                # a rename is atomic within one file system only
                probe.replace(folder / probe.name).unlink()
            for left in (LABEL.state, LABEL.config, *LABEL.outputs):
                if (run.root / left).exists():
                    # a second name can be made only if the first one may be removed
                    probe = (run.root / left).with_name(f".probe.{secrets.token_hex(8)}")
                    os.link(run.root / left, probe)
                    probe.unlink()
            # labels without a statement are not public: a killed command leaves them private
            file: IO[bytes] = stack.enter_context(
                atomic_write(labels_file(run), folder=run.private)
            )
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            wanted = "a run that labels can be written to"
            raise ValueError(f"Expected {wanted}, got run={str(run.root)!r} ({error})") from None
        yield file
