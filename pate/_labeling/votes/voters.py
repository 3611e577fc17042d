"""Voters with moments along public directions as ballots, clipped and summed without rounding.

Public features are coordinates along their principal directions. A ballot is a mean of outer
products: of a sample's coordinates, one for each direction and a constant, and of its labels minus
the answers of a public student. A `MomentQuery` asks for it. Every number on the way lies on a
public grid so coarse that products and sums of it are exact in float64, in whatever order they are
taken: the sum over voters changes by a voter's own ballot, to the last bit, when the voter does.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import block_diag
from scipy.special import expit, logit

from pate._core.validation import (
    MOST_VOTERS,
    UNKNOWN,
    BoolArray,
    FloatArray,
    IntArray,
    UInt8Array,
    require,
    require_count,
)
from pate._labeling.linear import Directions, flat, power_above, product_bits

Int32Array = NDArray[np.int32]

_DIRECTIONS = 1 << 12  # of the features, the widest ones
# bits of a coordinate, and of a slope: sums of products over all directions are below 2^53
COORDINATE_BITS = 20
_SPARE = 4  # a coordinate may be so many times as large as the largest public one
_PER_COLUMN, _MOST_DRAWN, _WIDEST_DRAWN = 8, 2000, 256  # `with_drawn`
_ENTRIES = 1 << 22  # numbers worked on at once
_COPIES = 32  # of rows that are worked on at once: they stay in the processor's cache


@dataclass(frozen=True, eq=False)
class Geometry:
    """Public features as coordinates along their principal directions, on a grid of integers.

    Attributes:
        centre: ``[F]`` float64, the mean of the public features as whole numbers of ``step``.
        axes: ``[F, R]`` float64, the directions, the widest first, as whole numbers of a power of
            two.
        step: the grid of the features, which are clipped to `_SPARE` times the largest public one.
        unit: the grid of the coordinates, in units of the features.
        variances: ``[R]``, the mean squares of the public coordinates, above 0.
        samples: ``[P, R]`` int32, the coordinates of the public samples, in units of ``unit``.
        parts: ``[R]``, the part of the features that each direction lies in, from 0.
        place: ``[R]``, the coordinates of the origin of ``samples`` in units of ``unit``, whole
            numbers, if the samples were moved (`moved`). None for the center.
    """

    centre: FloatArray
    axes: FloatArray
    step: float
    unit: float
    variances: FloatArray
    samples: Int32Array
    parts: IntArray
    place: FloatArray | None = None

    @classmethod
    def of(cls, features: ArrayLike, widths: Sequence[int] = ()) -> Geometry:
        """Return the geometry of public features ``[P, ...]``, flattened.

        Args:
            features: the features.
            widths: the numbers of columns of parts, each with directions of its own; empty for one
                part.

        Raises:
            ValueError: with fewer than two samples, with features that are not finite, or all
                alike.
        """
        public = flat(features)
        require(len(public) >= 2, "features of two public samples or more", samples=len(public))
        require(np.isfinite(public).all(), "finite features", features="others")
        spaces = [Directions.of(part) for part in np.split(public, np.cumsum(widths)[:-1], axis=1)]
        most = _DIRECTIONS // len(spaces)
        right = [space.right[:, :most] for space in spaces]
        parts = np.repeat(np.arange(len(right)), [axes.shape[1] for axes in right])
        require(parts.size, "public features that differ", directions=0)
        bits = product_bits(public.shape[1])
        step = power_above(_SPARE * float(np.abs(public).max())) / (1 << bits)
        center = np.rint(np.concatenate([space.center for space in spaces]) / step)
        # of wide features each copy takes as much memory as all else
        axes = right[0] if len(right) == 1 else block_diag(*right)
        del spaces, right
        axes *= 1 << bits
        np.rint(axes, out=axes)
        spans = _spans(axes, parts)
        exact = np.concatenate(
            [
                _projected(public[rows], center, axes, spans, step)
                for rows in blocks(len(public), _COPIES * sum(axes.shape))
            ]
        )
        unit = power_above(_SPARE * float(np.abs(exact).max())) / (1 << COORDINATE_BITS)
        samples = _quantize(exact, unit)
        variances = (samples.astype(np.float64) ** 2).mean(axis=0) * unit**2
        held = variances > 0
        axes = axes if held.all() else axes[:, held]
        return cls(center, axes, step, unit, variances[held], samples[:, held], parts[held])

    @property
    def num_directions(self) -> int:
        """The number of directions."""
        return len(self.variances)

    @property
    def first_part(self) -> Geometry:
        """The directions of the first part, of the same features; itself, if there is one part."""
        number = int((self.parts == self.parts[0]).sum())
        if number == self.num_directions:
            return self
        return replace(
            self,
            axes=self.axes[:, :number],
            variances=self.variances[:number],
            samples=self.samples[:, :number],
            parts=self.parts[:number],
        )

    def moved(self, means: FloatArray, deviations: FloatArray) -> Geometry:
        """Return the same directions, with samples that have other moments along each of them.

        Args:
            means: ``[R]``, the changes of means, in deviations of the samples.
            deviations: ``[R]``, the new deviations, in present ones, above 0.
        """
        most, place = 1 << COORDINATE_BITS, means * np.sqrt(self.variances) / self.unit
        return replace(
            self,
            samples=np.rint(self.samples * deviations).clip(-most, most).astype(np.int32),
            variances=self.variances * deviations**2,
            place=np.rint(place) + (0.0 if self.place is None else self.place),
        )

    def coordinates(self, features: ArrayLike) -> Int32Array:
        """Return coordinates ``[N, R]`` of features ``[N, ...]``, row by row, by ``unit``."""
        values = np.asarray(features)
        inner = values.reshape(len(values), math.prod(values.shape[1:]))
        require(
            inner.shape[1] == len(self.centre),
            f"features of {len(self.centre)} numbers",
            features=inner.shape[1],
        )
        coordinates = np.empty((len(inner), self.num_directions), dtype=np.int32)
        spans = _spans(self.axes, self.parts)
        for rows in blocks(len(inner), _COPIES * sum(self.axes.shape)):
            coordinates[rows] = _quantize(
                _projected(inner[rows], self.centre, self.axes, spans, self.step), self.unit
            )
        return coordinates

    def linear(self, features: ArrayLike, slopes: FloatArray | None = None) -> FloatArray:
        """Return coordinates ``[N, R]`` of features ``[N, ...]``, in their units, on no grid.

        With ``slopes`` ``[R, C]`` return their products with the coordinates, ``[N, C]``.
        """
        axes = self.axes / (1 << product_bits(len(self.centre)))
        inner = flat(features) - self.centre * self.step
        along = inner @ (axes if slopes is None else axes @ slopes)
        if self.place is not None:
            place = self.place * self.unit
            along -= place if slopes is None else place @ slopes
        return np.asarray(along)


def with_drawn(features: ArrayLike, widths: Sequence[int] = ()) -> FloatArray:
    """Return public features ``[P, ...]``, flattened, and normal samples like them.

    Few samples have no directions for some of what records may vary in, and take others for far
    narrower than they are. Drawn samples, eight for each column and at most 2,000 with the public
    ones, have the public mean and covariances that are shrunk towards 0, by the share that has the
    least expected error (Schäfer & Strimmer (2005)). There are none with twice as many samples as
    columns of the first part, or with more than 256 of these.

    Args:
        features: the features.
        widths: the numbers of columns of parts, which are drawn independently.
    """
    public = flat(features)
    num, width = public.shape
    more = min(_PER_COLUMN * width, _MOST_DRAWN) - num
    first = (widths or [width])[0]
    if more <= 0 or num < 2 or num >= 2 * first or first > _WIDEST_DRAWN:
        return public
    # its stream is the same in all versions of numpy
    random = np.random.RandomState(0)
    drawn = [
        _drawn(part, more, random) for part in np.split(public, np.cumsum(widths)[:-1], axis=1)
    ]
    return np.concatenate((public, np.concatenate(drawn, axis=1)))


def _drawn(public: FloatArray, number: int, random: np.random.RandomState) -> FloatArray:
    """Return ``number`` normal samples with the mean and shrunk covariances of ``public``."""
    num, center = len(public), public.mean(axis=0)
    inner, spread = public - center, public.std(axis=0)
    unit = inner[:, spread > 0] / spread[spread > 0]
    correlations = unit.T @ unit / num
    errors = (np.square(unit).T @ np.square(unit) / num - correlations**2) / (num - 1)
    off = ~np.eye(len(correlations), dtype=np.bool_)
    largest = max(float((correlations[off] ** 2).sum()), np.finfo(np.float64).tiny)
    shrunk = min(1.0, float(errors[off].sum()) / largest)
    along = random.standard_normal((number, num)) @ inner / math.sqrt(num)
    alone = random.standard_normal((number, len(spread))) * spread
    return np.asarray(center + math.sqrt(1 - shrunk) * along + math.sqrt(shrunk) * alone)


def blocks(num_rows: int, entries: int) -> list[slice]:
    """Return rows in blocks of a few million numbers, at ``entries`` numbers a row."""
    step = max(1, _ENTRIES // max(1, entries))
    return [slice(start, min(start + step, num_rows)) for start in range(0, num_rows, step)]


def _spans(axes: FloatArray, parts: IntArray) -> list[tuple[slice, slice]]:
    """Return the columns that the directions of each part depend on, and these directions."""
    spans = []
    for part in np.unique(parts).tolist():
        along = slice(*np.searchsorted(parts, (part, part + 1)).tolist())
        columns = np.flatnonzero(axes[:, along].any(axis=1))
        spans.append((slice(columns[0], columns[-1] + 1), along))
    return spans


def _projected(
    features: ArrayLike,
    center: FloatArray,
    axes: FloatArray,
    spans: list[tuple[slice, slice]],
    step: float,
) -> FloatArray:
    """Return coordinates without rounding errors beyond those in the features and the axes."""
    most = float(1 << product_bits(len(center)))
    steps = np.divide(features, step, dtype=np.float64)
    # a feature map may return NaN or infinity for one record, which must not be an error
    steps[np.isnan(steps)] = 0
    np.clip(steps, -most, most, out=steps)
    np.rint(steps, out=steps)
    steps -= center
    projected = np.empty((len(steps), axes.shape[1]))
    for columns, along in spans:
        np.matmul(steps[:, columns], axes[columns, along], out=projected[:, along])
    projected *= step / most
    return projected


def _quantize(values: FloatArray, unit: float) -> Int32Array:
    most = float(1 << COORDINATE_BITS)
    steps = values / unit
    np.rint(steps, out=steps)
    return np.clip(steps, -most, most, out=steps).astype(np.int32)


_BASIS = 12  # fractional bits of an entry of the basis, which has a norm of about 2
_MAX_FEATURE_NORM = 2.0  # coordinates are clipped to this norm; the mean square is 1
_LARGEST = 17  # bits of an entry before that: sums of squares over all directions are exact
_RESIDUAL = 16  # fractional bits of a residual: sums of products over MOST_VOTERS are exact
_CLIP_SLACK = 1 - 2.0**-30  # rounding of norms and factors is far less than that
_PER_LOGIT, _MOST_LOGIT = 1 << 10, 12
# probabilities of logits from -12 to 12, on the grid of residuals
_EXPIT = np.rint(
    expit(np.arange(-_MOST_LOGIT * _PER_LOGIT, _MOST_LOGIT * _PER_LOGIT + 1) / _PER_LOGIT)
    * (1 << _RESIDUAL)
) / (1 << _RESIDUAL)
_WORTH = 0.6  # of the norm that is found, below which clips are not sought
# records are clipped to twice so many deviations of public samples; a square has a fourth of the
# weight of its root
_WIDER, _SQUARE = 8.0, 4.0
SCORE_STEPS = 254  # between scores of 0 and of 1


@dataclass(frozen=True, eq=False, kw_only=True)
class MomentQuery:
    """The question of a round, public and the same for all voters.

    Attributes:
        geometry: the public directions.
        shares: ``[R]``, by which squares of coordinates are weighed, each in units of its variance.
            Their sum is 1, or 0 for a question about levels.
        constant: the entry of every basis that is the same for all samples, in (0, 1].
        levels: ``[C]``, the answers of the student to a sample at the center.
        slopes: ``[R, C]``, the changes of the logits of these answers per unit of the features.
        asked: ``[C]``, whether a ballot has the label; None for all of them.
    """

    geometry: Geometry
    shares: FloatArray
    constant: float
    levels: FloatArray
    slopes: FloatArray
    asked: BoolArray | None = None

    def __post_init__(self) -> None:
        require(0 < self.constant <= 1, "0 < constant <= 1", constant=self.constant)
        shape = (self.geometry.num_directions, len(self.levels))
        require(
            self.shares.shape == shape[:1],
            f"shares of shape {list(shape[:1])}",
            shape=self.shares.shape,
        )
        require(
            self.slopes.shape == shape, f"slopes of shape {list(shape)}", shape=self.slopes.shape
        )

    @property
    def num_labels(self) -> int:
        """The number of labels."""
        return len(self.levels)

    @property
    def weights(self) -> FloatArray:
        """``[R]``, the factors of the coordinates in a basis."""
        return np.asarray(np.sqrt(self.shares / self.geometry.variances))

    @property
    def largest_norm(self) -> float:
        """The norm that no ballot exceeds by more than rounding."""
        along = _MAX_FEATURE_NORM**2 * bool(self.shares.any())
        levels = np.zeros(1) if self.slopes.any() else self.levels
        residuals = np.maximum(levels, 1 - levels) * self.held
        return math.sqrt((along + self.constant**2) * float((residuals**2).sum()))

    @property
    def held(self) -> BoolArray:
        """``[C]``, the labels that a ballot has."""
        return np.ones(self.num_labels, dtype=np.bool_) if self.asked is None else self.asked

    @property
    def reach(self) -> float:
        """The largest distance of two ballots with norms up to 1.

        It is ``sqrt(2)`` if no entry of a ballot is negative: labels, and the student's answer 0.
        """
        signed = self.shares.any() or self.levels.any() or self.slopes.any()
        return 2.0 if signed else math.sqrt(2)

    @property
    def ballot_shape(self) -> tuple[int, int]:
        """The shape of a ballot."""
        return len(self.shares) + 1, self.num_labels

    def predictions(self, coordinates: Int32Array | FloatArray) -> FloatArray:
        """Return the student's answers ``[N, C]`` in [0, 1] for coordinates ``[N, R]``."""
        grid, slopes = self._quantized_slopes
        if not grid:
            return np.tile(self.levels.clip(0, 1), (len(coordinates), 1))
        answers = np.asarray(coordinates, dtype=np.float64) @ slopes
        answers *= grid
        answers += logit(self.levels)
        # a sum of exact products, and a table: the answer to a sample depends on no other one
        answers *= _PER_LOGIT
        most = len(_EXPIT) // 2
        steps = np.clip(np.rint(answers, out=answers), -most, most, out=answers)
        return np.asarray(_EXPIT[steps.astype(np.int64) + most])

    def basis(self, coordinates: Int32Array | FloatArray) -> FloatArray:
        """Return weighed, clipped coordinates ``[N, R + 1]`` in steps of 2^-12, constant last."""
        weights = self.weights * (self.geometry.unit * (1 << _BASIS))
        basis = np.empty((len(coordinates), len(weights) + 1))
        basis[:, -1] = np.rint(self.constant * (1 << _BASIS))
        rows = basis[:, :-1]
        np.multiply(coordinates, weights, out=rows)
        _cut(np.trunc(rows, out=rows))
        return basis

    def products(
        self, coordinates: Int32Array, labels: UInt8Array
    ) -> tuple[FloatArray, FloatArray]:
        """Return bases ``[N, R + 1]`` and residuals ``[N, C]``, the factors of ballots.

        A residual is a label minus the student's answer, in steps of ``2^-16``; of an unknown label
        it is 0.
        """
        rows = self._placed(coordinates)
        residuals = np.rint((labels - self.predictions(rows)) * (1 << _RESIDUAL))
        return self.basis(rows), residuals * (self.held & (labels != UNKNOWN))

    def _placed(self, coordinates: Int32Array) -> FloatArray:
        """Return coordinates from the origin of the samples, on the same grid."""
        rows = np.asarray(coordinates, dtype=np.float64)
        if (place := self.geometry.place) is None:
            return rows
        most = float(1 << COORDINATE_BITS)
        return (rows - place).clip(-most, most)

    @cached_property
    def _quantized_slopes(self) -> tuple[float, FloatArray]:
        largest = float(np.abs(self.slopes).max(initial=0.0))
        if not largest:
            return 0.0, self.slopes
        grid = power_above(largest) / (1 << COORDINATE_BITS)
        return grid * self.geometry.unit, np.rint(self.slopes / grid)


