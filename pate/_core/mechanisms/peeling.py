"""The k largest scores with noise, drawn once or in rounds of peeling.

With one draw of noise on every score, `NoisyTopK` reports the set of the k largest (Shekelyan &
Loukides (2022), "Differentially private top-k selection via canonical Lipschitz mechanism"), and
`OneShotLaplace` their order. Peeling chooses one item without replacement in each of k rounds. The
output is ordered.

Then the private choice of a wide gap between sorted counts, and tests of the one chosen: a gap that
passes proves the set above it to be the same on every neighbor (Zhu & Wang (2022)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from pate._core.accounting.cost import NeighboringRelation
from pate._core.accounting.events import (
    Event,
    GaussianNoisyMaxEvent,
    PureDPEvent,
    StabilityTestEvent,
)
from pate._core.mechanisms.base import (
    Checks,
    Law,
    Mechanism,
    NotStatedError,
    ScoreMechanism,
    TopKMechanism,
    choice_event,
    peeling_law,
)
from pate._core.mechanisms.exact_choice import (
    REACH,
    as_batch,
    below_rank,
    distances,
    in_blocks,
    rank,
    require_within,
    sample_k_smallest,
    sort_ascending,
)
from pate._core.mechanisms.noise import Noise, add_gaussian, exceeds, grid_of, require_noise
from pate._core.validation import (
    BoolArray,
    FloatArray,
    IntArray,
    Rows,
    expecting,
    given,
    require,
    require_count,
    require_flag,
    require_in_open_unit_interval,
    require_positive,
)


def one_shot(
    rows: Rows,
    k: int,
    scale: float,
    noise: Noise,
    generator: np.random.Generator,
    *,
    ordered: bool = True,
) -> IntArray:
    """Return the indices ``[B, k]`` of the k largest of ``rows`` with noise.

    They are in order. Without ``ordered`` those far ahead may come in any order.
    """

    def draw(part: Rows) -> IntArray:
        return sample_k_smallest(
            below_rank(part, k, reach=REACH * scale),
            k,
            noise=noise,
            scale=scale,
            generator=generator,
            exact=(lambda row, place: -Fraction(part[row, place].item())) if ordered else None,
        )

    return in_blocks(rows, draw)


@dataclass(frozen=True, kw_only=True)
class NoisyTopK(TopKMechanism):
    """Release the SET of the k largest of ``scores + scale * noise``, as ascending indices.

    The noise is drawn once.

    Given the noise of the items left out, each member must exceed a threshold that moves by at most
    the count window ``w`` relative to it, so the probability of that changes by a factor of at most
    ``exp(w / scale)``. The order of the noisy scores is not released: this proof is for the set.

    Privacy: with Gumbel noise, k bounded-range choices of ``w / scale`` (the set of
    `GumbelPeeling`); with any other noise, pure DP of ``k w / scale`` (Shekelyan & Loukides
    (2022)). ``w`` is 1 vote under ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD.

    >>> mechanism = NoisyTopK(k=2, scale=2.0)
    >>> mechanism(np.array([90, 80, 10, 0]), generator=seeded_generator(0))
    array([0, 1])

    Args:
        k: size of the set, 1..d.
        scale: scale of the noise, in votes.
        noise: ``gumbel``, ``exponential``, ``laplace``, ``logistic`` or ``half_logistic``.
    """

    checks: ClassVar[Checks] = {"noise": partial(require_noise, Noise)}

    noise: Noise = "gumbel"

    def _select(self, rows: Rows, generator: np.random.Generator) -> IntArray:
        return np.sort(
            one_shot(rows, self.k, self.scale, self.noise, generator, ordered=False), axis=1
        )

    def event(self, relation: NeighboringRelation) -> Event:
        eta = self.window(relation) / self.scale
        if self.noise == "gumbel":
            return choice_event(relation, eta=eta, noise=self.noise, count=self.k)
        return PureDPEvent(neighboring_relation=relation, epsilon=self.k * eta)

    def law(self, scores: Rows) -> Law:
        if self.noise != "gumbel":
            raise NotStatedError(
                f"the law of {type(self).__name__} with {self.noise} noise is not known"
            )
        return peeling_law(scores, self.k, self.scale, "gumbel")


@dataclass(frozen=True, kw_only=True)
class OneShotLaplace(TopKMechanism):
    """Release the k largest scores with Laplace noise, in order (Qiao et al. (2021), Algorithm 1).

    Privacy: pure DP of ``k w / scale``, with ``w`` 1 vote under ADD_REMOVE_TEACHER and 2 under
    REPLACE_RECORD. Relative to the largest noisy score that is left out, each of the k moves by at
    most w, which changes the density of its noise by at most a factor of ``exp(w / scale)``: this
    covers the order too.

    >>> mechanism = OneShotLaplace(k=2, scale=2.0)
    >>> mechanism(np.array([90, 80, 10, 0]), generator=seeded_generator(0))
    array([0, 1])

    Args:
        k: length of the list, 1..d.
        scale: scale of the Laplace noise, in votes.
    """

    def _select(self, rows: Rows, generator: np.random.Generator) -> IntArray:
        return one_shot(rows, self.k, self.scale, "laplace", generator)

    def event(self, relation: NeighboringRelation) -> Event:
        return PureDPEvent(
            neighboring_relation=relation, epsilon=self.k * (self.window(relation) / self.scale)
        )


@dataclass(frozen=True, kw_only=True)
class GumbelPeeling(TopKMechanism):
    """Peel k items by the exponential mechanism: the k largest with one draw of Gumbel noise.

    Both have the same law (Durfee & Rogers (2019), Lemma 4.2).

    Privacy: k bounded-range choices of ``w / scale`` for the ordered output (Dong, Durfee & Rogers
    (2020)); ``w`` is 1 vote under ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD.

    >>> mechanism = GumbelPeeling(k=2, scale=2.0)
    >>> mechanism(np.array([90, 80, 10, 0]), generator=seeded_generator(0))
    array([0, 1])

    Args:
        k: number of rounds, 1..d.
        scale: scale of the Gumbel noise, in votes.
    """

    def _select(self, rows: Rows, generator: np.random.Generator) -> IntArray:
        return one_shot(rows, self.k, self.scale, "gumbel", generator)

    def event(self, relation: NeighboringRelation) -> Event:
        return choice_event(
            relation, eta=self.window(relation) / self.scale, noise="gumbel", count=self.k
        )

    def law(self, scores: Rows) -> Law:
        return peeling_law(scores, self.k, self.scale, "gumbel")


@dataclass(frozen=True, kw_only=True)
class PermuteAndFlipPeeling(TopKMechanism):
    """Peel k items by permute-and-flip, each round with fresh noise (McKenna & Sheldon (2020)).

    Privacy: k pure choices of ``w / scale`` for the ordered output; ``w`` is 1 vote under
    ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD.

    >>> mechanism = PermuteAndFlipPeeling(k=2, scale=2.0)
    >>> mechanism(np.array([90, 80, 10, 0]), generator=seeded_generator(0))
    array([0, 1])

    Args:
        k: number of rounds, 1..d.
        scale: scale of the exponential noise, in votes.
    """

    def _select(self, rows: Rows, generator: np.random.Generator) -> IntArray:
        def draw(part: Rows) -> IntArray:
            order, scores = rank(part)
            return np.take_along_axis(order, self._peel(scores, generator), axis=1)

        return in_blocks(rows, draw)

    def _peel(self, scores: Rows, generator: np.random.Generator) -> IntArray:
        """Return ranks ``[B, k]`` of descending scores, by the largest with exponential noise.

        (Ding et al. (2021).)
        """
        ranks = np.empty((len(scores), self.k), dtype=np.int64)
        taken = np.zeros(scores.shape, dtype=np.bool_)
        for place in range(self.k):
            best = np.argmin(taken, axis=1)[:, None]
            below = distances(
                scores, np.take_along_axis(scores, best, axis=1), reach=REACH * self.scale
            )
            below[taken] = np.inf
            ranks[:, place] = sample_k_smallest(
                below, 1, noise="exponential", scale=self.scale, generator=generator
            )[:, 0]
            taken[np.arange(len(scores)), ranks[:, place]] = True
        return ranks

    def event(self, relation: NeighboringRelation) -> Event:
        return choice_event(
            relation, eta=self.window(relation) / self.scale, noise="exponential", count=self.k
        )

    def law(self, scores: Rows) -> Law:
        return peeling_law(scores, self.k, self.scale, "exponential")


GapNoise = Literal["gumbel", "exponential", "laplace", "logistic", "half_logistic", "gaussian"]


class SortedCounts(NamedTuple):
    """Counts in descending order, ties broken by label index, with the gaps between them."""

    order: IntArray
    """Label indices, ``[C]`` or ``[B, C]``: ``order[..., j]`` is the label of rank j."""
    gaps: Rows
    """``[C + 1]`` or ``[B, C + 1]``: ``gaps[..., k]`` is the gap below the k largest counts.

    The first and the last are gaps to the public sentinels ``upper`` and 0, or weighted distances
    from ``upper / 2``, negative where a majority is against none or all of the labels. int64;
    float64 where there are half votes.
    """


def sort_counts(
    counts: ArrayLike,
    *,
    upper: float,
    majority_weight: int | None = None,
) -> SortedCounts:
    """Sort counts, or other whole scores, and take the gaps between neighboring ranks.

    >>> counts = sort_counts([10, 90, 80], upper=100)
    >>> counts.order, counts.gaps
    (array([1, 2, 0]), array([10, 10, 70, 10]))

    Args:
        counts: ``[C]`` or ``[B, C]`` integers in ``[0, upper]``.
        upper: the largest possible count, which is the public number of teachers, below 2^53; of
            other scores a public bound that holds for all of them, whatever the data.
        majority_weight: w, 1 or 2, for the gaps by which a majority votes for none or all of the
            labels: ``w (upper / 2 - h_(1))`` and ``w (h_(C) - upper / 2)``. None for the sentinels.

    Returns:
        ranks and gaps, for each row of counts.

    Raises:
        ValueError: on counts of another shape, kind or range, ``upper`` that is not a positive
            integer, or a ``majority_weight`` that is neither 1 nor 2.
    """
    _require_weight(majority_weight=majority_weight)
    rows, single = as_counts(counts, upper)
    ranked = sort_rows(rows, upper, majority_weight)
    return SortedCounts(ranked.order[0], ranked.gaps[0]) if single else ranked


def _require_rank(**ranks: int | None) -> None:
    require_count(1, **given(**ranks))


def _require_weight(**weights: int | None) -> None:
    for name, weight in weights.items():
        require(weight in (None, 1, 2), f"{name} 1 or 2", **{name: weight})


def _require_below_infinity(**regularizers: Sequence[float] | None) -> None:
    for name, values in given(**regularizers).items():
        with expecting(f"numbers in {name}", TypeError, ValueError, OverflowError):
            numbers = np.asarray(values, dtype=np.float64)
        require(
            numbers.ndim == 1 and (numbers < math.inf).all(),
            f"a {name} of numbers below infinity",
            **{name: numbers.tolist()},
        )


@dataclass(frozen=True, kw_only=True)
class GapChoice(ScoreMechanism[IntArray]):
    """Choose a rank k by noisy max on the gaps of `sort_counts` (Zhu & Wang (2022), Algorithm 1).

    Privacy: sorted scores, whole or real, move within the window of the scores, so a gap
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
        sensitivity: the largest change of one score (not a gap) between neighbors, 1 for votes.
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
        "num_labels": partial(require_count, 1),
        "noise": partial(require_noise, GapNoise),
        "allow_empty": require_flag,
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
        require(
            self.allow_empty or self.num_labels > 1,
            "at least two labels without the empty and the full set",
            num_labels=self.num_labels,
        )
        require_within(self.num_labels, **given(kbar=self.kbar))
        if self.regularizer is not None:
            values = np.asarray(self.regularizer, dtype=np.float64)
            require(
                len(values) == self.num_labels + 1,
                f"a regularizer of {self.num_labels + 1} numbers",
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
        return len(range(self.num_labels + 1)[self._candidates])

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks to choose from that the regularizer does not rule out."""
        return tuple(
            rank
            for rank in range(self.num_labels + 1)[self._candidates]
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
            # (docs/appendix/papers.md)
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


def as_counts(counts: ArrayLike, upper: float) -> tuple[Rows, bool]:
    """Return counts as rows ``[B, C]`` of int64, and whether they were a single row.

    Raises:
        ValueError: unless they are integers of shape ``[C]`` or ``[B, C]`` in ``[0, upper]``,
            ``0 < upper < 2^53``.
    """
    rows, single = as_batch(counts)
    require(rows.dtype.kind in "iu", "integer counts", dtype=str(rows.dtype))
    require_count(1, upper=upper)
    require(upper < 2**53, "upper < 2^53", upper=upper)
    if rows.size:
        low, high = rows.min().item(), rows.max().item()
        require(low >= 0 and high <= upper, f"counts in 0..{upper}", minimum=low, maximum=high)
    return rows.astype(np.int64, copy=False), single


def sort_rows(rows: Rows, upper: float, majority_weight: int | None = None) -> SortedCounts:
    """Sort counts ``[B, C]`` in ``[0, upper]``, as `sort_counts` does."""
    padded = np.empty((len(rows), rows.shape[1] + 2), dtype=rows.dtype)
    order, padded[:, 1:-1] = sort_ascending(int(upper) - rows, largest=int(upper))
    padded[:, 0], padded[:, -1] = 0, upper
    gaps = padded[:, 1:] - padded[:, :-1]
    if majority_weight is not None:
        if majority_weight * upper % 2:  # half votes
            gaps = gaps.astype(np.float64)
        doubled = np.stack((upper - 2 * rows.max(axis=1), 2 * rows.min(axis=1) - upper), axis=1)
        gaps[:, [0, -1]] = majority_weight * doubled / 2
    return SortedCounts(order, gaps)


@dataclass(frozen=True, kw_only=True)
class StabilityTest(Mechanism[BoolArray]):
    """Test gaps with Gaussian noise (Zhu & Wang (2022), Algorithm 2, with the exact quantile).

    Passes iff ``max(shift, q) + N(0, sigma^2) - z sigma > shift`` for a gap q, with ``z = Phi^-1(1
    - delta_test)``.

    Privacy: for the outcome together with the exact set above the gap, `StabilityTestEvent`.

    >>> test = StabilityTest(delta_test=1e-6, shift=2, num_teachers=100, sigma=2.0)
    >>> test(np.array([60, 1]), generator=seeded_generator(0))
    array([ True, False])

    Args:
        delta_test: probability that an unstable set passes, in (0, 1).
        shift: the largest gap at which a neighbor may hold another set, in votes: 1 under
            ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD, for a gap between two counts, times the
            sensitivity of other scores.
        sensitivity: the largest change of one score (not a gap) between neighbors, 1 for votes.
        window: the number of sensitivities by which the tested number moves between neighbors. None
            for a gap between two scores, which moves by one or two, as the relation says.
        num_teachers: the nominal number of teachers, which is the largest possible gap; more
            generally the largest value of the narrower of two neighbors' gaps. Of other scores a
            public bound on them.
        sigma: standard deviation of the noise, in votes.

    Raises:
        ValueError: on ``sigma <= 0``, ``delta_test`` outside (0, 1), a ``shift``, ``num_teachers``,
            ``window`` or ``sensitivity`` that is no positive integer.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("sigma",)
    checks: ClassVar[Checks] = {
        "delta_test": require_in_open_unit_interval,
        **dict.fromkeys(("shift", "num_teachers", "window"), _require_rank),
        "sensitivity": require_positive,
    }

    delta_test: float
    shift: float
    sensitivity: float = 1.0
    window: float | None = None
    num_teachers: int
    sigma: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            float(self.sensitivity).is_integer(),
            "an integer sensitivity",
            sensitivity=self.sensitivity,
        )

    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> BoolArray:
        """Test gaps of any shape, one for each query, in votes; return booleans of that shape.

        Raises:
            ValueError: on gaps that are not finite, not whole or half votes, or larger than the
                event pays for. Gaps are PRIVATE, and no message repeats them.
        """
        gaps = np.asarray(scores, dtype=np.float64)
        require(np.isfinite(gaps).all(), "finite gaps")
        require((2 * gaps % 1 == 0).all(), "gaps in whole or half votes")
        # the narrower gap of two neighbors is num_teachers at most
        most = self.num_teachers + (self.window or 0) * self.sensitivity
        require(gaps.max(initial=0) <= most, f"gaps of at most {most:g} votes")
        lead = np.maximum(gaps - self.shift, 0)
        return exceeds(lead, self._quantile, sigma=self.sigma, generator=generator)

    def probability(self, gaps: ArrayLike) -> FloatArray:
        """Return the probability that each of ``gaps``, of any shape and in votes, passes."""
        return np.asarray(ndtr(-self._missing(gaps) / self.sigma), dtype=np.float64)

    def failure(self, gaps: ArrayLike) -> FloatArray:
        """Return the probability that each of ``gaps`` fails, however small."""
        return np.asarray(ndtr(self._missing(gaps) / self.sigma), dtype=np.float64)

    def event(self, relation: NeighboringRelation) -> Event:
        """Describe one test together with the exact set that it releases."""
        window = (relation.score_range if self.window is None else self.window) * self.sensitivity
        return StabilityTestEvent(
            neighboring_relation=relation,
            sigma=self.sigma,
            delta_test=self.delta_test,
            shift=int(self.shift),
            num_teachers=int(self.num_teachers),
            window=None if window == relation.score_range else int(window),
        )

    def _missing(self, gaps: ArrayLike) -> FloatArray:
        """Return the noise, in votes, above which each of ``gaps`` passes."""
        return self._quantile - np.maximum(np.asarray(gaps, dtype=np.float64) - self.shift, 0)

    @property
    def _quantile(self) -> float:
        return -self.sigma * float(ndtri(self.delta_test))
