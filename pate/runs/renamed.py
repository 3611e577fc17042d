"""Classes that have another name now: the old one is understood for one more version, in settings and in older runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RENAMED = {"Confident": "ConfidentScreen", "Interactive": "InteractiveScreen"}
"""The new name of each class by its old one."""

RENAMED_PATHS = {
    f"{module}.{old}": f"{module}.{new}"
    for module in ("pate.aggregators", "pate.aggregators.screens")
    for old, new in RENAMED.items()
}
"""The same of their class paths."""


_MOVED = {
    f"models.{name}": f"pate.models.{name}"
    for name in ("Linear", "MLP", "SmallCNN", "ResNet8", "ResNet50", "ResNet50Features")
}
"""The networks by the class paths that runs of earlier versions hold; the old ones are still names in the checkout."""


def same_class(old: Any, new: Any) -> bool:
    """Return whether two settings are paths to one class of the package, such as that of its room and of its module."""
    paths = [each.split(".") for each in (old, new) if isinstance(each, str) and each.startswith("pate.")]
    return len(paths) == 2 and paths[0][-1] == paths[1][-1]


def with_new_names(content: Any) -> Any:
    """Return a copy of nested settings in which every class goes by its new path."""
    if isinstance(content, Mapping):
        return {key: with_new_names(value) for key, value in content.items()}
    if isinstance(content, list):
        return [with_new_names(value) for value in content]
    return (RENAMED_PATHS | _MOVED).get(content, content) if isinstance(content, str) else content
