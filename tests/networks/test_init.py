"""`pate init` for data sets of torchvision and Hugging Face."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from torch import nn

import models
from pate import cli
from pate._labeling.commands.places import importable
from pate._labeling.runs.run import read_data
from pate.data import Role
from tests.conftest import make_arrays
from tests.labeling.commands import test_help, test_suggestions
from tests.labeling.commands.test_help import OF_NETWORKS
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
        assert settings["init_args"]["place"] == place
        settings["init_args"] |= {"column": "inputs", "labels": ["a", "b"], "ids": "name"}
        assert "PatchFeatures" in str(settings["init_args"]["features"])
        settings["init_args"]["features"] = {"class_path": "PublicPCA"}
        settings["init_args"]["features"]["init_args"] = {"num_components": 3}
        (folder / "data.yaml").write_text(yaml.safe_dump({"data": settings}))
        with importable([folder]):
            source = read_data(folder / "data.yaml")
        del sys.modules["my_splits"]
        assert source.records(Role.PRIVATE).features.shape == (400, 3)
        assert source.ledger_path == ledger / "ledger.sqlite"


Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize("name", OF_NETWORKS)
def test_help_is_for_people(name: str, capsys: Captured) -> None:
    test_help.test_help_is_for_people(name, capsys)


@pytest.mark.parametrize("name", OF_NETWORKS)
def test_examples_are_understood(name: str, capsys: Captured, tmp_path: Path) -> None:
    test_help.test_examples_are_understood(name, capsys, tmp_path)


@pytest.mark.parametrize("name", OF_NETWORKS)
def test_no_command_takes_a_setting_that_an_option_does_not_have(
    name: str, capsys: Captured
) -> None:
    test_suggestions.test_no_command_takes_a_setting_that_an_option_does_not_have(name, capsys)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("student fit --run x --model.netw models.MLP", "did you mean --model.network?"),
        ("run faces --num_steps=3", "Expected --teachers.num_steps in place of --num_steps"),
    ],
)
def test_a_misspelled_option_has_a_suggestion(line: str, said: str, capsys: Captured) -> None:
    test_suggestions.require_said(line, said, capsys)


NETWORKS = [
    models.Linear,
    models.MLP,
    models.SmallCNN,
    partial(models.SmallCNN, groups=0, channels_last=True),
    models.ConvNet,
    pytest.param(models.ResNet50, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("network", NETWORKS)
def test_logits_for_pictures(network: Callable[[Sequence[int], int], nn.Module]) -> None:
    module = network((3, 32, 32), 7)
    logits = module(torch.rand(2, 3, 32, 32))
    assert logits.shape == (2, 7)
    assert torch.isfinite(logits).all()


@pytest.mark.parametrize(
    ("shape", "last"), [((8, 8), 4), ((1, 14, 14), 16), ((3, 32, 32), 64), ((3, 64, 40), 40)]
)
def test_convolutions_follow_the_size_of_pictures(shape: tuple[int, ...], last: int) -> None:
    network = models.ConvNet(shape, 7)
    assert network(torch.rand(2, *shape)).shape == (2, 7)
    assert network[-1].in_features == 64 * last
