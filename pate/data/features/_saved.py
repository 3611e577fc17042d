"""Fitted feature maps as arrays that leave with a student."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from numpy.typing import NDArray

from pate._files import Json
from pate._registry import find
from pate._validation import require
from pate.data._records import FeatureMap
from pate.data.features._public_pca import PublicPCA
from pate.data.features._public_scaling import PublicScaling
from pate.data.features._random_features import AutoFeatures, RandomFeatures

_MODULES = "pate.data.features._modules"
"""The room of the torch modules that map as feature maps do."""

MapSettings: TypeAlias = Json | str | list[Json]
"""Class path and arguments of a module, or only its path; or those of each part of a chain."""

MapInNumpy: TypeAlias = PublicScaling | PublicPCA | RandomFeatures
_IN_NUMPY: dict[str, type[MapInNumpy]] = {
    f"{_MODULES}.Scaling": PublicScaling,
    f"{_MODULES}.Projection": PublicPCA,
    f"{_MODULES}.Waves": RandomFeatures,
    f"{_MODULES}.ScaledAndWaves": AutoFeatures,
}
"""The maps that need no torch, by the modules that map as they do."""


class SavedMap(NamedTuple):
    """A fitted feature map as data.

    Attributes:
        settings: class path and arguments of the torch module that maps as the map does.
        state: its arrays, or tensors of a network, by their names in that module.
    """

    settings: MapSettings
    state: Mapping[str, Any]


def save_map(features: FeatureMap, shape: tuple[int, ...]) -> SavedMap:
    """Return a fitted map as data.

    Args:
        features: the map.
        shape: shape of a raw record.

    Raises:
        ValueError: in one line, if nothing says how a map of this class is a module.
    """
    path = next((path for path, kind in _IN_NUMPY.items() if type(features) is kind), None)
    if path is None:
        made = find("as_module")(features, shape)
        return SavedMap(made.settings, made.module.state_dict())
    assert isinstance(features, MapInNumpy)
    arguments = features.module_arguments
    settings = {"class_path": path, "init_args": arguments} if arguments else path
    return SavedMap(settings, features.state(shape))


def needs_torch(settings: MapSettings | None) -> bool:
    """Return whether the map of `SavedMap.settings`, None for none, maps by torch."""
    return settings is not None and _path(settings) not in _IN_NUMPY


def restore_map(
    settings: MapSettings, state: Mapping[str, NDArray[Any]], shape: tuple[int, ...]
) -> MapInNumpy:
    """Return the map that `save_map` described and that needs no torch.

    Args:
        settings: as in `SavedMap`.
        state: its arrays.
        shape: shape of a raw record.

    Raises:
        ValueError: in one line, if the arrays are not those of such a map.
    """
    kind = _IN_NUMPY[_path(settings)]
    try:
        made = kind.restored(state)
        expected = {name: values.shape for name, values in made.state(shape).items()}
    except (KeyError, IndexError, ValueError) as error:
        expected = {"error": (str(error),)}
    found = {name: values.shape for name, values in state.items()}
    require(found == expected, f"the arrays of {kind.__name__}", arrays=found)
    return made


def _path(settings: MapSettings) -> str:
    return str(settings.get("class_path")) if isinstance(settings, dict) else str(settings)
