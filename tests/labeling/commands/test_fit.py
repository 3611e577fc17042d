"""`pate fit` makes a student of a table in one command, which pays once."""

import csv
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from pate import cli
from pate._core.accounting.ledger import read_ledger
from pate._labeling.commands.table import commands

ROOT = Path(__file__).parents[3]
README, FRONT = ((ROOT / page).read_text() for page in ("README.md", "docs/index.md"))
(LINE,) = re.findall(r"^\$ pate (fit .*)$", README, flags=re.MULTILINE)
WORDS = shlex.split(LINE)
LEDGER = Path("stays.ledger.sqlite")


def write_stays(num: int) -> None:
    """Write a table of stays of patients, with two labels."""
    generator = np.random.default_rng(0)
    with Path("stays.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        columns = ["id", "patient_id", "age", "ward", "lactate", "heart_rate"]
        writer.writerow([*columns, "infection", "sepsis"])
        for stay in range(num):
            patient, age = generator.integers(2 * num // 3), int(generator.integers(20, 95))
            ward = ["medicine", "surgery", "icu"][generator.integers(3)]
            lactate = generator.gamma(2, 1) + (ward == "icu")
            rate = generator.normal(85, 15) + 4 * lactate
            odds = np.exp(0.08 * (rate - 100) + 0.04 * (age - 60))
            infection = generator.random() < odds / (1 + odds)
            sepsis = infection and lactate + 0.7 * generator.normal() > 3
            name = f"s{stay * 7919 % 1_000_003:06}x"
            row = [name, f"P{patient:05}", age, ward, f"{lactate:.2f}", f"{rate:.0f}"]
            writer.writerow([*row, int(infection), int(sepsis)])


def test_a_hopeless_epsilon_is_refused_before_payment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_stays(300)
    epsilon = WORDS.index("--epsilon") + 1
    assert cli.main([*WORDS[:epsilon], "0.001", *WORDS[epsilon + 1 :]]) == 2
    assert "Expected a larger epsilon, or fewer queries" in capsys.readouterr().err.splitlines()[-1]
    assert not LEDGER.exists() and not Path("runs", "stays", "public").exists()


def test_numbers_of_rows_are_refused_with_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{row},{row**2 % 7},{row % 2}\n" for row in range(1, 60))
    Path("rows.csv").write_text(f"id,age,sick\n{rows}")
    told = ["--labels", "sick", "--no_group", "--public_fraction", "0.3", "--epsilon", "1"]
    assert cli.main(["fit", "rows.csv", *told]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.endswith(
        "as row numbers do not; they are given once, when they are collected, such as uuid.uuid4().hex"
    )


def test_the_command_of_the_readme_pays_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_stays(2000)
    assert cli.main(WORDS) == 0
    said = capsys.readouterr().out
    shown = re.findall(r"^(Verdict: .*|epsilon = .*)$", README, flags=re.MULTILINE)
    figure = re.compile(r"\d+\.\d+|no (?=better)|: raise .*|\.$", flags=re.MULTILINE)
    printed = figure.sub("", said).splitlines()
    assert all(line in FRONT for line in (LINE, *shown))
    assert len(shown) == 2 and all(figure.sub("", line) in printed for line in shown)
    ((better, constant),) = re.findall(r"; mAP (\S+) \((\S+)\)", said)
    assert float(better) > float(constant) + 0.1
    run = Path("runs", "stays")
    assert (run / "public" / "report.html").is_file() == ("report" in commands())
    assert f"pate run {run / 'recipe'} --run {run}" in said
    assert re.search(r"labels\.npz \(answered (\d+) of \1\)$", said, flags=re.MULTILINE)
    labels = yaml.safe_load((run / "recipe" / "label.yaml").read_text())
    assert (labels["target_epsilon"], labels["delta"]) == (1.0, 1e-6)
    assert yaml.safe_load((run / "recipe" / "teachers.yaml").read_text())["unit"] == "group"
    paid = read_ledger(LEDGER).entries
    assert len(paid) == 1 and paid[0].privacy_unit.unit == "group"
    epsilon = WORDS.index("--epsilon") + 1
    assert cli.main([*WORDS[:epsilon], "2", *WORDS[epsilon + 1 :]]) == 2
    assert "target_epsilon=2.0 (was 1.0)" in capsys.readouterr().err
    assert cli.main(WORDS) == cli.main(["run", str(run / "recipe"), "--run", str(run)]) == 0
    assert read_ledger(LEDGER).entries == paid
    assert cli.main(["predict", str(run), "stays.csv"]) == 0
    assert Path("predictions.csv").read_text().startswith("id,infection,sepsis\ns000000x,")


def test_nothing_is_paid_for_before_all_is_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_stays(600)
    assert cli.main(["fit", "stays.csv", "--epsilon", "1"]) == 2
    said = capsys.readouterr()
    expected = ("Expected --group COLUMN", "Expected --labels", "Expected a column `split`")
    lines = zip(said.err.splitlines(), expected, strict=True)
    assert all(line.startswith(f"pate fit: {words}") for line, words in lines)
    assert "Then, for example: pate fit --epsilon 1 --delta 1e-06 stays.csv" in said.out
    assert "PRIVATE: column `patient_id`: " in said.out
    told = ["--labels", "ward", "--no_group", "--public_fraction", "0.3", "--epsilon", "1"]
    assert cli.main(["fit", "stays.csv", *told]) == 2
    assert (
        """'{"ward": ["icu", "medicine", "surgery"]}' for a label of""" in capsys.readouterr().err
    )
    assert {path.name for path in Path().iterdir()} == {"stays.csv"}


KILLED = """
import os, signal, sys
import pate._labeling.plan as plan
from pate.cli import main

plan.fit_student = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
main(sys.argv[1:])
"""


def test_a_command_that_was_killed_after_payment_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_stays(600)
    words = ["fit", "stays.csv", "--labels", "infection", "--no_group", "--public_fraction", "0.3"]
    words += ["--test_fraction", "1e-9", "--epsilon", "20", "--run", "run"]
    killed = subprocess.run([sys.executable, "-c", KILLED, *words])
    labels = Path("run", "public", "labels.npz").read_bytes()
    paid = read_ledger(LEDGER).entries
    assert killed.returncode == -signal.SIGKILL and len(paid) == 1
    assert cli.main(words) == 0
    assert "Verdict: unknown, because no record is a test record" in capsys.readouterr().out
    assert Path("run", "public", "labels.npz").read_bytes() == labels
    assert read_ledger(LEDGER).entries == paid


def write_pictures() -> list[str]:
    """Write a folder of pictures with a table of two labels, and another one; return its rows."""
    Path("pictures").mkdir()
    rows = []
    for number in range(60):
        dark, name = number % 2, f"a{number * 7919 % 1009:04}.png"
        Image.new("RGB", (16, 16), (200 - 150 * dark, number, 120)).save(Path("pictures", name))
        role = ["private", "public", "test"][number % 3]
        rows.append(f"{name},{role},{dark},{number % 5 // 4}")
    Path("pictures", "other.csv").write_text("file\n")
    Path("pictures", "attributes.csv").write_text("\n".join(["file,split,dark,red", *rows]))
    return rows


@pytest.mark.slow
def test_pictures_take_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_pictures()
    assert cli.main(shlex.split("fit pictures/ --labels attributes.csv --epsilon 1e5")) == 0
    assert "Verdict: accuracy " in capsys.readouterr().out
    assert Path("runs/pictures/public/student/model").is_dir()
