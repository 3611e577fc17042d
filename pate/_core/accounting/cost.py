"""The cost of a release under a neighboring relation, and its conversion to (epsilon, delta).

**Many bits.** Many choices and tests in Gaussian differential privacy weigh less than the sum of
single ones. One choice or one test is a bit. Its trade-off curve touches the curve of a Gaussian
mechanism at a kink. The joint trade-off curve of many bits is smooth, and lies above the one of all
these Gaussian mechanisms together. Let ``G_r`` be a Gaussian mechanism of ``mu^2 = r``. For each
kind of bit there are numbers ``weight`` and ``width`` with which

    any bit of the kind and G_r together are at most G_(r + s),   s = weight (1 + excess(r /
    width)),

and ``excess(v) = min(pi / 2 - 1, 1 / (1 + min(v, 512)))``. So releases of total weight ``t`` are,
in any order and chosen adaptively, at most the Gaussian mechanism of ``mu^2 = t`` plus the sum of
their excesses, if no width exceeds a common one. An event of larger width is charged its own
``mu^2``. Proof: docs/appendix/costs.md; tests compute bounds for all pairs of laws of a kind.

**Gaussian mechanisms** with noise multipliers ``s_i`` compose, even adaptively, to one of ``mu =
sqrt(sum 1 / s_i^2)`` (Dong, Roth & Su (2022), Corollary 3.3). Its delta at epsilon is

    Phi(mu / 2 - epsilon / mu) - exp(epsilon) Phi(-mu / 2 - epsilon / mu)

(Balle & Wang (2018), Theorem 8).

At the end stand searches for the least number with a property, and figures as texts, never rounded
down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import ROUND_CEILING, Context, Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

from pate._core.validation import (
    FloatArray,
    read_only,
    require,
    require_in_open_unit_interval,
)


class NeighboringRelation(StrEnum):
    """The pairs of data sets (neighbors) that the guarantee makes hard to tell apart.

    Under both relations the number of teachers is nominal: a configured and published constant,
    never measured. A teacher that takes no part casts a row of zeros.

    ``REPLACE_RECORD``: one training record (or one group of records, if teachers are assigned by
    group) is added, removed or altered. One teacher may then vote differently in any way, and each
    vote count moves by -1, 0 or 1. An altered record keeps its id (or group), by which its teacher
    is found. To exchange a record for one of another id is to remove one and to add one: two
    teachers may vote differently, and every window is twice as wide (`Event.for_group_size`). A
    Gaussian release of epsilon 1.99 at delta 1e-5 then has epsilon 4.38.

    ``ADD_REMOVE_TEACHER``: one teacher takes part or does not. Every vote count moves by 0 or 1,
    all in the same direction; thresholds and sentinels that depend on the number of teachers do not
    move.
    """

    REPLACE_RECORD = "replace_record"
    ADD_REMOVE_TEACHER = "add_remove_teacher"

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    @property
    def score_range(self) -> int:
        """Width of the window within which the counts of one query move together, in votes.

        Sorted counts move within the same window, so a gap between two of them moves by at most
        this much in either direction (a window twice as wide).
        """
        return 2 if self is NeighboringRelation.REPLACE_RECORD else 1


WIDTHS: FloatArray = read_only(2.0 ** np.arange(-40, 0.01, 0.25))
"""The common widths ``[W]`` of sums of weights."""

FIRST_EXCESS = math.pi / 2 - 1
"""The excess of a bit without any Gaussian mechanism next to it: one bit, not the limit of many."""
EXCESS_LIMIT = 512.0
"""The number of widths with excesses that are known to fall."""
LOSS_LIMIT = 8.0
"""Bits and Gaussians are compared up to this number of standard deviations of a loss."""
_WEIGHT = 5.0  # above every weight, in widths: `Bits.width` is at least a fifth of the weight
_ROUNDING = 1 + 1e-12  # above the rounding errors of a weight, and of sums in any order


class Bits(NamedTuple):
    """A kind of bit with a parameter ``scale``: its weight is about ``weight * scale^2``.

    Attributes:
        weight: the weight of a bit of ``scale`` 1, apart from what grows with the scale.
        width: its width in weights.
        largest: the largest scale.
    """

    weight: float
    width: float
    largest: float


CHOICE = Bits(weight=1.002 / 4, width=0.2, largest=1.0)
"""Choices with a loss of range ``scale``. A pure ``epsilon`` is one of range ``2 epsilon``."""
TEST = Bits(weight=1.005 * 2 / math.pi, width=3.2, largest=0.25)
"""The side of a threshold on which a standard normal falls when its mean moves by ``scale``."""


def bit_weights(bits: Bits, scale: float, mu_squared: float) -> tuple[FloatArray, bool]:
    """Return the weights ``[W]`` of a bit at all `WIDTHS`, and whether one is below ``mu^2``.

    Args:
        bits: its kind.
        scale: its scale.
        mu_squared: the charge of the bit without others.
    """
    plain = bits.weight * min(scale, bits.largest) ** 2
    # s exp(s / 4) for s of weight pi / 2 at most: the smallest root of w = plain exp(pi w / 8)
    weight = plain
    for _ in range(40):
        weight = plain * math.exp(math.pi / 8 * weight)
    lighter = scale <= bits.largest and weight * _ROUNDING < mu_squared
    fits = (bits.width * weight <= WIDTHS) & lighter
    return np.where(fits, weight * _ROUNDING, mu_squared), lighter


def many_bits_mu_squared(weights: FloatArray, widths: FloatArray = WIDTHS) -> FloatArray:
    """Return the ``mu^2`` of total ``weights`` ``[W]`` at ``widths`` ``[W]``, with all excesses."""
    first = _WEIGHT * widths
    beyond = np.maximum(weights - first, 0.0) / widths
    near, far = np.minimum(beyond, EXCESS_LIMIT), np.maximum(beyond - EXCESS_LIMIT, 0.0)
    excess = FIRST_EXCESS * np.minimum(weights, first) + widths * (
        np.log1p(near) + far / (1 + EXCESS_LIMIT)
    )
    return np.asarray((weights + excess) * _ROUNDING, dtype=np.float64)


def lost_delta(rounds: float, mu_squared: float) -> float:
    """Bound the delta of losses beyond `LOSS_LIMIT` in ``rounds`` bits of total ``mu_squared``."""
    return 2 * rounds * float(ndtr((mu_squared + 1) ** 0.5 / 2 - LOSS_LIMIT)) if rounds else 0.0


class _Orders(np.ndarray[Any, Any]):
    """Orders that signatures show by their name, in place of 257 numbers."""

    def __repr__(self) -> str:
        return "DEFAULT_ORDERS" if self is DEFAULT_ORDERS else super().__repr__()


DEFAULT_ORDERS: FloatArray = read_only(
    np.append(1 + np.geomspace(1e-2, 1e5, 256), 1e9).view(_Orders)
)
"""Renyi orders ``[257]`` for curves: within 0.05% of the best order for rho-zCDP, rho 1e-6 to 1e3.

