"""Careful reading of JSON that others may have written: bounded depth, distinct keys."""

import json
from typing import Any

from pate._validation import require, require_distinct

Json = dict[str, Any]

_DEEPEST = 100  # objects and lists within each other
_MOST_DIGITS = 308  # of a whole number that fits a float


def read_json(text: str | bytes) -> Any:
    """Return the content of a JSON text.

    Raises:
        ValueError: if it is not JSON, is nested too deeply, holds a whole number beyond the range
            of floats, or repeats a key in an object, which readers would interpret differently.
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
    """Return an object of JSON; raise ``ValueError`` if a key occurs twice.

    It serves as the ``object_pairs_hook`` of `json.loads`.
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
    """Return the objects and lists in a list or an object."""
    if isinstance(content, dict):
        content = content.values()
    elif not isinstance(content, list):
        return []
    return [part for part in content if isinstance(part, dict | list)]
