"""The only way to publish anything private: prepared, reserved, drawn, settled, stated.

It begins with the largest delta that still promises something.

A release that is killed at any step continues when it is requested again: it pays once and draws
the same noise. Before it is reserved, its token and the seed of its noise are written to a file
named by a digest of the request. The same command finds that file: the token leads to its
reservation in the ledger, the seed to its noise. A seed serves one request on the same votes: no
two requests ever share noise. These files are PRIVATE.
"""

import json
import math
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pate._core.accounting.charges import (
    Budget,
    BudgetExceededError,
    Charge,
    Events,
    affordable,
    for_group_size,
    require_delta_beyond_tests,
)
from pate._core.accounting.cost import NeighboringRelation
from pate._core.accounting.history import LedgerEntry, LedgerSnapshot, PrivacyUnit
from pate._core.accounting.ledger import Ledger, read_ledger, require_payable
from pate._core.accounting.statement import Statement
from pate._core.files.reading import load_json, read_text
from pate._core.files.writing import (
    atomic_write,
    output_errors,
    sync_folder,
    write_json,
    write_text,
)
from pate._core.mechanisms.noise import KEY_BITS, draw_key, private_generator, seeded_generator
from pate._core.validation import (
    MOST_VOTERS,
    explain_os_error,
    require,
    require_in_open_unit_interval,
    step_bar,
)

LARGEST_DELTA = 1e-3


def suited_delta(num_units: int) -> float:
    """Return the power of ten at or below a tenth of one over the number of private units.

    >>> suited_delta(80_000)
    1e-06
    """
    return min(LARGEST_DELTA, 10.0 ** math.floor(-math.log10(10 * num_units)))


def require_promise(delta: float, *, num_units: int | None = None) -> None:
    """Raise ``ValueError`` unless a guarantee at ``delta`` protects every private unit.

    A mechanism that publishes one of N units, drawn at random, is private at epsilon 0 and delta
    1/N.

    Args:
        delta: the delta of a release or of a budget.
        num_units: the number of units if it is public: nominal teachers, or the records of a plan.
            The number of private records is not public, and decides nothing.
    """
    require_in_open_unit_interval(delta=delta)
    require(
        delta <= LARGEST_DELTA, f"delta <= {LARGEST_DELTA:g}, which promises something", delta=delta
    )
    # MOST_VOTERS stands for a private number
    if num_units is not None and num_units < MOST_VOTERS:
        require(
            delta * num_units < 1,
            f"delta < 1 / {num_units}, one over the public number of teachers or records",
            delta=delta,
        )


class UnfinishedReleaseError(ValueError):
    """A release was begun, and may be paid for. The same request goes on, and pays once."""


@contextmanager
def unfinished(begun: Callable[[], bool], folder: Path) -> Iterator[None]:
    """Turn an error of a release that was ``begun`` into one line of `UnfinishedReleaseError`.

    Args:
        begun: whether the release may be paid for. It counts as begun if that cannot be read.
        folder: the folder of files whose names are PRIVATE, and not told.
    """
    try:
        yield
    except (ValueError, OSError, MemoryError, RuntimeError) as error:
        if isinstance(error, OSError) and Path(str(error.filename)).parent == folder:
            error.filename = str(folder)
        line = explain_os_error(error) or (str(error) if isinstance(error, ValueError) else None)
        if line is None or isinstance(error, UnfinishedReleaseError) or not _holds(begun):
            raise
        raise UnfinishedReleaseError(
            f"{line}. The outcome is unknown, and may be paid for: the same command asks the ledger"
            " again, and pays once"
        ) from error


def _holds(begun: Callable[[], bool]) -> bool:
    try:
        return begun()
    except (ValueError, OSError):
        return True


@dataclass(frozen=True)
class PendingRelease:
    """A release under way.

    Attributes:
        file: its file, of mode 0600.
        token: the token of its reservation in the ledger.
        key: the key of its noise.
    """

    file: Path
    token: str
    key: int = field(repr=False)

    def write(self) -> None:
        """Write the file, unless it exists, to a folder of mode 0700. It is on disk on return.

        Raises:
            ValueError: if it cannot be written.
        """
        if self.file.is_file():
            return
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.file.parent.chmod(0o700)  # also an existing folder
            with atomic_write(self.file, "w") as file:
                os.fchmod(file.fileno(), 0o600)
                json.dump({"token": self.token, "key": f"{self.key:x}"}, file)
            # a reservation must never outlive the only way to find it
            sync_folder(self.file.parent)
        except OSError as error:
            # the name of the file is a digest of PRIVATE data
            raise ValueError(
                f"Expected a folder for releases under way, got {self.file.parent}"
                f" ({error.strerror})"
            ) from None


