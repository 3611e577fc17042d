"""Networks as plain data: the class path and settings that make one, and the network that they make."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser
from torch import nn

from pate.networks import make_network
from pate.runs import Json
from pate.validation import expect

_WITHOUT_WEIGHTS = "settings_without_weights"


def without_weights(settings: Json | str, network: nn.Module) -> Json | str:
    """Return settings that make the layers of ``network`` and read no weights from elsewhere while they do.

    A network whose constructor reads weights from a file or downloads them has a mapping ``settings_without_weights``
    of the arguments to be replaced. Settings of any other network are returned as they are.
    """
    bare = getattr(network, _WITHOUT_WEIGHTS, None)
    if not isinstance(bare, dict):
        return settings
    whole: Json = {"class_path": settings} if isinstance(settings, str) else settings
    return whole | {"init_args": (whole.get("init_args") or {}) | bare}


def restored_network(settings: Json | str, *shape: Any) -> nn.Module:
    """Return the network of ``settings``, its class path and arguments as a configuration has them.

    Args:
        settings: a class path with arguments, or the path alone.
        shape: what the network is made for: the shape of a sample, and the number of labels if it has any.

    Raises:
        ValueError: in one line, if the class cannot be imported here or does not take these settings.
    """
    path = settings if isinstance(settings, str) else str(settings.get("class_path"))
    here = "to be found here (install its package, or add its folder to PYTHONPATH)"
    expect(_imported(path) is not None, f"the network {path} {here}", missing=path)
    parser = ArgumentParser(exit_on_error=False)
    kind = Callable[[tuple[int, ...]], nn.Module] if len(shape) == 1 else Callable[[tuple[int, ...], int], nn.Module]
    parser.add_argument("--network", type=kind)
    try:
        factory = parser.instantiate(parser.parse_object({"network": settings})).network
        network: nn.Module = make_network(factory, *shape) if len(shape) == 2 else factory(*shape)
    except (ArgumentError, TypeError, ImportError, OSError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"Expected a network {path} that takes the settings it was saved with, got {reason}") from None
    return network


def _imported(path: str) -> Any:
    """Return what a dotted path names, or None if nothing of that name can be imported."""
    words = path.split(".")
    for number in range(len(words) - 1, 0, -1):
        try:
            found: Any = import_module(".".join(words[:number]))
        except (ImportError, ValueError):
            continue
        for word in words[number:]:
            found = getattr(found, word, None)
        return found
    return None
