"""Public facts are whole, and say how many teachers there can be."""

from typing import Any

import numpy as np
import pytest

from pate.lab.plan.sweep import TaskFacts


def facts(**changes: Any) -> TaskFacts:
    given: dict[str, Any] = {"num_records": 6400, "num_labels": 20, "num_public": 600}
    return TaskFacts(**(given | changes))


@pytest.mark.parametrize("density", [0.05, 0.2, 0.5])
def test_labels_are_spread_around_their_density(density: float) -> None:
    found = facts(num_labels=200, label_density=density).densities
    assert found.mean() == pytest.approx(density, rel=0.02)
    assert found.std() == pytest.approx((density * (1 - density) / 3) ** 0.5, rel=0.05)
    assert (np.diff(found) >= 0).all()


def test_densities_may_be_given_one_by_one() -> None:
    assert facts(num_labels=2, label_density=[0.4, 0.1]).densities.tolist() == [0.4, 0.1]


def test_each_teacher_has_five_records_and_a_group() -> None:
    assert facts().grid() == (50, 100, 200, 400, 800)
    assert facts(num_records=1_999_999).grid()[-1] == 12_800
    assert facts(unit="group", records_per_group=16).grid() == (50, 100, 200, 400)
    assert facts(num_records=250).grid() == (50,)
    with pytest.raises(ValueError, match="records for 50 teachers"):
        facts(num_records=249).grid()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_records": 3}, "an integer num_records >= 10"),
        ({"num_labels": 0}, "an integer num_labels >= 1"),
        ({"label_density": 1.0}, "0 < label_density < 1"),
        ({"label_density": [0.2]}, "20 shares, one for each label"),
        ({"unit": "person"}, "unit in record, group"),
        ({"records_per_group": 0.5}, "records_per_group >= 1"),
        ({"records_per_group": 4}, "`unit` group"),
        ({"curve": {}}, "at least one point"),
        ({"curve": {0: 0.8}}, "curve: records >= 1"),
        ({"curve": {10: 0.4}}, "an accuracy between 0.5 and 1 at 10 records"),
    ],
)
def test_bad_facts_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        facts(**changes)
    assert "\n" not in str(caught.value)
