"""Order and counts together: k items by peeling, then their noisy scores; lists filled up to k."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pate._validation import FloatArray, IntArray, require, require_count, require_positive
from pate.accounting import ComposedEvent, Event, GaussianEvent, NeighboringRelation
from pate.mechanisms._base import Case, Checks, ScoreMechanism
from pate.mechanisms._exact_normal import add_gaussian
from pate.mechanisms._peeling import GumbelPeeling
from pate.mechanisms._ranking import as_batch


class CountedTopK(NamedTuple):
    """Items in order, and the noisy scores that they have."""

    items: IntArray
    """``[k]`` or ``[B, k]`` indices, in the order in which they were chosen."""
    scores: FloatArray
    """``[k]`` or ``[B, k]``: their scores with Gaussian noise, on a public grid; not sorted."""


@dataclass(frozen=True, kw_only=True)
class PeeledCounts(ScoreMechanism[CountedTopK]):
    """Choose k items by `GumbelPeeling`, then release the scores of these k with Gaussian noise.

    The price follows k, not the number of items, where noise on all scores would pay for each of
    them. Noisy scores that were used for the choice would be biased upwards, as luck is chosen; the
    noise here is fresh, so that they are unbiased.

    Privacy: adaptive composition of the k choices with one Gaussian release of k numbers, none of
    which moves by more than the sensitivity under either relation: an L2 sensitivity of ``sqrt(k)``
    times that. Given the items, which were released before, it does not matter which scores they
    are.

    >>> mechanism = PeeledCounts(k=2, scale=2.0, sigma=1.0)
    >>> found = mechanism(np.array([90, 80, 10, 0]), generator=seeded_generator(0))
    >>> found.items, found.scores.round(1)
    (array([0, 1]), array([92.6, 79.3]))

    Args:
        k: number of items, 1..d.
        scale: scale of the Gumbel noise of the choice, in the unit of the scores (votes).
        sigma: standard deviation of the noise of each score, in that unit.

    Raises:
        ValueError: on ``k < 1``, or ``scale``, ``sigma`` or ``sensitivity`` that are not positive.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("scale", "sigma")
    checks: ClassVar[Checks] = {"k": partial(require_count, 1)}

    k: int
    scale: float
    sigma: float

    @classmethod
    def defaults(cls, case: Case) -> Sequence[Mapping[str, Any]]:
        return [{"k": case.k}] if case.k <= case.num_items else []

    def require_items(self, num_items: int) -> None:
        self.choice.require_items(num_items)

    @property
    def choice(self) -> GumbelPeeling:
        """The choice of the items."""
        return GumbelPeeling(k=self.k, scale=self.scale, sensitivity=self.sensitivity)

    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> CountedTopK:
        """Release the top k of ``scores`` ``[d]`` or ``[B, d]``.

        Raises:
            ValueError: on scores that are not finite numbers, or too few for k.
        """
        rows, single = as_batch(scores)
        items = self.choice(rows, generator=generator)
        noisy = add_gaussian(
            np.take_along_axis(rows, items, axis=1), sigma=self.sigma, generator=generator
        )
        return CountedTopK(items[0], noisy[0]) if single else CountedTopK(items, noisy)

    def event(self, relation: NeighboringRelation) -> Event:
        noise = self.sigma / (math.sqrt(self.k) * self.sensitivity)
        counts = GaussianEvent(neighboring_relation=relation, noise_multiplier=noise)
        return ComposedEvent(events=(self.choice.event(relation), counts))


def split_budget(*, k: int, share: float) -> tuple[float, float]:
    """Return a scale and a sigma for `PeeledCounts`, with a ``share`` of the cost for the scores.

    Both are to be scaled by one factor.

    The cost is counted as for many releases, ``k w^2 / (8 scale^2)`` for the choices with w = 2
    (REPLACE_RECORD) and ``k / (2 sigma^2)`` for the scores, which add up to k.

    >>> scale, sigma = split_budget(k=2, share=0.5)
    >>> round(scale, 3), round(sigma, 3)
    (1.0, 1.0)

    Raises:
        ValueError: on ``k < 1`` or a ``share`` outside (0, 1).
    """
    require_count(1, k=k)
    require_positive(share=share)
    require(share < 1, "share < 1", share=share)
    return math.sqrt(1 / (2 * (1 - share))), math.sqrt(1 / (2 * share))


def pad_to_k(chosen: ArrayLike, *, public: ArrayLike) -> IntArray:
    """Return lists in which each -1 gives way to the first public items that are not in the list.

    The items were released before, and the public order does not depend on the scores, so that
    padding costs nothing.

    >>> pad_to_k([4, -1, -1], public=[4, 2, 7])
    array([4, 2, 7])

    Args:
        chosen: ``[k]`` or ``[B, k]`` distinct indices of items, -1 for places that were left empty,
            as from `pate.mechanisms.LimitedDomain`.
        public: a public order ``[m]`` of items, such as last year's, with at least k of them.

    Raises:
        ValueError: on arrays that are no such indices, or a public order that is too short.
    """
    lists, order = np.asarray(chosen), np.asarray(public)
    require(
        lists.dtype.kind in "iu" and order.dtype.kind in "iu",
        "integer indices",
        dtype=str(lists.dtype),
    )
    require(
        lists.ndim in (1, 2) and lists.shape[-1] > 0,
        "lists of shape [k] or [batch, k]",
        shape=lists.shape,
    )
    k = lists.shape[-1]
    require(
        order.ndim == 1 and order.size >= k,
        f"a public order of at least {k} items",
        shape=order.shape,
    )
    require(
        np.unique(order).size == order.size and order.min() >= 0,
        "distinct public items >= 0",
    )
    rows = np.atleast_2d(lists).astype(np.int64)
    require(rows.min() >= -1, "indices >= -1", minimum=int(rows.min()))
    for row in rows:
        taken = row[row >= 0]
        require(np.unique(taken).size == taken.size, "distinct indices in a list")
        row[row < 0] = order[~np.isin(order, taken)][: k - taken.size]
    return rows[0] if lists.ndim == 1 else rows
