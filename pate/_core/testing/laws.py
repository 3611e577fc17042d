"""The ground of all contracts: laws on few outcomes, and divergences of neighbors.

`Contract`, the base of all contracts, refuses incomplete test classes.
"""

from __future__ import annotations

import itertools
import math
import re
from abc import ABC
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import chi2

from pate._core.accounting.cost import (
    DEFAULT_ORDERS,
    NeighboringRelation,
    gaussian_delta,
)
from pate._core.validation import (
    FloatArray,
    IntArray,
)

Input = TypeVar("Input")


def usual_ballots(num_teachers: int, num_labels: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Return ballots with all teachers but one in agreement, or half of them."""
    row, column = np.indices((num_teachers, num_labels))
    all_but_one = (row < row.max()) | (column < column.max())
    one = (row == row.max() - 1) & (column == 0)
    ballots = (all_but_one, one, (row + column) % 2 == 0)
    return tuple(tuple(map(tuple, (1 * each).tolist())) for each in ballots)


_TURNS = 1000  # in which two laws are cut down, until nothing is won any more
_FAR = 600.0  # charges further apart are as good as this far, within the range of floats
# above the rounding of sums of probabilities, far below a delta0: smaller numbers count as 0
_ROUNDING = 1e-12

ORDERS: FloatArray = np.concatenate((DEFAULT_ORDERS[::12], DEFAULT_ORDERS[-1:]))
"""The Renyi orders for comparing divergences with curves."""
RELATIONS = tuple(NeighboringRelation)
CLEARLY_DIFFERENT = 1e-6
"""A p-value of draws on one row that settles the test of a law. No more rows are drawn then."""


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
    columns = []
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p, log_q = np.log(np.ascontiguousarray(p.T)), np.log(np.ascontiguousarray(q.T))
        loss = np.where(np.isneginf(log_p), 0, log_p - log_q)
        for order in ORDERS:
            terms = log_p + (order - 1) * loss
            largest = terms.max(axis=0)
            columns.append((np.log(np.exp(terms - largest).sum(axis=0)) + largest) / (order - 1))
    divergence = np.column_stack(columns)
    divergence[hopeless] = np.inf
    return divergence


def clip_excess(p: FloatArray, q: FloatArray, delta0: float) -> FloatArray:
    """Return ``min(p, c q)`` per row, with the c that takes ``delta0`` of p's mass, if any does."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.nan_to_num(p / q, nan=0.0, posinf=1e150)
        order = np.argsort(-ratio, axis=1)
        above_p, above_q, next_ratio = (
            np.take_along_axis(each, order, axis=1) for each in (p, q, ratio)
        )
        above_p, above_q = above_p.cumsum(axis=1), above_q.cumsum(axis=1)
        next_ratio = np.column_stack((next_ratio[:, 1:], np.zeros(len(p))))
        # the first place at which all that lies above the next ratio takes as much
        place = (above_p - next_ratio * above_q >= delta0).argmax(axis=1)[:, None]
        at_p, at_q = (np.take_along_axis(each, place, axis=1) for each in (above_p, above_q))
        c = np.nan_to_num((at_p - delta0) / at_q, nan=1e150).clip(1e-150, 1e150)
    return np.minimum(p, c * q)


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
    (`docs/appendix/budgets.md`). The result is the least value of it, or some value of at most 0;
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
        before, rest = (np.take_along_axis(each, first, axis=1) for each in (before, rest))
        c = (1 - before) / rest
    limited = np.where(reached[:, -1:], c * weights, np.inf)
    return np.where(weights > 0, np.minimum(most, limited), 0.0)


def _log_moment(p: FloatArray, q: FloatArray, order: float, charge: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p == 0, -np.inf, order * np.log(p) + (1 - order) * (np.log(q) + charge))
    return np.asarray(np.logaddexp.reduce(terms, axis=1))


def chi_square_p_value(
    observed: IntArray | FloatArray, expected: FloatArray, *, rare: float = 0.0
) -> float:
    """Return the p-value of a chi-square test. The rarest outcomes are pooled until 5 are expected.

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


class Contract(ABC):  # noqa: B024
    """A class of tests to inherit, under a name that begins with ``Test``.

    Raises:
        TypeError: where such a class does not define all that is abstract, since pytest would pass
            over it in silence.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        missing = [
            name
            for name in dir(cls)
            if getattr(getattr(cls, name, None), "__isabstractmethod__", False)
        ]
        if cls.__name__.startswith("Test") and missing:
            raise TypeError(f"Expected {cls.__name__} to define {', '.join(missing)}")


def assert_refused(
    make: Callable[[], object], arguments: object, pattern: str = r"Expected [^\n]*"
) -> None:
    """Assert that ``make`` raises a one-line ``ValueError``, because of its ``arguments``."""
    with pytest.raises(ValueError) as raised:
        pytest.fail(f"Expected {arguments} to be refused with a ValueError, got {make()}")
    assert re.fullmatch(pattern, str(raised.value)), (
        f"Expected one line on {arguments}, got: {raised.value}"
    )


def assert_drawn_by_law(p_value: float, sampler: object) -> None:
    """Assert that a test of draws against their law does not refute it."""
    assert p_value > 1e-4, (
        f"Expected draws of {sampler} that follow the law of the test class, got p = {p_value:.1e}"
    )


def assert_noise_matters(p_value: float, sampler: object) -> None:
    """Assert that draws with a fifth less noise are found to differ from the law."""
    assert p_value < CLEARLY_DIFFERENT, (
        f"Expected draws of {sampler} with 20% less noise to differ, got p = {p_value:.1e}:"
        " noise_parameters names all scales of noise, and the grid has rows that noise changes"
    )


def assert_paid(worst: FloatArray, rdp: FloatArray, event: object, tolerance: float = 1e-6) -> None:
    """Assert that the divergences of all neighbors are within the curve of the event."""
    assert (worst <= rdp * (1 + tolerance) + 1e-9).all(), (
        f"Expected an event that covers all neighbors, got {event}: some differ"
        f" {(worst / rdp).max():.3g} times as much"
    )


def assert_gaussian(beyond: float, event: object, tolerance: float = 0.0) -> None:
    """Assert that no neighbors exceed the Gaussian of the event's ``mu``, and its delta0."""
    assert beyond <= tolerance + 1e-11, (
        f"Expected an event whose mu covers all neighbors, got {event}: some differ"
        f" with a delta {beyond:.3g} too large"
    )


def assert_tight(worst: FloatArray, rdp: FloatArray, loose_because: str) -> None:
    """Assert that some divergence comes within 10% of the curve, unless a reason says why not."""
    reached = float((worst / rdp).max())
    expected = (
        f"no neighbors closer to it, since {loose_because!r}"
        if loose_because
        else "neighbors within 10% of it"
    )
    advice = "" if loose_because else ". It costs more than need be, or `loose_because` says why"
    assert (reached < 0.9) == bool(loose_because), (
        f"Expected {expected}, got {100 * reached:.0f}% of the curve{advice}"
    )
