"""Laws of the sets that mechanisms release, by definition: no code is shared with samplers."""

from __future__ import annotations

import math
from itertools import combinations
from typing import NamedTuple, assert_never

import numpy as np

from pate._validation import BoolArray, FloatArray, IntArray
from pate.mechanisms._noise import ChoiceNoise
from pate.mechanisms._ranking import Rows

MOST_OUTCOMES = 4096
"""How many sets are listed."""
MOST_FLIPPED = 128
"""The same where each chance is an integral over all others, as with exponential noise."""


class NotStatedError(ValueError):
    """A law or an accuracy that a mechanism does not state, or a law of too many outcomes."""


class Law(NamedTuple):
    """The probabilities with which a mechanism releases sets of items, for each row of scores."""

    chances: FloatArray
    """``[B, m]``: the probability of each of m sets."""
    members: BoolArray
    """``[m, d]``, or ``[B, m, d]`` if rows have different sets: which items are in them. Sets in
    different columns always differ."""
    nothing: FloatArray | None = None
    """``[B]``: the probability that nothing is released; None where a set always is."""


def sets_of(num_items: int, k: int, noise: ChoiceNoise) -> IntArray:
    """Return all sets of k items as ascending indices ``[m, k]``.

    Raises:
        NotStatedError: if there are more than are listed.
    """
    require_few(math.comb(num_items, k), noise)
    return np.array(list(combinations(range(num_items), k)))


def members_of(items: IntArray, num_items: int) -> BoolArray:
    """Return which of ``num_items`` items are in each row of indices, ``[m, d]``."""
    members = np.zeros((len(items), num_items), dtype=np.bool_)
    np.put_along_axis(members, items, True, axis=1)
    return members


def require_few(outcomes: int, noise: ChoiceNoise) -> None:
    """Raise `NotStatedError` if there are more outcomes than are listed."""
    most = MOST_OUTCOMES if noise == "gumbel" else MOST_FLIPPED
    if outcomes > most:
        raise NotStatedError(
            f"a query has {outcomes:,} outcomes, of which {most:,} are listed at most"
        )


def choice_law(utilities: Rows, noise: ChoiceNoise) -> FloatArray:
    """Return the chances ``[B, m]`` of the largest of ``utilities`` with noise of scale 1."""
    weights = np.exp(utilities - utilities.max(axis=1, keepdims=True))
    if noise == "gumbel":
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))
    if noise != "exponential":
        assert_never(noise)
    # permute and flip: an outcome comes at a uniform time, and is taken if no coin before it showed
    # heads
    nodes, parts = np.polynomial.legendre.leggauss(utilities.shape[1] // 2 + 1)
    chances = np.zeros(utilities.shape)
    for time, part in zip((nodes + 1) / 2, parts / 2, strict=True):
        still = np.log1p(-weights * time)
        chances += part * weights * np.exp(still.sum(axis=1, keepdims=True) - still)
    return chances


def peeling_law(scores: Rows, k: int, scale: float, noise: ChoiceNoise) -> Law:
    """Return the law of k items chosen one by one; any member of a set may come last."""
    num_items = scores.shape[1]
    require_few(sum(math.comb(num_items, size) for size in range(1, k + 1)), "gumbel")
    chances: dict[tuple[int, ...], FloatArray] = {(): np.ones(len(scores))}
    for _ in range(k):
        longer: dict[tuple[int, ...], FloatArray] = {}
        for chosen, chance in chances.items():
            left = [item for item in range(num_items) if item not in chosen]
            for item, part in zip(left, choice_law(scores[:, left] / scale, noise).T, strict=True):
                members = tuple(sorted((*chosen, item)))
                longer[members] = longer.get(members, 0.0) + chance * part
        chances = longer
    return Law(np.column_stack(list(chances.values())), members_of(np.array([*chances]), num_items))
