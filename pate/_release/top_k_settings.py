"""The settings of `pate topk`: what is asked for, and the mechanism that this makes of a histogram."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from pate._histogram import Histogram
from pate._release.promise import require_promise
from pate._validation import require, require_count, require_in_open_unit_interval, require_positive
from pate.accounting._budget import Budget, FilterName
from pate.accounting._calibration import Target, calibrate_scale
from pate.accounting._relation import NeighboringRelation
from pate.mechanisms._base import TopKMechanism
from pate.mechanisms._canonical import CanonicalMechanism
from pate.mechanisms._joint import JointMechanism
from pate.mechanisms._limited_domain import LimitedDomain
from pate.mechanisms._peeling import GumbelPeeling, PermuteAndFlipPeeling

Choice = Literal["peeling", "permute_and_flip", "canonical", "joint", "limited_domain"]
Neighbors = Literal["add_remove", "replace"]

_MECHANISMS: Mapping[str, type[TopKMechanism]] = {
    "peeling": GumbelPeeling,
    "permute_and_flip": PermuteAndFlipPeeling,
    "canonical": CanonicalMechanism,
    "joint": JointMechanism,
}
_RELATIONS: Mapping[str, NeighboringRelation] = {
    "add_remove": NeighboringRelation.ADD_REMOVE_TEACHER,
    "replace": NeighboringRelation.REPLACE_RECORD,
}
_CANDIDATES_PER_CHOICE = 10  # places of a limited domain for each item of the list
_MOST_CANDIDATES = 1_000_000  # places of a domain of unknown items, each of which takes noise


@dataclass(frozen=True, kw_only=True)
class TopKSettings:
    """What is asked for.

    Args:
        k: how many items are chosen.
        mechanism: peeling or permute_and_flip, k choices of one item; canonical, one choice of a
            set; joint, one choice of a ranking; limited_domain, up to k choices of one item each,
            which need no public list of items.
        target_epsilon: epsilon of this release at delta, in place of a scale.
        scale: scale of the noise, in the unit of the counts.
        delta: the delta of every epsilon, at most 1e-3.
        kbar: with limited_domain, how many of the largest counts may be named; 10 k by default.
        delta_domain: with limited_domain, the probability that an item is named that a neighbor
            could not name, a part of delta; a tenth of it by default.
        neighbors: whose guarantee comes first: one user more or less (add_remove), or one user with
            other items (replace).
        noise_seed: a seed in place of noise, for tests; such a release is not private.
        max_epsilon: limit on all releases of the ledger together, at delta under the first
            relation; the first one given is final.
        max_delta0: the part of delta that this limit sets aside for failures, such as a limited
            domain's; a tenth by default, or what this release would need if it were repeated until
            the limit is reached.
        budget_filter: what keeps this limit, renyi, gaussian or mixed; by default the one that
            admits this release most often. A mixed one admits releases of all kinds at about their
            price alone, if there are hundreds.
        max_teachers_per_unit: how many users one unit, such as a person of several accounts, may
            be. The target, the limit and the statement's figures are for such units.

    Raises:
        ValueError: on numbers out of range, or unless either a target or a scale is given.
    """

    k: int
    mechanism: Choice = "peeling"
    target_epsilon: float | None = None
    scale: float | None = None
    delta: float = 1e-6
    kbar: int | None = None
    delta_domain: float | None = None
    neighbors: Neighbors = "add_remove"
    noise_seed: int | None = None
    max_epsilon: float | None = None
    max_delta0: float | None = None
    budget_filter: FilterName | None = None
    max_teachers_per_unit: int = 1

    def __post_init__(self) -> None:
        require_count(1, k=self.k, max_teachers_per_unit=self.max_teachers_per_unit)
        require_promise(self.delta)
        for name, kinds in (("mechanism", Choice), ("neighbors", Neighbors)):
            value = getattr(self, name)
            require(
                value in get_args(kinds),
                f"a {name} among {', '.join(get_args(kinds))}",
                **{name: value},
            )
        exactly_one = (self.target_epsilon is None) != (self.scale is None)
        require(
            exactly_one,
            "either target_epsilon or scale",
            target_epsilon=self.target_epsilon,
            scale=self.scale,
        )
        noise = {
            name: getattr(self, name)
            for name in ("target_epsilon", "scale")
            if getattr(self, name) is not None
        }
        require_positive(**noise)
        if self.noise_seed is not None:
            require_count(0, noise_seed=self.noise_seed)
        if self.mechanism == "limited_domain":
            require_count(1, kbar=self.num_candidates)
            require(self.k <= self.num_candidates, f"kbar >= k = {self.k}", kbar=self.kbar)
            require_in_open_unit_interval(delta_domain=self.failure_probability)
            require(
                self.failure_probability < self.delta,
                f"delta_domain < delta = {self.delta:g}",
                delta_domain=self.failure_probability,
            )
        else:
            for name in ("kbar", "delta_domain"):
                value = getattr(self, name)
                require(
                    value is None, f"no {name} with the mechanism {self.mechanism}", **{name: value}
                )
        _ = self.budget  # which checks what it is made of

    @property
    def budget(self) -> Budget | None:
        """The limit on all releases together, or None."""
        return Budget.declared(
            self.max_epsilon,
            delta=self.delta,
            neighboring_relation=self.relation,
            max_delta0=self.max_delta0,
            budget_filter=self.budget_filter,
            max_teachers_per_unit=self.max_teachers_per_unit,
        )

    @property
    def num_candidates(self) -> int:
        """How many of the largest counts of a limited domain may be named.

        The default follows from k alone, as what is not public may not decide. The threshold rises
        by only 0.7 scales where the domain is twice as wide, and falls with the count below the
        domain: on counts that fall like a power of the rank, flatly or steeply, 10 k finds nearly
        as many of the top k as the best width does.
        """
        return _CANDIDATES_PER_CHOICE * self.k if self.kbar is None else self.kbar

    @property
    def failure_probability(self) -> float:
        """The probability that a limited domain names what a neighbor could not name.

        These add up over releases, and the ledger's total is finite where they leave something of
        delta.
        """
        return self.delta / 10 if self.delta_domain is None else self.delta_domain

    def require_public_items(self, *, public: bool) -> None:
        """Raise ``ValueError`` unless the list of items is public, or the mechanism needs none that is."""
        tells = "an item that one user alone has would tell of that user"
        needed = f"`items` with `pairs`, a public list ({tells}), or `mechanism` limited_domain, which needs none"
        require(public or self.mechanism == "limited_domain", needed, mechanism=self.mechanism)

    @property
    def relation(self) -> NeighboringRelation:
        """The relation of the guarantee that comes first, a user being what a teacher is in votes."""
        return _RELATIONS[self.neighbors]

    @property
    def ordered(self) -> bool:
        """Whether the order of the items is released, and not their set alone."""
        return self.mechanism != "canonical"

    def mechanism_for(self, histogram: Histogram) -> TopKMechanism | LimitedDomain:
        """Return the mechanism, its noise scaled to the target.

        Nothing of it follows from items that are not public.

        Raises:
            ValueError: on too few public items for k, a list that is not public with a mechanism
                that needs one, or a target that no noise meets.
        """
        self.require_public_items(public=histogram.public)
        mechanism_of = (
            self._of_largest_counts(histogram)
            if self.mechanism == "limited_domain"
            else self._of_all_items(histogram)
        )
        if self.scale is not None:
            return mechanism_of(self.scale)
        assert self.target_epsilon is not None
        target = Target(
            epsilon=self.target_epsilon,
            delta=self.delta,
            num_queries=1,
            neighboring_relation=self.relation,
            max_teachers_per_unit=self.max_teachers_per_unit,
        )
        return mechanism_of(
            calibrate_scale(lambda scale: mechanism_of(scale).event(self.relation), target)
        )

    def _of_all_items(self, histogram: Histogram) -> Callable[[float], TopKMechanism]:
        """Return the choice among all public items for a scale of its noise."""
        cls = _MECHANISMS[self.mechanism]
        self._require_items(histogram, spare=cls.spare)
        return lambda scale: cls(k=self.k, scale=scale, sensitivity=histogram.sensitivity)

    def _of_largest_counts(self, histogram: Histogram) -> Callable[[float], LimitedDomain]:
        """Return the choice among the largest counts for a scale of its noise."""
        kbar, most = self.num_candidates, _MOST_CANDIDATES
        if histogram.public:
            self._require_items(histogram, spare=1)
            most = len(histogram.items) - 1
            kbar = kbar if self.kbar is not None else min(kbar, most)
        require(kbar <= most, f"kbar <= {most}", kbar=kbar)
        return lambda scale: LimitedDomain(
            k=self.k,
            kbar=kbar,
            scale=scale,
            delta=self.failure_probability,
            # of the wider window: both guarantees hold at delta, for one sensitivity more on the
            # threshold
            relation=NeighboringRelation.REPLACE_RECORD,
            sensitivity=histogram.sensitivity,
        )

    def _require_items(self, histogram: Histogram, *, spare: int) -> None:
        """Raise ``ValueError`` unless k of the public items leave ``spare`` of them out."""
        num_items = len(histogram.items)
        most = num_items - spare
        require(self.k <= most, f"k <= {most} for {num_items} items and this mechanism", k=self.k)
