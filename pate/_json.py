"""JSON that others may have written: each key of an object once, and no deeper than can be read."""

from __future__ import annotations

import json
from typing import Any

from pate._validation import expect_distinct


def read_json(text: str | bytes) -> Any:
    """Return the content of a JSON text.

    Raises:
        ValueError: if it is no JSON, or a key occurs twice in an object: readers would differ in what it says.
    """
    try:
        return json.loads(text, object_pairs_hook=distinct_keys)
    except RecursionError:
        raise ValueError("Expected JSON that is nested less deeply") from None


def distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON, an ``object_pairs_hook``. Raises ``ValueError`` if a key occurs twice."""
    content = dict(pairs)
    if len(content) < len(pairs):
        expect_distinct("keys of an object", (name for name, _ in pairs))
    return content
