"""Votes of teachers on public samples: each kind of votes is a type.

    >>> votes = Votes.from_ballots([[[1, 0], [1, 1], [0, 0]]])  # one query, three teachers
    >>> votes.counts.tolist(), votes.shape
    ([[2, 1]], VoteShape(num_teachers=3, num_labels=2))

An aggregator lists its `Need`; votes of another kind are refused in one line.

    >>> require_kind(Scores, {Ballots}, "TauVoting")
    Traceback (most recent call last):
    ValueError: Expected votes that are Ballots, which TauVoting takes, got votes='Scores'
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, reduce
from types import UnionType
from typing import Any, ClassVar, Literal, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate._core.validation import (
    BoolArray,
    Float32Array,
    FloatArray,
    IntArray,
    StrArray,
    UInt8Array,
    given,
    require,
    require_count,
    require_given,
)
from pate._labeling.votes.voters import SCORE_STEPS, ScoreVoters, Voters, encode_scores

CountArray = NDArray[np.integer]
ScoreArray = NDArray[np.floating[Any]]
Voting = Literal["bits", "scores", "quantile_bits"]
"""How a network votes: by decisions, by scores, or for its best samples in known shares."""


@dataclass(frozen=True)
class VoteShape:
    """The numbers of teachers and labels: the public facts that decide the cost of a query.

    >>> VoteShape(num_teachers=800, num_labels=40).num_teachers
    800

    Attributes:
        num_teachers: the nominal number of teachers, 2 .. 2^53 - 1: a public constant, never
            measured.
        num_labels: number of labels that they vote on, at least 1.

    Raises:
        ValueError: on fewer than 2 teachers, or no label.
    """

    num_teachers: int
    num_labels: int

    def __post_init__(self) -> None:
        require_count(2, num_teachers=self.num_teachers)
        require_count(1, num_labels=self.num_labels)
        # counts are added to noise, as floats
        require(self.num_teachers < 2**53, "num_teachers < 2^53", num_teachers=self.num_teachers)


class NoisyTotal(Protocol):
    """The noisy sum of the counts of several silos, which can only be opened as a whole."""

    @property
    def identity(self) -> str:
        """An identifier of this sum; another sum has new noise, and is paid for separately."""

    def open(self) -> tuple[NDArray[np.uint64], int]:
        """Return the sum ``[Q, C]``, in steps modulo 2^64, and the number of silos in it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Votes(ABC):
    """The votes on a batch of queries, of one of the kinds below it.

    `from_counts`, `from_ballots`, `from_voters` and `from_total` make them. Indexed by ``[n]``
    rows, a mask ``[Q]`` or a slice, they are the votes on some of the queries.

    Attributes:
        num_teachers: the nominal number of teachers.
        num_labels: the number of labels of each query.
        num_queries: the number of queries.
        predictions: ``[Q, C]`` in [0, 1], public predictions of a student of earlier releases. None
            without one.
        features: ``[Q, F]`` float64, public features of the queries, flattened. None unless they
            are needed.
    """

    kinds: ClassVar[dict[str, type[Votes]]] = {}
    """All kinds of votes that a run may have, by name."""
    form: ClassVar[str] = ""
    """The word for the kind in manifests."""
    arrays: ClassVar[tuple[str, ...]] = ("predictions", "features")
    """Names of the arrays that have a row for each query."""

    num_teachers: int = field(init=False)
    num_labels: int = field(init=False)
    num_queries: int = field(init=False)
    predictions: FloatArray | None = None
    features: FloatArray | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.form:
            Votes.kinds[cls.__name__] = cls

    @staticmethod
    def from_counts(counts: ArrayLike, num_teachers: int) -> Counts:
        """Return votes with known counts ``[Q, C]``, integers in ``[0, num_teachers]``.

        >>> votes = Votes.from_counts([[95, 90, 5, 0]], num_teachers=100)
        >>> votes.shape
        VoteShape(num_teachers=100, num_labels=4)
        """
        return Counts(counts=np.asarray(counts), num_teachers=num_teachers)

    @staticmethod
    def from_ballots(ballots: ArrayLike) -> Ballots:
        """Return votes with the ballots of all teachers, ``[Q, T, C]`` in {0, 1}.

        >>> votes = Votes.from_ballots([[[1, 0], [1, 1], [0, 0]]])
        >>> votes.counts
        array([[2, 1]])
        """
        return Ballots(ballots=np.asarray(ballots))

    @staticmethod
    def from_voters(voters: Voters, features: ArrayLike) -> Scores | Moments:
        """Return votes of voters that answer moment queries, on samples of features ``[Q, F]``."""
        public = np.asarray(features, dtype=np.float64)
        if isinstance(voters, ScoreVoters):
            return Scores(voters=voters, features=public)
        return Moments(voters=voters, features=public)

    @staticmethod
    def from_total(total: NoisyTotal, num_queries: int, shape: VoteShape) -> MaskedTotal:
        """Return votes that are known only as a noisy sum."""
        return MaskedTotal(
            total=total,
            num_queries=num_queries,
            num_teachers=shape.num_teachers,
            num_labels=shape.num_labels,
        )

    @abstractmethod
    def __post_init__(self) -> None:
        size, num_labels = self.num_queries, self.num_labels
        if self.predictions is not None:
            predictions = np.asarray(self.predictions, dtype=np.float64)
            require(
                predictions.shape == (size, num_labels),
                f"predictions of {(size, num_labels)}",
                shape=predictions.shape,
            )
            require(((predictions >= 0) & (predictions <= 1)).all(), "predictions in [0, 1]")
            self._set(predictions=predictions)
        if self.features is not None:
            features = np.asarray(self.features, dtype=np.float64)
            require(
                features.ndim == 2 and len(features) == size,
                f"features of shape [{size}, F]",
                shape=features.shape,
            )
            require(np.isfinite(features).all(), "finite features")
            self._set(features=features)

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __getitem__(self, rows: NDArray[Any] | slice) -> Self:
        """Return the votes on some of the queries, by index ``[n]``, mask ``[Q]`` or slice."""
        part, arrays = copy(self), given(**{name: getattr(self, name) for name in self.arrays})
        part._set(
            **{name: array[rows] for name, array in arrays.items()},
            num_queries=len(np.arange(self.num_queries)[rows]),
        )
        return part

    def with_public(
        self, *, predictions: FloatArray | None = None, features: FloatArray | None = None
    ) -> Self:
        """Return the same votes with other public side information. None leaves it unchanged.

        >>> votes = Votes.from_counts([[95, 90, 5, 0]], num_teachers=100)
        >>> votes.with_public(predictions=np.full((1, 4), 0.5)).predictions
        array([[0.5, 0.5, 0.5, 0.5]])
        """
        votes = copy(self)
        votes._set(
            predictions=self.predictions if predictions is None else predictions,
            features=self.features if features is None else features,
        )
        Votes.__post_init__(votes)
        return votes

    @property
    def shape(self) -> VoteShape:
        """The numbers of teachers and labels."""
        return VoteShape(self.num_teachers, self.num_labels)


