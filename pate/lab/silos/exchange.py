"""The terms of a sum over silos, and the files between silos and server.

All silos agree on the terms (members, sum and noise) before any of them sends anything. Each file
is written once, whole, and signed. Everything in an exchange is PUBLIC to all who take part: keys,
shares that are sealed to one silo each, and masked vectors.
"""

import hashlib
import io
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Self, TextIO, TypeVar

import numpy as np

from pate._core.files.reading import Json, read_bytes, read_json, unpacked
from pate._core.files.writing import output_errors, remove_abandoned, write_once
from pate._core.validation import (
    AwaitedError as AwaitedError,
    expecting,
    one_line,
    require,
    require_count,
    require_distinct,
    require_in_open_unit_interval,
    require_known,
    require_label_names,
)
from pate._labeling.aggregators.noisy_votes import SiloVotes
from pate._labeling.votes.kinds import VoteShape
from pate.lab.silos.secrets import SCALAR_BYTES, PublicKeys, SigningKey, WordArray, is_signed

_NAME = re.compile(r"[\w-][\w.-]*")
_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """The public terms of one sum of votes. PUBLIC.

    Args:
        teachers: the nominal number of teachers of each silo, by its name.
        keys: the public signing key of each silo, in hexadecimal (Ed25519).
        server_key: the server's public signing key.
        ids: ``[Q]``, ids of the queries in their order.
        label_names: names of the ``C`` labels.
        sigma_silos: as in `SiloVotes`.
        colluding: as in `SiloVotes`.
        dropouts: the number of silos that may fall silent once all have dealt their shares.
        delta: the delta of the sum's statement.
        single_sums: as in `SiloVotes`.

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
    single_sums: bool = False

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
            require(
                isinstance(names, list | tuple)
                and names
                and all(isinstance(text, str) for text in names),
                f"a list of texts, at least one, as {name}",
                **{name: names and names[:1]},
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
            single_sums=self.single_sums,
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
        """Its digest (SHA-256). Every file of the exchange names it."""
        return sha256(self.content)

    def __str__(self) -> str:
        single = (
            ""
            if self.mechanism.has_one_sum
            else ". A server that shows silos different lists of those in the sum can open the"
            " counts of one silo by themselves, with all of the stated noise"
        )
        return (
            f"{len(self.label_names)} labels of {len(self.ids)} samples, from"
            f" {', '.join(self.teachers)}."
            f" The noise of a count is {self.sigma_silos:.4g} votes or more, of each silo"
            f" {self.mechanism.share_sigma:.4g},"
            f" though {self.colluding} know what they drew and {self.dropouts} drop out{single}"
        )

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Return the invitation in a file.

        Raises ``ValueError`` if this program did not write it.
        """
        with expecting(
            "an invitation.json of `pate label --silos`",
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            ArithmeticError,
            got="a damaged one",
        ):
            values = read_json(content)
            require_known("keys", values, [field.name for field in fields(cls)])
            kinds = {"colluding": int, "dropouts": int, "single_sums": bool} | {
                "sigma_silos": float,
                "delta": float,
            }
            require(all(type(values[name]) is kind for name, kind in kinds.items()), "numbers")
            invitation = cls(**values)
            require(invitation.content == content, "the content that `pate label --silos` wrote")
        return invitation


