"""Networks and fitted feature maps as plain data: a class path with settings, and what it makes.

First a network that settings make, from whoever they are, its trial, for it must answer by logits,
and its making by any factory. Then fitted feature maps as modules of torch, for a student used
without its data. At the end random changes of pictures, which are a function of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial, reduce, singledispatch
from importlib import import_module
from inspect import isfunction, signature
from math import prod, sqrt
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pate._core.files.reading import Json
from pate._core.settings import SettingsParser, made_by, named_class, names_of_facts, to_plain
from pate._core.validation import expecting, require
from pate._labeling.data.feature_maps import (
    MAP_MODULES,
    MapSettings,
)
from pate._labeling.data.records import FeatureMap, Role
from pate._labeling.data.source import DataSource
from pate._labeling.teachers import require_factory
from pate._networks.datasets import FrozenBackbone

_BUILDERS = "torchvision.models"
_ROOMS = {
    "pate.models": "pate._networks.models",
    MAP_MODULES: "pate._networks.settings",
    _BUILDERS: _BUILDERS,
}
"""Modules with networks that settings from elsewhere may name, as they run no code.

They are imported when a path begins with their names, because torchvision takes seconds.
"""


def without_weights(settings: Json | str, network: nn.Module) -> Json | str:
    """Return settings that make the layers of ``network`` without reading weights from elsewhere.

    A network whose constructor reads weights from a file or downloads them has a mapping
    ``settings_without_weights`` of the arguments to be replaced. Settings of any other network are
    returned as they are.
    """
    bare = getattr(network, "settings_without_weights", None)
    if not isinstance(bare, dict):
        return settings
    content: Json = {"class_path": settings} if isinstance(settings, str) else settings
    return content | {"init_args": (content.get("init_args") or {}) | bare}


def restored_network(
    settings: Json | str | list[Json], *shape: Any, trust: bool | Collection[str] = False
) -> nn.Module:
    """Return the network of ``settings``, a class path with arguments as in a configuration.

    Classes of `_ROOMS` are called with the arguments as they are: a text among them stays a text.
    Anything else that settings name is code from elsewhere, which is neither imported nor called
    unless it is trusted.

    Args:
        settings: a class path with arguments, or only the path; or a list of such, each as
            ``map`` with the ``shape`` of its samples, for one after the other.
        shape: the shape of a sample, and the number of labels if the network has any.
        trust: whether classes and functions from elsewhere are imported and called; or the paths
            of those that are.

    Raises:
        ValueError: in one line, if something that is not trusted is named, if the class cannot be
            imported here or does not take these settings, or if these name weights to be read from
            elsewhere.
    """
    if isinstance(settings, list):
        return nn.Sequential(
            *(restored_network(part["map"], tuple(part["shape"]), trust=trust) for part in settings)
        )
    content: Json = {"class_path": settings} if isinstance(settings, str) else settings
    path = str(content.get("class_path"))
    foreign = [name for name in class_paths(content) if _trusted(name) is None]
    if foreign:
        named = () if isinstance(trust, bool) else trust
        unknown = [] if trust is True else [name for name in foreign if name not in named]
        others = "`trust`, with which other code runs" if trust is False else "named by the plan"
        require(
            not unknown,
            f"networks and feature maps of pate or torchvision, or {others}",
            class_path=", ".join(unknown),
        )
        path = _importable(path)
        require(
            named_class(path) is not None,
            f"the network {path} to be found here (install its package, or name its folder by"
            " `code` or PYTHONPATH)",
            missing=path,
        )
    # settings that do not fit raise whatever the class or torch raises
    with expecting(f"a network {path} that takes the settings it was saved with", Exception):
        return (
            _constructed(content, *shape)
            if not foreign
            else _made_by_configuration(_importable(settings), *shape)
        )


def class_paths(settings: Any) -> Iterator[str]:
    """Yield the paths of all classes and functions that settings name."""
    if isinstance(settings, Mapping):
        if "class_path" in settings:
            yield str(settings["class_path"])
        settings = list(settings.values())
    if isinstance(settings, list):
        for value in settings:
            yield from class_paths(value)


def _trusted(path: str) -> Callable[..., nn.Module] | None:
    """Return the module class, or torchvision's builder, of a path in `_ROOMS`. None for others.

    The path is looked up in a room: it is neither imported nor called.
    """
    room = next((room for room in _ROOMS if path.startswith(f"{room}.")), None)
    if room is None:
        return None
    member: Any = import_module(_ROOMS[room])
    place, _, name = path.rpartition(".")
    if room == _BUILDERS and name in member.list_models(module=member):
        builder: Callable[..., nn.Module] = member.get_model_builder(name)
        return builder if place in (room, builder.__module__) else None
    if room == "pate.models":  # a face, whose names are imported by their use
        member = getattr(import_module(room), name) if name in import_module(room).__all__ else None
    else:
        for word in path.removeprefix(f"{room}.").split("."):
            member = vars(member).get(word) if isinstance(member, ModuleType) else None
    network = isinstance(member, type) and issubclass(member, nn.Module)
    return member if network and f"{member.__module__}.".startswith(f"{_ROOMS[room]}.") else None


def _importable(settings: Any) -> Any:
    """Return settings with the import paths of the modules of maps."""
    if isinstance(settings, str):
        return settings.replace(f"{MAP_MODULES}.", f"{_ROOMS[MAP_MODULES]}.", 1)
    if isinstance(settings, Mapping):
        return {name: _importable(value) for name, value in settings.items()}
    return [_importable(value) for value in settings] if isinstance(settings, list) else settings


def _constructed(content: Json, *shape: Any) -> nn.Module:
    """Return the module of settings that name only known classes."""
    make = _trusted(content["class_path"])
    assert make is not None
    parameters = signature(make).parameters
    arguments = {}
    for name, value in (content.get("init_args") or {}).items():
        default = parameters[name].default if name in parameters else None
        require(
            not value or not name.startswith(("weights", "pretrained")),
            "no weights from elsewhere, since the folder has those of all layers",
            **{name: value},
        )
        # a setting is saved as the value of its member
        arguments[name] = type(default)(value) if isinstance(default, Enum) else value
    return (
        make_network(partial(make, **arguments), *shape) if shape[1:] else make(*shape, **arguments)
    )


def _made_by_configuration(settings: Json | str, *shape: Any) -> nn.Module:
    """Return the network as the command line would make it of the same settings."""
    parser = SettingsParser(exit_on_error=False)
    kind = (
        Callable[[tuple[int, ...]], nn.Module]
        if len(shape) == 1
        else Callable[[tuple[int, ...], int], nn.Module]
    )
    parser.add_argument("--network", type=kind)
    factory = parser.instantiate(parser.parse_object({"network": settings})).network
    return make_network(factory, *shape) if len(shape) == 2 else factory(*shape)


_FRESH = 5
"""Initial weights that are tried for outputs of both signs."""

_TRIED = 8
"""Public samples that a network is tried on."""


def require_logits(make: Callable[..., nn.Module], data: DataSource, *, seed: int = 0) -> None:
    """Raise ``ValueError`` in one line unless a network answers by a logit for each label.

    Logits are above 0 for some weights and below 0 for others. What ends in a sigmoid, a softmax or
    a ReLU is never below 0, and would give every label to every sample. Fresh networks of one sign
    are tried again with all their weights negated: one that only starts with a large bias changes
    its sign then.

    Args:
        make: makes the network for the shape of a sample and the number of labels.
        data: the source of public samples to try.
        seed: seed of the weights.
    """
    features = data.records(Role.PUBLIC).features
    samples = torch.from_numpy(np.array(features[np.arange(min(_TRIED, features.shape[0]))]))
    signs, name = set[float](), ""

    def answers(network: nn.Module) -> Tensor:
        with expecting(
            f"a network of records of shape {list(samples.shape[1:])}, as the map of the data"
            " makes them (a student has pixels by data.raw: true, teachers by features: null)",
            Exception,
            got=name,
        ):
            logits = network(samples)
        require(
            isinstance(logits, Tensor),
            f"logits [n, C] in one tensor from the network {name}",
            type=type(logits).__name__,
        )
        require(
            logits.shape == (len(samples), data.num_labels) and logits.is_floating_point(),
            f"float logits of shape {[len(samples), data.num_labels]} from the network {name}",
            shape=list(logits.shape),
            dtype=str(logits.dtype).removeprefix("torch."),
        )
        return logits

    for place in range(_FRESH):
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.default_generator.manual_seed(seed + place)
            network = make_network(make, tuple(samples.shape[1:]), data.num_labels).eval()
            name = type(network).__name__
            logits = answers(network)
            require(bool(logits.isfinite().all()), f"finite logits from the network {name}")
            signs |= {*logits.sign().flatten().tolist()}
            if not {-1.0, 1.0} <= signs:
                for weights in network.parameters():
                    weights.neg_()
                signs |= {*answers(network).sign().flatten().tolist()}
        if {-1.0, 1.0} <= signs:
            return
    require(
        signs.isdisjoint({-1.0, 1.0}),  # an output layer of zeros has no sign yet
        f"logits from the network {name}, of both signs: a label is given above 0, so that no"
        " sigmoid, softmax or ReLU comes last",
        outputs="never below 0" if 1.0 in signs else "never above 0",
    )


def make_network(
    make: Callable[..., nn.Module], input_shape: tuple[int, ...], num_labels: int
) -> nn.Module:
    """Return a new network for an input shape and a number of labels.

    A class or function that has ``num_labels`` or ``num_classes``, and ``shape`` or
    ``input_shape``, in its signature is given these by name. So is a function such as torchvision
    and timm have, which takes ``num_classes`` among any others: its own first argument is something
    else, often weights to be downloaded.

    Args:
        make: a class or function that takes both by position, or one of them or both by name.
        input_shape: the shape of a record.
        num_labels: the number of labels.

    Raises:
        ValueError: if a single network is given, which all teachers would share, or if none is made
            of these arguments.
    """
    require_factory(make)
    made = made_by(make)
    facts: dict[str, Any] = {"shape": input_shape, "input_shape": input_shape}
    facts |= {"num_labels": num_labels, "num_classes": num_labels}
    names = ["num_classes"] if _takes_classes(made) else names_of_facts(made)
    given = {name: facts[name] for name in names}
    others = {name: value for name, value in getattr(make, "keywords", {}).items() if name in given}
    require(not others, f"a network without what the data give it, {given}", **others)
    try:
        network = make(**given) if given else make(input_shape, num_labels)
    except (TypeError, RuntimeError) as error:
        # one that takes other arguments fails in whatever it does with these
        raise ValueError(
            f"Expected a network of (input_shape, num_labels) = ({input_shape}, {num_labels}), by"
            " position, or by name as these, `shape` or `num_classes`, from"
            f" {getattr(made, '__name__', type(made).__name__)}{signature(made)}, got"
            f" {type(error).__name__}: {' '.join(str(error).split())[:200]}"
        ) from error
    require(
        hasattr(network, "state_dict"),
        f"a network made by {getattr(make, '__name__', None) or type(make).__name__}",
        network=type(network).__name__,
    )
    return network


def _takes_classes(make: Callable[..., Any]) -> bool:
    """Return whether a function takes ``num_classes`` by name and needs at most one argument.

    A function may have some of its arguments already.
    """
    if not isfunction(make.func if isinstance(make, partial) else make):
        return False
    parameters = signature(make).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    by_name = any(p.name == "num_classes" or p.kind is p.VAR_KEYWORD for p in parameters)
    return by_name and sum(p.default is p.empty for p in positional) < 2


class MapModule(NamedTuple):
    """A fitted feature map that needs nothing but torch.

    Attributes:
        settings: class path and arguments of the module, which is made for the shape of a raw
            record; a list of one for each map in a chain.
        module: maps raw records ``[B, ...]`` as the map does, but for rounding.
    """

    settings: MapSettings
    module: nn.Module


@singledispatch
def as_module(features: FeatureMap, shape: tuple[int, ...]) -> MapModule:
    """Return a fitted map that computes by torch as a module; those of numpy leave as arrays.

    A map of one's own is added by ``@as_module.register``: a function of the map and the shape of a
    raw record.

    Args:
        features: the map.
        shape: shape of a raw record.

    Returns:
        the module with its class path and arguments.

    Raises:
        ValueError: if nothing says how a map of this class is a module.
    """
    raise ValueError(
        "Expected a feature map that as_module knows (as_module.register adds one), got"
        f" {type(features).__module__}.{type(features).__qualname__}"
    )


class Projection(nn.Module):
    """The linear map of `PublicPCA`.

    Sums are taken in double precision, so that it differs from the map only by the rounding of the
    map's own sums.

    Args:
        input_shape: shape of a raw record.
        num_components: number of components.
    """

    def __init__(self, input_shape: Sequence[int], num_components: int) -> None:
        super().__init__()
        self.mean = nn.Buffer(torch.zeros(prod(input_shape)))
        self.weights = nn.Buffer(torch.zeros(prod(input_shape), num_components))

    def forward(self, records: Tensor) -> Tensor:
        """Return components ``[B, num_components]`` of records ``[B, ...]``."""
        return ((records.flatten(1) - self.mean).double() @ self.weights.double()).float()


class Scaling(nn.Module):
    """The map of `PublicScaling`, in double precision as there.

    Args:
        input_shape: shape of a raw record.
    """

    def __init__(self, input_shape: Sequence[int]) -> None:
        super().__init__()
        self.centre = nn.Buffer(torch.zeros(tuple(input_shape)))
        self.bounds = nn.Buffer(torch.ones(tuple(input_shape), dtype=torch.float64))
        self.units = nn.Buffer(torch.ones(tuple(input_shape), dtype=torch.float64))
        self.length = nn.Buffer(torch.ones((), dtype=torch.float64))

    def forward(self, records: Tensor) -> Tensor:
        """Return scaled records ``[B, ...]`` of records ``[B, ...]``."""
        distances = (records.double() - self.centre).clamp(-self.bounds, self.bounds)
        departures = (distances / self.units).flatten(1)
        squares = departures.square().sum(dim=1, keepdim=True)
        return (departures * (2 / (self.length**2 + squares)).sqrt()).float().reshape(records.shape)


class ScaledAndWaves(nn.Module):
    """The map of `AutoFeatures`, in double precision as there.

    Args:
        input_shape: shape of a raw record.
        num_features: number of features that bend.
    """

    def __init__(self, input_shape: Sequence[int], num_features: int) -> None:
        super().__init__()
        self.scaling = Scaling(input_shape)
        self.frequencies = nn.Buffer(torch.zeros(prod(input_shape), num_features))
        self.phases = nn.Buffer(torch.zeros(num_features, dtype=torch.float64))
        self.straight = nn.Buffer(torch.zeros(prod(input_shape), num_features))

    def forward(self, records: Tensor) -> Tensor:
        """Return scaled rows and features ``[B, F + num_features]`` of records ``[B, ...]``."""
        scaled = self.scaling(records).flatten(1)
        rows = scaled.double()
        waves = (
            sqrt(2 / max(1, len(self.phases)))
            * (rows @ self.frequencies.double() + self.phases).cos()
        )
        return torch.cat((scaled, (waves - rows @ self.straight.double()).float()), dim=1)


class Patches(nn.Module):
    """The map of `PatchFeatures`.

    Args:
        input_shape: shape of a picture.
        num_places: number of its patches.
        num_regions: number of regions.
        num_pixels: number of values in a patch.
        num_centers: number of centers.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_places: int,
        num_regions: int,
        num_pixels: int,
        num_centers: int,
    ) -> None:
        super().__init__()
        self.index = nn.Buffer(torch.zeros(num_pixels, num_places, dtype=torch.int64))
        self.regions = nn.Buffer(torch.zeros(num_places, num_regions))
        self.floor = nn.Buffer(torch.ones(()))
        self.filters = nn.Buffer(torch.zeros(num_centers, num_pixels))
        self.offsets = nn.Buffer(torch.zeros(num_centers))

    def forward(self, pictures: Tensor) -> Tensor:
        """Return features ``[B, num_centers * num_regions]`` of pictures ``[B, ...]``."""
        patches = pictures.flatten(1)[:, self.index]
        patches = patches - patches.mean(dim=1, keepdim=True)
        spread = (patches.square().mean(dim=1, keepdim=True) + self.floor).sqrt()
        likeness = self.filters @ patches / spread - self.offsets[:, None]
        return (likeness.clamp(min=0) @ self.regions).flatten(1)