The last one stands for pure DP: at it the conversion adds next to nothing.
"""


class Cost(NamedTuple):
    """The cost of one or more releases. Each part adds up under adaptive composition.

    ``a + b`` is the cost of both, ``a * n`` the cost of n such releases.

    Attributes:
        rdp: the Renyi-DP curve on a grid of orders, ``[K]``.
        log_survival: ``log(1 - delta0)``, where delta0 is the probability that the curve leaves
            out: the release is delta0-approximate RDP.
        mu_squared: the square of the smallest known ``mu`` for which the release, apart from
            delta0, is ``mu``-GDP (Dong, Roth & Su (2022)); infinite if none is known.
        weights: the same for releases among many, at each of the widths ``[W]`` that these may
            have; ``mu_squared`` at all of them if None (docs/appendix/costs.md, "Many bits").
        rounds: the number of releases with a weight less than their ``mu_squared``.
    """

    rdp: FloatArray
    log_survival: float
    mu_squared: float = math.inf
    weights: FloatArray | None = None
    rounds: float = 0.0

    @classmethod
    def nothing(cls, orders: FloatArray) -> Cost:
        """Return the zero cost of no release on ``orders`` ``[K]``."""
        return cls(np.zeros(orders.shape), 0.0, 0.0)

    def __add__(self, other: Cost) -> Cost:  # type: ignore[override]
        """Return the cost of both together."""
        plain = self.weights is None and other.weights is None
        return Cost(
            self.rdp + other.rdp,
            self.log_survival + other.log_survival,
            self.mu_squared + other.mu_squared,
            None if plain else self.narrow_weights + other.narrow_weights,
            self.rounds + other.rounds,
        )

    def __mul__(self, count: float) -> Cost:  # type: ignore[override]
        """Return the cost of ``count`` such releases."""
        if count == 0:
            return Cost(np.zeros(self.rdp.shape), 0.0, 0.0)
        return Cost(
            self.rdp * count,
            self.log_survival * count,
            self.mu_squared * count,
            None if self.weights is None else self.weights * count,
            self.rounds * count,
        )

    def is_within(self, other: Cost) -> bool:
        """Return whether no part is larger than that of ``other``, but for rounding."""
        return (
            bool((self.rdp <= other.rdp * _ROUNDING).all())
            and self.log_survival >= other.log_survival * _ROUNDING
            and self.mu_squared <= other.mu_squared * _ROUNDING
            and bool((self.narrow_weights <= other.narrow_weights * _ROUNDING).all())
            and self.rounds <= other.rounds * _ROUNDING
        )

    @property
    def narrow_weights(self) -> FloatArray:
        """The `weights` ``[W]``, filled in with `mu_squared` if there are none."""
        return np.full(WIDTHS.shape, self.mu_squared) if self.weights is None else self.weights

    @property
    def delta0(self) -> float:
        """The probability that the curve leaves out."""
        return float(0.0 - np.expm1(self.log_survival))


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


def gaussian_log_delta(epsilon: float, mu: float) -> float:
    """Return ``log(delta)`` at ``epsilon >= 0`` of a Gaussian mechanism of ``mu > 0``."""
    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if near < -1:
        # Phi(-near) is above 0.8, so the difference keeps its digits unless it is nearly 1 - 1;
        # exp(epsilon) phi(far) = phi(near)
        kept = float(log_ndtr(-near))
        lost = math.log(_mills(far)) - near * near / 2 - math.log(2 * math.pi) / 2 - kept
        return kept + math.log(-math.expm1(lost))
    if near == math.inf:
        return -near
    # exp(epsilon) phi(far) = phi(near), which leaves a difference of Mills ratios m, m' = x m - 1
    if mu > 1:
        mills = _mills(near) - _mills(far)
    else:
        at = near + mu * (_NODES + 1) / 2
        mills = mu / 2 * float(_WEIGHTS @ _fall(at))
    mills = max(mills, 5e-324)  # the smallest float
    return -near * near / 2 - math.log(2 * math.pi) / 2 + math.log(mills)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return delta at ``epsilon >= 0`` of Gaussian mechanisms composed to ``mu >= 0``."""
    if mu == 0 or epsilon == math.inf:
        return 0.0
    return 1.0 if mu == math.inf else math.exp(gaussian_log_delta(epsilon, mu))


