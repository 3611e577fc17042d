"""A run as one plan: its releases with their prices, its one source, and a finished run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate import ClosedFormPlan, LabelSettings, RunPlan, StudentPlan
from pate._labeling.data.records import Records, Role
from pate._labeling.runs.run import Run
from pate._labeling.runs.vote_store import load_voters
from pate._labeling.stages.teachers import load_plan
from pate._labeling.stages.votes_import import votes_from
from pate.accounting import read_ledger
from pate.aggregators import ScoreVotes, StableTopK
from pate.data import Arrays, PublicScaling
from tests.conftest import made_votes, make_arrays

LABELS = LabelSettings(delta=1e-4, target_epsilon=3.0, noise_seed=1)
STUDENT = StudentPlan()


@pytest.fixture
def data(tmp_path: Path) -> Arrays:
    np.savez(tmp_path / "data.npz", **make_arrays())  # type: ignore[arg-type]
    return Arrays(tmp_path / "data.npz", features=PublicScaling())


def plan_of(root: Path, data: Any, **settings: Any) -> RunPlan:
    asked: dict[str, Any] = {"teachers": ClosedFormPlan(), "labels": LABELS, "student": STUDENT}
    return RunPlan(root, data, **(asked | settings))


def test_the_releases_that_are_planned_are_those_that_are_paid(
    data: Arrays, tmp_path: Path
) -> None:
    """In their order: a first release, the labels."""
    teachers = ClosedFormPlan(start_from="first", num_teachers=40)
    plan = plan_of(tmp_path / "run", data, teachers=teachers)
    planned = plan.releases
    assert [each.is_paid for each in planned] == [False] * 2
    plan.check()
    assert not (tmp_path / "run").exists()
    said: list[str] = []
    plan.execute(said.append)
    paid = [(entry.events, entry.count) for entry in read_ledger(plan.run.ledger_path).entries]
    assert paid == [each.charge for each in planned]
    assert said[:2] == ["[0/5] first release", "[1/5] teachers fit"]
    again = plan_of(tmp_path / "run", data, teachers=teachers)
    assert [each.is_paid for each in again.releases] == [True] * 2
    assert [each.charge for each in again.releases] == paid


def test_a_finished_run_maps_no_private_record(
    data: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "run"
    plan_of(root, data).execute()
    before = (root / "public" / "labels.npz").read_bytes()

    records = Arrays.records

    def public_or_test(source: Arrays, role: Role) -> Records:
        assert role is not Role.PRIVATE
        return records(source, role)

    monkeypatch.setattr(Arrays, "records", public_or_test)
    again = plan_of(root, Arrays(data.path, features=PublicScaling()))
    again.execute()
    assert (root / "public" / "labels.npz").read_bytes() == before


def test_a_finished_run_refuses_other_records(data: Arrays, tmp_path: Path) -> None:
    root = tmp_path / "run"
    plan_of(root, data).execute()
    arrays = make_arrays()
    arrays["X"][0] += 1
    np.savez(tmp_path / "data.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="other private records"):
        plan_of(root, Arrays(data.path, features=PublicScaling())).execute()


def test_a_plan_of_later_stages_continues_what_another_began(data: Arrays, tmp_path: Path) -> None:
    """And finds nothing left to do."""
    plan = plan_of(tmp_path / "run", data)
    labels = plan.execute()
    later = RunPlan(tmp_path / "run", labels=LABELS, student=STUDENT)
    assert load_plan(plan.run) == plan.teachers
    assert (later.label().labels == labels.labels).all()
    later.fit_student()
    assert len(read_ledger(plan.run.ledger_path).entries) == 1


def test_a_plan_that_cannot_be_paid_is_refused_before_anything_is_written(
    data: Arrays, tmp_path: Path
) -> None:
    labels = LabelSettings(ScoreVotes(multiplier_scores=1.0), delta=1e-4, max_epsilon=0.1)
    with pytest.raises(ValueError, match="Expected"):
        plan_of(tmp_path / "run", data, labels=labels).check()
    assert not (tmp_path / "run").exists()


def test_only_records_that_vote_tell_how_they_are_shifted(data: Arrays, tmp_path: Path) -> None:
    shifted = Arrays(data.path, features=PublicScaling(), shifted=True)
    teachers = ClosedFormPlan(start_from="first", num_teachers=40)
    with pytest.raises(ValueError, match="for data that are shifted, got votes="):
        plan_of(tmp_path / "run", shifted, teachers=teachers).check()
    plan_of(tmp_path / "run", shifted).execute()
    assert load_voters(Run(tmp_path / "run")).shifted
    plan_of(tmp_path / "other", data).execute()
    assert not load_voters(Run(tmp_path / "other")).shifted


def test_a_run_without_an_answer_says_what_is_spent_and_what_helps(
    data: Arrays, tmp_path: Path
) -> None:
    """Half of the teachers give each label: no gap is wide. The labels alone are no error."""
    votes = made_votes(20)
    assert votes.ballots is not None
    split = np.broadcast_to(np.arange(20)[:, None] % 2, votes.ballots.shape).astype(np.uint8)
    plan = RunPlan(
        tmp_path / "run",
        data,
        imported=votes_from(replace(votes, ballots=split)),
        labels=LabelSettings(
            StableTopK(scale_gap=1.0, sigma_test=0.5, delta_test=1e-6),
            delta=1e-3,
            num_queries=80,
            noise_seed=1,
        ),
        student=STUDENT,
    )
    with pytest.raises(
        ValueError, match=r"student to learn .* None of 80 .* spent\. Fewer queries"
    ):
        plan.execute()
    (line,) = plan.label().advice
    assert line.startswith("None of 80 queries was answered, and epsilon = ")
    assert len(read_ledger(plan.run.ledger_path).entries) == 1
