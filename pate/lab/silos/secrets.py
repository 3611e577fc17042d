"""The keys, secrets and masks of silos, and shares that rebuild a secret.

**Long-term keys** sign the files of silos and server (Ed25519 of RFC 8032).

**Secrets.** A silo has four, all derived from one root that is drawn once: the key by which shares
are sealed to it, its key for masks of pairs, the seed of a mask of its own, and the key of its
noise. Both secrets of masks are shared among all silos. Of a silo in the sum, the others rebuild
the seed of its own mask; of one that dropped out, the key for pairs. They never rebuild both of the
same silo.

**Shares** can be checked by anyone against commitments (Feldman (1987), on P-256). A secret is the
value at 0 of a polynomial modulo the order of the group, a share its value at the place of its
holder. The dealer publishes the multiples of the group's generator by all coefficients. These bind
the dealer, and hide the secret as long as discrete logarithms are hard.

**Masks** cancel in the sum of all silos, modulo 2^64.
"""

from __future__ import annotations

import json
import math
import shlex
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pate._core.files.reading import read_bytes
from pate._core.files.writing import output_errors, write_once
from pate._core.mechanisms.noise import KEY_BITS
from pate._core.validation import expecting, require

with expecting("the package pycryptodome", ImportError, got="none: pip install 'pate[silos]'"):
    from Crypto.Cipher import ChaCha20, ChaCha20_Poly1305
    from Crypto.Hash import SHA512
    from Crypto.Protocol.DH import import_x25519_public_key, key_agreement
    from Crypto.Protocol.KDF import HKDF
    from Crypto.PublicKey import ECC
    from Crypto.PublicKey.ECC import EccKey
    from Crypto.Random import get_random_bytes
    from Crypto.Signature import eddsa

_CURVE = "Ed25519"


@dataclass(frozen=True)
class SigningKey:
    """The key of one silo, or of the server, for all exchanges. PRIVATE."""

    _key: EccKey = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> SigningKey:
        """Return the key in a file of PEM or OpenSSH without a passphrase.

        Raises ``ValueError`` if there is none.
        """
        key = _read(path, f"a private key of {_CURVE} at {path}; `pate silo key` makes one")
        require(key.has_private(), f"a private key of {_CURVE} at {path}")
        mode = stat.S_IMODE(path.stat().st_mode)
        require(
            not mode & 0o077,
            f"a private key that its owner alone may read: chmod 600 {shlex.quote(str(path))}",
            mode=f"{mode:04o}",
        )
        return cls(key)

    @cached_property
    def public(self) -> str:
        """The public key, in hexadecimal."""
        return _hexadecimal(self._key)

    def sign(self, text: bytes) -> str:
        """Return the signature of ``text``, in hexadecimal.

        The same text has the same signature.
        """
        return bytes(eddsa.new(self._key, "rfc8032").sign(text)).hex()

    @property
    def line(self) -> str:
        """The public key as OpenSSH writes it, in one line."""
        return str(self._key.public_key().export_key(format="OpenSSH")).strip()


def make_key(private: Path, public: Path) -> str:
    """Write a new private key and its public key to two files; return the public key's line.

    A private key that is there is kept.

    Raises:
        ValueError: if a file cannot be written, or there is another public key.
    """
    require(private.resolve() != public.resolve(), "two files", public=str(public))
    with output_errors(private):
        private.parent.mkdir(parents=True, exist_ok=True)
        if not private.is_file():
            write_once(
                private, ECC.generate(curve=_CURVE).export_key(format="PEM").encode(), mode=0o600
            )
    key = SigningKey.read(private)
    with output_errors(public):
        public.parent.mkdir(parents=True, exist_ok=True)
        write_once(public, f"{key.line}\n".encode())
    kept = _hexadecimal(_read(public, f"a public key at {public}"))
    require(kept == key.public, f"{public} for the public key of {private}")
    return key.line


def read_public_keys(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the public keys, in hexadecimal, that a folder has as ``NAME.pub``.

    Raises:
        ValueError: if there is none of a name.
    """
    paths = {name: folder / f"{name}.pub" for name in names}
    return {
        name: _hexadecimal(_read(path, f"the public key of {name} at {path}"))
        for name, path in paths.items()
    }


def is_signed(text: bytes, signature: str, public: str) -> bool:
    """Whether the owner of a ``public`` key made ``signature``, both in hexadecimal."""
    try:
        eddsa.new(eddsa.import_public_key(bytes.fromhex(public)), "rfc8032").verify(
            text, bytes.fromhex(signature)
        )
    except ValueError:
        return False
    return True


def _read(path: Path, what: str) -> EccKey:
    try:
        key = ECC.import_key(read_bytes(path))
    except FileNotFoundError:
        raise ValueError(f"Expected {what}, got none") from None
    except OSError as error:
        raise ValueError(f"Expected {what}, got {error.strerror}") from None
    except (ValueError, IndexError, TypeError):  # without the content, which may be PRIVATE
        raise ValueError(f"Expected {what}, got another file") from None
    require(key.curve == _CURVE, what, curve=key.curve)
    return key


def _hexadecimal(key: EccKey) -> str:
    return bytes(key.public_key().export_key(format="raw")).hex()


SCALAR_BYTES = 32
CURVE = "P-256"
# of the group (FIPS 186-4, D.1.2.3)
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def scalar(entropy: bytes) -> bytes:
    """Return a number in ``1..order - 1`` from at least `SCALAR_BYTES` + 16 uniform bytes."""
    return _packed(int.from_bytes(entropy, "big") % (_ORDER - 1) + 1)


def commitment(secret: bytes) -> bytes:
    """Return the point that commits to a secret: the public key of the secret as a private key."""
    return private_key(secret).public_key().export_key(format="SEC1")


def share(coefficients: Sequence[bytes], place: int) -> bytes:
    """Return the share at ``place``, from 0 on. The first coefficient is the secret."""
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
        others = shares.keys() - {place}
        above = math.prod(other + 1 for other in others)
        below = math.prod(other - place for other in others)
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
    total = reduce(np.add, vectors).copy()
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
    """Return the mask that ``name`` adds for the pair. The other adds its negative."""
    mask = mask_of(agreed_seed(pairs_key, name, other, keys, context), size)
    return mask if name < other else np.negative(mask)


ROOT_BYTES = 32
_NONCE_BYTES, _TAG_BYTES = 24, 16
_OWN_MASK, _PAIRS = "own mask", "masks of pairs"


class PublicKeys(NamedTuple):
    """The public keys of a silo.

    Attributes:
        sealing: X25519 key for shares sealed to it.
        own_mask: commitments to the shares of the seed of its own mask, points of P-256. The first
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
        return int.from_bytes(self._derived("noise", KEY_BITS // 8), "big")

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
        for place, (recipient, keys) in enumerate(roster.items()):
            cipher = ChaCha20_Poly1305.new(
                key=self._share_key(self.name, recipient, keys),
                nonce=get_random_bytes(_NONCE_BYTES),
            )
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
        require(
            is_share(own_mask, place, keys.own_mask) and is_share(pairs, place, keys.pairs),
            f"a share of {sender} that fits the commitments of {sender}",
        )
        return Share(own_mask, pairs)

    @property
    def _sealing(self) -> ECC.EccKey:
        return ECC.construct(curve="Curve25519", seed=self._derived("sealing", 32))

    def _share_key(self, sender: str, recipient: str, other: PublicKeys) -> bytes:
        agreed: bytes = key_agreement(
            static_priv=self._sealing, static_pub=import_x25519_public_key(other.sealing), kdf=bytes
        )
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