def pending_release(folder: Path, request_digest: str, key: int) -> PendingRelease:
    """Return the release under way of the same request, or else a new one, not yet written.

    Args:
        folder: the folder of releases under way.
        request_digest: a digest of everything that determines the answers, except the noise.
        key: the noise key of a new release; ignored if one is under way.

    Raises:
        ValueError: if its file is damaged.
    """
    file = folder / f"{request_digest}.json"
    if not file.is_file():
        return PendingRelease(file, secrets.token_hex(16), key)
    try:
        content = load_json(file)
        token, key = content["token"], int(content["key"], 16)
        require(isinstance(token, str) and token, "a token", token=type(token).__name__)
        require(0 <= key < 2**KEY_BITS, f"a key of {KEY_BITS} bits")
    except (ValueError, KeyError, TypeError):
        # neither the content nor the name, a digest of PRIVATE data, may be printed
        raise UnfinishedReleaseError(
            "Expected what a command that was killed left. Delete its folder, and the same command"
            f" makes a new release, which costs again, got damaged files in {file.parent}"
        ) from None
    return PendingRelease(file, token, key)


def require_no_other(pending: PendingRelease, ledger: Ledger) -> None:
    """Raise ``ValueError`` if another request began in the folder, and was paid for, but killed.

    Its settings, its votes or the code were others, so its noise cannot be drawn again. The error
    names no file of the folder: the names are digests of PRIVATE votes.
    """
    texts = [read_text(file) for file in pending.file.parent.glob("*.json") if file != pending.file]
    for entry in ledger.entries():
        require(
            not any(entry.token and entry.token in text for text in texts),
            f"the settings, votes and version of pate with which release {entry.release} of"
            f" {ledger.path} was begun, to finish it. With `overwrite` it stays paid for, and new"
            " labels cost again",
        )


def delete_other_seeds(pending: PendingRelease) -> None:
    """Delete the seeds of all other releases in the folder. Their reservations stay counted."""
    for file in pending.file.parent.iterdir():
        if file != pending.file:
            file.unlink()


def destroy(folder: Path, token: str | None) -> None:
    """Delete the seed of the release with ``token``, if any, and the folder once it is empty."""
    for file in folder.glob("*.json"):
        with suppress(FileNotFoundError):  # another process has destroyed its own
            if token is not None and token in read_text(file):
                file.unlink()
    with suppress(OSError):
        folder.rmdir()


@dataclass(frozen=True, kw_only=True)
class ReservationRequest:
    """The reservation that a publication requests of the ledger before its noise is drawn.

    Attributes:
        ledger: the ledger of the private data, opened for units of the declared reach.
        events: the cost of one query under each relation.
        count: the largest number of queries that may be answered.
        relation: the relation of the primary guarantee.
        delta: the delta of the statement.
        budget: the limit on all releases of the ledger together, or None.
        run: the name of the run in the ledger.
        description: the name of the release in the ledger.
        privacy_unit: for whom it is priced.
    """

    ledger: Ledger
    events: Events
    count: int
    relation: NeighboringRelation
    delta: float
    budget: Budget | None
    run: str
    description: str
    privacy_unit: PrivacyUnit


@dataclass(frozen=True, kw_only=True)
class ReleaseOutcome:
    """The published facts of a release, and its final cost.

    Attributes:
        published: all that its statement says except costs, by the keys of the statement, with the
            file's ``sha256``.
        realised: the final cost. None for the reserved cost.
    """

    published: Mapping[str, Any]
    realised: Sequence[Charge] | None = None


class Releasable(ABC):
    """A release: one kind of file, with its statement, which a later release replaces.

    Attributes:
        file: the released file.
        statement_file: the ``.json`` of the statement. Its text is next to it.
        seeds: the folder of the seeds of releases under way. PRIVATE.
        noise_seed: a seed in place of private noise, for tests. None for noise.
    """

    file: Path
    statement_file: Path
    seeds: Path
    noise_seed: int | None

    @abstractmethod
    def request_digest(self) -> str:
        """Return a digest of everything that determines the answer, except the noise. PRIVATE."""

    @abstractmethod
    def prepared(
        self, pending: PendingRelease, generator: np.random.Generator
    ) -> AbstractContextManager[ReservationRequest]:
        """Return a context that yields the request and lasts until the noise is drawn.

        Entering it tries everything that can fail, before anything is spent.
        """

    @abstractmethod
    def draw(self, release: int, generator: np.random.Generator) -> None:
        """Draw the noise of the release with this number."""

    @abstractmethod
    def settlement(self, entry: LedgerEntry) -> ReleaseOutcome:
        """Return the outcome of the release that the ledger holds as ``entry``."""


