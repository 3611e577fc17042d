"""Top-k by stability: a gap between sorted scores is chosen privately, then the set above it is tested and
released.

Zhu & Wang (2022), "Adaptive Private-K-Selection with Adaptive K and Application to Multi-label PATE".
"""

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from pate.accounting.events import (
    BoundedRangeEvent,
    ComposedEvent,
    Event,
    FailureEvent,
    GaussianNoisyMaxEvent,
    PureDPEvent,
    RepeatedEvent,
    StabilityTestEvent,
)
from pate.accounting.relation import NeighboringRelation
from pate.mechanisms._scores import ROWS, FloatArray, IntArray, as_rows, expect_k, sort_ascending
from pate.mechanisms.noise import draw, expect_noise, gumbel
from pate.validation import expect, expect_count, expect_open_unit, expect_positive

BoolArray = NDArray[np.bool_]
GapNoise = Literal["gumbel", "exponential", "laplace", "gaussian"]


class SortedCounts(NamedTuple):
    """Counts in descending order, ties broken by label index, with the gaps between them."""

    order: IntArray
    """Label indices, ``[C]`` or ``[B, C]``: ``order[..., j]`` holds the label of rank j."""
    gaps: IntArray
    """``[C + 1]`` or ``[B, C + 1]``: ``gaps[..., k]`` is the gap below the k largest, with the public sentinels
    ``upper`` and 0.
    """


def sort_counts(counts: ArrayLike, *, upper: int) -> SortedCounts:
    """Sort counts and take the gaps between neighbors in rank.

    Args:
        counts: ``[C]`` or ``[B, C]`` integers in ``[0, upper]``.
        upper: the public largest count, the number of teachers, below 2^53.

    Raises:
        ValueError: on counts of another shape, kind or range, or ``upper`` that is not a positive integer.
    """
    rows, single = _as_counts(counts, upper)
    found = _sort_rows(rows, upper)
    return SortedCounts(found.order[0], found.gaps[0]) if single else found


def choose_gap(
    gaps: ArrayLike,
    *,
    scale: float,
    generator: np.random.Generator,
    allow_empty: bool = True,
    noise: GapNoise = "gumbel",
    regularizer: ArrayLike | None = None,
    kbar: int | None = None,
) -> IntArray:
    """Choose a rank k by report-noisy-max on the gaps (Zhu & Wang (2022), Algorithm 1).

    The gaps of one query move within a window of 2 votes under ADD_REMOVE_TEACHER and 4 under REPLACE_RECORD.
    Privacy: `choose_gap_event`.

    Args:
        gaps: ``[C + 1]`` or ``[B, C + 1]``, as of `sort_counts`.
        scale: scale of the noise (its standard deviation for ``gaussian``), in votes.
        generator: source of the noise.
        allow_empty: whether k may be 0 or C, the public sentinels. Otherwise it lies in 1..C-1.
        noise: ``gumbel``, ``exponential``, ``laplace`` or ``gaussian``.
        regularizer: public, ``[C + 1]``, added to the gaps. Minus infinity rules a k out.
        kbar: largest k, for an unknown domain: counts of rank beyond ``kbar + 1`` have no influence.

    Returns:
        The chosen k, ``[]`` or ``[B]``.

    Raises:
        ValueError: on gaps that are not finite, ``scale <= 0``, an unknown noise, ``kbar`` outside 1..C, a
        regulariser that is not of shape ``[C + 1]``, is NaN or plus infinity, or rules out every k, or fewer than
        two labels without the sentinels.
    """
    rows, single = as_rows(gaps)
    expect_positive(scale=scale)
    expect_noise(noise, GapNoise)
    num_labels = rows.shape[1] - 1
    first, last = (0, num_labels + 1) if allow_empty else (1, num_labels)
    expect(last > first, "at least two labels without the empty and the full set", num_labels=num_labels)
    if kbar is not None:
        expect_k(kbar, num_labels, name="kbar")
        last = min(last, kbar + 1)
    size = (len(rows), last - first)
    noisy = generator.standard_normal(size) if noise == "gaussian" else draw(noise, generator, size)
    noisy *= scale
    noisy += rows[:, first:last].astype(np.float64, copy=False)
    if regularizer is not None:
        noisy += _checked_regularizer(regularizer, first, last, num_labels)
    chosen: IntArray = np.argmax(noisy, axis=1) + first
    return chosen[0] if single else chosen