class Filed(Votes):
    """Votes that a file may hold, in an array with a row for each sample."""

    array: ClassVar[str]
    """The name of the array in files of votes."""

    @classmethod
    @abstractmethod
    def checked(cls, votes: ArrayLike, shape: tuple[int, int]) -> NDArray[Any]:
        """Return the array of a file of votes, ``[N, T, C]`` on samples and labels of a shape.

        Counts are ``[N, C]``; other votes ``[N, C]`` are those of one teacher. Raises
        ``ValueError`` if it does not fit.
        """

    @classmethod
    @abstractmethod
    def summed(cls, votes: NDArray[Any], num_teachers: int) -> IntArray:
        """Return sums ``[N, C]`` over teachers of the array of a file of votes.

        They are equal in copies of a file with its teachers in another order.
        """

    @classmethod
    @abstractmethod
    def stored(cls, votes: NDArray[Any]) -> UInt8Array | None:
        """Return the votes of each teacher ``[T, N, ..]`` as a store keeps them. None for counts.

        ``votes`` are the array of a file; ballots may be stored as scores.
        """


@dataclass(frozen=True, kw_only=True, eq=False)
class Counts(Filed):
    """Votes as numbers of teachers that gave each label.

    >>> votes = Votes.from_counts([[90, 10]], num_teachers=100)
    >>> type(votes).__name__, votes.shape.num_labels
    ('Counts', 2)

    Attributes:
        counts: ``[Q, C]`` integers in ``[0, num_teachers]``.
        num_teachers: the nominal number of teachers.

    Raises:
        ValueError: on counts outside ``0 .. num_teachers``.
    """

    form: ClassVar[str] = "bits"
    array: ClassVar[str] = "counts"
    arrays: ClassVar[tuple[str, ...]] = (*Votes.arrays, "counts")

    counts: CountArray
    num_teachers: int

    def __post_init__(self) -> None:
        counts = np.asarray(self.counts)
        require(
            counts.ndim == 2 and counts.shape[1] > 0,
            "counts of shape [Q, C] with C > 0",
            shape=counts.shape,
        )
        VoteShape(self.num_teachers, counts.shape[1])
        require_counts(counts, self.num_teachers)
        self._set(counts=counts, num_queries=len(counts), num_labels=counts.shape[1])
        super().__post_init__()

    @classmethod
    def checked(cls, votes: ArrayLike, shape: tuple[int, int]) -> NDArray[Any]:
        array = np.asarray(votes)
        require(
            array.shape == shape,
            f"counts of shape {list(shape)}, as ids and label_names say",
            shape=array.shape,
        )
        return array

    @classmethod
    def summed(cls, votes: NDArray[Any], num_teachers: int) -> IntArray:
        return num_teachers + SCORE_STEPS * votes  # as scores of 0 and 1 are

    @classmethod
    def stored(cls, votes: NDArray[Any]) -> UInt8Array | None:
        return None


