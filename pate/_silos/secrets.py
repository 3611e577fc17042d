"""What one silo keeps to itself, what it tells all others, and the shares from which enough of them rebuild a secret.

A silo has four secrets, all derived from one root that is drawn once: the key by which shares are sealed to it, the
seed of its key for masks of pairs, the seed of a mask of its own, and the key of its noise. The seeds of both masks are
shared among all silos (Shamir (1979)): of a silo that is in the sum, the others rebuild the seed of its own mask, of
one that dropped out the seed of its key for pairs, and never both of the same silo.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from pate._validation import expect

try:
    from Crypto.Cipher import ChaCha20_Poly1305
    from Crypto.Hash import SHA512
    from Crypto.Protocol.DH import import_x25519_public_key, key_agreement
    from Crypto.Protocol.KDF import HKDF
    from Crypto.Protocol.SecretSharing import Shamir
    from Crypto.PublicKey import ECC
    from Crypto.Random import get_random_bytes
except ImportError:
    raise ValueError("Expected the package pycryptodome, got none: pip install 'pate[silos]'") from None

SEED_BYTES = 16  # what Shamir's shares of GF(2^128) hold, and as strong as X25519 is
ROOT_BYTES = 32
_NONCE_BYTES, _TAG_BYTES = 24, 16


class PublicKeys(NamedTuple):
    """What all others know of a silo.

    Attributes:
        sealing: X25519 key by which shares are sealed to it.
        pairs: X25519 key by which it agrees with each other silo on the mask that both share.
        commitment: a hash of the seed of its own mask, by which a rebuilt one is recognised.
    """

    sealing: bytes
    pairs: bytes
    commitment: bytes

    def are_valid(self) -> bool:
        """Whether both are X25519 keys that two can agree with, and the commitment is a digest."""
        try:
            for key in (self.sealing, self.pairs):
                import_x25519_public_key(key)
        except ValueError:
            return False
        return len(self.commitment) == sha256().digest_size


class Share(NamedTuple):
    """What one silo holds of the secrets of another: a share of either seed, `SEED_BYTES` each. PRIVATE."""

    own_mask: bytes
    pairs: bytes


@dataclass(frozen=True)
class Secrets:
    """The secrets of a silo for one sum. PRIVATE.

    Attributes:
        root: `ROOT_BYTES` from the operating system's entropy, of no other sum.
        context: the digest of the invitation, for which alone they serve.
        name: the name of the silo.
    """

    root: bytes = field(repr=False)
    context: str
    name: str

    @property
    def own_mask_seed(self) -> bytes:
        """The seed of the mask that it shares with nobody."""
        return self._derived("own mask", SEED_BYTES)

    @property
    def pairs_seed(self) -> bytes:
        """The seed of its key for masks of pairs."""
        return self._derived("masks of pairs", SEED_BYTES)

    @property
    def noise_key(self) -> int:
        """The key of the generator of its noise."""
        return int.from_bytes(self._derived("noise", 32), "big")

    @property
    def public(self) -> PublicKeys:
        """What it tells all others."""
        pairs = public_of_pairs(self.pairs_seed, self.context, self.name)
        commitment = commitment_to(self.own_mask_seed, self.context, self.name)
        return PublicKeys(_public(self._sealing), pairs, commitment)

    @property
    def _sealing(self) -> bytes:
        return self._derived("sealing", 32)

    def deal(self, threshold: int, roster: Mapping[str, PublicKeys]) -> dict[str, bytes]:
        """Return shares of both seeds, one for each silo of ``roster``, this one included, and sealed to it.

        Any ``threshold`` of them rebuild the seeds, and fewer say nothing of them.
        """
        own = Shamir.split(threshold, len(roster), self.own_mask_seed)
        pairs = Shamir.split(threshold, len(roster), self.pairs_seed)
        sealed = {}
        for recipient, (_, own_share), (_, pairs_share) in zip(roster, own, pairs, strict=True):
            key = self._share_key(self.name, recipient, roster[recipient])
            cipher = ChaCha20_Poly1305.new(key=key, nonce=get_random_bytes(_NONCE_BYTES))
            content, tag = cipher.encrypt_and_digest(own_share + pairs_share)
            sealed[recipient] = cipher.nonce + content + tag
        return sealed

    def open(self, sender: str, keys: PublicKeys, sealed: bytes) -> Share:
        """Return the share that ``sender``, of those ``keys``, sealed to this silo.

        Raises ``ValueError`` if it is not from that silo, for this one and for this sum, as it was sent.
        """
        nonce, content, tag = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:-_TAG_BYTES], sealed[-_TAG_BYTES:]
        try:
            cipher = ChaCha20_Poly1305.new(key=self._share_key(sender, self.name, keys), nonce=nonce)
            shares = cipher.decrypt_and_verify(content, tag)
            expect(len(shares) == 2 * SEED_BYTES, "two shares", bytes=len(shares))
        except ValueError:
            raise ValueError(f"Expected a share that {sender} sealed to {self.name}, got a changed one") from None
        return Share(shares[:SEED_BYTES], shares[SEED_BYTES:])

    def _share_key(self, sender: str, recipient: str, other: PublicKeys) -> bytes:
        return derived(_agreed(self._sealing, other.sealing), "share", self.context, sender, recipient)

    def _derived(self, purpose: str, size: int) -> bytes:
        return derived(self.root, purpose, self.context, self.name, size=size)


def derived(secret: bytes, *purpose: str, size: int = 32) -> bytes:
    """Return a key of ``size`` bytes for one ``purpose`` (HKDF of RFC 5869)."""
    return HKDF(secret, size, b"pate silos", SHA512, context=json.dumps(purpose).encode())


def agreed_seed(pairs_seed: bytes, name: str, other: str, keys: PublicKeys, context: str) -> bytes:
    """Return the seed of the mask that ``name``, of this ``pairs_seed``, shares with ``other``, of these ``keys``."""
    agreed = _agreed(derived(pairs_seed, "key of pairs", context, name), keys.pairs)
    return derived(agreed, "mask", context, *sorted((name, other)))


def public_of_pairs(pairs_seed: bytes, context: str, name: str) -> bytes:
    """Return the public key for masks of pairs that belongs to a seed."""
    return _public(derived(pairs_seed, "key of pairs", context, name))


def commitment_to(own_mask_seed: bytes, context: str, name: str) -> bytes:
    """Return the hash by which the seed of a silo's own mask is recognised."""
    return sha256(derived(own_mask_seed, "commitment", context, name)).digest()


def rebuilt(shares: Mapping[int, bytes]) -> bytes:
    """Return the seed of which ``shares``, by the place of their holder in the roster, are as many as are needed."""
    return Shamir.combine([(place + 1, share) for place, share in shares.items()])


def _public(private: bytes) -> bytes:
    """Return the public X25519 key of a private one."""
    key: bytes = ECC.construct(curve="Curve25519", seed=private).public_key().export_key(format="raw")
    return key


def _agreed(private: bytes, public: bytes) -> bytes:
    """Return what two X25519 keys agree on."""
    ours = ECC.construct(curve="Curve25519", seed=private)
    agreed: bytes = key_agreement(static_priv=ours, static_pub=import_x25519_public_key(public), kdf=bytes)
    return agreed
