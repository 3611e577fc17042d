"""Exact divergences of a release: they follow from the votes, and show faults of counting without sampling."""

import numpy as np
import pytest
from scipy.stats import norm

from pate._audit.exact import Exact
from pate._audit.repeated import Teachers, World
from pate._votes import Votes
from pate.accounting._gaussian import gaussian_epsilon
from pate.aggregators import NoisyVotes, Powerset
from pate.aggregators._base import Aggregator
from pate.testing import exact_epsilon
from tests._audit.test_repeated import Plant, a_shared_partition, no_clip
from tests._audit.worlds import DELTA, MU, moments, voting


def leaks(world: World, aggregator: Aggregator) -> Exact:
    moves = world.moves(aggregator, np.random.default_rng(5))
    assert moves is not None
    return Exact.of(moves, paid=gaussian_epsilon(DELTA, MU), delta=DELTA)


@pytest.mark.parametrize(
    ("plant", "teachers", "poisons"), [(no_clip, None, 0.65), (a_shared_partition, 100, 0.0)], ids=["clip", "partition"]
)
def test_what_votes_are_counted_wrongly_is_found(
    plant: Plant, teachers: int | None, poisons: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = moments(canaries=16, size=100, teachers=teachers, poisons=poisons)
    honest = leaks(world, voting(world))
    assert 0.5 * MU < honest.mu < MU and honest.largest < MU and not honest.refuted and honest.steps == 4
    plant(monkeypatch)
    assert leaks(world, voting(world)).refuted


def test_counts_leak_as_much_as_their_enumerated_laws() -> None:
    """One query and label: laws of a noisy count with a canary and without it, in steps so fine that none matters."""
    votes = Votes.from_ballots(np.array([[[1], [0], [1]]], dtype=np.uint8))
    sides = np.array([[[[[1]]]], [[[[0]]]]], dtype=np.uint8)
    aggregator = NoisyVotes(sigma_votes=1.5)
    moves = Teachers(votes, np.array([[0]]), sides).moves(aggregator, np.random.default_rng(0))
    assert moves is not None
    edges = np.concatenate(([-np.inf], np.arange(-15, 20, 1e-3), [np.inf]))
    laws = [np.diff(norm.cdf(edges, loc=count, scale=1.5)) for count in (2, 1)]
    assert Exact.of(moves, paid=9.0, delta=1e-3).epsilon == pytest.approx(exact_epsilon(*laws, delta=1e-3), abs=2e-3)


def test_queries_add_up_and_other_laws_are_not_told() -> None:
    generator = np.random.default_rng(3)
    ballots = generator.integers(0, 2, (80, 20, 5), dtype=np.uint8)
    ours = ballots[:, None, :4]
    world = Teachers(Votes.from_ballots(ballots), np.arange(4)[None], np.stack((ours, 1 - ours)))
    exact = leaks(world, NoisyVotes(sigma_votes=float(np.sqrt(80 * 5)) / MU))
    assert exact.mu == pytest.approx(MU) and exact.mean == pytest.approx(MU / np.sqrt(80)) and not exact.refuted
    assert leaks(world, NoisyVotes(sigma_votes=float(np.sqrt(80 * 5)) / MU * 0.9)).refuted
    assert world.moves(Powerset(scale_powerset=5.0), generator) is None
