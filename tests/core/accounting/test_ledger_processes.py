"""Processes that share a ledger: a kill hides nothing, and two never overspend one budget."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pate import VoteShape
from pate._core.accounting.charges import account, affordable
from pate.accounting import Budget, Ledger, verify_ledger
from pate.aggregators import StableTopK
from tests.core.accounting.ledgers import BUDGET, REPLACE, gaussian, reserve

_RELEASER = """
import json, os, sys
from pathlib import Path
import numpy as np
from pate._core.accounting.charges import Budget
from pate._core.accounting.ledger import Ledger
from pate._labeling.aggregators.top_k import StableTopK
from pate._core.accounting.cost import NeighboringRelation
from pate._core.mechanisms.noise import private_generator
from pate._labeling.votes.kinds import VoteShape, Votes
from tests.statements import RECORDS

folder, name, rounds, batch, max_epsilon = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:5]), float(sys.argv[5])
aggregator = StableTopK(scale_gap=20.0, sigma_test=10.0, delta_test=1e-9)
votes = Votes.from_counts(np.tile([50, 48, 1, 0], (batch, 1)), 50)
events = {
    relation: aggregator.event(VoteShape(50, 4), relation)
    for relation in NeighboringRelation
}
budget = Budget(max_epsilon=max_epsilon, delta=1e-6, neighboring_relation="replace_record") if max_epsilon else None
print("ready", flush=True)
sys.stdin.readline()
for _ in range(rounds):
    ledger = Ledger(folder / "ledger.sqlite")
    try:
        release = ledger.reserve(events, count=batch, run=name, description="", seeded=False, budget=budget, privacy_unit=RECORDS)
    except ValueError as error:
        print(error)
        break
    generator = private_generator()
    noise = generator.integers(2**63, size=2).tolist()  # tells its stream from every other
    labels = aggregator.aggregate(votes, generator=generator).labels
    beside = folder / f".{release}"
    beside.write_text(json.dumps({"release": release, "noise": noise, "count": batch, "labels": labels.tolist()}))
    beside.replace(folder / f"{release}.json")  # from here on it is public
    ledger.settle(release)
"""


def start(
    folder: Path, name: str, *, rounds: int, batch: int, max_epsilon: float = 0.0
) -> "subprocess.Popen[str]":
    arguments = [str(folder), name, str(rounds), str(batch), str(max_epsilon)]
    command = [sys.executable, "-c", _RELEASER, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def go(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def require_nothing_hidden(folder: Path) -> int:
    """Check that all that is public is in the ledger, with noise of its own; return how many
    releases are public."""
    entries = {entry.release: entry for entry in verify_ledger(folder / "ledger.sqlite").entries}
    public = [json.loads(file.read_text()) for file in folder.glob("*.json")]
    for release in public:
        assert release["count"] <= entries[release["release"]].count
    settled = {number for number, entry in entries.items() if entry.settled}
    assert settled <= {release["release"] for release in public}
    assert len({tuple(release["noise"]) for release in public}) == len(public)
    assert sum(entry.count for entry in entries.values()) >= sum(
        release["count"] for release in public
    )
    return len(public)


@pytest.mark.slow
def test_two_processes_never_overspend_one_budget(tmp_path: Path) -> None:
    aggregator = StableTopK(scale_gap=20.0, sigma_test=10.0, delta_test=1e-9)
    query = aggregator.event(VoteShape(50, 4))
    budget = Budget(max_epsilon=6.0, delta=1e-6, neighboring_relation=REPLACE)
    batches = affordable(budget, query.cost()) // 2
    # either alone asks for three quarters of the budget, both for more than all
    rounds = batches * 3 // 4
    pair = [
        start(tmp_path, name, rounds=rounds, batch=2, max_epsilon=6.0)
        for name in ("first", "second")
    ]
    for process in pair:
        go(process)
    outputs = [process.communicate()[0] for process in pair]
    assert [process.returncode for process in pair] == [0, 0]
    assert any("Expected epsilon <= 6 at delta = 1e-06" in output for output in outputs)
    book = verify_ledger(tmp_path / "ledger.sqlite")
    assert {entry.run for entry in book.entries} == {"first", "second"}
    assert len(book.entries) == batches
    assert account(book.charges(), REPLACE).get_epsilon(delta=1e-6) <= 6.0
    require_nothing_hidden(tmp_path)


def test_a_check_outside_the_transaction_would_overspend(tmp_path: Path) -> None:
    """What the lock is for: two that read before either writes both find the budget unspent."""
    path = tmp_path / "ledger.sqlite"
    first, second = Ledger(path), Ledger(path)
    most = affordable(BUDGET, gaussian(60)[REPLACE].cost())
    reserve(first, gaussian(60), most, BUDGET)
    with pytest.raises(ValueError, match=": 0 such queries can be paid"):
        reserve(second, gaussian(60), most, BUDGET)
