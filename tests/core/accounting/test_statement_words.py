"""What statements say, sentence by sentence."""

from collections.abc import Sequence

import pytest

from pate._core.accounting.cost import WIDTHS
from pate._core.accounting.privacy_unit import EACH
from pate._core.accounting.proofs import ManyBitsAccountant
from pate._core.accounting.statement_words import (
    AUDIT,
    FIXED_BEFOREHAND,
    _call,
    _headline,
    _neighbors,
    describe_conditions,
    describe_keeping,
    describe_ledger,
)
from pate.accounting import Guarantee, LedgerEntry, LedgerSnapshot, NeighboringRelation, PrivacyUnit
from tests.core.accounting.ledgers import gaussian


@pytest.mark.parametrize(
    ("relation", "teachers", "sentence"),
    [
        (NeighboringRelation.ADD_REMOVE_TEACHER, 1, "one teacher takes part or does not"),
        (NeighboringRelation.ADD_REMOVE_TEACHER, 2, "2 teachers at most take part or do not"),
        (
            NeighboringRelation.REPLACE_RECORD,
            1,
            "one record of the private data is added, removed or altered, and",
        ),
        (
            NeighboringRelation.REPLACE_RECORD,
            3,
            "one record of the private data, which reaches 3 teachers at most, is",
        ),
    ],
)
def test_neighbors_are_named_by_what_a_unit_reaches(
    relation: NeighboringRelation, teachers: int, sentence: str
) -> None:
    published = {"max_teachers_per_unit": teachers, "unit": "record"}
    assert _neighbors(relation, published).startswith(sentence)


@pytest.mark.parametrize("teachers", [1, 2])
def test_sentences_on_neighbors_are_whole(teachers: int) -> None:
    published = {"max_teachers_per_unit": teachers, "unit": "patient"}
    sentence = _neighbors(NeighboringRelation.REPLACE_RECORD, published)
    assert sentence.endswith("is added, removed or altered, and keeps its id where it is altered")


def test_how_a_budget_is_kept_names_the_releases_before_it() -> None:
    promise = "no release is made beyond it, whatever earlier ones showed."
    assert describe_keeping(0) == promise
    for number, shown in ((1, "release 1"), (2, "releases 1 .. 2"), (3, "releases 1 .. 3")):
        assert describe_keeping(number).startswith(
            f"{promise} It was declared after release {number}: "
        )
        assert describe_keeping(number).endswith(f" followed from what {shown} showed.")


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


@pytest.mark.parametrize("releases", [1, 2])
@pytest.mark.parametrize("delta", [1e-6, 1e-7])
def test_the_first_line_has_the_epsilon_of_all_releases_and_of_this_one(
    releases: int, delta: float
) -> None:
    guarantee = {"epsilon": 2.0, "delta": 1e-6, "neighbors": "of another version"}
    guarantee |= {"unit": "patient", "missing": None}
    entries = [
        LedgerEntry(
            release=number,
            at="",
            run="",
            description="",
            events=gaussian(40.0),
            max_teachers_per_unit=1,
            count=1,
            seeded=False,
            settled=True,
            privacy_unit=PrivacyUnit(unit="patient", partition=EACH),
        )
        for number in range(1, releases + 1)
    ]
    content = {
        "kind": "labels",
        "release": 1,
        "unit": "patient",
        "max_teachers_per_unit": 1,
        "neighboring_relation": "replace_record",
        "guarantees": {"replace_record": guarantee},
        "this_release": {"replace_record": {"epsilon": 1.0, "delta": delta}},
        "releases": [{}] * releases,
        "ledger": {"counts": AUDIT},
    }
    first, second, *_ = _headline(content, LedgerSnapshot(tuple(entries)))
    other = "" if delta == 1e-6 else " at delta = 1e-07"
    assert first == (
        "epsilon = 2.000 at delta = 1e-06 under REPLACE_RECORD:"
        if releases == 1
        else "epsilon at delta = 1e-06 under REPLACE_RECORD:"
        f" this release 1.000{other}; all releases of this audit 2.000:"
    )
    assert second.startswith("    neighbors are data sets where one patient of the private data is")


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


def test_settings_are_written_as_calls() -> None:
    one = {"class_path": "One", "init_args": {"a": 1, "b": [2.0, None]}}
    assert _call(one) == "One(a=1, b=[2.0, None])"
    assert _call([one, 3]) == "[\n    One(a=1, b=[2.0, None]),\n    3,\n]"
    assert _call({"a": 1}) == "{'a': 1}" and _call([]) == "[]"


def test_the_formula_of_many_bits_has_the_numbers_of_its_theorem() -> None:
    guarantee = Guarantee(epsilon=1.0, delta=1e-6, delta0=0.0, mu=0.5, width=float(WIDTHS[0]))
    weights, delta, *_ = ManyBitsAccountant().words(guarantee, []).formulas
    assert weights.endswith(", at most 512; + (t/w - 5 - v) w / 513")
    assert " n Phi(sqrt(mu^2 + 1)/2 - 8)," in delta
