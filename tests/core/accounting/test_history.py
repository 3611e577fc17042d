"""What the rows of a ledger mean: releases, heads, and rows that no ledger writes."""

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate._core.accounting.history import History
from pate.accounting import Ledger, LedgerHead, LedgerSnapshot, read_ledger, verify_ledger
from tests.core.accounting.ledgers import (
    BUDGET,
    ONE_LINE,
    REPLACE,
    TEACHER,
    bodies,
    forge,
    gaussian,
    require_stop,
    reserve,
    stable,
)

Rows = list[dict[str, Any]]


def plain(noise_multiplier: float) -> dict[str, Any]:
    return {r.value: event.to_dict() for r, event in gaussian(noise_multiplier).items()}


@pytest.fixture
def rows(path: Path) -> Rows:
    """A budget, a release of three queries, and its settlement for one."""
    ledger = Ledger(path)
    reserve(ledger, gaussian(60), 3, BUDGET)
    ledger.settle(1, realised=[(gaussian(60), 1)], published={"kind": "one", "sha256": "0"})
    return bodies(path)


def paid(*charges: tuple[Any, float]) -> dict[str, Any]:
    return {"realised": [{"events": plain(noise), "count": count} for count, noise in charges]}


MALFORMED: list[tuple[int, dict[str, Any]]] = [
    (0, {"privacy_unit": {}}),
    (0, {"privacy_unit": {"unit": "patient"}}),
    (0, {"budget": {"max_epsilon": 8.0}}),
    *((1, {"count": count}) for count in (10**400, 2**53 + 1, 0, True, 1.5, 10**6)),
    (1, {"delta": 2.0}),
    (1, {"delta": "1e-6"}),
    (1, {"events": {}}),
    (1, {"events": None}),
    (1, {"kind": "gift"}),
    (1, {"kind": "settle"}),
    (1, {"token": 3}),
    (1, {"token": ""}),
    (1, {"seeded": 1}),
    (1, {"run": None}),
    (1, {"more": 1}),
    (1, {"privacy_unit": None}),
    (1, {"privacy_unit": {"unit": "patient"}}),
    (1, {"max_teachers_per_unit": 2}),
    *((2, {"release": number}) for number in (0, -1, 2, True)),
    # above all one of negative counts, which would give a budget back that was never reserved
    *((2, paid(*each)) for each in ([(2, 60), (-1, 60)], [(-1, 60)], [(1.0, 60)], [(True, 60)])),
    *((2, paid(each)) for each in ((2**53 + 1, 1e12), (4, 60), (1, 30))),
    (2, {"published": "one"}),
    (2, {"published": {"max_teachers_per_unit": 2}}),
]


@pytest.mark.parametrize(("row", "changes"), MALFORMED)
def test_a_malformed_row_stops(path: Path, rows: Rows, row: int, changes: dict[str, Any]) -> None:
    rows[row] |= changes
    require_stop(forge(path.with_name("malformed"), rows))


def test_a_row_lacks_nothing(path: Path, rows: Rows) -> None:
    for number, row in enumerate(rows):
        for key in row:
            left = {name: value for name, value in row.items() if name != key}
            with pytest.raises(ValueError, match=ONE_LINE):
                read_ledger(forge(path.with_name(f"{number}{key}"), [*rows[:number], left]))
    assert all("epsilon" not in json.dumps(row) for row in rows[1:])


Texts = list[str]


@pytest.fixture
def alike(path: Path) -> Texts:
    """Rows of two kinds of releases over and over, beyond a budget unless some cost less."""
    ledger = Ledger(path)
    for number, noise in enumerate([60, 90] * 7):
        facts: dict[str, Any]
        token, facts = f"{number:032x}", {"kind": "labels", "sha256": f"{number:064x}"}
        if number in (11, 13):  # a digest within other facts is none of the file
            facts |= {"sha256": "a" * 64, "of": {"sha256": ("a" if number == 11 else "b") * 64}}
        reserve(ledger, gaussian(noise), 14, BUDGET, token=token)
        if number % 5:
            less = [(gaussian(noise), 3)] if number % 2 else None
            ledger.settle(number + 1, realised=less, published=facts)
    return [json.dumps(body) for body in bodies(path)]


