"""The base of all contracts: incomplete test classes are refused, and failures are explained."""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Callable
from typing import Any

import pytest

from pate._validation import FloatArray


class Contract(ABC):  # noqa: B024
    """A class of tests to inherit, under a name that begins with ``Test``.

    Raises:
        TypeError: where such a class does not define all that is abstract, since pytest would pass
            over it in silence.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        named = {name: getattr(cls, name, None) for name in dir(cls)}
        missing = [
            name for name, member in named.items() if getattr(member, "__isabstractmethod__", False)
        ]
        if cls.__name__.startswith("Test") and missing:
            raise TypeError(f"Expected {cls.__name__} to define {', '.join(missing)}")


def assert_refused(
    make: Callable[[], object], arguments: object, pattern: str = r"Expected [^\n]*"
) -> None:
    """Assert that ``make`` raises a one-line ``ValueError``, because of its ``arguments``."""
    with pytest.raises(ValueError) as raised:
        pytest.fail(f"Expected {arguments} to be refused with a ValueError, got {make()}")
    assert re.fullmatch(pattern, str(raised.value)), (
        f"Expected one line on {arguments}, got: {raised.value}"
    )


def assert_drawn_by_law(p_value: float, sampler: object) -> None:
    """Assert that a test of draws against their law does not refute it."""
    assert p_value > 1e-4, (
        f"Expected draws of {sampler} that follow the law of the test class, got p = {p_value:.1e}"
    )


def assert_noise_matters(p_value: float, sampler: object) -> None:
    """Assert that draws with a fifth less noise are found to differ from the law."""
    assert p_value < 1e-6, (
        f"Expected draws of {sampler} with 20% less noise to differ, got p = {p_value:.1e}:"
        " noise_parameters names all scales of noise, and the grid has rows that noise changes"
    )


def assert_paid(worst: FloatArray, rdp: FloatArray, event: object, tolerance: float = 1e-6) -> None:
    """Assert that the divergences of all neighbors are within the curve of the event."""
    assert (worst <= rdp * (1 + tolerance) + 1e-9).all(), (
        f"Expected an event that covers all neighbors, got {event}: some differ"
        f" {(worst / rdp).max():.3g} times as much"
    )


def assert_gaussian(beyond: float, event: object, tolerance: float = 0.0) -> None:
    """Assert that no neighbors exceed the Gaussian of the event's ``mu``, and its delta0."""
    assert beyond <= tolerance + 1e-11, (
        f"Expected an event whose mu covers all neighbors, got {event}: some differ"
        f" with a delta {beyond:.3g} too large"
    )


def assert_tight(worst: FloatArray, rdp: FloatArray, loose_because: str) -> None:
    """Assert that some divergence comes within 10% of the curve, unless a reason says why not."""
    reached = float((worst / rdp).max())
    expected = (
        f"no neighbors closer to it, since {loose_because!r}"
        if loose_because
        else "neighbors within 10% of it"
    )
    advice = "" if loose_because else ". It costs more than need be, or `loose_because` says why"
    assert (reached < 0.9) == bool(loose_because), (
        f"Expected {expected}, got {100 * reached:.0f}% of the curve{advice}"
    )
