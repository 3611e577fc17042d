"""Baselines: one-shot Laplace noise, and Laplace or gamma noise on all counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from pate._validation import (
    FloatArray,
    IntArray,
    require,
    require_count,
    require_in_open_unit_interval,
    require_positive,
)
from pate.accounting import Event, NeighboringRelation, PureDPEvent
from pate.mechanisms._accuracy import chance_to_lead
from pate.mechanisms._base import ScoreMechanism, TopKMechanism
from pate.mechanisms._exact_cube import add_cube
from pate.mechanisms._peeling import one_shot
from pate.mechanisms._ranking import Rows, as_batch


@dataclass(frozen=True, kw_only=True)
class OneShotLaplace(TopKMechanism):
    """Release the k largest scores with Laplace noise, in order (Qiao et al. (2021), Algorithm 1).

    Privacy: pure DP of ``k w / scale``, with ``w`` 1 vote under ADD_REMOVE_TEACHER and 2 under
    REPLACE_RECORD. Relative to the largest noisy score that is left out, each of the k moves by at
    most w, which changes the density of its noise by at most a factor of ``exp(w / scale)``: this
    covers the order too.

    >>> mechanism = OneShotLaplace(k=2, scale=2.0)
    >>> mechanism(np.array([90, 80, 10, 0]), generator=seeded_generator(0))
    array([0, 1])

    Args:
        k: length of the list, 1..d.
        scale: scale of the Laplace noise, in votes.
    """

    def _select(self, rows: Rows, generator: np.random.Generator) -> IntArray:
        return one_shot(rows, self.k, self.scale, "laplace", generator)

    def event(self, relation: NeighboringRelation) -> Event:
        return PureDPEvent(
            neighboring_relation=relation, epsilon=self.k * (self.window(relation) / self.scale)
        )

    def _accuracy(self, gap: float, num_items: int) -> float:
        return chance_to_lead("laplace", self.k, num_items - self.k, gap / self.scale)


def one_shot_laplace_scale(*, k: int, num_items: int, epsilon: float, delta: float) -> float:
    """Return the scale for (epsilon, delta) that Qiao et al. (2021), Theorem 2.2, claim.

    It is ``8 sqrt(k log(d / delta)) / epsilon`` for counts that move by one vote in any direction
    (REPLACE_RECORD). The theorem asks for ``epsilon <= 0.2`` and ``delta <= 0.05``. At this scale
    the event of `OneShotLaplace` is pure ``epsilon sqrt(k / (16 log(d / delta)))`` DP, the stronger
    statement up to ``k = 16 log(d / delta)``.

    >>> round(one_shot_laplace_scale(k=5, num_items=100, epsilon=0.2, delta=1e-6), 1)
    383.9

    Raises:
        ValueError: on ``k < 1``, ``num_items < 1``, ``epsilon <= 0`` or ``delta`` outside (0, 1).
    """
    require_count(1, k=k, num_items=num_items)
    require_positive(epsilon=epsilon)
    require_in_open_unit_interval(delta=delta)
    return 8 * math.sqrt(k * math.log(num_items / delta)) / epsilon


@dataclass(frozen=True, kw_only=True)
class LaplaceCounts(ScoreMechanism[FloatArray]):
    """Release every score with Laplace noise (Dwork et al. (2006)).

    The law is exact: real numbers, rounded to a public grid of at least ``scale / 2^20``.

    Privacy: pure DP of ``num_items / scale`` under both relations, because no count moves by more
    than one vote.

    >>> mechanism = LaplaceCounts(num_items=4, scale=2.0)
    >>> mechanism(np.array([90, 80, 10, 0]), generator=seeded_generator(0)).shape
    (4,)

    Args:
        num_items: the number of scores d, at least 1.
        scale: scale of the Laplace noise, in votes.

    Raises:
        ValueError: on ``num_items < 1`` or ``scale <= 0``.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("scale",)

    num_items: int
    scale: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count(1, num_items=self.num_items)

    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> FloatArray:
        """Return noisy ``scores``, float64 of their shape, ``[num_items]`` or ``[B, num_items]``.

        Raises:
            ValueError: on scores that are not finite numbers, or not ``num_items`` of them.
        """
        rows, single = as_batch(scores)
        require(
            rows.shape[1] == self.num_items, f"{self.num_items} scores", num_items=rows.shape[1]
        )
        # in one dimension the law of the cube is Laplace's
        noisy = add_cube(rows.reshape(-1, 1), scale=self.scale, generator=generator).reshape(
            rows.shape
        )
        return noisy[0] if single else noisy

    def event(self, relation: NeighboringRelation) -> Event:
        return PureDPEvent(
            neighboring_relation=relation, epsilon=self.num_items * self.sensitivity / self.scale
        )


@dataclass(frozen=True, kw_only=True)
class GammaCounts(ScoreMechanism[FloatArray]):
    """Release every score with noise of density proportional to ``exp(-max_i abs(z_i) / scale)``.

    The mechanism of Hardt & Talwar (2010) for the largest norm (Steinke & Ullman (2015), Theorem
    4.1): a radius from a gamma law of shape d + 1, and a uniform point of the cube. The law is that
    of real numbers, rounded to a public grid of at least ``scale / 2^20``.

    Privacy: pure DP of ``1 / scale`` under both relations for any d, because no count moves by more
    than one vote.

    Args:
        scale: scale of the noise, in votes.

    Raises:
        ValueError: on ``scale <= 0``.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("scale",)

    scale: float

    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> FloatArray:
        """Return noisy ``scores``, float64 of their shape, ``[d]`` or ``[B, d]``.

        Raises:
            ValueError: on scores that are not finite numbers.
        """
        rows, single = as_batch(scores)
        noisy = add_cube(rows, scale=self.scale, generator=generator)
        return noisy[0] if single else noisy

    def event(self, relation: NeighboringRelation) -> Event:
        return PureDPEvent(neighboring_relation=relation, epsilon=self.sensitivity / self.scale)
