"""Top Stable: the sparse vector technique finds a stable gap (Carvalho, Wang, Gondara & Miao (2020))."""

import math

import numpy as np
from numpy.typing import ArrayLike

from pate.accounting.bisection import smallest_where
from pate.accounting.events import ComposedEvent, Event, FailureEvent, PureDPEvent
from pate.accounting.relation import NeighboringRelation
from pate.mechanisms._scores import ROWS, as_rows, expect_k, rank
from pate.mechanisms.limited_domain import Listed
from pate.mechanisms.noise import draw, gumbel
from pate.mechanisms.peeling import cdp_peel_event
from pate.validation import expect, expect_open_unit, expect_positive


def top_stable(
    scores: ArrayLike,
    *,
    k: int,
    kbar: int,
    scale_threshold: float,
    scale_gap: float,
    scale_peel: float,
    delta: float,
    neighboring_relation: NeighboringRelation,
    generator: np.random.Generator,
) -> Listed:
    """Release the set above the first gap that passes a noisy threshold, cut down to k by peeling if it is
    larger.

    The gaps below ranks ``k, k + 1, .., kbar, k - 1, .., 1`` are tried in turn. With ``w`` the count window,
    gap q passes if ``max(q - w, 0) + Laplace(scale_gap) > t + Laplace(scale_threshold)``, the second noise
    drawn once, and t such that an unstable gap passes with probability ``delta / kbar``.

    Args:
        scores: ``[d]`` or ``[B, d]``, integers or floats; only their ``kbar + 1`` largest have any influence.
        k: largest size of the set, 1..kbar.
        kbar: last rank to try, at most d - 1.
        scale_threshold: scale of the Laplace noise of the threshold, in votes.
        scale_gap: scale of the Laplace noise of the gaps, in votes.
        scale_peel: scale of the Gumbel noise of the peeling, in votes.
        delta: probability that an unstable set is released.
        neighboring_relation: decides the window.
        generator: source of the noise.

    Returns:
        The set, indices in ascending order; nothing is listed if no gap passes.

    Privacy: `top_stable_event`. Raises ``ValueError`` as `pate.mechanisms.limited_domain.limited_domain`
    does.
    """
    rows, single = as_rows(scores)
    window = NeighboringRelation(neighboring_relation).count_window
    expect_positive(scale_threshold=scale_threshold, scale_gap=scale_gap, scale_peel=scale_peel)
    expect_open_unit(delta=delta)
    expect_k(kbar, rows.shape[1], largest=rows.shape[1] - 1, name="kbar")
    expect_k(k, kbar)
    threshold = unstable_threshold(delta / kbar, scale_threshold=scale_threshold, scale_gap=scale_gap)
    turns = np.concatenate((np.arange(k, kbar + 1), np.arange(k - 1, 0, -1)))
    items = np.full((len(rows), k), -1, dtype=np.int64)
    listed = np.zeros((len(rows), k), dtype=np.bool_)
    for start in range(0, len(rows), ROWS):
        order, below = rank(rows[start : start + ROWS])
        gaps = np.maximum(below[:, turns] - below[:, turns - 1] - window, 0)
        gaps += scale_gap * draw("laplace", generator, gaps.shape)
        passed = gaps > threshold + scale_threshold * draw("laplace", generator, (len(gaps), 1))
        size = turns[np.argmax(passed, axis=1)] * passed.any(axis=1)
        keys = below[:, :kbar] - scale_peel * gumbel(generator, (len(below), kbar))
        keys[size <= k] = -np.inf  # released as it is
        keys[np.arange(kbar) >= size[:, None]] = np.inf
        ranks = np.argsort(keys, axis=1, kind="stable")[:, :k]
        held = np.arange(k) < size[:, None]
        chosen = np.where(held, np.take_along_axis(order, ranks, axis=1), np.iinfo(np.int64).max)
        chosen.sort(axis=1)
        items[start : start + ROWS] = np.where(held, chosen, -1)
        listed[start : start + ROWS] = held
    return Listed(items[0], listed[0]) if single else Listed(items, listed)


def top_stable_event(
    *,
    k: int,
    scale_threshold: float,
    scale_gap: float,
    scale_peel: float,
    delta: float,
    neighboring_relation: NeighboringRelation,
) -> Event:
    """Event of `top_stable` run for the same relation: the sparse vector technique, k rounds of Gumbel peeling, and
    the probability ``delta``.

    A gap moves by the count window w, so the first passing rank is pure
    ``w / scale_threshold + 2 w / scale_gap`` DP (Dwork & Roth (2014), Theorem 3.23, with the budget split as
    Lyu, Su & Li (2017) do).
    """
    relation = NeighboringRelation(neighboring_relation)
    expect_positive(scale_threshold=scale_threshold, scale_gap=scale_gap)
    epsilon = relation.count_window / scale_threshold + 2 * relation.count_window / scale_gap
    return ComposedEvent(
        events=(
            PureDPEvent(neighboring_relation=relation, epsilon=epsilon),
            cdp_peel_event(k=k, scale=scale_peel, neighboring_relation=relation),
            FailureEvent(neighboring_relation=relation, delta=delta),
        )
    )


def unstable_threshold(probability: float, *, scale_threshold: float, scale_gap: float) -> float:
    """Return t such that ``Laplace(scale_gap) - Laplace(scale_threshold)`` exceeds t with ``probability``, in
    votes.
    """
    expect_open_unit(probability=probability)
    expect_positive(scale_threshold=scale_threshold, scale_gap=scale_gap)
    wide, narrow = max(scale_threshold, scale_gap), min(scale_threshold, scale_gap)
    ratio = narrow / wide

    def log_tail(t: float) -> float:
        """Logarithm of the chance to exceed ``t`` wide scales, t >= 0."""
        if ratio > 1 - 1e-4:
            # the noise of two equal scales, which is the wider
            return -t + math.log((2 + t) / 4)
        return -t + math.log1p(-(ratio**2) * math.exp(t - t / ratio)) - math.log(2 * (1 - ratio**2))

    expect(probability < 0.5, "probability < 1/2", probability=probability)
    target = math.log(probability)
    furthest = -2 * target + 4
    return wide * smallest_where(lambda t: log_tail(t) <= target, 0.0, furthest)
