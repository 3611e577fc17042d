"""Votes of teachers on public samples, and the bit-packed form in which they are stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate._typing import BoolArray, Float32Array, FloatArray, IntArray, StrArray, UInt8Array
from pate._validation import require, require_count
from pate._votes.voters import ScoreVoters, Voters, encode_scores

CountArray = NDArray[np.integer]
Ballots = Literal["bits", "scores", "moments", "masked"]
"""What ballots are: a vote, 0 or 1, on each label of each public sample; a score in its place; moments; or nobody's."""
Voting = Literal["bits", "scores", "quantile_bits"]
"""How a network votes: by decisions, by probabilities, or for as many of its best samples as its own records say."""

_ENTRIES = 1 << 22  # votes unpacked at once


@dataclass(frozen=True)
class VoteShape:
    """The numbers of teachers and labels: the public facts on which the cost of a query depends.

    Attributes:
        num_teachers: the nominal number of teachers, 2 .. 2^53 - 1: a public constant, never
            measured.
        num_labels: number of labels that they vote on, at least 1.
    """

    num_teachers: int
    num_labels: int

    def __post_init__(self) -> None:
        require_count(2, num_teachers=self.num_teachers)
        require_count(1, num_labels=self.num_labels)
        # counts are added to noise, as floats
        require(self.num_teachers < 2**53, "num_teachers < 2^53", num_teachers=self.num_teachers)


class NoisyTotal(Protocol):
    """The sum of the counts of several silos with shares of noise, which nobody sees before it is opened."""

    @property
    def identity(self) -> str:
        """What no other sum has: one that was paid for pays for no other, whose noise is new."""

    def open(self) -> tuple[NDArray[np.uint64], int]:
        """Return the sum ``[Q, C]``, in steps of the grid of the shares modulo 2^64, and the number of its silos."""


@dataclass(frozen=True, kw_only=True)
class Votes:
    """The votes on a batch of queries.

    Attributes:
        counts: ``[Q, C]`` integers in ``[0, num_teachers]``, the number of teachers that gave each
            label.
        num_teachers: the nominal number of teachers.
        ballots: ``[Q, T, C]`` in {0, 1}, the vote of each teacher, for mechanisms that need it;
            otherwise None.
        predictions: ``[Q, C]`` in [0, 1], public predictions of a student of earlier releases; None
            without one.
        features: ``[Q, F]`` float64, public features of the queries, flattened; None unless they
            are needed.
        voters: those who vote by scores or moments, on all public samples, in place of labels on
            queries; or None.
        total: the sum of silos with its noise, in place of counts, which are zeros then; or None.
    """

    counts: CountArray
    num_teachers: int
    ballots: UInt8Array | None = None
    predictions: FloatArray | None = None
    features: FloatArray | None = None
    voters: Voters | None = None
    total: NoisyTotal | None = None

    def __post_init__(self) -> None:
        counts = np.asarray(self.counts)
        require(
            counts.ndim == 2 and counts.shape[1] > 0,
            "counts of shape [Q, C] with C > 0",
            shape=counts.shape,
        )
        require(counts.dtype.kind in "iu", "integer counts", dtype=str(counts.dtype))
        VoteShape(self.num_teachers, counts.shape[1])
        if counts.size:
            inside = counts.min() >= 0 and counts.max() <= self.num_teachers
            require(
                inside,
                f"counts in 0..{self.num_teachers}",
                minimum=int(counts.min()),
                maximum=int(counts.max()),
            )
        object.__setattr__(self, "counts", counts)
        if self.ballots is not None:
            shape = (len(counts), self.num_teachers, counts.shape[1])
            require(
                self.ballots.shape == shape,
                f"ballots of shape {list(shape)}",
                shape=self.ballots.shape,
            )
        if self.predictions is not None:
            predictions = np.asarray(self.predictions, dtype=np.float64)
            require(
                predictions.shape == counts.shape,
                f"predictions of {counts.shape}",
                shape=predictions.shape,
            )
            require(
                ((predictions >= 0) & (predictions <= 1)).all(),
                "predictions in [0, 1]",
                predictions="others",
            )
            object.__setattr__(self, "predictions", predictions)
        if self.features is not None:
            features = np.asarray(self.features, dtype=np.float64)
            flat = features.ndim == 2 and len(features) == len(counts)
            require(flat, f"features of shape [{len(counts)}, F]", shape=features.shape)
            require(np.isfinite(features).all(), "finite features", features="others")
            object.__setattr__(self, "features", features)
        if self.voters is not None:
            theirs = VoteShape(self.voters.num_voters, self.voters.num_labels)
            require(theirs == self.shape, f"voters of {self.shape}", voters=theirs)

    def __getitem__(self, rows: NDArray[Any] | slice) -> Votes:
        """Return the votes on some of the queries, by index ``[n]``, mask ``[Q]`` or slice.

        Raises:
            ValueError: if they are a sum of silos, which is opened as a whole.
        """
        require(self.total is None, "all queries of a noisy sum", rows="some")
        return Votes(
            counts=self.counts[rows],
            num_teachers=self.num_teachers,
            ballots=None if self.ballots is None else self.ballots[rows],
            predictions=None if self.predictions is None else self.predictions[rows],
            features=None if self.features is None else self.features[rows],
            voters=self.voters,
        )

    def with_voters(self) -> Votes:
        """Return the votes with their teachers as voters, who score each label of a query by their votes, 0 or 1.

        Raises:
            ValueError: without ballots or features, or as `Geometry.of` does.
        """
        if self.ballots is None or self.features is None:
            raise ValueError(
                "Expected votes with the ballot of each teacher and with features, got others"
            )
        return replace(
            self,
            voters=ScoreVoters.of((encode_scores(self.ballots.swapaxes(0, 1)),), self.features),
        )

    @classmethod
    def from_counts(cls, counts: ArrayLike, num_teachers: int) -> Votes:
        """Return votes that hold counts ``[Q, C]`` alone."""
        return cls(counts=np.asarray(counts), num_teachers=num_teachers)

    @classmethod
    def from_voters(cls, voters: Voters, features: ArrayLike) -> Votes:
        """Return votes of voters who are asked by their ballots alone, for queries of features ``[Q, F]``."""
        queries = np.asarray(features, dtype=np.float64)
        counts = np.zeros((len(queries), voters.num_labels), dtype=np.int64)
        return cls(counts=counts, num_teachers=voters.num_voters, features=queries, voters=voters)

    @classmethod
    def from_total(cls, total: NoisyTotal, num_queries: int, shape: VoteShape) -> Votes:
        """Return votes of which nothing but a noisy sum can be known."""
        counts = np.zeros((num_queries, shape.num_labels), dtype=np.int64)
        return cls(counts=counts, num_teachers=shape.num_teachers, total=total)

    @classmethod
    def from_ballots(cls, ballots: ArrayLike) -> Votes:
        """Return votes with the ballot of each teacher, ``[Q, T, C]`` in {0, 1}."""
        ballots = np.asarray(ballots)
        require(ballots.ndim == 3, "ballots of shape [Q, T, C]", shape=ballots.shape)
        require(
            np.isin(ballots, (0, 1)).all(),
            "ballots in {0, 1}",
            values=np.unique(ballots)[:5].tolist(),
        )
        ballots = ballots.astype(np.uint8)
        return cls(
            counts=ballots.sum(axis=1, dtype=np.int64),
            num_teachers=ballots.shape[1],
            ballots=ballots,
        )

    @property
    def shape(self) -> VoteShape:
        """The numbers of teachers and labels."""
        return VoteShape(self.num_teachers, self.num_labels)

    @property
    def num_queries(self) -> int:
        """The number of queries."""
        return int(self.counts.shape[0])

    @property
    def num_labels(self) -> int:
        """The number of labels of each query."""
        return int(self.counts.shape[1])


