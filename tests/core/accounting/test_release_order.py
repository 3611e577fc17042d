"""Releases in their order: bounds against adversaries who are played out, and what orders are."""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from mpmath import mp
from scipy.special import ndtr

from pate import VoteShape
from pate._core.accounting import adaptive
from pate._core.accounting.adaptive import Profile, ordered_profile
from pate._core.accounting.charges import Events, account, merged
from pate._core.accounting.cost import gaussian_delta
from pate.accounting import (
    BoundedRangeEvent,
    ComposedEvent,
    Event,
    FailureEvent,
    GaussianEvent,
    GaussianThresholdEvent,
    Ledger,
    NeighboringRelation,
    PureDPEvent,
    RDPAccountant,
    RenyiCurveEvent,
    RepeatedEvent,
    RootPeelingEvent,
    Statement,
)
from pate.aggregators import StableTopK
from tests.core.accounting.adversaries import FloatArray, bits, choices, enumerated
from tests.statements import PUBLISHED, RECORDS

REPLACE = NeighboringRelation.REPLACE_RECORD
Row = tuple[Event, int]


def gaussian(mu: float) -> Event:
    return GaussianEvent(noise_multiplier=1 / mu, neighboring_relation=REPLACE)


def choice(eta: float) -> Event:
    return BoundedRangeEvent(eta=eta, neighboring_relation=REPLACE)


def bit(mu: float) -> Event:
    return GaussianThresholdEvent(noise_multiplier=1 / mu, neighboring_relation=REPLACE)


def normal_laws(mu: float, bins: int = 48) -> FloatArray:
    """The laws of a normal outcome that is told by its bin: less than it tells, in one way."""
    edges = np.concatenate([[-np.inf], np.linspace(-4, 4 + mu, bins - 1), [np.inf]])
    p, q = (np.diff(ndtr(edges - mean)) for mean in (mu, 0.0))
    # where these are differences of ones, from the other side
    p, q = (
        np.where(edges[:-1] > 0, -np.diff(ndtr(mean - edges)), law)
        for mean, law in ((mu, p), (0.0, q))
    )
    return np.stack([np.stack([p, q])])


def bound(rows: Sequence[Row], *, reach: float = 5.0) -> Profile:
    found = ordered_profile(rows, epsilon=reach, spread=1.0)
    assert found is not None
    return found[1]


def deltas(profile: Profile, epsilons: FloatArray) -> FloatArray:
    return np.array([profile.delta_at(float(epsilon)) for epsilon in epsilons])


EPSILONS = np.array([0.0, 0.1, 0.4, 1.0, 2.0, 3.0])


@pytest.mark.parametrize(("mu", "step"), [(0.004, 0.02), (0.7, 0.1), (3.0, 0.02)])
def test_a_gaussian_alone_is_exact_at_nodes(mu: float, step: float) -> None:
    """Chords add nothing to what is straight between nodes."""
    end = adaptive._end(-20.0, 20.0, step)
    once = adaptive._before_gaussian(end.delta, mu**2, step)
    twice = adaptive._before_gaussian(once, mu**2, step)
    inside = np.flatnonzero((end.epsilon >= 0) & (end.epsilon <= 5))
    for value, total in ((once, mu), (twice, math.sqrt(2) * mu)):
        exact = np.array([gaussian_delta(max(0.0, float(at)), total) for at in end.epsilon[inside]])
        assert (value[inside] >= exact * (1 - 1e-12)).all()
        if total == mu:
            np.testing.assert_allclose(value[inside], exact, rtol=1e-6, atol=1e-20)


@pytest.mark.parametrize(("mu", "step"), [(0.7, 0.05), (0.01, 0.05), (2.0, 0.003)])
def test_weights_of_losses_are_those_of_chords(mu: float, step: float) -> None:
    lowest, weights, rare = adaptive._gaussian_weights(mu**2, step)
    # a chord keeps both laws: all of P, and all of Q
    assert weights.sum() + rare == pytest.approx(1, rel=1e-12)
    places = (lowest + np.arange(weights.size)) * step
    assert weights @ np.exp(-places) == pytest.approx(1, rel=1e-11)
    with mp.workdps(30):
        for place in (round(mu**2 / 2 / step), round((mu**2 / 2 + 3 * mu) / step)):
            exact = chord_weight(mu, mp.mpf(place) * step, mp.mpf(step))
            assert weights[place - lowest] == pytest.approx(exact, rel=1e-9)


