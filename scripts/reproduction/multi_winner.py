"""Private multi-winner voting: the cost of Binary, tau and powerset voting on given votes, by every accounting."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, logsumexp

from pate._core.accounting.cost import conversion_overhead
from pate._core.validation import (
    FloatArray,
    IntArray,
    UInt8Array,
    require,
    require_count,
    require_positive,
)
from pate.accounting import Event, GaussianEvent, NeighboringRelation, epsilon_of
from scripts.reproduction.data_dependent import (
    one_way_rdp,
    private_rdp_table,
    private_smooth_sensitivity,
    release_events,
)

ORDERS: FloatArray = np.concatenate(
    (np.arange(1.25, 10, 0.25), np.arange(10, 40, 1.0), np.geomspace(40, 400, 20))
)
"""Renyi orders, as fine as those of the published code where the best order lies."""


def one_noise(sigma: float) -> float:
    """Return the noise on one count that equals GNMax noise of ``sigma`` on the votes for a label and against it.

    Their difference ``2 h - T`` has noise of ``sqrt(2) sigma``.
    """
    require_positive(sigma=sigma)
    return sigma / math.sqrt(2)


def epsilons(curves: FloatArray, delta: float, *, classic: bool) -> FloatArray:
    """Return epsilon ``[Q]`` after each query, from the cost ``[Q, K]`` of each at `ORDERS`."""
    overhead = conversion_overhead(ORDERS, delta, "classic" if classic else "optimal")
    totals: FloatArray = np.maximum((np.cumsum(curves, axis=0) + overhead).min(axis=1), 0)
    return totals


def queries_within(event: Event, budget: float, delta: float) -> int:
    """Return how many queries of one event cost at most ``budget``, by the tightest conversion."""
    low, high = 0, 1
    while epsilon_of(event, count=high, delta=delta) <= budget:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (middle, high)
            if epsilon_of(event, count=middle, delta=delta) <= budget
            else (low, middle)
        )
    return low


def within(epsilons: FloatArray, budget: float) -> int:
    """Return how many queries ``[Q]`` come before epsilon exceeds the budget."""
    return int((epsilons <= budget).sum())


def binary_event(sigma: float, num_labels: int, relation: NeighboringRelation) -> Event:
    """Return the cost of one query of Binary voting with GNMax noise of ``sigma``, the same under both relations."""
    return GaussianEvent(
        noise_multiplier=one_noise(sigma) / math.sqrt(num_labels), neighboring_relation=relation
    )


def powerset_event(sigma: float, relation: NeighboringRelation) -> Event:
    """Return the cost of one query of powerset voting with normal noise of ``sigma`` on the votes for each set.

    One set loses the vote that another gains, under both relations: who takes no part counts for
    the empty set.
    """
    return GaussianEvent(noise_multiplier=sigma / math.sqrt(2), neighboring_relation=relation)


def binary_curves(
    counts: IntArray, num_teachers: int, sigma: float, *, both_ways: bool
) -> FloatArray:
    """Return the PRIVATE cost ``[Q, K]`` of each query of Binary voting at `ORDERS`, from counts ``[Q, C]``.

    As published, Theorem 6 at these votes; with ``both_ways`` the largest of it over neighbors too,
    which holds for both directions of the divergence.
    """
    noise = one_noise(sigma)
    curves = np.empty((len(counts), len(ORDERS)))
    for i, order in enumerate(ORDERS.tolist()):
        table = (
            private_rdp_table(order, sigma=noise, num_teachers=num_teachers)
            if both_ways
            else published_table(order, noise, num_teachers)
        )
        curves[:, i] = table[counts].sum(axis=1)
    return curves


def published_table(order: float, sigma: float, num_teachers: int) -> FloatArray:
    """Return Theorem 6 for one label as published, for each possible count: ``[num_teachers + 1]``."""
    require_count(1, num_teachers=num_teachers)
    counts = np.arange(num_teachers + 1)
    log_q = np.asarray(log_ndtr(-np.abs(counts - num_teachers / 2) / sigma), dtype=np.float64)
    return np.array([one_way_rdp(order, value, 1 / (2 * sigma**2)) for value in log_q.tolist()])


def powerset_curves(ballots: UInt8Array, sigma: float) -> FloatArray:
    """Return the PRIVATE cost ``[Q, K]`` of powerset voting, Theorem 6 as published, from ballots ``[Q, T, C]``."""
    curves = np.empty((len(ballots), len(ORDERS)))
    for query, rows in enumerate(ballots):
        log_q = powerset_log_q(rows, sigma)
        curves[query] = [one_way_rdp(order, log_q, 1 / sigma**2) for order in ORDERS.tolist()]
    return curves


def powerset_log_q(ballots: UInt8Array, sigma: float) -> float:
    """Return the union bound on the log-probability that another set than the most voted one of ``[T, C]`` wins."""
    num_labels = ballots.shape[1]
    votes = np.sort(np.unique(ballots, axis=0, return_counts=True)[1])[::-1]
    unseen = 2.0**num_labels - len(votes)
    terms = [log_ndtr(-(votes[0] - votes[1:]) / (math.sqrt(2) * sigma))]
    if unseen > 0:
        terms.append(np.array([math.log(unseen) + log_ndtr(-votes[0] / (math.sqrt(2) * sigma))]))
    return float(min(logsumexp(np.concatenate(terms)), math.log1p(-(2.0**-num_labels))))


class Sanitised(NamedTuple):
    """Data-dependent epsilon of a batch, published with noise."""

    epsilon: float
    """Without the noise's own deviation: the middle of what may be published."""
    spread: float
    """Standard deviation of the published epsilon."""
    order: float
    beta: float
    noise_multiplier: float


