"""Masks that cancel in the sum of all silos, and the sum of the silos that did not drop out.

All modulo 2^64.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from Crypto.Cipher import ChaCha20
from numpy.typing import NDArray

from pate._silos.secrets import PublicKeys, Secrets, agreed_seed, derived

WordArray = NDArray[np.uint64]
_ITEM = 8  # bytes of a word


def mask_of(seed: bytes, size: int) -> WordArray:
    """Return the mask ``[size]`` of a seed for one sum, by ChaCha20 (RFC 8439)."""
    # a nonce of 12 bytes chooses the cipher of the RFC; one of 8 chooses the older one
    stream = ChaCha20.new(key=seed, nonce=bytes(12)).encrypt(bytes(_ITEM * size))
    return np.frombuffer(stream, dtype="<u8").astype(np.uint64, copy=False)


def masked(summand: WordArray, secrets: Secrets, roster: Mapping[str, PublicKeys]) -> WordArray:
    """Return the summand ``[n]`` of a silo under its own mask and one for each other silo.

    To parties that lack one of the seeds it is uniform, whatever the summand. No two summands may
    be masked by the same secrets: their difference would show.
    """
    total = summand + _own_mask(secrets.own_mask_seed, summand.size)
    for other, keys in roster.items():
        if other != secrets.name:
            total += _pair_mask(
                secrets.pairs_key, secrets.name, other, keys, secrets.context, summand.size
            )
    return total


def unmasked(
    vectors: Iterable[WordArray],
    *,
    own_mask_seeds: Iterable[bytes],
    pairs_keys: Mapping[str, bytes],
    roster: Mapping[str, PublicKeys],
    context: str,
) -> WordArray:
    """Return the sum ``[n]`` of masked summands.

    Args:
        vectors: ``[n]`` of each silo that is in the sum, read one at a time.
        own_mask_seeds: rebuilt, of each silo in the sum.
        pairs_keys: rebuilt, by the names of the silos of the roster that are not in the sum.
        roster: the keys of all silos.
        context: the digest of the invitation.
    """
    rest = iter(vectors)
    total = next(rest).copy()
    for vector in rest:
        total += vector
    for seed in own_mask_seeds:
        total -= _own_mask(seed, total.size)
    for dropped, key in pairs_keys.items():
        for other, keys in roster.items():
            if other not in pairs_keys:
                # the mask that the silo that dropped out would have added
                total += _pair_mask(key, dropped, other, keys, context, total.size)
    return total


def _own_mask(own_mask_seed: bytes, size: int) -> WordArray:
    return mask_of(derived(own_mask_seed, "own mask"), size)


def _pair_mask(
    pairs_key: bytes, name: str, other: str, keys: PublicKeys, context: str, size: int
) -> WordArray:
    """Return the mask that ``name`` adds for the pair; the other adds its negative."""
    mask = mask_of(agreed_seed(pairs_key, name, other, keys, context), size)
    return mask if name < other else np.negative(mask)