class ShapeQuery(MomentQuery):
    """A question about records without their labels: how they vary along the directions.

    A ballot ``[2 R, 1]`` has a record's coordinates, in deviations of the samples, and their
    squares, weighed by ``shares``.
    """

    @property
    def ballot_shape(self) -> tuple[int, int]:
        """The shape of a ballot."""
        return 2 * len(self.shares), 1

    @cached_property
    def _factors(self) -> FloatArray:
        return np.outer((1 / _WIDER, 1 / _WIDER / _SQUARE), np.sqrt(self.shares))

    def basis(self, coordinates: Int32Array | FloatArray) -> FloatArray:
        """Return both ``[N, 2 R]``, of a norm up to 2, in steps of 2^-12."""
        units = coordinates * (self.geometry.unit / np.sqrt(self.geometry.variances))
        rows = np.hstack((units * self._factors[0], units**2 * self._factors[1]))
        rows *= 1 << _BASIS
        _cut(np.rint(rows, out=rows))
        return rows

    def products(
        self, coordinates: Int32Array, labels: UInt8Array
    ) -> tuple[FloatArray, FloatArray]:
        """Return bases ``[N, 2 R]``, and ones ``[N, 1]`` in steps of ``2^-16``."""
        ones = np.full((len(labels), 1), float(1 << _RESIDUAL))
        return self.basis(self._placed(coordinates)), ones

    def moments(self, mean: FloatArray) -> FloatArray:
        """Return the means and mean squares ``[2, R]`` that a mean ballot ``[2 R, 1]`` tells."""
        return np.asarray(mean.reshape(self._factors.shape) / self._factors)


