"""Any input of a stage that is not what it was is noticed: by commands, and by a program."""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torchvision.transforms import v2

import pate
from models import MLP
from pate import cli
from pate._core.settings import encode_fields
from pate._labeling.runs.run import StageChangedError, describe_data
from pate.data import Arrays, PublicPCA
from tests.conftest import copy_run
from tests.labeling.commands.test_run import everything
from tests.networks.teachers.test_training import Focal
from tests.networks.test_plan import ANSWERS, PLAN, STUDENT

TEACHERS: dict[str, Any] = {
    "network": partial(MLP, hidden=(3,)),
    "num_teachers": 9,
    "num_steps": 21,
    "batch_size": 15,
    "optimizer": partial(torch.optim.Adam, lr=0.1, weight_decay=0.02),
    "unit": "group",
    "chunk_size": 5,
    "checkpoint_steps": 6,
    "positive_weight_power": 0.5,
    "loss": Focal(gamma=1.5),
    "scheduler": partial(torch.optim.lr_scheduler.StepLR, step_size=3),
    "clip_norm": 1.0,
    "augment": [v2.RandomHorizontalFlip()],
    "seed": 1,
    "accelerator": "cpu",
    "precision": "bf16-mixed",
    "start_from": "first",
    "max_teachers_per_group": 2,
}
LABELS: dict[str, Any] = {
    "aggregator": replace(ANSWERS, sigma_test=0.6),
    "delta": 9e-4,
    "num_queries": 70,
    "max_epsilon": 900.0,
    "query_seed": 1,
    "noise_seed": 4,
    "target_epsilon": 30.0,
    "max_delta0": 1e-4,
    "max_teachers_per_unit": 2,
    "budget_filter": "renyi",
}
SETTINGS = pate.LabelSettings(ANSWERS, num_queries=80, delta=0.001, noise_seed=3)
STUDENTS = {"model.network": "pate.models.MLP", "data.soft": "false", "optimize": "macro_f1"}


