"""Class paths that mean one class."""

from __future__ import annotations

from typing import Any


def same_class(old: Any, new: Any) -> bool:
    """Return whether two settings are paths to one class of the package, such as that of its room and of its module."""
    paths = [each.split(".") for each in (old, new) if isinstance(each, str) and each.startswith("pate.")]
    return len(paths) == 2 and paths[0][-1] == paths[1][-1]
