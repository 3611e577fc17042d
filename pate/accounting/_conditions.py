"""On what condition the figures of several releases hold, in words: the owner of every such sentence."""

from __future__ import annotations

from pate.accounting._figures import exact_text
from pate.accounting._history import Book

FIXED_BEFOREHAND = "no release was chosen by what an earlier one showed"
"""What a sum of releases needs to be a guarantee without a budget."""


def describe_keeping(declared_after: int) -> str:
    """Return the sentences that say how a budget is kept which was declared after so many releases."""
    promise = "no release is made beyond it, whatever earlier ones showed."
    if declared_after == 0:
        return promise
    shown = "release 1" if declared_after == 1 else f"releases 1 .. {declared_after}"
    return (
        f"{promise} It was declared after release {declared_after}: it holds if neither that nor its figures followed"
        f" from what {shown} showed."
    )


def describe_budget(book: Book) -> str | None:
    """Return the line that says what the budget of a ledger is, how it is kept and what is spent; None without one."""
    budget, bounds = book.budget, book.filter
    if budget is None or bounds is None:
        return None
    spent = bounds.describe_spent(book.spent(budget.neighboring_relation, bounds.orders))
    return (
        f"Budget: epsilon <= {exact_text(budget.max_epsilon)} at delta = {exact_text(budget.delta)} under"
        f" {budget.neighboring_relation.value.upper()}; {describe_keeping(book.declared_after)} Spent are {spent}."
    )
