"""Laws on few outcomes: tests of samples against them, and divergences between the laws of neighbors."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.stats import chi2

from pate.accounting.cost import DEFAULT_ORDERS
from pate.accounting.relation import NeighboringRelation
from pate.typing import FloatArray, IntArray

ORDERS: FloatArray = np.concatenate((DEFAULT_ORDERS[::12], DEFAULT_ORDERS[-1:]))
"""The Renyi orders at which divergences are compared with curves."""
RELATIONS = tuple(NeighboringRelation)


def neighbors(
    counts: IntArray, relation: NeighboringRelation, shape: tuple[int, ...], *, reach: int = 1
) -> tuple[IntArray, IntArray]:
    """Return the indices of all ordered pairs of neighbors among ``counts`` ``[n, d]``, in the C order of ``shape``.

    One count moves by ``reach`` at most.
    """
    steps = range(-reach if relation is NeighboringRelation.REPLACE_RECORD else 0, reach + 1)
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
    """Return the divergences at `ORDERS` of rows of p from rows of q, ``[n, m]`` each: ``[n, ORDERS]``.

    With ``delta0``, it is the divergence that remains when both laws are restricted to events of probability
    ``1 - delta0``: each law gives up at most that much mass, where it exceeds a multiple of the other. Infinite if that
    is not enough.
    """
    hopeless = np.zeros(len(p), dtype=np.bool_)
    if delta0 > 0:
        p, q = clip_excess(p, q, delta0), clip_excess(q, p, delta0)
        left_p, left_q = p.sum(axis=1, keepdims=True), q.sum(axis=1, keepdims=True)
        hopeless = np.minimum(left_p, left_q)[:, 0] < 1 - delta0 - 1e-9
        p, q = p / left_p, q / left_q
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p, log_q = np.log(p), np.log(q)
        found = []
        for order in ORDERS:
            terms = np.where(p == 0, -np.inf, order * log_p + (1 - order) * log_q)
            largest = terms.max(axis=1)
            found.append((np.log(np.exp(terms - largest[:, None]).sum(axis=1)) + largest) / (order - 1))
    divergence = np.column_stack(found)
    divergence[hopeless] = np.inf
    return divergence


def clip_excess(p: FloatArray, q: FloatArray, delta0: float) -> FloatArray:
    """Return ``min(p, c q)`` per row, with the c that takes ``delta0`` of p's mass (a hair less, for rounding)."""
    low, high = np.zeros(len(p)), np.full(len(p), 1e6)
    for _ in range(100):
        middle = np.sqrt(np.maximum(low, 1e-6) * high)
        taken = np.maximum(p - middle[:, None] * q, 0).sum(axis=1)
        low, high = np.where(taken > delta0, middle, low), np.where(taken > delta0, high, middle)
    return np.minimum(p, high[:, None] * q)


def chi_square_p_value(observed: IntArray | FloatArray, expected: FloatArray, *, rare: float = 0.0) -> float:
    """Return the p-value of a chi-square test, the rarest outcomes pooled until 5 are expected of them.

    All that are expected less than ``rare`` times are among them: a sum over many such outcomes is no chi-square.
    It is 0 where an outcome was seen that is next to impossible.
    """
    if observed[expected < 1e-6].sum() > 0:
        return 0.0
    ascending = np.argsort(expected, kind="stable")
    pooled = int(np.searchsorted(np.cumsum(expected[ascending]), 5)) + 1
    pooled = max(pooled, int((expected < rare).sum()))
    seen, wanted = (
        np.append(each[ascending[:pooled]].sum(), each[ascending[pooled:]]) for each in (observed, expected)
    )
    if len(wanted) < 2:
        return 1.0
    return float(chi2.sf(((seen - wanted) ** 2 / wanted).sum(), len(wanted) - 1))
