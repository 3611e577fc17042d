"""Networks as settings name them: the linear one, and anything that makes one."""

from collections.abc import Callable
from typing import Any

from pate._core.validation import require

LINEAR = "pate.models.Linear"
"""The path of the network that is solved in closed form."""


def is_linear(settings: Any) -> bool:
    """Return whether a network's settings name `LINEAR`, as a recipe has them or as the path."""
    if isinstance(settings, dict):
        known = settings.keys() <= {"class_path", "init_args"}
        settings = settings.get("class_path") if known and not settings.get("init_args") else None
    return settings in (LINEAR, LINEAR.removeprefix("pate."))


def require_factory(make: Callable[..., Any]) -> None:
    """Raise ``ValueError`` if a network is given in place of its class or factory."""
    # a network can also be called, with records
    shared = hasattr(make, "state_dict") and not isinstance(make, type)
    require(
        not shared,
        "something that makes a network; with settings, pate.models.Factory",
        network=f"a network that is made, {type(make).__name__}",
    )
