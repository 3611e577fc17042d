"""Deprecated names, kept for one more version; use those of `pate.data`."""

from __future__ import annotations

import warnings
from typing import Any

from pate.data import checks, records, source

_MOVED = {
    "DataModule": (source, "DataSource"),
    "located": (source, "located"),
    **{name: (records, name) for name in ("Features", "Records", "Role")},
    **{name: (checks, name) for name in ("as_text", "check_features", "check_labels", "select_labels")},
}


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place, new = _MOVED[name]
    warnings.warn(f"{__name__}.{name} is now {place.__name__}.{new}", DeprecationWarning, stacklevel=2)
    return getattr(place, new)