def sanitised(counts: IntArray, num_teachers: int, sigma: float, delta: float) -> Sanitised:
    """Return the least data-dependent epsilon of Binary voting that can be published, over a grid of settings.

    The released value has noise of its smooth sensitivity, with its own cost added. That the best
    setting of the grid is taken after looking at the votes flatters it: settings must be chosen
    without them.
    """
    require(len(counts) > 0, "at least one query", num_queries=len(counts))
    noise, best = one_noise(sigma), None
    for order in (2.0, 3.0, 5.0, 8.0, 12.0, 20.0):
        overhead = float(conversion_overhead(np.array([order]), delta)[0])
        value = float(
            private_rdp_table(order, sigma=noise, num_teachers=num_teachers)[counts].sum()
        )
        for beta in (0.05 / order, 0.2 / order, 0.4 / order):
            size = private_smooth_sensitivity(
                counts, order, sigma=noise, num_teachers=num_teachers, beta=beta
            )
            for multiplier in (2.0, 5.0, 10.0, 20.0, 50.0):
                event = release_events(beta=beta, noise_multiplier=multiplier)[
                    NeighboringRelation.REPLACE_RECORD
                ]
                paid = float(event.cost(np.array([order])).rdp[0])
                found = Sanitised(
                    value + paid + overhead, multiplier * size, order, beta, multiplier
                )
                # two deviations above: the published value is rarely less than the truth
                if (
                    best is None
                    or found.epsilon + 2 * found.spread < best.epsilon + 2 * best.spread
                ):
                    best = found
    assert best is not None
    return best


class OneWay(NamedTuple):
    """Exact divergences of a label's bit, and Theorem 6 at the votes, which bounds one direction."""

    stated: float
    """The largest ratio to the bound in the direction that the theorem states: at most 1."""
    ratio: float
    """The largest in the other direction, reached at what follows."""
    votes: int
    order: float
    bound: float
    exact_stated: float
    exact_other: float


def one_way(num_teachers: int, sigma: float) -> OneWay:
    """Return the exact divergences of a label's bit in both directions, where the other exceeds the bound most."""
    noise = one_noise(sigma)
    scores = (np.arange(num_teachers + 1) - num_teachers / 2) / noise
    log_p, log_not = log_ndtr(scores), log_ndtr(-scores)

    def divergence(order: float, first: IntArray, second: IntArray) -> FloatArray:
        yes = order * log_p[first] + (1 - order) * log_p[second]
        no = order * log_not[first] + (1 - order) * log_not[second]
        return np.asarray(np.logaddexp(yes, no) / (order - 1), dtype=np.float64)

    best, largest = OneWay(0.0, 0.0, 0, 1.0, 0.0, 0.0, 0.0), 0.0
    for order in ORDERS.tolist():
        table = published_table(order, noise, num_teachers)
        for move in (-1, 1):
            here = np.arange(max(0, -move), num_teachers + 1 - max(0, move))
            bound = table[here]
            stated, other = (
                divergence(order, here, here + move),
                divergence(order, here + move, here),
            )
            largest = max(largest, float((stated / bound).max()))
            i = int(np.argmax(other / bound))
            if other[i] / bound[i] > best.ratio:
                numbers = (
                    float(values[i]) for values in (other / bound, here, bound, stated, other)
                )
                ratio, votes, at, one, two = numbers
                best = OneWay(0.0, ratio, int(votes), order, at, one, two)
    return best._replace(stated=largest)