@dataclass(frozen=True, kw_only=True, eq=False)
class Ballots(Counts):
    """Votes with the ballot of each teacher, which determine the counts and the voters.

    >>> votes = Votes.from_ballots([[[1, 0], [1, 1], [0, 0]]])
    >>> votes.counts
    array([[2, 1]])

    Attributes:
        ballots: ``[Q, T, C]`` in {0, 1}.
        whole: the votes that these are a part of; voters learn from all of its queries. None if
            these votes are complete.

    Raises:
        ValueError: on ballots outside {0, 1}.
    """

    array: ClassVar[str] = "ballots"
    arrays: ClassVar[tuple[str, ...]] = (*Counts.arrays, "ballots")

    ballots: UInt8Array
    counts: CountArray = field(init=False)
    num_teachers: int = field(init=False)
    whole: Ballots | Moments | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        shape = np.shape(self.ballots)
        require(len(shape) == 3, "ballots of shape [Q, T, C]", shape=shape)
        ballots = checked_bits(np.asarray(self.ballots))
        self._set(
            ballots=ballots, counts=ballots.sum(axis=1, dtype=np.int64), num_teachers=shape[1]
        )
        super().__post_init__()

    @classmethod
    def checked(cls, votes: ArrayLike, shape: tuple[int, int]) -> UInt8Array:
        return checked_bits(_by_teacher("ballots", votes, shape))

    @classmethod
    def summed(cls, votes: NDArray[Any], num_teachers: int) -> IntArray:
        return super().summed(votes.sum(axis=1, dtype=np.int64), num_teachers)

    @classmethod
    def stored(cls, votes: NDArray[Any]) -> UInt8Array | None:
        return pack_ballots(votes.swapaxes(0, 1))

    def __getitem__(self, rows: NDArray[Any] | slice) -> Self:
        part = super().__getitem__(rows)
        part._set(whole=self.whole or self)
        return part

    @cached_property
    def voters(self) -> Voters:
        """The teachers as voters, who score each label of a query by their votes, 0 or 1.

        Raises ``ValueError`` without features, or as `Geometry.of` does.
        """
        if self.whole is not None:
            return self.whole.voters
        features = require_given(self.features, "votes with the public features of their queries")
        return ScoreVoters.of((encode_scores(self.ballots.swapaxes(0, 1)),), features)


