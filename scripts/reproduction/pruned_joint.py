"""The joint mechanism by tables: a baseline of cost, a pruned table after the idea of Wu & Zhang (2024).

Losses are cut off at a number T that is reached with probability at most beta, and losses and
places of the largest loss make a table of T by k entries, whatever d.
`pate.mechanisms.JointMechanism` draws from the law that is not cut off.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln

from pate._core.validation import FloatArray, IntArray


def cut(*, k: int, num_items: int, epsilon: float, beta: float) -> int:
    """Return the loss T that the joint mechanism exceeds with probability at most ``beta``: scale 2 / epsilon."""
    log_sequences = float(gammaln(num_items + 1) - gammaln(num_items - k + 1))
    return math.ceil(2 / epsilon * (log_sequences + math.log(1 / beta)))


def log_loss_counts(counts: IntArray, k: int, limit: int) -> FloatArray:
    """Return the logarithm ``[limit + 1, k]`` of the number of sequences by largest loss and its first place.

    Losses above ``limit`` count as it.

    Args:
        counts: ``[d]`` integers, in descending order.
        k: length of the sequences.
        limit: the largest loss, at least 1.
    """
    losses = np.arange(limit)
    # how many items may take place i if it loses at most l: those above c_(i) - l
    reach = np.searchsorted(-counts, losses[:, None] - counts[:k], side="right")
    reach = np.concatenate((reach, np.full((1, k), counts.size)))
    allowed = np.log(reach - np.arange(k))
    new = np.diff(reach, axis=0, prepend=0)
    new[0] = reach[0] - np.arange(k)
    new[0, 1:] = 0  # if nothing is lost, the first place counts as the place of the largest loss
    with np.errstate(divide="ignore"):
        table: FloatArray = np.log(new)
    # before the place all lose less, after it as much at most
    table[1:, 1:] += np.cumsum(allowed[:-1, :-1], axis=1)
    table[:, :-1] += np.cumsum(allowed[:, :0:-1], axis=1)[:, ::-1]
    return table


def draw(
    counts: IntArray, k: int, epsilon: float, beta: float, generator: np.random.Generator
) -> IntArray:
    """Draw one sequence ``[k]`` as ranks from 0, from counts ``[d]`` in descending order: scale 2 / epsilon."""
    limit = cut(k=k, num_items=counts.size, epsilon=epsilon, beta=beta)
    table = log_loss_counts(counts, k, limit)
    table -= epsilon / 2 * np.arange(limit + 1)[:, None]
    loss, place = np.unravel_index(
        np.argmax(table + generator.gumbel(size=table.shape)), table.shape
    )
    reach = [
        int(np.searchsorted(-counts, loss - c, side="right")) if loss < limit else counts.size
        for c in counts[:k]
    ]
    less = [int(np.searchsorted(-counts, loss - 1 - c, side="right")) for c in counts[:k]]
    if loss == 0:
        place = np.int64(-1)
    taken: dict[int, None] = {}
    for i in range(k):
        low, high = (
            (0, less[i]) if i < place else (less[i], reach[i]) if i == place else (0, reach[i])
        )
        rank = int(generator.integers(low, high))
        while rank in taken:
            rank = int(generator.integers(low, high))
        taken[rank] = None
    return np.array(list(taken))
