"""Samples as pictures or as rows of numbers."""

import numpy as np
import pytest

from pate.lab.report.page import _bytes_of


@pytest.mark.parametrize(
    ("low", "high", "shades"),
    [
        (0.0, 1.0, (0, 255)),
        (0.0, 255.0, (0, 255)),
        (0.2, 0.4, (51, 102)),
        (-2.0, 2.0, (0, 255)),
        (0.0, 510.0, (0, 255)),
    ],
)
def test_shades(low: float, high: float, shades: tuple[int, int]) -> None:
    """Shares and bytes are taken as they are, other values are stretched."""
    values = np.linspace(low, high, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8).astype(np.float32)
    pixels = _bytes_of(values)
    assert pixels.shape == (2, 8, 8, 3)
    assert (pixels.min(), pixels.max()) == shades
