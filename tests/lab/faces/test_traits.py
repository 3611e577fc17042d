"""Traits: how frequent attributes are, and which go together."""

import numpy as np
import pytest

from pate._core.validation import UInt8Array
from pate.lab.faces.canvas import FACE_ATTRIBUTES, Dice, Traits


@pytest.fixture(scope="module")
def attributes() -> UInt8Array:
    return Traits(Dice(np.random.default_rng(3), 5200)).attributes()


def _column(attributes: UInt8Array, name: str) -> UInt8Array:
    return attributes[:, FACE_ATTRIBUTES.index(name)]


def test_prevalence(attributes: UInt8Array) -> None:
    shares = dict(zip(FACE_ATTRIBUTES, attributes.mean(axis=0).tolist(), strict=True))
    assert not {name: share for name, share in shares.items() if not 0.08 <= share <= 0.85}


def test_positives_per_face(attributes: UInt8Array) -> None:
    assert 6 <= attributes.sum(axis=1).mean() <= 9


def test_exclusive_attributes(attributes: UInt8Array) -> None:
    colors = sum(
        _column(attributes, name).astype(int)
        for name in ("Black_Hair", "Blond_Hair", "Brown_Hair", "Gray_Hair")
    )
    bald = _column(attributes, "Bald")
    # A head has one hair color, and a bald one none.
    assert np.array_equal(colors, 1 - bald.astype(int))
    for name in ("Bangs", "Long_Hair", "Wearing_Hat"):
        assert not np.any(bald & _column(attributes, name))


@pytest.mark.parametrize(
    ("one", "other", "sign"),
    [
        ("Beard", "Male", 1),
        ("Mustache", "Male", 1),
        ("Bald", "Male", 1),
        ("Wearing_Necktie", "Male", 1),
        ("Bushy_Eyebrows", "Male", 1),
        ("Big_Nose", "Male", 1),
        ("Long_Hair", "Male", -1),
        ("Wearing_Lipstick", "Male", -1),
        ("Wearing_Earrings", "Male", -1),
        ("Heavy_Makeup", "Male", -1),
        ("Gray_Hair", "Young", -1),
        ("Bald", "Young", -1),
        ("Eyeglasses", "Young", -1),
        ("Mouth_Slightly_Open", "Smiling", 1),
        ("Heavy_Makeup", "Wearing_Lipstick", 1),
    ],
)
def test_correlations(attributes: UInt8Array, one: str, other: str, sign: int) -> None:
    correlation = np.corrcoef(_column(attributes, one), _column(attributes, other))[0, 1]
    assert sign * correlation > 0.08
