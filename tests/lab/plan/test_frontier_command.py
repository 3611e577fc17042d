"""`pate frontier`: PRIVATE where the votes are, free where it may be."""

import csv
from pathlib import Path

import pytest

from pate import cli
from pate.accounting import read_ledger
from tests.conftest import Write

LISTED = """
aggregators:
- {class_path: NoisyVotes, init_args: {sigma_votes: 1}}
- {class_path: Peeling, init_args: {k: 1, scale_peel: 1}}
- class_path: TauVoting
  init_args: {tau: 1.5, sigma_tau: 1, threshold_tau: 5, around_predictions: true}
epsilons: [2, 20]
delta: 1.0e-3
seeds: 1
"""


def read(path: Path) -> list[dict[str, str]]:
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# ")
    return list(csv.DictReader(lines[1:]))


@pytest.mark.slow
def test_private_votes_leave_private_files(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied
    config = run.parent / "frontier.yaml"
    config.write_text(LISTED)
    before = read_ledger(run / "ledger.sqlite").entries
    command = [
        "frontier",
        "--config",
        str(config),
        "--run",
        str(run),
        "--num_queries=40",
        "--student=true",
    ]
    assert cli.main(command) == 0
    folder = run / "private" / "frontier"
    assert {path.name for path in folder.iterdir()} == {
        "frontier.csv",
        "frontier.png",
        "frontier.txt",
    }
    out = capsys.readouterr().out
    assert out.startswith("PRIVATE:") and (folder / "frontier.csv").read_text().startswith(
        "# PRIVATE:"
    )
    assert "Best by student_macro_f1" in out
    rows = read(folder / "frontier.csv")
    points, references = rows[:-3], rows[-3:]
    assert {row["target_epsilon"] for row in points} == {"2.0", "20.0"}
    assert all(float(row["epsilon"]) <= float(row["target_epsilon"]) * (1 + 1e-9) for row in points)
    assert [row["aggregator"] for row in references] == [
        "constant answer",
        "noiseless majority",
        "noiseless counts",
    ]
    assert all(row["epsilon"] == "" and float(row["student_mAP"]) > 0 for row in references)
    assert (
        "Rounds (ClippedVotes, TauVoting (around a student))" in out and "\nconstant answer" in out
    )
    assert (folder / "frontier.png").read_bytes()[:4] == b"\x89PNG"
    assert read_ledger(run / "ledger.sqlite").entries == before


@pytest.mark.slow
def test_simulated_votes_are_free(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "frontier",
        "--simulate.num_labels=4",
        "--simulate.num_teachers=50",
        "--simulate.num_public=100",
    ]
    output = tmp_path / "plan"
    assert (
        cli.main(
            [*command, "--num_queries=50", "--epsilons=[8]", "--seeds=1", f"--output={output}"]
        )
        == 0
    )
    assert "PRIVATE" not in capsys.readouterr().out + (output / "frontier.txt").read_text()
    names = [row["aggregator"] for row in read(output / "frontier.csv")]
    assert len(names) == len(set(names)) >= 14


@pytest.mark.slow
def test_variants_are_an_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, output = tmp_path / "frontier.yaml", tmp_path / "plan"
    config.write_text(
        "aggregators:\n- {class_path: Joint, init_args: {k: 1, scale_joint: 1}}\nepsilons: [8]\nseeds: 1\n"
    )
    command = [
        "frontier",
        "--config",
        str(config),
        "--simulate.num_labels=4",
        "--simulate.num_teachers=50",
    ]
    assert cli.main([*command, "--num_queries=50", "--variants=true", f"--output={output}"]) == 0
    names = [row["aggregator"] for row in read(output / "frontier.csv")]
    assert names[:2] == ["Joint (k=1)", "Joint (k=1), noise_law=exponential"]
    assert "\nJoint (k=1), noise_law=exponential " in (output / "frontier.txt").read_text()
    assert {path.name for path in output.iterdir()} == {
        "frontier.csv",
        "frontier.png",
        "frontier.txt",
        "variants.png",
    }
    assert capsys.readouterr().out.endswith(f"{output / 'variants.png'}\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "either a run, votes or a simulation"),
        (
            ["--simulate.num_labels=4", "--simulate.num_teachers=20", "--epsilons=[]"],
            "at least one epsilon",
        ),
        (
            ["--simulate.num_labels=4", "--simulate.num_teachers=20", "--epsilons=[-1]"],
            "epsilons[0] > 0",
        ),
        (
            ["--simulate.num_labels=4", "--simulate.num_teachers=20", "--num_queries=9999"],
            "num_queries <= 5000",
        ),
        (["--simulate.num_labels=4", "--simulate.num_teachers=20", "--cutoff=1"], "0 < cutoff < 1"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["frontier", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_records_that_vote_for_themselves_are_compared_by_their_student(
    tmp_path: Path, write_arrays: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_arrays()
    (tmp_path / "teachers.yaml").write_text(
        f"data: {{class_path: Arrays, init_args: {{path: {data}}}}}\n"
        "fit: closed_form\nunit: record\n"
    )
    run = f"--run={tmp_path / 'run'}"
    assert cli.main(["teachers", "fit", f"--config={tmp_path / 'teachers.yaml'}", run]) == 0
    assert cli.main(["teachers", "vote", run]) == 0
    command = ["frontier", run, "--num_queries=50", "--epsilons=[2, 40]", "--delta=1e-4"]
    capsys.readouterr()
    assert cli.main(command) == 2
    refusal = "pate frontier: Expected student=True for Moments, which have no majority\n"
    assert capsys.readouterr().err == refusal
    assert cli.main([*command, "--student=true", "--seeds=1"]) == 0
    *points, constant = read(tmp_path / "run" / "private" / "frontier" / "frontier.csv")
    assert [row["aggregator"] for row in points] == ["ScoreVotes"] * 2
    assert constant["aggregator"] == "constant answer" and constant["label_accuracy"] == "nan"
    little, much = (float(row["student_accuracy"]) for row in points)
    assert much > max(little, float(constant["student_accuracy"]) + 0.1)