def outcome(texts: Texts, *, at_once: bool) -> tuple[History, LedgerSnapshot | str]:
    """Return a state, and what it holds or why a row was refused."""
    history, rows = History(), [(text, str(number)) for number, text in enumerate(texts)]
    try:
        if at_once:
            history.fold_rows(rows, Path("ledger"))
        for text, digest in [] if at_once else rows:
            history.fold_row(text, digest, Path("ledger"))
    except ValueError as error:
        return History(), str(error)
    return history, history.snapshot()


def edited(texts: Texts, chance: random.Random) -> Texts:
    """Return rows with one that is longer, shorter, another one's in part, away, or twice there."""
    texts, row = [*texts], chance.randrange(1, len(texts))
    text, other = texts[row], chance.choice(texts[1:])
    first, last = sorted(chance.choices(range(len(text)), k=2))
    way = chance.randrange(7)
    if way < 3:  # a letter, mostly at the ends, where rows that are alike differ
        place = chance.choice([first, chance.randrange(40), -chance.randrange(1, 90)])
        text = text[:place] + chance.choice('0123456789abcdef"\\ ,{}\u0663') + text[place:][1:]
    elif way == 3:
        number = re.compile(r'(?<="release": |.."count": )\d+')
        text = number.sub(
            lambda old: chance.choice(["0", *["0" + old[0]] * 4, "3", "13", "15", "60", "1e1"]),
            text,
        )
    elif way == 4:
        text = text[:first] + other[first:last] + text[last:]
    texts[row] = text
    if way > 4:
        texts[row : row + 1] = [[], [text, text]][way - 5]
    return texts


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_rows_that_are_read_alike_are_each_what_they_say(
    alike: Texts, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, folded, refused, one = random.Random(seed), Counter[bool](), 0, History.fold_row

    def counting(history: History, *row: Any) -> None:
        folded[True] += 1
        one(history, *row)

    for number in range(150):
        texts = edited(alike, chance) if number else alike
        state, expected = outcome(texts, at_once=False)
        with monkeypatch.context() as patch:
            patch.setattr(History, "fold_row", counting)
            counted, made = outcome(texts, at_once=True)
        assert made == expected
        for relation in REPLACE, TEACHER:
            sums = (each._totals.cost(relation) for each in (state, counted))
            assert all(np.array_equal(*pair) for pair in zip(*sums, strict=True))
        refused += isinstance(expected, str)
        assert number or (not refused and folded[True] < len(alike) / 2)
    assert 30 < refused < 145


@pytest.mark.parametrize("count", [14, 1000])
def test_a_sum_of_rows_that_are_read_alike_is_held_against_the_budget(
    alike: Texts, count: int
) -> None:
    """One row at a time would stop at the same one."""
    template = next(text for text in alike if '"reserve"' in text).replace(
        '"count": 14', f'"count": {count}'
    )
    texts = [*alike[:1], *(template.replace("0" * 32, f"{n:032x}") for n in range(200))]
    _, expected = outcome(texts, at_once=False)
    assert outcome(texts, at_once=True)[1] == expected
    assert isinstance(expected, str) and "Expected epsilon <= 2" in expected


def test_rows_are_in_order(path: Path, rows: Rows) -> None:
    budget, reserved, settled = rows
    anew = settled | {"published": {"kind": "two", "sha256": "0"}}
    (entry,) = read_ledger(forge(path.with_name("anew"), [*rows, anew])).entries
    assert entry.settled and entry.charges == ((gaussian(60), 1),)
    assert entry.published == {"kind": "two", "sha256": "0"}
    for number, wrong in enumerate(
        (
            [budget, budget],
            [budget, settled],
            [*rows, budget],
            [*rows, settled | {"published": None}],
            [*rows, settled | {"published": {"sha256": "1"}}],
            [*rows, settled | {"realised": None}],
        )
    ):
        require_stop(forge(path.with_name(f"wrong{number}"), wrong))
    # a budget may come after a release
    assert read_ledger(forge(path.with_name("later"), [reserved, budget])).declared_after == 1


def test_a_settlement_ends_where_it_was_recorded(path: Path) -> None:
    ledger, heads = Ledger(path), []
    # all that was reserved, in two parts, whose sum may exceed it by rounding
    parts = [(gaussian(60), 1), (gaussian(60), 2), (gaussian(60), 0)]
    for number in (1, 2, 3):
        reserve(ledger, gaussian(60), 3)
        heads.append(ledger.settle(number, realised=parts))
    assert [head.rows for head in heads] == [2, 4, 6]
    assert [ledger.settle(number, realised=parts) for number in (1, 2, 3)] == heads
    assert Ledger(path).settle(2, realised=parts) == heads[1]


def test_a_head_names_the_history(path: Path) -> None:
    ledger = Ledger(path)
    assert LedgerSnapshot() == History().snapshot() and LedgerSnapshot().follows(LedgerHead())
    heads = [ledger.snapshot().head]
    for i in range(3):
        reserve(ledger, gaussian(60 + i), 1)
        heads.append(ledger.snapshot().head)
    assert [head.rows for head in heads] == [0, 1, 2, 3]
    assert len({head.digest for head in heads}) == 4
    old = path.read_bytes()
    ledger.settle(2)
    book = verify_ledger(path)
    assert (
        book.head == ledger.snapshot().head == Ledger(path).snapshot().head and book.head.rows == 4
    )
    assert all(book.follows(head) for head in [*heads, book.head])
    path.write_bytes(old)  # an older copy
    older = read_ledger(path)
    assert not older.follows(book.head) and older.follows(heads[3])
    other = Ledger(path.with_name("other"))
    reserve(other, gaussian(70), 1)
    assert not other.snapshot().follows(heads[1])
    assert not other.snapshot().follows(LedgerHead(-1, other.snapshot().head.digest))


@pytest.mark.parametrize(("excess", "within"), [(0.8e-12, True), (1.3e-12, False)])
def test_a_settlement_exceeds_what_was_reserved_by_rounding_alone(
    path: Path, excess: float, within: bool
) -> None:
    ledger = Ledger(path)
    reserve(ledger, gaussian(60), 3)
    refusal = pytest.raises(ValueError, match=r"^Expected at most what release 1 reserved")
    with nullcontext() if within else refusal:
        ledger.settle(1, realised=[(gaussian(60 * (1 - excess / 2)), 3)])
    assert ledger.entries()[0].settled is within


def scaled(factor: float) -> Callable[[float], float]:
    return lambda value: value * factor


@pytest.mark.parametrize(
    ("choices", "part", "changes"),
    [
        (True, "filter", {"max_rdp": scaled(1 + 1e-9)}),
        (True, "filter", {"order": scaled(2)}),
        (True, "filter", {"max_delta0": 1.1e-7}),
        (False, "filter", {"max_mu_squared": scaled(1 + 1e-9)}),
        (False, "filter", {"max_delta0": 1.0}),
        (False, "filter", {"name": "none"}),
        (False, "budget", {"max_epsilon": 8.0}),
        (False, "budget", {"delta": 1e-5}),
        (False, "budget", {"max_delta0": 1e-8}),
        (False, "budget", {"neighboring_relation": "nobody"}),
    ],
)
def test_a_filter_that_does_not_follow_from_its_budget_stops(
    path: Path, choices: bool, part: str, changes: dict[str, Any]
) -> None:
    reserve(Ledger(path), stable() if choices else gaussian(60), 1, BUDGET)
    rows = bodies(path)
    for field, value in changes.items():
        rows[0][part][field] = value(rows[0][part][field]) if callable(value) else value
    require_stop(forge(path.with_name("forged"), rows))


@pytest.mark.parametrize("number", [1, 3, 5])
def test_the_first_release_beyond_a_budget_is_named(path: Path, number: int) -> None:
    """A forger who knows the digests still has to make the figures fit."""
    ledger = Ledger(path)
    for _ in range(5):
        reserve(ledger, gaussian(60), 1, BUDGET)
    rows = bodies(path)
    read_ledger(forge(path.with_name("same"), rows))
    rows[number]["count"] = 10**6
    expected = rf"^Expected an intact ledger [^\n]*, got row {number + 1}: Expected epsilon <= 2"
    for read in (read_ledger, verify_ledger, Ledger):
        with pytest.raises(ValueError, match=expected):
            read(forge(path.with_name("forged"), rows))
        path.with_name("forged").unlink()
