"""`python -m scripts.rivals`: PRIVATE, at the epsilons that were asked for, and nothing of it in
the ledger."""

import csv
from pathlib import Path

import pytest

from pate.accounting import read_ledger
from scripts.rivals.__main__ import main
from scripts.rivals.descent import is_installed

pytestmark = pytest.mark.slow

# of all records in each step, whose curve needs no integral
SMALL = ["--epsilons=[1,30]", "--delta=1e-3", "--seeds=1", "--num_steps=20", "--sampling_rate=1"]
ONE_RELEASE = ["least squares", "least squares, public features"]
DESCENT = ["logistic regression by DP-SGD"] if is_installed() else []
OPEN = [
    "constant answer, not private",
    "least squares, not private",
    "logistic regression, not private",
]


def read(path: Path) -> list[dict[str, str]]:
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# PRIVATE")
    return list(csv.DictReader(lines[1:]))


def test_a_run_is_measured(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = read_ledger(copied / "ledger.sqlite").entries
    main(["--run", str(copied), *SMALL])
    folder = copied / "private" / "rivals"
    assert {path.name for path in folder.iterdir()} == {"rivals.csv", "rivals.txt"}
    assert folder.stat().st_mode & 0o77 == 0
    out = capsys.readouterr().out
    assert out.startswith("PRIVATE:")
    assert "one record added, removed or altered; delta 0.001" in out
    rows = read(folder / "rivals.csv")
    private, plain = rows[: -len(OPEN)], rows[-len(OPEN) :]
    names = [*ONE_RELEASE, *DESCENT]
    assert [row["rival"] for row in private] == [name for name in names for _ in range(2)]
    assert [row["rival"] for row in plain] == OPEN
    for row in private:
        assert (
            0.98 * float(row["target_epsilon"])
            < float(row["epsilon"])
            <= float(row["target_epsilon"])
        )
    assert {row["epsilon"] for row in plain} == {"inf"}
    constant, *fits = (float(row["accuracy"]) for row in plain)
    assert min(fits) > 0.9 > constant
    # a large budget gives nearly what no privacy gives
    assert all(float(row["accuracy"]) > 0.85 for row in private if row["target_epsilon"] == "30.0")
    assert read_ledger(copied / "ledger.sqlite").entries == before
