"""Bounds on real numbers: pairs of decimal numbers, each of which is rounded outwards."""

from contextlib import AbstractContextManager
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction
from typing import TypeAlias

Interval: TypeAlias = tuple[Decimal, Decimal]


def decimal_precision(length: int) -> AbstractContextManager[Context]:
    """Return a context with 24 decimal digits more than ``length`` binary digits need."""
    return localcontext(Emax=MAX_EMAX, Emin=MIN_EMIN, prec=length // 3 + 24)


def enclose(number: Fraction) -> Interval:
    """Return bounds on a rational number."""
    quotient = Decimal(number.numerator) / Decimal(number.denominator)
    return quotient.next_minus(), quotient.next_plus()


def negative(interval: Interval) -> Interval:
    """Return bounds on minus a number."""
    return -interval[1], -interval[0]


def total(first: Interval, second: Interval) -> Interval:
    """Return bounds on a sum."""
    return (first[0] + second[0]).next_minus(), (first[1] + second[1]).next_plus()


def product(first: Interval, second: Interval) -> Interval:
    """Return bounds on a product of numbers >= 0; lower bounds may be negative."""
    low = max(first[0], Decimal(0)) * max(second[0], Decimal(0))
    return low.next_minus(), (first[1] * second[1]).next_plus()


def exp_of(exponent: Interval) -> Interval:
    """Return bounds on the exponential function, which is rounded correctly."""
    return exponent[0].exp().next_minus(), exponent[1].exp().next_plus()


def log_of(number: Interval) -> Interval:
    """Return bounds on the logarithm, which is rounded correctly."""
    return number[0].ln().next_minus(), number[1].ln().next_plus()
