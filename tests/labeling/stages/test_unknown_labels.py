"""Labels that are unknown, from a file to a student's figures, by whole runs."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pate import ReleasedLabels, cli
from tests.conftest import make_arrays, recipe

Json = dict[str, Any]
Write = Callable[[Path, dict[str, np.ndarray]], Json]
Captured = pytest.CaptureFixture[str]
LOST = [0.7, 0.3, 0.0, 0.3]  # shares of the labels that are unknown


def lossy(num: int = 600) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return arrays with labels that are unknown in all roles, and their true labels."""
    arrays = make_arrays(num)
    lost = np.random.default_rng(5).random(arrays["Y"].shape) < LOST
    return arrays | {"Y": np.where(lost, np.nan, arrays["Y"])}, arrays["Y"]


def write_npz(place: Path, arrays: dict[str, np.ndarray]) -> Json:
    np.savez(place / "data.npz", **arrays)  # type: ignore[arg-type]
    return {"class_path": "Arrays", "init_args": {"path": str(place / "data.npz")}}


def write_csv(place: Path, arrays: dict[str, np.ndarray]) -> Json:
    names = arrays["label_names"].tolist()
    with (place / "data.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "split", *(f"x{i}" for i in range(6)), *names])
        for x, y, name, split in zip(
            *(arrays[name] for name in ("X", "Y", "ids", "split")), strict=True
        ):
            table.writerow([name, split, *x, *("" if np.isnan(value) else value for value in y)])
    path = str(place / "data.csv")
    return {"class_path": "NumberTable", "init_args": {"path": path, "labels": names}}


def write_recipe(place: Path, source: Json, **settings: object) -> Path:
    """Write a recipe with data that declare their unknown labels."""
    folder = recipe(place / "recipe", place / "data")
    (folder / "data.yaml").write_text(yaml.safe_dump({"data": source}))
    for name, content in settings.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return folder


def run(place: Path, folder: Path, *words: str) -> dict[str, dict[str, float]]:
    """Run a recipe, evaluate its student, and return the figures."""
    root = place / "run"
    options = [f"--run={root}", "--label.noise_seed=3", *words]
    assert cli.main(["run", str(folder), *options]) == 0
    figures: dict[str, dict[str, float]] = json.loads(
        (root / "public" / "student" / "metrics.json").read_text()
    )
    return figures


CLOSED = {"fit": "closed_form"}
TARGET = {"target_epsilon": 20.0, "delta": 1e-4}


@pytest.mark.parametrize("write", [write_npz, pytest.param(write_csv, marks=pytest.mark.slow)])
def test_records_vote_by_what_they_know(write: Write, tmp_path: Path, capsys: Captured) -> None:
    arrays, truth = lossy()
    source = write(tmp_path, arrays)
    folder = write_recipe(tmp_path, source, teachers=CLOSED, label=TARGET)
    words = ["run", str(folder), f"--run={tmp_path / 'run'}"]
    assert cli.main(words) == 2, "without a declaration"
    assert "`unknown_labels`" in capsys.readouterr().err
    assert not (tmp_path / "data.ledger.sqlite").exists()
    source["init_args"]["unknown_labels"] = "nan"
    (folder / "data.yaml").write_text(yaml.safe_dump({"data": source}))
    figures = run(tmp_path, folder)
    released = ReleasedLabels.load(tmp_path / "run")
    rows = np.array([int(name[1:]) for name in released.ids])
    assert released.linear and (released.labels == truth[rows]).mean() > 0.85
    assert figures["student"]["accuracy"] > 0.85
    # the shares of the known labels, not of all
    known = ~np.isnan(arrays["Y"][500:])
    majority = np.nanmean(arrays["Y"][500:], axis=0) > 0.5
    by_hand = (truth[500:] == majority)[known].mean()
    assert figures["all_majority"]["accuracy"] == pytest.approx(by_hand)
