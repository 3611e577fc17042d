"""The frontier: calibrated on the private side, repeatable, PRIVATE where it is, free where it may be."""

import math
from pathlib import Path

from pate.accounting.relation import NeighboringRelation
from pate.aggregators import Aggregator, ConfidentScreen, NoisyVotes
from pate.commands.frontier import compare
from pate.planning.comparison import Comparison, Point, best_at
from pate.planning.simulation import Simulation

RELATION = NeighboringRelation.REPLACE_RECORD
SMALL = Simulation(num_labels=5, num_teachers=60, num_public=150, num_features=6)


def test_aggregators_of_a_list_are_compared(tmp_path: Path) -> None:
    listed: list[Aggregator] = [NoisyVotes(sigma_votes=3.0), NoisyVotes(sigma_votes=3.0, soft=False)]
    asked = Comparison(epsilons=(4.0,), num_queries=100, student=True)
    first, again = (compare(asked, simulate=SMALL, aggregators=listed, output=tmp_path / name).points for name in "ab")
    assert first == again
    assert [point.aggregator for point in first] == ["NoisyVotes", "NoisyVotes (hard)"]
    assert first[0].parameters == first[1].parameters
    assert first[0].label_accuracy == first[1].label_accuracy
    assert first[0].student_mAP > 0.3


def test_screens_realise_less_than_they_reserve(tmp_path: Path) -> None:
    noisy = NoisyVotes(sigma_votes=1.0)
    screen = ConfidentScreen(answers=noisy, sigma_confident=1.0, threshold_confident=22.0)
    asked = Comparison(epsilons=(20.0,), num_queries=150)
    (point,) = compare(asked, simulate=SMALL, aggregators=[screen], output=tmp_path).points
    assert 0 < point.answered < 1
    assert point.realised_epsilon < 0.95 * point.epsilon


def test_the_best_is_the_largest_figure_that_is_one() -> None:
    def point(name: str, target: float, value: float) -> Point:
        return Point(
            aggregator=name,
            target_epsilon=target,
            epsilon=target,
            realised_epsilon=target,
            parameters="{}",
            answered=1.0,
            label_accuracy=value,
            label_macro_f1=value,
        )

    points = [point("a", 2, 0.5), point("b", 2, 0.7), point("c", 2, math.nan), point("a", 1, math.nan)]
    assert {target: best.aggregator for target, best in best_at(points, "label_accuracy").items()} == {2: "b"}
