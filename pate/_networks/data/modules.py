"""Fitted feature maps as torch modules, for a student used without its data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from math import prod, sqrt
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pate._core.settings import to_plain
from pate._core.validation import require
from pate._labeling.data.feature_maps import (
    MAP_MODULES,
    ChainedFeatures,
    MapInNumpy,
    MapSettings,
    save_map,
)
from pate._labeling.data.records import ArrayFeatures, FeatureMap
from pate._networks.data.datasets import FrozenBackbone, PictureTransforms
from pate._networks.settings import restored_network, without_weights


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
    """Return a fitted map as a module.

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


class Waves(nn.Module):
    """The map of `RandomFeatures`, in double precision as there.

    Args:
        input_shape: shape of a raw record.
        num_features: number of features.
    """

    def __init__(self, input_shape: Sequence[int], num_features: int) -> None:
        super().__init__()
        self.scaling = Scaling(input_shape)
        self.frequencies = nn.Buffer(torch.zeros(prod(input_shape), num_features))
        self.phases = nn.Buffer(torch.zeros(num_features, dtype=torch.float64))

    def forward(self, records: Tensor) -> Tensor:
        """Return features ``[B, num_features]`` of records ``[B, ...]``."""
        return self.waves(self.scaling(records).flatten(1))

    def waves(self, scaled: Tensor) -> Tensor:
        """Return features ``[B, num_features]`` of scaled rows ``[B, F]``."""
        return self.angular(scaled).float()

    def angular(self, scaled: Tensor) -> Tensor:
        """Return features in double precision."""
        angles = scaled.double() @ self.frequencies.double() + self.phases
        waves: Tensor = sqrt(2 / max(1, len(self.phases))) * angles.cos()
        return waves


class ScaledAndWaves(Waves):
    """The map of `AutoFeatures`, in double precision as there.

    Args:
        input_shape: shape of a raw record.
        num_features: number of features that bend.
    """

    def __init__(self, input_shape: Sequence[int], num_features: int) -> None:
        super().__init__(input_shape, num_features)
        self.straight = nn.Buffer(torch.zeros(prod(input_shape), num_features))

    def forward(self, records: Tensor) -> Tensor:
        """Return scaled rows and features ``[B, F + num_features]`` of records ``[B, ...]``."""
        scaled = self.scaling(records).flatten(1)
        return torch.cat((scaled, self.waves(scaled)), dim=1)

    def waves(self, scaled: Tensor) -> Tensor:
        """Return features ``[B, num_features]`` of scaled rows ``[B, F]``, less the straight."""
        return (self.angular(scaled) - scaled.double() @ self.straight.double()).float()


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
def _of_arrays(features: MapInNumpy, shape: tuple[int, ...]) -> MapModule:
    settings, state = save_map(features, shape)
    module = restored_network(settings, shape, trust=False)
    module.load_state_dict({name: torch.tensor(values) for name, values in state.items()})
    return MapModule(settings, module)


@as_module.register
def _of_backbone(features: FrozenBackbone, shape: tuple[int, ...]) -> MapModule:
    network = features._network
    assert network is not None, "fit comes before as_module"
    # a GPU may have computed features; modules of maps are on the CPU
    return MapModule(without_weights(to_plain(features._make), network), network.cpu())


@as_module.register
def _of_chain(features: ChainedFeatures, shape: tuple[int, ...]) -> MapModule:
    parts = [
        as_module(part, inner) for part, inner in zip(features.maps, features.shapes, strict=True)
    ]
    return MapModule(
        [
            {"map": part.settings, "shape": list(inner)}
            for part, inner in zip(parts, features.shapes, strict=True)
        ],
        nn.Sequential(*(part.module for part in parts)),
    )


class Transforms(nn.Module):
    """The transforms of `PictureTransforms`, on a batch of pictures at a time.

    Args:
        input_shape: shape of a picture.
        transforms: applied one after the other.
    """

    def __init__(self, input_shape: Sequence[int], transforms: list[nn.Module]) -> None:
        super().__init__()
        self.transforms = nn.Sequential(*transforms)

    def forward(self, pictures: Tensor) -> Tensor:
        """Return pictures ``[B, ...]`` of pictures ``[B, channels, height, width]``."""
        return self.transforms(pictures)


@as_module.register
def _of_transforms(features: PictureTransforms, shape: tuple[int, ...]) -> MapModule:
    settings = {
        "class_path": f"{MAP_MODULES}.{Transforms.__name__}",
        "init_args": {"transforms": to_plain(features.transforms)},
    }
    module = restored_network(settings, shape, trust=True)
    module.load_state_dict(Transforms(shape, features.transforms).state_dict())
    # a transform may have state beyond its attributes, and may not take several pictures at once
    pictures = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    expected = features.transform(ArrayFeatures(pictures.numpy()))[np.arange(2)]
    with torch.no_grad():
        transformed = module(pictures)
    require(
        transformed.shape == expected.shape
        and np.allclose(transformed.numpy(), expected, atol=1e-6),
        "transforms that can be rebuilt from their attributes, and that take batches",
        transforms=[type(transform).__name__ for transform in features.transforms],
    )
    return MapModule(settings, module)