def pack_ballots(ballots: ArrayLike) -> UInt8Array:
    """Pack ballots ``[..., C]`` in {0, 1} into ``[..., ceil(C / 8)]`` bytes."""
    return np.packbits(np.asarray(ballots, dtype=np.uint8), axis=-1)


def unpack_ballots(packed: UInt8Array, num_labels: int) -> UInt8Array:
    """Undo `pack_ballots`."""
    return np.unpackbits(packed, axis=-1, count=num_labels)


def teacher_blocks(num_teachers: int, entries: int) -> Iterator[slice]:
    """Yield blocks of teachers that cast a few million votes together, at ``entries`` votes per teacher."""
    step = max(1, _ENTRIES // max(1, entries))
    for start in range(0, num_teachers, step):
        yield slice(start, min(start + step, num_teachers))


def drawn_rows(available: int, num_queries: int, *, seed: int) -> IntArray:
    """Return the first rows ``[Q]`` of samples in the public order of ``seed``.

    Raises ``ValueError`` if there are not enough samples.
    """
    require(num_queries <= available, f"num_queries <= {available}", num_queries=num_queries)
    rows: IntArray = np.random.default_rng(seed).permutation(available)[:num_queries]
    return rows


def rows_of(wanted: StrArray, ids: StrArray) -> IntArray:
    """Return the rows ``[Q]`` of ``ids`` ``[N]`` that hold ``wanted``.

    Raises ``ValueError`` if one is missing.
    """
    order = np.argsort(ids)
    rows: IntArray = order[np.searchsorted(ids, wanted, sorter=order).clip(max=len(ids) - 1)]
    missing = wanted[ids[rows] != wanted]
    require(
        missing.size == 0, "labelled samples among the public records", missing=missing[:3].tolist()
    )
    return rows


def highest(logits: Float32Array, shares: Float32Array) -> BoolArray:
    """Return which samples have the largest of one teacher's ``logits`` ``[Q, C]``, ``shares`` ``[C]`` of them all.

    Of equal logits the first are taken, in the public order of the samples.
    """
    taken = np.arange(len(logits))[:, None] < np.rint(shares * len(logits))
    chosen = np.empty(logits.shape, dtype=np.bool_)
    np.put_along_axis(chosen, np.argsort(-logits, axis=0, kind="stable"), taken, axis=0)
    return chosen
