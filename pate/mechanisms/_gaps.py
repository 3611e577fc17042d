"""Gaps between sorted counts, and the private choice of a wide one (Zhu & Wang (2022))."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pate._validation import IntArray, given, require, require_count, require_positive
from pate.accounting import Event, GaussianNoisyMaxEvent, NeighboringRelation
from pate.mechanisms._base import Checks, ScoreMechanism, choice_event
from pate.mechanisms._exact_choice import sample_k_smallest
from pate.mechanisms._exact_normal import add_gaussian, grid_of
from pate.mechanisms._noise import log_survival, require_noise
from pate.mechanisms._ranking import (
    REACH,
    Rows,
    as_batch,
    below_rank,
    require_within,
    sort_ascending,
)

GapNoise = Literal["gumbel", "exponential", "laplace", "logistic", "half_logistic", "gaussian"]


class SortedCounts(NamedTuple):
    """Counts in descending order, ties broken by label index, with the gaps between them."""

    order: IntArray
    """Label indices, ``[C]`` or ``[B, C]``: ``order[..., j]`` is the label of rank j."""
    gaps: Rows
    """``[C + 1]`` or ``[B, C + 1]``: ``gaps[..., k]`` is the gap below the k largest counts.

    The first and the last are
    gaps to the public sentinels ``upper`` and 0, or weighted distances from ``upper / 2``, negative
    where a majority is against none or all of the labels. int64; float64 of real scores and where
    there are half votes.
    """


def sort_counts(
    counts: ArrayLike,
    *,
    upper: float,
    integer_scores: bool = True,
    majority_weight: int | None = None,
) -> SortedCounts:
    """Sort counts, or other scores, and take the gaps between neighboring ranks.

    >>> counts = sort_counts([10, 90, 80], upper=100)
    >>> counts.order, counts.gaps
    (array([1, 2, 0]), array([10, 10, 70, 10]))

    Args:
        counts: ``[C]`` or ``[B, C]`` integers in ``[0, upper]``, or real numbers there.
        upper: the largest possible count, which is the public number of teachers, below 2^53; of
            other scores a public bound that holds for all of them, whatever the data.
        integer_scores: whether all but integers are refused.
        majority_weight: w, 1 or 2, for the gaps by which a majority votes for none or all of the
            labels: ``w (upper / 2 - h_(1))`` and ``w (h_(C) - upper / 2)``. None for the sentinels.

    Raises:
        ValueError: on counts of another shape, kind or range, ``upper`` that is not a positive
            integer (a positive number, of real scores), or a ``majority_weight`` that is neither 1
            nor 2.
    """
    _require_weight(majority_weight=majority_weight)
    rows, single = as_counts(counts, upper, integer_scores=integer_scores)
    ranked = sort_rows(rows, upper, majority_weight)
    return SortedCounts(ranked.order[0], ranked.gaps[0]) if single else ranked


def _require_rank(**ranks: int | None) -> None:
    require_count(1, **given(**ranks))


def _require_weight(**weights: int | None) -> None:
    for name, weight in weights.items():
        require(weight in (None, 1, 2), f"{name} 1 or 2", **{name: weight})


def _require_below_infinity(**regularizers: Sequence[float] | None) -> None:
    for name, values in regularizers.items():
        if values is not None:
            numbers = tuple(float(value) for value in values)
            require(
                all(value < math.inf for value in numbers),
                f"a {name} below infinity",
                **{name: numbers},
            )


@dataclass(frozen=True, kw_only=True)
class GapChoice(ScoreMechanism[IntArray]):
    """Choose a rank k by noisy max on the gaps of `sort_counts` (Zhu & Wang (2022), Algorithm 1).

    Privacy: sorted scores, whole or real, move within the window in which the scores do, so a gap
    moves by its width at most in either direction: within a window ``w`` of 2 votes (or
    sensitivities) under ADD_REMOVE_TEACHER and 4 under REPLACE_RECORD. A distance from ``upper /
    2`` moves by its weight: with weight 2 the window is 4 under both relations. Gumbel noise: one
    bounded-range choice of ``w / scale``. Gaussian noise: the `GaussianNoisyMaxEvent` of
    `num_candidates` noisy gaps, with half the window rounded up to the grid of the noise. Any
    other noise: pure DP of ``w / scale``.

    >>> choice = GapChoice(num_labels=4, scale=2.0)
    >>> choice(np.array([[5, 5, 70, 10, 10]]), generator=seeded_generator(0))
    array([2])

    Args:
        num_labels: the number of labels C.
        scale: scale of the noise (its standard deviation for ``gaussian``), in votes.
        sensitivity: the most by which one score (not a gap) changes between neighbors, 1 for votes.
        noise: ``gumbel``, ``exponential``, ``laplace``, ``logistic``, ``half_logistic`` or
            ``gaussian``.
        allow_empty: whether k may be 0 or C. Otherwise it lies in 1..C-1.
        majority_weight: the weight of `sort_counts`, where the first and the last gap are distances
            from ``upper / 2``.
        regularizer: public numbers ``[C + 1]`` added to the gaps, kept as a tuple; minus infinity
            rules a k out.
        kbar: largest k, for an unknown domain: counts of rank beyond ``kbar + 1`` have no
            influence.

    Raises:
        ValueError: on ``scale <= 0``, ``sensitivity <= 0``, an unknown noise, ``kbar`` outside
            1..C, a ``majority_weight`` that is neither 1 nor 2, a regularizer that is not of shape
            ``[C + 1]``, is NaN or plus infinity or rules out every k, or fewer than two labels
            without the empty and the full set.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("scale",)
    checks: ClassVar[Checks] = {
        "noise": partial(require_noise, GapNoise),
        "kbar": _require_rank,
        "majority_weight": _require_weight,
        "regularizer": _require_below_infinity,
    }

    num_labels: int
    scale: float
    noise: GapNoise = "gumbel"
    allow_empty: bool = True
    majority_weight: int | None = None
    regularizer: tuple[float, ...] | None = None
    kbar: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count(1, num_labels=self.num_labels)
        require(
            self.allow_empty or self.num_labels > 1,
            "at least two labels without the empty and the full set",
            num_labels=self.num_labels,
        )
        if self.kbar is not None:
            require_within(self.num_labels, kbar=self.kbar)
        if self.regularizer is not None:
            values = np.asarray(self.regularizer, dtype=np.float64)
            num_gaps = self.num_labels + 1
            require(
                values.shape == (num_gaps,),
                f"a regularizer of {num_gaps} numbers",
                shape=values.shape,
            )
            regularizer = tuple(values.tolist())
            allowed = values[self._candidates][values[self._candidates] > -np.inf]
            require(allowed.size, "a regularizer that allows some k", regularizer=regularizer)
            # numbers farther apart would round away the noise of a gap that makes up for them
            spread, widest = float(np.ptp(allowed)), REACH * self.scale
            require(
                spread <= widest,
                f"a regularizer of numbers within {widest:g} (2^32 scales)",
                spread=spread,
            )
            object.__setattr__(self, "regularizer", regularizer)

    @property
    def num_candidates(self) -> int:
        """The number of ranks to choose from."""
        return len(range(self._candidates.start, self._candidates.stop))

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks to choose from that the regularizer does not rule out."""
        candidates = range(self._candidates.start, self._candidates.stop)
        return tuple(
            rank
            for rank in candidates
            if self.regularizer is None or self.regularizer[rank] > -math.inf
        )

    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> IntArray:
        """Choose a rank by gaps ``[C + 1]`` or ``[B, C + 1]``; return int64 ``[]`` or ``[B]``.

        Raises:
            ValueError: on gaps that are not finite numbers, or not C + 1 of them.
        """
        rows, single = as_batch(scores)
        require(
            rows.shape[1] == self.num_labels + 1,
            f"{self.num_labels + 1} gaps",
            num_gaps=rows.shape[1],
        )
        reach, disadvantage = REACH * self.scale, 0.0
        if self.regularizer is not None:
            preferred = np.array(self.regularizer[self._candidates])
            disadvantage = preferred.max() - preferred
            reach *= 2  # the farthest that a regularizer can make up for, and as far again
        below = below_rank(rows[:, self._candidates], 1, reach=reach) + disadvantage
        if self.noise == "gaussian":
            # all scores get a multiple of the grid added, as the proof wants it
            # (docs/privacy.md)
            below -= np.mod(
                rows[:, self._candidates].max(axis=1, keepdims=True), grid_of(self.scale)
            )
            best = np.argmin(add_gaussian(below, sigma=self.scale, generator=generator), axis=1)
        else:
            best = sample_k_smallest(
                below, 1, noise=self.noise, scale=self.scale, generator=generator
            )[:, 0]
        chosen: IntArray = best + self._candidates.start
        return chosen[0] if single else chosen

    def probability(self, lead: float) -> float:
        """Return the probability to choose a gap ``lead`` votes wider than all, equal, others.

        Exact with Gumbel and exponential noise, and by quadrature with any other. A regularizer is
        left out.
        """
        others, ahead = self.num_candidates - 1, lead / self.scale
        if self.noise == "gumbel":
            return 1 / (1 + others * math.exp(-ahead))
        if self.noise == "exponential" and lead >= 0:
            # the integral of (1 - z u)^others over u in 0..1, with z = exp(-ahead)
            z = math.exp(-min(ahead, 700.0))
            return (
                -math.expm1((others + 1) * math.log1p(-z)) / ((others + 1) * z)
                if z < 1
                else 1 / (others + 1)
            )
        cells = np.linspace(-40.0, 40.0, 16_001)
        # given the noise of that gap, the others stay behind with the same chance each
        mass, middle = (
            -np.diff(np.exp(log_survival(cells, self.noise))),
            (cells[1:] + cells[:-1]) / 2,
        )
        return float(mass @ (-np.expm1(log_survival(middle + ahead, self.noise))) ** others)

    def event(self, relation: NeighboringRelation) -> Event:
        weight = self.majority_weight if self.allow_empty and self.majority_weight else 1
        window = 2 * max(self.window(relation), weight * self.sensitivity)
        if self.noise == "gaussian":
            grid = grid_of(self.scale)
            window = window / 2 + grid * math.ceil(window / 2 / grid)
            return GaussianNoisyMaxEvent(
                neighboring_relation=relation,
                noise_multiplier=self.scale / window,
                num_candidates=self.num_candidates,
            )
        return choice_event(relation, eta=window / self.scale, noise=self.noise)

    @property
    def _candidates(self) -> slice:
        first, last = (0, self.num_labels) if self.allow_empty else (1, self.num_labels - 1)
        return slice(first, min(last, self.kbar or last) + 1)


def as_counts(counts: ArrayLike, upper: float, *, integer_scores: bool) -> tuple[Rows, bool]:
    """Return counts, int64, or other scores, float64, as ``[B, C]``, and whether it was one row.

    Raises:
        ValueError: unless they are integers (numbers, if they need not be ``integer_scores``) of
            shape ``[C]`` or ``[B, C]`` in ``[0, upper]``, ``0 < upper < 2^53``.
    """
    rows, single = as_batch(counts)
    if integer_scores:
        require(rows.dtype.kind in "iu", "integer counts", dtype=str(rows.dtype))
        require_count(1, upper=upper)
    else:
        require_positive(upper=upper)
    require(upper < 2**53, "upper < 2^53", upper=upper)
    if rows.size:
        low, high = rows.min().item(), rows.max().item()
        require(low >= 0 and high <= upper, f"counts in 0..{upper}", minimum=low, maximum=high)
    return rows.astype(np.int64 if integer_scores else np.float64, copy=False), single


def sort_rows(rows: Rows, upper: float, majority_weight: int | None = None) -> SortedCounts:
    """Sort counts or scores ``[B, C]`` in ``[0, upper]``, as `sort_counts` does."""
    padded = np.empty((len(rows), rows.shape[1] + 2), dtype=rows.dtype)
    if rows.dtype.kind == "f":
        # not as distances below the bound, which would round them
        order, padded[:, 1:-1] = sort_ascending(-rows, largest=None)
        padded[:, 0], padded[:, -1] = -upper, 0
    else:
        order, padded[:, 1:-1] = sort_ascending(int(upper) - rows, largest=int(upper))
        padded[:, 0], padded[:, -1] = 0, upper
    gaps = padded[:, 1:] - padded[:, :-1]
    if majority_weight is not None:
        if majority_weight * upper % 2:  # half votes
            gaps = gaps.astype(np.float64)
        doubled = np.stack((upper - 2 * rows.max(axis=1), 2 * rows.min(axis=1) - upper), axis=1)
        gaps[:, [0, -1]] = majority_weight * doubled / 2
    return SortedCounts(order, gaps)
