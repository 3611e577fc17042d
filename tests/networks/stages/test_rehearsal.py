"""A run is rehearsed on made-up records: whatever can fail fails before anything is reserved."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pate import ClosedFormPlan, LabelSettings, NamedVotes, RunPlan, cli
from pate._labeling.stages.rehearsal import MadeUp
from pate._labeling.stages.votes_import import votes_from
from pate.accounting import read_ledger
from pate.aggregators import NoisyVotes, Release
from pate.data import Arrays, PublicPCA, Records, Role
from tests.conftest import make_arrays
from tests.networks.conftest import recipe

HERE = "tests.networks.stages.test_rehearsal"
FIRST = """network: models.Linear
num_teachers: 40
num_steps: 2
batch_size: 8
chunk_size: 2
accelerator: cpu
start_from: first
optimizer: {class_path: Adam, init_args: {lr: 0.1}}
"""
"""Networks that start from a release, so that something is paid before they are trained."""
LABEL = "aggregator: StableTopK\ntarget_epsilon: 30\ndelta: 1.0e-4\nnum_queries: 40\n"


class Net(nn.Module):
    """A network whose logits a subclass spoils."""

    def __init__(self, shape: tuple[int, ...], num_labels: int) -> None:
        super().__init__()
        self.layer = nn.Linear(shape[0], num_labels)

    def forward(self, features: torch.Tensor) -> Any:
        return self.spoilt(self.layer(features))

    def spoilt(self, logits: torch.Tensor) -> Any:
        return logits


class Sigmoid(Net):
    def spoilt(self, logits: torch.Tensor) -> Any:
        return logits.sigmoid()


class FailsInTraining(Net):
    def spoilt(self, logits: torch.Tensor) -> Any:
        if self.training:
            raise KeyError("a batch")
        return logits


class FailsToAnswer(NoisyVotes):
    def aggregate(self, votes: Any, *, generator: np.random.Generator) -> Release:
        raise RuntimeError("no answer")


class AnswersOneLabel(NoisyVotes):
    def aggregate(self, votes: Any, *, generator: np.random.Generator) -> Release:
        release = super().aggregate(votes, generator=generator)
        return Release.of_rows(release.labels[:, :1] > 0, np.ones(len(release.labels), np.bool_))


class FailsToSettle(NoisyVotes):
    """Fails where nothing but the settlement of a release looks."""

    def aggregate(self, votes: Any, *, generator: np.random.Generator) -> Release:
        release = super().aggregate(votes, generator=generator)
        return release._replace(noisy_counts=np.full(release.labels.shape, "x"))


@dataclass(frozen=True)
class Way:
    """A way in which a run fails.

    Attributes:
        message: a part of the line that it ends with.
        words: options of `pate run`.
        files: files of the recipe with another content.
        arrays: arrays of the data that are others; None for arrays that are missing.
    """

    message: str
    words: tuple[str, ...] = ()
    files: dict[str, str] | None = None
    arrays: dict[str, Any] | None = None


def of(stage: str, message: str, *settings: str) -> Way:
    return Way(message, tuple(f"--{stage}.{setting}" for setting in settings))


def teachers(message: str, *settings: str) -> Way:
    return of("teachers", message, *settings)


def label(message: str, *settings: str) -> Way:
    return of("label", message, *settings)


def student(message: str, *settings: str) -> Way:
    return of("student", message, "model.network=models.MLP", "trainer.accelerator=cpu", *settings)


def data(message: str, **arrays: Any) -> Way:
    return Way(message, arrays=arrays)


LABELS, CLOSED = make_arrays()["Y"], "fit: closed_form\n"
OWN = f"{{class_path: {HERE}.%s, init_args: {{sigma_votes: 3.0}}}}"
WAYS: dict[str, Way] = {
    # records
    "features that are NaN": data("finite features", X=np.full((600, 6), np.nan)),
    "rows in two roles": data(
        "public samples that are no private records: they are published (copies=True says that",
        X=make_arrays()["X"][np.r_[:400, :100, 500:600]],
    ),
    # teachers
    "a sigmoid": teachers("from the network Sigmoid, of both signs", f"network={HERE}.Sigmoid"),
    "a fault in training": teachers("got KeyError", f"network={HERE}.FailsInTraining"),
    "a schedule that looks": teachers(
        "looks at no loss", "scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau"
    ),
    "a release that is not there": teachers("student fit", "start_from=gone"),
    # labels
    "a target above the budget": label("max_epsilon", "max_epsilon=3"),
    "scores for sets": Way("which", ("--votes=scores",)),
    "no answer": label(
        "FailsToAnswer to answer made-up votes", f"aggregator={OWN % 'FailsToAnswer'}"
    ),
    "answers of one label": label("4 labels", f"aggregator={OWN % 'AnswersOneLabel'}"),
    "counts in words": label("Expected", f"aggregator={OWN % 'FailsToSettle'}"),
    # the student
    "a student that fails in training": student(
        "`pate student fit` to finish on made-up records, got KeyError",
        f"model.network={HERE}.FailsInTraining",
    ),
    "a rate of the student that overflows": student(
        "finite weights (a smaller learning rate",
        "model.optimizer={class_path: AdamW, init_args: {lr: 1e30}}",
    ),
    "a rate of the student that is far too large": student(
        "whose outputs stay small in 3 steps (a smaller learning rate)",
        "model.optimizer={class_path: SGD, init_args: {lr: 1e12}}",
    ),
    "cuts by no samples": student(
        "--data.val_fraction > 0", "data.val_fraction=0", "optimize=macro_f1"
    ),
    "no epochs": student(
        "a trainer that leaves a student with figures, got max_epochs=0", "trainer.max_epochs=0"
    ),
    "several processes": student("ddp_spawn", "trainer.devices=2"),
    "a metric to monitor": student(
        "did you mean val_loss?",
        "trainer.callbacks=[{class_path: EarlyStopping, init_args: {monitor: val_los}}]",
    ),
    # files and places
    "the folder of the recipe": Way(
        "a folder of a run, or a new one: choose another with --run", ("--run=recipe",)
    ),
    "a ledger of other bytes": Way("", ("--ledger=data.npz",)),
    "a setting twice": Way(
        "settings of YAML in recipe/label.yaml that occur once, got twice=['delta']",
        files={"label.yaml": LABEL + "delta: 1.0e-3\n"},
    ),
}


FAST = ("rows in two roles", "a target above the budget", "a student that fails in training")


def place(folder: Path, way: Way) -> Path:
    """Write data and a recipe of two releases, with the faults of a way."""
    arrays = make_arrays() | (way.arrays or {})
    np.savez(folder / "data.npz", **{name: a for name, a in arrays.items() if a is not None})
    made = recipe(folder / "recipe", folder / "data.npz")
    files = {"teachers.yaml": FIRST, "label.yaml": LABEL} | (way.files or {})
    for name, text in files.items():
        (made / name).write_text(text)
    return made


def run(*words: str) -> object:
    try:
        return cli.main(["run", "recipe", "--run=run", *words])
    except SystemExit as stopped:
        return stopped.code


def reserved(folder: Path) -> int:
    """Return the number of releases that any ledger below a folder holds."""
    return sum(len(read_ledger(path).entries) for path in folder.rglob("*.sqlite"))


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(way, id=name, marks=() if name in FAST else pytest.mark.slow)
        for name, way in WAYS.items()
    ],
)
def test_whatever_fails_fails_before_anything_is_reserved(
    way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    place(tmp_path, way)
    assert run(*way.words) == 2
    captured = capsys.readouterr()
    assert way.message in captured.err and "Traceback" not in captured.err
    assert "[0/" not in captured.out and "[1/" not in captured.out
    assert reserved(tmp_path) == 0
    assert not (tmp_path / "run").exists()


class Closed(Arrays):
    """A source whose private records may not be read."""

    def load(self, role: Role) -> Records:
        assert role is not Role.PRIVATE, "private records were read"
        return super().load(role)


def source(folder: Path) -> Closed:
    np.savez(folder / "data.npz", **make_arrays())  # type: ignore[arg-type]
    return Closed(folder / "data.npz")


TARGET = LabelSettings(delta=1e-5, target_epsilon=4.0)


def test_nothing_private_is_read_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    closed = source(tmp_path)
    with pytest.raises(AssertionError, match="private records were read"):
        closed.load(Role.PRIVATE)
    for plan in (ClosedFormPlan(), ClosedFormPlan(num_teachers=20)):
        RunPlan(tmp_path / "run", closed, teachers=plan, labels=TARGET).rehearse()
    assert not [*(tmp_path / "temporary").iterdir()]
    assert not (tmp_path / "run").exists() and reserved(tmp_path) == 0


VOTES = NamedVotes(
    ids=np.char.mod("r%04d", np.arange(400, 500)),
    label_names=("a", "b", "c", "d"),
    counts=np.tile([0, 3, 7, 10], (100, 1)),
    num_teachers=10,
)


def of_votes(place: Path, settings: LabelSettings, data: Arrays | None) -> RunPlan:
    return RunPlan(place / "run", data, imported=votes_from(VOTES), labels=settings)


def fail(*_: object, **__: object) -> None:
    raise KeyError("a statement")


def test_a_student_that_cannot_be_read_back_is_found_before_labels_are_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pate._labeling.stages.rehearsal.load_student", fail)
    settings = LabelSettings(NoisyVotes(sigma_votes=1.0), delta=1e-3)
    with pytest.raises(ValueError, match="`pate student fit` to finish on made-up records"):
        of_votes(tmp_path, settings, source(tmp_path)).label()
    assert reserved(tmp_path) == 0


def test_made_up_records_are_a_few_public_samples_with_other_names(tmp_path: Path) -> None:
    closed = source(tmp_path)
    made_up = MadeUp(closed, rows=[3, 1], grouped=True)
    public, private = made_up.records(Role.PUBLIC), made_up.records(Role.PRIVATE)
    theirs = closed.records(Role.PUBLIC)
    np.testing.assert_array_equal(public.features[:], theirs.features[:][[3, 1]])
    np.testing.assert_array_equal(private.features[:], public.features[:])
    assert public.ids.tolist() == theirs.ids[[3, 1]].tolist()
    assert private.ids.tolist() == [f"made-up-private-{name}" for name in public.ids.tolist()]
    assert private.units("group").tolist() == private.ids.tolist()
    made_up.require_distinct()


def test_a_student_of_raw_samples_sees_those_of_the_rehearsal(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", **make_arrays())  # type: ignore[arg-type]
    source = Arrays(tmp_path / "data.npz", features=PublicPCA(2))
    made_up = MadeUp(source, rows=[3, 1])
    assert (made_up.input_shape, made_up.unmapped().input_shape) == ((2,), (6,))
    raw = made_up.unmapped().records(Role.PUBLIC).features
    assert (raw[:] == make_arrays()["X"][400:500][[3, 1]]).all()
