"""The commands on ledgers: what they print is what the ledger holds."""

import json
import re
from pathlib import Path

import pytest

from pate import VoteShape
from pate._core.accounting.charges import account
from pate._core.accounting.cost import format_epsilon
from pate._core.accounting.statement import sha256
from pate._labeling.commands.check import ledger_show, ledger_verify
from pate.accounting import Budget, Ledger, NeighboringRelation, Statement
from pate.aggregators import StableTopK
from tests.statements import PUBLISHED, RECORDS

REPLACE = NeighboringRelation.REPLACE_RECORD
AGGREGATOR = StableTopK(scale_gap=39.0, sigma_test=60.0, delta_test=1e-9)
Printed = pytest.CaptureFixture[str]


def test_ledger_commands_say_what_the_ledger_holds(tmp_path: Path, capsys: Printed) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    events = AGGREGATOR.events(VoteShape(80, 5))
    budget = Budget(max_epsilon=8.0, delta=1e-6, neighboring_relation=REPLACE)
    labels = tmp_path / "labels.npz"
    labels.write_bytes(b"a list")
    published = PUBLISHED | {
        "kind": "topk",
        "contributions": "one item each",
        "mechanism": {"class": "x", "k": 1},
    }
    published |= {"num_items": 3, "ordered": True, "gap": {"counts": 1.0, "probability": 0.9}}
    ledger.reserve(
        events,
        count=40,
        run="a",
        description="StableTopK",
        seeded=False,
        budget=budget,
        delta=1e-6,
        privacy_unit=RECORDS,
    )
    ledger.settle(1, published=published | {"sha256": sha256(labels)})
    ledger.reserve(
        events, count=9, run="b", description="StableTopK", seeded=True, privacy_unit=RECORDS
    )
    ledger_show(ledger=ledger.path)
    text = capsys.readouterr().out
    assert "2 release(s) of 49 queries" in text
    assert (
        "40 x StableTopK (settled)" in text
        and "9 x StableTopK (reserved, counts in full, SEEDED" in text
    )
    expected = account([(events, 40), (events, 9)], REPLACE).get_epsilon(delta=1e-6)
    assert (
        f"epsilon = {format_epsilon(expected, 4)} at delta = 1e-06 (delta0 = 4.9e-08) under REPLACE_RECORD for one record\n"
        in text
    )
    assert (
        "    The sums hold if no release decided the number, kinds or costs of later ones.\n"
        in text
    )
    kept = (
        "under REPLACE_RECORD for one record; no release is made beyond it, whatever earlier ones"
        " showed. Spent are 0."
    )
    assert f"\nBudget: epsilon <= 8 at delta = 1e-06 {kept}" in text

    file, content = tmp_path / "privacy.json", Statement.of(ledger.snapshot(), 1).content
    file.write_text(json.dumps(content))
    ledger_verify(ledger=ledger.path, statement=file, released=labels)
    assert len(re.findall("every epsilon follows from the events", capsys.readouterr().out)) == 2

    file.with_suffix(".txt").write_text(
        Statement.from_json(content).text.replace("epsilon", "delta")
    )
    with pytest.raises(ValueError, match=r"^Expected the words of the statement in [^\n]*$"):
        ledger_verify(ledger=ledger.path, statement=file, released=labels)
    labels.write_bytes(b"another list")
    with pytest.raises(ValueError, match=r"^Expected the file of release 1, of sha256 [^\n]*$"):
        ledger_verify(ledger=ledger.path, statement=file, released=labels)
    content["costs"]["replace_record"]["epsilon"] = 0.1
    file.write_text(json.dumps(content))
    with pytest.raises(
        ValueError, match=r"^Expected costs.replace_record.epsilon=[^\n]*, got epsilon=0.1$"
    ):
        ledger_verify(ledger=ledger.path, statement=file, released=labels)
    file.write_text("{")
    with pytest.raises(ValueError, match=r"^Expected a readable statement[^\n]*$"):
        ledger_verify(ledger=ledger.path, statement=file)


def test_a_released_file_is_verified_by_its_statement(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    with pytest.raises(
        ValueError,
        match=r"^Expected --statement with --released, got released='[^\n]*labels\.npz'$",
    ):
        ledger_verify(ledger=ledger.path, released=tmp_path / "labels.npz")


def test_a_ledger_without_releases_is_shown(tmp_path: Path, capsys: Printed) -> None:
    """As `pate teachers fit` leaves it, and `pate label` that was refused."""
    Ledger(tmp_path / "ledger.sqlite")
    for command, said in (
        (ledger_show, "0 release(s) of 0 queries"),
        (ledger_verify, "intact; 0 release(s)"),
    ):
        command(ledger=tmp_path / "ledger.sqlite")
        text = capsys.readouterr().out
        assert said in text
        # nothing was released, for no unit
        assert "epsilon =" not in text


def test_the_ledger_shows_what_was_reserved_first(tmp_path: Path, capsys: Printed) -> None:
    """What a refusal cost is no epsilon of what was released."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    events = AGGREGATOR.events(VoteShape(80, 5))
    ledger.reserve(
        events,
        count=40,
        run="a",
        description="StableTopK",
        seeded=False,
        delta=1.00000049e-6,
        privacy_unit=RECORDS,
    )
    ledger.settle(1, realised=[(events, 3)])
    delta = 1.00000049e-6
    texts = {
        n: format_epsilon(account([(events, n)], REPLACE).get_epsilon(delta=delta), 4)
        for n in (40, 3)
    }
    for command in (ledger_show, ledger_verify):
        command(ledger=ledger.path)
        lines = capsys.readouterr().out.splitlines()
        shown = [i for i, line in enumerate(lines) if "under REPLACE_RECORD" in line]
        assert [lines[i].split(" (")[0].strip() for i in shown] == [
            f"epsilon = {texts[n]} at delta = 1.00000049e-06" for n in (40, 3)
        ]
        assert "no guarantee" in lines[shown[1] - 1]


def test_a_damaged_ledger_stops_the_commands(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"damaged")
    for command in (ledger_show, ledger_verify):
        with pytest.raises(ValueError, match=r"^Expected [^\n]*$"):
            command(ledger=path)


def test_a_ledger_says_after_which_release_its_budget_came(tmp_path: Path, capsys: Printed) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    events = AGGREGATOR.events(VoteShape(80, 5))
    budget = Budget(max_epsilon=8.0, delta=1e-6, neighboring_relation=REPLACE)
    for declared in (None, None, budget):
        ledger.reserve(
            events,
            count=4,
            run="a",
            description="StableTopK",
            seeded=False,
            budget=declared,
            delta=1e-6,
            privacy_unit=RECORDS,
        )
        ledger_show(ledger=ledger.path)
        text = capsys.readouterr().out
        number = len(ledger.entries())
        assert (
            "The sums hold if no release decided the number, kinds or costs of later ones." in text
        ) == (number > 1)
    condition = (
        "It was declared after release 2: it holds if neither that nor its"
        " figures followed from what releases 1 .. 2"
    )
    assert f"whatever earlier ones showed. {condition} showed. Spent are" in text
