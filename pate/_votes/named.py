"""Votes that were cast elsewhere, by the teachers of a silo, on samples and labels with names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate._files.arrays import Blocks, read_arrays
from pate._files.hashing import Stream, digest
from pate._files.writing import write_arrays
from pate._progress import step_bar
from pate._typing import FloatArray, IntArray, StrArray, UInt8Array
from pate._validation import require, require_count, require_distinct, require_label_names
from pate._votes.kinds import (
    Ballots,
    Counts,
    Scores,
    Votes,
    VoteShape,
    checked_bits,
    pack_ballots,
    unpack_ballots,
)
from pate._votes.store import FORMS
from pate._votes.voters import SCORE_STEPS, encode_scores

ScoreArray = NDArray[np.floating[Any]]

_GIVE = "ballots [N, T, C], scores [N, T, C], or counts [N, C] with num_teachers"
_NAMES = ("ids", "label_names", "ballots", "scores", "counts", "num_teachers", "features")


@dataclass(frozen=True, kw_only=True, eq=False)
class NamedVotes:
    """The votes of teachers from anywhere, with the names of what they voted on. PRIVATE.

    Samples are kept in the order of their ids, so that the order in which they were given, which
    may have come from something private, reaches nothing.

    Args:
        ids: ``[N]``, the ids of public samples, each once.
        label_names: names of the ``C`` labels, each once.
        ballots: ``[N, T, C]`` in {0, 1}, the vote of each teacher, or ``[N, C]`` of one teacher; or
            instead
        scores: ``[N, T, C]`` floats in [0, 1], such as the probabilities of each teacher, or ``[N,
            C]`` of one teacher; NaN all over from a teacher that takes no part. They are kept as
            float16; or instead
        counts: ``[N, C]`` integers in ``[0, num_teachers]``, the number of teachers that gave each
            label.
        num_teachers: the nominal number of teachers, a public constant; needed with counts alone.
        features: ``[N, F]`` finite public features of the samples, for an aggregator that needs
            them; None without.

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
    # [T, N, ceil(C / 8)] beside the counts, in place of ballots that came in blocks
    _packed: UInt8Array | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        ids, names = _texts("ids", self.ids), _texts("label_names", self.label_names)
        forms: dict[str, Any] = {
            "ballots": self.ballots,
            "scores": self.scores,
            "counts": self.counts,
        }
        present = [name for name, votes in forms.items() if votes is not None]
        require(len(present) == 1, f"either {_GIVE}", present=present)
        order = np.argsort(ids)
        shape = (len(ids), len(names))
        ballots, scores, counts = forms.values()
        if counts is None:
            if isinstance(ballots, Blocks):
                forms["_packed"], forms["counts"] = _packed_ballots(ballots, order, shape)
                forms["ballots"], present_teachers = None, len(forms["_packed"])
            else:
                checked = (
                    _checked_ballots(ballots, shape)
                    if scores is None
                    else _checked_scores(scores, shape)
                )
                forms[present[0]], present_teachers = checked[order], checked.shape[1]
            teachers = present_teachers if self.num_teachers is None else self.num_teachers
            as_present = f"num_teachers={present_teachers}, as in {present[0]}"
            require(teachers == present_teachers, as_present, num_teachers=teachers)
        else:
            require(
                self.num_teachers is not None,
                "num_teachers, the public number behind the counts",
                num_teachers=None,
            )
            assert self.num_teachers is not None
            teachers = self.num_teachers
            require_count(1, num_teachers=teachers)
            forms["counts"] = _checked_counts(counts, shape, teachers)[order]
        canonical = {"ids": ids[order], "label_names": tuple(names.tolist()), **forms}
        if self.features is not None:
            canonical["features"] = _checked_features(self.features, len(ids))[order]
        for name, value in (canonical | {"num_teachers": int(teachers)}).items():
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
        """Read one ``.npz`` with the arrays that the constructor takes.

        Raises ``ValueError`` in one line.
        """
        return cls._read(path, packing=False)

    @classmethod
    def _read(cls, path: Path, *, packing: bool) -> Self:
        """Read votes, with ballots as they are or packed block by block: they may be many."""
        unread, what = (
            ("ballots",) if packing else (),
            "an .npz file of votes without pickled objects",
        )
        optional = [name for name in _NAMES[2:] if name not in unread]
        arrays: dict[str, Any] = {
            **read_arrays(path, _NAMES[:2], optional, unread=unread, what=what)
        }
        arrays |= {
            name: blocks
            for name in unread
            if (blocks := Blocks.find(path, name, what=what)) is not None
        }
        teachers = arrays.pop("num_teachers", None)
        try:
            if teachers is not None:
                is_integer = teachers.ndim == 0 and teachers.dtype.kind in "iu"
                require(
                    is_integer,
                    "one integer num_teachers",
                    shape=teachers.shape,
                    dtype=str(teachers.dtype),
                )
            return cls(**arrays, num_teachers=None if teachers is None else int(teachers))
        except ValueError as error:
            raise ValueError(
                str(error) if str(path) in str(error) else f"{error} ({path})"
            ) from None

    def save(self, path: Path | str) -> None:
        """Write the ``.npz`` that `read` reads, whole or not at all."""
        values = {name: getattr(self, name) for name in _NAMES}
        write_arrays(
            Path(path),
            **{name: np.asarray(value) for name, value in values.items() if value is not None},
        )

    @property
    def kind(self) -> type[Votes]:
        """The kind of the votes: `Scores`, `Ballots` or `Counts`."""
        if self.scores is not None:
            return Scores
        return Counts if self.ballots is None and self._packed is None else Ballots

    def to_store(self, kind: type[Votes]) -> UInt8Array | None:
        """Return each teacher's ballot as a `VoteStore` keeps it; None if only counts are known.

        It is ``[T, N, C]`` for `Scores`, which ballots are too, and else ``[T, N, ceil(C / 8)]``.
        """
        if self._packed is not None and kind is not Scores:
            return self._packed
        if self._packed is not None:
            return encode_scores(unpack_ballots(self._packed, len(self.label_names)))
        votes = self.ballots if self.scores is None else self.scores
        if votes is None:
            return None
        teachers = votes.swapaxes(0, 1)
        if kind is Scores:
            return np.stack([encode_scores(ballots) for ballots in teachers])
        return pack_ballots(teachers)

    def fingerprint(self) -> str:
        """Return a hash of all names, votes and features. PRIVATE."""
        stored = self.to_store(self.kind)
        votes = self.counts if stored is None else stored
        assert votes is not None
        head = json.dumps(
            [
                self.ids.tolist(),
                self.label_names,
                self.num_teachers,
                stored is None,
                FORMS[self.kind],
            ]
        )
        arrays = (votes,) if self.features is None else (votes, self.features)
        contents = (np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays)
        return digest(head, *(Stream(content.nbytes, [content]) for content in contents))


