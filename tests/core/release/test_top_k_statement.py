"""The statement of a top k: every figure follows from its events and its ledger, and a changed one
is found."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate._core.accounting.charges import account
from pate._core.accounting.privacy_unit import EACH
from pate._core.release.histogram import Histogram, HistogramFiles
from pate._core.release.top_k import TopKSettings, release_top_k
from pate.accounting import Ledger, NeighboringRelation, PrivacyUnit, Statement, read_ledger
from pate.mechanisms import CanonicalMechanism, GumbelPeeling, LimitedDomain
from tests.statements import COMMON_KEYS, edits

ADD_REMOVE = NeighboringRelation.ADD_REMOVE_TEACHER
COUNTS = {"a": 9, "b": 7, "c": 5, "d": 3, "e": 1, "f": 0}


def release(
    folder: Path, name: str, mechanism: str = "peeling", max_epsilon: float | None = None
) -> Statement:
    settings = TopKSettings(
        k=2, mechanism=mechanism, target_epsilon=2.0, noise_seed=3, max_epsilon=max_epsilon
    )
    pairs, items = folder / "pairs.csv", folder / "items.txt"
    # two of each user
    lines = [f"u{i // 2},{item}\n" for item, count in COUNTS.items() for i in range(count)]
    pairs.write_text("user,item\n" + "".join(lines))
    items.write_text("\n".join(COUNTS) + "\n")
    source = HistogramFiles(pairs=pairs, items=items, max_each=2)
    release_top_k(source, settings, output=folder / f"{name}.csv", ledger=folder / "ledger.sqlite")
    return Statement.read(folder / f"{name}.privacy.json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with a budget of 9, and three releases; the first two have the same events."""
    made = tmp_path_factory.mktemp("topk")
    for name in ("first", "second"):
        release(made, name, max_epsilon=9.0)
    release(made, "third", "canonical")
    return made


def stated(folder: Path, name: str) -> Statement:
    return Statement.read(folder / f"{name}.privacy.json")


def test_each_statement_follows_though_more_was_released_since(folder: Path) -> None:
    ledger = folder / "ledger.sqlite"
    names = ("first", "second", "third")
    later = {
        name: stated(folder, name).verify(ledger=ledger, released=folder / f"{name}.csv")
        for name in names
    }
    assert later == {"first": 2, "second": 1, "third": 0}
    # by hand: the noise, the sum, and the ledger
    second, entries = stated(folder, "second"), read_ledger(ledger).entries
    scale = second["mechanism"]["scale"]
    event = GumbelPeeling(k=2, scale=scale, sensitivity=2.0).event(ADD_REMOVE)
    assert [entry.events[ADD_REMOVE] for entry in entries[:2]] == [event, event]
    once = [(entry.events, 1) for entry in entries[:2]]
    together = account(once, ADD_REMOVE).get_epsilon(delta=1e-6)
    assert second["costs"][ADD_REMOVE.value]["epsilon"] == together
    assert second["reach"][0][ADD_REMOVE.value] == together
    this_release = account(once[:1], ADD_REMOVE).get_epsilon(delta=1e-6)
    assert second["this_release"][ADD_REMOVE.value]["epsilon"] == this_release
    # two users at once are twice as wide a window
    twice = GumbelPeeling(k=2, scale=scale / 2, sensitivity=2.0).events()
    assert second["reach"][1][ADD_REMOVE.value] == account([(twice, 2)], ADD_REMOVE).get_epsilon(
        delta=1e-6
    )


KEYS = [
    *COMMON_KEYS,
    *("contributions", "mechanism", "num_items", "ordered", "listing", "gap", "versions", "sha256"),
]


def test_all_keys_are_edited(folder: Path) -> None:
    made = stated(folder, "second")
    assert set(made.content) == set(KEYS)
    assert not verifies(made.content | {"epsilon": 0.1}, folder / "ledger.sqlite")


def test_a_limited_domain_leaves_one_public_item_out_at_least() -> None:
    histogram = Histogram(tuple(COUNTS), np.array(list(COUNTS.values())), 1.0, "", public=True)
    settings = TopKSettings(k=2, mechanism="limited_domain", kbar=5, scale=1.0)
    made = settings.mechanism_for(histogram)
    assert isinstance(made, LimitedDomain) and made.kbar == 5
    with pytest.raises(ValueError, match=r"^Expected kbar <= 5, got kbar=6$"):
        replace(settings, kbar=6).mechanism_for(histogram)


@pytest.mark.parametrize("key", KEYS)
def test_an_edit_is_noticed(folder: Path, key: str) -> None:
    content, ledger = stated(folder, "second").content, folder / "ledger.sqlite"
    _, edited = next(edits(content[key]))
    assert verifies(content, ledger) and not verifies(content | {key: edited}, ledger)
    assert not verifies({name: value for name, value in content.items() if name != key}, ledger)


@pytest.mark.slow
def test_every_edit_is_noticed(folder: Path) -> None:
    content, ledger = stated(folder, "second").content, folder / "ledger.sqlite"
    assert [place for place, edited in edits(content) if verifies(edited, ledger)] == []


def verifies(content: dict[str, Any], ledger: Path) -> bool:
    try:
        Statement.from_json(content).verify(ledger=ledger)
    except ValueError as error:
        return "\n" in str(error) or not str(error).startswith("Expected ")
    return True


def test_scale_and_sensitivity_are_those_that_ran(folder: Path) -> None:
    """Twice as much of both costs the same, and is another mechanism on other counts."""
    content = json.loads(json.dumps(stated(folder, "second").content))
    for name in ("scale", "sensitivity"):
        content["mechanism"][name] *= 2
    content["contributions"] = content["contributions"].replace("2 each", "4 each")
    assert not verifies(content, folder / "ledger.sqlite")


def test_a_list_that_was_changed_is_noticed(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "second.csv"
    other.write_text((folder / "second.csv").read_text().replace("a", "b", 1))
    with pytest.raises(ValueError, match=r"^Expected the file of release 2, of sha256 [^\n]*$"):
        stated(folder, "second").verify(ledger=folder / "ledger.sqlite", released=other)


def test_another_ledger_or_an_older_one_is_noticed(folder: Path, tmp_path: Path) -> None:
    second = stated(folder, "second")
    release(tmp_path, "first", max_epsilon=9.0)
    older = tmp_path / "older.sqlite"
    shutil.copy(tmp_path / "ledger.sqlite", older)
    latest = release(tmp_path, "second")
    for made, ledger in ((latest, older), (second, tmp_path / "ledger.sqlite")):
        with pytest.raises(ValueError, match="it may be an older copy"):
            made.verify(ledger=ledger)
    latest.verify(ledger=tmp_path / "ledger.sqlite")


def test_a_statement_ends_where_its_release_was_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another process adds at the same time is not in it."""
    settle, events = Ledger.settle, CanonicalMechanism(k=2, scale=30.0).events()
    named: dict[str, Any] = {"count": 1, "description": "CanonicalMechanism", "seeded": False}
    named["privacy_unit"] = PrivacyUnit(unit="user", partition=EACH)

    def crowded(self: Ledger, number: int, **changes: Any) -> Any:
        self.reserve(events, run="other", **named)
        head = settle(self, number, **changes)
        self.reserve(events, run="another", **named)
        return head

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "settle", crowded)
        made = release(tmp_path, "first")
    assert len(made["releases"]) == 2 and len(read_ledger(tmp_path / "ledger.sqlite").entries) == 3
    assert made.verify(ledger=tmp_path / "ledger.sqlite") == 1
