"""Shares of a secret that anyone can check against commitments (Feldman (1987), on P-256).

A secret is the value at 0 of a polynomial modulo the order of the group, a share its value at the
place of its holder. The dealer publishes the multiples of the group's generator by all
coefficients. These bind the dealer, and hide the secret as long as discrete logarithms are hard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from Crypto.PublicKey import ECC
from Crypto.PublicKey.ECC import EccKey

from pate._validation import require

SCALAR_BYTES = 32
CURVE = "P-256"
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of the group (FIPS 186-4, D.1.2.3)


def scalar(entropy: bytes) -> bytes:
    """Return a number in ``1..order - 1`` from at least `SCALAR_BYTES` + 16 uniform bytes."""
    return _packed(int.from_bytes(entropy, "big") % (_ORDER - 1) + 1)


def commitment(secret: bytes) -> bytes:
    """Return the point that commits to a secret: the public key of the secret as a private key."""
    point: bytes = private_key(secret).public_key().export_key(format="SEC1")
    return point


def share(coefficients: Sequence[bytes], place: int) -> bytes:
    """Return the share at ``place``, from 0 on; the first coefficient is the secret."""
    total = 0
    for coefficient in reversed(coefficients):
        total = (total * (place + 1) + int.from_bytes(coefficient, "big")) % _ORDER
    return _packed(total)


def is_share(value: bytes, place: int, commitments: Sequence[bytes]) -> bool:
    """Whether ``value`` is the share at ``place`` under the dealer's ``commitments``."""
    number = int.from_bytes(value, "big")
    if len(value) != SCALAR_BYTES or not 0 < number < _ORDER:
        return False
    expected = public_key(commitments[-1]).pointQ
    for each in reversed(commitments[:-1]):
        expected = _times(expected, place + 1) + public_key(each).pointQ
    return bool(private_key(value).pointQ == expected)


def rebuilt(shares: Mapping[int, bytes]) -> bytes:
    """Return the secret from as many ``shares``, by the place of their holder, as it needs."""
    total = 0
    for place, value in shares.items():
        above, below = 1, 1
        for other in shares:
            if other != place:
                above = above * (other + 1) % _ORDER
                below = below * (other - place) % _ORDER
        total += int.from_bytes(value, "big") * above * pow(below, -1, _ORDER)
    return _packed(total % _ORDER)


@lru_cache(maxsize=2**15)
def public_key(point: bytes) -> EccKey:
    """Return the public key at a point.

    Raises ``ValueError`` unless it is one of the group, and not its zero.
    """
    require(point[:1] == b"\4", "a point of P-256", bytes=len(point))
    key = ECC.import_key(point, curve_name=CURVE)
    require(not key.pointQ.is_point_at_infinity(), "a point other than zero", bytes=len(point))
    return key


def private_key(secret: bytes) -> EccKey:
    """Return a secret as a private key. Raises ``ValueError`` if it is none."""
    return ECC.construct(curve=CURVE, d=int.from_bytes(secret, "big"))


def _times(point: Any, factor: int) -> Any:
    """Return a point times a small factor, by a few additions."""
    total = point
    for bit in bin(factor)[3:]:
        total = total + total
        if bit == "1":
            total = total + point
    return total


def _packed(number: int) -> bytes:
    return number.to_bytes(SCALAR_BYTES, "big")
