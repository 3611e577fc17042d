"""The frontier: calibrated on the private side, repeatable, PRIVATE where it is, free where it may
be."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pate._core.settings import Partial
from pate._labeling.aggregators.base import AnyAggregator
from pate._labeling.runs.named_votes import NamedVotes
from pate.accounting import NeighboringRelation
from pate.aggregators import ConfidentScreen, NoisyVotes, StableTopK
from pate.lab.plan.command import compare
from pate.lab.plan.engine import Row
from pate.lab.plan.frontier import Comparison, Frontier, best_at, best_of_families, ranked
from pate.lab.plan.output import frontier_figure, frontier_table, variants_figure
from pate.lab.plan.sources import Simulation, simulated

RELATION = NeighboringRelation.REPLACE_RECORD
SMALL = Simulation(num_labels=5, num_teachers=60, num_public=150, num_features=6)


@pytest.mark.slow
def test_aggregators_of_a_list_are_compared(tmp_path: Path) -> None:
    listed: list[AnyAggregator] = [
        NoisyVotes(sigma_votes=3.0),
        NoisyVotes(sigma_votes=3.0, soft=False),
    ]
    comparison = Comparison(epsilons=(4.0,), num_queries=100, student=True)
    first, again = (
        compare(comparison, simulate=SMALL, aggregators=listed, output=tmp_path / name).rows
        for name in "ab"
    )
    assert first == again
    assert [point["aggregator"] for point in first] == ["NoisyVotes", "NoisyVotes (hard)"]
    assert first[0]["parameters"] == first[1]["parameters"]
    assert first[0]["label_accuracy"] == first[1]["label_accuracy"]
    assert first[0]["student_mAP"] > 0.3


@pytest.mark.slow
def test_screens_realise_less_than_they_reserve(tmp_path: Path) -> None:
    noisy = NoisyVotes(sigma_votes=1.0)
    screen = ConfidentScreen(answers=noisy, sigma_confident=1.0, threshold_confident=22.0)
    comparison = Comparison(epsilons=(20.0,), num_queries=150)
    (point,) = compare(comparison, simulate=SMALL, aggregators=[screen], output=tmp_path).rows
    assert 0 < point["answered"] < 1
    assert point["realised_epsilon"] < 0.95 * point["epsilon"]


def point(name: str, target: float, value: float) -> Row:
    return {
        "aggregator": name,
        "target_epsilon": target,
        "epsilon": target,
        "realised_epsilon": target,
        "parameters": "{}",
        "answered": 1.0,
        "label_accuracy": value,
        "label_macro_f1": value,
    }


def test_a_table_fits_into_a_terminal() -> None:
    long = "Rounds (ClippedVotes, ClippedVotes (around a student))"
    points = (point("NoisyVotes", 2.0, 0.5), point(long, 2.0, 0.75))
    result = Frontier(
        comparison=Comparison(),
        rows=points,
        references={"majority": dict(points[0])},
        private=False,
    )
    lines = frontier_table(result).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("aggregator"))
    head, noisy, rounds, rest, majority = lines[first : first + 5]
    assert max(map(len, lines)) <= 100 and len(head) == len(noisy) == len(rounds) == len(majority)
    assert (
        rounds.startswith("Rounds (ClippedVotes, ClippedVotes ")
        and rest == "    (around a student))"
    )
    assert rounds.split()[-3:] == ["1.0000", "0.7500", "0.7500"] and majority.split()[1:] == [
        "1.0000"
    ] + 2 * ["0.5000"]


def test_the_best_on_average_come_first() -> None:
    """A rank counts those that are strictly better; what is missing is behind all others."""
    points = [point("a", 1, 0.9), point("a", 2, 0.5), point("b", 1, 0.95), point("b", 2, 0.6)]
    points += [point("c", 1, 0.7), point("c", 2, math.nan), point("d", 2, 0.9)]
    found = Frontier(comparison=Comparison(), rows=tuple(points), references={}, private=False)
    assert ranked(found, ["label_accuracy"]) == ["b", "a", "d", "c"]


def test_the_picture_names_five_aggregators() -> None:
    """The others are one grey."""
    points = tuple(
        point(f"{i}", target, 0.1 * (i + target)) for i in range(8) for target in (1.0, 2.0)
    )
    levels = {"constant answer": {"answered": 1.0, "label_accuracy": 0.1, "label_macro_f1": 0.1}}
    found = Frontier(comparison=Comparison(), rows=points, references=levels, private=False)
    figure = frontier_figure(found)
    (legend,) = figure.legends
    said = [text.get_text() for text in legend.get_texts()]
    assert said == ["7", "6", "5", "4", "3", "3 others", "constant answer"]
    for axes in figure.axes:
        colors = [str(line.get_color()) for line in axes.lines]
        assert colors.count("0.8") == 3 and len(set(colors)) == 7
    few = Frontier(comparison=Comparison(), rows=points[:4], references=levels, private=False)
    (legend,) = frontier_figure(few).legends
    assert [text.get_text() for text in legend.get_texts()] == ["1", "0", "constant answer"]


def test_each_class_has_one_colour_and_a_panel_for_its_forms() -> None:
    """Of seven forms of two classes the best of each is named; the classes with several forms have
    a shape."""
    names = ["a", "a, x=1", "a, x=2", "b", "b, y=1", "c"]
    points = tuple(
        point(name, target, 0.1 * (i + target))
        for i, name in enumerate(names)
        for target in (1.0, 2.0)
    )
    levels = {"constant answer": {"answered": 1.0, "label_accuracy": 0.1, "label_macro_f1": 0.1}}
    found = Frontier(
        comparison=Comparison(variants=True),
        rows=points,
        references=levels,
        private=True,
        families={name: name[0] for name in names},
    )
    assert best_of_families(found, ["label_accuracy"]) == ["c", "b, y=1", "a, x=2"]
    (legend,) = frontier_figure(found).legends
    said = [text.get_text() for text in legend.get_texts()]
    assert said == ["c", "b, y=1", "a, x=2", "3 others", "constant answer"]
    figure = variants_figure(found)
    panels = {axes.get_title(): axes for axes in figure.axes if axes.get_visible()}
    assert set(panels) == {"a", "b"}
    for family, axes in panels.items():
        shown = axes.get_legend()
        assert shown is not None
        assert [text.get_text() for text in shown.get_texts()] == [
            name for name in names if name[0] == family
        ]
        assert [str(line.get_color()) for line in axes.lines].count("0.8") == sum(
            name[0] != family for name in names
        )
    assert "PRIVATE" in figure.get_suptitle()


def test_the_best_is_the_largest_figure_that_is_one() -> None:
    points = [
        point("a", 2, 0.5),
        point("b", 2, 0.7),
        point("c", 2, math.nan),
        point("a", 1, math.nan),
    ]
    assert {
        target: best["aggregator"] for target, best in best_at(points, "label_accuracy").items()
    } == {2: "b"}


def test_an_answer_to_few_labels_is_not_the_best() -> None:
    few = {**point("few", 2, 1.0), "answered": 0.016}
    many = point("many", 2, 0.9)
    best = best_at([few, many], "label_accuracy")
    assert best[2]["aggregator"] == "many"


@pytest.mark.slow
def test_a_class_by_its_bare_name_has_the_noise_of_calibrate(tmp_path: Path) -> None:
    """One factor for most, and for StableTopK the split that its class chooses for each target."""
    comparison = Comparison(epsilons=(4.0, 20.0), num_queries=40, seeds=1)
    named = [Partial(StableTopK), Partial(NoisyVotes)]
    points = compare(comparison, simulate=SMALL, aggregators=[*named], output=tmp_path).rows
    assert len(points) == 4
    shape = simulated(SMALL).votes.shape
    for found in points:
        target = comparison.target(found["target_epsilon"], 40)
        cls = StableTopK if found["aggregator"] == "StableTopK" else NoisyVotes
        calibrated = cls.for_target(target, shape)
        assert calibrated is not None
        noise = {name: pytest.approx(scale, rel=1e-3) for name, scale in calibrated.noise.items()}
        assert json.loads(found["parameters"]) == noise


def test_a_file_of_votes_takes_the_place_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    counts = np.random.default_rng(0).integers(0, 101, (30, 4))
    ids = np.array([f"s{i:02}" for i in range(30)])
    NamedVotes(ids=ids, label_names=tuple("abcd"), counts=counts, num_teachers=100).save(
        tmp_path / "votes.npz"
    )
    comparison = Comparison(epsilons=(20.0,), num_queries=20, seeds=1)
    found = compare(comparison, votes=Path("votes.npz"), aggregators=[Partial(NoisyVotes)])
    (only,) = found.rows
    assert only["answered"] == 1 and found.notice.startswith("PRIVATE")
    assert (tmp_path / "private" / "frontier" / "frontier.csv").is_file()
    with pytest.raises(ValueError, match="no student with a file of votes"):
        compare(replace(comparison, student=True), votes=Path("votes.npz"))
