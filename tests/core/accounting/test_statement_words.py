"""What statements say, sentence by sentence."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pate._core.accounting.statement import AUDIT, FIXED_BEFOREHAND, _sums, _worded

NONE = "There is no total."
COST = {"epsilon": 1.0, "delta": 1e-6, "delta0": 0.0}


def lines(
    guarantees: dict[str, Any], releases: list[Any], *, whole: bool, **facts: Any
) -> list[str]:
    """Return what is said of a statement with these parts."""
    content = {
        "private": True,
        "neighboring_relation": "replace_record",
        "guarantees": {
            name: COST | {"fixed_by": "reservation", "neighbors": "they differ"} | each
            for name, each in guarantees.items()
        },
        "this_release": dict.fromkeys(guarantees, COST),
        "costs": dict.fromkeys(guarantees, COST),
        "releases": releases,
        "declared_after": 0,
        "max_teachers_per_unit": 1,
        "ledger": {"counts": AUDIT},
        "reach": [],
        "versions": {},
        **dict.fromkeys(("unit", "aggregator"), "record"),
        **dict.fromkeys(("num_answered", "num_queries", "num_labels", "num_teachers"), 7),
        "delta": 1e-6,
        **facts,
    }
    entries: Any = [SimpleNamespace(**each) for each in releases]
    unproven = {"epsilon": None, "delta0": 0.0}
    more = {
        "title": "",
        "figures": unproven,
        "bounds": None,
        "call": str,
        "repr": repr,
        **(_sums(entries) if whole else {}),
    }
    return _worded(content, whole=whole, **more).splitlines()


OF_LEDGER = "Under REPLACE_RECORD this is the budget of the ledger: "
UNKEPT = f"No budget keeps this: it holds if {FIXED_BEFOREHAND}."
OTHER = f"It has none under ADD_REMOVE_TEACHER: that epsilon holds if {FIXED_BEFOREHAND}."


@pytest.mark.parametrize(
    ("releases", "fixed_by", "sentences"),
    [
        (1, ("reservation", "reservation"), []),
        (2, ("reservation", "reservation"), [UNKEPT]),
        (1, ("budget", "reservation"), [OF_LEDGER]),
        (2, ("budget", "reservation"), [OF_LEDGER, OTHER]),
        (2, ("nothing", "nothing"), [NONE]),
        (2, ("reservation", "nothing"), [NONE, UNKEPT]),
        (2, ("budget", "nothing"), [NONE, OF_LEDGER]),
    ],
)
def test_conditions_are_those_of_the_relations_without_a_budget(
    releases: int, fixed_by: tuple[str, str], sentences: Sequence[str]
) -> None:
    guarantees = {
        name: {"fixed_by": how, "unit": None, "missing": NONE}
        if how == "nothing"
        else {"fixed_by": how, "unit": "record", "missing": None}
        for name, how in zip(("replace_record", "add_remove_teacher"), fixed_by, strict=True)
    }
    told = lines(guarantees, [{}] * releases, whole=False)
    told = told[1 + next(i for i, line in enumerate(told) if line.startswith("Any outcome")) :]
    assert len(told) == len(sentences)
    assert all(line.startswith(start) for line, start in zip(told, sentences, strict=True))


@pytest.mark.parametrize("settled", [(True, True), (True, False), (False, False)])
def test_queries_of_a_ledger_are_counted_and_those_of_broken_runs_too(
    settled: tuple[bool, bool],
) -> None:
    releases = [
        {"count": count, "settled": flag} for count, flag in zip((3, 4), settled, strict=True)
    ]
    told = lines({"replace_record": {"unit": "record", "missing": None}}, releases, whole=True)
    place = told.index("The samples that were asked about are public: nothing protects them.")
    first, second, *more = told[place + 1 : told.index("", place)]
    assert first == "The ledger of an audit holds 2 release(s) of 7 queries in all; all count."
    assert second.endswith(" of the private data.")
    lost = {(True, True): None, (True, False): 4, (False, False): 7}[settled]
    broken = f"    {lost} of them were reserved by runs that were broken off; they count in full."
    assert more == ([] if lost is None else [broken])


def test_records_that_vote_for_themselves_have_no_relation_of_teachers() -> None:
    both: dict[str, Any] = {
        name: {"unit": "record", "missing": None}
        for name in ("replace_record", "add_remove_teacher")
    }
    for teachers, stated in ((7, True), (None, False)):
        text = "".join(
            lines(both, [{"count": 1, "settled": True}], whole=True, num_teachers=teachers)
        )
        assert ("ADD_REMOVE_TEACHER" in text) == stated
        assert "under REPLACE_RECORD" in text and "reaches m teachers" not in text
