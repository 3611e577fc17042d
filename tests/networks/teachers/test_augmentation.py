"""Pictures that are altered while teachers and students train, step by step the same."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torchvision.transforms import v2

import pate.models
from pate._networks.teachers.training import ChunkBatches
from pate.data import ArrayFeatures, Records
from pate.teachers import PartitionedRecords, TeacherPlan
from tests.networks.teachers.test_training import partitions, plan, teachers_that_differ, train

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