@dataclass(frozen=True, kw_only=True, eq=False)
class _OfVoters(Votes):
    voters: Voters
    features: FloatArray = field()

    def __post_init__(self) -> None:
        shape = VoteShape(self.voters.num_voters, self.voters.num_labels)
        self._set(
            num_teachers=shape.num_teachers,
            num_labels=shape.num_labels,
            num_queries=len(self.features),
        )
        super().__post_init__()


@dataclass(frozen=True, kw_only=True, eq=False)
class Scores(_OfVoters, Filed):
    """Votes of models that have scored the labels of all public samples.

    Attributes:
        voters: the models, with their scores.
        features: ``[Q, F]``, the public features of the queries.
    """

    form: ClassVar[str] = "scores"
    array: ClassVar[str] = "scores"

    voters: ScoreVoters

    @classmethod
    def checked(cls, votes: ArrayLike, shape: tuple[int, int]) -> NDArray[np.float16]:
        array = _by_teacher("scores", votes, shape)
        require(array.dtype.kind == "f", "scores that are floats in [0, 1]", dtype=str(array.dtype))
        # fmin and fmax ignore NaN
        low, high = (float(extreme.reduce(array, axis=None)) for extreme in (np.fmin, np.fmax))
        require(not (low < 0 or high > 1), "scores in [0, 1]", minimum=low, maximum=high)
        # one teacher at a time, to save memory
        require(
            {np.isnan(array[:, teacher]).mean() for teacher in range(array.shape[1])} <= {0, 1},
            "scores in [0, 1], or NaN all over from a teacher that takes no part",
            values="nan",
        )
        return array.astype(np.float16, copy=False)

    @classmethod
    def summed(cls, votes: NDArray[Any], num_teachers: int) -> IntArray:
        # one teacher at a time, to save memory
        return reduce(np.add, (encode_scores(x).astype(np.int64) for x in votes.swapaxes(0, 1)))

    @classmethod
    def stored(cls, votes: NDArray[Any]) -> UInt8Array | None:
        return np.stack([*map(encode_scores, votes.swapaxes(0, 1))])


@dataclass(frozen=True, kw_only=True, eq=False)
class Moments(_OfVoters):
    """Votes of private records, or groups of them, as answers to moment queries.

    Attributes:
        voters: the records or groups.
        features: ``[Q, F]``, the public features of the queries.
    """

    form: ClassVar[str] = "moments"


@dataclass(frozen=True, kw_only=True, eq=False)
class MaskedTotal(Votes):
    """Votes of silos that are known only as a noisy sum, once it is opened.

    Attributes:
        total: the sum.
        num_teachers: the nominal number of teachers of all silos.
        num_labels: the number of labels of each query.
        num_queries: the number of queries.
    """

    form: ClassVar[str] = "masked"

    total: NoisyTotal
    num_teachers: int
    num_labels: int
    num_queries: int

    def __post_init__(self) -> None:
        VoteShape(self.num_teachers, self.num_labels)
        super().__post_init__()

    def __getitem__(self, rows: NDArray[Any] | slice) -> Self:
        """Raise ``ValueError``: a sum of silos is opened as a whole."""
        raise ValueError("Expected all queries of a noisy sum, got some")


def kind_cast(voting: Voting) -> type[Votes]:
    """Return the kind of the votes that networks cast in a way."""
    return Scores if voting == "scores" else Ballots


Need: TypeAlias = type[Votes] | UnionType | Literal["predictions", "features"]
"""A need of an aggregator: a kind, several (``Counts | MaskedTotal``) or side information."""


def serves(kind: type[Votes], needs: Iterable[Need]) -> bool:
    """Return whether votes of a ``kind`` meet all needs other than side information.

    >>> serves(Ballots, {Counts, Ballots | Scores, "features"}), serves(Scores, {Counts})
    (True, False)
    """
    return all(issubclass(kind, need) for need in needs if not isinstance(need, str))


