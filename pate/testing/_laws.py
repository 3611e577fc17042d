"""Laws on few outcomes: tests of samples against them, and divergences between neighbors."""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy.special import ndtr
from scipy.stats import chi2

from pate._validation import FloatArray, IntArray
from pate.accounting import DEFAULT_ORDERS, NeighboringRelation
from pate.accounting._cost import gaussian_delta

_TURNS = 1000  # in which two laws are cut down, until nothing is won any more
_FAR = 600.0  # charges further apart are as good as this far, within the range of floats
# above the rounding of sums of probabilities, far below a delta0: smaller numbers count as 0
_ROUNDING = 1e-12

ORDERS: FloatArray = np.concatenate((DEFAULT_ORDERS[::12], DEFAULT_ORDERS[-1:]))
"""The Renyi orders at which divergences are compared with curves."""
RELATIONS = tuple(NeighboringRelation)


def neighbors(
    counts: IntArray, relation: NeighboringRelation, shape: tuple[int, ...], *, max_move: int = 1
) -> tuple[IntArray, IntArray]:
    """Return the indices of all ordered pairs of neighbors among ``counts`` ``[n, d]``.

    Counts are listed in the C order of ``shape``.

    A count moves by ``max_move`` at most.
    """
    steps = range(-max_move if relation is NeighboringRelation.REPLACE_RECORD else 0, max_move + 1)
    first, second = [], []
    for move in itertools.product(steps, repeat=counts.shape[1]):
        if not any(move):
            continue
        moved = counts + np.array(move)
        inside = np.flatnonzero(((moved >= 0) & (moved < np.array(shape))).all(axis=1))
        landed = np.ravel_multi_index(tuple(moved[inside].T), shape)
        first += [inside, landed]
        second += [landed, inside]
    return np.concatenate(first), np.concatenate(second)


def renyi_divergence(p: FloatArray, q: FloatArray, delta0: float = 0.0) -> FloatArray:
    """Return divergences ``[n, ORDERS]`` of rows of p from rows of q, ``[n, m]`` each.

    With ``delta0``, it is the divergence that remains when both laws are restricted to events of
    probability ``1 - delta0``: each law gives up at most that much mass, where it exceeds a
    multiple of the other. Infinite if that is not enough.
    """
    hopeless = np.zeros(len(p), dtype=np.bool_)
    if delta0 > 0:
        mass_p, mass_q = p.sum(axis=1, keepdims=True), q.sum(axis=1, keepdims=True)
        p, q = clip_excess(p, q, delta0), clip_excess(q, p, delta0)
        left_p, left_q = p.sum(axis=1, keepdims=True), q.sum(axis=1, keepdims=True)
        hopeless = np.minimum(left_p - mass_p, left_q - mass_q)[:, 0] < -delta0 - _ROUNDING
        p, q = p / left_p, q / left_q
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p, log_q = np.log(p), np.log(q)
        columns = []
        for order in ORDERS:
            terms = np.where(p == 0, -np.inf, order * log_p + (1 - order) * log_q)
            largest = terms.max(axis=1)
            columns.append(
                (np.log(np.exp(terms - largest[:, None]).sum(axis=1)) + largest) / (order - 1)
            )
    divergence = np.column_stack(columns)
    divergence[hopeless] = np.inf
    return divergence


def clip_excess(p: FloatArray, q: FloatArray, delta0: float) -> FloatArray:
    """Return ``min(p, c q)`` per row, with the c that takes at most ``delta0`` of p's mass."""
    low, high = np.zeros(len(p)), np.full(len(p), 1e150)
    for _ in range(100):
        # c spans 150 orders of magnitude: bisect its logarithm
        middle = np.sqrt(np.maximum(low, 1e-6) * high)
        taken = np.maximum(p - middle[:, None] * q, 0).sum(axis=1)
        low, high = np.where(taken > delta0, middle, low), np.where(taken > delta0, high, middle)
    return np.minimum(p, high[:, None] * q)


def beyond_gaussian(
    p: FloatArray, q: FloatArray, mu_squared: FloatArray, delta0: FloatArray
) -> float:
    """Return the excess over a filter of squares of mu, between rows of p and q ``[n, m]``.

    An outcome is charged ``mu_squared`` ``[m]`` and ``delta0`` ``[m]``. An adversary spends on
    Gaussian noise what the outcome leaves of bounds on their sums, which are the charges of the
    dearest one. The result is the largest ``P(S) - e^epsilon Q(S)`` beyond ``delta0 + (1 - delta0)
    delta(epsilon)`` of these bounds; at most 0 if all p and q come, but for delta0, from a Gaussian
    of the mu charged, by processing. Minus infinity if some outcome names no mu.
    """
    most, failing = float(mu_squared.max()), float(delta0.max())
    if math.isinf(most):
        return -math.inf
    fails = (failing - delta0) / (1 - delta0)
    mu, remaining, excess = math.sqrt(most), np.sqrt(most - mu_squared), []
    for epsilon in np.maximum(most / 2 + mu * np.linspace(-2, 2, 5), 0).tolist():
        largest = (
            fails * p
            + (1 - fails) * _gaussian_excess(p, math.exp(min(epsilon, _FAR)) * q, remaining)
        ).sum(axis=1)
        excess.append(float(largest.max()) - failing - (1 - failing) * gaussian_delta(epsilon, mu))
    return max(excess)


