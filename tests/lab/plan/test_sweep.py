"""The fewest teachers that are as good as the best are taken, and what is released costs what it
says."""

from typing import Any

import pytest

from pate import VoteShape
from pate.accounting import NeighboringRelation, Target
from pate.aggregators import Aggregator, ClippedVotes, Rounds
from pate.lab.plan.sweep import Sweep, TaskFacts, Trial, fewest_as_good, run_sweep

FACTS = TaskFacts(num_records=20_000, num_labels=4, num_public=300, num_features=8)


def trial(
    num_teachers: int, *accuracies: float, aggregator: str = "Rounds", f1: float = 0.0
) -> Trial:
    return Trial(
        num_teachers=num_teachers,
        records=10.0,
        teacher_accuracy=0.8,
        epsilon=1.0,
        aggregator=aggregator,
        students=tuple(
            {"student_accuracy": accuracy, "student_macro_f1": f1} for accuracy in accuracies
        ),
    )


def test_the_best_is_taken() -> None:
    trials = [trial(50, 0.7, 0.72), trial(100, 0.8, 0.82), trial(200, 0.75, 0.77)]
    assert fewest_as_good(trials, "accuracy") == trials[1]


def test_fewer_teachers_within_a_standard_error_are_taken() -> None:
    # the differences to the best are 0.02 and -0.01: 0.005 on average, with an error of 0.015
    trials = [trial(50, 0.7, 0.7), trial(100, 0.79, 0.82), trial(200, 0.81, 0.81)]
    assert fewest_as_good(trials, "accuracy") == trials[1]
    # the same mean difference on every task is no accident
    assert (
        fewest_as_good([trial(100, 0.805, 0.805), trial(200, 0.81, 0.81)], "accuracy").num_teachers
        == 200
    )


def test_the_first_aggregator_that_is_as_good_is_taken() -> None:
    trials = [trial(50, 0.8), trial(50, 0.81, aggregator="ClippedVotes"), trial(100, 0.805)]
    assert fewest_as_good(trials, "accuracy") == trials[1]
    assert (
        fewest_as_good(
            [trial(50, 0.8), trial(50, 0.8, aggregator="ClippedVotes")], "accuracy"
        ).aggregator
        == "Rounds"
    )
    accidental = [trial(50, 0.8, 0.8), trial(50, 0.79, 0.82, aggregator="ClippedVotes")]
    assert fewest_as_good(accidental, "accuracy").aggregator == "Rounds"


def test_voters_in_closed_form_come_first_and_the_more_the_better() -> None:
    voters = [trial(size, 0.8, aggregator="ScoreVotes") for size in (2000, 10_000)]
    assert fewest_as_good([trial(50, 0.8), *voters], "accuracy") == voters[1]
    assert fewest_as_good([trial(50, 0.81), *voters], "accuracy").aggregator == "Rounds"


def test_another_figure_may_choose() -> None:
    trials = [trial(50, 0.8, f1=0.1), trial(100, 0.7, f1=0.2)]
    assert fewest_as_good(trials, "accuracy").num_teachers == 50
    assert fewest_as_good(trials, "macro_f1").num_teachers == 100


@pytest.mark.parametrize("cls", [Rounds, ClippedVotes])
@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_noise_does_not_depend_on_the_number_of_teachers(
    cls: type[Aggregator], relation: NeighboringRelation
) -> None:
    """So that it is found once for a sweep."""
    target = Target(epsilon=2.0, delta=1e-5, num_queries=100, neighboring_relation=relation)
    found = [cls.for_target(target, VoteShape(num_teachers, 4)) for num_teachers in (50, 3200)]
    assert found[0] == found[1]


@pytest.mark.slow
def test_too_few_teachers_drown_in_noise() -> None:
    found = run_sweep(FACTS, Sweep(epsilons=(1,), num_teachers=(800, 20), delta=1e-5, seeds=2))
    assert [each.num_teachers for each in found.trials] == [20, 20, 800, 800, 4000, 20_000]
    few, many = (
        found.trials[0],
        fewest_as_good([each for each in found.trials if not each.in_closed_form], "accuracy"),
    )
    assert many.num_teachers == 800
    assert few.teacher_accuracy > many.teacher_accuracy
    assert many.figures("accuracy").mean() > found.constant["accuracy"] + 0.02
    assert few.figures("accuracy").mean() < many.figures("accuracy").mean()
    again = run_sweep(FACTS, Sweep(epsilons=(1,), num_teachers=(20, 800), delta=1e-5, seeds=2))
    assert again.trials == found.trials


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilons": ()}, "at least one epsilon"),
        ({"epsilons": (1, 0)}, r"epsilons\[1\] > 0"),
        ({"delta": 0.0}, "0 < delta < 1"),
        ({"num_teachers": ()}, "at least one number of teachers"),
        ({"num_teachers": (1,)}, r"num_teachers\[0\] >= 2"),
        ({"num_teachers": (30_000,)}, "at most 20000 teachers, a record each"),
        ({"num_queries": 301}, "num_queries <= num_public = 300"),
        ({"by": "mAP"}, "by in accuracy, macro_f1"),
        ({"seeds": 0}, "an integer seeds >= 1"),
    ],
)
def test_bad_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_sweep(FACTS, Sweep(**changes))