def require_kind(kind: type[Votes], needs: Iterable[Need], name: str) -> None:
    """Raise ``ValueError`` in one line unless votes of a ``kind`` meet the needs of ``name``."""
    needed = tuple(needs)
    taken = [name for name, each in Votes.kinds.items() if serves(each, needed)]
    # of records that vote for themselves
    other = " (`start_from: first` makes Ballots)" if kind is Moments and "Ballots" in taken else ""
    require(
        serves(kind, needed),
        f"votes that are {' or '.join(taken)}, which {name} takes{other}",
        votes=kind.__name__,
    )


def _by_teacher(name: str, votes: ArrayLike, shape: tuple[int, int]) -> NDArray[Any]:
    """Return votes ``[N, T, C]``, with T = 1 for votes ``[N, C]``."""
    array, (size, labels) = np.asarray(votes), shape
    full = array[:, None] if array.ndim == 2 else array
    require(
        full.ndim == 3 and full.shape == (size, full.shape[1], labels) and full.shape[1] > 0,
        f"{name} of shape [{size}, T, {labels}], as ids and label_names say",
        shape=full.shape,
    )
    return full


def require_counts(counts: NDArray[Any], num_teachers: int) -> NDArray[Any]:
    """Return counts. Raises ``ValueError`` unless they are integers in ``[0, num_teachers]``."""
    require(counts.dtype.kind in "iu", "integer counts", dtype=str(counts.dtype))
    low, high = int(counts.min(initial=0)), int(counts.max(initial=0))
    require(
        low >= 0 and high <= num_teachers, f"counts in 0..{num_teachers}", minimum=low, maximum=high
    )
    return counts


def checked_bits(ballots: NDArray[Any]) -> UInt8Array:
    """Return ballots as uint8. Raises ``ValueError`` unless all are 0 or 1."""
    require(ballots.dtype.kind in "buif", "ballots in {0, 1}", dtype=str(ballots.dtype))
    # there may be many ballots: make no copy in another type
    if ballots.dtype.kind == "f" or (ballots.size and (ballots.min() < 0 or ballots.max() > 1)):
        wrong = ballots[(ballots != 0) & (ballots != 1)]
        require(wrong.size == 0, "ballots in {0, 1}", values=np.unique(wrong)[:3].tolist())
    return ballots.astype(np.uint8, copy=False)


def pack_ballots(ballots: ArrayLike) -> UInt8Array:
    """Pack ballots ``[..., C]`` in {0, 1} into ``[..., ceil(C / 8)]`` bytes."""
    return np.packbits(np.asarray(ballots, dtype=np.uint8), axis=-1)


def unpack_ballots(packed: UInt8Array, num_labels: int) -> UInt8Array:
    """Undo `pack_ballots`."""
    return np.unpackbits(packed, axis=-1, count=num_labels)


def drawn_rows(available: int, num_queries: int, *, seed: int) -> IntArray:
    """Return the first rows ``[Q]`` of samples in the public order of ``seed``.

    Raises ``ValueError`` if there are not enough samples.
    """
    require(num_queries <= available, f"num_queries <= {available}", num_queries=num_queries)
    return np.random.default_rng(seed).permutation(available)[:num_queries]


def rows_of(wanted: StrArray, ids: StrArray) -> IntArray:
    """Return the rows ``[Q]`` of ``ids`` ``[N]`` that hold ``wanted``.

    Raises ``ValueError`` if one is missing.
    """
    order = np.argsort(ids)
    rows: IntArray = order[np.searchsorted(ids, wanted, sorter=order).clip(max=len(ids) - 1)]
    missing = wanted[ids[rows] != wanted]
    require(
        missing.size == 0, "labeled samples among the public records", missing=missing[:3].tolist()
    )
    return rows


def highest(logits: Float32Array, shares: Float32Array) -> BoolArray:
    """Return the samples with the largest ``logits`` ``[Q, C]``, in ``shares`` ``[C]`` of all.

    Ties go to the first samples in their public order.
    """
    taken = np.arange(len(logits))[:, None] < np.rint(shares * len(logits))
    chosen = np.empty(logits.shape, dtype=np.bool_)
    np.put_along_axis(chosen, np.argsort(-logits, axis=0, kind="stable"), taken, axis=0)
    return chosen
