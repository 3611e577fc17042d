"""The folder through which silos and server send each other files: each is written once, whole, by one of them.

Everything in it is PUBLIC to all who take part: keys, shares that are sealed to one silo each, and masked vectors.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np

from pate._json import read_json
from pate._runs import Json, digest
from pate._runs.files import naming_output, read_arrays, write_once
from pate._silos.invitation import AwaitedError as AwaitedError
from pate._silos.invitation import Invitation
from pate._silos.masks import WordArray
from pate._silos.secrets import SEED_BYTES, PublicKeys
from pate._validation import expect, expect_known

INVITATION, SURVIVORS = "invitation.json", "survivors.json"
_POLL_SECONDS = 0.2
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Exchange:
    """The files of one sum.

    Args:
        folder: the folder, which all who take part can read and write.

    Raises:
        AwaitedError: by whatever reads a file that is not there yet.
        ValueError: by whatever reads a file that is damaged, or belongs to another invitation.
    """

    folder: Path

    @cached_property
    def invitation(self) -> Invitation:
        """The terms."""
        return Invitation.of(self._bytes(INVITATION, "the invitation"))

    @cached_property
    def roster(self) -> dict[str, PublicKeys]:
        """The keys of all silos, in the order of the invitation."""
        self._await("keys")
        return {name: self._keys(name) for name in self.invitation.teachers}

    @cached_property
    def roster_digest(self) -> str:
        """What all must find to be the same: were it not, somebody would stand between them."""
        keys = [[name, *(key.hex() for key in keys)] for name, keys in self.roster.items()]
        return digest(self.invitation.digest, json.dumps(keys))

    @property
    def shares(self) -> dict[str, dict[str, bytes]]:
        """The sealed shares that each silo dealt, by name and recipient."""
        self._await("shares")
        return {name: self._shares(name) for name in self.invitation.teachers}

    @property
    def survivors(self) -> tuple[str, ...]:
        """The silos in the sum, in the order of the invitation. Raises ``ValueError`` if there may not be so few."""
        names = self._json(SURVIVORS, "the list of those in the sum", survivors=list)["survivors"]
        terms = self.invitation
        listed = names == [name for name in terms.teachers if name in names]
        expect(listed, f"survivors among {', '.join(terms.teachers)}, in this order", survivors=names)
        expect(len(names) >= terms.threshold, f"{terms.threshold} survivors or more", survivors=names)
        return tuple(names)

    def masked(self, name: str) -> WordArray:
        """Return the masked vector ``[Q C]`` of a silo."""
        path = self.place("masked", name)
        arrays = read_arrays(path, ("masked", "context"), what="a masked vector of `pate silo`")
        expect(str(arrays["context"]) == self.roster_digest, f"{path} for this invitation and these keys", of="others")
        size, vector = len(self.invitation.ids) * len(self.invitation.label_names), arrays["masked"]
        fits = vector.dtype == np.uint64 and vector.shape == (size,)
        expect(fits, f"{size} words in {path}", shape=vector.shape, dtype=str(vector.dtype))
        return vector

    def unmasking(self, name: str) -> dict[str, bytes] | None:
        """Return the shares that a silo revealed, by the silo whose they are; None if it has not yet."""
        if not self.place("unmasking", name).is_file():
            return None
        content = self._json(f"unmasking/{name}.json", "", context=str, survivors=list, shares=dict)
        same = content["context"] == self.roster_digest and content["survivors"] == list(self.survivors)
        expect(same, f"{self.place('unmasking', name)} for these survivors", survivors=content["survivors"])
        shares = _bytes_by_name(content["shares"], self.invitation.teachers, self.place("unmasking", name))
        fit = shares.keys() == self.invitation.teachers.keys() and {*map(len, shares.values())} == {SEED_BYTES}
        expect(fit, f"a share of {SEED_BYTES} bytes of each silo in {self.place('unmasking', name)}", shares="others")
        return shares

    def place(self, kind: str, name: str) -> Path:
        """Return the file of one silo."""
        return self.folder / kind / f"{name}.{'npz' if kind == 'masked' else 'json'}"

    def absent(self, kind: str) -> list[str]:
        """Return the names of the silos that have not sent a file yet."""
        return [name for name in self.invitation.teachers if not self.place(kind, name).is_file()]

    def send(self, path: Path, content: bytes) -> None:
        """Write a file. Raises ``ValueError`` if another is in its place, which is never overwritten."""
        with naming_output(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_once(path, content)
            same = path.read_bytes() == content
        expect(
            same, f"{path} as this command writes it. Each sum needs an exchange folder of its own", content="another"
        )

    def _await(self, kind: str) -> None:
        if absent := self.absent(kind):
            raise AwaitedError(f"{kind} of {', '.join(absent)}")

    def _keys(self, name: str) -> PublicKeys:
        path, kinds = f"keys/{name}.json", dict.fromkeys(PublicKeys._fields, str)
        content = self._json(path, "", **kinds)
        keys = _bytes_by_name({kind: content[kind] for kind in kinds}, kinds, self.folder / path)
        public = PublicKeys(**keys)
        expect(public.are_valid(), f"keys of X25519 in {self.folder / path}", keys="others")
        return public

    def _shares(self, name: str) -> dict[str, bytes]:
        path = self.place("shares", name)
        content = self._json(f"shares/{name}.json", "", context=str, shares=dict)
        expect(content["context"] == self.roster_digest, f"{path} for the keys that are here", keys="others")
        shares = _bytes_by_name(content["shares"], self.invitation.teachers, path)
        expect([*shares] == [*self.invitation.teachers], f"a share for each silo in {path}", shares=[*shares])
        return shares

    def _json(self, place: str, what: str, **kinds: type) -> Json:
        """Return what a file holds, which is of these kinds by name."""
        path = self.folder / place
        try:
            content: Json = read_json(self._bytes(place, what))
            expect_known("keys", content, ["invitation", *kinds])
            fits = all(isinstance(content.get(name), kind) for name, kind in kinds.items())
            expect(fits, f"{', '.join(kinds)}", keys=[*content])
        except (ValueError, TypeError) as error:
            raise ValueError(f"Expected what `pate` sends in {path}, got a damaged file ({error})") from None
        same = content.get("invitation") == self.invitation.digest
        expect(same, f"{path} for the invitation in {self.folder}", invitation="another")
        return content

    def _bytes(self, place: str, what: str) -> bytes:
        try:
            return (self.folder / place).read_bytes()
        except FileNotFoundError:
            raise AwaitedError(what) from None
        except OSError as error:
            raise ValueError(f"Expected {self.folder / place} that can be read ({error.strerror})") from None

    def message(self, **content: object) -> bytes:
        """Return the content of a file with the digest of the invitation."""
        return json.dumps({"invitation": self.invitation.digest, **content}).encode()


def packed(vector: WordArray, context: str) -> bytes:
    """Return the content of the file of a masked vector."""
    file = io.BytesIO()
    np.savez(file, masked=vector, context=np.array(context))
    return file.getvalue()


def waiting(step: Callable[[], _Result], seconds: float | None) -> _Result:
    """Return what ``step`` does, once others have sent what it needs.

    Raises:
        AwaitedError: if that takes longer than so many ``seconds``; None for as long as it takes.
    """
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        try:
            return step()
        except AwaitedError:
            if end is not None and time.monotonic() >= end:
                raise
        time.sleep(_POLL_SECONDS)


def _bytes_by_name(texts: Mapping[str, object], names: Mapping[str, object], path: Path) -> dict[str, bytes]:
    try:
        expect_known("names", texts, names)
        return {name: bytes.fromhex(str(text)) for name, text in texts.items()}
    except ValueError as error:
        raise ValueError(f"Expected what `pate` sends in {path}, got a damaged file ({error})") from None
