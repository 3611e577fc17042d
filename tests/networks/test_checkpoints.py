"""Checkpoints are written where they belong, and tell nothing of the machine."""

import shutil
from pathlib import Path

import pytest
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

from pate._networks.training import LocalCheckpoints


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
