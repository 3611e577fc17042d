"""The commands `pate ledger show` and `pate ledger verify`."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pate._commands.parsing import run_command
from pate._release.labels import verify_published
from pate._validation import require, require_in_open_unit_interval
from pate.accounting import LedgerSnapshot, NeighboringRelation, read_ledger, verify_ledger
from pate.accounting._charges import Charge, account, to_world
from pate.accounting._cost import format_epsilon, format_exact
from pate.accounting._filters import describe_personal, personal_figures
from pate.accounting._statement_words import (
    FIXED_BEFOREHAND,
    WORLD,
    describe_budget,
    describe_reach,
)


def ledger_show(*, ledger: Path, delta: float | None = None) -> None:
    """Print the releases of a ledger and their total cost.

    Args:
        ledger: the file.
        delta: the delta of epsilon. None for the delta of the ledger's budget, else of its last
            release, else 1e-6.

    Raises:
        ValueError: if the file is not an intact ledger.
    """
    book = read_ledger(ledger)
    most = book.max_teachers_per_unit
    print(
        f"{ledger}: {len(book.entries)} release(s) of {sum(entry.count for entry in book.entries)}"
        " queries"
    )
    for entry in book.entries:
        state = "settled" if entry.settled else "reserved, counts in full"
        state += ", for less than reserved" if entry.realised is not None else ""
        state += ", SEEDED: not private" if entry.seeded else ""
        state += (
            f", made{units}" if (units := describe_reach(entry.max_teachers_per_unit, most)) else ""
        )
        print(
            f"    {entry.release}: {entry.at} {entry.run}: {entry.count} x {entry.description}"
            f" ({state})"
        )
    _print_sum(book, _delta_of(book) if delta is None else delta)


def ledger_verify(
    *, ledger: Path, statement: Path | None = None, released: Path | None = None
) -> None:
    """Check a ledger by computing everything in it again from its events.

    Args:
        ledger: the file.
        statement: the ``privacy.json`` of ``pate label``, or the statement on a list of
            ``pate topk``. It is computed again from the ledger and compared key by key, and so are
            its text and the released file.
        released: the released file; None for the ``labels.npz``, the ``.csv`` or the ``.json`` in
            the folder of the statement.

    Raises:
        ValueError: at the first figure that does not follow from the events, or if a file is
            damaged.
    """
    require(
        released is None or statement is not None,
        "--statement with --released",
        released=str(released),
    )
    book = verify_ledger(ledger)
    print(
        f"{ledger}: intact; {len(book.entries)} release(s), and every epsilon follows from the"
        " events."
    )
    if statement is not None:
        since = verify_published(Path(statement), Path(ledger), released)
        later = f" of its release and those before; {since} more followed" if since else ""
        print(f"{statement}: every epsilon follows from the events{later}.")
    _print_sum(book, _delta_of(book))


def _print_sum(book: LedgerSnapshot, delta: float) -> None:
    require_in_open_unit_interval(delta=delta)
    reserved, paid, most = book.reserved(), book.charges(), book.max_teachers_per_unit
    units = describe_reach(most, most)
    for relation in NeighboringRelation:
        print(_sum_text(reserved, relation, delta) + units)
    if (world := to_world(reserved)) != [*reserved]:
        print(f"This holds against those who take part, who know some of the noise. {WORLD} it is")
        for relation in NeighboringRelation:
            print(f"    {_sum_text(world, relation, delta)}{units}")
    if len(book.entries) > 1:
        print(f"    The sums hold if {FIXED_BEFOREHAND}.")
    if any(entry.realised is not None for entry in book.entries):
        print(
            "what happened cost less, no guarantee, because it was not fixed before the noise was"
            " drawn:"
        )
        for relation in NeighboringRelation:
            print(f"    {_sum_text(paid, relation, delta)}{units}")
    for line in describe_personal(personal_figures(reserved)):
        print(line)
    budget = describe_budget(book)
    if budget is not None:
        print(budget)


def _sum_text(charges: Sequence[Charge], relation: NeighboringRelation, delta: float) -> str:
    total = account(charges, relation)
    figures = (
        f"epsilon = {format_epsilon(total.get_epsilon(delta=delta), 4)} at delta ="
        f" {format_exact(delta)}"
    )
    return f"{figures} (delta0 = {total.delta0:.3g}) under {relation.value.upper()}"


def _delta_of(book: LedgerSnapshot) -> float:
    if book.budget is not None:
        return book.budget.delta
    deltas = [entry.delta for entry in book.entries if entry.delta is not None]
    return deltas[-1] if deltas else 1e-6


show = partial(run_command, "ledger show", ledger_show)
verify = partial(run_command, "ledger verify", ledger_verify)
