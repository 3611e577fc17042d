"""Audits: nothing honest is accused, and every planted fault is caught."""

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import ndtr, ndtri, softmax
from scipy.stats import binom

from pate import Votes, VoteShape
from pate.accounting import NeighboringRelation, RDPAccountant
from pate.aggregators import Release, StableTopK
from pate.mechanisms import seeded_generator
from pate.testing import exact_epsilon, sampled_epsilon

REPLACE, TEACHER = NeighboringRelation.REPLACE_RECORD, NeighboringRelation.ADD_REMOVE_TEACHER
TEACHERS, DELTA, QUERIES = 12, 1e-3, 40
Counts = tuple[int, int]
Sampler = Callable[[Counts, int, np.random.Generator], Sequence[Hashable]]


def claimed(aggregator: StableTopK, relation: NeighboringRelation, count: int) -> float:
    event = aggregator.event(VoteShape(TEACHERS, 2), relation)
    return RDPAccountant(relation=relation).compose(event, count).get_epsilon(delta=DELTA)


# exact


def law(
    counts: Sequence[int], *, scale_gap: float, sigma: float, delta_test: float, shift: int
) -> np.ndarray:
    """Law of StableTopK on two labels: nothing, then each of the four sets."""
    order = sorted(range(2), key=lambda label: (-counts[label], label))
    ranked = [TEACHERS, *(counts[label] for label in order), 0]
    gaps = np.array([ranked[k] - ranked[k + 1] for k in range(3)])
    passes = softmax(gaps / scale_gap) * ndtr(
        (np.maximum(gaps, shift) - shift) / sigma + ndtri(delta_test)
    )
    found = np.zeros(5)
    for k in range(3):
        found[1 + sum(2**label for label in order[:k])] += passes[k]
    found[0] = 1 - passes.sum()
    return found


def neighbors(relation: NeighboringRelation) -> Iterator[tuple[Counts, Counts]]:
    steps = (-1, 0, 1) if relation is REPLACE else (0, 1)
    everything = range(0, TEACHERS + 1, 2)
    for a, b, move_a, move_b in itertools.product(everything, everything, steps, steps):
        second = (a + move_a, b + move_b)
        if (move_a or move_b) and min(second) >= 0 and max(second) <= TEACHERS:
            yield (a, b), second


def likelier(p: np.ndarray, q: np.ndarray) -> Iterator[np.ndarray]:
    """The sets of outcomes that are likelier under p, by how much."""
    order = np.argsort(-p / np.maximum(q, 1e-300))
    for end in range(1, len(p)):
        yield order[:end]


class Worst(NamedTuple):
    """The neighbors and the set of outcomes that tell the most."""

    epsilon: float
    first: Counts
    second: Counts
    outcomes: list[int]


def worst(relation: NeighboringRelation, noise: dict[str, float]) -> Worst:
    """Audit exactly, over votes on two labels, how often QUERIES repeated queries end in a set of
    outcomes."""
    largest = Worst(0.0, (0, 0), (0, 0), [])
    for first, second in neighbors(relation):
        p, q = law(first, **noise), law(second, **noise)  # type: ignore[arg-type]
        for outcomes in likelier(p, q):
            hits = [
                binom.pmf(np.arange(QUERIES + 1), QUERIES, min(1.0, each[outcomes].sum()))
                for each in (p, q)
            ]
            epsilon = exact_epsilon(*hits, delta=DELTA)
            if epsilon > largest.epsilon:
                largest = Worst(epsilon, first, second, outcomes.tolist())
    return largest


@pytest.mark.slow
@pytest.mark.parametrize("relation", NeighboringRelation)
def test_exact_audit_catches_half_the_noise(relation: NeighboringRelation) -> None:
    aggregator = StableTopK(
        scale_gap=16.0, sigma_test=4.0, delta_test=1e-5, neighboring_relation=relation
    )
    noise = {"scale_gap": 16.0, "sigma": 4.0, "delta_test": 1e-5, "shift": relation.score_range}
    claim = claimed(aggregator, relation, QUERIES)
    assert 0.2 * claim < worst(relation, noise).epsilon <= claim
    assert worst(relation, noise | {"scale_gap": 8.0, "sigma": 2.0}).epsilon > claim


