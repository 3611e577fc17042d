"""The secrets of one silo, its public keys, and shares from which other silos rebuild a secret.

A silo has four secrets, all derived from one root that is drawn once: the key by which shares are
sealed to it, its key for masks of pairs, the seed of a mask of its own, and the key of its noise.
Both secrets of masks are shared among all silos (`pate._silos.shares`). Of a silo in the sum, the
others rebuild the seed of its own mask; of one that dropped out, the key for pairs. They never
rebuild both of the same silo.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from Crypto.Cipher import ChaCha20_Poly1305
from Crypto.Hash import SHA512
from Crypto.Protocol.DH import import_x25519_public_key, key_agreement
from Crypto.Protocol.KDF import HKDF
from Crypto.PublicKey import ECC
from Crypto.Random import get_random_bytes

from pate._silos.shares import (
    SCALAR_BYTES,
    commitment,
    is_share,
    private_key,
    public_key,
    scalar,
    share,
)
from pate._validation import require

ROOT_BYTES = 32
_NONCE_BYTES, _TAG_BYTES = 24, 16
_OWN_MASK, _PAIRS = "own mask", "masks of pairs"


class PublicKeys(NamedTuple):
    """The public keys of a silo.

    Attributes:
        sealing: X25519 key by which shares are sealed to it.
        own_mask: commitments to the shares of the seed of its own mask, points of P-256; the first
            is to the seed.
        pairs: commitments to the shares of its key for pairs. The first is the public key by which
            it agrees with each other silo on the mask that both share.
    """

    sealing: bytes
    own_mask: tuple[bytes, ...]
    pairs: tuple[bytes, ...]

    def are_valid(self, threshold: int) -> bool:
        """Whether all keys are valid and the commitments are to secrets of ``threshold`` shares."""
        try:
            import_x25519_public_key(self.sealing)
            for point in (*self.own_mask, *self.pairs):
                public_key(point)
        except ValueError:
            return False
        return len(self.own_mask) == len(self.pairs) == threshold


class Share(NamedTuple):
    """A silo's shares of the two secrets of another, `SCALAR_BYTES` each.

    PRIVATE.
    """

    own_mask: bytes
    pairs: bytes


@dataclass(frozen=True)
class Secrets:
    """The secrets of a silo for one sum. PRIVATE.

    Attributes:
        root: `ROOT_BYTES` from the operating system's entropy, of no other sum.
        context: the digest of the only invitation that they serve for.
        name: the name of the silo.
        threshold: the number of shares that rebuild a secret.
    """

    root: bytes = field(repr=False)
    context: str
    name: str
    threshold: int

    @property
    def own_mask_seed(self) -> bytes:
        """The seed of its own mask, which no other silo shares."""
        return self._coefficients(_OWN_MASK)[0]

    @property
    def pairs_key(self) -> bytes:
        """Its private key for masks of pairs."""
        return self._coefficients(_PAIRS)[0]

    @property
    def noise_key(self) -> int:
        """The key of the generator of its noise."""
        return int.from_bytes(self._derived("noise", 32), "big")

    @cached_property
    def public(self) -> PublicKeys:
        """Its public keys, for all others."""
        own_mask, pairs = (
            tuple(map(commitment, self._coefficients(kind))) for kind in (_OWN_MASK, _PAIRS)
        )
        sealing: bytes = self._sealing.public_key().export_key(format="raw")
        return PublicKeys(sealing, own_mask, pairs)

    def deal(self, roster: Mapping[str, PublicKeys]) -> dict[str, bytes]:
        """Return sealed shares of both secrets, by silo of ``roster``, this one included.

        Any `threshold` of them rebuild the secrets; fewer carry no information on them.
        """
        own_mask, pairs = self._coefficients(_OWN_MASK), self._coefficients(_PAIRS)
        sealed = {}
        for place, recipient in enumerate(roster):
            key = self._share_key(self.name, recipient, roster[recipient])
            cipher = ChaCha20_Poly1305.new(key=key, nonce=get_random_bytes(_NONCE_BYTES))
            content, tag = cipher.encrypt_and_digest(share(own_mask, place) + share(pairs, place))
            sealed[recipient] = cipher.nonce + content + tag
        return sealed

    def open(self, sender: str, roster: Mapping[str, PublicKeys], sealed: bytes) -> Share:
        """Return the share that ``sender`` sealed to this silo.

        Raises ``ValueError`` if it was changed, comes from another silo, or is for another silo or
        sum, or if it does not fit the commitments of its dealer.
        """
        keys, place = roster[sender], [*roster].index(self.name)
        nonce, content, tag = (
            sealed[:_NONCE_BYTES],
            sealed[_NONCE_BYTES:-_TAG_BYTES],
            sealed[-_TAG_BYTES:],
        )
        try:
            cipher = ChaCha20_Poly1305.new(
                key=self._share_key(sender, self.name, keys), nonce=nonce
            )
            shares = cipher.decrypt_and_verify(content, tag)
        except ValueError:
            raise ValueError(
                f"Expected a share that {sender} sealed to {self.name}, got a changed one"
            ) from None
        own_mask, pairs = shares[:SCALAR_BYTES], shares[SCALAR_BYTES:]
        fit = is_share(own_mask, place, keys.own_mask) and is_share(pairs, place, keys.pairs)
        require(fit, f"a share of {sender} that fits the commitments of {sender}")
        return Share(own_mask, pairs)

    @property
    def _sealing(self) -> ECC.EccKey:
        return ECC.construct(curve="Curve25519", seed=self._derived("sealing", 32))

    def _share_key(self, sender: str, recipient: str, other: PublicKeys) -> bytes:
        theirs = import_x25519_public_key(other.sealing)
        agreed: bytes = key_agreement(static_priv=self._sealing, static_pub=theirs, kdf=bytes)
        return derived(agreed, "share", self.context, sender, recipient)

    def _coefficients(self, purpose: str) -> list[bytes]:
        return [
            scalar(self._derived(f"{purpose} {number}", 64)) for number in range(self.threshold)
        ]

    def _derived(self, purpose: str, size: int) -> bytes:
        return derived(self.root, purpose, self.context, self.name, size=size)


def derived(secret: bytes, *purpose: str, size: int = 32) -> bytes:
    """Return a key of ``size`` bytes for one ``purpose`` (HKDF of RFC 5869)."""
    return HKDF(secret, size, b"pate silos", SHA512, context=json.dumps(purpose).encode())


def agreed_seed(pairs_key: bytes, name: str, other: str, keys: PublicKeys, context: str) -> bytes:
    """Return the seed of a pair's mask, from ``name``'s private key and ``other``'s keys."""
    ours, theirs = private_key(pairs_key), public_key(keys.pairs[0])
    agreed: bytes = key_agreement(static_priv=ours, static_pub=theirs, kdf=bytes)
    return derived(agreed, "mask", context, *sorted((name, other)))
