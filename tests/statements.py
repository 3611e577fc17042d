"""What ledgers hold of releases that tests make by hand, so that statements can be made of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pate
from pate._core.accounting.history import EACH
from pate.accounting import GaussianEvent, Ledger, NeighboringRelation, PrivacyUnit, Statement

RECORDS = PrivacyUnit(unit="record", partition=EACH)
"""Releases for which each record votes for itself: they add up under both relations."""
COMMON_KEYS = (
    *("$schema", "format", "kind", "private", "release", "neighboring_relation", "guarantees"),
    *("this_release",),
    *("costs", "reach", "budget", "budget_unit", "filter", "declared_after"),
    *("num_queries", "delta", "unit", "max_teachers_per_unit", "ledger", "releases"),
)
"""The keys of a statement, whatever was released."""
PUBLISHED: dict[str, Any] = {
    "kind": "labels",
    "neighboring_relation": "replace_record",
    "delta": 1e-6,
    "unit": "record",
    "max_teachers_per_unit": 1,
    "num_teachers": 100,
    "num_labels": 9,
    "aggregator": {"class_path": "pate.aggregators.StableTopK", "init_args": {"scale_gap": 30.0}},
    "ledger": "private data",
    "num_answered": 31,
    "sha256": "0" * 64,
    "versions": {"pate": pate.__version__},
}


def made_statement(folder: Path) -> Statement:
    """Return the statement of one release by a ledger in a folder."""
    events = {
        relation: GaussianEvent(noise_multiplier=40.0, neighboring_relation=relation)
        for relation in NeighboringRelation
    }
    ledger = Ledger(folder / "ledger.sqlite")
    release = ledger.reserve(
        events, count=7, run="one", description="NoisyVotes", seeded=False, privacy_unit=RECORDS
    )
    ledger.settle(release, published=PUBLISHED)
    return Statement.of(ledger.snapshot(), release)


def edits(content: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all edits of plain JSON: another value, a key or an item left out, a key that nobody
    knows."""
    if isinstance(content, dict):
        yield f"{place}.epsilon_of_nobody", content | {"epsilon_of_nobody": 0.1}
        for key, value in content.items():
            yield (
                f"{place}.{key} left out",
                {name: kept for name, kept in content.items() if name != key},
            )
            for where, edited in edits(value, f"{place}.{key}"):
                yield where, content | {key: edited}
    elif isinstance(content, list):
        yield f"{place} longer", [*content, *(content[-1:] or [0.1])]
        for i, value in enumerate(content):
            yield f"{place}[{i}] left out", content[:i] + content[i + 1 :]
            for where, edited in edits(value, f"{place}[{i}]"):
                yield where, [*content[:i], edited, *content[i + 1 :]]
    elif isinstance(content, bool):
        yield place, not content
    elif isinstance(content, int | float):
        yield place, content + 1
        if content:
            yield place, content * 0.5
        yield place, None
    elif isinstance(content, str):
        yield place, content + "x"
    else:
        yield place, 0.1