def sha256(content: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal; contents of the same one cannot be found."""
    return hashlib.sha256(content).hexdigest()


INVITATION = "invitation.json"
SERVER, SIGNED = "the server", "invitation_signature"
_POLL = 0.2  # seconds between two looks at the folder
_MOST_BYTES = 2**26  # of an invitation, from which the bound on other files follows
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Exchange:
    """The files of one sum.

    Args:
        folder: a folder that all who take part can read and write.

    Raises:
        AwaitedError: by every read of a file that is not there yet.
        ValueError: by every read of a file that is damaged, too large, belongs to another
            invitation, or bears a signature other than the sender's.
    """

    folder: Path

    @cached_property
    def invitation(self) -> Invitation:
        """The terms, which anyone may have written: see `require_invited`."""
        return Invitation.of(self._bytes(self.folder / INVITATION, "the invitation", _MOST_BYTES))

    def invite(self, terms: Invitation, key: SigningKey) -> None:
        """Write the terms, and a file by which the server signs them. Raises as `send` does."""
        self.send(self.folder / INVITATION, terms.content)
        self.send(self.path(SIGNED, SERVER), self.message(SIGNED, SERVER, key))

    def require_invited(self) -> None:
        """Raise ``ValueError`` unless the owner of the server's key signed these terms."""
        self._json(SIGNED, SERVER, "the signature of the invitation")

    @cached_property
    def roster(self) -> dict[str, PublicKeys]:
        """The keys of all silos for this sum, in the order of the invitation."""
        self._await("keys")
        return {name: self._keys(name) for name in self.invitation.teachers}

    @cached_property
    def roster_digest(self) -> str:
        """A digest of the invitation and all keys. All later files name it."""
        keys = [
            [name, keys.sealing.hex(), *([point.hex() for point in points] for points in keys[1:])]
            for name, keys in self.roster.items()
        ]
        return sha256(json.dumps([self.invitation.digest, keys]).encode())

    @cached_property
    def shares(self) -> dict[str, dict[str, bytes]]:
        """The sealed shares that each silo dealt, by name and recipient."""
        self._await("shares")
        return {name: self._shares(name) for name in self.invitation.teachers}

    @cached_property
    def survivors(self) -> tuple[str, ...]:
        """The silos in the sum, in the order of the invitation.

        Raises ``ValueError`` if they are fewer than the threshold.
        """
        wanted, terms = "the list of silos in the sum", self.invitation
        names = self._json("survivors", SERVER, wanted, survivors=list)["survivors"]
        require(
            names == [name for name in terms.teachers if name in names],
            f"survivors among {', '.join(terms.teachers)}, in this order",
            survivors=names,
        )
        require(
            len(names) >= terms.threshold, f"{terms.threshold} survivors or more", survivors=names
        )
        return tuple(names)

    def masked(self, name: str) -> WordArray:
        """Return the masked vector ``[Q C]`` of a silo."""
        path = self.path("masked", name)
        arrays = unpacked(
            self._bytes(path, f"masked of {name}"),
            ("masked", "context", "signature"),
            what=f"a masked vector of `pate silo` in {path}",
            most=self.most_bytes,
        )
        vector, context = arrays["masked"], str(arrays["context"])
        require(context == self.roster_digest, f"{path} for this invitation and these keys")
        size = len(self.invitation.ids) * len(self.invitation.label_names)
        require(
            vector.dtype == np.uint64 and vector.shape == (size,),
            f"{size} words in {path}",
            shape=vector.shape,
            dtype=str(vector.dtype),
        )
        self._require_signed(
            "masked", name, self._of_vector(vector, context), str(arrays["signature"])
        )
        return vector

    def unmasking(self, name: str) -> dict[str, bytes] | None:
        """Return the shares that a silo revealed, by their dealer. None if there are none yet."""
        path = self.path("unmasking", name)
        if not self.has("unmasking", name):
            return None
        content = self._json("unmasking", name, context=str, survivors=list, shares=dict)
        listed = [content["context"], content["survivors"]]
        require(
            listed == [self.roster_digest, [*self.survivors]],
            f"{path} for these survivors",
            survivors=content["survivors"],
        )
        shares = _bytes_by_name(content["shares"], self.invitation.teachers, path)
        sizes = {name: len(share) for name, share in shares.items()}
        require(
            sizes == dict.fromkeys(self.invitation.teachers, SCALAR_BYTES),
            f"a share of {SCALAR_BYTES} bytes of each silo in {path}",
        )
        return shares

    @property
    def most_bytes(self) -> int:
        """A bound on the size of each file of a silo."""
        terms = self.invitation
        return 8 * len(terms.ids) * len(terms.label_names) + 2048 * len(terms.teachers) + 2**16

    def path(self, kind: str, name: str) -> Path:
        """Return the file of one silo, or of the server."""
        if name == SERVER:
            return self.folder / f"{kind}.json"
        return self.folder / kind / f"{name}.{'npz' if kind == 'masked' else 'json'}"

    def has(self, kind: str, name: str) -> bool:
        """Whether a file was sent. Raises ``ValueError`` where anything else is in its place."""
        return _is_there(self.path(kind, name))

    def absent(self, kind: str) -> list[str]:
        """Return the names of the silos that have not sent a file yet."""
        return [name for name in self.invitation.teachers if not self.has(kind, name)]

    def send(self, path: Path, content: bytes) -> None:
        """Write a file.

        Raises ``ValueError`` if another file is in its place, which is never overwritten.
        """
        with output_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_abandoned(path)
            if not _is_there(path):
                write_once(path, content)
            sent = read_bytes(path, max(len(content), _MOST_BYTES))
        require(
            sent == content,
            f"{path} as this command writes it. Each sum needs an exchange of its own",
        )

    def message(self, kind: str, name: str, key: SigningKey, **content: object) -> bytes:
        """Return the content of a file, signed, with the digest of the invitation."""
        signed = {"invitation": self.invitation.digest, **content}
        return json.dumps(signed | {"signature": key.sign(_text(kind, name, signed))}).encode()

    def packed(self, name: str, key: SigningKey, vector: WordArray) -> bytes:
        """Return the content of the file of a masked vector, signed."""
        file, context = io.BytesIO(), self.roster_digest
        np.savez(
            file,
            masked=vector,
            context=np.array(context),
            signature=np.array(key.sign(_text("masked", name, self._of_vector(vector, context)))),
        )
        return file.getvalue()

    def _of_vector(self, vector: WordArray, context: str) -> Json:
        """Return the signed content for a masked vector: its digest in place of the words."""
        return {
            "invitation": self.invitation.digest,
            "context": context,
            "masked": sha256(vector.astype("<u8", copy=False).tobytes()),
        }

    def _require_signed(self, kind: str, name: str, content: Json, signature: str) -> None:
        key = self.invitation.server_key if name == SERVER else self.invitation.keys[name]
        require(
            is_signed(_text(kind, name, content), signature, key),
            f"{self.path(kind, name)} as {name} signed it",
        )

    def _await(self, kind: str) -> None:
        if absent := self.absent(kind):
            raise AwaitedError(f"{kind} of {', '.join(absent)}")

    def _keys(self, name: str) -> PublicKeys:
        path, content = (
            self.path("keys", name),
            self._json("keys", name, sealing=str, own_mask=list, pairs=list),
        )
        with expecting(f"what `pate` sends in {path}", ValueError, got="a damaged file"):
            own_mask, pairs = (
                tuple(bytes.fromhex(str(text)) for text in content[kind])
                for kind in ("own_mask", "pairs")
            )
            keys = PublicKeys(bytes.fromhex(content["sealing"]), own_mask, pairs)
        require(
            keys.are_valid(self.invitation.threshold),
            f"keys of X25519 and P-256 in {path}",
        )
        return keys

    def _shares(self, name: str) -> dict[str, bytes]:
        path, content = (
            self.path("shares", name),
            self._json("shares", name, context=str, shares=dict),
        )
        require(
            content["context"] == self.roster_digest,
            f"{path} for the keys that are here",
        )
        shares = _bytes_by_name(content["shares"], self.invitation.teachers, path)
        require(
            [*shares] == [*self.invitation.teachers],
            f"a share for each silo in {path}",
            shares=[*shares],
        )
        return shares

    def _json(self, kind: str, name: str, what: str = "", **kinds: type) -> Json:
        """Return the content of a signed file, with values of the types ``kinds`` by name."""
        path = self.path(kind, name)
        with expecting(f"what `pate` sends in {path}", ValueError, TypeError, got="a damaged file"):
            content: Json = read_json(self._bytes(path, what))
            require(isinstance(content, dict), "an object", content=type(content).__name__)
            require_known("keys", content, ["invitation", "signature", *kinds])
            fits = all(
                isinstance(content.get(key), each)
                for key, each in (kinds | {"signature": str}).items()
            )
            require(fits, f"{', '.join(kinds)} and a signature", keys=[*content])
        require(
            content.get("invitation") == self.invitation.digest,
            f"{path} for the invitation in {self.folder}: either was changed, or is of another sum",
        )
        self._require_signed(kind, name, content, content.pop("signature"))
        return content

    def _bytes(self, path: Path, what: str, most: int | None = None) -> bytes:
        try:
            return read_bytes(path, self.most_bytes if most is None else most)
        except FileNotFoundError:
            raise AwaitedError(what) from None
        except OSError as error:
            raise ValueError(f"Expected {path} that can be read ({error.strerror})") from None


def say(line: str, file: TextIO | None = None) -> None:
    """Print a line that may hold words of others, with escapes for their control characters."""
    print(one_line(line), file=file, flush=True)


def waiting(
    step: Callable[[], _Result],
    seconds: float | None,
    tell: Callable[[str], None] = say,
) -> _Result:
    """Return the result of ``step``, repeated until others have sent the files that it reads.

    Args:
        step: raises `AwaitedError` as long as files are missing.
        seconds: the longest wait. None for no limit.
        tell: takes a line for people each time that other files are awaited.

    Raises:
        AwaitedError: after ``seconds``.
    """
    end, said = None if seconds is None else time.monotonic() + seconds, ""
    while True:
        try:
            return step()
        except AwaitedError as error:
            if end is not None and time.monotonic() >= end:
                raise
            line = f"waiting for {error}"
            if line != said:
                tell(line)
            said = line
        time.sleep(_POLL)


def require_private(folder: Path, **places: Path) -> None:
    """Raise ``ValueError`` unless files and folders lie outside of the exchange, links followed."""
    shared = [folder.resolve()]
    if folder.is_dir():
        shared += [path.resolve() for path in folder.iterdir() if path.is_dir()]  # links among them
    inside, around = _identities(*shared), _identities(*shared[0].parents)
    for option, place in places.items():
        place = place.resolve()
        require(
            inside.isdisjoint(_identities(place, *place.parents)),
            f"a place outside of {folder}, which all others read",
            **{option: str(place)},
        )
        require(
            around.isdisjoint(_identities(place)),
            f"a place that does not hold {folder}, which all others read",
            **{option: str(place)},
        )


def _is_there(path: Path) -> bool:
    there = path.exists()
    require(
        not there or path.is_file(),
        f"a regular file at {path}, which another party may have put there",
    )
    return there


def _identities(*paths: Path) -> set[Path | tuple[int, int]]:
    """Return the paths, and device and number of each that exists: what any other name shares."""
    found = (path.stat() for path in paths if path.exists())
    return {*paths, *((status.st_dev, status.st_ino) for status in found)}


def _text(kind: str, name: str, content: Mapping[str, object]) -> bytes:
    """Return the signed text: the kind of file, its sender, and its content."""
    return json.dumps(["pate silos", kind, name, content], sort_keys=True).encode()


def _bytes_by_name(
    texts: Mapping[str, object], names: Mapping[str, object], path: Path
) -> dict[str, bytes]:
    with expecting(f"what `pate` sends in {path}", ValueError, got="a damaged file"):
        require_known("names", texts, names)
        return {name: bytes.fromhex(str(text)) for name, text in texts.items()}
