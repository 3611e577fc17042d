"""The statement of a top k: every figure follows from its events and its ledger, and a changed one is found."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pate.accounting.charges import account
from pate.accounting.ledger import Ledger, read_ledger
from pate.accounting.relation import NeighboringRelation
from pate.histogram import HistogramFiles
from pate.mechanisms import CanonicalMechanism, GumbelPeeling
from pate.stages.top_k import Choice, TopKSettings, release_top_k
from pate.stages.top_k_verification import verify_top_k

ADD_REMOVE = NeighboringRelation.ADD_REMOVE_TEACHER
COUNTS = {"a": 9, "b": 7, "c": 5, "d": 3, "e": 1, "f": 0}
Statement = dict[str, Any]


def release(folder: Path, name: str, mechanism: Choice = "peeling", max_epsilon: float | None = None) -> Statement:
    settings = TopKSettings(k=2, mechanism=mechanism, target_epsilon=2.0, noise_seed=3)
    pairs, items = folder / "pairs.csv", folder / "items.txt"
    # two of each user
    lines = [f"u{i // 2},{item}\n" for item, count in COUNTS.items() for i in range(count)]
    pairs.write_text("user,item\n" + "".join(lines))
    items.write_text("\n".join(COUNTS) + "\n")
    source = HistogramFiles(pairs=pairs, items=items, max_each=2)
    release_top_k(
        source, settings, output=folder / f"{name}.csv", ledger=folder / "ledger.sqlite", max_epsilon=max_epsilon
    )
    found: Statement = json.loads((folder / f"{name}.privacy.json").read_text())
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with a budget of 9, and three releases; the first two have the same events."""
    made = tmp_path_factory.mktemp("topk")
    for name in ("first", "second"):
        release(made, name, max_epsilon=9.0)
    release(made, "third", "canonical")
    return made


def stated(folder: Path, name: str) -> Statement:
    found: Statement = json.loads((folder / f"{name}.privacy.json").read_text())
    return found


def test_each_statement_follows_though_more_was_released_since(folder: Path) -> None:
    later = {
        name: verify_top_k(stated(folder, name), folder / "ledger.sqlite") for name in ("first", "second", "third")
    }
    assert later == {"first": 2, "second": 1, "third": 0}
    # by hand: the noise, the sum, and the ledger
    second, entries = stated(folder, "second"), read_ledger(folder / "ledger.sqlite").entries
    scale = second["mechanism"]["scale"]
    event = GumbelPeeling(k=2, scale=scale, sensitivity=2.0).event(ADD_REMOVE)
    assert [entry.events[ADD_REMOVE] for entry in entries[:2]] == [event, event]
    told = second["guarantees"]["add_remove"]
    once = [(entry.events, 1) for entry in entries[:2]]
    assert told["all_releases"]["epsilon"] == account(once, ADD_REMOVE).get_epsilon(delta=1e-6)
    assert told["this_release"]["epsilon"] == account(once[:1], ADD_REMOVE).get_epsilon(delta=1e-6)


def guarantee(made: Statement, name: str = "add_remove") -> Statement:
    found: Statement = made["guarantees"][name]
    return found


def smaller(kind: str, figure: str, name: str) -> Callable[[Statement], object]:
    return lambda made: guarantee(made, name)[kind].update({figure: 0.125})


