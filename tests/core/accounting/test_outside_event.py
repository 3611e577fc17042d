"""An event of another package is one class: it has a cost, JSON, and a place in ledgers and
statements."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate._core.accounting.base import Event, event_from_dict
from pate._core.accounting.charges import Events, Totals, account, parse_events
from pate._core.accounting.curves import pure_dp_mu_squared
from pate._core.testing.mechanisms import Laws
from pate._core.validation import FloatArray, require_positive
from pate.accounting import (
    DEFAULT_ORDERS,
    Cost,
    Ledger,
    NeighboringRelation,
    Statement,
    read_ledger,
    verify_ledger,
)
from pate.testing import EventContract
from tests.core.accounting.ledgers import reserve
from tests.statements import PUBLISHED

REPLACE, TEACHER = NeighboringRelation.REPLACE_RECORD, NeighboringRelation.ADD_REMOVE_TEACHER


@dataclass(frozen=True, kw_only=True)
class LaplaceEvent(Event):
    """Laplace noise of ``scale`` times the sensitivity (Mironov (2017), Proposition 6)."""

    scale: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(scale=self.scale)

    def cost(self, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
        """Return the curve on ``orders`` ``[K]``."""
        far = np.log(orders / (2 * orders - 1)) + (orders - 1) / self.scale
        near = np.log((orders - 1) / (2 * orders - 1)) - orders / self.scale
        return Cost(
            np.logaddexp(far, near) / (orders - 1), 0.0, float(pure_dp_mu_squared(1 / self.scale))
        )


class TestLaplaceEvent(EventContract):
    tight_mu = False

    def event(self, noise: float, relation: NeighboringRelation) -> Event:
        return LaplaceEvent(scale=2 * noise, neighboring_relation=relation)

    def laws(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        return self.laws_at(1, noise)

    def laws_of_two(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        return self.laws_at(2, noise)

    def laws_at(self, distance: int, noise: float) -> list[Laws]:
        # beyond the two means, at 0 and the distance, the loss is constant
        edges = np.linspace(0, distance, 1001)
        beyond = np.exp(-edges / (2 * noise))
        first = np.log([1.0, *(beyond[:-1] - beyond[1:]), beyond[-1]])
        return [(first, first[::-1])]

    def malformed(self) -> list[dict[str, Any]]:
        return [{"scale": bad} for bad in (0.0, -1.0, float("nan"), "2", None, True)]


def laplace(scale: float) -> Events:
    return {
        each: LaplaceEvent(scale=scale, neighboring_relation=each) for each in NeighboringRelation
    }


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, type[Event]]]:
    """The events that are known, as long as the test runs."""
    known = dict(Event._kinds)
    monkeypatch.setattr(Event, "_kinds", known)
    parse_events.cache_clear()
    yield known
    parse_events.cache_clear()


def test_it_is_reserved_settled_verified_and_stated(ledger: Ledger) -> None:
    reserve(ledger, laplace(20.0), 10, delta=1e-6)
    ledger.settle(1, realised=[(laplace(20.0), 4), (laplace(30.0), 5)], published=PUBLISHED)
    book = verify_ledger(ledger.path)
    assert book.entries[0].realised == ((laplace(20.0), 4), (laplace(30.0), 5))
    curve = 4 * LaplaceEvent(scale=20.0, neighboring_relation=REPLACE).cost().rdp
    curve = curve + 5 * LaplaceEvent(scale=30.0, neighboring_relation=REPLACE).cost().rdp
    np.testing.assert_allclose(account(book.charges(), REPLACE).rdp, curve, rtol=1e-12)
    statement = Statement.of(book, 1)
    statement.verify(ledger=ledger.path)
    assert "10 x LaplaceEvent(scale=20.0)" in statement.text
    # of two teachers by its mu, since it says no more
    once, twice = (account(book.reserved(m), REPLACE).get_epsilon(delta=1e-6) for m in (1, 2))
    assert twice > 2 * once


def test_an_event_that_is_not_installed_is_named(
    ledger: Ledger, kinds: dict[str, type[Event]]
) -> None:
    reserve(ledger, laplace(20.0), 10)
    del kinds["LaplaceEvent"]
    parse_events.cache_clear()
    for read in (read_ledger, verify_ledger, Ledger):
        with pytest.raises(
            ValueError, match=r"^Expected [^\n]* to be installed, got type='LaplaceEvent'$"
        ):
            read(ledger.path)


def install(folder: Path, module: str, content: str, entry: str) -> None:
    (folder / f"{module}.py").write_text(content)
    facts = folder / f"{module}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[pate.events]\n{entry}\n")


def test_an_installed_event_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: dict[str, type[Event]]
) -> None:
    content = (
        "from dataclasses import dataclass\n"
        "from pate._core.accounting.curves import pure_dp_rdp\n"
        "from pate._core.accounting.events import CurveEvent\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class InstalledEvent(CurveEvent):\n"
        "    epsilon: float\n"
        "    rdp = staticmethod(pure_dp_rdp)\n"
    )
    install(tmp_path, "pate_outside", content, "InstalledEvent = pate_outside:InstalledEvent")
    monkeypatch.syspath_prepend(str(tmp_path))
    described = {"type": "InstalledEvent", "neighboring_relation": "replace_record", "epsilon": 0.5}
    assert "pate_outside" not in sys.modules
    event = event_from_dict(described)
    assert event.to_dict() == described and "InstalledEvent" in kinds
    assert (
        event.cost().rdp == event_from_dict(described | {"type": "PureDPEvent"}).cost().rdp
    ).all()
    monkeypatch.delitem(sys.modules, "pate_outside")


@pytest.mark.parametrize("target", ["nowhere_to_be_found:Broken", "json:Broken", "json:dumps"])
def test_a_broken_entry_point_raises_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    install(tmp_path, "pate_broken", "", f"BrokenEvent = {target}")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match=r"^Expected [^\n]*BrokenEvent[^\n]*$"):
        event_from_dict({"type": "BrokenEvent", "neighboring_relation": "replace_record"})


@dataclass(frozen=True, kw_only=True)
class LyingEvent(Event):
    """A cost that is in order on the usual orders alone, or not even there."""

    how: str

    def cost(self, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
        usual = len(orders) == len(DEFAULT_ORDERS)
        if self.how == "short":
            return Cost(np.ones(3), 0.0)
        if self.how == "rebate" and not usual:
            return Cost(np.full(orders.shape, -1.0), 0.0)
        return Cost(np.ones(orders.shape), 0.0)


def lie(how: str) -> Events:
    return {each: LyingEvent(how=how, neighboring_relation=each) for each in NeighboringRelation}


def test_a_cost_below_zero_on_some_orders_is_never_added() -> None:
    """A filter looks at orders of its own, on which nothing may give back what others spent."""
    with pytest.raises(
        ValueError, match=r"^Expected an event of known cost on all orders up to 2e\+09, got event="
    ):
        Totals(np.append(DEFAULT_ORDERS, 2e9)).cost(REPLACE, [(lie("rebate"), 1)])
