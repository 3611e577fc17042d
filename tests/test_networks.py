"""Networks by the names of factories, of which none is given a shape for weights."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torchvision import models as vision

import pate.models
from pate import cli
from pate._networks import make_network
from pate.student import Student

SHAPE = (3, 32, 32)


def house(shape: tuple[int, ...], num_labels: int) -> nn.Module:
    return pate.models.Linear(shape, num_labels)


def with_options(shape: tuple[int, ...], num_labels: int, **options: Any) -> nn.Module:
    return pate.models.Linear(shape, num_labels)


def one_default(shape: tuple[int, ...], num_labels: int = 5) -> nn.Module:
    return pate.models.Linear(shape, num_labels)


def elsewhere(pretrained: bool = False, **options: Any) -> nn.Module:
    """As those of timm are."""
    assert pretrained is False, "a network that was asked for no weights"
    return nn.Sequential(
        nn.Flatten(), nn.Linear(3 * 32 * 32, **{"out_features": options["num_classes"]})
    )


def unannotated(shape: Any, num_labels: Any):  # type: ignore[no-untyped-def]
    return pate.models.Linear(shape, num_labels)


MAKERS = {
    "class": pate.models.Linear,
    "partial": partial(pate.models.MLP, hidden=(4,)),
    "function": house,
    "function with options": with_options,
    "function with a default": one_default,
    "timm": elsewhere,
    "torchvision": vision.resnet18,
    "torchvision's weights": vision.mobilenet_v3_small,
    "with settings": partial(
        pate.models.Factory,
        name="torchvision.models.resnet18",
        settings={"zero_init_residual": True},
    ),
}


@pytest.mark.parametrize("name", list(MAKERS))
def test_each_kind_of_factory_makes_a_network(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*args: object, **options: object) -> None:
        raise AssertionError(f"weights are asked for: {args}")

    monkeypatch.setattr("torch.hub.load_state_dict_from_url", download)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", download)
    network = make_network(MAKERS[name], SHAPE, 5)
    assert network.eval()(torch.rand(2, *SHAPE)).shape == (2, 5)


def test_what_makes_no_network_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a network that is made, Linear"):
        make_network(nn.Linear(3, 5), (3,), 5)
    with pytest.raises(ValueError, match=r"a network made by <lambda>, got network='str'"):
        make_network(lambda shape, labels: "nothing", (3,), 5)  # type: ignore[arg-type, return-value]
    for name, message in (
        ("resnet18", "the path of a function"),
        ("torchvision.models.resnet17", "a function that can be imported"),
        ("no_such_package.resnet18", "a function that can be imported"),
    ):
        with pytest.raises(ValueError, match=message):
            pate.models.Factory(SHAPE, 5, name)


class OfPictures(torch.nn.Conv2d):
    """A network of pictures, whatever the records are."""

    def __init__(self, input_shape: tuple[int, ...], num_labels: int) -> None:
        super().__init__(3, num_labels, 1)


def test_a_student_of_a_factory() -> None:
    student = Student(vision.resnet18, input_shape=SHAPE, label_names=("a", "b"))
    assert student(torch.rand(2, *SHAPE)).shape == (2, 2)


@pytest.mark.parametrize(
    "words",
    [
        ["teachers", "fit", "--num_teachers=4", "--num_steps=1", "--batch_size=2"],
        ["student", "fit"],
    ],
)
def test_a_factory_without_a_type_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    option = "--model.network" if words[0] == "student" else "--network"
    with pytest.raises(SystemExit) as stopped:
        cli.main([*words, f"{option}=tests.test_networks.unannotated", "--run=runs/none"])
    assert stopped.value.code == 2
    assert "test_networks.unannotated" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("network", "line"),
    [
        (
            "torch.nn.Linear",
            "Expected a network of (input_shape, num_labels) = ((6,), 4), got TypeError: ",
        ),
        (
            "tests.test_networks.OfPictures",
            "Expected a network of records of shape [6], as the map of the data makes them, got"
            " OfPictures: ",
        ),
    ],
)
def test_a_network_of_other_arguments_or_records_is_refused_in_one_line(
    network: str, line: str, copied: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    new = tmp_path / "new"
    words = [
        "teachers",
        "fit",
        "--config",
        str(copied / "private/teachers_fit.yaml"),
        "--network",
        network,
    ]
    assert cli.main([*words, "--ledger", str(tmp_path / "new.sqlite"), "--run", str(new)]) == 2
    error = capsys.readouterr().err
    assert line in error and len(error.splitlines()) == 1
    assert not new.exists()
