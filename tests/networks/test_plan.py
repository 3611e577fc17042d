"""The stages from Python: what the commands do, and leave."""

import shutil
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import pate
from models import MLP, Linear
from pate import cli
from pate.accounting import read_ledger
from pate.data import Arrays
from tests.labeling.commands.test_run import everything

# what `recipe` of the tests says
PLAN = pate.TeacherPlan(
    network=Linear,
    num_teachers=10,
    num_steps=20,
    batch_size=16,
    checkpoint_steps=5,
    chunk_size=4,
    optimizer=partial(torch.optim.Adam, lr=0.1),
)
ANSWERS = pate.StableTopK(scale_gap=1.0, sigma_test=0.5, delta_test=1e-6)
STUDENT = pate.StudentPlan(network=Linear)


@pytest.fixture(scope="module")
def made(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run made from Python like the finished one, with the same key and a ledger of its own; not
    to be written to."""
    place = tmp_path_factory.mktemp("made")
    root = place / "run"
    (root / "private").mkdir(parents=True)
    shutil.copy(finished / "private" / "partition.json", root / "private")
    plan = pate.RunPlan(
        root,
        Arrays(finished.parent / "data.npz"),
        teachers=PLAN,
        labels=pate.LabelSettings(ANSWERS, delta=0.001, num_queries=80, noise_seed=3),
        student=STUDENT,
        ledger=place / "ledger.sqlite",
    )
    plan.fit_teachers()
    plan.vote()
    plan.label()
    plan.fit_student()
    figures = plan.test_student()
    assert figures["student"]["macro_f1"] > figures["all_majority"]["macro_f1"] + 0.2
    return root


@pytest.mark.slow
def test_it_leaves_what_the_commands_leave(finished: Path, made: Path) -> None:
    first, second = everything(finished), everything(made)
    assert second.keys() == first.keys()
    for name in (
        "public/labels.npz",
        "public/student/metrics.json",
        "public/label.yaml",
        "public/student_fit.yaml",
        "private/teachers/chunk_size.json",
        "private/votes/votes_00004.npy",
        "private/teachers_vote.yaml",
    ):
        assert second[name] == first[name], name
    ledgers = finished.parent / "data.ledger.sqlite", made.parent / "ledger.sqlite"
    books = [read_ledger(place).entries for place in ledgers]
    told = [
        [(each.count, each.events, each.description, each.seeded, each.settled) for each in book]
        for book in books
    ]
    assert told[0] == told[1]


def test_labels_that_were_interrupted_are_paid_for_once(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    settings = pate.LabelSettings(ANSWERS, delta=0.001, num_queries=10)
    plan = pate.RunPlan(copied, labels=settings, overwrite=True)
    with monkeypatch.context() as patch:
        patch.setattr("pate._labeling.plan.rehearse", lambda *_, **__: None)
        patch.setattr(pate.ReleasedLabels, "save", interrupt)
        with pytest.raises(KeyboardInterrupt):
            plan.label()
    assert not (copied / ".lock").exists()
    assert len(read_ledger(copied / "ledger.sqlite").entries) == 2
    first = plan.label()
    assert len(read_ledger(copied / "ledger.sqlite").entries) == 2
    assert (
        first.labels
        == pate.RunPlan(copied, labels=pate.LabelSettings(ANSWERS, delta=0.001, num_queries=10))
        .label()
        .labels
    ).all()


@pytest.mark.slow
def test_data_beside_the_program_are_found_from_any_folder(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path means the same file later, as it does for the command."""
    monkeypatch.chdir(finished.parent)
    pate.RunPlan(
        tmp_path / "run",
        Arrays(Path("data.npz")),
        teachers=PLAN,
        ledger=tmp_path / "ledger.sqlite",
    ).fit_teachers()
    assert f"path: {finished.parent / 'data.npz'}" in (tmp_path / "run" / "data.yaml").read_text()
    monkeypatch.chdir(tmp_path)
    words = [f"--config={finished.parent}/recipe/{part}.yaml" for part in ("data", "teachers")]
    words += [f"--ledger={tmp_path}/ledger.sqlite", "--run", str(tmp_path / "run")]
    assert cli.main(["teachers", "fit", *words]) == 0
    pate.RunPlan(tmp_path / "run").vote()


def test_absent_teachers_are_kept_from_the_first_call(copied: Path) -> None:
    pate.RunPlan(copied, absent=[2], overwrite=True).vote()
    before = everything(copied / "private" / "votes")
    pate.RunPlan(copied).vote()
    assert everything(copied / "private" / "votes") == before
    with pytest.raises(ValueError, match="absent"):
        pate.RunPlan(copied, absent=[3]).vote()


def test_a_student_has_its_schedule_and_callbacks() -> None:
    from pytorch_lightning.callbacks import EarlyStopping

    plan = pate.StudentPlan(
        network=MLP,
        scheduler=partial(torch.optim.lr_scheduler.StepLR, step_size=3),
        model={"pseudo_confidence": 0.9},
        trainer={"callbacks": [partial(EarlyStopping, monitor="val_loss")]},
    )
    content = plan.configuration()
    assert content["model"]["scheduler"]["init_args"]["step_size"] == 3
    assert content["model"]["pseudo_confidence"] == 0.9
    assert content["trainer"]["callbacks"][0]["init_args"] == {"monitor": "val_loss"}


@pytest.mark.slow
def test_a_program_keeps_its_own_state(copied: Path) -> None:
    """Threads, random numbers, warnings and the lock are as they were."""
    torch.set_num_threads(2)
    torch.manual_seed(5)
    np.random.seed(5)
    filters = list(warnings.filters)
    expected = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index]
    try:
        plan = pate.RunPlan(
            copied,
            absent=[1],
            labels=pate.LabelSettings(ANSWERS, delta=0.001, num_queries=60, noise_seed=3),
            student=STUDENT,
            overwrite=True,
        )
        plan.vote()
        plan.label()
        plan.fit_student()
        plan.test_student()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert torch.equal(torch.random.get_rng_state(), expected[0])
    assert (np.random.get_state()[1] == expected[1]).all()  # type: ignore[index]
    assert warnings.filters == filters
    assert not (copied / ".lock").exists()
