"""An accountant is one way to prove an epsilon of composed events.

`RenyiAccountant` has the best order of the Renyi curve. `GaussianAccountant` has the Gaussian
mechanisms that dominate all events one by one (Dong, Roth & Su (2022), Corollary 3.3), and
`ManyBitsAccountant` those that dominate events as many bits (docs/appendix/costs.md, "Many bits").
`EqualRoundsAccountant` and `OrderedAccountant` have the bounds of `pate._core.accounting.adaptive`.
`pate._core.accounting.accountant` names those that a total is the smallest of. To add one, write a
subclass of `Accountant`, name it there, and give `Guarantee` the figures of its proof, which
`statement.txt` sets in words.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from pate._core.accounting.adaptive import Profile, equal_rounds, is_known, ordered_profile
from pate._core.accounting.base import Event, leaves
from pate._core.accounting.cost import (
    WIDTHS,
    Cost,
    convert,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_log_delta,
    lost_delta,
    many_bits_mu_squared,
    remaining_delta,
)
from pate._core.accounting.events import BoundedRangeEvent, FailureEvent, GaussianEvent, PureDPEvent
from pate._core.validation import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """A proven (epsilon, delta), and the figures of its proof.

    Attributes:
        epsilon: the proven epsilon; infinite if there is none.
        delta: its delta.
        delta0: the part of ``delta`` that the failures take.
        order: the Renyi order of a proof by the curve; ``rdp`` is the value of the curve there.
        mu: the Gaussian mechanism of a proof by Gaussian differential privacy.
        width: the common width of the weights, if the proof by ``mu`` counts many bits.
        rounds: the number of rounds of a proof by the optimum of equal rounds.
        in_order: the number of steps of a proof by the optimum of releases in their order.
    """

    epsilon: float
    delta: float
    delta0: float
    order: float | None = None
    rdp: float | None = None
    mu: float | None = None
    width: float | None = None
    rounds: int | None = None
    in_order: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types: the figures of the proof, with None for an infinite epsilon."""
        figures = {name: value for name, value in asdict(self).items() if value is not None}
        return figures | {"epsilon": self.epsilon if math.isfinite(self.epsilon) else None}


class Composed(NamedTuple):
    """Events under one relation, composed in order.

    Attributes:
        batches: events, each with its count.
        cost: their sum on ``orders``.
        orders: Renyi orders, ``[K]``.
        in_order: whether the events were fixed beforehand and happen in this order.
    """

    batches: Sequence[tuple[Sequence[Event], IntArray]]
    cost: Cost
    orders: FloatArray
    in_order: bool = False

    def parts(self) -> Iterator[tuple[Event, int]]:
        """Yield the events as (event, count), in order."""
        for events, counts in self.batches:
            yield from zip(events, map(int, counts), strict=True)

    def leaves(self) -> Iterator[tuple[Event, int]]:
        """Yield the basic events as (event, count), in order."""
        for event, count in self.parts():
            yield from leaves(event, count)

    def left(self, delta: float) -> float:
        """Return the part of ``delta`` that failures leave; 0 or less if there is none."""
        return remaining_delta(delta, self.cost.log_survival)

    def with_failures(self, delta: float) -> float:
        """Return the delta of everything, from the ``delta`` of all but the failures."""
        return self.cost.delta0 + math.exp(self.cost.log_survival) * delta

    def proven(self, epsilon: float, delta: float, **figures: Any) -> Guarantee:
        """Return the guarantee with the figures of its proof."""
        return Guarantee(epsilon=epsilon, delta=delta, delta0=self.cost.delta0, **figures)


class Accountant(ABC):
    """A way to prove an epsilon of composed events."""

    @abstractmethod
    def supports(self, event: Event) -> bool:
        """Return whether it knows a price of a basic event (`leaves`)."""

    def unsupported(self, events: Iterable[Event]) -> list[str]:
        """Return the names of the kinds of basic events without a price, in order."""
        kinds = dict.fromkeys(
            type(leaf).__name__
            for event in events
            for leaf, times in leaves(event)
            if times and not self.supports(leaf)
        )
        return list(kinds)

    @abstractmethod
    def guarantee(
        self, composed: Composed, *, delta: float, below: float = math.inf
    ) -> Guarantee | None:
        """Return the smallest epsilon at ``delta`` that it proves.

        None without a proof, or if another accountant has proved an epsilon ``below`` it.
        """

    def get_delta(self, composed: Composed, epsilon: float) -> float:
        """Return the smallest delta at ``epsilon`` that it proves; 1 or more without a proof."""
        return 1.0


