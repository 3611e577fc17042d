"""Networks by the names of factories, of which none is given a shape for weights."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torchvision import models as vision

import pate.models
from pate._core.settings import SettingsParser
from pate._networks.settings import make_network, require_logits, restored_network
from pate.data import Arrays
from tests.conftest import make_arrays

SHAPE = (3, 32, 32)


def house(shape: tuple[int, ...], num_labels: int) -> nn.Module:
    return pate.models.Linear(shape, num_labels)


def sized(shape: tuple[int, ...], num_labels: int, width: int = 8) -> nn.Module:
    return pate.models.MLP(shape, num_labels, hidden=(width,))


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


class Net(nn.Sequential):
    """Of two facts by name, with a setting between them."""

    def __init__(self, num_classes: int, width: int = 8, *, shape: tuple[int, ...]) -> None:
        layers = nn.Linear(3 * shape[1] * shape[2], width), nn.Linear(width, num_classes)
        super().__init__(nn.Flatten(), *layers)


class Blocks(nn.Module):
    def __init__(self, block: str, layers: int, num_classes: int = 9) -> None:
        super().__init__()


def of_recipe(network: Any) -> Any:
    """Return the maker of a network of a recipe."""
    parser = SettingsParser(exit_on_error=False)
    parser.add_argument("--network", type=Callable[[tuple[int, ...], int], nn.Module])
    return parser.instantiate(parser.parse_object({"network": network})).network


def test_facts_are_given_by_name_where_a_signature_has_them() -> None:
    own = f"{__name__}.Net"
    wide = {"class_path": own, "init_args": {"width": 16}}
    makers = of_recipe(wide), of_recipe(own), Net, partial(Net, width=4)
    networks = [make_network(make, SHAPE, 5) for make in makers]
    networks.append(restored_network(wide, SHAPE, 5, trust=True))
    function = of_recipe({"class_path": f"{__name__}.sized", "init_args": {"width": 32}})
    networks.append(make_network(function, SHAPE, 5))
    widths = [network.get_submodule("1").out_features for network in networks]
    assert widths == [16, 8, 8, 4, 16, 32]
    assert all(network(torch.rand(2, *SHAPE)).shape == (2, 5) for network in networks)
    with pytest.raises(ValueError, match=r"from Blocks\(block: str, layers: .* missing 2 required"):
        make_network(Blocks, SHAPE, 5)


@pytest.mark.parametrize(
    ("path", "settings", "channels"),
    [
        ("torchvision.models.resnet18", {"zero_init_residual": True}, 3),
        pytest.param("timm.models.resnet.resnet18", {"in_chans": 1}, 1, marks=pytest.mark.slow),
        ("timm.create_model", {"model_name": "resnet10t", "in_chans": 1}, 1),
    ],
)
def test_functions_of_other_packages_go_by_their_path(
    path: str, settings: dict[str, Any], channels: int
) -> None:
    pytest.importorskip(path.partition(".")[0])
    make = of_recipe({"class_path": path, "init_args": settings} if settings else path)
    shape = (channels, 32, 32)
    network = make_network(make, shape, 5).eval()
    assert type(network).__name__ == "ResNet" and network(torch.rand(2, *shape)).shape == (2, 5)
    if "zero_init_residual" in settings:
        assert not network.get_submodule("layer1.0.bn2").weight.any()  # type: ignore[operator]


def test_a_refusal_names_the_signature() -> None:
    with pytest.raises(ValueError, match=r"from partial\(\*, weights: .*argument 'zero_init'"):
        make_network(
            of_recipe({"class_path": "torchvision.models.resnet18", "init_args": {"zero_init": 1}}),
            SHAPE,
            5,
        )


@pytest.mark.parametrize("path", ["torchvision.models.resnet18", "timm.models.resnet.resnet18"])
def test_a_number_of_labels_of_a_recipe_is_refused(path: str) -> None:
    pytest.importorskip(path.partition(".")[0])
    make = of_recipe({"class_path": path, "init_args": {"num_classes": 7}})
    with pytest.raises(ValueError, match=r"\{'num_classes': 5\}, got num_classes=7"):
        make_network(make, SHAPE, 5)


MAKERS = {
    "class": pate.models.Linear,
    "partial": partial(pate.models.MLP, hidden=(4,)),
    "function": house,
    "function with options": with_options,
    "function with a default": one_default,
    "timm": elsewhere,
    "torchvision": vision.resnet18,
    "torchvision's weights": vision.mobilenet_v3_small,
    "with settings": partial(vision.resnet18, zero_init_residual=True),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=[pytest.mark.slow] if i % 3 else [])
        for i, each in enumerate(MAKERS)
    ],
)
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


class Ended(nn.Module):
    """A network with something behind its last layer, which may begin with zeros or a bias."""

    def __init__(
        self, end: Callable[[torch.Tensor], Any], bias: float | None = None, extra: int = 0
    ) -> None:
        super().__init__()
        self.layer, self.end = nn.Linear(6, 4 + extra), end
        if bias is not None:
            nn.init.zeros_(self.layer.weight)
            nn.init.constant_(self.layer.bias, bias)

    def forward(self, features: torch.Tensor) -> Any:
        return self.end(self.layer(features))


def whole(shape: tuple[int, ...], num_labels: int, **settings: Any) -> nn.Module:
    return Ended(**settings)


@dataclass
class Answer:
    logits: torch.Tensor


HONEST: dict[str, dict[str, Any]] = {
    "logits": {"end": lambda z: z},
    "zeros": {"end": lambda z: z, "bias": 0.0},
    "of rare labels": {"end": lambda z: z, "bias": -4.6},
    "of rare labels, normed": {"end": lambda z: nn.functional.layer_norm(z, (4,)) - 1.5},
    "bounded": {"end": torch.tanh},
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "sigmoid": ({"end": torch.sigmoid}, "outputs='never below 0'"),
    "softmax": ({"end": lambda z: z.softmax(1)}, "no sigmoid, softmax or ReLU comes last"),
    "relu": ({"end": torch.relu}, "from the network Ended, of both signs"),
    "logs": ({"end": nn.functional.logsigmoid}, "outputs='never above 0'"),
    "a tuple": (
        {"end": lambda z: (z, z)},
        "in one tensor from the network Ended, got type='tuple'",
    ),
    "an object": ({"end": Answer}, "got type='Answer'"),
    "integers": ({"end": lambda z: z.long()}, "dtype='int64'"),
    "not finite": ({"end": lambda z: z / 0}, "finite logits from the network Ended"),
    "a wrong width": (
        {"end": lambda z: z, "extra": 1},
        "float logits of shape [8, 4] from the network Ended, got shape=[8, 5]",
    ),
    "no batch": ({"end": lambda z: z.sum()}, "got shape=[]"),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Arrays:
    path = tmp_path_factory.mktemp("source") / "data.npz"
    np.savez(path, **make_arrays())  # type: ignore[arg-type]
    return Arrays(path)


@pytest.mark.parametrize("settings", HONEST.values(), ids=HONEST)
def test_networks_of_logits_are_taken(settings: dict[str, Any], source: Arrays) -> None:
    for seed in range(20):
        require_logits(partial(whole, **settings), source, seed=seed)


@pytest.mark.parametrize(("settings", "message"), REFUSED.values(), ids=REFUSED)
def test_networks_of_something_else_are_refused(
    settings: dict[str, Any], message: str, source: Arrays
) -> None:
    for seed in range(20):
        with pytest.raises(ValueError, match=r"^Expected ") as caught:
            require_logits(partial(whole, **settings), source, seed=seed)
        assert message in str(caught.value) and "\n" not in str(caught.value)
