"""The stages from Python: what the commands do, and leave."""

import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

import pate
from models import Linear
from pate._networks.teachers.executors import LocalCheckpoints
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


def test_labels_that_were_interrupted_are_paid_for_once(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    settings = pate.LabelSettings(ANSWERS, delta=0.001, num_queries=10, allow_few=True)
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
    assert (first.labels == pate.RunPlan(copied, labels=settings).label().labels).all()


def test_absent_teachers_are_kept_from_the_first_call(copied: Path) -> None:
    pate.RunPlan(copied, absent=[2], overwrite=True).vote()
    before = everything(copied / "private" / "votes")
    pate.RunPlan(copied).vote()
    assert everything(copied / "private" / "votes") == before
    with pytest.raises(ValueError, match="absent"):
        pate.RunPlan(copied, absent=[3]).vote()


@pytest.fixture
def no_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("a file in the system's temporary folder")

    monkeypatch.setattr("tempfile.mkstemp", refuse)


def state(folder: Path) -> dict[str, object]:
    """What a callback of Lightning remembers of its checkpoints."""
    callback = ModelCheckpoint(folder, monitor="loss")
    callback.best_model_path = callback.kth_best_model_path = str(folder / "best.ckpt")
    callback.best_k_models = {str(folder / "best.ckpt"): torch.tensor(0.5)}
    return callback.state_dict()


@pytest.mark.usefixtures("no_temporary_files")
def test_a_checkpoint_moves_with_its_folder(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    file = before / "last.ckpt"
    LocalCheckpoints().save_checkpoint(
        {"callbacks": {"kept": state(before), "other": {}}, "epoch": 3}, file
    )
    assert str(tmp_path).encode() not in file.read_bytes()
    assert [path.name for path in before.iterdir()] == ["last.ckpt"]
    shutil.move(before, after)
    content = LocalCheckpoints().load_checkpoint(after / "last.ckpt", weights_only=True)
    assert content == {"callbacks": {"kept": state(after), "other": {}}, "epoch": 3}
