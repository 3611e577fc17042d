import numpy as np
import pytest
from scipy.stats import chi2

from pate._labeling.data.records import assign_teachers, partition_records

KEY = bytes(range(32))


def names(num: int) -> np.ndarray:
    return np.char.mod("%06d.jpg", np.arange(num))


def test_a_record_s_teacher_does_not_depend_on_other_records() -> None:
    everything = assign_teachers(names(100), num_teachers=7, key=KEY)
    assert (assign_teachers(names(100)[::-1], num_teachers=7, key=KEY)[::-1] == everything).all()
    assert (assign_teachers(names(100)[40:50], num_teachers=7, key=KEY) == everything[40:50]).all()


def test_teachers_are_uniform_and_depend_on_the_key() -> None:
    first = assign_teachers(names(20_000), num_teachers=20, key=KEY)
    second = assign_teachers(names(20_000), num_teachers=20, key=KEY[::-1])
    counts = np.bincount(first, minlength=20)
    assert chi2.sf(((counts - 1000) ** 2 / 1000).sum(), 19) > 1e-4
    assert 0.03 < (first == second).mean() < 0.07


def test_partitions_are_disjoint_whole_and_ordered_by_id() -> None:
    ids = names(300)
    shuffled = np.random.default_rng(0).permutation(ids)
    partitions = partition_records(shuffled, shuffled, num_teachers=5, key=KEY)
    assert sorted(np.concatenate(partitions).tolist()) == list(range(300))
    for partition in partitions:
        assert (np.sort(shuffled[partition]) == shuffled[partition]).all()


def test_records_of_a_group_meet_one_teacher() -> None:
    ids, groups = names(200), np.repeat(names(20), 10)
    partitions = partition_records(ids, groups, num_teachers=4, key=KEY)
    for group in np.unique(groups):
        holders = [
            t for t, partition in enumerate(partitions) if (groups[partition] == group).any()
        ]
        assert len(holders) == 1


@pytest.mark.parametrize("length", [0, 4, 15, 65])
def test_keys_that_anybody_could_guess_are_refused(length: int) -> None:
    with pytest.raises(ValueError, match=f"a key of 16 to 64 bytes, got length={length}"):
        assign_teachers(names(3), num_teachers=2, key=bytes(length))
