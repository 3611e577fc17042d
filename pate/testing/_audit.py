"""Audits: lower bounds on epsilon from a mechanism's behavior, to compare with its events.

A mechanism that is (epsilon, delta)-DP has ``P(S) <= exp(epsilon) Q(S) + delta`` for every set S of
outcomes and either order of two neighbors. A single S therefore refutes an epsilon that is too
small.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from scipy.stats import beta

from pate._validation import require, require_count, require_in_open_unit_interval
from pate.accounting._bisection import smallest_where

Input = TypeVar("Input")


def exact_epsilon(p: Sequence[float], q: Sequence[float], *, delta: float) -> float:
    """Return the least epsilon at which two laws ``[m]`` are (epsilon, ``delta``)-close.

    Both orders of the two laws are taken into account. The result is infinite if one law gives a
    probability above ``delta`` to outcomes that are impossible under the other.

    >>> round(exact_epsilon([0.75, 0.25], [0.25, 0.75], delta=0.0), 3)
    1.099
    >>> exact_epsilon([0.75, 0.25], [0.25, 0.75], delta=0.5)
    0.0
    """
    first, second = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    require(
        first.shape == second.shape and first.ndim == 1,
        "two laws of one shape [m]",
        p=first.shape,
        q=second.shape,
    )
    for name, law in (("p", first), ("q", second)):
        valid = law.size > 0 and (law >= 0).all() and abs(law.sum() - 1) < 1e-6
        require(valid, f"probabilities {name} that add up to 1", sum=float(law.sum()))
    require(0 <= delta < 1, "0 <= delta < 1", delta=delta)
    return max(_one_way(first, second, delta), _one_way(second, first, delta))


def _one_way(p: Any, q: Any, delta: float) -> float:
    def close(epsilon: float) -> bool:
        return float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) <= delta * (1 + 1e-12)

    if float(p[q == 0].sum()) > delta:
        return math.inf
    if close(0.0):
        return 0.0
    shared = (q > 0) & (p > 0)
    highest = float(np.max(np.log(p[shared]) - np.log(q[shared])))
    return smallest_where(close, 0.0, min(highest, 700.0)) if highest < 700 else math.inf


@dataclass(frozen=True)
class Audit:
    """The result of an audit by sampling.

    Attributes:
        epsilon: a lower bound on epsilon, which holds with the probability ``confidence`` that was
            asked for.
        outcomes: the set of outcomes that gives the bound.
        swapped: whether these outcomes are likelier under the second input than under the first.
    """

    epsilon: float
    outcomes: frozenset[Hashable]
    swapped: bool


def sampled_epsilon(
    sample: Callable[[Input, int, np.random.Generator], Sequence[Hashable]],
    first: Input,
    second: Input,
    *,
    delta: float,
    draws: int,
    generator: np.random.Generator,
    confidence: float = 0.999,
) -> Audit:
    """Return a lower bound on epsilon from draws on two neighboring inputs.

    Half of the draws choose a set of outcomes, by the ratio of their frequencies; the other half
    bound the two probabilities of that set (Clopper & Pearson (1934)).

    >>> def flips(share, draws, generator):
    ...     return (generator.random(draws) < share).tolist()
    >>> audit = sampled_epsilon(
    ...     flips, 0.75, 0.25, delta=0.0, draws=10_000, generator=np.random.default_rng(0)
    ... )
    >>> round(audit.epsilon, 1)
    1.0

    Args:
        sample: ``sample(input, n, generator)`` runs the mechanism n times and returns the n
            releases, or any function of them that does not depend on the input.
        first: an input.
        second: a neighbor of ``first``.
        delta: the delta at which epsilon is bounded.
        draws: number of runs of the mechanism on each input, at least 4.
        generator: source of the noise.
        confidence: the probability with which the bound holds.

    Raises:
        ValueError: if there are too few draws, or ``delta`` or ``confidence`` is out of range.
    """
    require_count(4, draws=draws)
    require(0 <= delta < 1, "0 <= delta < 1", delta=delta)
    require_in_open_unit_interval(confidence=confidence)
    half = draws // 2
    chosen = [Counter(sample(data, half, generator)) for data in (first, second)]
    tested = [Counter(sample(data, half, generator)) for data in (first, second)]
    best = Audit(0.0, frozenset(), swapped=False)
    for swapped in (False, True):
        p, q = chosen[::-1] if swapped else chosen
        outcomes = _best_set(p, q, half, delta, confidence)
        hits = [
            sum(counts[outcome] for outcome in outcomes)
            for counts in (tested[::-1] if swapped else tested)
        ]
        # two orders and two bounds share the probability of error, 1 - confidence
        epsilon = _bound(hits[0], hits[1], half, delta, (1 - confidence) / 4)
        if epsilon > best.epsilon:
            best = Audit(epsilon, outcomes, swapped)
    return best


def _best_set(
    p: Counter[Hashable], q: Counter[Hashable], draws: int, delta: float, confidence: float
) -> frozenset[Hashable]:
    """Return the likeliest outcomes under p relative to q: the set with the largest bound."""
    ranked = sorted(p, key=lambda outcome: (-p[outcome] / (q[outcome] + 1), repr(outcome)))
    best, end, hits = -1.0, 0, [0, 0]
    for i, outcome in enumerate(ranked, 1):
        hits = [hits[0] + p[outcome], hits[1] + q[outcome]]
        bound = _bound(hits[0], hits[1], draws, delta, (1 - confidence) / 4)
        if bound > best:
            best, end = bound, i
    return frozenset(ranked[:end])


def _bound(hits: int, misses: int, draws: int, delta: float, error: float) -> float:
    """Return a lower bound on epsilon from the numbers of draws in a set under p and under q."""
    likely = float(beta.ppf(error, hits, draws - hits + 1)) if hits else 0.0
    unlikely = float(beta.ppf(1 - error, misses + 1, draws - misses)) if misses < draws else 1.0
    return max(0.0, math.log((likely - delta) / unlikely)) if likely > delta else 0.0
