"""Votes that were cast elsewhere, on samples and labels that have names.

`NamedVotes` are the votes of one silo, in a file or in memory. `Silos` agree on samples and labels,
and are counted together. Only their facts are held: the votes of each are read when needed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from pate._core.files.reading import Blocks, Stream, digest, read_arrays
from pate._core.files.writing import write_arrays
from pate._core.progress import step_bar
from pate._core.validation import (
    LARGEST,
    FloatArray,
    IntArray,
    StrArray,
    UInt8Array,
    require,
    require_count,
    require_distinct,
    require_given,
    require_label_names,
)
from pate._labeling.runs.vote_store import VoteFacts
from pate._labeling.votes.kinds import (
    Ballots,
    Counts,
    Filed,
    ScoreArray,
    Scores,
    Votes,
    pack_ballots,
    require_counts,
    shape_by_teacher,
    unpack_ballots,
)
from pate._labeling.votes.voters import encode_scores

_KINDS = [kind for kind in Votes.kinds.values() if issubclass(kind, Filed)]
_BY_TEACHER = ", ".join(kind.content for kind in _KINDS if kind is not Counts)
_CHOICE = f"{_BY_TEACHER}, or {Counts.content}"
_FILE = "an .npz file of votes without pickled objects"
_NAMES = ("ids", "label_names", *(kind.array for kind in _KINDS), "num_teachers", "features")


@dataclass(frozen=True, kw_only=True, eq=False)
class NamedVotes:
    """Votes of any teachers, with the names of samples and labels. PRIVATE.

    Samples are sorted by id. Their original order, which may reflect something private, has no
    effect.

    Args:
        ids: ``[N]``, distinct ids of public samples.
        label_names: distinct names of the ``C`` labels.
        ballots: ``[N, T, C]`` in {0, 1}, the vote of each teacher, or ``[N, C]`` of one teacher; or
            instead
        scores: ``[N, T, C]`` floats in [0, 1], such as the probabilities of each teacher, or ``[N,
            C]`` of one teacher; NaN everywhere for a teacher that takes no part. They are kept as
            float16; or instead
        counts: ``[N, C]`` integers in ``[0, num_teachers]``, the number of teachers that gave each
            label.
        num_teachers: the nominal number of teachers, a public constant; only counts need it.
        features: ``[N, F]`` finite public features of the samples, for an aggregator that needs
            them. None without.

    Raises:
        ValueError: in one line, if shapes disagree, an id or a label name occurs twice, or a vote
            is out of range.
    """

    ids: StrArray
    label_names: tuple[str, ...]
    ballots: UInt8Array | None = None
    scores: ScoreArray | None = None
    counts: IntArray | None = None
    num_teachers: int | None = None
    features: FloatArray | None = None
    # [T, N, ceil(C / 8)], in place of ballots that are read in blocks; counts are known too
    _packed: UInt8Array | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        ids, names = _texts("ids", self.ids), _texts("label_names", self.label_names)
        kinds = [kind for kind in _KINDS if getattr(self, kind.array) is not None]
        forms = [kind.array for kind in kinds]
        require(len(forms) == 1, f"either {_CHOICE}", present=forms)
        form, votes = forms[0], getattr(self, forms[0])
        order, shape, teachers = np.argsort(ids), (len(ids), len(names)), self.num_teachers
        values: dict[str, Any] = {"ids": ids[order], "label_names": tuple(names.tolist())}
        if form == "counts":
            behind = "num_teachers, the public number behind the counts"
            teachers = require_given(teachers, behind, num_teachers=None)
            require_count(1, num_teachers=teachers)
            counts = require_counts(Counts.checked(votes, shape), teachers)
            values[form], num_voting = counts.astype(np.int64)[order], teachers
        elif isinstance(votes, Blocks):
            values["_packed"], values["counts"] = _packed_ballots(votes, order, shape)
            values[form], num_voting = None, len(values["_packed"])
        else:
            values[form] = kinds[0].checked(votes, shape)[order]
            num_voting = values[form].shape[1]
        require(
            teachers in (None, num_voting),
            f"num_teachers={num_voting}, as in {form}",
            num_teachers=teachers,
        )
        if self.features is not None:
            values["features"] = _checked_features(self.features, len(ids))[order]
        for name, value in (values | {"num_teachers": int(num_voting)}).items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, votes: Counts, *, ids: ArrayLike, label_names: Sequence[str]) -> Self:
        """Return counts or ballots with names, and with their features if they have them.

        >>> votes = Votes.from_counts([[95, 90], [5, 0]], num_teachers=100)
        >>> named = NamedVotes.of(votes, ids=["x", "y"], label_names=["effusion", "nodule"])
        >>> named.label_names
        ('effusion', 'nodule')
        """
        content: dict[str, Any] = (
            {"ballots": votes.ballots} if isinstance(votes, Ballots) else {"counts": votes.counts}
        )
        return cls(
            ids=np.asarray(ids),
            label_names=tuple(label_names),
            num_teachers=votes.num_teachers,
            features=votes.features,
            **content,
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the arguments of the constructor from an ``.npz`` file.

        Raises ``ValueError`` in one line.
        """
        return cls._read(path, packed=False)

    @classmethod
    def _read(cls, path: Path, *, packed: bool) -> Self:
        """Read votes; optionally pack ballots block by block, as there may be many."""
        unread = ("ballots",) if packed else ()
        optional = [name for name in _NAMES[2:] if name not in unread]
        values = dict[str, Any](read_arrays(path, _NAMES[:2], optional, unread=unread, what=_FILE))
        if packed:
            values["ballots"] = Blocks.find(path, "ballots", what=_FILE)
        try:
            if (teachers := values.get("num_teachers")) is not None:
                wrong = {"shape": teachers.shape, "dtype": str(teachers.dtype)}
                is_integer = teachers.ndim == 0 and teachers.dtype.kind in "iu"
                require(is_integer, "one integer num_teachers", **wrong)
                values["num_teachers"] = int(teachers)
            return cls(**values)
        except ValueError as error:
            place = "" if str(path) in str(error) else f" ({path})"
            raise ValueError(f"{error}{place}") from None

    def save(self, path: Path | str) -> None:
        """Write the ``.npz`` file that `read` reads, completely or not at all."""
        arrays = {
            name: np.asarray(value) for name in _NAMES if (value := getattr(self, name)) is not None
        }
        write_arrays(Path(path), **arrays)

    @property
    def kind(self) -> type[Votes]:
        """The kind of the votes."""
        return self._filed

    @property
    def _filed(self) -> type[Filed]:
        if self._packed is not None:
            return Ballots
        return next(kind for kind in _KINDS if getattr(self, kind.array) is not None)

    def to_store(self, kind: type[Votes]) -> UInt8Array | None:
        """Return the votes of each teacher in the format of a `VoteStore`. None for counts.

        Ballots are packed, unless they are stored as `Scores`.
        """
        if self._packed is not None and kind is Scores:
            return encode_scores(unpack_ballots(self._packed, len(self.label_names)))
        if self._packed is not None:
            return self._packed
        filed = Scores if kind is Scores else self._filed
        return filed.stored(getattr(self, self._filed.array))

    def sums(self) -> IntArray:
        """Return `Counts.summed` of the votes."""
        kind = Counts if self._packed is not None else self._filed
        assert self.num_teachers is not None
        return kind.summed(getattr(self, kind.array), self.num_teachers)

    def fingerprint(self) -> str:
        """Return a hash of all names, votes and features. PRIVATE."""
        stored = self.to_store(self.kind)
        votes = self.counts if stored is None else stored
        assert votes is not None
        names = [self.ids.tolist(), self.label_names, self.num_teachers]
        head = json.dumps([*names, stored is None, self.kind.form])
        arrays = (votes,) if self.features is None else (votes, self.features)
        contents = (np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays)
        return digest(head, *(Stream(content.nbytes, [content]) for content in contents))


