"""A table from records to predictions where no network, plot or report can be made.

`make without` runs it where the folders of the higher zones are deleted.
"""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

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


_ONE_AFTER_THE_OTHER = """
import json, sys
from pate.cli import main
sys.exit(max(main(words.split()) for words in json.loads(sys.argv[1])))
"""


def pate(folder: Path, *lines: str) -> subprocess.CompletedProcess[str]:
    """Run `pate` with each of the lines, in an interpreter to which no framework is installed."""
    above = os.environ.get("PYTHONPATH", "")
    return subprocess.run(
        [sys.executable, "-c", _ONE_AFTER_THE_OTHER, json.dumps(lines)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{BLOCKED}{os.pathsep}{above}".rstrip(os.pathsep)},
    )


def test_a_table_needs_no_network_and_no_lab(tmp_path: Path) -> None:
    write_table(tmp_path / "table.csv")
    done = pate(
        tmp_path,
        "--help",
        "init mine --data table.csv --kind csv --labels a,b,c --no_group",
        "run mine --run run --label.target_epsilon=20",
        "predict run/public/student/model table.csv --output answers.csv",
        "ledger show table.ledger.sqlite",
    )
    assert done.returncode == 0, done.stderr
    assert "1 release(s) of 200 queries" in done.stdout
    with (tmp_path / "answers.csv").open() as file:
        assert len([*csv.DictReader(file)]) == 900
