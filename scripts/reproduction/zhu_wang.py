"""Zhu & Wang (2022): k items by stability and by its rivals, all at one guarantee, and their recall of the top-k."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from pate._core.accounting.accountant import COARSE_ORDERS
from pate._core.validation import BoolArray, FloatArray, IntArray
from pate.accounting import Event, NeighboringRelation, Target, calibrate_scale
from pate.mechanisms import (
    FixedTopKMechanism,
    GumbelPeeling,
    LimitedDomain,
    StableTopKMechanism,
    TopItems,
    TopStable,
)

PAPER = "Zhu & Wang (2022), Adaptive private-k-selection with adaptive k and application to multi-label PATE"
RELATION = NeighboringRelation.ADD_REMOVE_TEACHER

Choose = Callable[[IntArray, np.random.Generator], BoolArray]

_THRESHOLD, _GAPS = 0.37, 0.63  # how the authors of Top Stable split epsilon
_UNUSED = 1e12  # noise of a peeling that never happens
_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Contender:
    """A mechanism of the comparison, with its noise set.

    Attributes:
        name: as the paper has it.
        choose: returns members ``[B, d]`` of the sets chosen from counts ``[B, d]``, at most k in a
            row; of `ADAPTIVE`, which chooses k itself, any number.
    """

    name: str
    choose: Choose


PEELING, DOMAIN, TOP_STABLE = "EM-CDP", "limited domain", "Top Stable"
ADAPTIVE, FIXED = "StableTopK, adaptive k", "StableTopK, fixed k"
COLORS = {
    PEELING: "#e69900",
    DOMAIN: "#2299dd",
    TOP_STABLE: "#663399",
    ADAPTIVE: "#cc1111",
    FIXED: "#117733",
}
"""Mechanisms, in the order of the legends."""


@dataclass(frozen=True, kw_only=True)
class Contest:
    """The guarantee for all mechanisms.

    Args:
        k: size of the sets, below ``num_items``.
        num_items: the number of counts d.
        upper: a public number that no count exceeds.
        epsilon: the guarantee of all releases together.
        delta: its delta.
        releases: how many releases it is for.
        substitute: whether Top Stable, where no gap passes, peels k items with half of its epsilon.
    """

    k: int
    num_items: int
    upper: int
    epsilon: float
    delta: float
    releases: int = 1
    substitute: bool = False

    def contenders(self, names: Sequence[str] = tuple(COLORS)) -> list[Contender]:
        """Return mechanisms of `COLORS` at the guarantee."""
        made: dict[str, Callable[[], Choose]] = {
            PEELING: self._peeling,
            DOMAIN: lambda: self._listed(self._limited_domain()),
            TOP_STABLE: lambda: self._listed(self._top_stable()),
            ADAPTIVE: lambda: self._members(self._adaptive()),
            FIXED: lambda: self._members(self._fixed()),
        }
        return [Contender(name, made[name]()) for name in names]

    def _peeling(self) -> Choose:
        peeling = GumbelPeeling(
            k=self.k, scale=self._scale(lambda s: GumbelPeeling(k=self.k, scale=s).event(RELATION))
        )

        def peeled(counts: IntArray, generator: np.random.Generator) -> BoolArray:
            items = peeling(counts, generator=generator)
            return members_of(TopItems(items, np.ones(items.shape, dtype=np.bool_)), self.num_items)

        return peeled

    def _scale(self, event_of: Callable[[float], Event], target: Target | None = None) -> float:
        if target is None:
            target = self._target(self.epsilon, self.delta, self.releases)
        return calibrate_scale(event_of, target, tolerance=_TOLERANCE, orders=COARSE_ORDERS)

    def _target(self, epsilon: float, delta: float, releases: int) -> Target:
        return Target(
            epsilon=epsilon, delta=delta, num_queries=releases, neighboring_relation=RELATION
        )

    @property
    def _alone(self) -> Target:
        """The cost of one release by advanced composition, as in the paper for Top Stable and limited domain."""
        if self.releases == 1:
            return self._target(self.epsilon, self.delta, 1)
        return self._target(
            advanced_share(self.epsilon, self.delta, self.releases),
            self.delta / 2 / self.releases,
            1,
        )

    def _limited_domain(self) -> LimitedDomain:
        target, kbar = self._alone, min(2 * self.k, self.num_items - 1)

        def limited(scale: float) -> LimitedDomain:
            return LimitedDomain(
                k=self.k, kbar=kbar, delta=target.delta / 2, relation=RELATION, scale=scale
            )

        return limited(self._scale(lambda scale: limited(scale).event(RELATION), target))

    def _top_stable(self) -> TopStable:
        target = self._alone

        def top_stable(scale_peel: float) -> TopStable:
            search = target.epsilon / 2 if self.substitute else target.epsilon
            return TopStable(
                k=self.k,
                kbar=self.k,
                delta=target.delta / 2,
                relation=RELATION,
                scale_threshold=1 / (_THRESHOLD * search),
                scale_gap=2 / (_GAPS * search),
                scale_peel=scale_peel,
                fallback=self.substitute,
            )

        if not self.substitute:
            return top_stable(_UNUSED)
        return top_stable(self._scale(lambda scale: top_stable(scale).event(RELATION), target))

    def _listed(self, mechanism: LimitedDomain | TopStable) -> Choose:
        return lambda counts, generator: members_of(
            mechanism(counts, generator=generator), self.num_items
        )

    @staticmethod
    def _members(mechanism: StableTopKMechanism | FixedTopKMechanism) -> Choose:
        return lambda counts, generator: mechanism(counts, generator=generator)[0]

    @property
    def _delta_test(self) -> tuple[float, Target]:
        """The published threshold's failure, and the target once the published half of delta is set aside."""
        published = self.delta / 2 / self.releases
        exact = float(ndtr(-math.sqrt(2 * math.log(1 / published))))
        # a mechanism is charged for its threshold's failure; the paper's is charged for more
        left = self.delta - self.releases * (published - exact)
        return exact, self._target(self.epsilon, left, self.releases)

    def _adaptive(self) -> StableTopKMechanism:
        """Return Algorithm 2: rho split in half between the choice of k and the test."""
        delta_test, target = self._delta_test

        def stable(scale: float) -> StableTopKMechanism:
            return StableTopKMechanism(
                num_teachers=self.upper,
                num_labels=self.num_items,
                scale_gap=scale,
                sigma_test=scale,
                delta_test=delta_test,
                shift=RELATION.score_range,
                allow_empty=False,
            )

        return stable(self._scale(lambda scale: stable(scale).event(RELATION), target))

    def _fixed(self) -> FixedTopKMechanism:
        """Return Algorithm 3: Algorithm 2 with half of rho, and peeling at ``2 sqrt(rho)`` in all with the other."""
        delta_test, target = self._delta_test

        def stable(scale: float) -> FixedTopKMechanism:
            return FixedTopKMechanism(
                num_teachers=self.upper,
                num_labels=self.num_items,
                scale_gap=math.sqrt(2) * scale,
                sigma_test=math.sqrt(2) * scale,
                scale_peel=math.sqrt(self.k) / 2 * scale,
                delta_test=delta_test,
                shift=RELATION.score_range,
                allow_empty=False,
                k=self.k,
                rank_penalty=0.0,
                fallback=True,
                scale_noise_with_rounds=True,
            )

        # the scale is 1 / sqrt(rho)
        return stable(self._scale(lambda scale: stable(scale).event(RELATION), target))


