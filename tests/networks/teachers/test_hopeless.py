"""Plans of networks whose teachers would have too few records."""

from dataclasses import replace

import pytest

from pate import LabelSettings, TeacherPlan
from pate._labeling.release.hopeless import describe_hopeless
from pate.aggregators import NoisyVotes
from pate.models import Linear

TRAINED = TeacherPlan(network=Linear, num_teachers=60, num_steps=1, batch_size=1)


@pytest.mark.parametrize(
    ("plan", "number", "message"),
    [
        (TRAINED, 119, "119 private records (or groups) for 60 teachers: most have one or none"),
        (TRAINED, 120, None),
        (replace(TRAINED, start_from="first"), 4, None),
    ],
)
def test_too_few_records_are_told(plan: TeacherPlan, number: int, message: str | None) -> None:
    settings = LabelSettings(NoisyVotes(sigma_votes=3.0), delta=1e-5, num_queries=5)
    lines = [*describe_hopeless(plan, settings, number)]
    assert not lines if message is None else [message in line for line in lines] == [True]