@dataclass(frozen=True, eq=False)
class Silo:
    """The facts about the votes of one silo. Its votes are read again when needed. PRIVATE.

    Attributes:
        source: its votes, or the file that holds them.
        num_teachers: the nominal number of its teachers.
        kind: the kind of its votes.
        fingerprint: a hash of all names, votes and features.
        vote_sum_digest: a hash of the sum of its votes in steps of scores, the same for a copy with
            its teachers in another order. None if they answered all samples alike.
    """

    source: NamedVotes | Path
    num_teachers: int
    kind: type[Votes]
    fingerprint: str
    vote_sum_digest: str | None

    @classmethod
    def of(cls, source: NamedVotes | Path, votes: NamedVotes) -> Self:
        """Return the facts about ``votes``, which were read from ``source``."""
        assert votes.num_teachers is not None
        sums = votes.sums()
        return cls(
            source,
            num_teachers=votes.num_teachers,
            kind=votes.kind,
            fingerprint=votes.fingerprint(),
            vote_sum_digest=digest(sums.tobytes()) if (sums != sums[:1]).any() else None,
        )

    def votes(self) -> NamedVotes:
        """Return the votes.

        Raises ``ValueError`` if their file has changed since it was first read.
        """
        votes = read_votes(self.source)
        require(
            votes is self.source or votes.fingerprint() == self.fingerprint,
            f"the votes that {self.source} held when this command began",
            votes="others",
        )
        return votes


