"""Top-k from a limited domain: only the kbar largest counts are read (Durfee & Rogers (2019), Algorithm
1).
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate.accounting.events import ComposedEvent, Event, FailureEvent
from pate.accounting.relation import NeighboringRelation
from pate.mechanisms._scores import ROWS, IntArray, as_rows, expect_k, k_smallest, rank
from pate.mechanisms.noise import gumbel
from pate.mechanisms.peeling import cdp_peel_event
from pate.validation import expect_open_unit, expect_positive


class Listed(NamedTuple):
    """A list of at most k items."""

    items: IntArray
    """``[k]`` or ``[B, k]``: indices, -1 where nothing is listed."""
    listed: NDArray[np.bool_]
    """Same shape: which places hold an item."""


def limited_domain(
    scores: ArrayLike,
    *,
    k: int,
    kbar: int,
    scale: float,
    delta: float,
    neighboring_relation: NeighboringRelation,
    generator: np.random.Generator,
) -> Listed:
    """Peel at most k of the kbar largest with Gumbel noise, until a noisy threshold comes first.

    The threshold has the score ``h_(kbar+1) + w + scale log(kbar / delta)``, ``w`` the count window. The
    paper has w = 1, which is ADD_REMOVE_TEACHER; the same proof holds with w = 2 under REPLACE_RECORD.

    Args:
        scores: ``[d]`` or ``[B, d]``, integers or floats; only their ``kbar + 1`` largest have any influence.
        k: largest length of the list, 1..kbar.
        kbar: size of the domain, at most d - 1.
        scale: scale of the Gumbel noise, in votes.
        delta: probability that an item is listed that a neighbor could not list.
        neighboring_relation: decides the threshold.
        generator: source of the noise.

    Returns:
        The list in the order of choice.

    Privacy: `limited_domain_event`. Items that enter the domain of a neighbor can be paired with those that
    leave it so that each pair moves within the window; and when every such item is counted as the end of the
    list, a list is at most ``1 + delta`` times as likely as before. Neighbors are then k bounded-range
    choices apart.

    Raises:
        ValueError: on scores that are not finite, ``k > kbar``, ``kbar >= d``, ``delta`` outside (0, 1) or
        ``scale <= 0``.
    """
    rows, single = as_rows(scores)
    relation = NeighboringRelation(neighboring_relation)
    expect_positive(scale=scale)
    expect_open_unit(delta=delta)
    expect_k(kbar, rows.shape[1], largest=rows.shape[1] - 1, name="kbar")
    expect_k(k, kbar)
    items = np.empty((len(rows), k), dtype=np.int64)
    listed = np.empty((len(rows), k), dtype=np.bool_)
    for start in range(0, len(rows), ROWS):
        order, below = rank(rows[start : start + ROWS])
        below = below[:, : kbar + 1].copy()
        below[:, kbar] -= relation.count_window + scale * math.log(kbar / delta)
        noisy = below - scale * gumbel(generator, below.shape)
        ranks = k_smallest(noisy[:, :kbar], k)
        before = np.take_along_axis(noisy, ranks, axis=1) < noisy[:, kbar:]
        items[start : start + ROWS] = np.where(before, np.take_along_axis(order, ranks, axis=1), -1)
        listed[start : start + ROWS] = before
    return Listed(items[0], listed[0]) if single else Listed(items, listed)


def limited_domain_event(*, k: int, scale: float, delta: float, neighboring_relation: NeighboringRelation) -> Event:
    """Event of `limited_domain` run for the same relation: k bounded-range choices of ``eta = w / scale``, but for the
    probability ``delta``.
    """
    peel = cdp_peel_event(k=k, scale=scale, neighboring_relation=neighboring_relation)
    return ComposedEvent(events=(peel, FailureEvent(neighboring_relation=peel.neighboring_relation, delta=delta)))