def chord_weight(mu: float, node: mp.mpf, step: mp.mpf) -> float:
    """The expectation of the function of the loss that is 1 at a node, 0 at all others, and straight
    in exp(-loss) between them."""

    def weighed(x: mp.mpf) -> mp.mpf:
        to = -step if x < node else step
        return mp.npdf(x, mp.mpf(mu) ** 2 / 2, mu) * mp.expm1(node + to - x) / mp.expm1(to)

    return float(mp.quad(weighed, [node - step, node]) + mp.quad(weighed, [node, node + step]))


STEPS = {
    "gaussian": (gaussian(0.8), normal_laws(0.8)),
    "wide": (gaussian(1.5), normal_laws(1.5)),
    "choice": (choice(0.9), choices(0.9, 0.9 * np.linspace(0.04, 0.96, 13))),
    "bit": (bit(0.6), bits(0.6, np.linspace(-3.3, 2.7, 13))),
    "pure": (
        PureDPEvent(epsilon=0.5, neighboring_relation=REPLACE),
        np.array([[[0.6224, 0.3776], [0.3776, 0.6224]], [[0.3776, 0.6224], [0.6224, 0.3776]]]),
    ),
}
ORDERS = [("choice", "gaussian"), ("bit", "gaussian", "choice"), ("choice", "wide", "pure")]


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_no_adaptive_play_exceeds_the_bound_and_one_comes_close(order: tuple[str, ...]) -> None:
    """The adversary sees the bin of a normal outcome, and chooses the next laws by it."""
    best = enumerated(np.exp(EPSILONS), [STEPS[name][1] for name in order])
    found = deltas(bound([(STEPS[name][0], 1) for name in order]), EPSILONS)
    assert (best <= found).all()
    np.testing.assert_allclose(found, best, rtol=0.06, atol=2e-3)


@pytest.mark.parametrize("seed", range(3))
def test_random_small_orders_stay_below_their_bounds(seed: int) -> None:
    generator = np.random.default_rng(seed)
    rows: list[Row] = []
    laws: list[FloatArray] = []
    for _ in range(3):
        kind, size = generator.integers(3), float(generator.uniform(0.1, 1.2))
        rows.append(((gaussian, choice, bit)[kind](size), 1))
        if kind == 0:
            laws.append(normal_laws(size, 24))
        elif kind == 1:
            laws.append(choices(size, size * generator.uniform(0.05, 0.95, 9)))
        else:
            laws.append(bits(size, generator.uniform(-3, 3, 9)))
    best = enumerated(np.exp(EPSILONS), laws)
    profile = ordered_profile(rows, epsilon=5.0, spread=1.0)
    if profile is None:  # Gaussians alone have no order
        assert all(isinstance(event, GaussianEvent) for event, _ in rows)
        return
    assert (best <= deltas(profile[1], EPSILONS)).all()


def test_the_other_order_is_no_bound() -> None:
    """Negative control: a choice after a normal outcome is chosen by it, one before it is not."""
    after, before = (gaussian(1.5), 1), (choice(2.0), 1)
    best = enumerated(
        np.exp(EPSILONS), [normal_laws(1.5, 96), choices(2.0, 2.0 * np.linspace(0.02, 0.98, 41))]
    )
    assert (best <= deltas(bound([after, before]), EPSILONS)).all()
    assert (best > deltas(bound([before, after]), EPSILONS)).any()


