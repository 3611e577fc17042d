"""Private multi-winner voting: a data-dependent bound beside exact divergences, and the cost of tau voting."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from pate._core.validation import FloatArray, IntArray, require_count, require_positive
from pate.accounting import NeighboringRelation
from pate.aggregators import TauVoting
from scripts.reproduction.findings import Claim, Effort, Finding, Reason, Row

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


def one_way_rdp(order: float, log_q: float, slope: float) -> float:
    """Bound a divergence at ``order`` of a mechanism that misses its likely outcome with ``q``.

    The mechanism has the curve ``slope * order``. This is Theorem 6 as published, PRIVATE: it bounds
    the divergence from the law on a neighbor of the law on these votes, and not the other
    direction. The two higher orders of the theorem come from its
    Proposition 10, for a curve of this slope.
    """
    independent = slope * order
    second = math.sqrt(-log_q / slope)
    first = second + 1
    if second <= 1 or first <= order:
        return independent
    cost_first, cost_second = slope * first, slope * second
    # the bound grows with q here, so that an upper bound on q suffices
    ceiling = (second - 1) * cost_second - second * (
        math.log1p(1 / (first - 1)) + math.log1p(1 / (second - 1))
    )
    if log_q > ceiling or log_q + cost_second >= 0:
        return independent
    stays = math.log1p(-math.exp(log_q))
    log_a = stays - math.log(-math.expm1((log_q + cost_second) * (1 - 1 / second)))
    log_b = cost_first - log_q / (first - 1)
    total = float(np.logaddexp(stays + (order - 1) * log_a, log_q + (order - 1) * log_b)) / (
        order - 1
    )
    return min(independent, max(total, 0.0))


def published_table(order: float, sigma: float, num_teachers: int) -> FloatArray:
    """Return Theorem 6 for one label as published, for each possible count: ``[num_teachers + 1]``."""
    require_count(1, num_teachers=num_teachers)
    counts = np.arange(num_teachers + 1)
    log_q = np.asarray(log_ndtr(-np.abs(counts - num_teachers / 2) / sigma), dtype=np.float64)
    return np.array([one_way_rdp(order, value, 1 / (2 * sigma**2)) for value in log_q.tolist()])


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


ADD, REPLACE = NeighboringRelation.ADD_REMOVE_TEACHER, NeighboringRelation.REPLACE_RECORD
PAPER = "Dziedzic et al. (2023), Private Multi-Winner Voting for Machine Learning"
TEACHERS, NUM_LABELS, SIGMA, TAU = 50, 20, 7.0, math.sqrt(10)

METHOD = f"""
The text of the paper is not at hand, but for its abstract, nor are its data: numbers of answered queries, which depend
on votes, are left out.

The settings are those of the published code: {TEACHERS} teachers and GNMax noise of {SIGMA:.0f} votes for Binary voting,
and `tau = sqrt(10)` (L2) for tau voting on {NUM_LABELS} attributes. Multi-label GNMax is Binary voting: noise of s on
the votes for a label and on the votes against it equals noise of `s / sqrt(2)` on one count.

"As published" is Theorem 6 of Papernot et al. (2018) at the votes themselves. It is a function of the private votes, so
that the number of queries at which it reaches the budget must not be published.
"""


def sensitivities() -> dict[NeighboringRelation, float]:
    """Return the sensitivity of tau voting by relation."""
    voting = TauVoting(
        tau=TAU, sigma_tau=1.0, threshold_tau=TEACHERS / 2, soft=False, neighboring_relation=REPLACE
    )
    return {relation: voting.sensitivity(NUM_LABELS, relation) for relation in (REPLACE, ADD)}


def multi_winner_voting(effort: Effort) -> Finding:
    """Return the finding; nothing is drawn."""
    bound, moves = one_way(TEACHERS, SIGMA), sensitivities()
    right = np.allclose(list(moves.values()), [math.sqrt(2) * TAU, TAU], rtol=1e-12)
    rows: list[Row] = [
        {"what": name, "value": float(value)} for name, value in bound._asdict().items()
    ]
    rows += [
        {"what": f"sensitivity of tau voting, {relation.name}", "value": value}
        for relation, value in moves.items()
    ]
    return Finding(
        title="Binary and tau voting: the data-dependent bound in both directions, and the cost of a query",
        paper=PAPER,
        method=METHOD.strip(),
        claims=(
            Claim(
                where="data-dependent bound (Papernot et al. (2018), Theorem 6)",
                published="it bounds the divergence of a neighbor's law from that on the votes",
                ours=f"it does: the exact divergence of a label's bit is {bound.stated:.2f} of it at most",
                reason=Reason.NONE if bound.stated <= 1 else Reason.REFUTED,
                why=f"with {bound.votes} of {TEACHERS} votes at order {bound.order:g} it is {bound.exact_stated:.2g} below"
                f" {bound.bound:.2g}. Taken for both directions, as the cost of a query is, it would be too small:"
                f" {bound.exact_other:.2g} in the other, {bound.ratio:.2f} times the bound",
            ),
            Claim(
                where="tau voting, cost of a query",
                published="a tau^2 / s^2 (and in another function of the published code 2 a tau^2 / s^2)",
                ours="a tau^2 / s^2 under REPLACE_RECORD, a tau^2 / (2 s^2) under ADD_REMOVE_TEACHER",
                reason=Reason.NONE if right else Reason.REFUTED,
                why=f"the largest distance of two clipped ballots of {NUM_LABELS} labels is {moves[REPLACE]:.4f} = sqrt(2)"
                " tau, over all their sizes; the distance of one from zero is tau",
            ),
        ),
        rows=rows,
    )
