"""Labels with their statement, and what it says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from pate._release.ledger_file import ledger_scope
from pate._runs import Json, Run, first_stage, labels_file
from pate._runs.released import ReleasedLabels
from pate._version import __version__
from pate.accounting._statement import Statement, sha256


@dataclass(frozen=True, kw_only=True, eq=False)
class StatedLabels(ReleasedLabels):
    """Released labels with the statement of what they and all earlier releases cost. PUBLIC.

    Attributes:
        statement: the content of ``privacy.json``; its `verify` makes it again.
    """

    statement: Statement

    def describe(self) -> str:
        """Return the statement as text, the content of ``privacy.txt``."""
        return self.statement.text


def published_facts(run: Run, released: ReleasedLabels, settled: Mapping[str, Any] | None) -> Json:
    """Return what is published of labels, by the keys of their statement, apart from the settings of the release.

    Args:
        run: the run.
        released: its labels, as they are on disk.
        settled: what the ledger has as published, if it was settled before; None if not.
    """
    settled = settled or {}
    versions = {"pate": __version__} | {name: version(name) for name in ("numpy", "scipy", "torch")}
    return {
        "kind": "labels",
        "unit": _unit(run),
        "ledger": settled.get("ledger") or ledger_scope(run),
        **{name: value for name, value in released.facts.items() if name not in ("release", "num_queries")},
        "sha256": sha256(labels_file(run)),
        "versions": settled.get("versions", versions),
    }


def _unit(run: Run) -> str:
    """Return the word for what a statement on the run protects."""
    return str(run.begun(first_stage(run)).settings.get("unit", "record"))
