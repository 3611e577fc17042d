"""`pate plan`: a table, a picture, and a recipe that runs."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from pate import cli
from tests.conftest import make_arrays

FACTS = [
    "--num_records=400",
    "--num_labels=4",
    "--num_public=100",
    "--num_features=6",
    "--label_density=0.4",
]
SWEEP = ["--num_teachers=[10, 40]", "--epsilons=[20]", "--delta=1e-3", "--seeds=1"]


@pytest.mark.slow
def test_a_plan_can_be_carried_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, run = tmp_path / "plan", tmp_path / "run"
    words = [
        "plan",
        *FACTS,
        *SWEEP,
        "--curve={10: 0.7, 40: 0.8}",
        "--neighboring_relation=ADD_REMOVE_TEACHER",
    ]
    assert cli.main([*words, f"--output={output}"]) == 0
    out = capsys.readouterr().out
    assert "nothing private was touched" in out and "<- take" in out
    assert "+-" not in out  # one simulated task has no spread
    assert "for exact sets or none: plan for REPLACE_RECORD" in out
    assert (output / "plan.txt").read_text() in out
    assert (output / "plan.png").read_bytes()[:4] == b"\x89PNG"
    lines = (output / "plan.csv").read_text().splitlines()
    assert "nothing private was touched" in lines[0]
    rows = list(csv.DictReader(lines[1:]))
    assert [(row["num_teachers"], row["aggregator"]) for row in rows] == [
        *((size, name) for size in ("10", "40") for name in ("Rounds", "ClippedVotes")),
        *((size, "ScoreVotes") for size in ("80", "400")),
    ]
    taken = [row for row in rows if row["taken"] == "1"]
    recipe = output / "epsilon_20"
    teachers, label = (
        yaml.safe_load((recipe / f"{name}.yaml").read_text()) for name in ("teachers", "label")
    )
    sizes = {"400": None, "80": 80}  # each record is a teacher, or parts of five are
    assert [sizes[row["num_teachers"]] for row in taken] == [teachers.get("num_teachers")]
    assert label["target_epsilon"] == 20 and label["num_queries"] == 100

    data = tmp_path / "data.npz"
    np.savez(data, **make_arrays())  # type: ignore[arg-type]
    fit = [
        "teachers",
        "fit",
        "--data=Arrays",
        f"--data.path={data}",
        f"--config={recipe / 'teachers.yaml'}",
    ]
    assert teachers["fit"] == "closed_form" and cli.main([*fit, f"--run={run}"]) == 0
    assert cli.main(["teachers", "vote", f"--run={run}"]) == 0
    assert (
        cli.main(["label", f"--config={recipe / 'label.yaml'}", f"--run={run}", "--noise_seed=0"])
        == 0
    )
    asked = yaml.safe_load((run / "public" / "label.yaml").read_text())
    assert asked["aggregator"]["class_path"].endswith(taken[0]["aggregator"])
    assert "ADD_REMOVE_TEACHER" in str(asked["aggregator"])


@pytest.mark.slow
def test_a_plan_says_what_it_does_not_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "plan",
        *FACTS,
        "--num_teachers=[4]",
        "--epsilons=[0.01]",
        "--seeds=1",
        f"--output={tmp_path}",
    ]
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert "a guess" in out
    assert "no number of teachers is better than the constant answer" in out
    assert re.search(r"sets or none: \d{3,} teachers .*; 80 have enough records: a larger", out)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--num_records=100"], "records for 50 teachers (or --num_teachers)"),
        (["--curve={5: 1.5}"], "an accuracy between 0.5 and 1 at 5 records"),
        (["--num_teachers=[1000]"], "at most 400 teachers"),
        (["--epsilons=[-1]"], "epsilons[0] > 0"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["plan", *FACTS, *words, f"--output={tmp_path / 'plan'}"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "plan").exists()


@pytest.mark.parametrize(("records", "delta"), [(1000, 0.9), (10_000, 1e-4)])
def test_no_plan_is_made_at_a_delta_that_promises_nothing(
    records: int, delta: float, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = [f"--num_records={records}", "--num_labels=2", "--num_public=30"]
    assert cli.main(["plan", *sizes, f"--delta={delta}"]) == 2
    assert "Expected delta <" in capsys.readouterr().err
