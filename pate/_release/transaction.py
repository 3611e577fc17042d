"""The one way in which anything private is published: prepared, reserved, drawn, settled, stated.

A release that is killed at any step goes on when the same is asked for again: it pays once and
draws the same noise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pate._files.writing import output_errors, write_json, write_text
from pate._progress import step_bar
from pate._release.pending import PendingRelease, delete_other_seeds, destroy, pending_release
from pate.accounting import NeighboringRelation, Statement
from pate.accounting._budget import Budget, BudgetExceededError
from pate.accounting._charges import Charge, Events, for_group_size, require_delta_beyond_tests
from pate.accounting._filters import affordable
from pate.accounting._history import History, LedgerEntry, LedgerSnapshot
from pate.accounting._ledger import Ledger, read_ledger, require_payable
from pate.mechanisms._noise import draw_key, private_generator, seeded_generator


@dataclass(frozen=True, kw_only=True)
class ReservationRequest:
    """What a publication asks of the ledger before its noise is drawn.

    Attributes:
        ledger: the ledger of the private data, opened for units that reach as many teachers as is
            declared.
        events: the cost of one query under each relation.
        count: the largest number of queries that may be answered.
        relation: the relation of the guarantee that comes first.
        delta: the delta of the statement.
        budget: the limit on all releases of the ledger together, or None.
        run: the run that asks, in the words of the ledger.
        description: what is released, in the words of the ledger.
    """

    ledger: Ledger
    events: Events
    count: int
    relation: NeighboringRelation
    delta: float
    budget: Budget | None
    run: str
    description: str


@dataclass(frozen=True, kw_only=True)
class ReleaseOutcome:
    """What a release published, and what it cost in the end.

    Attributes:
        published: what its statement says beside costs, by the keys of the statement, with the
            file's ``sha256``.
        realised: what it cost; None for what was reserved.
    """

    published: Mapping[str, Any]
    realised: Sequence[Charge] | None = None


class Releasable(ABC):
    """What is to be released: one kind of file, with its statement.

    Attributes:
        file: the released file.
        statement_file: the ``.json`` of the statement; its text is beside it.
        seeds: the folder in which the seeds of releases under way are kept. PRIVATE.
        noise_seed: a seed in place of private noise, for tests; None for noise.
        replaces_earlier: whether a later release takes the place of an earlier one, as the labels
            of a run do: its seed is then the only one in its folder, and its statement is made anew
            on all that the ledger holds by then.
    """

    file: Path
    statement_file: Path
    seeds: Path
    noise_seed: int | None
    replaces_earlier: ClassVar[bool] = False

    @abstractmethod
    def request_digest(self) -> str:
        """Return a digest of everything that determines the answer, except the noise. PRIVATE."""

    @abstractmethod
    def prepared(
        self, pending: PendingRelease, generator: np.random.Generator
    ) -> AbstractContextManager[ReservationRequest]:
        """Return a context that lasts until the noise is drawn, and has the terms.

        Whatever can fail is tried when it is entered, before anything is spent.
        """

    @abstractmethod
    def draw(self, release: int, generator: np.random.Generator) -> None:
        """Draw the noise of the release of that number."""

    @abstractmethod
    def settlement(self, entry: LedgerEntry) -> ReleaseOutcome:
        """Return what came of the release that the ledger holds as ``entry``."""

    def publish(self) -> None:  # noqa: B027 (labels need none)
        """Write what must not be seen before its statement."""


def release(publication: Releasable) -> Statement:
    """Make a release, or go on with one that was killed, and return its statement.

    Raises:
        ValueError: if it cannot be prepared, or the ledger cannot pay for it; nothing is spent
            then.
    """
    with step_bar(4, "release") as bar:
        pending = pending_release(publication.seeds, publication.request_digest(), draw_key())
        generator, seed = private_generator(pending.key), publication.noise_seed
        if seed is not None:
            generator = seeded_generator(seed)
        bar.update()
        with publication.prepared(pending, generator) as terms:
            number = _reserve(publication, terms, pending)
            if publication.replaces_earlier:
                delete_other_seeds(pending)
            if seed is not None:
                generator = seeded_generator(seed, release=number)
            bar.update()
            publication.draw(number, generator)
            bar.update()
        statement = write_statement(publication, terms.ledger, number)
        bar.update()
    return statement


def write_statement(publication: Releasable, ledger: Ledger, release: int) -> Statement:
    """Settle a release whose noise is drawn, write and return its statement, and destroy the seed of its noise.

    Repeating it pays for nothing, and draws nothing.

    Raises:
        ValueError: if the files cannot be written, or the release was settled as another file.
    """
    entry = ledger.entries()[release - 1]
    settlement = publication.settlement(entry)
    head = ledger.settle(release, realised=settlement.realised, published=settlement.published)
    # a statement that is not made anew leaves out whatever others add meanwhile
    book = (
        ledger.snapshot()
        if publication.replaces_earlier
        else read_ledger(ledger.path, rows=head.rows)
    )
    statement = Statement.of(book, release)
    with output_errors(publication.file):
        write_json(publication.statement_file, statement.content)
        write_text(publication.statement_file.with_suffix(".txt"), statement.text)
        publication.publish()
    destroy(publication.seeds, entry.token)
    return statement


def _reserve(publication: Releasable, terms: ReservationRequest, pending: PendingRelease) -> int:
    """Return the number of the release that is reserved with the token of ``pending``, now or before it was killed."""
    ledger, begun = terms.ledger, pending.file.is_file()
    pending.write()
    try:
        book = ledger.snapshot()
        if not any(entry.token == pending.token for entry in book.entries):
            charge = terms.events, terms.count
            _require_delta_left(
                book, charge, ledger.max_teachers_per_unit, terms.relation, terms.delta
            )
        return ledger.reserve(
            terms.events,
            count=terms.count,
            run=terms.run,
            description=terms.description,
            seeded=publication.noise_seed is not None,
            budget=terms.budget,
            delta=terms.delta,
            token=pending.token,
        )
    except ValueError as error:
        # nothing was reserved
        if not begun:
            destroy(publication.seeds, pending.token)
        charge = terms.events, terms.count
        raise _with_its_ledger(error, ledger.path, ledger.entries(), terms.budget, charge) from None


def _require_delta_left(
    book: LedgerSnapshot, charge: Charge, teachers: int, relation: NeighboringRelation, delta: float
) -> None:
    """Raise ``ValueError`` if the tests of all releases, and of one more, cost ``delta`` for the units they reach."""
    most = max(book.max_teachers_per_unit, teachers)
    require_delta_beyond_tests(
        [*book.charges(most), *for_group_size([charge], most)], relation, delta
    )


def require_payable_release(
    path: Path,
    charge: Charge,
    *,
    relation: NeighboringRelation,
    delta: float,
    budget: Budget | None,
    max_teachers_per_unit: int,
) -> None:
    """Raise ``ValueError`` if a ledger could not pay for a release that is yet to be made.

    Writes nothing.

    Args:
        path: the ledger, which may be yet to be made.
        charge: what the release will reserve.
        relation: the relation of its guarantee.
        delta: the delta of its statement.
        budget: the limit that it asks for, or None.
        max_teachers_per_unit: how many teachers one unit may reach.
    """
    book = read_ledger(path) if path.exists() else History().snapshot()
    try:
        _require_delta_left(book, charge, max_teachers_per_unit, relation, delta)
        require_payable(
            path, charge, budget=budget, delta=delta, max_teachers_per_unit=max_teachers_per_unit
        )
    except ValueError as error:
        raise _with_its_ledger(error, path, book.entries, budget, charge) from None


def _with_its_ledger(
    error: ValueError,
    path: Path,
    entries: Sequence[LedgerEntry],
    budget: Budget | None,
    charge: Charge,
) -> ValueError:
    """Return the error with its ledger and, if earlier releases use up the budget, the runs that made them."""
    earlier = sorted({entry.run for entry in entries})
    if not (isinstance(error, BudgetExceededError) and earlier):
        return error if str(path) in str(error) else ValueError(f"{error} ({path})")
    # where the release alone is too much, other data are no way out
    alone = True
    if budget is not None:
        events, count = charge
        once = (
            events[budget.neighboring_relation].for_group_size(budget.max_teachers_per_unit).cost()
        )
        alone = affordable(budget, once) >= count
    ways = "ask for less, take other data" if alone else "ask for less"
    return ValueError(
        f"{error}. The ledger {path} counts what runs on these private data released before ({', '.join(earlier)}),"
        f" deleted ones too: {ways} or, if the records are nobody's, as drawn faces are, delete it to begin anew"
    )