class RenyiAccountant(Accountant):
    """Converts the sum of curves at its best order.

    Args:
        conversion: ``"optimal"``, by Canonne, Kamath & Steinke (2020), Proposition 12, or
            ``"classic"``, by Mironov (2017), Proposition 3, to reproduce published figures.
    """

    def __init__(self, conversion: Literal["optimal", "classic"] = "optimal") -> None:
        self._conversion: Literal["optimal", "classic"] = conversion

    def supports(self, event: Event) -> bool:
        return bool(np.isfinite(event.cost().rdp).any())

    def guarantee(
        self, composed: Composed, *, delta: float, below: float = math.inf
    ) -> Guarantee | None:
        cost, orders = composed.cost, composed.orders
        epsilons = convert(cost, orders, delta=delta, conversion=self._conversion)
        best = int(np.argmin(epsilons))
        epsilon = float(epsilons[best])
        if not epsilon < below:
            return None
        return composed.proven(epsilon, delta, order=float(orders[best]), rdp=float(cost.rdp[best]))

    def get_delta(self, composed: Composed, epsilon: float) -> float:
        orders, cost = composed.orders, composed.cost
        far = orders - 1
        exponent = far * (cost.rdp - epsilon)
        if self._conversion == "optimal":
            exponent = exponent + far * np.log1p(-1 / orders) - np.log(orders)
        # delta0 + (1 - delta0) delta, where either may be far smaller than the other
        log_delta = min(float(exponent.min()), 0.0)
        return min(1.0, cost.delta0 + math.exp(cost.log_survival + log_delta))


class GaussianAccountant(Accountant):
    """Sums the ``mu^2`` of Gaussian mechanisms that dominate the events one by one.

    Its trade-off is exact (Balle & Wang (2018), Theorem 8) if all events are Gaussian.

    Args:
        exact: whether it supports Gaussian events only.
    """

    def __init__(self, *, exact: bool = False) -> None:
        self._exact = exact

    def supports(self, event: Event) -> bool:
        if self._exact:
            return isinstance(event, GaussianEvent)
        return event.cost().mu_squared < math.inf

    def _dominating(self, composed: Composed) -> tuple[float, float, dict[str, float]]:
        """Return ``mu^2``, infinite if none is known, the lost delta, and figures beside it."""
        return composed.cost.mu_squared, 0.0, {}

    def guarantee(
        self, composed: Composed, *, delta: float, below: float = math.inf
    ) -> Guarantee | None:
        mu_squared, lost, figures = self._dominating(composed)
        left = composed.left(delta) - lost
        if mu_squared == math.inf or left <= 0:
            return None
        mu = math.sqrt(mu_squared)
        if below < math.inf and mu > 0 and gaussian_log_delta(below, mu) > math.log(left):
            return None
        return composed.proven(gaussian_epsilon(left, mu), delta, mu=mu, **figures)

    def get_delta(self, composed: Composed, epsilon: float) -> float:
        mu_squared, lost, _ = self._dominating(composed)
        if mu_squared == math.inf:
            return 1.0
        return composed.with_failures(lost + gaussian_delta(epsilon, math.sqrt(mu_squared)))


class ManyBitsAccountant(GaussianAccountant):
    """Sums the weights of choices and tests among many, at their best common width."""

    def _dominating(self, composed: Composed) -> tuple[float, float, dict[str, float]]:
        cost = composed.cost
        if not cost.rounds:
            return math.inf, 0.0, {}
        totals = many_bits_mu_squared(cost.narrow_weights)
        best = int(np.argmin(totals))
        mu_squared = float(totals[best])
        return mu_squared, lost_delta(cost.rounds, mu_squared), {"width": float(WIDTHS[best])}


class _Optimum(Accountant):
    _figure: ClassVar[str]

    @abstractmethod
    def _profile(self, composed: Composed, below: float) -> tuple[int, Profile] | None:
        """Return the number of rounds or steps, and the bound on all adversaries, if any."""

    def guarantee(
        self, composed: Composed, *, delta: float, below: float = math.inf
    ) -> Guarantee | None:
        left = composed.left(delta)
        if left <= 0 or (found := self._profile(composed, below)) is None:
            return None
        number, profile = found
        epsilon = profile.at(left)
        return (
            composed.proven(epsilon, delta, **{self._figure: number}) if epsilon < below else None
        )


class EqualRoundsAccountant(_Optimum):
    """Plays rounds that are all one choice, or all one pure release."""

    _figure = "rounds"

    def supports(self, event: Event) -> bool:
        return isinstance(event, BoundedRangeEvent | PureDPEvent | FailureEvent)

    def _profile(self, composed: Composed, below: float) -> tuple[int, Profile] | None:
        return equal_rounds(composed.parts())

    def get_delta(self, composed: Composed, epsilon: float) -> float:
        found = equal_rounds(composed.parts())
        return 1.0 if found is None else composed.with_failures(found[1].delta_at(epsilon))


class OrderedAccountant(_Optimum):
    """Plays all releases in their order, where it is known and they are not all equal.

    Its grid reaches as far as an epsilon that another accountant has proved.
    """

    _figure = "in_order"

    def supports(self, event: Event) -> bool:
        return is_known(event)

    def _profile(self, composed: Composed, below: float) -> tuple[int, Profile] | None:
        if not composed.in_order or equal_rounds(composed.parts()) is not None:
            return None
        spread = math.sqrt(2 * float(composed.cost.rdp[0]) / float(composed.orders[0]))
        return ordered_profile(list(composed.parts()), epsilon=below, spread=spread)
