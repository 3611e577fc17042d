"""The one transaction, killed at each of its steps."""

import json
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pate
from pate._core import transaction
from pate._core.accounting.charges import BudgetExceededError, affordable
from pate._core.mechanisms.noise import KEY_BITS
from pate._core.transaction import (
    PendingRelease,
    delete_other_seeds,
    destroy,
    pending_release,
)
from pate._labeling.release.labels import LabelsRelease
from pate.accounting import Budget, Ledger, NeighboringRelation, Statement, read_ledger
from pate.aggregators import NoisyVotes
from tests.core.accounting import ledgers as events
from tests.labeling.release.test_labels_crash import SCREEN, Killed
from tests.statements import RECORDS

STEPS = {
    "request_digest": None,
    "write": PendingRelease,
    "reserve": Ledger,
    "delete_other_seeds": transaction,
    "draw": None,
    "settlement": None,
    "settle": Ledger,
    "write_json": transaction,
    "write_text": transaction,
    "destroy": transaction,
}
"""What is called at each step, and of what, or None for the labels."""


FILE, STATEMENT = "public/labels.npz", "public/privacy.json"


def lay_out_votes(folder: Path) -> None:
    """Votes from a file, of which labels were released once."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    sure = generator.choice([0.1, 0.9], size=(80, 1, 4))
    ballots = (generator.random((80, 10, 4)) < sure).astype(np.uint8)
    ids, names = np.array([f"x{number}" for number in range(80)]), ("a", "b", "c", "d")
    pate.NamedVotes(ids=ids, label_names=names, ballots=ballots).save(folder / "votes.npz")
    settings = pate.LabelSettings(NoisyVotes(sigma_votes=3), num_queries=60, delta=1e-3)
    label_votes(folder, settings)


def label_votes(folder: Path, settings: pate.LabelSettings) -> None:
    ledger = folder / "ledger.sqlite"
    pate.label(folder / "votes.npz", settings, run=folder, ledger=ledger, overwrite=True)


def release_labels(folder: Path) -> None:
    label_votes(folder, pate.LabelSettings(SCREEN, num_queries=60, delta=1e-3))


def content(file: Path) -> object:
    """Return what a release says, but for the seal of its votes, which are imported each time."""
    if file.suffix != ".npz":
        return file.read_bytes()
    with np.load(file) as arrays:
        return {name: arrays[name].tolist() for name in arrays.files if name != "seal"}


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """What a release that is never killed leaves, of the first seed and of the second."""
    left = []
    for seed in (1, 2):
        folder = tmp_path_factory.mktemp("unbroken") / "run"
        lay_out_votes(folder)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(transaction, "draw_key", lambda seed=seed: seed)
            release_labels(folder)
        left.append(content(folder / FILE))
    assert left[0] != left[1]
    return left


# in the fast suite where it has paid and drawn nothing, and where nothing is settled
FAST = [("reserve", True), ("settle", False)]
KILLS = [(step, after) for step in STEPS for after in (False, True)]


@pytest.mark.parametrize(
    ("step", "after"),
    [kill if kill in FAST else pytest.param(*kill, marks=pytest.mark.slow) for kill in KILLS],
)
def test_killed_at_any_step_it_pays_once_and_draws_the_same(
    step: str, after: bool, unbroken: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pate._labeling.plan.rehearse", lambda *_, **__: None)  # it would be killed
    folder, seeds = tmp_path / "run", count(1)
    lay_out_votes(folder)
    before = (folder / FILE).read_bytes() if (folder / FILE).is_file() else None
    monkeypatch.setattr(transaction, "draw_key", lambda: next(seeds))
    owner: Any = STEPS[step] or LabelsRelease
    original = getattr(owner, step)

    def cut(*args: Any, **kwargs: Any) -> None:
        if after:
            original(*args, **kwargs)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(owner, step, cut)
        with pytest.raises(Killed):
            release_labels(folder)
    file, statement = folder / FILE, folder / STATEMENT
    if statement.exists():
        Statement.read(statement).verify(released=file)
    paid = (folder / "ledger.sqlite").is_file() and len(
        read_ledger(folder / "ledger.sqlite").entries
    ) > 1
    assert paid == ((list(STEPS).index(step), after) >= (list(STEPS).index("reserve"), True))
    if file.exists() and file.read_bytes() != before:
        assert paid
    release_labels(folder)
    entries = read_ledger(folder / "ledger.sqlite").entries
    assert len(entries) == 2 and entries[-1].settled
    # what is reserved has its own noise; before that, a seed that never served may be left for
    # another
    assert content(file) == unbroken[0] if paid else content(file) in unbroken
    Statement.read(statement).verify(ledger=folder / "ledger.sqlite", released=file)
    assert not (folder / "private/label").exists()


def test_a_refusal_says_whose_releases_have_used_up_a_budget(tmp_path: Path) -> None:
    """And to take other data only where these would do."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    once = events.gaussian(60)

    def said(
        error: ValueError, budget: Budget | None = events.BUDGET, number: int = 1
    ) -> ValueError:
        return transaction._with_its_ledger(
            error, ledger.path, ledger.entries(), budget, (once, number)
        )

    exceeded, other = BudgetExceededError("Expected less"), ValueError("Expected more")
    for error in (exceeded, other):
        assert str(said(error)) == f"{error} ({ledger.path})"
    events.reserve(ledger, once, 1)
    assert str(said(other)) == f"Expected more ({ledger.path})"
    named = ValueError(f"Expected {ledger.path}")
    assert said(named) is named
    most = affordable(events.BUDGET, once[NeighboringRelation.REPLACE_RECORD].cost())
    for budget, number, fits in (
        (events.BUDGET, most, True),
        (events.BUDGET, most + 1, False),
        (None, most + 1, True),
    ):
        text = str(said(exceeded, budget, number))
        assert (
            text.startswith(f"Expected less. The ledger {ledger.path} counts ")
            and "(run), including deleted runs" in text
        )
        assert ("take other data" in text) == fits


