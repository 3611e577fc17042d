"""Figures of guarantees as text: what they say, and which way they are rounded."""

import math

from pate._core.accounting.cost import format_epsilon


def test_epsilons_have_the_digits_that_are_asked_for() -> None:
    assert [format_epsilon(1.23401, digits) for digits in (1, 2, 3, 4)] == [
        "1.3",
        "1.24",
        "1.235",
        "1.2341",
    ]
    assert format_epsilon(math.inf) == "unbounded" and format_epsilon(1e300) == "1.000e+300"
    assert format_epsilon(1e15) == "1.000e+15" and format_epsilon(1.00001e15, 4) == "1.0001e+15"
    assert format_epsilon(0.99e15) == "990000000000000.000"
