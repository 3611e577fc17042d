"""Permute-and-flip over more items than can be listed, from draws of the exponential mechanism.

Permute-and-flip visits the items in random order and takes the first whose coin, of chance
``p_i = exp((x_i - max) / scale)``, comes up heads (McKenna & Sheldon (2020)). Give each item a uniform
visiting time s: item i is then taken at time s with hazard ``p_i / (1 - p_i s)``, and the first taken wins.
Up to a time e below 1 that hazard is at most ``p_i / (1 - e)``, a Poisson stream whose members are draws of
the exponential mechanism. So the race is simulated exactly by thinning: a candidate of chance p at time s is
kept with probability ``(1 - e) / (1 - p s)``, with e = 1/2, 3/4, 7/8 and so on. About two candidates are
needed, however many items there are. A candidate may also come from an envelope of larger total mass, if it
is itself thinned to the right law.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from pate._typing import FloatArray, IntArray

Item = TypeVar("Item")


def first_accepted(propose: Callable[[], tuple[Item, float] | None]) -> Item:
    """Return the first candidate that the envelope accepts: a draw of the exponential mechanism."""
    while (candidate := propose()) is None:
        pass
    return candidate[0]


def first_head(
    log_total: float, propose: Callable[[], tuple[Item, float] | None], generator: np.random.Generator
) -> Item:
    """Draw the winner of permute-and-flip.

    Args:
        log_total: logarithm of the total mass of the stream of candidates, in units of the best item's mass.
        propose: returns a candidate and the chance p, in (0, 1], that its coin shows heads; or None for a candidate
            that the envelope rejects.
        generator: source of the times and coins.

    Returns:
        The first candidate whose coin shows heads.
    """
    time, remaining = 0.0, 0.5  # remaining is 1 - e
    while True:
        time += math.exp(math.log(max(generator.standard_exponential(), 1e-300)) - log_total + math.log(remaining))
        if time > 1 - remaining:
            time, remaining = 1 - remaining, remaining / 2  # memoryless: start the next stretch afresh
            continue
        candidate = propose()
        if candidate is not None and generator.random() * (1 - candidate[1] * time) < remaining:
            return candidate[0]


def first_heads(
    log_total: FloatArray, propose: Callable[[IntArray], tuple[IntArray, FloatArray]], generator: np.random.Generator
) -> IntArray:
    """Draw the winners of many rows at once, ``[B, m]``.

    Args:
        log_total: ``[B]``, as for `first_head`.
        propose: returns a candidate ``[n, m]`` and its chance ``[n]`` for each of the given rows ``[n]``.
        generator: source of the times and coins.
    """
    rows = np.arange(log_total.size)
    time, remaining = np.zeros(rows.size), np.full(rows.size, 0.5)
    chosen = None
    while rows.size:
        # a total too large for exp makes every time 0, as it should
        time[rows] += generator.standard_exponential(rows.size) * remaining[rows] * np.exp(-log_total[rows])
        late = time[rows] > 1 - remaining[rows]
        waiting, drawn = rows[late], rows[~late]
        time[waiting] = 1 - remaining[waiting]
        remaining[waiting] /= 2
        candidates, chance = propose(drawn)
        if chosen is None:
            chosen = np.zeros((log_total.size, candidates.shape[1]), dtype=np.int64)
        accepted = generator.random(drawn.size) * (1 - chance * time[drawn]) < remaining[drawn]
        chosen[drawn[accepted]] = candidates[accepted]
        rows = np.concatenate((waiting, drawn[~accepted]))
    return np.zeros((0, 0), dtype=np.int64) if chosen is None else chosen
