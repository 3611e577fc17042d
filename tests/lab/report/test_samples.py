"""Samples as pictures or as rows of numbers."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from pate.lab.report.page import _bytes_of, _encoded


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


def test_one_channel_is_grey() -> None:
    pixels = _bytes_of(np.random.default_rng(0).random((1, 1, 9, 8)).astype(np.float32))
    assert pixels.shape == (1, 9, 8, 3)
    assert (pixels == pixels[..., :1]).all()


def test_large_pictures_become_small() -> None:
    picture = Image.open(BytesIO(_encoded(np.zeros((500, 250, 3), dtype=np.uint8))))
    assert picture.size == (64, 128)
