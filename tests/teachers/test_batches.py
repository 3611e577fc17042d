from pathlib import Path

import numpy as np
import pytest

from pate.data import CelebA, Role, partition_records
from pate.data.celeba import ImageFiles
from pate.data.records import ArrayFeatures, Records
from pate.teachers.batches import ChunkBatches, draw_batches, own_records


def test_batches_go_through_the_partition_in_passes() -> None:
    drawn = draw_batches(6, seed=0, teacher=3, steps=range(9), batch_size=4)
    assert drawn.shape == (9, 4)
    passes = drawn.reshape(6, 6)
    assert (np.sort(passes, axis=1) == np.arange(6)).all()
    assert len({tuple(order) for order in passes.tolist()}) > 1


@pytest.mark.parametrize("size", [1, 3, 4, 7, 100])
def test_later_steps_do_not_depend_on_where_one_starts(size: int) -> None:
    whole = draw_batches(size, seed=1, teacher=0, steps=range(20), batch_size=4)
    parts = [draw_batches(size, seed=1, teacher=0, steps=range(i, i + 5), batch_size=4) for i in range(0, 20, 5)]
    assert (np.concatenate(parts) == whole).all()


def test_orders_depend_on_seed_and_teacher() -> None:
    first = draw_batches(50, seed=0, teacher=0, steps=range(5), batch_size=10)
    assert (first != draw_batches(50, seed=1, teacher=0, steps=range(5), batch_size=10)).any()
    assert (first != draw_batches(50, seed=0, teacher=1, steps=range(5), batch_size=10)).any()


def test_a_chunk_s_batches_are_those_of_its_teachers() -> None:
    ids = np.arange(10).astype(str)
    features = np.arange(10, dtype=np.float32)[:, None] + 1
    records = Records(features=ArrayFeatures(features), labels=np.ones((10, 2), dtype=np.uint8), ids=ids, groups=ids)
    partitions = [np.array([0, 2, 4]), np.array([], dtype=np.int64), np.array([9])]
    batches = ChunkBatches(records, partitions, teachers=range(5, 8), steps=range(3), batch_size=2, seed=0)
    assert len(batches) == 3
    seen, labels = batches[1]
    rows = partitions[0][draw_batches(3, seed=0, teacher=5, steps=range(1, 2), batch_size=2)[0]]
    assert (seen[0, :, 0].numpy() == features[rows, 0]).all()
    assert (seen[1] == 0).all()
    assert (labels[1] == 0).all()
    assert (seen[2] == 10).all()


def test_own_records_are_those_of_the_partitions(faces: Path) -> None:
    """Pictures too go to one teacher each: by their rows, not by their places among the rows."""
    records = CelebA(faces, size=16).records(Role.PRIVATE)
    partitions = partition_records(records.ids, records.ids, num_teachers=7, key=bytes(16))
    seen = []
    for start in (0, 3, 6):
        own, rows = own_records(records, partitions[start : start + 3])
        assert isinstance(own.features, ImageFiles)
        assert [path.name for path in own.features.paths] == own.ids.tolist()
        for mine, partition in zip(rows, partitions[start : start + 3], strict=True):
            assert (own.ids[mine] == records.ids[partition]).all()
            assert (own.labels[mine] == records.labels[partition]).all()
            assert (own.features[mine] == records.features[partition]).all()
        seen += own.ids.tolist()
    assert sorted(seen) == sorted(records.ids.tolist())


def test_own_records_of_arrays() -> None:
    features = np.arange(10, dtype=np.float32)[:, None]
    records = Records(
        features=ArrayFeatures(features), labels=np.eye(10, dtype=np.uint8), ids=np.arange(10).astype(str)
    )
    own, rows = own_records(records, [np.array([7, 2]), np.array([], dtype=np.int64), np.array([9])])
    assert np.asarray(own.features)[:, 0].tolist() == [7, 2, 9]
    assert own.ids.tolist() == ["7", "2", "9"] and own.labels.argmax(axis=1).tolist() == [7, 2, 9]
    assert [mine.tolist() for mine in rows] == [[0, 1], [], [2]]
