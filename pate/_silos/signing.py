"""Long-term keys by which silos and the server sign their files (Ed25519 of RFC 8032)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from Crypto.PublicKey import ECC
from Crypto.PublicKey.ECC import EccKey
from Crypto.Signature import eddsa

from pate._files.writing import output_errors, write_once
from pate._validation import require

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
    line = SigningKey.read(private).line
    with output_errors(public):
        public.parent.mkdir(parents=True, exist_ok=True)
        write_once(public, f"{line}\n".encode())
    same = (
        _hexadecimal(_read(public, f"a public key at {public}")) == SigningKey.read(private).public
    )
    require(same, f"{public} for the public key of {private}")
    return line


def read_public_keys(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the public keys, in hexadecimal, that a folder has as ``NAME.pub``.

    Raises:
        ValueError: if there is none of a name.
    """
    keys = {}
    for name in names:
        path = folder / f"{name}.pub"
        keys[name] = _hexadecimal(_read(path, f"the public key of {name} at {path}"))
    return keys


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
        key = ECC.import_key(path.read_bytes())
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