@dataclass(frozen=True, eq=False)
class Silos:
    """Votes of silos on the same samples and labels. PRIVATE.

    Votes in files are read into memory one silo at a time.

    Attributes:
        ids: ``[N]``, the ids of the samples, sorted.
        label_names: names of the labels.
        features: ``[N, F]``, the features from any of the silos. None if there are none.
        members: the silos, in the order of their teachers.
    """

    ids: StrArray
    label_names: tuple[str, ...]
    features: FloatArray | None
    members: tuple[Silo, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the silo in one file, or all ``.npz`` files of a folder, sorted by name.

        Raises ``ValueError`` in one line, as `of` does, or if there is no file.
        """
        files = [path]
        if path.is_dir():
            files = sorted(file for file in path.glob("*.npz") if not file.name.startswith("."))
            require(files, f"an .npz file of votes for each silo in {path}", files=0)
        return cls.of(files)

    @classmethod
    def of(cls, sources: Sequence[NamedVotes | Path]) -> Self:
        """Return the silos with votes in memory or in files.

        Raises ``ValueError`` unless they voted on the same samples and labels, have two teachers or
        more in total, and agree on features, if any.
        """
        require(sources, "the votes of at least one silo", silos=0)
        joined: Self | None = None
        with step_bar(len(sources), "votes", unit="silo") as bar:
            for source in sources:
                joined = cls._joined(joined, source)
                bar.update()
        assert joined is not None
        require_count(2, num_teachers=joined.num_teachers)
        counted = [str(silo.source) for silo in joined.members if silo.kind is Counts]
        require(
            len({silo.kind for silo in joined.members} - {Ballots}) < 2,
            "ballots or scores of every silo where one has scores",
            counts=counted,
        )
        return joined

    @classmethod
    def _joined(cls, before: Self | None, source: NamedVotes | Path) -> Self:
        """Return the silos ``before``, if any, with one more."""
        votes = read_votes(source)
        silo = Silo.of(source, votes)
        if before is None:
            return cls(votes.ids, votes.label_names, votes.features, (silo,))
        name, first = _place(source, len(before.members)), _place(before.members[0].source, 0)
        require(
            votes.label_names == before.label_names,
            f"label_names in {name} as in {first}: {', '.join(before.label_names)}",
            label_names=votes.label_names,
        )
        others = np.setxor1d(votes.ids, before.ids)
        require(
            not others.size,
            f"the same ids in {name} as in {first}",
            in_one_alone=others[:3].tolist(),
        )
        known, features = before.features, votes.features
        require(
            known is None or features is None or np.array_equal(known, features),
            f"features in {name} as in those before it",
            features="others",
        )
        features = known if features is None else features
        return replace(before, features=features, members=(*before.members, silo))

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """Hashes that identify the votes that a run was begun with."""
        return tuple(silo.fingerprint for silo in self.members)

    @property
    def num_teachers(self) -> int:
        """The nominal number of teachers of all silos."""
        return sum(silo.num_teachers for silo in self.members)

    @property
    def facts(self) -> VoteFacts:
        """The public facts about all votes."""
        return VoteFacts(
            ids=self.ids,
            label_names=self.label_names,
            num_teachers=self.num_teachers,
            kind=self.kind,
            features=self.features,
        )

    @property
    def kind(self) -> type[Votes]:
        """The kind of all votes: ballots among scores are scores, and among counts are counts."""
        kinds = {silo.kind for silo in self.members}
        return next(iter(kinds - {Ballots}), Ballots)


def read_votes(source: NamedVotes | Path) -> NamedVotes:
    """Return the votes of a silo; ballots in a file are counted and packed to an eighth."""
    return NamedVotes._read(source, packed=True) if isinstance(source, Path) else source


def _place(source: NamedVotes | Path, number: int) -> str:
    """Return the name of a silo in errors."""
    return str(source) if isinstance(source, Path) else f"silo {number}"


def _texts(name: str, values: ArrayLike) -> StrArray:
    """Return names ``[N]`` as strings.

    Raises ``ValueError`` unless they are texts or integers, each once.
    """
    array = np.asarray(values)
    require(
        array.ndim == 1 and array.size > 0, f"{name} of shape [N] with N > 0", shape=array.shape
    )
    require(array.dtype.kind in "Uiu", f"{name} that are texts or integers", dtype=str(array.dtype))
    texts = array.astype(np.str_)
    if name == "label_names":
        require_label_names(name, texts.tolist())
    require_distinct(name, texts.tolist())
    return texts


def _packed_ballots(
    ballots: Blocks, order: IntArray, shape: tuple[int, int]
) -> tuple[UInt8Array, IntArray]:
    """Return ballots ``[T, N, ceil(C / 8)]`` and their counts ``[N, C]``, samples in ``order``."""
    size, teachers, labels = shape_by_teacher("ballots", ballots.shape, shape)
    packed = np.empty((teachers, size, -(-labels // 8)), dtype=np.uint8)
    counts, rows = np.empty(shape, dtype=np.int64), np.argsort(order)
    for block in ballots:
        checked = Ballots.checked(block, (len(block), labels))
        chosen, rows = np.split(rows, [len(block)])
        counts[chosen] = checked.sum(axis=1, dtype=np.int64)
        packed[:, chosen] = pack_ballots(checked.swapaxes(0, 1))
    return packed, counts


def _checked_features(features: ArrayLike, size: int) -> FloatArray:
    """Return features ``[N, F]`` as float64, clipped to what float32 holds."""
    array = np.asarray(features)
    require(
        array.ndim == 2 and len(array) == size,
        f"features of shape [{size}, F], as ids say",
        shape=array.shape,
    )
    require(array.dtype.kind in "buif", "features that are numbers", dtype=str(array.dtype))
    require(np.isfinite(array).all(), "finite features", features="others")
    return array.astype(np.float64).clip(-LARGEST, LARGEST)