@dataclass(frozen=True, eq=False, kw_only=True)
class Voters(ABC):
    """Voters, each with one ballot ``[R + 1, C]`` on a question.

    A voter that is absent has a ballot of zeros.

    Attributes:
        geometry: the public directions.
        num_voters: the nominal number of voters, a public constant, which may be far from the
            actual number.
        num_labels: the number of labels.
        unknown_labels: whether labels of records may be unknown, a public fact.
        shifted: whether public samples may differ from records in place and scale, a public fact.
    """

    geometry: Geometry
    num_voters: int
    num_labels: int
    unknown_labels: bool = False
    shifted: bool = False
    spare: ClassVar[float] = 1.2  # of the clip over the median where noise is large

    def __post_init__(self) -> None:
        require_count(2, num_voters=self.num_voters)
        require(
            self.num_voters <= MOST_VOTERS,
            f"num_voters <= {MOST_VOTERS}",
            num_voters=self.num_voters,
        )

    @property
    @abstractmethod
    def num_private(self) -> float | None:
        """The actual number of voters, which is private.

        None if it is the nominal number.
        """

    @property
    def num_knowing(self) -> FloatArray | None:
        """``[C]``, the exact sum over voters of the share of its records that know each label.

        PRIVATE. A voter moves an entry by 1 at most. None without `unknown_labels`.
        """
        return None

    def along(self, geometry: Geometry) -> Self:
        """Return the voters along their own ``geometry``, or along its first part."""
        if geometry is self.geometry:
            return self
        held: dict[str, Any] = {"geometry": geometry}
        if isinstance(self, RecordVoters | GroupVoters):
            held["coordinates"] = self.coordinates[:, : geometry.num_directions]
        return replace(self, **held)

    def least_norm(self, question: MomentQuery) -> float:
        """Return a public norm below which no clip is worth seeking."""
        return 0.0

    def expected_norm(self, question: MomentQuery) -> float:
        """Return about the mean norm, if the student of a question is right; 0 if it is unknown."""
        return 0.0

    @abstractmethod
    def norms(self, question: MomentQuery) -> FloatArray:
        """Return the norms ``[V]`` of the ballots; ballots of zeros may be left out."""

    @abstractmethod
    def clipped_sum(self, question: MomentQuery, clip: float) -> FloatArray:
        """Return the exact sum ``[R + 1, C]`` of all ballots, each scaled to a norm up to ``clip``.

        The sum does not depend on the blocks in
        which it is computed, to the last bit. Without a voter it is smaller by exactly the ballot
        of this voter.
        """


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordVoters(Voters):
    """Private records, each its own voter: ballots have rank one, and none is ever written down.

    Attributes:
        coordinates: ``[N, R]`` int32, as `Geometry.coordinates` returns them.
        labels: ``[N, C]`` in {0, 1}, or `pate.data.UNKNOWN`: the record casts zero for this label.
    """

    coordinates: Int32Array
    labels: UInt8Array
    # noise follows the clip, and what a record tells is mostly chance
    spare: ClassVar[float] = 0.8

    @property
    def num_private(self) -> float:
        """The number of records."""
        return float(len(self.labels))

    @property
    def num_knowing(self) -> FloatArray | None:
        """``[C]``, the number of records that know each label, if some may be unknown."""
        if not self.unknown_labels:
            return None
        return np.asarray((self.labels != UNKNOWN).sum(axis=0, dtype=np.float64))

    def least_norm(self, question: MomentQuery) -> float:
        """Return half the median norm of public samples, if each had an unexpected label.

        To a question about levels, no less than the least norm of records. Once a student answers,
        a share of the expected norm.
        """
        if expected := self.expected_norm(question):
            return _WORTH * expected
        predictions = question.predictions(self.geometry.samples)
        spread = np.sqrt(np.maximum((predictions * (1 - predictions)).sum(axis=1), 1e-6))
        spread = np.where(predictions.any(axis=1), spread, 1.0)
        if not question.shares.any():
            least = np.minimum(predictions, 1 - predictions)
            spread = np.maximum(spread, 2 * np.sqrt((least**2).sum(axis=1)))
        return float(np.median(self._basis_norms(question) * spread)) / 2

    def expected_norm(self, question: MomentQuery) -> float:
        """Return the mean norm of the student's own errors on public samples, weighted by the norm.

        Most of what is left to learn is in records that it is wrong about, which are few where
        labels are rare.
        """
        predictions = question.predictions(self.geometry.samples)
        if not question.shares.any() or not predictions.any():
            return 0.0
        # its stream is the same in all versions of numpy
        uniform = np.random.RandomState(0).random_sample(predictions.shape)
        errors = (uniform < predictions) - predictions
        norms = self._basis_norms(question) * np.sqrt(_squares(errors))
        return float((norms**2).sum() / norms.sum())

    def _basis_norms(self, question: MomentQuery) -> FloatArray:
        basis = question.basis(self.geometry.samples)
        return np.asarray(np.sqrt(_squares(basis)) / (1 << _BASIS))

    def norms(self, question: MomentQuery) -> FloatArray:
        """Return the norms ``[N]`` of the ballots."""
        return np.concatenate([np.zeros(0), *(norms for _, _, norms in self.parts(question))])

    def clipped_sum(self, question: MomentQuery, clip: float) -> FloatArray:
        """Return the sum ``[R + 1, C]`` of the clipped ballots, a multiple of ``2^-28``."""
        total = np.zeros(question.ballot_shape)
        for basis, residuals, norms in self.parts(question):
            total += basis.T @ np.trunc(residuals * clip_factors(norms, clip)[:, None])
        return total / (1 << _BASIS + _RESIDUAL)

    def parts(self, question: MomentQuery) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
        """Yield blocks of records: bases ``[n, R + 1]``, residuals ``[n, C]``, ballots' norms."""
        entries = _COPIES * (self.geometry.num_directions + self.num_labels)
        for rows in blocks(len(self.labels), entries):
            basis, residuals = question.products(self.coordinates[rows], self.labels[rows])
            norms = np.sqrt(_squares(basis)) * np.sqrt(_squares(residuals))
            yield basis, residuals, norms / (1 << _BASIS + _RESIDUAL)


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupedVoters(Voters):
    """Voters of several samples each: a ballot is the mean over them, rounded toward zero."""

    def norms(self, question: MomentQuery) -> FloatArray:
        """Return the norms of the ballots of all that have samples, or scores."""
        return np.array([norm for _, norm in self._ballots(question)])

    def clipped_sum(self, question: MomentQuery, clip: float) -> FloatArray:
        """Return the sum ``[R + 1, C]`` of the clipped ballots."""
        total = np.zeros(question.ballot_shape)
        for ballot, norm in self._ballots(question):
            total += np.trunc(ballot * clip_factors(np.array([norm]), clip))
        return total / (1 << self._bits)

    @abstractmethod
    def _sums(self, question: MomentQuery) -> Iterator[tuple[FloatArray, int]]:
        """Yield each voter's sum ``[R + 1, C]`` of outer products, and its number of samples."""

    @property
    def _bits(self) -> int:
        """Fractional bits of a ballot, so few that the sum of its squares is exact."""
        return (51 - math.ceil(math.log2((_MAX_FEATURE_NORM**2 + 1) * self.num_labels))) // 2

    def _ballots(self, question: MomentQuery) -> Iterator[tuple[FloatArray, float]]:
        for total, samples in self._sums(question):
            ballot = np.trunc(total * (2.0 ** (self._bits - _BASIS - _RESIDUAL) / samples))
            yield ballot, math.sqrt(float(np.vdot(ballot, ballot))) / (1 << self._bits)


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupVoters(GroupedVoters):
    """Private records in groups, each a voter: one person's records, or a hashed partition.

    Attributes:
        coordinates: ``[N, R]`` int32, as `Geometry.coordinates` returns them, sorted by group.
        labels: ``[N, C]`` in {0, 1}, or `pate.data.UNKNOWN`: the record adds zero for this label.
        groups: ``[N]``, the group of each record, ascending.
    """

    coordinates: Int32Array
    labels: UInt8Array
    groups: IntArray

    def __post_init__(self) -> None:
        super().__post_init__()
        require((np.diff(self.groups) >= 0).all(), "groups in ascending order", groups="others")

    @property
    def num_private(self) -> int:
        """The number of groups that have records."""
        return len(np.unique(self.groups))

    @property
    def num_knowing(self) -> FloatArray | None:
        """``[C]``, the sum of the groups' shares, each rounded down to a multiple of 2^-16."""
        if not self.unknown_labels:
            return None
        _, starts, sizes = np.unique(self.groups, return_index=True, return_counts=True)
        known = np.add.reduceat(self.labels != UNKNOWN, starts, axis=0, dtype=np.int64)
        shares: IntArray = (known << _RESIDUAL) // sizes[:, None]
        return np.asarray(shares.sum(axis=0) / (1 << _RESIDUAL))

    def _sums(self, question: MomentQuery) -> Iterator[tuple[FloatArray, int]]:
        bounds = np.append(np.unique(self.groups, return_index=True)[1], len(self.groups))
        records = int(np.diff(bounds).max(initial=0))  # of a group, at most
        for groups in blocks(
            len(bounds) - 1, records * (self.geometry.num_directions + self.num_labels)
        ):
            inner = bounds[groups.start : groups.stop + 1]
            rows = slice(inner[0], inner[-1])
            basis, residuals = question.products(self.coordinates[rows], self.labels[rows])
            for start, end in pairwise(inner - rows.start):
                yield basis[start:end].T @ residuals[start:end], end - start


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoreVoters(GroupedVoters):
    """Models of any kind, with scores of the labels of the public samples.

    Attributes:
        scores: ``[t, P, C]`` uint8 for consecutive teachers, such as files that are mapped into
            memory, as `encode_scores` returns them on the samples of the geometry. A missing score
            adds nothing to a ballot.
    """

    scores: Sequence[UInt8Array]

    def __post_init__(self) -> None:
        super().__post_init__()
        shape = (len(self.geometry.samples), self.num_labels)
        for chunk in self.scores:
            require(
                chunk.ndim == 3 and chunk.shape[1:] == shape and chunk.dtype == np.uint8,
                f"uint8 scores of shape [t, {shape[0]}, {shape[1]}]",
                shape=chunk.shape,
                dtype=chunk.dtype,
            )
        num_teachers = sum(map(len, self.scores))
        require(
            num_teachers == self.num_voters,
            f"scores of {self.num_voters} teachers",
            teachers=num_teachers,
        )

    @classmethod
    def of(cls, scores: Sequence[UInt8Array], features: ArrayLike) -> ScoreVoters:
        """Return teachers with ``scores`` on samples of public features ``[P, ...]``.

        Raises as `Geometry.of` does.
        """
        return cls(
            geometry=Geometry.of(features),
            num_voters=sum(map(len, scores)),
            num_labels=scores[0].shape[2],
            scores=scores,
        )

    @property
    def num_private(self) -> None:
        """None: the participants are agreed upon, and few are absent."""
        return

    def _sums(self, question: MomentQuery) -> Iterator[tuple[FloatArray, int]]:
        samples = self.geometry.samples
        basis, predictions = question.basis(samples).T, question.predictions(samples)
        for part in (
            chunk[rows] for chunk in self.scores for rows in blocks(len(chunk), predictions.size)
        ):
            scores = np.asarray(part).swapaxes(0, 1)
            differences = (scores - 1.0) / SCORE_STEPS - predictions[:, None]
            residuals = np.where(
                (scores > 0) & question.held, np.rint(differences * (1 << _RESIDUAL)), 0
            )
            # one product for all teachers is faster than one for each
            products = basis @ residuals.reshape(len(samples), -1)
            yield from ((total, len(samples)) for total in np.split(products, len(part), axis=1))


