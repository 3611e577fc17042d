"""What a statement says of labels on disk, and whether the one that is there says so."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from pate.accounting.statement import Statement, sha256
from pate.runs import LABEL, Json, Run, first_stage, labels_file
from pate.runs.released import ReleasedLabels
from pate.stages.ledger_file import open_ledger
from pate.version import __version__


def published_facts(run: Run, released: ReleasedLabels, settled: Mapping[str, Any] | None) -> Json:
    """Return what is published of labels, by the keys of their statement, apart from the settings of the release.

    Args:
        run: the run.
        released: its labels, as they are on disk.
        settled: what the ledger has as published, if it was settled before; None if not.
    """
    versions = {"pate": __version__} | {name: version(name) for name in ("numpy", "scipy", "torch")}
    return {
        "kind": "labels",
        **_protected(run),
        **{name: value for name, value in released.facts.items() if name not in ("release", "num_queries")},
        "sha256": sha256(labels_file(run)),
        "versions": (settled or {}).get("versions", versions),
    }


def _protected(run: Run) -> Json:
    """Return whom a statement on the run protects, and which releases its ledger counts, by the statement's keys."""
    begun = run.state(first_stage(run))
    assert begun is not None, "teachers or their votes come before labels"
    return {
        "unit": str(begun["config"].get("unit", "record")),
        "ledger": "run" if run.ledger is None else "private data",
    }


def is_stated(run: Run, released: ReleasedLabels) -> bool:
    """Whether the statement that is there is the one of the labels on disk, on all that the ledger holds by now."""
    path, text = (run.root / output for output in LABEL.outputs[1:])
    book, release = open_ledger(run).book(), released.release
    if not (path.is_file() and text.is_file() and release <= len(book.entries)):
        return False
    published = book.entries[release - 1].published
    if published is None or not published.items() >= _protected(run).items():
        return False
    statement = Statement.of(book, release)
    try:
        return Statement.read(path) == statement and text.read_text(encoding="utf-8") == statement.text
    except ValueError:
        return False
