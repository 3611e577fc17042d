"""Scripts whose pictures the pages show run, at a small size."""

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import pate
from scripts.rivals.descent import Descent

ROOT = Path(pate.__file__).parents[1]
SCRIPTS = ROOT / "scripts"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_whole_runs_are_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    generator = np.random.default_rng(0)
    features = generator.normal(size=(1500, 4))
    labels = (features[:, :2] + generator.normal(size=(1500, 2)) > [0, 1]).astype(np.uint8)
    (tmp_path / "multilabel" / "mulan").mkdir(parents=True)
    np.savez(
        tmp_path / "multilabel" / "mulan" / "small.npz",
        x=features,
        y=labels,
        fold5=np.arange(1500) % 5 + 1,
    )
    monkeypatch.setenv("PATE_DATA", str(tmp_path))
    script = load("measure_runs")
    words = [
        "small:8",
        "--seeds",
        "2",
        "--ways",
        "votes",
        "rivals",
        "--output",
        str(tmp_path / "measured"),
    ]
    script.main(words)
    first = capsys.readouterr()
    rows = [line.split(" | ") for line in first.out.splitlines() if line.startswith("| ")][2:]
    accuracies = {(row[0], row[1]): float(row[2]) for row in rows}
    constant, ours = accuracies["| constant answer", ""], accuracies["| **pate**", "8"]
    assert (
        ours > constant + 0.05
        and accuracies["| the same voters, hardly any noise", ""] > constant + 0.05
    )
    assert accuracies["| least squares", "8"] > constant + 0.03
    monkeypatch.setattr(script, "call", lambda *words: pytest.fail(f"measured again: {words}"))
    script.main(words)
    assert capsys.readouterr().out == first.out


def test_settings_of_rivals_are_chosen_on_private_records_that_they_do_not_see(
    tmp_path: Path,
) -> None:
    """The test set ranks the other way round."""
    script = load("measure_pictures")
    task = script.Task("drawn", tmp_path)
    labels = np.random.default_rng(0).random((50, 3)) < 0.4
    seen: list[tuple[float, int]] = []

    def learn(rows: NDArray[Any], settings: Descent, noise: float, seed: int) -> Callable[..., Any]:
        seen.append((settings.speed, len(set(rows.tolist()))))
        return lambda shown: shown * (1 if settings.speed == 2 else -1)

    grid = [Descent(speed=speed) for speed in (1, 2, 3)]
    shown = (labels - 0.5, labels - 0.5, 0.5 - labels)
    for _ in range(2):  # a finished row is not learned again
        task.add_best("way", grid, learn, shown, (labels, labels), (0.5,), range(2))
    assert seen == [(1, 40), (2, 40), (3, 40), (2, 50), (2, 50)]
    assert all(row.figures[0] == 0 for row in task.rows if row.way == "way")


@pytest.mark.slow
def test_one_command_draws_all_pictures_of_the_pages(tmp_path: Path) -> None:
    script = importlib.import_module("scripts.draw_pictures")
    script.main([str(tmp_path), "--small"])
    drawn = (tmp_path / "epsilon.svg").read_text()
    assert drawn == (ROOT / "docs" / "images" / "epsilon.svg").read_text()
    for name in (name for name in script.PICTURES if not name.endswith(".svg")):
        with Image.open(tmp_path / name) as picture:
            colors = picture.convert("RGB").resize((60, 40)).getcolors(maxcolors=2400)
            assert colors is not None and len(colors) > 20


def test_every_picture_of_a_page_has_its_command() -> None:
    script = importlib.import_module("scripts.draw_pictures")
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    shown = {
        name for page in pages for name in re.findall(r"\(\S*images/(\S+)\)", page.read_text())
    }
    assert shown == {*script.PICTURES, "flow.svg", "choice.svg"}