def encode_scores(scores: ArrayLike) -> UInt8Array:
    """Return scores in [0, 1] as uint8: 1 .. 255 in steps of 1/254; 0 for NaN, a missing score.

    So a teacher that takes no part adds nothing to a sum, unlike one that scores all labels 0.
    """
    steps = 1 + np.rint(SCORE_STEPS * np.asarray(scores, dtype=np.float32))
    return np.where(np.isnan(steps), 0, steps).astype(np.uint8)


def _cut(rows: FloatArray) -> None:
    """Cut rows ``[N, R]`` of whole steps of 2^-12 to the largest norm."""
    most, widest = float(1 << _LARGEST), _MAX_FEATURE_NORM * (1 << _BASIS)
    # few rows are longer, and all that have an entry above the most
    long = np.flatnonzero(_squares(rows) > widest**2)
    cut = rows[long].clip(-most, most)
    rows[long] = np.trunc(cut * (widest / np.sqrt(_squares(cut)))[:, None])


def _squares(rows: FloatArray) -> FloatArray:
    """Return the sums ``[N]`` of squares of whole numbers ``[N, R]``, which are exact."""
    return np.asarray(np.einsum("nr,nr->n", rows, rows))


def clip_factors(norms: FloatArray, clip: float) -> FloatArray:
    """Return the factors that scale ballots of ``norms`` ``[n]`` to a norm of ``clip`` at most."""
    most = clip * _CLIP_SLACK
    return np.asarray(most / np.maximum(norms, most))
