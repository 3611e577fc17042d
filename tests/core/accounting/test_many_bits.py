"""Many bits against the numbers that bound them, enumerated adversaries, exact compositions and
attacks."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr, ndtr
from scipy.stats import binom

from pate._core.accounting import cost as many_bits
from pate._core.accounting.cost import (
    CHOICE,
    EXCESS_LIMIT,
    FIRST_EXCESS,
    LOSS_LIMIT,
    TEST,
    WIDTHS,
    Bits,
    gaussian_delta,
    many_bits_mu_squared,
)
from pate.accounting import (
    BoundedRangeEvent,
    Event,
    GaussianThresholdEvent,
    NeighboringRelation,
    PureDPEvent,
    RDPAccountant,
)
from tests.core.accounting.adversaries import enumerated

REPLACE = NeighboringRelation.REPLACE_RECORD
FloatArray = NDArray[np.float64]
Steps = Callable[[float, float], tuple[float, float]]
"""The largest steps up and down of the bits of a kind, of scale 1, between two parameters."""


def excess(v: float) -> float:
    return min(FIRST_EXCESS, 1 / (1 + min(v, EXCESS_LIMIT)))


def call(strike: FloatArray, variance: float) -> FloatArray:
    """``E[max(0, Z - strike)]`` for a normal Z of this variance, to the last digits where strikes
    are positive."""
    z = np.abs(strike) / math.sqrt(variance)
    value: FloatArray = np.exp(-(z**2) / 2) * (
        1 / math.sqrt(2 * math.pi) - z * erfcx(z / math.sqrt(2)) / 2
    )
    return math.sqrt(variance) * value + np.maximum(-strike, 0)


def covered(up: float, down: float, variance: float, added: float, scale_mu_squared: float) -> bool:
    """Whether a bit of these steps beside a Gaussian is below a Gaussian of ``added`` more, at all strikes in reach.

    Between nodes, chords bound the bit from above, and chords less a bound on the curvature the
    Gaussian from below.
    """
    top = LOSS_LIMIT * math.sqrt(variance + scale_mu_squared)
    strikes = np.linspace(0, top, math.ceil(top / (0.03 * math.sqrt(added))) + 1)
    step, total = float(strikes[1]), variance + added
    curvature = np.exp(-(np.maximum(strikes - step, 0) ** 2) / (2 * total)) / math.sqrt(
        2 * math.pi * total
    )
    most = call(strikes, total) - step**2 / 8 * curvature
    # strikes below 0 are those of the mirrored bit
    return all(
        bool(
            (
                (b * call(strikes - a, variance) + a * call(strikes + b, variance)) / (a + b)
                <= most
            ).all()
        )
        for a, b in ((up, down), (down, up))
    )


def choice_steps(low: float, high: float) -> tuple[float, float]:
    """A choice steps by ``b`` or by ``b - 1``."""
    return high, 1 - low


def threshold_steps(low: float, high: float, scale: float = TEST.largest) -> tuple[float, float]:
    """A bit of Phi(c + scale / 2) against Phi(c - scale / 2) has two losses, of which the first
    falls with c."""

    def step(c: float) -> float:
        return float(log_ndtr(c + scale / 2) - log_ndtr(c - scale / 2)) / scale

    return step(low), step(-high)


KINDS: dict[str, tuple[Bits, Steps, float, float]] = {
    "choice": (CHOICE, choice_steps, 0.0, 1.0),
    "test": (TEST, threshold_steps, -9.0, 9.0),
}


def certified(kind: str, v: float, further: float, *, weight: float = 1.0) -> bool:
    """Whether all bits of a kind, beside ``v`` widths of Gaussian, need no more than the excess at
    ``further``."""
    bits, steps, low, high = KINDS[kind]
    variance, added = v * bits.width * bits.weight, weight * bits.weight * (1 + excess(further))
    parts = [(low, high)]
    while parts:
        left, right = parts.pop()
        if not covered(*steps(left, right), variance, added, bits.weight * math.pi / 2):
            if right - left < 1e-4:
                return False
            parts += [(left, (left + right) / 2), ((left + right) / 2, right)]
    return True


def levels(ratio: float) -> list[float]:
    """Numbers of widths from where an excess falls below that of the first bit up to the
    furthest."""
    start = 1 / FIRST_EXCESS - 1
    number = math.ceil(math.log(EXCESS_LIMIT / start) / math.log(ratio))
    return [start * (EXCESS_LIMIT / start) ** (i / number) for i in range(number + 1)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_bit_beside_every_gaussian_is_bounded(kind: str) -> None:
    """What docs/appendix/costs.md rests on: more Gaussian never needs more, so that levels cover what
    lies between them."""
    places = levels(1.12)
    for v, further in zip(places, [*places[1:], places[-1]], strict=True):
        assert certified(kind, v, further), f"{kind} beside {v:.3g} widths"


@pytest.mark.parametrize("kind", KINDS)
def test_some_bits_are_bounded_and_less_weight_is_refused(kind: str) -> None:
    """Negative control: 1.5% less weight leaves bits that nothing covers."""
    assert certified(kind, 300.0, 330.0)
    assert not certified(kind, 300.0, 330.0, weight=0.985)


@pytest.mark.parametrize("bits", [CHOICE, TEST])
def test_the_first_bit_pays_for_itself(bits: Bits) -> None:
    """Without a Gaussian beside it, a bit needs its own mu^2: pi / 8 of the squared range, or the
    squared scale."""
    alone = {CHOICE: math.pi / 8, TEST: 1.0}[bits]
    assert bits.weight * (1 + FIRST_EXCESS) >= alone
    assert bits.weight < alone


def test_sums_of_excesses_bound_every_order_of_bits() -> None:
    generator = np.random.default_rng(3)
    for _ in range(200):
        width, number = float(generator.choice(WIDTHS[60:120])), int(generator.integers(1, 400))
        weights = width * generator.uniform(0.01, 5.0, size=number)
        total, own = 0.0, width * generator.uniform(0.1, 1.0, size=number)
        for weight, its_width in zip(weights, own, strict=True):
            total += weight * (1 + excess(total / its_width))
        (bound,) = many_bits_mu_squared(np.array([weights.sum()]), np.array([width]))
        assert total <= bound


def test_a_sum_of_weights_has_the_stated_mu_squared() -> None:
    """That of docs/appendix/costs.md, raised by a part in 10^12."""
    for width in (2.0**-20, 0.25):
        for number in (0.3, 4.999, 5.0, 5.5, 300.0, 516.9, 517.0, 518.0, 1500.0, 1e5):
            v = min(max(number - 5, 0), 512)
            excess = (math.pi / 2 - 1) * min(number, 5) + math.log1p(v) + max(number - 517, 0) / 513
            (found,) = many_bits_mu_squared(np.array([number * width]), np.array([width]))
            assert 0.9e-12 < found / ((number + excess) * width) - 1 < 1.1e-12
    assert WIDTHS[0] == 2.0**-40 and WIDTHS[-1] == 1 and WIDTHS.size == 161
    np.testing.assert_allclose(WIDTHS[1:] / WIDTHS[:-1], 2**0.25, rtol=1e-14)


def test_losses_beyond_reach_are_those_of_normal_laws() -> None:
    for rounds, mu_squared in ((1.0, 0.0), (600.0, 3.0), (1e6, 8.0)):
        tail = ndtr(math.sqrt(mu_squared + 1) / 2 - 8)
        assert many_bits.lost_delta(rounds, mu_squared) == pytest.approx(
            2 * rounds * tail, rel=1e-12, abs=0
        )
    assert many_bits.lost_delta(0.0, math.inf) == 0


# what is composed


def choices(eta: float, number: int) -> FloatArray:
    """Laws ``[M, 2 sides, 2 outcomes]`` of randomised response with losses ``t`` and ``t -
    eta``."""
    losses = np.linspace(0.02, 0.98, number) * eta
    q = np.expm1(losses - eta) / (np.exp(losses - eta) - np.exp(losses))
    p = q * np.exp(losses)
    return np.stack([np.stack([p, 1 - p], 1), np.stack([q, 1 - q], 1)], 1)


def bits(mu: float, number: int) -> FloatArray:
    """Laws of the bits of one Gaussian and of another ``mu`` away, in both directions."""
    a = np.linspace(-3, 3 - mu, number)
    a, b = np.concatenate([a, a + mu]), np.concatenate([a + mu, a])
    return np.stack([np.stack([ndtr(a), ndtr(-a)], 1), np.stack([ndtr(b), ndtr(-b)], 1)], 1)


def choice(eta: float) -> Event:
    return BoundedRangeEvent(eta=eta, neighboring_relation=REPLACE)


def threshold(mu: float) -> Event:
    return GaussianThresholdEvent(noise_multiplier=1 / mu, neighboring_relation=REPLACE)


def smoothed_delta(total: RDPAccountant, epsilon: float) -> float:
    """Delta of the smoothed Gaussian alone, whatever the curve says."""
    totals = many_bits_mu_squared(total.cost.narrow_weights)
    return many_bits.lost_delta(total.cost.rounds, float(totals.min())) + gaussian_delta(
        epsilon, math.sqrt(float(totals.min()))
    )


ORDERS = {
    "choices": [choices(0.6, 9)] * 4,
    "tests": [bits(0.25, 5)] * 4,
    "choices, then tests": [choices(0.6, 7)] * 2 + [bits(0.25, 4)] * 2,
    "tests, then choices": [bits(0.25, 4)] * 2 + [choices(0.6, 7)] * 2,
}


@pytest.mark.parametrize("order", ORDERS)
def test_no_adversary_of_four_rounds_exceeds_the_bound(order: str) -> None:
    rounds = ORDERS[order]
    total = RDPAccountant(relation=REPLACE)
    total.compose(choice(0.6), order.count("choices") * (4 // len(order.split(", "))))
    total.compose(threshold(0.25), order.count("tests") * (4 // len(order.split(", "))))
    assert total.cost.rounds == 4
    epsilons = np.array([0.0, 0.1, 0.3, 0.6, 1.0])
    best = enumerated(np.exp(epsilons), rounds)
    bounds = [smoothed_delta(total, float(epsilon)) for epsilon in epsilons]
    assert (best <= bounds).all() and best[0] > 0.8 * bounds[0]


@pytest.mark.parametrize(("epsilon", "count"), [(0.3, 12), (0.05, 600), (0.01, 20_000)])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_randomised_response_is_binomial(epsilon: float, count: int, delta: float) -> None:
    """The exact composition of pure releases; the bound is within 2% once there are hundreds."""
    total = RDPAccountant(relation=REPLACE).compose(
        PureDPEvent(epsilon=epsilon, neighboring_relation=REPLACE), count
    )
    losses = (2 * np.arange(count + 1) - count) * epsilon
    law = binom.pmf(np.arange(count + 1), count, 1 / (1 + math.exp(-epsilon)))
    bound = total.get_epsilon(delta=delta)
    assert float(law @ np.maximum(0, -np.expm1(bound - losses))) <= delta
    if count >= 600:
        assert float(law @ np.maximum(0, -np.expm1(0.98 * bound - losses))) > delta


def composed(laws: FloatArray, count: int, step: float) -> tuple[FloatArray, FloatArray]:
    """Losses and probabilities under P of ``count`` rounds of each law ``[M, 2, 2]``, losses
    rounded down."""
    size = 1 << 20
    spectrum, shift = np.ones(size, dtype=np.complex128), 0
    for p, q in laws:
        places = np.floor(np.log(p / q) / step).astype(np.int64)
        masses = np.zeros(size)
        np.add.at(masses, places - places.min(), p)
        spectrum, shift = spectrum * np.fft.fft(masses) ** count, shift + count * int(places.min())
    law: FloatArray = np.asarray(np.maximum(np.fft.ifft(spectrum).real, 0), dtype=np.float64)
    losses: FloatArray = np.asarray((np.arange(size) + shift) * step, dtype=np.float64)
    return losses, law


def test_a_played_strategy_comes_within_two_percent_of_the_published_query() -> None:
    """600 queries of StableTopK, played with the widest symmetric choice and the worst gap in every round.

    Its losses are rounded down, so that delta is bounded from below.
    """
    eta, mu = 4 / 39, 2 / 60
    total = RDPAccountant(relation=REPLACE).compose([choice(eta), threshold(mu)], 600)
    bound = total.get_epsilon(delta=4e-7)
    (response,) = choices(eta, 3)[1:2]
    bit = np.array([[ndtr(mu / 2), ndtr(-mu / 2)], [ndtr(-mu / 2), ndtr(mu / 2)]])
    losses, law = composed(np.stack([response, bit]), 600, 1e-4)
    assert float(law @ np.maximum(0, -np.expm1(bound - losses))) < 4e-7
    assert float(law @ np.maximum(0, -np.expm1(0.97 * bound - losses))) > 4e-7
    assert total.guarantee(delta=4e-7).width is not None


def test_what_lies_beyond_reach_is_part_of_delta() -> None:
    total = RDPAccountant(relation=REPLACE).compose(choice(0.002), 1_000_000)
    assert total.guarantee(delta=1e-6).width is not None
    lost = many_bits.lost_delta(1_000_000, 1.0)
    assert 0 < lost < 1e-5 and total.guarantee(delta=lost / 2).width is None