def advanced_share(epsilon: float, delta: float, releases: int) -> float:
    """Return one release's epsilon for an advanced composition at ``epsilon``, slack ``delta / 2``."""
    root = math.sqrt(2 * releases * math.log(2 / delta))
    return float(
        brentq(
            lambda share: share * root + releases * share * math.expm1(share) - epsilon,
            0.0,
            epsilon,
        )
    )


def members_of(lists: TopItems, num_items: int) -> BoolArray:
    """Return lists of items ``[B, k]``, -1 where there is none, as members ``[B, d]``."""
    members = np.zeros((len(lists.items), num_items), dtype=np.bool_)
    row, place = np.nonzero(lists.mask)
    members[row, lists.items[row, place]] = True
    return members


def recall_of(counts: IntArray, members: BoolArray, k: int) -> FloatArray:
    """Return how many of the k largest counts ``[B, d]`` are among the members, over k.

    Ties count as the largest, k at most.
    """
    least = -np.partition(-counts, k - 1, axis=1)[:, k - 1 : k]
    recall: FloatArray = np.minimum(((counts >= least) & members).sum(axis=1), k) / k
    return recall


def share_of(counts: IntArray, members: BoolArray, k: int) -> FloatArray:
    """Return the sum of the members' counts over the sum of the k largest, of ``[B, d]`` both."""
    best = -np.partition(-counts, k - 1, axis=1)[:, :k]
    share: FloatArray = np.where(members, counts, 0).sum(axis=1) / best.sum(axis=1)
    return share


def quantiles(values: Sequence[float] | FloatArray) -> dict[str, float]:
    """Return the mean, and the quantiles that make the band of 80%."""
    array = np.asarray(values)
    low, high = np.quantile(array, (0.1, 0.9)).tolist()
    return {"mean": float(array.mean()), "low": low, "high": high}
