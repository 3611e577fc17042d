"""The terms that all silos agree on before any of them sends anything: members, sum and noise."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path

from pate._files.json import read_json
from pate._validation import (
    require,
    require_count,
    require_distinct,
    require_in_open_unit_interval,
    require_known,
    require_label_names,
)
from pate._votes import VoteShape
from pate.aggregators._silo_votes import SiloVotes

_NAME = re.compile(r"[\w-][\w.-]*")
_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class SiloSum:
    """The request of `pate label --silos` to silos.

    Attributes:
        exchange: the folder through which they send.
        teachers: the nominal number of teachers of each silo, by its name.
        public_keys: a folder with the public key of each silo, by its name.
        signing_key: the file of the server's private key. PRIVATE.
        without: silos that are left out if they have not sent their masked vectors.
        wait: the number of seconds to wait for others; None to wait without end.
    """

    exchange: Path
    teachers: Mapping[str, int]
    public_keys: Path
    signing_key: Path
    without: Sequence[str] = ()
    wait: float | None = None


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """The public terms of one sum of votes. PUBLIC.

    Args:
        teachers: the nominal number of teachers of each silo, by its name.
        keys: the public key by which each silo signs, in hexadecimal (Ed25519).
        server_key: the public key by which the server signs.
        ids: ``[Q]``, ids of the queries in their order.
        label_names: names of the ``C`` labels.
        sigma_silos: as in `SiloVotes`.
        colluding: as in `SiloVotes`.
        dropouts: the number of silos that may fall silent once all have dealt their shares.
        delta: the delta at which the sum is to be stated.

    Raises:
        ValueError: if two silos have the same key, a name is no file's name, numbers are out of
            range, or so many may drop out that at most half, or no honest silo, would be left.
    """

    teachers: Mapping[str, int]
    keys: Mapping[str, str]
    server_key: str
    ids: Sequence[str]
    label_names: Sequence[str]
    sigma_silos: float
    colluding: int
    dropouts: int
    delta: float

    def __post_init__(self) -> None:
        strange = [name for name in self.teachers if not _NAME.fullmatch(name)]
        require(not strange, "silos with names of letters, digits, '.', '_' and '-'", names=strange)
        require_count(2, silos=len(self.teachers))
        for number in self.teachers.values():
            require_count(1, teachers=number)
        require([*self.keys] == [*self.teachers], "a key for each silo", keys=[*self.keys])
        for key in (*self.keys.values(), self.server_key):
            require(
                isinstance(key, str) and _KEY.fullmatch(key),
                "public keys of 64 hexadecimal digits",
                key=key,
            )
        require_distinct("keys", self.keys.values())  # or one would sign for two
        require_in_open_unit_interval(delta=self.delta)
        for name in ("ids", "label_names"):
            names = getattr(self, name)
            texts = (
                isinstance(names, list | tuple)
                and names
                and all(isinstance(text, str) for text in names)
            )
            require(
                texts, f"a list of texts, at least one, as {name}", **{name: names and names[:1]}
            )
            require_distinct(name, names)
        require_label_names("label_names", self.label_names)
        # of two lists of survivors, each shown to half of the silos, both could else be opened
        most = (len(self.teachers) - 1) // 2
        require(
            self.dropouts <= most,
            f"dropouts <= {most} of {len(self.teachers)} silos",
            dropouts=self.dropouts,
        )
        self.mechanism.event(self.shape)  # raises where noise does not fit

    @cached_property
    def mechanism(self) -> SiloVotes:
        """The mechanism that releases the sum."""
        return SiloVotes(
            sigma_silos=self.sigma_silos,
            silos=len(self.teachers),
            colluding=self.colluding,
            dropouts=self.dropouts,
        )

    @property
    def shape(self) -> VoteShape:
        """The numbers of labels and of teachers, with the teachers of silos that drop out."""
        return VoteShape(sum(self.teachers.values()), len(self.label_names))

    @property
    def threshold(self) -> int:
        """The number of silos that must be in the sum, and of shares that rebuild a secret."""
        return len(self.teachers) - self.dropouts

    @cached_property
    def content(self) -> bytes:
        """The file's content."""
        return json.dumps(asdict(self), indent=1).encode()

    @cached_property
    def digest(self) -> str:
        """The digest (SHA-256) that people confirm; every file of the exchange names it."""
        return sha256(self.content)

    def __str__(self) -> str:
        mechanism = self.mechanism
        return (
            f"{len(self.label_names)} labels of {len(self.ids)} samples, from {', '.join(self.teachers)}."
            f" The noise of a count is {self.sigma_silos:.4g} votes or more, of each silo {mechanism.share_sigma:.4g},"
            f" though {self.colluding} know what they drew and {self.dropouts} drop out"
        )

    @classmethod
    def of(cls, content: bytes) -> Invitation:
        """Return the invitation in a file.

        Raises ``ValueError`` if this program did not write it.
        """
        try:
            values = read_json(content)
            require_known("keys", values, [field.name for field in fields(cls)])
            numbers = all(type(values[name]) is int for name in ("colluding", "dropouts"))
            numbers = numbers and all(
                type(values[name]) is float for name in ("sigma_silos", "delta")
            )
            require(numbers, "numbers")
            invitation = cls(**values)
            require(
                invitation.content == content,
                "the content that `pate label --silos` wrote",
            )
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
            raise ValueError(
                f"Expected an invitation.json of `pate label --silos`, got a damaged one ({error})"
            ) from None
        return invitation


def sha256(content: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal; contents of the same one cannot be found."""
    return hashlib.sha256(content).hexdigest()