@pytest.mark.slow
def test_exact_audit_catches_the_sensitivity_of_the_wrong_relation() -> None:
    aggregator = StableTopK(
        scale_gap=16.0, sigma_test=4.0, delta_test=1e-5, neighboring_relation=TEACHER
    )
    noise = {"scale_gap": 16.0, "sigma": 4.0, "delta_test": 1e-5, "shift": 1}
    found = worst(REPLACE, noise).epsilon
    assert claimed(aggregator, TEACHER, QUERIES) < found <= claimed(aggregator, REPLACE, QUERIES)


def test_exact_epsilon_of_randomised_response() -> None:
    p = np.exp([1.0, 0.0]) / (1 + np.e)
    assert exact_epsilon(p.tolist(), p[::-1].tolist(), delta=0.0) == pytest.approx(1.0)
    # delta = p - e^epsilon q
    epsilon = exact_epsilon(p.tolist(), p[::-1].tolist(), delta=0.1)
    assert p[0] - np.exp(epsilon) * p[1] == pytest.approx(0.1)
    assert exact_epsilon([0.5, 0.5, 0.0], [0.5, 0.3, 0.2], delta=0.1) == np.inf
    assert exact_epsilon([0.5, 0.5], [0.5, 0.5], delta=0.0) == 0
    with pytest.raises(ValueError, match="Expected two laws of one shape"):
        exact_epsilon([1.0], [0.5, 0.5], delta=0.1)


# by sampling


def response(epsilon: float, n: int, generator: np.random.Generator, bit: int) -> list[Hashable]:
    keep = generator.random(n) < np.exp(epsilon) / (1 + np.exp(epsilon))
    return list(np.where(keep, bit, 1 - bit).tolist())


def test_sampled_bound_is_below_the_truth_and_near_it() -> None:
    found = sampled_epsilon(
        lambda bit, n, generator: response(1.0, n, generator, bit),
        0,
        1,
        delta=0.0,
        draws=40_000,
        generator=seeded_generator(0),
    )
    assert 0.9 < found.epsilon <= 1.0
    same = sampled_epsilon(
        lambda bit, n, generator: response(1.0, n, generator, 0),
        0,
        1,
        delta=0.0,
        draws=40_000,
        generator=seeded_generator(0),
    )
    assert same.epsilon == 0
    with pytest.raises(ValueError, match="Expected an integer draws >= 4"):
        sampled_epsilon(
            lambda bit, n, generator: [], 0, 1, delta=0.0, draws=3, generator=seeded_generator(0)
        )


def outcome(release: Release) -> np.ndarray:
    """Number what was released of each query: nothing, then the four sets."""
    labels = release.labels.astype(np.int64)
    return np.where(release.mask[:, 0], 1 + labels[:, 0] + 2 * labels[:, 1], 0)


def repeated(aggregator: StableTopK, outcomes: Sequence[int]) -> Sampler:
    """Ask one query QUERIES times, and say how often it ended among ``outcomes`` (nothing, then the
    four sets)."""

    def sample(counts: Counts, n: int, generator: np.random.Generator) -> list[Hashable]:
        votes = Votes.from_counts(np.tile(counts, (n * QUERIES, 1)), TEACHERS)
        ended = outcome(aggregator.aggregate(votes, generator=generator))
        return list(np.isin(ended, outcomes).reshape(n, QUERIES).sum(axis=1).tolist())

    return sample


