"""The frontier: calibrated on the private side, repeatable, PRIVATE where it is, free where it may be."""

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torchmetrics.functional.classification import multilabel_average_precision

from pate import cli
from pate.accounting.calibration import Target
from pate.accounting.ledger import account, read_ledger
from pate.accounting.relation import NeighboringRelation
from pate.aggregators import Confident, Interactive, NoisyVotes, Outlook, StableTopK, propose
from pate.commands.frontier import compare
from pate.planning.comparison import Comparison, Point, best_at
from pate.planning.evaluation import average_precision, label_quality
from pate.planning.plan import plan_for
from pate.planning.simulation import Simulation, simulated

RELATION = NeighboringRelation.REPLACE_RECORD
SMALL = Simulation(num_labels=5, num_teachers=60, num_public=150, num_features=6)


@pytest.fixture
def run(copied: Path) -> Path:
    return copied


def read(path: Path) -> list[dict[str, str]]:
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# ")
    return list(csv.DictReader(lines[1:]))


def test_private_votes_leave_private_files(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = read_ledger(run / "ledger.sqlite").entries
    command = ["frontier", "--run", str(run), "--num_queries=40", "--delta=1e-3", "--epsilons=[2, 20]", "--seeds=1"]
    assert cli.main([*command, "--student=true"]) == 0
    folder = run / "private" / "frontier"
    assert {path.name for path in folder.iterdir()} == {"frontier.csv", "frontier.png", "frontier.txt"}
    out = capsys.readouterr().out
    assert out.startswith("PRIVATE:") and (folder / "frontier.csv").read_text().startswith("# PRIVATE:")
    assert "Best by student_macro_f1" in out
    rows = read(folder / "frontier.csv")
    assert {row["target_epsilon"] for row in rows} == {"2.0", "20.0"}
    assert all(float(row["epsilon"]) <= float(row["target_epsilon"]) * (1 + 1e-9) for row in rows)
    assert (folder / "frontier.png").read_bytes()[:4] == b"\x89PNG"
    assert read_ledger(run / "ledger.sqlite").entries == before


def test_simulated_votes_are_free(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["frontier", "--simulate.num_labels=4", "--simulate.num_teachers=50", "--simulate.num_public=100"]
    output = tmp_path / "plan"
    assert cli.main([*command, "--num_queries=50", "--epsilons=[8]", "--seeds=1", f"--output={output}"]) == 0
    assert "PRIVATE" not in capsys.readouterr().out + (output / "frontier.txt").read_text()
    names = [row["aggregator"] for row in read(output / "frontier.csv")]
    assert len(names) == len(set(names)) >= 14


def test_aggregators_of_a_list_are_compared(tmp_path: Path) -> None:
    listed = [NoisyVotes(sigma_votes=3.0), NoisyVotes(sigma_votes=3.0, soft=False)]
    asked = Comparison(epsilons=(4.0,), num_queries=100, student=True)
    first, again = (compare(asked, simulate=SMALL, aggregators=listed, output=tmp_path / name).points for name in "ab")
    assert first == again
    assert [point.aggregator for point in first] == ["NoisyVotes", "NoisyVotes (hard)"]
    assert first[0].parameters == first[1].parameters
    assert first[0].label_accuracy == first[1].label_accuracy
    assert first[0].student_mAP > 0.3


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_noise_is_calibrated_on_the_private_side(relation: NeighboringRelation) -> None:
    votes = simulated(SMALL).votes
    for aggregator in propose(Outlook.of(votes, delta=1e-5, relation=relation)):
        target = Target(epsilon=3.0, delta=1e-5, num_queries=votes.num_queries, neighboring_relation=relation)
        plan = plan_for(aggregator, target, votes.panel)
        assert plan is not None
        event = plan.event(votes.panel, relation)
        spent = account([({relation: event}, votes.num_queries)], relation).get_epsilon(delta=1e-5)
        assert spent == pytest.approx(plan.epsilon(target, votes.panel))
        assert 0.999 * 3.0 < spent <= 3.0 * (1 + 1e-9)
        assert (plan.first is not None) == aggregator.needs_predictions


def test_a_target_that_no_noise_meets_is_left_out() -> None:
    votes = simulated(SMALL).votes
    leaky = StableTopK(scale_gap=1.0, sigma_test=1.0, delta_test=0.01)
    target = Target(epsilon=3.0, delta=1e-5, num_queries=votes.num_queries)
    assert plan_for(leaky, target, votes.panel) is None


def test_screens_realise_less_than_they_reserve(tmp_path: Path) -> None:
    noisy = NoisyVotes(sigma_votes=1.0)
    screen = Confident(answers=noisy, sigma_confident=1.0, threshold_confident=22.0)
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


@pytest.mark.parametrize("accuracy", [0.6, 0.8, 0.95])
def test_simulated_teachers_are_as_good_as_asked(accuracy: float) -> None:
    simulation = Simulation(num_labels=8, num_teachers=40, num_public=3000, teacher_accuracy=accuracy, seed=3)
    task = simulated(simulation)
    assert task.votes.ballots is not None and not task.private
    # the truth of a public sample, from the noiseless majority of many more teachers
    many = simulated(Simulation(num_labels=8, num_teachers=2, num_public=3000, teacher_accuracy=0.99999, seed=3))
    truth = many.votes.counts > 1
    assert (task.votes.ballots == truth[:, None]).mean() == pytest.approx(accuracy, abs=0.02)
    assert task.test_labels.mean() == pytest.approx(0.2, abs=0.03)


def test_average_precision_is_that_of_a_peer() -> None:
    generator = np.random.default_rng(0)
    scores = generator.integers(0, 20, (300, 4)) / 20
    truth = generator.random((300, 4)) < scores
    expected = multilabel_average_precision(
        torch.from_numpy(scores), torch.from_numpy(truth.astype(int)), num_labels=4, average="none"
    )
    np.testing.assert_allclose(average_precision(scores, truth), expected.numpy(), rtol=1e-5)
    assert average_precision(scores, np.zeros((300, 4), dtype=np.bool_)).tolist() == [0, 0, 0, 0]


def test_label_quality_of_the_majority_itself_is_perfect() -> None:
    votes = simulated(replace(SMALL, num_teachers=61)).votes  # no ties
    release = NoisyVotes(sigma_votes=1e-3).aggregate(votes, generator=np.random.default_rng(0))
    assert label_quality(release, votes) == {"answered": 1.0, "label_accuracy": 1.0, "label_macro_f1": 1.0}
    nothing = release._replace(labels=0 * release.labels, mask=release.mask & False)
    assert math.isnan(label_quality(nothing, votes)["label_accuracy"])


def test_names_tell_aggregators_apart() -> None:
    names = [each.title for each in propose(Outlook.of(simulated(SMALL).votes, delta=1e-5, relation=RELATION))]
    assert len(names) == len(set(names))
    noisy = NoisyVotes(sigma_votes=1.0)
    screen = Interactive(answers=noisy, sigma_interactive=1.0, threshold_interactive=3.0)
    assert screen.title == "Interactive (NoisyVotes)"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "either a run or a simulation"),
        (["--simulate.num_labels=4", "--simulate.num_teachers=20", "--epsilons=[]"], "at least one epsilon"),
        (["--simulate.num_labels=4", "--simulate.num_teachers=20", "--epsilons=[-1]"], "epsilons[0] > 0"),
        (["--simulate.num_labels=4", "--simulate.num_teachers=20", "--num_queries=9999"], "num_queries <= 5000"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["frontier", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