def gaussian_epsilon(delta: float, mu: float) -> float:
    """Return epsilon at ``delta`` of Gaussians composed to ``mu >= 0``, to 1e-12, rounded up.

    >>> round(gaussian_epsilon(1e-6, 0.5), 3)
    2.254

    Returns:
        epsilon, at least 0.

    Raises:
        ValueError: unless ``0 < delta < 1`` and ``mu >= 0``.
    """
    require_in_open_unit_interval(delta=delta)
    require(mu >= 0, "mu >= 0", mu=mu)
    if mu == 0 or mu == math.inf:
        return mu
    log_delta = math.log(delta)
    if gaussian_log_delta(0.0, mu) <= log_delta:
        return 0.0
    # the conversion of zCDP is an upper bound, and never tight (Bun & Steinke (2016), Proposition
    # 1.3)
    above = mu * mu / 2 + mu * math.sqrt(-2 * log_delta)
    if mu > 1e13:
        return above * (1 + 1e-15)  # more than the exact epsilon by a relative 20 / mu at most
    return smallest_where(lambda epsilon: gaussian_log_delta(epsilon, mu) <= log_delta, 0.0, above)


@lru_cache(maxsize=256)
def largest_mu(epsilon: float, delta: float) -> float:
    """Return the largest ``mu`` of (``epsilon``, ``delta``)-DP Gaussians, rounded down."""
    log_delta = math.log(delta)

    def holds(inverse: float) -> bool:
        return gaussian_log_delta(epsilon, 1 / inverse) <= log_delta

    # delta falls with 1 / mu: bisect for the smallest 1 / mu at which it is small enough
    low, high = 1.0, 1.0
    while holds(low):
        low, high = low / 2, low
    while not holds(high):
        low, high = high, high * 2
    return 1 / smallest_where(holds, low, high)


def _mills(x: float) -> float:
    return math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))


def _fall(x: FloatArray) -> FloatArray:
    """Return ``1 - x m(x)``, minus the slope of the Mills ratio; a series for large ``x``."""
    direct: FloatArray = 1 - x * np.sqrt(np.pi / 2) * erfcx(x / np.sqrt(2))
    if x.max() <= 12:
        return direct
    inverse = 1 / np.maximum(x, 1.0) ** 2
    terms, series = inverse, inverse.copy()
    for n in range(1, 9):
        terms = terms * -(2 * n + 1) * inverse
        series += terms
    return np.asarray(np.where(x > 12, series, direct), dtype=np.float64)


def convert(cost: Cost, orders: FloatArray, *, delta: float) -> FloatArray:
    """Return the epsilons ``[K]`` at ``delta`` by the curve of ``cost`` on ``orders`` ``[K]``."""
    rest = remaining_delta(delta, cost.log_survival)
    if rest <= 0:
        return np.full(orders.shape, np.inf)
    return np.maximum(cost.rdp + conversion_overhead(orders, rest), 0.0)


