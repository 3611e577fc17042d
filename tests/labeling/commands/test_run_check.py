"""`pate verify` tells what stands in a run, and finds whatever is wrong in it."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pate import cli
from pate._labeling.commands.check import check_run
from pate._labeling.runs.run import LABEL, STUDENT, Run

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run that shares its ledger, which nothing here writes."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_a_finished_run_is_well_and_goes_on(run: Path, capsys: Printed) -> None:
    before = sorted(run.rglob("*"))
    assert cli.main(["verify", str(run)]) == 0
    printed = capsys.readouterr().out
    assert "all is well; finished: teachers fit, teachers vote, label, student fit\n" in printed
    assert sorted(run.rglob("*")) == before
    Run(run).clear(STUDENT)
    Run(run).clear(LABEL)
    assert check_run(run).finished == ("teachers fit", "teachers vote")


def test_what_is_no_run_is_refused(tmp_path: Path, capsys: Printed) -> None:
    assert cli.main(["verify", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not [*tmp_path.iterdir()]


def _change(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _state_a_smaller_epsilon(run: Path) -> None:
    path = run / LABEL.outputs[1]
    statement = json.loads(path.read_text())
    statement["guarantees"]["replace_record"]["epsilon"] = 0.1
    path.write_text(json.dumps(statement))


def _name_another_ledger(run: Path) -> None:
    config = run / "data.yaml"
    lines = [line for line in config.read_text().splitlines() if not line.startswith("ledger:")]
    config.write_text("\n".join([*lines, f"ledger: {run}/elsewhere.sqlite\n"]))


def _make_labels_a_folder(run: Path) -> None:
    (run / LABEL.outputs[0]).unlink()
    (run / LABEL.outputs[0]).mkdir()


Spoil = Callable[[Path], object]
KEY, MODEL = "private/partition.json", "public/student/model"
TEACHERS, LABELS = "private/teachers/labels.npy", LABEL.outputs[0]


def put(place: str | Path, text: str = "x") -> Spoil:
    return lambda run: (run / place).write_text(text)


def lose(place: str | Path) -> Spoil:
    return lambda run: (run / place).unlink()


def pipe(place: str | Path) -> Spoil:
    return lambda run: os.mkfifo(run / place)


def link(place: str, to: str) -> Spoil:
    return lambda run: (run / place).symlink_to(run / to)


def change(place: str | Path) -> Spoil:
    return lambda run: _change(run / place)


def _tell_the_key(run: Path) -> None:
    key = json.loads((run / KEY).read_text())["key"]
    (run / MODEL / "notes.txt").write_text(f"the key is {key}")


WRONG: dict[str, tuple[Spoil, str]] = {
    "changed_teacher": (change(TEACHERS), "changed since"),
    "lost_votes": (lose("private/votes/manifest.json"), "missing"),
    "changed_student": (change("public/student/linear.safetensors"), "changed since"),
    "another_key": (put(KEY, json.dumps({"key": "ab" * 32})), "partition.json"),
    "damaged_state": (put(LABEL.state, "{"), "Put it back"),
    "lost_state": (lose(LABEL.state), "label.json beside public/labels.npz"),
    "lost_labels": (lose(LABELS), "labels.npz missing"),
    "folder_of_labels": (_make_labels_a_folder, "labels.npz missing"),
    "lost_private": (
        lambda run: shutil.rmtree(run / "private"),
        "private, got no such folder. Put it back",
    ),
    "private_fifo": (pipe("private/votes/pipe"), "got votes/pipe. Delete it"),
    "changed_labels": (change(LABELS), "labels.npz"),
    "smaller_epsilon": (_state_a_smaller_epsilon, "got epsilon=0.1"),
    "lost_ledger": (_name_another_ledger, "elsewhere.sqlite"),
    "damaged_data_yaml": (put("data.yaml", "data: ["), "data.yaml"),
    "open_private": (lambda run: (run / "private").chmod(0o750), "chmod 700"),
}
"""What is done to a run, and what is said of it."""

LEAKS: dict[str, tuple[Spoil, str]] = {
    "copy_of_labels": (
        lambda run: shutil.copy(run / TEACHERS, run / MODEL / "figures.csv"),
        "a copy of private/teachers/labels.npy",
    ),
    "key": (_tell_the_key, "with the run's key"),
    "unexpected": (put("public/teachers.pt"), "Move it elsewhere"),
    "hidden_draft": (put("public/.privacy.json.12ab"), ".privacy.json.12ab"),
    "private_by_name": (put(f"{MODEL}/PRIVATE_losses.csv"), "PRIVATE_losses.csv"),
    "link": (link("public/report.html", KEY), "plain files"),
    "linked_folder": (link("public/pictures", "private"), "plain files"),
    "fifo": (pipe("public/report.html"), "plain files"),
    "line_break": (put("public/a\nb\x1b[2J"), r"public/a\nb\x1b[2J. Move it"),
}
"""What lies in ``public/`` and must not, and what is said of it."""


FAST = ("another_key", "lost_state", "changed_labels", "smaller_epsilon", "lost_ledger")


@pytest.mark.parametrize(
    "wrong",
    [each if each in FAST else pytest.param(each, marks=pytest.mark.slow) for each in WRONG],
)
def test_what_is_wrong_is_found(wrong: str, run: Path, capsys: Printed) -> None:
    spoil, said = WRONG[wrong]
    spoil(run)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["verify", str(run)])
    assert stopped.value.code == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(said in line for line in lines), lines
    assert all(line.startswith(f"{run}: Expected ") for line in lines)


@pytest.mark.parametrize("leak", LEAKS)
def test_nothing_else_is_given_away(leak: str, run: Path, capsys: Printed) -> None:
    spoil, said = LEAKS[leak]
    spoil(run)
    with pytest.raises(SystemExit):
        cli.main(["verify", str(run)])
    assert [said in line for line in capsys.readouterr().out.splitlines()] == [True]


def test_a_lost_private_folder_is_put_back_rather_than_labels_bought_again(run: Path) -> None:
    """All else that is missing follows from it."""
    shutil.rmtree(run / "private")
    assert check_run(run).problems == (f"Expected {run}/private, got no such folder. Put it back",)
