"""Ledgers for tests: events to reserve, filled files, and rows that are forged."""

import json
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from pate._core.accounting import ledger as _ledger
from pate._core.accounting.charges import Events
from pate.accounting import (
    BoundedRangeEvent,
    Budget,
    ComposedEvent,
    Event,
    GaussianEvent,
    Ledger,
    LedgerHead,
    NeighboringRelation,
    StabilityTestEvent,
    read_ledger,
    verify_ledger,
)
from tests.statements import RECORDS

REPLACE, TEACHER = NeighboringRelation.REPLACE_RECORD, NeighboringRelation.ADD_REMOVE_TEACHER
ONE_LINE = r"^Expected [^\n]*$"


def gaussian(noise_multiplier: float) -> Events:
    return {
        REPLACE: GaussianEvent(noise_multiplier=noise_multiplier / 2, neighboring_relation=REPLACE),
        TEACHER: GaussianEvent(noise_multiplier=noise_multiplier, neighboring_relation=TEACHER),
    }


def stable(scale_gap: float = 40.0, sigma: float = 60.0) -> Events:
    def event(relation: NeighboringRelation) -> Event:
        choice = BoundedRangeEvent(
            eta=2 * relation.score_range / scale_gap, neighboring_relation=relation
        )
        test = StabilityTestEvent(
            sigma=sigma, delta_test=1e-9, shift=2, num_teachers=50, neighboring_relation=relation
        )
        return ComposedEvent(events=(choice, test))

    return {relation: event(relation) for relation in NeighboringRelation}


BUDGET = Budget(max_epsilon=2.0, delta=1e-6, neighboring_relation=REPLACE)
NO_TESTS = Budget(max_epsilon=2.0, delta=1e-6, neighboring_relation=REPLACE, max_delta0=0.0)


def reserve(
    ledger: Ledger, events: Events, count: int, budget: Budget | None = None, **options: Any
) -> int:
    named: dict[str, Any] = {
        "run": "run",
        "description": "test",
        "seeded": False,
        "privacy_unit": RECORDS,
    }
    return ledger.reserve(events, count=count, budget=budget, **named | options)


def refused(ledger: Ledger, events: Events, count: int, budget: Budget | None = None) -> str | None:
    """Reserve, and return why that was refused."""
    try:
        reserve(ledger, events, count, budget)
    except ValueError as error:
        return str(error)
    return None


@cache
def _filled() -> bytes:
    with TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "ledger.sqlite")
        for i in range(40):
            ledger.settle(reserve(ledger, gaussian(200 + i), 1 + i, BUDGET))
        return ledger.path.read_bytes()


def filled(path: Path) -> Ledger:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_filled())
    return Ledger(path)


def require_stop(path: Path) -> None:
    before = path.read_bytes() if path.is_file() else None
    for use in (Ledger, read_ledger, verify_ledger):
        with pytest.raises(ValueError, match=ONE_LINE):
            use(path)
    assert before is None or path.read_bytes() == before


def forge(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows with digests that fit."""
    Ledger(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        head = LedgerHead()
        for body in rows:
            head = _ledger.append_row(connection, head, json.dumps(body))
    return path


def bodies(path: Path) -> list[dict[str, Any]]:
    """Return what the rows say."""
    with closing(sqlite3.connect(path)) as connection:
        return [
            json.loads(body) for (body,) in connection.execute("SELECT body FROM log ORDER BY row")
        ]