def conversion_overhead(orders: FloatArray, delta: float | FloatArray) -> FloatArray:
    """Return the overhead of the conversion to ``delta`` (broadcast) at ``orders`` ``[K]``.

    It is Proposition 12 of Canonne, Kamath & Steinke (2020).
    """
    return np.asarray(
        np.log1p(-1 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1), dtype=np.float64
    )


def remaining_delta(delta: float, log_survival: float) -> float:
    """Return ``(delta - delta0) / (1 - delta0)``, the rest for the curve; at most 0 if none."""
    delta0 = -math.expm1(log_survival)
    # a difference of nearly equal numbers is rounded down
    difference = delta - delta0 - 4 * np.finfo(np.float64).eps * delta0
    return difference / (1 - delta0) if difference > 0 else difference


def smallest_where(
    holds: Callable[[float], bool], low: float, high: float, *, tolerance: float = 1e-13
) -> float:
    """Return the smallest x in ``low..high`` where ``holds(x)``, which turns true as x grows.

    The condition is assumed to hold at ``high``. The result is never too small, and too large by a
    relative ``tolerance`` at most.
    """
    width = high - low
    while high - low > tolerance * min(width, max(abs(low), abs(high))):
        middle = low + (high - low) / 2  # the sum of both ends could overflow
        if not low < middle < high:
            break  # no float lies between them
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def largest_count_where(holds: Callable[[int], bool], *, limit: int = 2**53) -> int:
    """Return the largest n in ``0..limit`` where ``holds(n)``, which turns false as n grows."""
    low, high = 0, 1  # doubled until the condition fails, then bisected
    while high <= limit and holds(high):
        low, high = high, 2 * high
    if high > limit:
        return low if not holds(limit) else limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


_LARGE_EPSILON = 10
_DIGITS = Context(prec=40)
_LONG_EPSILON = 1e15  # whose digits before the point are written as a power of ten


def format_epsilon(epsilon: float | None, digits: int = 3) -> str:
    """Return epsilon with ``digits`` digits after the point, rounded up, or ``unbounded``.

    >>> format_epsilon(8.02042), format_epsilon(0.0004), format_epsilon(None)
    ('8.021', '0.001', 'unbounded')
    >>> format_epsilon(5e40)
    '5.000e+40'
    """
    if epsilon is None or math.isinf(epsilon):
        return "unbounded"
    exact = Decimal(repr(float(epsilon)))
    if epsilon >= _LONG_EPSILON:
        return f"{Context(prec=digits + 1, rounding=ROUND_CEILING).plus(exact):.{digits}e}"
    unit = Decimal(1).scaleb(-digits)
    return f"{exact.quantize(unit, rounding=ROUND_CEILING, context=_DIGITS):f}"


def format_exact(value: float) -> str:
    """Return a number, such as a delta, with all of its digits.

    >>> format_exact(1e-6), format_exact(1.0000004e-6), format_exact(8.0)
    ('1e-06', '1.0000004e-06', '8')
    """
    return repr(float(value)).removesuffix(".0")


def explain_epsilon(epsilon: float | None) -> str | None:
    """Return a sentence on the weak protection of an epsilon above 10. None of smaller ones.

    Of two neighbors, each as likely, a guess is right with probability `e^epsilon / (1 +
    e^epsilon)` at most, as in `format_guess`, where the small delta is left out.

    >>> explain_epsilon(8.0)
    >>> explain_epsilon(10.5)
    'Above 10 an epsilon promises little: a guess between two neighbors may be right in all but 1 of
    36317 cases.'
    """
    if epsilon is not None and epsilon <= _LARGE_EPSILON:
        return None
    right = "in all cases"
    if epsilon is not None and epsilon < 700:  # beyond it floats end
        cases = math.ceil(math.exp(epsilon)) + 1
        right = f"in all but 1 of {cases if cases < 1e6 else f'{cases:.1e}'} cases"
    return (
        f"Above 10 an epsilon promises little: a guess between two neighbors may be right {right}."
    )


def format_guess(guarantee: Mapping[str, Any]) -> str:
    """Return the largest success rate, in percent, of a guess between two equally likely neighbors.

    ``epsilon`` and ``delta`` bound it by `(e^epsilon + delta) / (e^epsilon + 1)`, from the bounds
    of Kairouz, Oh & Viswanath (2015) on both errors of a test. It is rounded up.

    >>> format_guess({"epsilon": 1.0, "delta": 1e-6})
    '73.2%'
    """
    epsilon = guarantee["epsilon"]
    decay = 0.0 if epsilon is None else math.exp(-epsilon)
    share = (1.0 + guarantee["delta"] * decay) / (1.0 + decay)
    return f"{format_epsilon(100 * share, 1)}%"