def _gaussian_excess(p: FloatArray, q: FloatArray, mu: FloatArray) -> FloatArray:
    """Return the largest ``p N(mu, 1)(S) - q N(0, 1)(S)`` over all sets S."""
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.log(p / q)
        after = p * ndtr(mu / 2 + loss / mu) - q * ndtr(loss / mu - mu / 2)
    return np.where((p > 0) & (q > 0) & (mu > 0), after, np.maximum(p - q, 0))


def unpaid_loss(p: FloatArray, q: FloatArray, paid: FloatArray, delta0: FloatArray) -> FloatArray:
    """Return the loss of p against q, ``[n, m]``, beyond the price of outcomes: ``[n, ORDERS]``.

    An outcome is charged ``paid`` ``[m, ORDERS]`` and ``delta0`` ``[m]``. A filter that counts
    these charges holds if there are laws p' and q' with ``(1 - delta0) p' <= p`` and ``(1 - delta0)
    q' <= q`` for which ``log(sum of p'^a q'^(1 - a) exp(-(a - 1) paid)) / (a - 1)`` is at most 0
    (`docs/accounting.md`). The result is the least value of it, or some value of at most 0;
    infinite where there are no such laws.

    The sum is convex in (p', q'). For one of them given, the other is cut down where ``p'/q'
    exp(-paid)`` is largest, or where ``(p'/q')^a exp(-(a - 1) paid)`` is least; in turns this leads
    to the least value.
    """
    most_p, most_q = p / (1 - delta0), q / (1 - delta0)
    least_mass = np.minimum(1, p.sum(axis=1)) - _ROUNDING
    losses = np.empty((len(p), len(ORDERS)))
    for i, (order, charge) in enumerate(zip(ORDERS.tolist(), paid.T, strict=True)):
        dear = np.exp(np.maximum(charge - charge.max(), -_FAR))
        cheap = np.exp(np.maximum(-(order - 1) / order * (charge - charge.min()), -_FAR))
        active, q_left = np.arange(len(p)), q
        value = np.full(len(p), np.inf)
        for _ in range(_TURNS):
            p_left = _scale_to_one(most_p[active], q_left * dear)
            q_left = _scale_to_one(most_q[active], p_left * cheap)
            loss = _log_moment(p_left, q_left, order, charge) / (order - 1)
            lower = np.where(p_left.sum(axis=1) < least_mass[active], np.inf, loss)
            falls = lower < value[active] - 1e-12
            value[active] = np.minimum(value[active], lower)
            more = falls & (lower > 0)
            active, q_left = active[more], q_left[more]
            if not active.size:
                break
        losses[:, i] = value
    return losses


def _scale_to_one(most: FloatArray, weights: FloatArray) -> FloatArray:
    """Return ``min(most, c weights)`` per row, with the c that makes the sum 1, or the largest."""
    with np.errstate(divide="ignore", invalid="ignore"):
        full_at = np.where(weights > 0, most / weights, 0.0)
    by_place = np.argsort(full_at, axis=1)
    place = np.take_along_axis(full_at, by_place, axis=1)
    full = np.cumsum(np.take_along_axis(np.where(weights > 0, most, 0.0), by_place, axis=1), axis=1)
    rest = np.cumsum(np.take_along_axis(weights, by_place, axis=1)[:, ::-1], axis=1)[:, ::-1]
    # the sum with c at each place: the full ones before it, and c times the weights from it on
    before = np.column_stack((np.zeros(len(most)), full[:, :-1]))
    reached = before + place * rest >= 1
    first = np.argmax(reached, axis=1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        c = (1 - np.take_along_axis(before, first, axis=1)) / np.take_along_axis(
            rest, first, axis=1
        )
    limited = np.where(reached[:, -1:], c * weights, np.inf)
    return np.where(weights > 0, np.minimum(most, limited), 0.0)


def _log_moment(p: FloatArray, q: FloatArray, order: float, charge: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p == 0, -np.inf, order * np.log(p) + (1 - order) * (np.log(q) + charge))
    return np.asarray(np.logaddexp.reduce(terms, axis=1))


def chi_square_p_value(
    observed: IntArray | FloatArray, expected: FloatArray, *, rare: float = 0.0
) -> float:
    """Return the p-value of a chi-square test; the rarest outcomes are pooled until 5 are expected.

    All that are expected less than ``rare`` times are among them: a sum over many such outcomes is
    no chi-square. It is 0 where an outcome was seen that is next to impossible.
    """
    if observed[expected < 1e-6].sum() > 0:
        return 0.0
    ascending = np.argsort(expected, kind="stable")
    pooled = int(np.searchsorted(np.cumsum(expected[ascending]), 5)) + 1
    pooled = max(pooled, int((expected < rare).sum()))
    pooled_observed, pooled_expected = (
        np.append(numbers[ascending[:pooled]].sum(), numbers[ascending[pooled:]])
        for numbers in (observed, expected)
    )
    if len(pooled_expected) < 2:
        return 1.0
    return float(
        chi2.sf(
            ((pooled_observed - pooled_expected) ** 2 / pooled_expected).sum(),
            len(pooled_expected) - 1,
        )
    )