@pytest.fixture(scope="module")
def begun(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A finished run on records of its own; what is refused leaves it as it is."""
    place = tmp_path_factory.mktemp("begun")
    shutil.copy(finished.parent / "data.npz", place)
    root = copy_run(finished, place / "run")
    for file in (root / "data.yaml", root / "private" / "teachers_fit.json"):
        file.write_text(
            file.read_text().replace(str(finished.parent / "data.npz"), str(place / "data.npz"))
        )
    before = everything(root)
    yield root
    assert everything(root) == before


def test_every_setting_is_among_them() -> None:
    assert TEACHERS.keys() == {field.name for field in fields(pate.TeacherPlan)}
    others = {"predictions", "nominal_records", "allow_few"}  # a forecast changes no label
    assert LABELS.keys() | others == {field.name for field in fields(pate.LabelSettings)}


def refused(words: list[str], root: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main([*words, "--run", str(root)]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("pate ")
    return line


def of_file(settings: Any, place: Path, data: Arrays | None = None) -> str:
    """Return the option that names a file of settings, and of data."""
    path = place / "settings.yaml"
    path.write_text(
        yaml.safe_dump(
            encode_fields(settings) | ({} if data is None else {"data": describe_data(data)})
        )
    )
    return f"--config={path}"


def fast(names: Iterable[str], *kept: str) -> list[Any]:
    """Return cases of which all but those that are ``kept`` are slow."""
    return [name if name in kept else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", fast(TEACHERS, "network", "unit"))
def test_settings_of_teachers(name: str, begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, data = replace(PLAN, **{name: TEACHERS[name]}), Arrays(begun.parent / "data.npz")
    message = f"was begun with, got {name}"
    with pytest.raises(ValueError, match=message):
        pate.RunPlan(begun, data, teachers=plan).fit_teachers()
    assert message in refused(["teachers", "fit", of_file(plan, begun.parent, data)], begun, capsys)


@pytest.mark.parametrize("data", [{"labels": ["a", "b"]}, {"features": PublicPCA(2)}])
def test_settings_of_the_data(
    data: dict[str, Any], begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, message = (
        Arrays(begun.parent / "data.npz", **data),
        f"data.init_args.{next(iter(data))}",
    )
    with pytest.raises(StageChangedError, match=message):
        pate.RunPlan(begun, source, teachers=PLAN).fit_teachers()
    assert message in refused(
        ["teachers", "fit", of_file(PLAN, begun.parent, source)], begun, capsys
    )


@pytest.mark.parametrize("name", fast(LABELS, "aggregator", "noise_seed"))
def test_settings_of_labels(name: str, begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed: dict[str, Any] = {name: LABELS[name]}
    if name in ("max_delta0", "budget_filter"):
        changed["max_epsilon"] = 900.0
    settings = replace(SETTINGS, **changed)
    with pytest.raises(StageChangedError, match=f"was begun with, got .*{name}"):
        pate.RunPlan(begun, labels=settings).label()
    assert name in refused(["label", of_file(settings, begun.parent)], begun, capsys)


@pytest.mark.parametrize("name", fast(STUDENTS, "data.soft"))
def test_settings_of_a_student(name: str, begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "student",
        "fit",
        f"--config={begun}/public/student_fit.yaml",
        f"--{name}={STUDENTS[name]}",
    ]
    error = refused(words, begun, capsys)
    assert f"got {name}" in error and error.endswith("--overwrite, which costs no privacy")
    part, _, setting = name.partition(".")
    if part == "data":
        value = json.loads(STUDENTS[name])
        plan = replace(STUDENT, **{part: getattr(STUDENT, part) | {setting: value}})
        with pytest.raises(StageChangedError, match=f"got {name}"):
            pate.RunPlan(begun, student=plan).fit_student()


def refuses(root: Path, stage: str) -> str:
    """Return why a stage from Python does not find its inputs as they were, or an empty text."""
    plan = pate.RunPlan(
        root,
        Arrays(root.parent / "data.npz"),
        labels=pate.LabelSettings(ANSWERS, num_queries=80, delta=0.001, noise_seed=3),
        student=STUDENT,
    )
    calls: dict[str, Callable[[], object]] = {
        "teachers fit": replace(plan, teachers=PLAN).fit_teachers,
        "teachers vote": plan.vote,
        "label": plan.label,
        "student fit": plan.fit_student,
    }
    try:
        calls[stage]()
    except ValueError as error:
        return str(error)
    return ""


def other_rows(root: Path, split: int) -> None:
    """Change one record of a role."""
    path = root.parent / "data.npz"
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays["X"][np.flatnonzero(arrays["split"] == split)[0]] += 1
    np.savez(path, **arrays)


def other_private_records(root: Path) -> None:
    other_rows(root, 0)


def other_public_records(root: Path) -> None:
    other_rows(root, 1)


def other_test_records(root: Path) -> None:
    other_rows(root, 2)


def other_key(root: Path) -> None:
    (root / "private" / "partition.json").write_text(json.dumps({"key": "5f" * 32}))


def other_teachers(root: Path) -> None:
    data, plan = Arrays(root.parent / "data.npz"), replace(PLAN, seed=1)
    pate.RunPlan(root, data, teachers=plan, overwrite=True).fit_teachers()


def other_absent(root: Path) -> None:
    pate.RunPlan(root, absent=[2], overwrite=True).vote()


def other_labels(root: Path) -> None:
    settings = pate.LabelSettings(ANSWERS, num_queries=80, delta=0.001, noise_seed=4)
    pate.RunPlan(root, labels=settings, overwrite=True).label()


STAGES = ("teachers fit", "teachers vote", "label", "student fit")


@pytest.mark.parametrize(
    ("change", "stages"),
    [
        (other_private_records, dict.fromkeys(STAGES[:2], "other private records")),
        (other_public_records, dict.fromkeys(STAGES[1::2], "other public records")),
        pytest.param(other_test_records, {}, marks=pytest.mark.slow),
        (other_key, dict.fromkeys(STAGES[2:], "the key") | {STAGES[0]: "other assignment of"}),
        pytest.param(
            other_teachers,
            {"teachers fit": "seed=0", "teachers vote": "other teachers"},
            marks=pytest.mark.slow,
        ),
        pytest.param(other_absent, {"label": "got other votes"}, marks=pytest.mark.slow),
        (other_labels, {"label": "noise_seed=3 (was 4)", "student fit": "other released labels"}),
    ],
)
def test_what_a_stage_reads(
    change: Any, stages: dict[str, str], begun: Path, tmp_path: Path
) -> None:
    shutil.copy(begun.parent / "data.npz", tmp_path)
    root = copy_run(begun, tmp_path / "run")
    for file in (root / "data.yaml", root / "private" / "teachers_fit.json"):
        file.write_text(
            file.read_text().replace(str(begun.parent / "data.npz"), str(tmp_path / "data.npz"))
        )
    change(root)
    for stage in STAGES:
        found = refuses(root, stage)
        assert (stages.get(stage, "") in found) and bool(found) == (stage in stages), (stage, found)
