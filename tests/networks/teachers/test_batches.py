import numpy as np
import pytest

from pate._networks.teachers.plan import draw_batches
from pate._networks.teachers.training import ChunkBatches
from pate.data import ArrayFeatures, Records
from pate.teachers import PartitionedRecords
from tests.networks.teachers.test_training import plan


def test_batches_go_through_the_partition_in_passes() -> None:
    drawn = draw_batches(6, seed=0, teacher=3, steps=range(9), batch_size=4)
    assert drawn.shape == (9, 4)
    passes = drawn.reshape(6, 6)
    assert (np.sort(passes, axis=1) == np.arange(6)).all()
    assert len({tuple(order) for order in passes.tolist()}) > 1


@pytest.mark.parametrize("size", [1, 3, 4, 7, 100])
def test_later_steps_do_not_depend_on_where_one_starts(size: int) -> None:
    whole = draw_batches(size, seed=1, teacher=0, steps=range(20), batch_size=4)
    parts = [
        draw_batches(size, seed=1, teacher=0, steps=range(i, i + 5), batch_size=4)
        for i in range(0, 20, 5)
    ]
    assert (np.concatenate(parts) == whole).all()


def test_a_chunk_s_batches_are_those_of_its_teachers() -> None:
    ids = np.arange(10).astype(str)
    features = np.arange(10, dtype=np.float32)[:, None] + 1
    records = Records(
        features=ArrayFeatures(features),
        labels=np.ones((10, 2), dtype=np.uint8),
        ids=ids,
        groups=ids,
    )
    partitions = [np.array([0, 2, 4]), np.array([], dtype=np.int64), np.array([9])]
    data = PartitionedRecords(records, dict(zip(range(5, 8), partitions, strict=True)))
    batches = ChunkBatches(plan(batch_size=2), data, teachers=range(5, 8), steps=range(3))
    assert len(batches) == 3
    seen, labels = batches[1]
    rows = partitions[0][draw_batches(3, seed=0, teacher=5, steps=range(1, 2), batch_size=2)[0]]
    assert (seen[0, :, 0].numpy() == features[rows, 0]).all()
    assert (seen[1] == 0).all()
    assert (labels[1] == 0).all()
    assert (seen[2] == 10).all()
    assert (labels[[0, 2]] == 1).all() and labels.shape == (3, 2, 2)
