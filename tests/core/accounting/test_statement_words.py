"""What statements say, sentence by sentence."""

from collections.abc import Sequence

import pytest

from pate._core.accounting.cost import WIDTHS
from pate._core.accounting.proofs import ManyBitsAccountant
from pate._core.accounting.statement_words import (
    AUDIT,
    FIXED_BEFOREHAND,
    describe_conditions,
    describe_ledger,
)
from pate.accounting import Guarantee

NONE = "There is no total."


@pytest.mark.parametrize(
    ("releases", "fixed_by", "sentences"),
    [
        (1, ("reservation", "reservation"), []),
        (
            2,
            ("reservation", "reservation"),
            [f"No budget keeps this: it holds if {FIXED_BEFOREHAND}."],
        ),
        (1, ("budget", "reservation"), ["Under REPLACE_RECORD this is the budget of the ledger: "]),
        (
            2,
            ("budget", "reservation"),
            [
                "Under REPLACE_RECORD this is the budget of the ledger: ",
                f"It has none under ADD_REMOVE_TEACHER: that epsilon holds if {FIXED_BEFOREHAND}.",
            ],
        ),
        (2, ("nothing", "nothing"), [NONE]),
        (
            2,
            ("reservation", "nothing"),
            [NONE, f"No budget keeps this: it holds if {FIXED_BEFOREHAND}."],
        ),
        (
            2,
            ("budget", "nothing"),
            [NONE, "Under REPLACE_RECORD this is the budget of the ledger: "],
        ),
    ],
)
def test_conditions_are_those_of_the_relations_without_a_budget(
    releases: int, fixed_by: tuple[str, str], sentences: Sequence[str]
) -> None:
    content = {
        "neighboring_relation": "replace_record",
        "guarantees": {
            name: {"fixed_by": how, "unit": None, "missing": NONE}
            if how == "nothing"
            else {"fixed_by": how, "unit": "record", "missing": None}
            for name, how in zip(("replace_record", "add_remove_teacher"), fixed_by, strict=True)
        },
        "declared_after": 0,
        "releases": [{}] * releases,
    }
    told = list(describe_conditions(content))
    assert len(told) == len(sentences)
    assert all(line.startswith(start) for line, start in zip(told, sentences, strict=True))


@pytest.mark.parametrize("settled", [(True, True), (True, False), (False, False)])
def test_queries_of_a_ledger_are_counted_and_those_of_broken_runs_too(
    settled: tuple[bool, bool],
) -> None:
    releases = [
        {"count": count, "settled": flag} for count, flag in zip((3, 4), settled, strict=True)
    ]
    first, second, *more = describe_ledger({"releases": releases, "ledger": {"counts": AUDIT}})
    assert first == "The ledger of an audit holds 2 release(s) of 7 queries in all; all count."
    assert second.endswith(" of the private data.")
    lost = {(True, True): None, (True, False): 4, (False, False): 7}[settled]
    broken = f"    {lost} of them were reserved by runs that were broken off; they count in full."
    assert more == ([] if lost is None else [broken])


def test_the_formula_of_many_bits_has_the_numbers_of_its_theorem() -> None:
    guarantee = Guarantee(epsilon=1.0, delta=1e-6, delta0=0.0, mu=0.5, width=float(WIDTHS[0]))
    weights, delta, *_ = ManyBitsAccountant().words(guarantee, []).formulas
    assert weights.endswith(", at most 512; + (t/w - 5 - v) w / 513")
    assert " n Phi(sqrt(mu^2 + 1)/2 - 8)," in delta
