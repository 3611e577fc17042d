"""Networks of one's own, of Lightning and torchvision: from files to ONNX, by command and in Python."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import yaml
from torch import Tensor, nn

import pate
from pate import ClosedFormPlan, LabelSettings, RunPlan, StudentPlan, cli
from pate.accounting import read_ledger
from pate.data import Arrays
from pate.student import Student, masked_loss
from tests.conftest import make_arrays, recipe

HERE = "tests.networks.student.test_own_networks"
SHAPE = (3, 32, 32)
EPOCHS = 3
TRAINER: dict[str, Any] = {
    "max_epochs": EPOCHS,
    "accelerator": "cpu",
    "enable_progress_bar": False,
}


class Cnn(nn.Sequential):
    def __init__(self, num_classes: int, width: int = 4) -> None:
        last = nn.Linear(width, num_classes)
        super().__init__(nn.Conv2d(3, width, 3, 4), nn.AvgPool2d(8), nn.Flatten(), last)


class Own(pl.LightningModule):
    """A student of one's own, with its loss, optimizer, figures and hooks."""

    def __init__(self, num_classes: int, width: int = 4) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.network = Cnn(num_classes, width)
        self.epochs = 0

    def forward(self, pictures: Tensor) -> Tensor:
        return self.network(pictures)

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        pictures, answers, mask = batch
        loss = masked_loss(self(pictures), answers, mask)
        self.log("own_loss", loss)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor, Tensor], batch_idx: int) -> None:
        self.log("val_loss", torch.tensor(0.25))

    def on_train_epoch_end(self) -> None:
        self.epochs += 1

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.0)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


class Reads(Own):
    """A student that reads its trainer, settings and logger, and logs by its experiment."""

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        self.logger.experiment.log_metrics({"seen": 1.0})  # type: ignore[union-attr]
        assert Path(self.logger.log_dir).is_absolute()  # type: ignore[union-attr,arg-type]
        return super().training_step(batch)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1 / self.hparams["width"])
        epochs = self.trainer.max_epochs
        if epochs != EPOCHS:
            raise ValueError(f"{epochs} epochs")
        return [optimizer], [torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, epochs + 1)]


class Still(Own):
    """A student that learns nothing."""

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=0.0)


class Draws(Own):
    """A student that logs what the logger of a run has no place for."""

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        self.logger.experiment.add_image("seen", batch[0][0])  # type: ignore[union-attr]
        return super().training_step(batch)


def write(folder: Path) -> Path:
    """Write a recipe whose records are pictures."""
    arrays: dict[str, Any] = make_arrays(120)
    drawn = np.random.default_rng(0).standard_normal((6, *SHAPE)).astype(np.float32)
    np.savez(folder / "data.npz", **arrays | {"X": np.tensordot(arrays["X"], drawn, 1)})
    made = recipe(folder / "recipe", folder / "data.npz")
    (made / "label.yaml").write_text("target_epsilon: 1000\nnum_queries: 20\ndelta: 0.001\n")
    return made


def by_command(folder: Path, network: Any, *words: str) -> int:
    content = {"model": {"network": network}, "data": {"batch_size": 8}, "trainer": TRAINER}
    (write(folder) / "student.yaml").write_text(yaml.safe_dump(content))
    return cli.main(["run", str(folder / "recipe"), f"--run={folder / 'run'}", *words])


def require_program(folder: Path, *more: str) -> None:
    """Predict by command, and export a program that answers as the student does."""
    import onnxruntime

    model, answers, program = (folder / name for name in ("run", "answers.npz", "student.onnx"))
    source = str(folder / "data.npz")
    assert cli.main(["predict", str(model), source, f"--output={answers}", *more]) == 0
    model = model / "public" / "student" / "model"
    words = ["export", str(model), "--format=onnx", f"--output={program}", *more]
    assert cli.main(words) == 0
    with np.load(source) as data, np.load(answers) as predicted:
        session = onnxruntime.InferenceSession(program)
        probabilities, labels = session.run(None, {"features": data["X"].astype(np.float32)})
        np.testing.assert_allclose(probabilities, predicted["probabilities"], atol=1e-4)
        assert (labels == predicted["labels"]).mean() > 0.99


