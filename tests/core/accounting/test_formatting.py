"""Figures of guarantees as text: what they say, and which way they are rounded."""

import math

import pytest

from pate._core.accounting.cost import format_epsilon, format_guess


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1.0, 0.1), (0.0, 0.3), (0.2, 1e-6), (3.0, 0.5), (800.0, 0.9)]
)
def test_a_guess_is_right_as_often_as_both_errors_of_a_test_allow(
    epsilon: float, delta: float
) -> None:
    """The smaller of what epsilon with delta says, and of half the total variation beyond one
    half."""
    odds = math.exp(min(epsilon, 700.0))
    share = (odds + delta) / (odds + 1)
    for total_variation in (1.0, 0.9 * (2 * share - 1)):
        expected = 100 * min(share, (1 + total_variation) / 2)
        told = float(
            format_guess({"epsilon": epsilon, "delta": delta}, total_variation).removesuffix("%")
        )
        assert expected - 1e-9 <= told <= expected + 0.1
    assert format_guess({"epsilon": None, "delta": delta}) == "100.0%"


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
