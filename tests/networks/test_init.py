"""`pate init` for data sets of torchvision and Hugging Face."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from pate import cli
from pate._labeling.runs.run import read_data
from pate.data import Role
from tests.conftest import make_arrays
from tests.networks.data.test_datasets import Columns


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