def choose_gap_event(
    *,
    scale: float,
    neighboring_relation: NeighboringRelation,
    noise: GapNoise = "gumbel",
    num_candidates: int | None = None,
) -> Event:
    """Event of `choose_gap` on vote counts, with ``w`` = 2 votes under ADD_REMOVE_TEACHER and 4 under
    REPLACE_RECORD.

    Gumbel: bounded range of ``w / scale``. Exponential and Laplace: pure DP of ``w / scale``. Gaussian:
    the largest of ``num_candidates`` noisy gaps (C + 1, or C - 1 without the sentinels, or fewer with ``kbar``; Zhu &
    Wang (2022), Corollary 9).
    """
    relation = NeighboringRelation(neighboring_relation)
    expect_positive(scale=scale)
    expect_noise(noise, GapNoise)
    if noise == "gaussian":
        expect(num_candidates is not None, "num_candidates with Gaussian noise", num_candidates=num_candidates)
        return GaussianNoisyMaxEvent(
            neighboring_relation=relation,
            noise_multiplier=scale / (2 * relation.count_window),
            num_candidates=num_candidates or 0,
        )
    eta = 2 * relation.count_window / scale
    if noise == "gumbel":
        return BoundedRangeEvent(neighboring_relation=relation, eta=eta)
    return PureDPEvent(neighboring_relation=relation, epsilon=eta)


def stability_test(
    gaps: ArrayLike, *, sigma: float, delta_test: float, shift: int, generator: np.random.Generator
) -> BoolArray:
    """Test whether the gap ``q`` proves that the set above it is the same on every neighbor.

    Passes iff ``max(shift, q) + N(0, sigma^2) - z sigma > shift`` with ``z = Phi^-1(1 - delta_test)`` (Zhu & Wang
    (2022), Algorithm 2, with the exact normal quantile).

    Args:
        gaps: one chosen gap per query, of any shape, in votes.
        sigma: standard deviation of the noise, in votes.
        delta_test: probability that an unstable set passes.
        shift: the largest gap at which a neighbor may hold another set, 1 under ADD_REMOVE_TEACHER and 2 under
        REPLACE_RECORD.
        generator: source of the noise.

    Returns:
        Whether it passes, booleans of the shape of ``gaps``.

    Privacy: `StabilityTestEvent`, for the outcome together with the exact set.

    Raises:
        ValueError: on gaps that are not finite, ``sigma <= 0``, ``delta_test`` outside (0, 1) or ``shift < 1``.
    """
    expect_positive(sigma=sigma)
    stable = _stable_gaps(gaps, delta_test, shift)
    noise = sigma * generator.standard_normal(stable.shape)
    passed: BoolArray = stable + noise + sigma * float(ndtri(delta_test)) > shift
    return passed


def stability_test_laplace(
    gaps: ArrayLike, *, scale: float, delta_test: float, shift: int, generator: np.random.Generator
) -> BoolArray:
    """`stability_test` with Laplace noise of ``scale`` votes (Zhu & Wang (2022), Algorithm 5).

    Passes iff ``max(shift, q) + Laplace(scale) - t > shift``, ``t`` the ``1 - delta_test`` quantile of the
    noise. Shapes and errors as in `stability_test`. Privacy: `stability_test_laplace_event`.
    """
    expect_positive(scale=scale)
    stable = _stable_gaps(gaps, delta_test, shift)
    noise = scale * draw("laplace", generator, stable.shape)
    passed: BoolArray = stable + noise - scale * _laplace_quantile(delta_test) > shift
    return passed


def stability_test_laplace_event(
    *, scale: float, delta_test: float, shift: int, neighboring_relation: NeighboringRelation
) -> Event:
    """Event of `stability_test_laplace` together with the exact set it releases.

    Pure DP of ``w / scale``, ``w`` the count window by which a gap moves, but for a probability:
    ``delta_test``, or that of passing a gap of w where a test run with a smaller ``shift`` is accounted under
    another relation.
    """
    relation = NeighboringRelation(neighboring_relation)
    expect_positive(scale=scale)
    expect_open_unit(delta_test=delta_test)
    expect_count(1, shift=shift)
    window = relation.count_window
    threshold = _laplace_quantile(delta_test) - max(0, window - shift) / scale
    delta = math.exp(-threshold) / 2 if threshold > 0 else 1 - math.exp(threshold) / 2
    return ComposedEvent(
        events=(
            PureDPEvent(neighboring_relation=relation, epsilon=window / scale),
            FailureEvent(neighboring_relation=relation, delta=min(delta, math.nextafter(1, 0))),
        )
    )


