"""`pate student` as a command: checkpoints by name, one file of curves, one bar in a terminal and
none elsewhere."""

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import pate
from models import Linear
from pate import cli
from pate._networks.student.training import Curves
from tests.conftest import copy_run
from tests.labeling.commands.test_run import everything
from tests.networks.conftest import DESCENT

Captured = pytest.CaptureFixture[str]


def fit(root: Path, *more: str) -> int:
    settings = root / "descent.yaml"
    settings.write_text(DESCENT)
    words = ["--config", str(settings), "--run", str(root), "--overwrite"]
    options = ["--trainer.max_epochs=4", "--trainer.enable_progress_bar=null", *more]
    return cli.main(["student", "fit", *words, *options])


@pytest.fixture(scope="module")
def descended(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose student was trained by descent; not to be written to."""
    root = copy_run(finished, tmp_path_factory.mktemp("descended") / "run")
    assert fit(root, "--data.val_fraction=0", "--trainer.max_epochs=1") == 0
    assert cli.main(["student", "test", "--run", str(root), "--verbose=false"]) == 0
    return root


@pytest.fixture
def network(descended: Path, tmp_path: Path) -> Path:
    """A copy of that run that a test may write to."""
    return copy_run(descended, tmp_path / "network")


@pytest.mark.slow
def test_files_of_a_network_name_no_place(descended: Path, finished: Path) -> None:
    files = [path for path in (descended / "public").rglob("*") if path.is_file()]
    assert {"last.ckpt", "hparams.yaml", "model.json"} <= {path.name for path in files}
    places = [str(root.parent).encode() for root in (descended, finished)]
    assert not [path for path in files if any(place in path.read_bytes() for place in places)]


def rows(root: Path) -> list[dict[str, str]]:
    with (root / "public" / "student" / "logs" / "version_0" / "metrics.csv").open(
        newline=""
    ) as file:
        return [
            {name: value for name, value in row.items() if value} for row in csv.DictReader(file)
        ]


@pytest.mark.slow
def test_training_that_goes_on_continues_its_curves(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, cut = copy_run(finished, tmp_path / "whole"), copy_run(finished, tmp_path / "cut")
    assert fit(whole) == 0
    # a student that was finished would be put back
    shutil.rmtree(cut / "public" / "student")
    (cut / "private" / "student_fit.json").unlink()

    # killed between the last checkpoint and the row that follows, in the middle of a write
    log = Curves.log_metrics

    def cut_row(self: Curves, metrics: dict[str, Any], step: int | None = None) -> None:
        if metrics["epoch"] == 1 and "train_loss" in metrics:
            raise RuntimeError("cut")
        log(self, metrics, step)

    with monkeypatch.context() as patched:
        patched.setattr(Curves, "log_metrics", cut_row)
        with pytest.raises(RuntimeError, match="cut"):
            fit(cut)
    folder = cut / "public" / "student"
    curves = folder / "logs" / "version_0" / "metrics.csv"
    assert (folder / "last.ckpt").is_file() and len(rows(cut)) == 3
    curves.write_bytes(curves.read_bytes()[:-5])
    assert fit(cut) == 0
    assert [path.name for path in (folder / "logs").iterdir()] == ["version_0"]
    assert rows(cut) == rows(whole) and len(rows(cut)) == 8
    # begun anew, it has no rows of what was before
    assert fit(cut, "--trainer.max_epochs=1") == 0
    assert rows(cut) == rows(whole)[:2]


class Evil:
    """What a pickle does when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


@pytest.mark.parametrize(
    ("command", "name"),
    [("fit", "last"), pytest.param("fit", "path", marks=pytest.mark.slow), ("test", "path")],
)
def test_a_checkpoint_is_data(
    command: str, name: str, network: Path, tmp_path: Path, capsys: Captured
) -> None:
    """It is read by torch's reader of tensors, here and by Lightning, also one that is named or
    gone on from."""
    marker, folder = tmp_path / "marker", network / "public" / "student"
    content = torch.load(folder / "last.ckpt", weights_only=True)
    other = folder / "last.ckpt" if name == "last" else tmp_path / "other.ckpt"
    torch.save(content | {"callbacks": {"evil": Evil(marker)}}, other)
    if command == "fit":
        state = network / "private" / "student_fit.json"
        state.write_text(state.read_text().replace('"finished": true', '"finished": false'))
    words = ["--config", str(network / "public" / "student_fit.yaml")] if command == "fit" else []
    words = [*words, "--run", str(network), f"--ckpt_path={'last' if name == 'last' else other}"]
    try:
        code: object = cli.main(["student", command, *words])
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2 and not marker.exists()
    assert "tensors, numbers and texts alone" in capsys.readouterr().err
    torch.load(other, weights_only=False)
    assert marker.exists()


@pytest.mark.slow
def test_a_student_of_earlier_labels_is_not_taken_for_one_of_these(
    copied: Path, capsys: Captured
) -> None:
    """After ``label --overwrite`` no command prints the figures of the old student."""
    words = [
        "label",
        f"--config={copied}/public/label.yaml",
        "--noise_seed=9",
        "--overwrite",
        f"--run={copied}",
    ]
    assert cli.main(words) == 0
    capsys.readouterr()
    assert cli.main(["student", "test", f"--run={copied}"]) == 2
    line = capsys.readouterr().err
    assert "Expected a student of the labels in" in line and len(line.splitlines()) == 1
    with pytest.raises(ValueError, match="of earlier labels"):
        pate.RunPlan(copied).test_student()


class FailsLater(Linear):
    """Works when it is tried, and fails when it is trained."""

    def forward(self, features: Any) -> Any:
        if self.training and features.requires_grad is False and len(features) > 1:
            raise ValueError("Expected memory for a batch, got none")
        return super().forward(features)  # type: ignore[no-untyped-call]


@pytest.mark.slow
def test_the_old_student_stays_until_the_new_one_works(copied: Path, capsys: Captured) -> None:
    before = everything(copied)
    words = [f"--run={copied}", "--overwrite", "--trainer.accelerator=cpu"]
    network = "--model.network=tests.networks.student.test_by_command.FailsLater"
    assert cli.main(["student", "fit", *words, network]) == 2
    assert "memory for a batch" in capsys.readouterr().err
    assert everything(copied) == before
    assert cli.main(["student", "test", f"--run={copied}"]) == 0


@pytest.mark.slow
def test_a_student_that_diverged_is_refused(
    finished: Path, tmp_path: Path, capsys: Captured
) -> None:
    """Before it is published: it had NaN for weights, and the labels of no sample."""
    root = copy_run(finished, tmp_path / "run")
    before = everything(root / "public" / "student")
    assert fit(root, "--model.optimizer.init_args.lr=1e30", "--trainer.max_epochs=2") == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and "Expected a student of finite weights" in error
    assert everything(root / "public" / "student") == before
