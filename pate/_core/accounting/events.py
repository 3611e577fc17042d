"""The kinds of events: releases, with the parameters that determine their cost.

`pate._core.accounting.base` defines events and explains how to add a kind.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from scipy.special import log_ndtr, ndtri

from pate._core.accounting.base import (
    ComposedEvent as ComposedEvent,
    CompositeEvent as CompositeEvent,
    Event as Event,
    GroupEvent as GroupEvent,
    PartiesEvent as PartiesEvent,
    RepeatedEvent as RepeatedEvent,
    event_from_dict as event_from_dict,
    leaves as leaves,
    total_cost as total_cost,
)
from pate._core.accounting.cost import CHOICE, DEFAULT_ORDERS, TEST, Bits, Cost, bit_weights
from pate._core.accounting.curves import (
    Pairs,
    bounded_range_mu_squared,
    bounded_range_pairs,
    bounded_range_rdp,
    gaussian_bit_pairs,
    gaussian_mu_squared,
    gaussian_noisy_max_mu_squared,
    gaussian_noisy_max_rdp,
    gaussian_rdp,
    pure_dp_mu_squared,
    pure_dp_rdp,
    randomized_response_pairs,
    renyi_curve_rdp,
    stability_test_rdp,
    threshold_bit_rdp,
)
from pate._core.validation import (
    FloatArray,
    given,
    read_only,
    require,
    require_count,
    require_in_open_unit_interval,
    require_positive,
)


@dataclass(frozen=True, kw_only=True)
class CurveEvent(Event):
    """An event without delta0, given by positive numbers of which its formulas are functions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(**{name: getattr(self, name) for name in self.parameters()})

    @classmethod
    def parameters(cls) -> list[str]:
        """Return the names of the fields that the cost follows from, in their order."""
        return [field.name for field in fields(cls) if field.name != "neighboring_relation"]

    @staticmethod
    @abstractmethod
    def rdp(*arguments: Any, **named: Any) -> FloatArray:
        """Return the curve ``[K]`` from orders ``[K]`` and the fields in order."""

    @staticmethod
    def mu_squared(*arguments: Any, **named: Any) -> Any:
        """Return ``mu^2`` of the dominating Gaussian from the fields in order."""
        return math.inf

    @staticmethod
    def _bits(*arguments: Any) -> tuple[Bits, float] | None:
        """Return the kind of bit behind the event, and its scale. None if there is none."""
        return None

    def cost(self, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
        arguments = [float(getattr(self, name)) for name in self.parameters()]
        rdp, mu_squared = self.rdp(orders, *arguments), float(self.mu_squared(*arguments))
        if (bits := self._bits(*arguments)) is None:
            return Cost(rdp, 0.0, mu_squared)
        weights, lighter = bit_weights(*bits, mu_squared)
        return Cost(rdp, 0.0, mu_squared, weights, float(lighter))


@dataclass(frozen=True, kw_only=True)
class _NoiseEvent(CurveEvent):
    """Noise of ``noise_multiplier`` sensitivities, which grow with the teachers of a unit."""

    noise_multiplier: float

    def _for_group_size(self, teachers: int) -> Event:
        return replace(self, noise_multiplier=self.noise_multiplier / teachers)


@dataclass(frozen=True, kw_only=True)
class GaussianEvent(_NoiseEvent):
    """Gaussian noise of ``noise_multiplier`` times the L2 sensitivity (Mironov (2017), Prop. 7).

    >>> relation = NeighboringRelation.REPLACE_RECORD
    >>> event = GaussianEvent(neighboring_relation=relation, noise_multiplier=2.0)
    >>> round(epsilon_of(event, count=1, delta=1e-6), 3), round(gaussian_epsilon(1e-6, 0.5), 3)
    (2.254, 2.254)

    Raises:
        ValueError: unless ``noise_multiplier > 0``.
    """

    rdp = staticmethod(gaussian_rdp)
    mu_squared = staticmethod(gaussian_mu_squared)

    def cost(self, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
        mu_squared = float(gaussian_mu_squared(self.noise_multiplier))
        with np.errstate(over="ignore"):
            return Cost(gaussian_rdp(orders, 1.0) * mu_squared, 0.0, mu_squared)


@dataclass(frozen=True, kw_only=True)
class GaussianThresholdEvent(_NoiseEvent):
    """One bit, at its exact cost: whether a statistic with Gaussian noise reaches a threshold.

    ``noise_multiplier`` is the standard deviation over the sensitivity of the statistic. The bit is
    a function of the noisy statistic, so it never costs more than a `GaussianEvent`.

    >>> relation = NeighboringRelation.REPLACE_RECORD
    >>> event = GaussianThresholdEvent(neighboring_relation=relation, noise_multiplier=20.0)
    >>> round(epsilon_of(event, count=100, delta=1e-6), 2)
    1.9
    """

    rdp = staticmethod(threshold_bit_rdp)
    mu_squared = staticmethod(gaussian_mu_squared)

    @staticmethod
    def _bits(noise_multiplier: float) -> tuple[Bits, float]:
        return TEST, 1 / noise_multiplier

    def pairs(self) -> Sequence[Pairs]:
        return [gaussian_bit_pairs(1 / self.noise_multiplier)]


@dataclass(frozen=True, kw_only=True)
class _RangeEvent(CurveEvent):
    """A release by choices of range ``eta``, which grows with the number of teachers."""

    eta: float

    def _for_group_size(self, teachers: int) -> Event:
        return replace(self, eta=self.eta * teachers)


@dataclass(frozen=True, kw_only=True)
class BoundedRangeEvent(_RangeEvent):
    """A choice of bounded range ``eta``, as by the exponential mechanism (Dong et al. (2020)).

    Gumbel noise of scale ``beta`` on scores that move within a window of width ``w`` gives ``eta =
    w / beta``.

    >>> relation = NeighboringRelation.REPLACE_RECORD
    >>> event = BoundedRangeEvent(neighboring_relation=relation, eta=0.1)
    >>> round(epsilon_of(event, count=50, delta=1e-6), 2)
    1.54
    """

    rdp = staticmethod(bounded_range_rdp)
    mu_squared = staticmethod(bounded_range_mu_squared)

    @staticmethod
    def _bits(eta: float) -> tuple[Bits, float]:
        return CHOICE, eta

    def pairs(self) -> Sequence[Pairs]:
        return [bounded_range_pairs(self.eta)]


@dataclass(frozen=True, kw_only=True)
class RootPeelingEvent(_RangeEvent):
    """``count`` choices of range ``eta``, or r < ``count`` of range ``eta sqrt(count / r)``.

    Earlier releases may decide r. Neither the curve nor the ``mu`` of fewer choices is larger. But
    fewer choices are wider, so that they do not count as bits among many.

    >>> relation = NeighboringRelation.REPLACE_RECORD
    >>> event = RootPeelingEvent(neighboring_relation=relation, eta=0.1, count=4)
    >>> round(epsilon_of(event, count=10, delta=1e-6), 2)
    1.45

    Raises:
        ValueError: unless ``eta > 0`` and ``count >= 1``.
    """

    count: int

    def __post_init__(self) -> None:
        require_count(1, count=self.count)
        super().__post_init__()

    @staticmethod
    def rdp(orders: FloatArray, eta: float, count: float) -> FloatArray:
        return count * bounded_range_rdp(orders, eta)

    @staticmethod
    def mu_squared(eta: float, count: float) -> FloatArray:
        return count * bounded_range_mu_squared(eta)


@dataclass(frozen=True, kw_only=True)
class PureDPEvent(CurveEvent):
    """Any ``epsilon``-DP release, by the curve of randomized response (Mironov (2017), Sec. IV).

    >>> relation = NeighboringRelation.REPLACE_RECORD
    >>> event = PureDPEvent(neighboring_relation=relation, epsilon=0.1)
    >>> round(epsilon_of(event, count=100, delta=1e-6), 2)  # by simple addition it would be 10
    4.77
    """

    epsilon: float

    rdp = staticmethod(pure_dp_rdp)
    mu_squared = staticmethod(pure_dp_mu_squared)

    @staticmethod
    def _bits(epsilon: float) -> tuple[Bits, float]:
        return CHOICE, 2 * epsilon

    def pairs(self) -> Sequence[Pairs]:
        return [randomized_response_pairs(self.epsilon)]

    def _for_group_size(self, teachers: int) -> Event:
        return replace(self, epsilon=self.epsilon * teachers)


@dataclass(frozen=True, kw_only=True)
class GaussianNoisyMaxEvent(_NoiseEvent):
    """The largest of ``num_candidates`` scores with Gaussian noise (`gaussian_noisy_max_rdp`).

    ``noise_multiplier`` is the standard deviation over the width of the window where the scores
    move together.

    >>> relation = NeighboringRelation.REPLACE_RECORD
    >>> event = GaussianNoisyMaxEvent(
    ...     neighboring_relation=relation, noise_multiplier=20.0, num_candidates=10
    ... )
    >>> round(epsilon_of(event, count=100, delta=1e-6), 2)
    3.75

    Raises:
        ValueError: unless ``noise_multiplier > 0``.
    """

    num_candidates: int

    rdp = staticmethod(gaussian_noisy_max_rdp)
    mu_squared = staticmethod(gaussian_noisy_max_mu_squared)

    def __post_init__(self) -> None:
        require_count(1, num_candidates=self.num_candidates)
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class StabilityTestEvent(Event):
    """A propose-test-release with Gaussian noise on a gap, at its exact cost.

    The test is Algorithm 2 of Zhu & Wang (2022). It passes with probability
    ``Phi((max(shift, q) - shift) / sigma - z)``, ``z = Phi^-1(1 - delta_test)``, for a gap of ``q``
    votes; ``shift`` is a setting of the mechanism. Under ``neighboring_relation`` the gap moves by
    at most ``window`` votes, and the released set differs between neighbors only while the gap is
    at most ``window``. Unless given, ``window`` is `NeighboringRelation.score_range`, which may
    differ from ``shift``. Gaps are multiples of 1/2. The narrower gap of two neighbors is at most
    ``num_teachers`` votes.

    This class owns the price of the test: `cost` and `pairs` follow from `mu`, `gap_window` and the
    fields. Mechanisms state no price of their own.

    >>> relation = NeighboringRelation.REPLACE_RECORD
    >>> event = StabilityTestEvent(
    ...     neighboring_relation=relation,
    ...     sigma=10.0,
    ...     delta_test=1e-9,
    ...     shift=2,
    ...     num_teachers=100,
    ... )
    >>> round(epsilon_of(event, count=10, delta=1e-6), 2)
    2.54
    """

    sigma: float
    delta_test: float
    shift: int
    num_teachers: int
    window: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(sigma=self.sigma)
        require_in_open_unit_interval(delta_test=self.delta_test)
        require_count(
            1, shift=self.shift, num_teachers=self.num_teachers, **given(window=self.window)
        )

    @property
    def gap_window(self) -> int:
        """The largest change of the gap between neighbors, in votes."""
        return self.neighboring_relation.score_range if self.window is None else self.window

    @property
    def mu(self) -> float:
        """The largest change of the gap between neighbors, in standard deviations of its noise."""
        return self.gap_window / self.sigma

    def cost(self, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
        """Return the cost on ``orders`` ``[K]``; cached, because the curve is slow to compute."""
        return _stability_cost(self, orders.tobytes())

    def pairs(self) -> Sequence[Pairs]:
        lowest = float(ndtri(self.delta_test))
        highest = lowest + max(0, self.num_teachers - self.shift) / self.sigma
        nearest = max(0.0, -highest - self.mu / 2)  # the middle between the two widest gaps
        reach = max(abs(lowest), abs(highest))
        return [gaussian_bit_pairs(self.mu, reach, nearest=nearest)]

    def _for_group_size(self, teachers: int) -> Event:
        # the widest gap that is not stable passes with the probability that becomes delta0
        return replace(self, window=self.gap_window * teachers)


@lru_cache(maxsize=4096)
def _stability_cost(event: StabilityTestEvent, orders: bytes) -> Cost:
    window = event.gap_window
    rdp = stability_test_rdp(
        np.frombuffer(orders),
        sigma=event.sigma,
        delta_test=event.delta_test,
        shift=event.shift,
        window=window,
        num_teachers=event.num_teachers,
    )
    # Two neighbors may hold different sets while the gap is at most `window`; the test passes such
    # a gap with probability Phi((window - shift) / sigma - z) at most, which is delta_test under
    # the mechanism's own relation.
    if window > event.shift:
        log_delta0 = float(log_ndtr((window - event.shift) / event.sigma + ndtri(event.delta_test)))
    else:
        log_delta0 = float(np.log(event.delta_test))
    # the released bit is the side of a threshold on which a Gaussian lies; its mean moves by `mu`
    mu_squared = float(gaussian_mu_squared(event.sigma / window))
    weights, lighter = bit_weights(TEST, event.mu, mu_squared)
    with np.errstate(divide="ignore"):  # a test that every gap passes costs all of delta
        log_survival = float(np.log1p(-np.exp(log_delta0)))
    return Cost(read_only(rdp), log_survival, mu_squared, weights, float(lighter))


@dataclass(frozen=True, kw_only=True)
class FailureEvent(Event):
    """A probability ``delta`` that the guarantee of the composed events fails. It costs only delta.

    ``tail`` and ``step`` determine it for units that reach more teachers: ``delta`` bounds the
    probability that noise of this tail exceeds a threshold, and each further teacher brings the
    threshold nearer by ``step`` scales of the noise. A ``constant`` failure has the same
    probability for all data. Without a tail nothing is known for two teachers.

    >>> relation = NeighboringRelation.REPLACE_RECORD
    >>> FailureEvent(neighboring_relation=relation, delta=1e-9).cost().delta0
    1e-09
    """

    delta: float
    tail: Literal["exponential", "constant"] | None = None
    step: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_in_open_unit_interval(delta=self.delta)
        require(
            self.tail in ("exponential", "constant", None),
            "tail exponential, constant or null",
            tail=self.tail,
        )
        require(
            (self.tail == "exponential") == (self.step is not None),
            "a tail with its step",
            tail=self.tail,
            step=self.step,
        )
        require_positive(**given(step=self.step))

    def cost(self, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
        """Return ``delta`` and a curve of zeros on ``orders`` ``[K]``."""
        return Cost(np.zeros(orders.shape), float(np.log1p(-self.delta)), 0.0)

    def pairs(self) -> Sequence[Pairs]:
        return []

    def _for_group_size(self, teachers: int) -> Event:
        if self.tail == "constant":
            return self
        if self.step is None:
            return super()._for_group_size(teachers)
        log_delta = math.log(self.delta) + (teachers - 1) * self.step
        certain = math.nextafter(1, 0)
        return replace(
            self, delta=certain if log_delta >= math.log(certain) else math.exp(log_delta)
        )


@dataclass(frozen=True, kw_only=True)
class RenyiCurveEvent(Event):
    """A release known by its curve ``rdp`` on ascending ``orders``, as from another library.

    Between two orders the chord of ``(alpha - 1) rdp(alpha)``, which is convex, bounds the curve
    from above. Below the first order the first value does; above the last one nothing is known.

    >>> relation = NeighboringRelation.REPLACE_RECORD
    >>> event = RenyiCurveEvent(
    ...     neighboring_relation=relation, orders=(2.0, 8.0, 32.0), rdp=(0.1, 0.4, 1.6)
    ... )
    >>> round(epsilon_of(event, count=1, delta=1e-6), 2)
    1.9
    """

    orders: tuple[float, ...]
    rdp: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("orders", "rdp"):
            values = getattr(self, name)
            require(
                isinstance(values, list | tuple) and values,
                f"{name} as a list of numbers",
                **{name: values},
            )
            object.__setattr__(self, name, tuple(values))
        sizes = {"orders": len(self.orders), "rdp": len(self.rdp)}
        require(sizes["orders"] == sizes["rdp"], "as many values as orders", **sizes)
        require_positive(**{f"orders[{i}] - 1": order - 1 for i, order in enumerate(self.orders)})
        require(
            all(a < b for a, b in pairwise(self.orders)), "ascending orders", orders=self.orders
        )
        for i, value in enumerate(self.rdp):
            require(0 <= value < float("inf"), f"finite rdp[{i}] >= 0", **{f"rdp[{i}]": value})

    def cost(self, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
        """Return a bound on the curve at ``orders`` ``[K]``, with no dominating Gaussian."""
        return Cost(renyi_curve_rdp(orders, self.orders, self.rdp), 0.0)