@as_module.register
def _of_backbone(features: FrozenBackbone, shape: tuple[int, ...]) -> MapModule:
    network = features._network
    assert network is not None, "fit comes before as_module"
    # a GPU may have computed features; modules of maps are on the CPU
    return MapModule(without_weights(to_plain(features._make), network), network.cpu())


Changes = Sequence[Callable[[Tensor], Tensor]]
"""Each alters one picture ``[channels, height, width]``, like ``torchvision.transforms.v2``."""


def require_pictures(augment: Sequence[nn.Module] | None, input_shape: Sequence[int]) -> None:
    """Raise ``ValueError`` if records that are not pictures are to be augmented."""
    require(
        not augment or len(input_shape) == 3,
        "records of shape [channels, height, width] for augment, after any feature map",
        shape=tuple(input_shape),
    )


def augmented(pictures: Tensor, augment: Changes, *seeds: int) -> Tensor:
    """Return pictures ``[B, channels, height, width]``, each altered by itself.

    The random draws depend only on the ``seeds``, and torch's own generator is left as it was.

    Raises ``ValueError`` if the shape of a picture is changed.
    """
    state = np.random.SeedSequence(seeds).generate_state(1, np.uint64)[0] >> np.uint64(1)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(state))
        altered = [reduce(lambda each, alter: alter(each), augment, p) for p in pictures]
    shape = tuple(pictures.shape[1:])
    for picture in altered:
        require(
            picture.shape == shape,
            f"augment that leaves pictures in shape {shape}",
            shape=tuple(picture.shape),
        )
    return torch.stack(altered).to(pictures.dtype)
