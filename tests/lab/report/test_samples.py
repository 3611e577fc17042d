"""Samples as pictures or as rows of numbers."""

import numpy as np
import pytest

from pate._labeling.data.records import ArrayFeatures
from pate._labeling.data.tables import ColumnEncoding, NumberColumns
from pate.lab.report.report import _bytes_of, _texts


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


def test_values_have_names() -> None:
    """Those of columns, with levels as words and dates as dates; numbers where there are none."""
    encoding = ColumnEncoding(
        ("age", "city", "note", "seen"),
        {"city": ("Bern", "Rome")},
        texts={"note": 2},
        formats={"seen": "iso_date"},
    )
    values = np.array([[8362.5, 0, 1, 0.5, 0.5, 366]], dtype=np.float32)
    named = [("age", "8,362.5"), ("city", "Rome"), ("seen", "2001-01-01")]
    assert _texts(NumberColumns(values, encoding), values[0]) == named
    many = np.arange(8, dtype=np.float32)
    texts = _texts(ArrayFeatures(many[None]), many)
    assert texts[:2] == [("[0]", "0"), ("[1]", "1")] and texts[6:] == [("...", "")]
