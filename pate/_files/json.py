"""JSON that others may have written: each key of an object once, no deeper and no larger than can be read."""

from __future__ import annotations

import json
from typing import Any

from pate._validation import require, require_distinct

Json = dict[str, Any]

_DEEPEST = 100  # objects and lists within each other
_MOST_DIGITS = 308  # of a whole number that a float holds


def read_json(text: str | bytes) -> Any:
    """Return the content of a JSON text.

    Raises:
        ValueError: if it is no JSON, is nested too deeply for its readers, holds a whole number
            that no float holds, or has a key twice in an object: readers would differ in what it
            says.
    """
    try:
        content = json.loads(text, object_pairs_hook=distinct_keys, parse_int=_whole_number)
    except RecursionError:
        raise ValueError(f"Expected JSON of at most {_DEEPEST} levels, got more") from None
    level, depth = [content], 1
    while level := [item for part in level for item in _parts(part)]:
        depth += 1
        require(depth <= _DEEPEST, f"JSON of at most {_DEEPEST} levels")
    return content


def distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON, an ``object_pairs_hook``.

    Raises ``ValueError`` if a key occurs twice.
    """
    content = dict(pairs)
    if len(content) < len(pairs):
        require_distinct("keys of an object", (name for name, _ in pairs))
    return content


def _whole_number(digits: str) -> int:
    require(
        len(digits.lstrip("-")) <= _MOST_DIGITS,
        f"whole numbers of at most {_MOST_DIGITS} digits",
    )
    return int(digits)


def _parts(content: Any) -> list[Any]:
    """Return the objects and lists in a list, or in an object."""
    inside = (
        content.values()
        if isinstance(content, dict)
        else content
        if isinstance(content, list)
        else ()
    )
    return [part for part in inside if isinstance(part, dict | list)]
