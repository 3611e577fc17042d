"""A teacher's records are its own, by number, id and picture."""

from pathlib import Path

import numpy as np
import pytest

from pate._labeling.data.pictures import ImageFiles
from pate.data import ArrayFeatures, CelebA, Records, Role
from pate.teachers import PartitionedRecords
from tests.networks.teachers.test_training import plan


def small(groups: np.ndarray | None = None) -> Records:
    features = np.arange(10, dtype=np.float32)[:, None]
    return Records(
        features=ArrayFeatures(features),
        labels=np.eye(10, dtype=np.uint8),
        ids=np.arange(10).astype(str),
        groups=groups,
    )


def test_pictures_go_to_one_teacher_each(faces: Path) -> None:
    """By their rows, not by their places among the rows."""
    records = CelebA(faces, size=16).records(Role.PRIVATE)
    whole = PartitionedRecords.by_key(records, plan(num_teachers=7), bytes(16))
    assert sum(whole.sizes) == len(records) and list(whole.rows) == list(range(7))
    seen = []
    for teachers in (range(3), range(3, 6), range(6, 7)):
        own = whole.only(teachers)
        assert isinstance(own.records.features, ImageFiles) and list(own.rows) == list(teachers)
        assert [Path(path).name for path in own.records.features.paths] == own.records.ids.tolist()
        for teacher, mine in own.rows.items():
            partition = whole.rows[teacher]
            assert (own.records.ids[mine] == records.ids[partition]).all()
            assert (own.records.labels[mine] == records.labels[partition]).all()
            assert (own.records.features[mine] == records.features[partition]).all()
        seen += own.records.ids.tolist()
    assert sorted(seen) == sorted(records.ids.tolist())


def test_rows_of_arrays() -> None:
    rows = {
        4: np.array([7, 2]),
        5: np.array([], dtype=np.int64),
        6: np.array([9]),
        7: np.array([0]),
    }
    own = PartitionedRecords(small(), rows).only(range(4, 7))
    assert np.asarray(own.records.features)[:, 0].tolist() == [7, 2, 9]
    assert own.records.ids.tolist() == ["7", "2", "9"] and own.records.labels.argmax(
        axis=1
    ).tolist() == [7, 2, 9]
    assert {teacher: mine.tolist() for teacher, mine in own.rows.items()} == {
        4: [0, 1],
        5: [],
        6: [2],
    }


def test_groups_stay_together_where_they_are_protected() -> None:
    groups = np.array(["a", "b"])[np.arange(10) % 2]
    whole = PartitionedRecords.by_key(small(groups), plan(unit="group"), bytes(16))
    assert (
        all(len(set(groups[rows])) <= 1 for rows in whole.rows.values()) and sum(whole.sizes) == 10
    )
    with pytest.raises(ValueError, match="groups of the private records"):
        PartitionedRecords.by_key(small(), plan(unit="group"), bytes(16))