def audited(aggregator: StableTopK, relation: NeighboringRelation) -> float:
    """Audit by sampling on the neighbors under ``relation`` that tell the most."""
    noise = {
        "scale_gap": aggregator.scale_gap,
        "sigma": aggregator.sigma_test,
        "delta_test": aggregator.delta_test,
    }
    telling = worst(relation, noise | {"shift": aggregator.neighboring_relation.score_range})
    sample = repeated(aggregator, telling.outcomes)
    generator = seeded_generator(7)
    return sampled_epsilon(
        sample, telling.first, telling.second, delta=DELTA, draws=60_000, generator=generator
    ).epsilon


@pytest.mark.slow
@pytest.mark.parametrize("relation", NeighboringRelation)
def test_sampled_audit_catches_half_the_noise(relation: NeighboringRelation) -> None:
    scale, sigma = 16.0 * relation.score_range, 4.0 * relation.score_range

    def with_noise(share: float) -> StableTopK:
        return StableTopK(
            scale_gap=share * scale,
            sigma_test=share * sigma,
            delta_test=1e-5,
            neighboring_relation=relation,
        )

    claim = claimed(with_noise(1.0), relation, QUERIES)
    assert 0 < audited(with_noise(1.0), relation) <= claim
    assert audited(with_noise(0.5), relation) > claim


@pytest.mark.slow
def test_sampled_audit_catches_the_sensitivity_of_the_wrong_relation() -> None:
    # a gap of 2 is taken for a stable one, and one record undoes it: (6, 6) never ends in {second
    # label}
    aggregator = StableTopK(
        scale_gap=200.0,
        sigma_test=1.0,
        delta_test=1e-3,
        allow_empty=False,
        neighboring_relation=TEACHER,
    )

    def sample(counts: Counts, n: int, generator: np.random.Generator) -> list[Hashable]:
        votes = Votes.from_counts(np.tile(counts, (n, 1)), TEACHERS)
        return list(outcome(aggregator.aggregate(votes, generator=generator)).tolist())

    def found(first: Counts, second: Counts) -> float:
        generator = seeded_generator(7)
        return sampled_epsilon(
            sample, first, second, delta=5e-3, draws=200_000, generator=generator
        ).epsilon

    event = aggregator.event(VoteShape(TEACHERS, 2))
    claim = RDPAccountant(relation=TEACHER).compose(event).get_epsilon(delta=5e-3)
    assert found((5, 7), (6, 7)) <= claim and found((5, 7), (6, 8)) <= claim
    assert found((5, 7), (6, 6)) > claim


BATCH = 16


@pytest.mark.slow
def test_sampled_audit_catches_a_reused_stream() -> None:
    """Queries a vote apart tell a common noise to a vote, and so which of them one record has
    moved."""
    aggregator = StableTopK(scale_gap=100.0, sigma_test=100.0, delta_test=1e-4)
    first = 370 + np.arange(BATCH)[:, None]
    second = first - np.arange(BATCH)[:, None] % 2

    def sampler(fault: bool) -> Callable[[np.ndarray, int, np.random.Generator], list[Hashable]]:
        def sample(counts: np.ndarray, n: int, generator: np.random.Generator) -> list[Hashable]:
            seed = int(generator.integers(2**32))
            columns = []
            for query in range(BATCH):
                # the planted fault: all queries of a batch have the noise of the first one
                stream = np.random.default_rng(seed if fault else seed + query)
                votes = Votes.from_counts(np.repeat(counts[None, query], n, axis=0), 400)
                columns.append(aggregator.aggregate(votes, generator=stream).mask[:, 0])
            answered = np.stack(columns, axis=1)
            # the first query that was answered
            return list(np.where(answered.any(axis=1), answered.argmax(axis=1), BATCH).tolist())

        return sample

    event = aggregator.event(VoteShape(400, 1))
    claim = RDPAccountant(relation=REPLACE).compose(event, BATCH).get_epsilon(delta=1e-2)
    found = {
        fault: sampled_epsilon(
            sampler(fault),
            first,
            second,
            delta=1e-2,
            draws=2 * 2**14,
            generator=seeded_generator(3),
        ).epsilon
        for fault in (False, True)
    }
    assert found[False] <= claim < 1 < found[True]