def release(publication: Releasable) -> Statement:
    """Make a release, or continue one that was killed, and return its statement.

    Raises:
        ValueError: if it cannot be prepared, or the ledger cannot pay for it. Nothing is spent.
        UnfinishedReleaseError: if it may be paid for. The same request goes on.
    """
    request = publication.request_digest()
    file = publication.seeds / f"{request}.json"
    with unfinished(file.is_file, publication.seeds), step_bar(4, "release") as bar:
        pending = pending_release(publication.seeds, request, draw_key())
        generator, seed = private_generator(pending.key), publication.noise_seed
        if seed is not None:
            generator = seeded_generator(seed)
        bar.update()
        with publication.prepared(pending, generator) as terms:
            number = _reserve(publication, terms, pending)
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
    """Settle a drawn release, write and return its statement, and destroy the seed of its noise.

    Repeating it pays for nothing and draws nothing.

    Raises:
        ValueError: if the files cannot be written, or the release was settled as another file.
    """
    seeds = publication.seeds
    with unfinished(lambda: any(seeds.glob("*.json")), seeds):
        entry = ledger.entries()[release - 1]
        settlement = publication.settlement(entry)
        ledger.settle(release, realised=settlement.realised, published=settlement.published)
        statement = Statement.of(ledger.snapshot(), release)
        with output_errors(publication.file):
            write_json(publication.statement_file, statement.content)
            write_text(publication.statement_file.with_suffix(".txt"), statement.text)
        destroy(seeds, entry.token)
    return statement


def _reserve(publication: Releasable, terms: ReservationRequest, pending: PendingRelease) -> int:
    """Return the number of the release, which is reserved now or was reserved before a kill."""
    ledger, charge = terms.ledger, (terms.events, terms.count)
    pending.write()
    try:
        book = ledger.snapshot()
        if not any(entry.token == pending.token for entry in book.entries):
            _require_delta_left(
                book,
                charge,
                terms.privacy_unit,
                ledger.max_teachers_per_unit,
                terms.relation,
                terms.delta,
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
            privacy_unit=terms.privacy_unit,
        )
    except ValueError as error:
        # a token is forgotten only when a fresh read shows that the ledger lacks it
        entries = ledger.entries()
        if not any(entry.token == pending.token for entry in entries):
            destroy(publication.seeds, pending.token)
        raise _with_its_ledger(error, ledger.path, entries, terms.budget, charge) from None


def _require_delta_left(
    book: LedgerSnapshot,
    charge: Charge,
    unit: PrivacyUnit,
    teachers: int,
    relation: NeighboringRelation,
    delta: float,
) -> None:
    """Raise ``ValueError`` if the tests of a total and one more release use up ``delta``."""
    most, total = max(book.max_teachers_per_unit, teachers), book.total_for(unit, relation)
    earlier = [] if total is None else total[1].charges(most)
    require_delta_beyond_tests([*earlier, *for_group_size([charge], most)], relation, delta)


def require_payable_release(
    path: Path,
    charge: Charge,
    *,
    relation: NeighboringRelation,
    delta: float,
    budget: Budget | None,
    max_teachers_per_unit: int,
    privacy_unit: PrivacyUnit,
) -> None:
    """Raise ``ValueError`` if a ledger could not pay for a future release; write nothing.

    Args:
        path: the ledger, which need not exist yet.
        charge: the cost that the release will reserve.
        relation: the relation of its guarantee.
        delta: the delta of its statement.
        budget: the limit that it requests, or None.
        max_teachers_per_unit: how many teachers one unit may reach.
        privacy_unit: for whom it will be priced.
    """
    book = read_ledger(path) if path.exists() else LedgerSnapshot()
    try:
        _require_delta_left(book, charge, privacy_unit, max_teachers_per_unit, relation, delta)
        require_payable(
            path,
            charge,
            budget=budget,
            delta=delta,
            max_teachers_per_unit=max_teachers_per_unit,
            privacy_unit=privacy_unit,
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
    """Return the error with its ledger and, if earlier releases use up the budget, their runs."""
    earlier = sorted({entry.run for entry in entries})
    if not (isinstance(error, BudgetExceededError) and earlier):
        return error if str(path) in str(error) else ValueError(f"{error} ({path})")
    # if the release by itself is too much, other data are no way out
    fits = True
    if budget is not None:
        events, count = charge
        event = events[budget.neighboring_relation].for_group_size(budget.max_teachers_per_unit)
        fits = affordable(budget, event.cost()) >= count
    ways = "ask for less, take other data" if fits else "ask for less"
    return ValueError(
        f"{error}. The ledger {path} counts the earlier releases of runs on these private data"
        f" ({', '.join(earlier)}), including deleted runs: {ways} or, if the records belong to no"
        " person, as drawn faces do, delete it to begin anew"
    )
