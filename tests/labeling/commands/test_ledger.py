"""The commands on ledgers: what they print is what the ledger holds."""

import json
from pathlib import Path

import pytest

from pate import LabelSettings, NoisyVotes, VoteShape, label
from pate._core.accounting.charges import account
from pate._core.accounting.cost import format_epsilon
from pate._labeling.commands.check import ledger_show, verify_file
from pate.accounting import Budget, Ledger, NeighboringRelation, Statement
from pate.aggregators import StableTopK
from tests.conftest import made_votes
from tests.statements import PUBLISHED, RECORDS

REPLACE = NeighboringRelation.REPLACE_RECORD
AGGREGATOR = StableTopK(scale_gap=39.0, sigma_test=60.0, delta_test=1e-9)
Printed = pytest.CaptureFixture[str]


def test_ledger_commands_say_what_the_ledger_holds(tmp_path: Path, capsys: Printed) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    events = AGGREGATOR.events(VoteShape(80, 5))
    budget = Budget(max_epsilon=8.0, delta=1e-6, neighboring_relation=REPLACE)
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
    ledger.settle(1, published=PUBLISHED)
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


def test_a_statement_is_verified_with_its_text_and_its_labels(
    tmp_path: Path, capsys: Printed
) -> None:
    settings = LabelSettings(NoisyVotes(sigma_votes=3.0), num_queries=9, delta=1e-6)
    label(made_votes(), settings, run=tmp_path)
    ledger, public = tmp_path / "ledger.sqlite", tmp_path / "public"
    file, text, labels = (public / name for name in ("privacy.json", "privacy.txt", "labels.npz"))
    capsys.readouterr()
    verify_file(file, ledger=ledger)
    assert capsys.readouterr().out.count("every epsilon follows from the events") == 2

    def refused(changed: Path, content: bytes) -> str:
        before = changed.read_bytes()
        changed.write_bytes(content)
        with pytest.raises(ValueError, match=r"^Expected [^\n]*$") as error:
            verify_file(file, ledger=ledger)
        changed.write_bytes(before)
        return str(error.value)

    words = text.read_bytes().replace(b"epsilon", b"delta")
    assert "Expected the words of the statement in" in refused(text, words)
    # the central directory of a zip ends with a comment
    other = labels.read_bytes()[:-2] + b"\x01\0!"
    assert "Expected the file of release 1, of sha256" in refused(labels, other)
    content = json.loads(file.read_text())
    content["costs"]["replace_record"]["epsilon"] = 0.1
    wrong = refused(file, json.dumps(content).encode())
    assert "Expected costs.replace_record.epsilon=" in wrong and "got epsilon=0.1" in wrong
    assert "Expected a readable statement" in refused(file, b"{")


def test_a_long_ledger_is_shown_by_kind_and_its_statement_in_few_lines(
    tmp_path: Path, capsys: Printed
) -> None:
    ledger, events = Ledger(tmp_path / "ledger.sqlite"), AGGREGATOR.events(VoteShape(80, 5))
    for number in range(101):
        named = {"run": f"run{number}", "description": "StableTopK", "seeded": False}
        ledger.reserve(events, count=3, privacy_unit=RECORDS, delta=1e-6, **named)  # type: ignore[arg-type]
    ledger.settle(101, published=PUBLISHED)
    ledger_show(ledger=ledger.path)
    said = capsys.readouterr().out
    assert "100 release(s) of 300 queries: StableTopK (reserved, counts in full)" in said
    assert said.count(" run") == 20 and " run81: " in said and " run80: " not in said
    ledger_show(ledger=ledger.path, all=True)
    assert capsys.readouterr().out.count(" run") == 101
    text = Statement.of(ledger.snapshot(), 101).text
    # each of 101 releases has two events, which are the same in all
    assert text.count(f"\n    {3 * 101} x ") == 2 and len(text.splitlines()) < 200