def test_what_is_reserved_is_not_asked_whether_its_delta_suffices_again(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    seeds = tmp_path / "seeds"
    publication: Any = SimpleNamespace(noise_seed=None, seeds=seeds)

    def reserve(number: int) -> int:
        terms = transaction.ReservationRequest(
            ledger=ledger,
            events=events.stable(),  # with tests of 1e-9
            count=number,
            relation=NeighboringRelation.REPLACE_RECORD,
            delta=1e-6,
            budget=None,
            run="one",
            description="",
            privacy_unit=RECORDS,
        )
        return transaction._reserve(publication, terms, pending_release(seeds, "request", 1))

    with pytest.raises(ValueError, match=r"^Expected delta > "):
        reserve(1001)
    assert ledger.entries() == () and not seeds.exists()
    events.reserve(ledger, events.stable(), 300)
    assert reserve(600) == reserve(600) == 2
    with pytest.raises(ValueError, match=r"^Expected the cost that release 2 reserved"):
        reserve(601)
    assert [entry.count for entry in ledger.entries()] == [300, 600] and seeds.exists()


@pytest.mark.parametrize("key", [0, 5, 2**KEY_BITS - 1])
def test_a_request_finds_what_it_began(tmp_path: Path, key: int) -> None:
    folder = tmp_path / "private" / "seeds"
    begun = pending_release(folder, "one", key)
    begun.write()
    assert pending_release(folder, "one", 7) == begun and begun.key == key
    begun.write()
    assert pending_release(folder, "one", 7) == begun
    other = pending_release(folder, "two", 7)
    assert other.token != begun.token and not other.file.exists()
    # a guess of 128 bits; the seed is shown nowhere
    assert len(begun.token) == 32 and "key" not in repr(begun)


@pytest.mark.parametrize(
    "content",
    [
        {"token": 3},
        {"token": ""},
        {"token": None},
        {"key": "-1"},
        {"key": f"{1 << KEY_BITS:x}"},
        {"key": 5},
    ],
)
def test_what_no_command_wrote_is_refused(tmp_path: Path, content: dict[str, Any]) -> None:
    (tmp_path / "one.json").write_text(json.dumps({"token": "a", "key": "1"}))
    assert pending_release(tmp_path, "one", 7).key == 1
    (tmp_path / "one.json").write_text(json.dumps({"token": "a", "key": "1"} | content))
    with pytest.raises(ValueError, match=r"^Expected what a command that was killed left\."):
        pending_release(tmp_path, "one", 7)


def test_a_seed_is_destroyed_by_its_token_alone(tmp_path: Path) -> None:
    folder = tmp_path / "seeds"
    one, two, three = (pending_release(folder, request, 7) for request in ("one", "two", "three"))
    for pending in (one, two, three):
        pending.write()
    for token in (None, "another"):
        destroy(folder, token)
        assert len(list(folder.iterdir())) == 3
    destroy(folder, two.token)
    assert {*folder.iterdir()} == {one.file, three.file}
    delete_other_seeds(one)
    assert {*folder.iterdir()} == {one.file}
    destroy(folder, one.token)
    assert not folder.exists()
    destroy(folder, one.token)