@dataclass(frozen=True, eq=False)
class Silo:
    """What is known of the votes of one silo, which are read again when they are needed. PRIVATE.

    Attributes:
        source: its votes, or the file that holds them.
        num_teachers: the nominal number of its teachers.
        kind: the kind of its votes.
        fingerprint: a hash of all names, votes and features.
        vote_sum_digest: a hash of the sum of its votes, in steps of scores, which a copy with its
            teachers in another order shares; None if they answered all samples alike.
    """

    source: NamedVotes | Path
    num_teachers: int
    kind: type[Votes]
    fingerprint: str
    vote_sum_digest: str | None

    def votes(self) -> NamedVotes:
        """Return the votes.

        Raises ``ValueError`` if their file has changed since it was first read.
        """
        votes = read_votes(self.source)
        same = votes is self.source or votes.fingerprint() == self.fingerprint
        require(same, f"the votes that {self.source} held when this command began", votes="others")
        return votes


@dataclass(frozen=True, eq=False)
class Silos:
    """Votes of silos on the same samples and labels.

    Those in files are in memory one at a time. PRIVATE.

    Attributes:
        ids: ``[N]``, the ids of the samples, sorted.
        label_names: names of the labels.
        features: ``[N, F]``, the features that some silo brings; None if none does.
        members: the silos, in the order in which their teachers are counted.
    """

    ids: StrArray
    label_names: tuple[str, ...]
    features: FloatArray | None
    members: tuple[Silo, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the silo of one file, or those of all ``.npz`` files of a folder, sorted by name.

        Raises ``ValueError`` in one line, as `of` does, or if there is no file.
        """
        files = [path]
        if path.is_dir():
            files = sorted(file for file in path.glob("*.npz") if not file.name.startswith("."))
            require(files, f"an .npz file of votes for each silo in {path}", files=0)
        return cls.of(files)

    @classmethod
    def of(cls, sources: Sequence[NamedVotes | Path]) -> Self:
        """Return the silos that are in memory or in files.

        Raises ``ValueError`` unless they voted on the same samples and labels, with two teachers or
        more in all, and bring the same features, if any.
        """
        require(sources, "the votes of at least one silo", silos=0)
        joined: Self | None = None
        with step_bar(len(sources), "votes", unit="silo") as bar:
            for number, source in enumerate(sources):
                name = str(source) if isinstance(source, Path) else f"silo {number}"
                joined = cls._joined(joined, read_votes(source), source, name)
                bar.update()
        assert joined is not None
        require_count(2, num_teachers=joined.num_teachers)
        counted = [str(silo.source) for silo in joined.members if silo.kind is Counts]
        together = joined.kind is not Scores or not counted
        require(together, "ballots or scores of every silo where one has scores", counts=counted)
        return joined

    @classmethod
    def _joined(
        cls, before: Self | None, votes: NamedVotes, source: NamedVotes | Path, name: str
    ) -> Self:
        """Return the silos ``before`` with one more, which errors call ``name``."""
        assert votes.num_teachers is not None
        sums = _sums(votes)
        silo = Silo(
            source=source,
            num_teachers=votes.num_teachers,
            kind=votes.kind,
            fingerprint=votes.fingerprint(),
            vote_sum_digest=digest(sums.tobytes()) if (sums != sums[:1]).any() else None,
        )
        if before is None:
            return cls(votes.ids, votes.label_names, votes.features, (silo,))
        first = before.members[0].source
        place = str(first) if isinstance(first, Path) else "silo 0"
        names = ", ".join(before.label_names)
        same = votes.label_names == before.label_names
        require(
            same, f"label_names in {name} as in {place}: {names}", label_names=votes.label_names
        )
        others = np.setxor1d(votes.ids, before.ids)
        require(
            others.size == 0,
            f"the same ids in {name} as in {place}",
            in_one_alone=others[:3].tolist(),
        )
        features = before.features
        if features is None:
            features = votes.features
        elif votes.features is not None:
            same = np.array_equal(votes.features, features)
            require(same, f"features in {name} as in those before it", features="others")
        return replace(before, features=features, members=(*before.members, silo))

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """What tells whether these are the votes that a run was begun with."""
        return tuple(silo.fingerprint for silo in self.members)

    @property
    def num_teachers(self) -> int:
        """The nominal number of teachers of all silos."""
        return sum(silo.num_teachers for silo in self.members)

    @property
    def shape(self) -> VoteShape:
        """The numbers of teachers and labels."""
        return VoteShape(self.num_teachers, len(self.label_names))

    @property
    def kind(self) -> type[Votes]:
        """The kind of all votes: ballots among scores are scores, and among counts are counts."""
        kinds = {silo.kind for silo in self.members}
        return next(kind for kind in (Scores, Counts, Ballots) if kind in kinds)


def read_votes(source: NamedVotes | Path) -> NamedVotes:
    """Return the votes of a silo; ballots in a file are packed, an eighth as large, and counted."""
    return NamedVotes._read(source, packing=True) if isinstance(source, Path) else source


def _sums(votes: NamedVotes) -> IntArray:
    """Return sums over teachers ``[N, C]`` in steps of scores; a teacher that takes part adds 1."""
    if votes.scores is not None:
        sums = np.zeros(votes.scores[:, 0].shape, dtype=np.int64)
        for scores in votes.scores.swapaxes(0, 1):
            sums += encode_scores(scores)
        return sums
    counts = votes.counts if votes.ballots is None else votes.ballots.sum(axis=1, dtype=np.int64)
    assert counts is not None and votes.num_teachers is not None
    return votes.num_teachers + SCORE_STEPS * counts


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


def _by_teacher(name: str, votes: ArrayLike, shape: tuple[int, int]) -> NDArray[Any]:
    """Return votes ``[N, T, C]``, T = 1 if they are ``[N, C]``."""
    array = np.asarray(votes)
    return array.reshape(_shape_by_teacher(name, array.shape, shape))


def _shape_by_teacher(
    name: str, votes: tuple[int, ...], shape: tuple[int, int]
) -> tuple[int, int, int]:
    """Return ``[N, T, C]`` for votes of that shape, T = 1 if it is ``[N, C]``."""
    (size, labels), full = shape, (votes[0], 1, votes[1]) if len(votes) == 2 else votes
    fits = len(full) == 3 and (full[0], full[2]) == shape and full[1] > 0
    require(fits, f"{name} of shape [{size}, T, {labels}], as ids and label_names say", shape=full)
    return size, full[1], labels


def _packed_ballots(
    ballots: Blocks, order: IntArray, shape: tuple[int, int]
) -> tuple[UInt8Array, IntArray]:
    """Return ballots ``[T, N, ceil(C / 8)]`` and their counts ``[N, C]``, samples in ``order``."""
    size, teachers, labels = _shape_by_teacher("ballots", ballots.shape, shape)
    packed = np.empty((teachers, size, -(-labels // 8)), dtype=np.uint8)
    counts, rows, start = np.empty(shape, dtype=np.int64), np.argsort(order), 0
    for block in ballots:
        checked = _checked_ballots(block, (len(block), labels))
        chosen = rows[start : start + len(block)]
        counts[chosen] = checked.sum(axis=1, dtype=np.int64)
        packed[:, chosen] = pack_ballots(checked.swapaxes(0, 1))
        start += len(block)
    return packed, counts


def _checked_ballots(ballots: ArrayLike, shape: tuple[int, int]) -> UInt8Array:
    """Return ballots ``[N, T, C]`` as uint8."""
    return checked_bits(_by_teacher("ballots", ballots, shape))


def _checked_scores(scores: ArrayLike, shape: tuple[int, int]) -> NDArray[np.float16]:
    """Return scores ``[N, T, C]`` as float16."""
    array = _by_teacher("scores", scores, shape)
    require(array.dtype.kind == "f", "scores that are floats in [0, 1]", dtype=str(array.dtype))
    # NaN aside
    low, high = (float(extreme.reduce(array, axis=None)) for extreme in (np.fmin, np.fmax))
    require(not (low < 0 or high > 1), "scores in [0, 1]", minimum=low, maximum=high)
    # teacher by teacher, for there may be many
    absent = [np.isnan(array[:, teacher]).mean() for teacher in range(array.shape[1])]
    require(
        set(absent) <= {0, 1},
        "scores in [0, 1], or NaN all over from a teacher that takes no part",
        values="nan",
    )
    return array.astype(np.float16, copy=False)


def _checked_features(features: NDArray[Any], size: int) -> FloatArray:
    """Return features ``[N, F]`` as float64."""
    array = np.asarray(features)
    require(
        array.ndim == 2 and len(array) == size,
        f"features of shape [{size}, F], as ids say",
        shape=array.shape,
    )
    require(array.dtype.kind in "buif", "features that are numbers", dtype=str(array.dtype))
    require(np.isfinite(array).all(), "finite features", features="others")
    most = float(np.finfo(np.float32).max)
    within = np.abs(array).max(initial=0) <= most
    require(within, "features up to 3.4e38, the largest number of float32", features="larger ones")
    return array.astype(np.float64)


def _checked_counts(counts: NDArray[Any], shape: tuple[int, int], num_teachers: int) -> IntArray:
    """Return counts ``[N, C]`` as int64 in ``[0, num_teachers]``."""
    array = np.asarray(counts)
    require(
        array.shape == shape,
        f"counts of shape {list(shape)}, as ids and label_names say",
        shape=array.shape,
    )
    require(array.dtype.kind in "iu", "integer counts", dtype=str(array.dtype))
    inside = array.min() >= 0 and array.max() <= num_teachers
    require(
        inside, f"counts in 0..{num_teachers}", minimum=int(array.min()), maximum=int(array.max())
    )
    return array.astype(np.int64)