def test_losses_that_are_rounded_down_are_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a quadrature without its chords, with losses at the lower end of cells."""
    steps = [STEPS[name] for name in ("gaussian", "choice")]
    best = enumerated(np.exp(EPSILONS), [laws for _, laws in steps])
    weights_of = adaptive._gaussian_weights

    def rounded_down(mu_squared: float, step: float) -> tuple[int, FloatArray, float]:
        lowest, weights, rare = weights_of(mu_squared, step)
        return lowest - 1, weights, rare

    rows = [(event, 1) for event, _ in steps]
    assert (best <= deltas(bound(rows), EPSILONS)).all()
    monkeypatch.setattr(adaptive, "_gaussian_weights", rounded_down)
    adaptive._played.cache_clear()
    assert (best > deltas(bound(rows), EPSILONS)).any()
    adaptive._played.cache_clear()


@pytest.mark.parametrize("by_part", [False, True])
def test_the_queries_of_a_row_may_be_answered_one_by_one_or_part_by_part(by_part: bool) -> None:
    laws = [choices(0.9, 0.9 * np.linspace(0.2, 0.8, 5)), bits(0.6, np.linspace(-1.8, 1.2, 4))]
    query = ComposedEvent(events=(choice(0.9), bit(0.6)))
    played = [laws[0], laws[0], laws[1], laws[1]] if by_part else laws * 2
    best = enumerated(np.exp(EPSILONS), [normal_laws(0.8, 12), *played])
    found = deltas(bound([(gaussian(0.8), 1), (query, 2)]), EPSILONS)
    assert (best <= found).all()
    np.testing.assert_allclose(found, best, rtol=0.15, atol=0.01)


def ways(event: Event, count: int) -> list[list[tuple[str, int]]]:
    names = {
        adaptive._step(leaf): name
        for name, leaf in (("choice", choice(0.9)), ("bit", bit(0.6)), ("pure", STEPS["pure"][0]))
    }
    return [
        [(f"mu^2={step:.2f}" if isinstance(step, float) else names[step], n) for step, n in play]
        for play in adaptive._ways(event, count)
    ]


def test_orders_of_a_row_are_those_of_its_event() -> None:
    failure = FailureEvent(delta=1e-9, neighboring_relation=REPLACE)
    query = ComposedEvent(events=(choice(0.9), bit(0.6), failure))
    one = [("choice", 1), ("bit", 1)]
    assert ways(query, 3) == [[("choice", 3), ("bit", 3)], one * 3]
    assert ways(query, 1) == [one]
    # a composite event that is repeated is played in turn
    twice = RepeatedEvent(event=query, count=2)
    assert ways(twice, 2) == [[("choice", 4), ("bit", 4)], one * 4]
    assert ways(RepeatedEvent(event=choice(0.9), count=4), 5) == [[("choice", 20)]]
    # Gaussian noise in a row is one, whatever it is for
    noise = ComposedEvent(events=(gaussian(0.5), RepeatedEvent(event=gaussian(0.1), count=25)))
    assert ways(noise, 10**6) == [[("mu^2=500000.00", 1)]]
    mixed = ComposedEvent(events=(choice(0.9), gaussian(0.5), gaussian(0.5)))
    assert ways(mixed, 2) == [
        [("choice", 2), ("mu^2=1.00", 1)],
        [("choice", 1), ("mu^2=0.50", 1)] * 2,
    ]
    # what has no pairs counts as the Gaussian mechanism that dominates it
    peeling = RootPeelingEvent(eta=0.3, count=4, neighboring_relation=REPLACE)
    assert ways(peeling, 2) == [[(f"mu^2={2 * peeling.cost().mu_squared:.2f}", 1)]]
    assert ways(bit(9.0), 1) == [[("mu^2=81.00", 1)]]
    assert ways(failure, 9) == [[]]
    unknown = RenyiCurveEvent(orders=(2.0,), rdp=(0.1,), neighboring_relation=REPLACE)
    assert ways(ComposedEvent(events=(choice(0.9), unknown)), 2) == []
    # too many to list
    assert ways(ComposedEvent(events=(choice(0.9), gaussian(0.5))), 30_000) == []


def test_rows_have_an_order_only_if_they_are_few_and_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*rows: Row, epsilon: float = 3.0, spread: float = 1.0) -> int | None:
        profile = ordered_profile(rows, epsilon=epsilon, spread=spread)
        return None if profile is None else profile[0]

    first, second = (gaussian(0.5), 7), (choice(0.9), 5)
    assert found(first, second) == 6
    monkeypatch.setattr(adaptive, "_played", lambda *_: Profile(EPSILONS, EPSILONS))
    assert found(first) is None and found() is None
    unknown = RenyiCurveEvent(orders=(2.0,), rdp=(0.1,), neighboring_relation=REPLACE)
    assert found(first, (unknown, 1), second) is None and found(first, (unknown, 0), second) == 6
    # 16 + 64 moves of a choice, 400 of a Gaussian: 40,000 in all
    assert found(first, (choice(0.9), 495)) == 496
    assert found(first, (choice(0.9), 496)) is None
    assert found(*[second] * 100) == 500 and found(*[second] * 101) is None
    assert found(second, epsilon=100.0) is None and found(second, spread=0.0) is None


STABLE = StableTopK(scale_gap=24.0, sigma_test=15.0, delta_test=1e-8)
SHAPE = VoteShape(num_teachers=100, num_labels=40)
NOISE: Events = {
    relation: GaussianEvent(noise_multiplier=1.5, neighboring_relation=relation)
    for relation in NeighboringRelation
}


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_an_accountant_uses_the_order_if_it_is_told_to(relation: NeighboringRelation) -> None:
    charges = [(NOISE, 1), (STABLE.events(SHAPE), 10)]
    ordered, sums = (
        account(charges, relation, in_order=used).guarantee(delta=1e-6) for used in (True, False)
    )
    assert ordered.in_order == 21 and ordered.order is ordered.mu is ordered.rounds is None
    assert sums.in_order is None and 0.8 * sums.epsilon < ordered.epsilon < 0.98 * sums.epsilon
    assert ordered.delta0 == sums.delta0 == pytest.approx(1e-7, rel=1e-6)
    # the default of an accountant, whose events may have been composed in any order
    total = RDPAccountant(relation=relation)
    for events, count in charges:
        total.compose(events[relation], count)
    assert total.guarantee(delta=1e-6) == sums
    # failures take their part of delta
    assert account(charges, relation).get_epsilon(delta=ordered.delta0) == math.inf
    profile = ordered_profile(
        [(events[relation], count) for events, count in charges], epsilon=sums.epsilon, spread=1.0
    )
    assert profile is not None
    left = (1e-6 - ordered.delta0) / (1 - ordered.delta0)
    assert (
        profile[1].delta_at(ordered.epsilon * 1.001)
        < left
        < profile[1].delta_at(ordered.epsilon * 0.999)
    )


def warm_ledger(folder: Path) -> Ledger:
    ledger = Ledger(folder / "ledger.sqlite")
    for events, count in ((NOISE, 1), (STABLE.events(SHAPE), 3)):
        release = ledger.reserve(
            events,
            count=count,
            run="one",
            description="labels",
            seeded=False,
            delta=1e-6,
            privacy_unit=RECORDS,
        )
        ledger.settle(release, published=PUBLISHED)
    return ledger


def test_a_statement_in_order_is_made_again_and_says_what_it_counts(tmp_path: Path) -> None:
    ledger = warm_ledger(tmp_path)
    made = Statement.of(ledger.snapshot(), 2)
    for relation in NeighboringRelation:
        guarantee = made["guarantees"][relation.value]
        charges = ledger.snapshot().reserved()
        assert guarantee["in_order"] == 7
        assert guarantee["epsilon"] == account(charges, relation).get_epsilon(delta=1e-6)
        assert made["costs"][relation.value].items() <= guarantee.items()
        assert [row[relation.value] for row in made["reach"]] == [guarantee["epsilon"]]
    again = Statement.from_json(json.dumps(made.content))
    assert again.verify() == again.verify(ledger=ledger.path) == 0
    sums = re.findall(r"^What was reserved.*:\n((?:    .*\n)*)", made.text, flags=re.MULTILINE)
    assert len(sums) == 1 and "in the order of the ledger" in made.text
    assert re.findall(r"^    (\d+) x (\w+)\(", sums[0], flags=re.MULTILINE) == [
        ("1", "GaussianEvent"),
        ("3", "BoundedRangeEvent"),
        ("3", "StabilityTestEvent"),
    ]
    assert "    sum: n = 7 steps, delta0 = 1 - product" in sums[0]


def test_an_order_of_kinds_is_none_of_releases() -> None:
    """Of more releases than an order is used of, the sum by kind has no order."""
    teacher = NeighboringRelation.ADD_REMOVE_TEACHER
    other = PureDPEvent(epsilon=0.1, neighboring_relation=teacher)
    charges = [({REPLACE: choice(eta), teacher: other}, 1) for eta in (0.1, 0.3)] * 51
    unordered = account(charges, REPLACE, in_order=False).get_epsilon(delta=1e-6)
    assert account(charges, REPLACE).get_epsilon(delta=1e-6) == unordered
    ordered = account(merged(charges), REPLACE).get_epsilon(delta=1e-6)
    assert ordered < 0.99 * unordered  # what an order of all of one kind first would prove
