"""The construction of networks, by a class of this package or any factory with a label count."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pate._core.validation import require

if TYPE_CHECKING:
    from torch import nn

LINEAR = "pate.models.Linear"
"""The path of the network that is solved in closed form."""


def is_linear(settings: Any) -> bool:
    """Return whether a network's settings name `LINEAR`, as a recipe has them or as the path."""
    if isinstance(settings, dict):
        known = settings.keys() <= {"class_path", "init_args"}
        settings = settings.get("class_path") if known and not settings.get("init_args") else None
    return settings in (LINEAR, LINEAR.removeprefix("pate."))


def make_network(
    make: "Callable[..., nn.Module]", input_shape: tuple[int, ...], num_labels: int
) -> "nn.Module":
    """Return a new network for an input shape and a number of labels.

    A function such as torchvision and timm have, which asks for no such arguments but takes
    ``num_classes``, is given the number of labels by that name: its own first argument is something
    else, often weights to be downloaded.

    Args:
        make: a class or function that takes both, or a function that takes ``num_classes``.
        input_shape: the shape of a record.
        num_labels: the number of labels.

    Raises:
        ValueError: if a single network is given, which all teachers would share, or if none is made
            of these arguments.
    """
    require_factory(make)
    try:
        network = (
            make(num_classes=num_labels) if _takes_classes(make) else make(input_shape, num_labels)
        )
    except (TypeError, RuntimeError) as error:
        # one that takes other arguments fails in whatever it does with these
        raise ValueError(
            f"Expected a network of (input_shape, num_labels) = ({input_shape}, {num_labels}), got"
            f" {type(error).__name__}: {' '.join(str(error).split())[:200]}"
        ) from error
    require(
        hasattr(network, "state_dict"),
        f"a network made by {getattr(make, '__name__', None) or type(make).__name__}",
        network=type(network).__name__,
    )
    return network


def require_factory(make: "Callable[..., nn.Module]") -> None:
    """Raise ``ValueError`` if a network is given in place of its class or factory."""
    # a network can also be called, with records
    shared = hasattr(make, "state_dict") and not isinstance(make, type)
    require(
        not shared,
        "something that makes a network; with settings, pate.models.Factory",
        network=f"a network that is made, {type(make).__name__}",
    )


def _takes_classes(make: Callable[..., Any]) -> bool:
    """Return whether a function takes ``num_classes`` by name and needs at most one argument."""
    if not inspect.isfunction(make):
        return False
    parameters = inspect.signature(make).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    by_name = any(p.name == "num_classes" or p.kind is p.VAR_KEYWORD for p in parameters)
    return by_name and sum(p.default is p.empty for p in positional) < 2
