"""A second opinion never fails the first."""

import importlib
import time
from typing import Any

import pytest

from pate import VoteShape
from pate.accounting import Event, GaussianEvent, NeighboringRelation, gaussian_epsilon
from pate.aggregators import NoisyVotes
from pate.lab.plan import peers
from pate.lab.plan.autodp import AutodpAccountant
from pate.lab.plan.command import account
from pate.lab.plan.peers import Opinion, opinions

REPLACE, ADD_REMOVE = NeighboringRelation
Printed = pytest.CaptureFixture[str]


def events(sigma: float) -> dict[NeighboringRelation, Event]:
    return {
        relation: GaussianEvent(noise_multiplier=sigma, neighboring_relation=relation)
        for relation in (REPLACE, ADD_REMOVE)
    }


def test_a_package_that_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("autodp")
    monkeypatch.setattr(peers, "SECONDS", 0.01)
    began = time.monotonic()
    given = opinions("autodp", events(2.0), count=3, delta=1e-5)
    assert given == dict.fromkeys(NeighboringRelation, Opinion(None, "took more than 0.01 seconds"))
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (MemoryError("76 GiB"), "takes more than 2 GiB of memory"),
        (
            ZeroDivisionError("float division\x1b[2K\nby zero"),
            "fails with ZeroDivisionError: float",
        ),
        (OSError("x" * 99), "fails with OSError: xxx"),
        (None, "finds no number"),
    ],
)
def test_a_package_that_fails_gives_the_reason_in_one_line(
    raised: Exception | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        if raised is not None:
            raise raised

    monkeypatch.setattr(AutodpAccountant, "guarantee", fails)
    given = peers._opinion("autodp", events(2.0)[REPLACE], 3, 1e-5)
    assert given.epsilon is None and given.reason.startswith(reason)
    assert given.reason.isprintable() and len(given.reason) < 90


def test_a_package_that_is_not_there_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    given = opinions("dp_accounting", events(2.0), count=3, delta=1e-5)
    assert given == dict.fromkeys(NeighboringRelation, Opinion(None, "is not installed"))


@pytest.mark.slow
@pytest.mark.parametrize("peer", peers.PEERS)
def test_opinions_on_a_gaussian_are_the_exact_epsilon(peer: str) -> None:
    pytest.importorskip(peer)
    given = opinions(peer, events(20.0), count=4, delta=1e-5)
    for opinion in given.values():
        assert opinion.epsilon == pytest.approx(gaussian_epsilon(1e-5, 0.1), rel=0.2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "count", "reason"),
    [
        (0.1, 100, "takes more than 2 GiB of memory"),
        (0.01, 100, "takes more than 2 GiB of memory"),
        (1e-76, 10, "fails with ValueError"),
        (1e160, 10, "fails with OverflowError"),
        (1e-300, 10, "fails with OverflowError"),
    ],
)
def test_account_answers_where_others_fail(
    sigma: float, count: int, reason: str, capsys: Printed
) -> None:
    importlib.import_module("dp_accounting")
    costs = account(
        aggregator=NoisyVotes(sigma_votes=sigma),
        num_queries=count,
        delta=1e-5,
        shape=VoteShape(100, 3),
    )
    text = capsys.readouterr().out
    assert f"    dp_accounting {reason}" in text and "gives no second opinion" in text
    assert max(map(len, text.splitlines())) <= 130
    for row in costs.values():
        assert row["dp_accounting"] is None and row["tightest"] is not None
