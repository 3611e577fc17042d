"""Units that reach several teachers, by whole commands: statements, budgets, the ledger and what is
disclosed."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate import NamedVotes, cli
from pate._core.accounting.charges import Charge, account, for_group_size
from pate.accounting import NeighboringRelation, read_ledger

Captured = pytest.CaptureFixture[str]
REPLACE = NeighboringRelation.REPLACE_RECORD
NOISY = (
    "--aggregator=NoisyVotes",
    "--delta=1e-5",
    "--aggregator.sigma_votes=50",
    "--num_queries=10",
)
TWO = "--max_teachers_per_unit=2"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    ballots = np.random.default_rng(0).integers(0, 2, size=(20, 50, 2), dtype=np.uint8)
    NamedVotes(
        ids=np.char.mod("s%02d", np.arange(20)), label_names=("a", "b"), ballots=ballots
    ).save("votes.npz")
    return tmp_path


def label(run: str, *words: str) -> int:
    return cli.main(["label", "--votes=votes.npz", "--run", run, *NOISY, *words])


def stated(run: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(run, "public", "privacy.json").read_text())
    return content


def epsilon(charges: list[Charge]) -> float:
    return account(charges, REPLACE).get_epsilon(delta=1e-5)


def once() -> Charge:
    entry = read_ledger(Path("votes.ledger.sqlite")).entries[0]
    return entry.events, entry.count


def verified(run: str) -> int:
    words = ["verify", f"{run}/public/privacy.json", "--ledger=votes.ledger.sqlite"]
    return cli.main(words)


@pytest.mark.parametrize("order", [(TWO, ""), pytest.param(("", TWO), marks=pytest.mark.slow)])
def test_all_releases_are_stated_for_the_units_that_reach_most(
    order: tuple[str, str], capsys: Captured
) -> None:
    """The figure that a release of two teachers had is never taken back by one that says
    nothing."""
    for run, word in zip(("one", "two"), order, strict=True):
        assert label(run, *filter(None, [word])) == 0
    out = capsys.readouterr().out
    total = epsilon(for_group_size([once()] * 2, 2))
    assert stated("two")["guarantees"]["replace_record"]["epsilon"] == pytest.approx(total)
    assert stated("two")["this_release"]["replace_record"]["epsilon"] == pytest.approx(
        epsilon(for_group_size([once()], 2))
    )
    assert "which reaches 2 teachers at most" in out.split("The ledger of")[-2]
    assert label("one", *filter(None, [order[0]])) == 0  # states its labels again
    first, second = (stated(run)["guarantees"] for run in ("one", "two"))
    assert first["replace_record"] == second["replace_record"]
    # each run has teachers of its own, which no other release is about
    assert first["add_remove_teacher"]["epsilon"] is second["add_remove_teacher"]["epsilon"] is None
    assert verified("one") == verified("two") == 0
    capsys.readouterr()
    assert cli.main(["ledger", "show", "votes.ledger.sqlite"]) == 0
    out = capsys.readouterr().out
    shown = re.search(
        r"epsilon = ([\d.]+) at delta = 1e-05 \(delta0 = 0\) under REPLACE_RECORD(.*)", out
    )
    assert shown is not None and float(shown[1]) == pytest.approx(total, abs=1e-4)
    assert shown[2] == " for one record for a unit that reaches 2 teachers at most"
    assert out.count("made for a unit that reaches 2 teachers at most") == 1
    assert out.count("made for a unit that reaches 1 teacher at most") == 1


def test_a_budget_is_for_units_of_two_teachers_or_refuses_them(capsys: Captured) -> None:
    assert label("one", "--max_epsilon=1.5") == 0
    capsys.readouterr()
    assert label("two", TWO) == 2
    line = capsys.readouterr().err
    assert (
        "Expected max_teachers_per_unit <= 1, the units that the budget of the ledger holds for, got"
        in line
    )
    assert (
        len(line.splitlines()) == 1 and len(read_ledger(Path("votes.ledger.sqlite")).entries) == 1
    )
    Path("votes.ledger.sqlite").unlink()
    for run in ("three", "four"):
        assert label(run, TWO, *(["--max_epsilon=1.5"] if run == "three" else [])) == 0
    assert label("five") == 0  # of two teachers at most, as the budget is
    budget = stated("five")["guarantees"]["replace_record"]
    assert (budget["epsilon"], budget["fixed_by"]) == (
        1.5,
        "budget",
    ) and "which reaches 2 teachers" in budget["neighbors"]
    capsys.readouterr()
    spent = stated("five")["costs"]["replace_record"]["epsilon"]
    assert spent == pytest.approx(epsilon(for_group_size([once()] * 3, 2))) and spent < 1.5
    assert verified("five") == 0
    assert (
        "under REPLACE_RECORD for one record for a unit that reaches 2 teachers at most;"
        in capsys.readouterr().out
    )
    # what units of one teacher could still afford, units of two cannot
    assert epsilon([once()] * 6) < 1 < 1.5 < epsilon(for_group_size([once()] * 6, 2))
    assert label("six") == 0
    assert label("seven", "--num_queries=20") == 2
    assert "Expected epsilon <= 1.5" in capsys.readouterr().err


def test_a_target_and_a_budget_of_two_teachers_fit(capsys: Captured) -> None:
    words = (
        "--aggregator=NoisyVotes",
        "--delta=1e-5",
        TWO,
        "--target_epsilon=2",
        "--max_epsilon=2",
    )
    assert cli.main(["label", "--votes=votes.npz", "--run=one", *words]) == 0
    assert 1.95 < stated("one")["costs"]["replace_record"]["epsilon"] <= 2