def stable_top_k(
    counts: ArrayLike,
    *,
    upper: int,
    scale_gap: float,
    sigma_test: float,
    delta_test: float,
    shift: int,
    generator: np.random.Generator,
    allow_empty: bool = True,
) -> tuple[BoolArray, BoolArray]:
    """StableTopK: choose k by the gaps, then release the exact set of the k largest if the gap passes the
    test.

    Args:
        counts: ``[C]`` or ``[B, C]`` integers in ``[0, upper]``.
        upper: the public largest count, the number of teachers.
        scale_gap: scale of the Gumbel noise of the choice, in votes.
        sigma_test: standard deviation of the noise of the test, in votes.
        delta_test: probability that an unstable set passes.
        shift: 1 under ADD_REMOVE_TEACHER, 2 under REPLACE_RECORD.
        generator: source of the noise.
        allow_empty: whether k may be 0 or C.

    Returns:
        ``(members, released)``: booleans of the shape of ``counts``, all False in a row that failed, and ``[]`` or
        ``[B]`` booleans.

    Privacy: `stable_top_k_event`.

    Raises:
        ValueError: on counts of another shape, kind or range, a scale or deviation that is not positive,
        ``delta_test`` outside (0, 1), ``shift < 1``, or one label without the sentinels.
    """
    rows, single = _as_counts(counts, upper)
    expect_positive(scale_gap=scale_gap, sigma_test=sigma_test)
    members = np.zeros(rows.shape, dtype=np.bool_)
    released = np.zeros(len(rows), dtype=np.bool_)
    ranks = np.arange(rows.shape[1])
    for start in range(0, len(rows), ROWS):
        part = slice(start, start + ROWS)
        order, gaps = _sort_rows(rows[part], upper)
        k = choose_gap(gaps, scale=scale_gap, generator=generator, allow_empty=allow_empty)
        chosen = np.take_along_axis(gaps, k[:, None], axis=1)[:, 0]
        passed = stability_test(chosen, sigma=sigma_test, delta_test=delta_test, shift=shift, generator=generator)
        np.put_along_axis(members[part], order, (ranks < k[:, None]) & passed[:, None], axis=1)
        released[part] = passed
    return (members[0], released[0]) if single else (members, released)


def stable_top_k_event(
    *,
    num_teachers: int,
    scale_gap: float,
    sigma_test: float,
    delta_test: float,
    shift: int,
    neighboring_relation: NeighboringRelation,
) -> Event:
    """Event of `stable_top_k` on one row: the choice of a gap, then the test (Zhu & Wang (2022), Theorem 10).

    ``shift`` is what the mechanism ran with; ``neighboring_relation`` what the cost is asked for.
    """
    relation = NeighboringRelation(neighboring_relation)
    expect_positive(scale_gap=scale_gap, sigma_test=sigma_test)
    return ComposedEvent(
        events=(
            choose_gap_event(scale=scale_gap, neighboring_relation=relation),
            StabilityTestEvent(
                neighboring_relation=relation,
                sigma=sigma_test,
                delta_test=delta_test,
                shift=shift,
                num_teachers=num_teachers,
            ),
        )
    )


class FixedTopK(NamedTuple):
    """What `fixed_stable_top_k` releases."""

    members: BoolArray
    """``[C]`` or ``[B, C]``: the set of k labels, all False in a row that failed the test."""
    released: BoolArray
    """``[]`` or ``[B]``: whether the test passed."""
    rounds: IntArray
    """``[]`` or ``[B]``: rounds of peeling that were run, 0 in a row that failed. A function of the rank that was
    chosen, which the event of the first two steps pays for.
    """


def fixed_stable_top_k(
    counts: ArrayLike,
    *,
    k: int,
    upper: int,
    pull: float,
    scale_gap: float,
    sigma_test: float,
    delta_test: float,
    shift: int,
    scale_peel: float,
    generator: np.random.Generator,
    allow_empty: bool = True,
) -> FixedTopK:
    """StableTopK for a fixed k (Zhu & Wang (2022), Algorithm 3).

    A rank j is chosen by the gaps less ``pull * abs(j - k)`` and tested as in `stable_top_k`. If it passes,
    what the j largest lack for k is peeled from the rest; if they are too many, the surplus is peeled off or
    the k are peeled from them, whichever takes fewer rounds. Rows that fail release nothing.

    Args:
        k: size of the set, 1..C.
        pull: public weight of the regulariser, at least 0, in votes per rank.
        scale_peel: scale of the Gumbel noise of the peeling, in votes.

    The others, and the errors, are those of `stable_top_k`. Privacy: `fixed_stable_top_k_event`.
    """
    rows, single = _as_counts(counts, upper)
    num_labels = rows.shape[1]
    expect_positive(scale_gap=scale_gap, sigma_test=sigma_test, scale_peel=scale_peel)
    expect_k(k, num_labels)
    expect(math.isfinite(pull) and pull >= 0, "pull >= 0", pull=pull)
    regularizer = -pull * np.abs(np.arange(num_labels + 1) - k)
    order, gaps = _sort_rows(rows, upper)
    j = choose_gap(gaps, scale=scale_gap, generator=generator, allow_empty=allow_empty, regularizer=regularizer)
    chosen = np.take_along_axis(gaps, j[:, None], axis=1)[:, 0]
    passed = stability_test(chosen, sigma=sigma_test, delta_test=delta_test, shift=shift, generator=generator)
    surplus = j - k
    drop = (surplus > 0) & (surplus <= k)
    rounds = np.where(surplus > k, k, np.abs(surplus)) * passed
    # the k smallest keys are released: distances below the largest count, noisy where something is peeled
    inside = np.arange(num_labels) < j[:, None]
    below = np.cumsum(np.where(np.arange(num_labels) == 0, 0, gaps[:, :-1]), axis=1).astype(np.float64)
    noise = scale_peel * gumbel(generator, rows.shape)
    keys = below + np.where(drop[:, None], noise, -noise)
    keys[inside & (surplus <= 0)[:, None]] = -np.inf
    keys[~inside & (surplus > 0)[:, None]] = np.inf
    ranks = np.argpartition(keys, k - 1, axis=1)[:, :k]
    members = np.zeros(rows.shape, dtype=np.bool_)
    np.put_along_axis(members, np.take_along_axis(order, ranks, axis=1), passed[:, None], axis=1)
    return FixedTopK(members[0], passed[0], rounds[0]) if single else FixedTopK(members, passed, rounds)


