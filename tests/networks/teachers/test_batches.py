from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torchvision.transforms import v2

import pate.models
from pate._networks.teachers.plan import draw_batches
from pate._networks.teachers.training import ChunkBatches
from pate.data import ArrayFeatures, Records
from pate.teachers import PartitionedRecords, TeacherPlan
from tests.networks.teachers.test_training import partitions, plan, teachers_that_differ, train


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


AUGMENT = [v2.RandomHorizontalFlip(), v2.RandomCrop(8, padding=2)]


def pictures(num: int = 60) -> Records:
    generator = np.random.default_rng(0)
    features = generator.random((num, 3, 8, 8), dtype=np.float32)
    labels = generator.integers(0, 2, size=(num, 4), dtype=np.uint8)
    return Records(
        features=ArrayFeatures(features), labels=labels, ids=np.char.mod("%03d", np.arange(num))
    )


def batches(data: Records, teachers: range, steps: range, **changes: Any) -> list[np.ndarray]:
    parts = PartitionedRecords(data, dict(enumerate(partitions([20, 0, 40]))))
    chosen = plan(**{"augment": AUGMENT, "num_teachers": 3} | changes)
    made = ChunkBatches(chosen, parts, teachers=teachers, steps=steps)
    return [made[step][0].numpy() for step in range(len(steps))]


def test_batches_are_altered_by_seed_teacher_and_step_alone() -> None:
    data = pictures()
    whole = batches(data, range(3), range(6))
    later = batches(data, range(3), range(4, 6))
    assert all((one == other).all() for one, other in zip(whole[4:], later, strict=True))
    alone = batches(data, range(2, 3), range(6))
    assert all((one[2] == other[0]).all() for one, other in zip(whole, alone, strict=True))
    plain = batches(data, range(3), range(6), augment=None)
    assert all((one[0] != other[0]).any() for one, other in zip(whole, plain, strict=True))
    assert all((one[1] == 0).all() for one in whole)  # of a teacher without records
    other_seed = batches(data, range(3), range(6), seed=1)
    assert all((one != other).any() for one, other in zip(whole, other_seed, strict=True))


def small(**changes: Any) -> TeacherPlan:
    network = partial(pate.models.SmallCNN, widths=(4,), groups=2)
    return plan(
        **{
            "network": network,
            "augment": AUGMENT,
            "num_teachers": 3,
            "num_steps": 6,
            "chunk_size": 3,
        }
        | changes
    )


def test_altered_pictures_of_one_teacher_reach_no_other(tmp_path: Path) -> None:
    data, parts = pictures(), partitions([20, 15, 25])
    before = train(small(), data, parts, tmp_path / "before")
    features = data.features[np.arange(60)]
    features[22] += 1
    other = Records(features=ArrayFeatures(features), labels=data.labels, ids=data.ids)
    after = train(small(), other, parts, tmp_path / "after")
    assert teachers_that_differ(before, after) == [1]