OWN = {"class_path": f"{HERE}.Own", "init_args": {"width": 8}}
NETWORKS: dict[str, tuple[Any, Any]] = {
    "a LightningModule": (OWN, partial(Own, width=8)),
    "a CNN": ({"class_path": f"{HERE}.Cnn", "init_args": {"width": 8}}, partial(Cnn, width=8)),
    "a ResNet": ("torchvision.models.resnet18", None),
    "a transformer": ("scripts.hugging_face.Picture", None),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_goes_from_a_file_to_onnx(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    network, make = NETWORKS[name]
    if make is None:
        package, _, word = network.rpartition(".")
        pytest.importorskip("transformers" if "scripts" in package else "torchvision")
        make = getattr(pytest.importorskip(package), word)
    assert by_command(tmp_path, network) == 0
    trust = [] if name == "a ResNet" else ["--trust"]
    require_program(tmp_path, *trust)
    with np.load(tmp_path / "answers.npz") as answers:
        by_file = answers["probabilities"]
    plan = RunPlan(
        tmp_path / "python",
        Arrays(tmp_path / "data.npz"),
        teachers=ClosedFormPlan(),
        labels=LabelSettings(target_epsilon=1000.0, delta=0.001, num_queries=20),
        student=StudentPlan(network=make, data={"batch_size": 8}, trainer=TRAINER),
    )
    plan.execute()
    student = pate.load_student(tmp_path / "python", trust=bool(trust))
    with np.load(tmp_path / "data.npz") as data:
        assert student.predict_proba(data["X"].astype(np.float32)).shape == by_file.shape
    assert np.isfinite(by_file).all()


def student(**settings: Any) -> Student:
    network: Any = Own
    return Student(network, input_shape=SHAPE, label_names=("a", "b"), **settings)


def test_a_module_trains_by_its_own_steps(tmp_path: Path) -> None:
    """Its optimizer, loss, figures and hooks are called, and its val_loss selects the student."""
    batches = [(torch.rand(4, *SHAPE), torch.ones(4, 2), torch.ones(4, 2))] * 3
    made = student()
    network: Any = made.network
    trainer = pl.Trainer(
        default_root_dir=tmp_path,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        **TRAINER | {"max_epochs": 2},
    )
    before = {name: value.clone() for name, value in network.state_dict().items()}
    loader: Any = torch.utils.data.DataLoader(batches, batch_size=None)  # type: ignore[arg-type]
    trainer.fit(made, loader, loader)
    assert isinstance(trainer.optimizers[0], torch.optim.SGD) and network.epochs == 2
    assert {"own_loss", "val_loss"} <= trainer.callback_metrics.keys()
    assert trainer.callback_metrics["val_loss"] == 0.25  # and not the mean with another
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_a_maker_that_a_module_would_not_read_is_refused() -> None:
    for maker in ("optimizer", "scheduler"):
        with pytest.raises(
            ValueError, match=r"no optimizer or scheduler: Own.configure_optimizers"
        ):
            student(**{maker: torch.optim.Adam})


@pytest.mark.parametrize(
    ("name", "logger", "refusal"),
    [
        ("Reads", True, ""),
        ("Reads", {"class_path": "CSVLogger"}, ""),
        pytest.param("Draws", {"class_path": "TensorBoardLogger"}, "", marks=pytest.mark.slow),
        ("Still", True, "a student whose weights change in 3 steps (its learning rate"),
        ("Draws", True, "`pate student fit` to finish on made-up records, got AttributeError"),
    ],
)
def test_a_module_is_rehearsed_with_its_trainer_and_logger(
    name: str, logger: Any, refusal: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = f"--student.trainer.logger={json.dumps(logger)}"
    assert by_command(tmp_path, f"{HERE}.{name}", "--dry_run", settings) == (2 if refusal else 0)
    assert refusal in capsys.readouterr().err
    assert not any(read_ledger(path).entries for path in tmp_path.rglob("*.sqlite"))
