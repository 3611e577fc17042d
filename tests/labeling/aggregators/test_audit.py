"""An audit of every aggregator: a lower bound on epsilon from its exact law, and planted faults
that it catches."""

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import tests.labeling.aggregators
from pate._labeling.aggregators.base import own
from pate._labeling.testing.aggregators import BallotRows, Law, neighbors
from pate.accounting import NeighboringRelation, RDPAccountant
from pate.aggregators import ScoreVotes
from pate.testing import AggregatorContract, exact_epsilon
from tests.labeling.aggregators.test_of_mechanism import is_its_mechanism

Contract = Callable[[], AggregatorContract]
RELATIONS = tuple(NeighboringRelation)
DELTA = 1e-3
QUERIES = 12


def contracts() -> list[type[AggregatorContract]]:
    """Return all contracts that a test module of this folder names ``Test...``."""
    found: dict[str, type[AggregatorContract]] = {}
    for module in pkgutil.iter_modules(tests.labeling.aggregators.__path__):
        if module.name != "test_audit":
            names = vars(importlib.import_module(f"tests.labeling.aggregators.{module.name}"))
            found |= {
                name: value
                for name, value in names.items()
                if name.startswith("Test")
                and isinstance(value, type)
                and issubclass(value, AggregatorContract)
            }
    return [found[name] for name in sorted(found)]


@cache
def audited(
    contract: Contract, made_for: NeighboringRelation, relation: NeighboringRelation
) -> float:
    """Return epsilon, at least, of QUERIES equal queries: how often one set of outcomes comes tells
    neighbors apart."""
    aggregator = contract()

    def law(ballots: BallotRows) -> Law:
        return aggregator.law(aggregator.votes(ballots), made_for)

    laws = cache(law)
    chances = set()
    for first, second in neighbors(aggregator.shape, relation):
        p, q = laws(first), laws(second)
        outcomes = sorted(
            p.keys() | q.keys(),
            key=lambda o: p.get(o, 0.0) / max(q.get(o, 0.0), 1e-300),
            reverse=True,
        )
        a = np.cumsum([p.get(outcome, 0.0) for outcome in outcomes])[:-1].clip(0, 1).round(12)
        b = np.cumsum([q.get(outcome, 0.0) for outcome in outcomes])[:-1].clip(0, 1).round(12)
        chances |= set(zip(a.tolist(), b.tolist(), strict=True))
    counts = np.arange(QUERIES + 1)
    delta = delta_of(contract, made_for, relation)
    hits = {
        chance: binom.pmf(counts, QUERIES, chance)
        for chance in {c for pair in chances for c in pair}
    }
    return max(exact_epsilon(hits[a], hits[b], delta=delta) for a, b in chances)


def claimed(
    contract: Contract,
    made_for: NeighboringRelation,
    relation: NeighboringRelation,
    noise: float = 1.0,
) -> float:
    """Return epsilon as accounted, of an event that says ``noise`` times the noise that the law
    has."""
    aggregator = contract()
    event = aggregator.make(made_for).scaled(noise).event(aggregator.shape, relation)
    return (
        RDPAccountant(relation=relation)
        .compose(event, QUERIES)
        .get_epsilon(delta=delta_of(contract, made_for, relation))
    )


@cache
def delta_of(
    contract: Contract, made_for: NeighboringRelation, relation: NeighboringRelation
) -> float:
    """Return the delta at which an aggregator is audited: more than its tests cost."""
    tests = (
        RDPAccountant(relation=relation)
        .compose(contract().event(made_for, relation), QUERIES)
        .delta0
    )
    return tests + DELTA * (1 - tests)


ALL = pytest.mark.parametrize(
    ("contract", "relation"),
    [
        pytest.param(contract, relation, id=f"{contract.__name__}-{relation.name}")
        for contract in contracts()
        for relation in RELATIONS
    ],
)
# how many times too much noise is claimed where the curve is far from being reached
LOOSE = {
    "TestShown": 4,
    "TestStableTopKByLaplace": 32,
    "TestTopStableTopK": 64,
}


def test_every_aggregator_is_audited() -> None:
    aggregators = {type(contract().make(RELATIONS[0])) for contract in contracts()}
    # the contract of its mechanism audits an aggregator that is its mechanism on votes; voters do not
    # fit into a list of all ballots, and score votes are audited by sampling next to their tests
    bound = {cls for cls in own().values() if is_its_mechanism(cls)}
    assert aggregators | bound | {ScoreVotes} >= set(own().values())


@pytest.mark.slow
@ALL
def test_no_more_is_told_than_is_claimed(contract: Any, relation: NeighboringRelation) -> None:
    found = audited(contract, relation, relation)
    assert found <= claimed(contract, relation, relation)
    assert found > 0


@pytest.mark.slow
@ALL
def test_too_little_noise_is_caught(contract: Any, relation: NeighboringRelation) -> None:
    """Half of the noise; less where the curve is not reached, or a test hides most of what four
    teachers could tell."""
    tested = delta_of(contract, relation, relation) > DELTA
    noise = LOOSE.get(contract.__name__, 16 if tested else 2)
    assert audited(contract, relation, relation) > claimed(contract, relation, relation, noise)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Canonical", "PeelingOne"])
def test_sensitivity_of_the_wrong_relation_is_caught(name: str) -> None:
    """What is accounted for a teacher that takes part does not cover a teacher that changes its
    mind."""
    contract: Any
    (contract,) = (each for each in contracts() if each.__name__ == f"Test{name}")
    replace, teacher = NeighboringRelation.REPLACE_RECORD, NeighboringRelation.ADD_REMOVE_TEACHER
    found = audited(contract, teacher, replace)
    assert claimed(contract, teacher, teacher) < found <= claimed(contract, teacher, replace)
