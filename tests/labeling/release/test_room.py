"""The space on disk that is held for labels before they are paid for."""

import os
from pathlib import Path

import numpy as np
import pytest

from pate._labeling.release.labels import preallocate_labels
from pate._labeling.runs.released import Queries
from pate._labeling.runs.run import Run


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="space cannot be reserved")
@pytest.mark.parametrize(
    ("count", "id_length", "num_labels", "name_length"),
    [(9_000, 2, 30, 2), (9_000, 300, 1, 2), (1, 2, 40, 90_000)],
)
def test_all_that_is_written_has_its_space(
    tmp_path: Path, count: int, id_length: int, num_labels: int, name_length: int
) -> None:
    """Whether answers, ids or names take most of it, with a megabyte for the statement."""
    run = Run(tmp_path)
    run.make_private()
    run.public.mkdir()
    ids = np.array([f"{i:0{id_length}}" for i in range(count)])
    queries = Queries(
        ids=ids,
        label_names=tuple(f"{i:0{name_length}}" for i in range(num_labels)),
        num_teachers=9,
        delta=1e-6,
        aggregator={"class_path": "pate.aggregators.NoisyVotes", "init_args": {"sigma_votes": 2.0}},
    )
    answers = sum(
        np.zeros((count, num_labels), kind).nbytes
        for kind in (np.uint8, np.bool_, np.float64, np.float64)
    )
    written = answers + ids.nbytes + num_labels * name_length
    with preallocate_labels(run, queries) as file:
        reserved = os.fstat(file.fileno()).st_size
    assert written + 1_000_000 <= reserved <= written + 1_060_000
