"""Verification of the statement of a top k against its ledger."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pate.mechanisms
from pate.accounting.base import event_from_dict
from pate.accounting.charges import account
from pate.accounting.history import Book, Entry
from pate.accounting.ledger import read_ledger
from pate.accounting.relation import NeighboringRelation
from pate.accounting.verification import expect_continues, expect_figures
from pate.mechanisms.base import Mechanism
from pate.mechanisms.canonical import CanonicalMechanism
from pate.mechanisms.success import gap_for_top_k
from pate.stages.top_k import PROTECTS, Neighbors, TopKSettings
from pate.validation import expect

_RELATIONS: Mapping[str, NeighboringRelation] = {
    name: TopKSettings(k=1, scale=1.0, neighbors=name).relation for name in get_args(Neighbors)
}


def verify_top_k(statement: Mapping[str, Any], ledger: Path) -> int:
    """Raise ``ValueError`` unless every figure of a statement of `release_top_k` follows from its ledger.

    The ledger must hold all rows that it held when the statement was made, of which the last settled the release. It
    may have more since: the statement speaks of those before alone. Each epsilon is computed again from the events, the
    events from the mechanism, and all of them are compared with the ledger. The name of the ledger and the versions
    follow from nothing and are not checked.

    Args:
        statement: the content of ``<name>.privacy.json``.
        ledger: the file of the ledger.

    Returns:
        How many releases the ledger has had since.

    Raises:
        KeyError, TypeError: on a statement of another form.
    """
    now = read_ledger(ledger)
    expect_continues(statement, now)
    rows, release = statement["ledger"]["rows"], statement["release"]
    held, before = (read_ledger(ledger, rows=max(0, number)) for number in (rows, rows - 1))
    listed = statement["ledger"]["releases"]
    expect(listed == len(held.entries), f"the {len(held.entries)} releases of the first {rows} rows", releases=listed)
    settled = [now for now, then in zip(held.entries, before.entries, strict=False) if now.settled and not then.settled]
    numbers = [entry.release for entry in settled]
    expect(numbers == [release], f"the release that row {rows} of the ledger settled", release=release)
    entry = settled[0]
    expect(entry.count == 1, f"one top k as release {release}", count=entry.count)
    private = not any(each.seeded for each in held.entries)
    expect(statement["private"] == private, f"private={private}, as the releases say", private=statement["private"])
    _expect_guarantees(statement, held, entry)
    _expect_limit(statement, held)
    _expect_mechanism(statement, entry)
    return len(now.entries) - len(held.entries)


def _expect_guarantees(statement: Mapping[str, Any], held: Book, entry: Entry) -> None:
    """Raise ``ValueError`` unless both guarantees follow from the events, and these are those of the ledger."""
    recorded = entry.stated or {}
    expect("delta" in recorded, f"a delta of release {entry.release} in the ledger", stated=entry.stated)
    guarantees, delta, own = statement["guarantees"], recorded["delta"], statement["neighbors"]
    found = sorted(guarantees)
    expect(found == sorted(_RELATIONS), f"guarantees under {', '.join(_RELATIONS)}", guarantees=found)
    expect(own in _RELATIONS, f"neighbors among {', '.join(_RELATIONS)}", neighbors=own)
    for name, relation in _RELATIONS.items():
        stated, reserved = guarantees[name], entry.events[relation]
        parts = {"neighbors", "this_release", "all_releases", "event"}
        expect(set(stated) == parts, f"{', '.join(sorted(parts))} under {name}", guarantee=sorted(stated))
        text, bound = stated["neighbors"], statement["mechanism"]["sensitivity"]
        # as words of `pate.histogram` have it: a whole number of pairs, or any number for counts
        most = "|".join(map(re.escape, (f"{bound:.0f} each", f"{bound:g}")))
        known = re.fullmatch(rf"{re.escape(PROTECTS[name])} \([^()]* by at most ({most}), [^()]*\)", text)
        expect(known, f"neighbors under {name} where {PROTECTS[name]} (.. by at most {bound:g} ..)", neighbors=text)
        same = event_from_dict(stated["event"]) == reserved
        expect(same, f"the event of release {entry.release} under {name}, {reserved.to_dict()}", event=stated["event"])
        for kind, charges in (("this_release", [(entry.events, entry.count)]), ("all_releases", held.reserved())):
            figures = account(charges, relation).guarantee(delta=delta).to_dict()
            expect_figures(figures, stated[kind], f"{kind} under {name}")


def _expect_limit(statement: Mapping[str, Any], held: Book) -> None:
    """Raise ``ValueError`` where a limit is stated that is not the budget of the ledger, or declared later."""
    limit, after = statement["max_epsilon"], statement["ledger"]["declared_after"]
    declared = f"the releases before the budget of the ledger, {held.declared_after}"
    expect(after == held.declared_after, declared, declared_after=after)
    if limit is not None:
        budget = held.budget
        own = budget is not None and (budget.max_epsilon, budget.neighboring_relation) == (
            limit,
            _RELATIONS[statement["neighbors"]],
        )
        said = "none" if budget is None else str(budget.to_dict())
        expect(own, f"the budget of the ledger, {said}", max_epsilon=limit, neighbors=statement["neighbors"])


def _expect_mechanism(statement: Mapping[str, Any], entry: Entry) -> None:
    """Raise ``ValueError`` unless the mechanism that is named costs what was reserved, and needs the gap stated."""
    parameters = dict(statement["mechanism"])
    name = parameters.pop("class")
    expect(name == entry.description, f"the mechanism of release {entry.release}, {entry.description}", mechanism=name)
    cls: Any = getattr(pate.mechanisms, name, None)
    expect(isinstance(cls, type) and issubclass(cls, Mechanism), "a mechanism of pate.mechanisms", mechanism=name)
    mechanism: Any = cls(**parameters)
    same = dict(mechanism.events()) == dict(entry.events)
    expect(same, f"the parameters of release {entry.release}, whose events the ledger has", mechanism=parameters)
    ordered = cls is not CanonicalMechanism
    expect(statement["ordered"] is ordered, f"ordered={ordered} of {name}", ordered=statement["ordered"])
    gap = statement["gap"]
    # the number of items does not matter to a mechanism that looks at the largest counts alone
    num_items = mechanism.kbar + 1 if hasattr(mechanism, "kbar") else statement["num_items"]
    needed = gap_for_top_k(mechanism, probability=gap["probability"], num_items=num_items)
    same = math.isclose(needed, gap["counts"], rel_tol=1e-9)
    expect(same, f"a gap of {needed} for {num_items} items and probability {gap['probability']}", gap=gap["counts"])