def fixed_stable_top_k_event(
    *,
    k: int,
    num_teachers: int,
    scale_gap: float,
    sigma_test: float,
    delta_test: float,
    shift: int,
    scale_peel: float,
    neighboring_relation: NeighboringRelation,
    rounds: int | None = None,
) -> Event:
    """Event of `fixed_stable_top_k` on one row: that of `stable_top_k`, then ``rounds`` rounds of Gumbel
    peeling.

    At most k rounds are run, which is what ``rounds=None`` stands for: what to reserve before the release.
    The realised ``rounds`` may be settled after it.
    """
    relation = NeighboringRelation(neighboring_relation)
    expect_positive(scale_peel=scale_peel)
    expect_count(1, k=k)
    rounds = k if rounds is None else rounds
    expect_count(0, rounds=rounds)
    stable = stable_top_k_event(
        num_teachers=num_teachers,
        scale_gap=scale_gap,
        sigma_test=sigma_test,
        delta_test=delta_test,
        shift=shift,
        neighboring_relation=relation,
    )
    if rounds == 0:
        return stable
    choice = BoundedRangeEvent(neighboring_relation=relation, eta=relation.count_window / scale_peel)
    return ComposedEvent(events=(stable, RepeatedEvent(event=choice, count=rounds)))


def _laplace_quantile(delta: float) -> float:
    """Quantile ``1 - delta`` of standard Laplace noise."""
    return -math.log(2 * delta) if delta < 0.5 else math.log(2 * (1 - delta))


def _stable_gaps(gaps: ArrayLike, delta_test: float, shift: int) -> FloatArray:
    values = np.asarray(gaps, dtype=np.float64)
    expect(np.isfinite(values).all(), "finite gaps", gaps=gaps)
    expect_open_unit(delta_test=delta_test)
    expect_count(1, shift=shift)
    return np.maximum(values, shift)


def _checked_regularizer(regularizer: ArrayLike, first: int, last: int, num_labels: int) -> FloatArray:
    """Return the part of a regulariser ``[C + 1]`` that bears on the ranks ``first..last - 1``."""
    values = np.asarray(regularizer, dtype=np.float64)
    expect(values.shape == (num_labels + 1,), f"a regulariser of shape [{num_labels + 1}]", shape=values.shape)
    expect((values < np.inf).all(), "a regulariser below infinity", regularizer=values.tolist())
    expect((values[first:last] > -np.inf).any(), "a regulariser that allows some k", regularizer=values.tolist())
    return values[first:last]


def _as_counts(counts: ArrayLike, upper: int) -> tuple[IntArray, bool]:
    """Return counts as ``[B, C]`` and whether they came as one row ``[C]``."""
    rows, single = as_rows(counts)
    expect(rows.dtype.kind in "iu", "integer counts", dtype=str(rows.dtype))
    expect_count(1, upper=upper)
    expect(upper < 2**53, "upper < 2^53", upper=upper)
    if rows.size:
        low, high = int(rows.min()), int(rows.max())
        expect(low >= 0 and high <= upper, f"counts in 0..{upper}", minimum=low, maximum=high)
    return rows.astype(np.int64, copy=False), single


def _sort_rows(rows: IntArray, upper: int) -> SortedCounts:
    order, below = sort_ascending(upper - rows, largest=upper)
    padded = np.empty((len(rows), rows.shape[1] + 2), dtype=np.int64)
    padded[:, 0] = 0
    padded[:, 1:-1] = below
    padded[:, -1] = upper
    return SortedCounts(order, padded[:, 1:] - padded[:, :-1])
