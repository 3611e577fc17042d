"""Verification of a ledger by computing everything in it again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pate._validation import FloatArray, require
from pate.accounting import _log as log
from pate.accounting._budget import Budget
from pate.accounting._charges import Totals, as_cost
from pate.accounting._cost import DEFAULT_ORDERS
from pate.accounting._filters import PrivacyFilter, refuse, require_filter_of_first
from pate.accounting._history import History, LedgerSnapshot, orders_of_sums, restrict_to_filter
from pate.accounting._log import LedgerHead

_BLOCK = 128  # changes verified at once


def verify_ledger(path: Path) -> LedgerSnapshot:
    """Return the content of the ledger at ``path`` after computing everything in it again.

    Every reader checks the file, the chain of digests and the form of events. In addition, all
    releases pass through the filter again.

    Raises:
        ValueError: at the first figure that does not follow from the events.
    """
    path = Path(path)
    require(path.is_file(), "a ledger", path=str(path))
    verifier = _Verifier(path)
    with log.opened(path, writable=False) as connection:
        log.require_final(connection, path)
        for text, digest in log.rows_after(connection, LedgerHead(), path):
            verifier.take(text, digest)
    verifier.check(verifier.history.filter)
    return verifier.history.snapshot()


class _Verifier:
    """Computes the figures in the rows of a ledger again, block by block."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.history = History()
        self._totals = Totals(DEFAULT_ORDERS)
        self._rows: list[int] = []
        self._changes: list[tuple[str, int]] = []
        self._ends: list[int] = []  # of the changes by each release

    def take(self, text: str, digest: str) -> None:
        """Process the next row.

        Raises ``ValueError`` if it, or one before it, does not follow from the events.
        """
        releases, bounds = len(self.history.entries), self.history.filter
        self._changes += self.history.fold_row(text, digest, self.path)
        if len(self.history.entries) > releases:
            self._rows.append(self.history.head.rows)
            self._ends.append(len(self._changes))
        declared = self.history.filter
        if declared is not None and bounds is None:
            self.check(None)
            self._require_begun_within(declared)
            assert self.history.budget is not None
            reach = self.history.budget.max_teachers_per_unit
            self._totals = self._totals.on_orders(orders_of_sums(declared), reach)
        elif len(self._changes) >= _BLOCK:
            self.check(declared)

    def _require_begun_within(self, bounds: PrivacyFilter) -> None:
        """Raise ``ValueError`` unless ``bounds`` follow from release 1 and admit all before it."""
        budget, entries = self.history.budget, self.history.entries
        assert budget is not None
        reach, row = budget.max_teachers_per_unit, f"row {self.history.head.rows} of {self.path}"
        if entries:
            first = entries[0].events[budget.neighboring_relation].for_group_size(reach)
            require_filter_of_first(bounds, budget, first.cost())
        reserved = self.history.reserved(orders_of_sums(bounds), reach)
        _require_admitted(reserved[None], budget, bounds, [row])

    def check(self, bounds: PrivacyFilter | None) -> None:
        """Raise ``ValueError`` unless ``bounds`` admit all new sums."""
        if self._changes:
            sums = self._totals.add_each(self._changes)
            if self._ends:
                rows = [f"row {row} of {self.path}" for row in self._rows]
                if self.history.budget is not None and bounds is not None:
                    _require_admitted(
                        sums[np.array(self._ends) - 1], self.history.budget, bounds, rows
                    )
        self._rows, self._changes, self._ends = [], [], []


def _require_admitted(
    after_each: FloatArray, budget: Budget, bounds: PrivacyFilter, rows: Sequence[str]
) -> None:
    """Raise ``ValueError`` unless ``bounds`` admit the sums after each release."""
    relation = budget.neighboring_relation
    # bounds that admit the elementwise largest of all sums admit each of them
    if bounds.admits(restrict_to_filter(as_cost(after_each.max(axis=0), relation), bounds)):
        return
    for values, row in zip(after_each, rows, strict=True):
        total = restrict_to_filter(as_cost(values, relation), bounds)
        if not bounds.admits(total):
            try:
                refuse(budget, bounds, total)
            except ValueError as error:
                raise ValueError(f"Expected {row} to be within the budget. {error}") from None
