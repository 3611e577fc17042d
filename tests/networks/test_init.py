"""`pate init` for data sets of torchvision and Hugging Face."""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from pate import cli
from pate._labeling.commands.recipes import recipe_files
from pate._labeling.runs.run import read_data
from pate.accounting import read_ledger
from pate.data import Role
from pate.student import load_student
from tests.conftest import make_arrays
from tests.labeling.commands.test_init import figures_of
from tests.networks.data.test_datasets import Columns


class Drawn(Sequence[Any]):
    """Stands for torchvision's CelebA, which reads only files with the checksums of the true ones."""

    attr_names: ClassVar = ["Hat", "Smiling", ""]

    def __init__(self, root: str, split: str) -> None:
        self.root, self.first = root, {"train": 0, "valid": 30, "test": 40}[split]
        self.filename = [f"{self.first + row:06d}.jpg" for row in range(len(self))]

    def __len__(self) -> int:
        return 30 if self.first == 0 else 10

    def __getitem__(self, row: Any) -> Any:
        drawn = np.random.default_rng(self.first + row).integers(0, 256, (20, 16, 3))
        return Image.fromarray(drawn.astype(np.uint8)), torch.tensor([row % 2, 1])


@pytest.mark.slow
def test_data_sets_of_torchvision_are_seen_by_patches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchvision.datasets.CelebA", Drawn)
    folder = tmp_path / "recipe"
    words = [str(folder), "--kind", "torchvision", "--data", str(tmp_path / "celeba")]
    assert cli.main(["init", *words]) == 0
    source = read_data(folder / "data.yaml", ["--data.init_args.settings.size=16"])
    assert source.label_names == ("Hat", "Smiling")
    assert source.load(Role.PRIVATE).features.shape == (30, 3, 16, 16)
    assert source.load(Role.TEST).ids[0] == "000040.jpg"
    assert source.records(Role.PRIVATE).features.shape == (30, 9 * 128)
    assert source.ledger_path == tmp_path / "celeba" / "ledger.sqlite"


@pytest.mark.slow
def test_the_other_student_of_pictures_is_a_network_of_their_pixels(
    faces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It learns the same labels, which are paid for once, and the linear one stands beside it."""
    folder, run = tmp_path / "recipe", tmp_path / "run"
    assert cli.main(["init", str(folder), "--data", str(faces)]) == 0
    words = [
        *("run", str(folder), f"--run={run}", f"--ledger={tmp_path / 'ledger.sqlite'}"),
        "--data.init_args.size=16",
    ]
    assert cli.main(words) == 0
    linear = figures_of(run)
    assert "linear_student" not in linear
    other = f"--student.config={folder / 'student_network.yaml'}"
    brief = ["--student.trainer.max_epochs=2", "--student.trainer.enable_progress_bar=false"]
    assert cli.main([*words, other, *brief, "--overwrite"]) == 0
    assert "linear student beside it" in capsys.readouterr().out
    assert len(read_ledger(tmp_path / "ledger.sqlite").entries) == 1
    both = figures_of(run)
    assert both["linear_student"] == linear["student"] != both["student"]
    assert cli.main(["check", str(run)]) == 0
    shapes = [
        load_student(run / "public" / "student" / name).settings["network_input"]
        for name in ("model", "linear_model")
    ]
    assert shapes == [[3, 16, 16], [9 * 128]]


def test_splits_of_hugging_face_are_read_as_the_recipe_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their package is not among those of the tests: columns stand for what it would read."""
    names = ("train", "validation", "test")
    splits = {name: Columns(make_arrays(), role) for name, role in zip(names, Role, strict=True)}
    package = SimpleNamespace(
        load_dataset={"owner/name": splits}.get, load_from_disk={str(tmp_path): splits}.get
    )
    monkeypatch.setitem(sys.modules, "datasets", package)
    for place, ledger in (("owner/name", tmp_path / "recipe-1"), (str(tmp_path), tmp_path)):
        folder = tmp_path / f"recipe-{1 + (place != 'owner/name')}"
        assert cli.main(["init", str(folder), "--kind", "huggingface", "--data", place]) == 0
        settings = yaml.safe_load((folder / "data.yaml").read_text())["data"]
        assert settings["init_args"]["settings"]["place"] == place
        settings["init_args"]["settings"] |= {
            "features": "inputs",
            "labels": ["a", "b"],
            "ids": "name",
        }
        assert "PatchFeatures" in str(settings["init_args"]["features"])
        settings["init_args"]["features"] = {"class_path": "PublicPCA"}
        settings["init_args"]["features"]["init_args"] = {"num_components": 3}
        (folder / "data.yaml").write_text(yaml.safe_dump({"data": settings}))
        source = read_data(folder / "data.yaml")
        assert source.records(Role.PRIVATE).features.shape == (400, 3)
        assert source.ledger_path == ledger / "ledger.sqlite"


def test_networks_are_a_comment_away(tmp_path: Path) -> None:
    """What the settings of records that vote for themselves name as comments are those of
    networks."""
    text = recipe_files(tmp_path, "npz")["teachers.yaml"].split("# Or networks")[1]
    lines = [line[2:] for line in text.splitlines() if line.startswith("# ")]
    written = yaml.safe_load("\n".join(lines[lines.index("network:") :]))
    (tmp_path / "teachers.yaml").write_text(yaml.safe_dump(written))
    words = [
        "teachers",
        "fit",
        "--data=Arrays",
        "--data.path=data.npz",
        f"--config={tmp_path / 'teachers.yaml'}",
    ]
    with pytest.raises(SystemExit) as stopped:
        cli.main([*words, "--run=run", "--print_config"])
    assert stopped.value.code == 0 and written["network"]["class_path"] == "pate.models.MLP"
