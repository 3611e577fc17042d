"""Bounds enclose what they bound, and are as close to it as decimal numbers get."""

from decimal import Decimal, localcontext
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from pate._core.mechanisms.exact_choice import sum_of_exponentials
from pate._core.mechanisms.noise import (
    Interval,
    LazyReal,
    decimal_precision,
    enclose,
    exp_of,
    log_of,
    negative,
    product,
    total,
)


def is_tight(bounds: Interval, exact: tuple[mpmath.mpf, mpmath.mpf], *, digits: int) -> bool:
    """Whether bounds enclose what lies between two numbers, and exceed it by some units of the last
    digit only."""
    low, high = (mpmath.mpf(str(bound)) for bound in bounds)
    slack = 4 * mpmath.mpf(10) ** (1 - digits) * max(abs(low), abs(high))
    return bool(exact[0] - slack < low < exact[0] <= exact[1] < high < exact[1] + slack)


@pytest.mark.parametrize("prec", [6, 30])
def test_bounds_are_tight(prec: int) -> None:
    """On few digits, where a bound that is rounded the wrong way lies on the wrong side at once."""
    numbers = [
        Fraction(int(part), 2**20) for part in np.random.default_rng(6).integers(1, 2**20, 40)
    ]
    with localcontext(prec=prec), mpmath.workdps(60):
        for one, other in zip(numbers[::2], numbers[1::2], strict=True):
            first, second = (
                mpmath.mpf(number.numerator) / number.denominator for number in (one, other)
            )
            bounds = enclose(one), enclose(other)
            for interval, exact in (
                (bounds[0], first),
                (enclose(-one), -first),
                (negative(bounds[0]), -first),
                (total(*bounds), first + second),
                (product(*bounds), first * second),
                (exp_of(bounds[0]), mpmath.exp(first)),
                (exp_of(enclose(-one)), mpmath.exp(-first)),
                (log_of(bounds[0]), mpmath.log(first)),
            ):
                assert is_tight(interval, (exact, exact), digits=prec - 1)


def test_a_product_is_no_less_than_zero() -> None:
    """Of lower bounds that may lie below it, though no number does."""
    unsure, sure = (Decimal(-1), Decimal(3)), (Decimal(2), Decimal(5))
    for bounds in (product(unsure, sure), product(sure, unsure), product(unsure, unsure)):
        assert -1e-20 < bounds[0] <= 0 and 8 < bounds[1] < 16


def test_contexts_have_24_digits_to_spare() -> None:
    for length in (0, 53, 117, 1141):
        with decimal_precision(length) as context:
            assert 10**24 * 2**length <= 10**context.prec < 10 ** (24 + length // 3 + 1)
            assert Decimal(-(10**9)).exp() > 0  # which other contexts round to 0


def test_waits_are_bounded_by_those_of_the_ends_of_their_digits() -> None:
    tails = [
        LazyReal(int(digits), 20) for digits in np.random.default_rng(7).integers(1, 2**20 - 1, 40)
    ]
    with localcontext(prec=20), mpmath.workdps(45):
        for one, other in zip(tails[::2], tails[1::2], strict=True):
            least, most = (-mpmath.log(mpmath.mpf(one.digits + i) / 2**20) for i in (1, 0))
            assert is_tight(sum_of_exponentials([one]), (least, most), digits=19)
            low, high = (-mpmath.log(mpmath.mpf(other.digits + i) / 2**20) for i in (1, 0))
            assert is_tight(
                sum_of_exponentials([one, other]), (least + low, most + high), digits=19
            )
        assert sum_of_exponentials([tails[0], LazyReal(0, 20)])[1] == Decimal("Infinity")
        assert is_tight(
            tails[0].bounds,
            tuple(mpmath.mpf(tails[0].digits + i) / 2**20 for i in (0, 1)),
            digits=19,
        )
