"""Top Stable: a stable gap found by the sparse vector technique (Carvalho, Wang, Gondara & Miao (2020))."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pate.accounting.bisection import smallest_where
from pate.accounting.events import Event, PureDPEvent
from pate.mechanisms.base import choice_event
from pate.mechanisms.limited_domain import DomainMechanism, Listed
from pate.mechanisms.noise import draw, gumbel
from pate.mechanisms.ranking import Ranked
from pate.validation import expect, expect_open_unit, expect_positive


@dataclass(frozen=True, kw_only=True)
class TopStable(DomainMechanism):
    """Release the set above the first gap that passes a noisy threshold, cut down to k by peeling if it is larger.

    The gaps below ranks ``k, k + 1, .., kbar, k - 1, .., 1`` are tried in turn. With ``w`` the count window, gap q
    passes if ``max(q - w, 0) + Laplace(scale_gap) > t + Laplace(scale_threshold)``, the second noise drawn once, and t
    such that an unstable gap passes with probability ``delta / kbar``. The set is listed in ascending order; nothing
    is listed if no gap passes.

    Privacy: the sparse vector technique, k rounds of Gumbel peeling (bounded range of ``w / scale_peel`` each), and the
    probability ``delta``. A gap moves by w, so the first passing rank is pure ``w / scale_threshold + 2 w / scale_gap``
    DP (Dwork & Roth (2014), Theorem 3.23, with the budget split as Lyu, Su & Li (2017) do).

    Args:
        k: largest size of the set, 1..kbar.
        kbar: last rank to try, 1..d-1.
        delta: probability that an unstable set is released, below ``kbar / 2``.
        relation: decides the window.
        scale_threshold: scale of the Laplace noise of the threshold, in votes.
        scale_gap: scale of the Laplace noise of the gaps, in votes.
        scale_peel: scale of the Gumbel noise of the peeling, in votes.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("scale_threshold", "scale_gap", "scale_peel")

    scale_threshold: float
    scale_gap: float
    scale_peel: float

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(self.delta < self.kbar / 2, f"delta < kbar / 2 = {self.kbar / 2}", delta=self.delta)

    def _listed(self, ranked: Ranked, generator: np.random.Generator) -> Listed:
        order, below = ranked
        k, kbar = self.k, self.kbar
        threshold = unstable_threshold(
            self.delta / kbar, scale_threshold=self.scale_threshold, scale_gap=self.scale_gap
        )
        turns = np.concatenate((np.arange(k, kbar + 1), np.arange(k - 1, 0, -1)))
        gaps = np.maximum(below[:, turns] - below[:, turns - 1] - self.relation.count_window, 0)
        gaps += self.scale_gap * draw("laplace", generator, gaps.shape)
        passed = gaps > threshold + self.scale_threshold * draw("laplace", generator, (len(gaps), 1))
        size = turns[np.argmax(passed, axis=1)] * passed.any(axis=1)
        keys = below[:, :kbar] - self.scale_peel * gumbel(generator, (len(below), kbar))
        keys[size <= k] = -np.inf  # released as it is
        keys[np.arange(kbar) >= size[:, None]] = np.inf
        ranks = np.argsort(keys, axis=1, kind="stable")[:, :k]
        held = np.arange(k) < size[:, None]
        chosen = np.where(held, np.take_along_axis(order, ranks, axis=1), np.iinfo(np.int64).max)
        chosen.sort(axis=1)
        return Listed(np.where(held, chosen, -1), held)

    def _parts(self) -> tuple[Event, ...]:
        window = self.relation.count_window
        return (
            PureDPEvent(
                neighboring_relation=self.relation, epsilon=window / self.scale_threshold + 2 * window / self.scale_gap
            ),
            choice_event(self.relation, eta=window / self.scale_peel, noise="gumbel", count=self.k),
        )


def unstable_threshold(probability: float, *, scale_threshold: float, scale_gap: float) -> float:
    """Return the t, in votes, that ``Laplace(scale_gap) - Laplace(scale_threshold)`` exceeds with ``probability``.

    Raises:
        ValueError: on a scale that is not positive or ``probability`` outside (0, 1/2).
    """
    expect_open_unit(probability=probability)
    expect(probability < 0.5, "probability < 1/2", probability=probability)
    expect_positive(scale_threshold=scale_threshold, scale_gap=scale_gap)
    wide, narrow = max(scale_threshold, scale_gap), min(scale_threshold, scale_gap)
    ratio = narrow / wide

    def log_tail(t: float) -> float:
        """Logarithm of the chance to exceed ``t`` wide scales, t >= 0."""
        if ratio > 1 - 1e-4:
            # the noise of two equal scales, which is the wider
            return -t + math.log((2 + t) / 4)
        return -t + math.log1p(-(ratio**2) * math.exp(t - t / ratio)) - math.log(2 * (1 - ratio**2))

    target = math.log(probability)
    furthest = -2 * target + 4
    return wide * smallest_where(lambda t: log_tail(t) <= target, 0.0, furthest)
