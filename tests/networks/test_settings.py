"""Objects as plain data, and the objects that are made of these again."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from models import MLP, Linear
from pate._core.settings import (
    RecordsInitArgs,
    canonical,
    decode_fields,
    encode_fields,
    import_path,
    to_plain,
)
from pate.data import CelebA, DataSource, PublicPCA, Records, Role
from pate.teachers import TeacherPlan
from tests.networks.teachers.test_training import Focal


class MLP2(MLP):
    """A class of one's own."""


class Opaque(RecordsInitArgs):
    """Keeps nothing of its arguments under their names."""

    def __init__(self, first: int, *rest: int, **others: float) -> None:
        self._sum = first + sum(rest) + sum(others.values())


class InMemory(DataSource):
    def __init__(self, features: np.ndarray) -> None:
        super().__init__()
        self._features = features

    @property
    def label_names(self) -> tuple[str, ...]:
        return ("a",)

    def load(self, role: Role) -> Records:
        raise NotImplementedError


@dataclass(frozen=True)
class Pair:
    left: int
    right: Path


def make_network(input_shape: tuple[int, ...], num_labels: int, width: int = 2) -> nn.Module:
    return MLP(input_shape, num_labels, hidden=(width,))


def made_by(path: str, **arguments: Any) -> dict[str, Any]:
    return {"class_path": path, "init_args": arguments}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (np.float64(0.5), 0.5),
        (Path("a/b"), "a/b"),
        ((1, [2.0, "x"]), [1, [2.0, "x"]]),
        ({"k": Path("p")}, {"k": "p"}),
        (Role.PUBLIC, "PUBLIC"),
        (Linear, {"class_path": import_path(Linear)}),
        (make_network, "tests.networks.test_settings.make_network"),
        (
            partial(partial(MLP, dropout=0.5), hidden=(3,)),
            made_by(import_path(MLP), dropout=0.5, hidden=[3]),
        ),
        (Pair(1, Path("q")), made_by("tests.networks.test_settings.Pair", left=1, right="q")),
        (Opaque(1, x=2.0), made_by("tests.networks.test_settings.Opaque", first=1, x=2.0)),
        (
            CelebA(Path("f"), features=PublicPCA(3)),
            made_by(
                "pate.data.CelebA",
                root="f",
                features=made_by("pate.data.PublicPCA", num_components=3),
            ),
        ),
    ],
)
def test_plain(value: Any, expected: Any) -> None:
    assert to_plain(value) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda shape, labels: nn.Identity(), "imported by its name"),
        (partial(Linear, (3,)), "arguments of .*Linear by name"),
        (np.zeros(3), "a file can hold .*got a ndarray"),
        (InMemory(np.zeros((2, 2))), "ndarray for features of InMemory"),
        (Opaque(1, 2), "arguments of Opaque by name"),
    ],
)
def test_what_no_file_can_hold_is_refused(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        to_plain(value)
    assert "\n" not in str(error.value)


def test_a_plan_is_the_same_when_it_is_read_again() -> None:
    plan = TeacherPlan(
        network=partial(MLP, hidden=(3, 4)),
        num_teachers=5,
        num_steps=2,
        batch_size=8,
        optimizer=partial(torch.optim.SGD, lr=0.1),
        loss=Focal(gamma=1.5),
        chunk_size=2,
    )
    content = encode_fields(plan)
    assert content["loss"]["init_args"] == {"gamma": 1.5}
    again = decode_fields(TeacherPlan, content)
    assert encode_fields(again) == content
    shapes = [
        [tuple(layer.shape) for layer in each.network((2,), 1).parameters()]
        for each in (plan, again)
    ]
    assert shapes[0] == shapes[1]
    assert (4, 3) in shapes[0]
    assert isinstance(again.loss, Focal)
    assert again.loss.gamma == 1.5
    del content["network"]
    with pytest.raises(ValueError, match=r"settings of TeacherPlan, got one missing \('network'\)"):
        decode_fields(TeacherPlan, content)


def test_a_class_has_one_path_however_it_is_written() -> None:
    for path in (
        "pate.StableTopK",
        "pate.aggregators.StableTopK",
        "pate._labeling.aggregators.top_k.StableTopK",
    ):
        written = {
            "trainer": [
                {
                    "class_path": path,
                    "init_args": {"class": "a.b", "of": {"class_path": "models.MLP"}},
                }
            ]
        }
        held = {
            "class_path": "pate.StableTopK",
            "init_args": {"class": "a.b", "of": {"class_path": "pate.models.MLP"}},
        }
        assert canonical(written) == {"trainer": [held]}
    for path in ("tests.networks.test_settings.MLP2", "no.such.Class"):
        assert canonical({"class_path": path}) == {"class_path": path}
