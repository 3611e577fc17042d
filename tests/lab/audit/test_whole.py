"""Whole runs with canaries, held against what they state."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pate
from pate import ReleasedLabels, cli
from pate._labeling.linear import fit_linear, student_of
from pate._labeling.runs.run import Run
from pate._labeling.runs.vote_store import load_voters
from pate._labeling.stages import student as student_stage
from pate._labeling.votes.voters import RecordVoters
from pate.lab.audit import whole as command
from pate.lab.audit.whole import AuditResult, CanaryRecords, audit
from pate.student import LinearStudent
from tests.lab.audit.worlds import Drawn


def whole(folder: Path, *, canaries: int, seed: int) -> AuditResult:
    data = CanaryRecords(Drawn(4000), canaries=canaries, seed=seed)
    pate.RunPlan(
        folder,
        data,
        teachers=pate.ClosedFormPlan(),
        labels=pate.LabelSettings(delta=1e-6, target_epsilon=4.0),
        student=pate.StudentPlan(),
        ledger=folder / "ledger.sqlite",
    ).execute()
    return audit(folder)


def sees_votes(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let the student of a run be one of what the voters say, without noise."""

    def leaking(released: ReleasedLabels, features: np.ndarray, num_teachers: int) -> LinearStudent:
        if not (folder / "private" / "teachers_fit.json").exists():  # a rehearsal elsewhere
            return student_of(released, features, num_teachers)
        voters = load_voters(Run(folder))
        assert isinstance(voters, RecordVoters)
        records = voters.geometry.unit * voters.coordinates
        answers = fit_linear(records, voters.labels, np.ones_like(voters.labels)).predict(
            voters.geometry.linear(features)
        )
        return fit_linear(features, answers, np.ones_like(answers), noise_std=1e-3)

    patch.setattr(student_stage, "student_of", leaking)


@pytest.mark.slow
def test_a_student_that_sees_votes_is_found_in_5_of_6_audits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert whole(tmp_path / "honest", canaries=256, seed=0).refuted is False
    outcomes = []
    for seed in range(6):
        sees_votes(monkeypatch, tmp_path / str(seed))
        outcomes.append(whole(tmp_path / str(seed), canaries=256, seed=seed))
    assert sum(outcome.student.refuted for outcome in outcomes) >= 5
    assert all(not outcome.labels.refuted for outcome in outcomes)


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The recipe of a table, and the table beside it, with a ledger that nobody may touch."""
    shutil.copytree(Path(pate.__file__).parents[1] / "configs" / "table", tmp_path / "mine")
    generator = np.random.default_rng(0)
    features = generator.standard_normal((300, 5)).astype(np.float32)
    labels = (features[:, :3] + generator.standard_normal((300, 3)) > 0.5).astype(np.uint8)
    (tmp_path / "data").mkdir()
    split, ids = np.repeat([0, 1, 2], [200, 60, 40]), np.char.mod("r%d", np.arange(300))
    np.savez(tmp_path / "data" / "table.npz", X=features, Y=labels, ids=ids, split=split)
    (tmp_path / "data" / "table.ledger.sqlite").write_text("the ledger of these data")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "mine"


@pytest.mark.slow
def test_an_audit_goes_on_where_it_was_killed_and_touches_no_other_ledger(
    recipe: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["audit", "mine", "--output", "audited", "--canaries", "16"]
    before = {path: path.read_bytes() for path in recipe.parent.rglob("*") if path.is_file()}

    def killed(*given: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "audit", killed)
    assert cli.main(words) == 130
    monkeypatch.setattr(command, "audit", audit)
    labels = Path("audited/run/public/labels.npz").read_bytes()
    assert cli.main(words) == 0
    assert Path("audited/run/public/labels.npz").read_bytes() == labels
    printed = capsys.readouterr().out
    for file in Path("audited").rglob("*"):
        if (
            file.is_file()
            and file.suffix in (".txt", ".yaml", ".md")
            and "private" not in file.parts
        ):
            marked = (
                file.read_text().lstrip("# ").startswith("NOT PRIVATE") or file.name == "data.yaml"
            )
            assert marked or "epsilon" not in file.read_text(), file
    for statement in Path("audited").rglob("privacy.json"):
        assert json.loads(statement.read_text())["private"] is False
    assert "Nothing is refuted." in printed and printed.count("NOT PRIVATE") >= 3
    content = json.loads(Path("audited/audit.json").read_text())
    assert content["private"] is False and content["refuted"] is False
    assert {path: path.read_bytes() for path in before} == before
    assert {path.name for path in recipe.parent.iterdir()} == {"mine", "data", "audited"}
    assert cli.main([*words, "--seed", "1"]) == 2
    assert (
        "Expected the data and the canaries that the audit in audited was begun with"
        in capsys.readouterr().err
    )
    assert cli.main([*words, "--label.target_epsilon", "3"]) == 2
    error = capsys.readouterr().err
    assert (
        "target_epsilon=3.0 (was 2.0). Choose another folder with --output" in error
        and "--overwrite" not in error
    )
    assert Path("audited/run/public/labels.npz").read_bytes() == labels


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--canaries", "3"], "Expected a power of two of canaries, got canaries=3"),
        (
            ["--output=data"],
            "Expected a new folder, or the folder of an audit. Choose another folder with --output, got output='data'",
        ),
    ],
)
def test_bad_settings_leave_nothing_behind(
    words: list[str], message: str, recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["audit", "mine", "--output", "audited", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1
    assert not Path("audited").exists()
    assert {path.name for path in Path("data").iterdir()} == {"table.npz", "table.ledger.sqlite"}
