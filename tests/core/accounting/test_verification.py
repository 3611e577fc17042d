"""The verification of a ledger: figures and filters that do not follow are noticed."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pate._core.accounting import ledger as _ledger
from pate._core.accounting.charges import Events
from pate.accounting import Ledger, LedgerHead, verify_ledger
from tests.core.accounting.ledgers import (
    BUDGET,
    ONE_LINE,
    bodies,
    filled,
    forge,
    gaussian,
    require_stop,
    reserve,
    stable,
)


@pytest.mark.parametrize("field", ["count", "extra budget"])
def test_figures_that_do_not_follow_from_the_events_are_noticed(path: Path, field: str) -> None:
    """A forger who knows the digests still has to make the figures fit."""

    ledger = filled(path)
    with closing(sqlite3.connect(path)) as connection:
        rows = [
            json.loads(body) for (body,) in connection.execute("SELECT body FROM log ORDER BY row")
        ]
    if field == "count":
        rows[-2]["count"] = 10**6  # beyond the budget
    else:
        rows.append(rows[0])
    forged = path.with_name("forged.sqlite")
    Ledger(forged)
    with closing(sqlite3.connect(forged, isolation_level=None)) as connection:
        head = LedgerHead()
        for body in rows:
            head = _ledger.append_row(connection, head, json.dumps(body))
    with pytest.raises(ValueError, match=ONE_LINE):
        verify_ledger(forged)
    assert len(verify_ledger(path).entries) == len(ledger.entries())


def scaled(factor: float) -> Callable[[float], float]:
    return lambda value: value * factor


@pytest.mark.parametrize(
    ("events", "part", "changes"),
    [
        (stable(), "filter", {"max_rdp": 1e6}),
        (stable(), "filter", {"max_rdp": scaled(1 + 1e-9)}),
        (stable(), "filter", {"order": scaled(2)}),
        (gaussian(60), "filter", {"max_mu_squared": 1e6}),
        (gaussian(60), "filter", {"max_mu_squared": scaled(1 + 1e-9)}),
        *(
            (events, part, changes)
            for events in (stable(), gaussian(60))
            for part, changes in (
                ("filter", {"max_delta0": 1.1e-7}),
                ("filter", {"max_delta0": 1e-6}),
                ("filter", {"max_delta0": 1.0}),
                ("budget", {"max_epsilon": 8.0}),
                ("budget", {"delta": 1e-5}),
                ("budget", {"max_delta0": 1e-8}),
                ("budget", {"neighboring_relation": "nobody"}),
            )
        ),
    ],
)
def test_a_filter_that_does_not_follow_from_its_budget_stops(
    path: Path, events: Events, part: str, changes: dict[str, Any]
) -> None:
    reserve(Ledger(path), events, 1, BUDGET)
    rows = bodies(path)
    verify_ledger(forge(path.with_name("same"), rows))
    for field, value in changes.items():
        rows[0][part][field] = value(rows[0][part][field]) if callable(value) else value
    require_stop(forge(path.with_name("forged"), rows))


@pytest.mark.parametrize("number", [1, 3, 5])
def test_the_first_release_beyond_a_budget_is_named(path: Path, number: int) -> None:
    ledger = Ledger(path)
    for _ in range(5):
        reserve(ledger, gaussian(60), 1, BUDGET)
    rows = bodies(path)
    verify_ledger(forge(path.with_name("same"), rows))
    rows[number]["count"] = 10**6
    with pytest.raises(
        ValueError, match=rf"^Expected row {number + 1} of [^\n]* to be within the budget\. "
    ):
        verify_ledger(forge(path.with_name("forged"), rows))
