"""`pate student` as a command: checkpoints by name, loggers by name, one bar in a terminal and
none elsewhere."""

import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from pytorch_lightning import Callback
from pytorch_lightning.loggers import CSVLogger

from pate import cli
from pate._labeling.commands.check import unexpected_public_files
from pate._labeling.runs.run import Run
from tests.conftest import copy_run
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
    assert cli.main(["student", "test", "--run", str(root)]) == 0
    return root


@pytest.fixture
def network(descended: Path, tmp_path: Path) -> Path:
    """A copy of that run that a test may write to."""
    return copy_run(descended, tmp_path / "network")


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


def test_a_student_is_made_again_by_what_changes(network: Path, capsys: Captured) -> None:
    """The network and all other settings are those of the run, and no table of layers is shown."""
    file, words = network / "public" / "student_fit.yaml", ["student", "fit", "--run", str(network)]
    before = yaml.safe_load(file.read_text())
    assert cli.main([*words, "--ckpt_path=last"]) == 0
    assert "finished" in capsys.readouterr().out
    changed = ["--trainer.max_epochs", "2", "--seed_everything", "5", "--overwrite"]
    assert cli.main([*words, *changed]) == 0
    after = yaml.safe_load(file.read_text())
    assert after["trainer"].pop("max_epochs") == 2 and before["trainer"].pop("max_epochs") == 1
    assert after.pop("seed_everything") == 5 and before.pop("seed_everything") == 0
    assert after == before and "MLP" in str(before["model"]["network"])
    shown = capsys.readouterr()
    assert "params" not in (shown.out + shown.err).lower()


class Failing(Callback):
    """A callback whose first epoch fails, as long as it is told to."""

    fails = True

    def on_train_epoch_start(self, *_: Any) -> None:
        if Failing.fails:
            raise RuntimeError("no\nroom")


class FailingLogger(CSVLogger):
    """A logger of the same kind."""

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        if Failing.fails:
            raise KeyError("no\nroom")


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("callbacks+=Failing", "Failing.on_train_epoch_start (RuntimeError: no room)"),
        ("logger=FailingLogger", "FailingLogger.log_metrics (KeyError: 'no\\nroom')"),
    ],
)
def test_a_part_of_yours_that_fails_is_named_with_the_command_that_goes_on(
    part: str, said: str, network: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    option = f"--trainer.{part.replace('=', f'={__name__}.')}"
    more = ["--trainer.logger.save_dir=logs"] if "logger" in part else []
    place = ["--run", str(network), "--overwrite"]
    assert cli.main(["student", "fit", *place, option, *more]) == 2
    (line,) = [each for each in capsys.readouterr().err.splitlines() if "Expected" in each]
    assert f"got {said}. The labels are in {network / 'public' / 'labels.npz'}; `" in line
    monkeypatch.setattr(Failing, "fails", False)
    assert cli.main(shlex.split(line.split("`")[1])[1:]) == 0


@pytest.mark.parametrize("name", ["TensorBoardLogger", "CSVLogger", "MLFlowLogger", "WandbLogger"])
def test_loggers_by_their_names_write_where_nothing_is_published(
    name: str, network: Path, capsys: Captured
) -> None:
    """Wandb sends nothing unless it is asked to. One line names a package that is missing."""
    package = {"MLFlowLogger": "mlflow", "WandbLogger": "wandb", "TensorBoardLogger": "tensorboard"}
    code = fit(network, f"--trainer.logger={name}", "--trainer.max_epochs=1")
    if name in package and find_spec(package[name]) is None:
        error = capsys.readouterr().err
        assert code == 2 and len(error.splitlines()) == 1
        assert f"the package that {name} needs" in error and package[name] in error
        return
    settings = yaml.safe_load((network / "public" / "student_fit.yaml").read_text())
    (used,) = [settings["trainer"]["logger"]]
    assert code == 0 and used["init_args"]["save_dir"] is None
    assert used["init_args"].get("offline", True)
    assert [*(network / "private" / "student").glob("*logs*/**/*")]
    assert not [*unexpected_public_files(Run(network))]