CHANGES: dict[str, Callable[[Statement], object]] = {
    f"{kind} {figure} {name}": smaller(kind, figure, name)
    for kind in ("this_release", "all_releases")
    for figure in ("epsilon", "delta", "delta0", "order", "rdp", "mu")
    for name in ("add_remove", "replace")
}
CHANGES |= {
    "an unbounded epsilon": lambda made: guarantee(made)["all_releases"].update(epsilon=None),
    "an event of more noise": lambda made: guarantee(made)["event"]["event"].update(eta=0.01),
    "the event of the other relation": lambda made: guarantee(made, "replace").update(event=guarantee(made)["event"]),
    "the other relation": lambda made: guarantee(made, "replace").update(guarantee(made)),
    "a relation beside the two": lambda made: made["guarantees"].update(nobody=guarantee(made)),
    "a relation left out": lambda made: made["guarantees"].pop("replace"),
    "neighbors first that are none": lambda made: made.update(neighbors="nobody"),
    "neighbors first that the budget does not protect": lambda made: made.update(neighbors="replace"),
    "a text of other neighbors": lambda made: guarantee(made).update(neighbors="all is altered"),
    "a text of smaller contributions": lambda made: guarantee(made).update(
        neighbors=guarantee(made)["neighbors"].replace("at most 2", "at most 1")
    ),
    "a figure beside those that follow": lambda made: guarantee(made).update(epsilon=0.1),
    "a part left out": lambda made: guarantee(made).pop("this_release"),
    "another release of the same cost": lambda made: made.update(release=1),
    "a release of another cost": lambda made: made.update(release=3),
    "a release that is none": lambda made: made.update(release=9),
    "said to be private": lambda made: made.update(private=True),
    "a larger limit": lambda made: made.update(max_epsilon=90.0),
    "fewer releases": lambda made: made["ledger"].update(releases=1),
    "another row": lambda made: made["ledger"].update(rows=made["ledger"]["rows"] - 1),
    "another digest": lambda made: made["ledger"].update(digest="0" * 32),
    "a ledger of no rows": lambda made: made["ledger"].update(rows=0, digest=""),
    "another mechanism": lambda made: made["mechanism"].update({"class": "PermuteAndFlipPeeling"}),
    "no mechanism": lambda made: made["mechanism"].update({"class": "Histogram"}),
    "more noise": lambda made: made["mechanism"].update(scale=99.0),
    "a smaller sensitivity": lambda made: made["mechanism"].update(sensitivity=1.0),
    "more choices": lambda made: made["mechanism"].update(k=3),
    "more items": lambda made: made.update(num_items=7),
    "a set": lambda made: made.update(ordered=False),
    "a smaller gap": lambda made: made["gap"].update(counts=0.5),
    "a likelier gap": lambda made: made["gap"].update(probability=0.99),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_changed_is_noticed(folder: Path, change: str) -> None:
    made = stated(folder, "second")
    before = json.dumps(made)
    CHANGES[change](made)
    assert json.dumps(made) != before
    with pytest.raises(ValueError, match=r"^Expected [^\n]*$"):
        verify_top_k(made, folder / "ledger.sqlite")


def test_every_figure_is_among_those_that_are_changed(folder: Path) -> None:
    """So that a new figure of a statement is checked too."""
    made = stated(folder, "second")
    parts = {(kind, figure) for kind in ("this_release", "all_releases") for figure in guarantee(made)[kind]}
    assert all(f"{kind} {figure} add_remove" in CHANGES for kind, figure in parts)
    unchecked = {"versions"}
    assert set(made) - unchecked == {
        *("private", "neighbors", "guarantees", "max_epsilon", "mechanism", "num_items", "ordered", "gap"),
        *("ledger", "release"),
    }


def test_another_ledger_or_an_older_one_is_noticed(folder: Path, tmp_path: Path) -> None:
    second = stated(folder, "second")
    release(tmp_path, "first", max_epsilon=9.0)
    older = tmp_path / "older.sqlite"
    shutil.copy(tmp_path / "ledger.sqlite", older)
    latest = release(tmp_path, "second")
    for made, ledger in ((latest, older), (second, tmp_path / "ledger.sqlite")):
        with pytest.raises(ValueError, match="it may be an older copy"):
            verify_top_k(made, ledger)
    verify_top_k(latest, tmp_path / "ledger.sqlite")


def test_a_statement_ends_where_its_release_was_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another process adds at the same time is not in it."""
    settle, events = Ledger.settle, CanonicalMechanism(k=2, scale=30.0).events()

    def crowded(self: Ledger, number: int) -> Any:
        self.reserve(events, count=1, run="other", description="CanonicalMechanism", seeded=False)
        head = settle(self, number)
        self.reserve(events, count=1, run="another", description="CanonicalMechanism", seeded=False)
        return head

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "settle", crowded)
        made = release(tmp_path, "first")
    assert made["ledger"]["releases"] == 2 and len(read_ledger(tmp_path / "ledger.sqlite").entries) == 3
    assert verify_top_k(made, tmp_path / "ledger.sqlite") == 1
