"""Zhu & Wang (2022): k items by stability and by its rivals, all at one guarantee, and what they find of the top-k."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pate.accounting import Event, NeighboringRelation
from pate.accounting.calibration import COARSE_ORDERS, Target, calibrate_scale
from pate.mechanisms import FixedTopKMechanism, GumbelPeeling, LimitedDomain, Listed, TopStable
from pate.typing import BoolArray, FloatArray, IntArray

PAPER = "Zhu & Wang (2022), Adaptive private-k-selection with adaptive k and application to multi-label PATE"
RELATION = NeighboringRelation.ADD_REMOVE_TEACHER
DELTA = 1e-6

Choose = Callable[[IntArray, np.random.Generator], BoolArray]

_THRESHOLD, _GAPS = 0.37, 0.63  # how the authors of Top Stable split epsilon
_UNUSED = 1e12  # noise of a peeling that never happens
_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Contender:
    """A mechanism of the comparison, with its noise set.

    Attributes:
        name: as the paper has it.
        choose: returns members ``[B, d]`` of the sets chosen from counts ``[B, d]``, at most k in a row.
    """

    name: str
    choose: Choose


COLOURS = {
    "exponential mechanism": "#e69900",
    "limited domain": "#2299dd",
    "Top Stable": "#663399",
    "Top Stable, fallback": "#bb88ee",
    "StableTopK": "#cc1111",
    "StableTopK, fallback": "#117733",
    "StableTopK, fallback, root noise": "#77bb55",
}
"""Mechanisms, in the order of the legends."""


def contenders(*, k: int, num_items: int, upper: int, epsilon: float) -> list[Contender]:
    """Return all mechanisms at (epsilon, `DELTA`) for one release of k items.

    Args:
        k: size of the sets, below ``num_items``.
        num_items: the number of counts d.
        upper: a public number that no count exceeds.
        epsilon: the guarantee.
    """
    target = Target(epsilon=epsilon, delta=DELTA, num_queries=1, neighboring_relation=RELATION)

    def scale_for(event_of: Callable[[float], Event]) -> float:
        return calibrate_scale(event_of, target, tolerance=_TOLERANCE, orders=COARSE_ORDERS)

    def fixed(scale: float, *, fallback: bool = False, peel_by_root: bool = False) -> FixedTopKMechanism:
        return FixedTopKMechanism(
            num_teachers=upper,
            num_labels=num_items,
            scale_gap=scale,
            sigma_test=scale,
            scale_peel=scale,
            delta_test=DELTA / 2,
            shift=RELATION.count_window,
            allow_empty=False,
            k=k,
            pull=scale,
            fallback=fallback,
            peel_by_root=peel_by_root,
        )

    def limited(scale: float) -> LimitedDomain:
        kbar = min(2 * k, num_items - 1)
        return LimitedDomain(k=k, kbar=kbar, delta=DELTA / 2, relation=RELATION, scale=scale)

    def top_stable(scale_peel: float, epsilon: float, *, fallback: bool) -> TopStable:
        return TopStable(
            k=k,
            kbar=k,
            delta=DELTA / 2,
            relation=RELATION,
            scale_threshold=1 / (_THRESHOLD * epsilon),
            scale_gap=2 / (_GAPS * epsilon),
            scale_peel=scale_peel,
            fallback=fallback,
        )

    peeling = GumbelPeeling(k=k, scale=scale_for(lambda s: GumbelPeeling(k=k, scale=s).event(RELATION)))
    domain = limited(scale_for(lambda s: limited(s).event(RELATION)))
    plain = top_stable(_UNUSED, epsilon, fallback=False)
    # half of epsilon for the search, the rest for the peeling that takes its place
    halved = top_stable(
        scale_for(lambda s: top_stable(s, epsilon / 2, fallback=True).event(RELATION)), epsilon / 2, fallback=True
    )
    stable = scale_for(lambda s: fixed(s).event(RELATION))
    by_root = scale_for(lambda s: fixed(s, peel_by_root=True).event(RELATION))

    def members(mechanism: FixedTopKMechanism) -> Choose:
        return lambda counts, generator: mechanism(counts, generator=generator).members

    def listed(mechanism: LimitedDomain | TopStable) -> Choose:
        return lambda counts, generator: members_of(mechanism(counts, generator=generator), num_items)

    def peeled(counts: IntArray, generator: np.random.Generator) -> BoolArray:
        items = peeling(counts, generator=generator)
        return members_of(Listed(items, np.ones(items.shape, dtype=np.bool_)), num_items)

    chosen = (
        peeled,
        listed(domain),
        listed(plain),
        listed(halved),
        members(fixed(stable)),
        members(fixed(stable, fallback=True)),
        members(fixed(by_root, fallback=True, peel_by_root=True)),
    )
    return [Contender(name, choose) for name, choose in zip(COLOURS, chosen, strict=True)]


def members_of(found: Listed, num_items: int) -> BoolArray:
    """Return lists of items ``[B, k]``, -1 where there is none, as members ``[B, d]``."""
    members = np.zeros((len(found.items), num_items), dtype=np.bool_)
    row, place = np.nonzero(found.listed)
    members[row, found.items[row, place]] = True
    return members


def recall_of(counts: IntArray, members: BoolArray, k: int) -> FloatArray:
    """Return how many of the k largest counts ``[B, d]`` are among the members, over k; ties count as the largest."""
    least = -np.partition(-counts, k - 1, axis=1)[:, k - 1 : k]
    found: FloatArray = ((counts >= least) & members).sum(axis=1) / k
    return found


def share_of(counts: IntArray, members: BoolArray, k: int) -> FloatArray:
    """Return the sum of the members' counts over that of the k largest counts, of ``[B, d]`` both."""
    best = -np.partition(-counts, k - 1, axis=1)[:, :k]
    share: FloatArray = np.where(members, counts, 0).sum(axis=1) / best.sum(axis=1)
    return share


def quantiles(values: Sequence[float] | FloatArray) -> dict[str, float]:
    """Return the mean, and the quantiles that make the band of 80%."""
    array = np.asarray(values)
    low, high = np.quantile(array, (0.1, 0.9)).tolist()
    return {"mean": float(array.mean()), "low": low, "high": high}
