"""A table from records to predictions where no network, plot or report can be made.

`make without` runs it where the folders of the higher zones are deleted.
"""

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BLOCKED = Path(__file__).parents[2] / "without"


def write_table(path: Path) -> None:
    generator = np.random.default_rng(0)
    features = generator.standard_normal((900, 5))
    labels = (features @ generator.standard_normal((5, 3)) > 0).astype(int)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "split", *"abc", *(f"x{column}" for column in range(5))])
        for row in range(900):
            split = "private" if row < 600 else "public" if row < 800 else "test"
            writer.writerow([f"r{row}", split, *labels[row], *features[row]])


def pate(words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `pate` in an interpreter of its own, to which no framework is installed."""
    above = os.environ.get("PYTHONPATH", "")
    return subprocess.run(
        [sys.executable, "-m", "pate", *words.split()],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{BLOCKED}{os.pathsep}{above}".rstrip(os.pathsep)},
    )


def test_a_table_needs_no_network_and_no_lab(tmp_path: Path) -> None:
    write_table(tmp_path / "table.csv")
    for words in (
        "init mine --data table.csv --kind csv",
        "run mine --run run --label.target_epsilon=20",
        "predict run/public/student/model table.csv --output answers.csv",
        "ledger show --ledger table.ledger.sqlite",
    ):
        done = pate(words, tmp_path)
        assert done.returncode == 0, (words, done.stderr)
    assert "1 release(s) of 200 queries" in done.stdout
    with (tmp_path / "answers.csv").open() as file:
        assert len([*csv.DictReader(file)]) == 900
    assert pate("--help", tmp_path).returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        "teachers fit --network=pate.models.MLP",
        "student fit --run run --model.network=pate.models.MLP",
    ],
)
def test_what_needs_a_network_says_so_in_one_line(words: str, tmp_path: Path) -> None:
    done = pate(words, tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("pate ")
    assert done.stderr.count("\n") == 1 and "Expected the " in done.stderr, done.stderr
