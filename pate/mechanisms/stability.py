"""Top-k by stability: a gap between sorted scores is chosen privately, then the set above it is tested and
released.

Zhu & Wang (2022), "Adaptive Private-K-Selection with Adaptive K and Application to Multi-label PATE".
"""

import math
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from pate.accounting.events import (
    BoundedRangeEvent,
    ComposedEvent,
    Event,
    GaussianEvent,
    PureDPEvent,
    RepeatedEvent,
    StabilityTestEvent,
)
from pate.accounting.relation import NeighboringRelation
from pate.mechanisms.failure import failure_event
from pate.mechanisms.noise import draw, gumbel
from pate.validation import expect, expect_count, expect_open_unit, expect_positive

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
GapNoise = Literal["gumbel", "exponential", "laplace", "gaussian"]

_ROWS = 2048  # rows worked on at once, so that the intermediate arrays stay in cache


class SortedCounts(NamedTuple):
    """Counts in descending order, ties broken by label index, with the gaps between them."""

    order: IntArray
    """Label indices, ``[B, C]``: ``order[:, j]`` holds the label of rank j."""
    gaps: IntArray
    """``[B, C + 1]``: ``gaps[:, k]`` is the gap below the k largest, with the public sentinels ``upper`` and
    0.
    """


def sort_counts(counts: ArrayLike, *, upper: int) -> SortedCounts:
    """Sort counts ``[B, C]`` (integers in ``[0, upper]``) and take the gaps between neighbors in rank."""
    counts = _as_counts(counts, upper)
    num_labels = counts.shape[1]
    # one integer key per entry sorts counts and labels at once
    bits = max(1, int(num_labels - 1).bit_length())
    narrow = (upper + 1) << bits < 2**31
    keys: NDArray[np.signedinteger] = (upper - counts).astype(np.int32 if narrow else np.int64)
    keys <<= bits
    keys |= np.arange(num_labels, dtype=keys.dtype)
    keys.sort(axis=1)
    padded = np.empty((len(counts), num_labels + 2), dtype=np.int64)
    padded[:, 0] = upper
    padded[:, 1:-1] = upper - (keys >> bits)
    padded[:, -1] = 0
    return SortedCounts((keys & ((1 << bits) - 1)).astype(np.int64), padded[:, :-1] - padded[:, 1:])


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
    """Choose a rank k per row by report-noisy-max on the gaps (Zhu & Wang (2022), Algorithm 1).

    The gaps of one query move within a window of 2 votes under ADD_REMOVE_TEACHER and 4 under REPLACE_RECORD.
    Privacy: `choose_gap_event`.

    Args:
        gaps: ``[B, C + 1]``, as of `sort_counts`.
        scale: scale of the noise (its standard deviation for ``gaussian``), in votes.
        generator: source of the noise.
        allow_empty: whether k may be 0 or C, the public sentinels. Otherwise it lies in 1..C-1.
        noise: ``gumbel``, ``exponential``, ``laplace`` or ``gaussian``.
        regularizer: public, ``[C + 1]``, added to the gaps. Minus infinity rules a k out.
        kbar: largest k, for an unknown domain: counts of rank beyond ``kbar + 1`` have no influence.

    Returns:
        The chosen k, ``[B]``.

    Raises:
        ValueError: on ``scale <= 0``, an unknown noise, ``kbar`` outside 1..C, a regulariser that is not of
            shape ``[C + 1]``, is NaN or plus infinity, or rules out every k, or fewer than two labels without
            the sentinels.
    """
    expect_positive(scale=scale)
    gaps = np.asarray(gaps)
    num_labels = gaps.shape[1] - 1
    first, last = (0, num_labels + 1) if allow_empty else (1, num_labels)
    expect(last > first, "at least two labels without the empty and the full set", num_labels=num_labels)
    if kbar is not None:
        expect_count(1, kbar=kbar)
        expect(kbar <= num_labels, f"kbar <= {num_labels} labels", kbar=kbar)
        last = min(last, kbar + 1)
    if noise == "gumbel":
        noisy = gumbel(generator, (len(gaps), last - first))
    else:
        expect(noise in get_args(GapNoise), f"a noise among {get_args(GapNoise)}", noise=noise)
        size = (len(gaps), last - first)
        noisy = generator.standard_normal(size) if noise == "gaussian" else draw(noise, generator, size)
    noisy *= scale
    noisy += gaps[:, first:last]
    if regularizer is not None:
        pull = _checked_regularizer(regularizer, num_labels)[first:last]
        expect((pull > -np.inf).any(), "a regulariser that allows some k", regularizer=pull.tolist())
        noisy += pull
    chosen: IntArray = np.argmax(noisy, axis=1) + first
    return chosen


def choose_gap_event(
    *,
    scale: float,
    neighboring_relation: NeighboringRelation,
    noise: GapNoise = "gumbel",
    num_candidates: int | None = None,
) -> Event:
    """Event of `choose_gap` on vote counts, with ``w`` = 2 votes under ADD_REMOVE_TEACHER and 4 under
    REPLACE_RECORD.

    Gumbel: bounded range of ``w / scale``. Exponential and Laplace: pure DP of ``w / scale``. Gaussian: the
    release of all ``num_candidates`` noisy gaps (C + 1, or C - 1 without the sentinels, or fewer with
    ``kbar``), each of which moves by ``w / 2`` at most (Zhu & Wang (2022), Corollary 9, second term).
    """
    relation = NeighboringRelation(neighboring_relation)
    expect_positive(scale=scale)
    expect(noise in get_args(GapNoise), f"a noise among {get_args(GapNoise)}", noise=noise)
    if noise == "gaussian":
        expect(
            num_candidates is not None, "num_candidates with Gaussian noise", num_candidates=num_candidates
        )
        candidates = num_candidates or 0
        expect_count(1, num_candidates=candidates)
        multiplier = scale / relation.count_window / math.sqrt(candidates)
        return GaussianEvent(neighboring_relation=relation, noise_multiplier=multiplier)
    eta = 2 * relation.count_window / scale
    if noise == "gumbel":
        return BoundedRangeEvent(neighboring_relation=relation, eta=eta)
    return PureDPEvent(neighboring_relation=relation, epsilon=eta)


def stability_test(
    gaps: ArrayLike, *, sigma: float, delta_test: float, shift: int, generator: np.random.Generator
) -> BoolArray:
    """Test whether the gap ``q`` proves that the set above it is the same on every neighbor; ``[B]``
    booleans.

    Passes iff ``max(shift, q) + N(0, sigma^2) - z sigma > shift`` with ``z = Phi^-1(1 - delta_test)``.
    ``shift`` is 1 under ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD: the largest gap at which a neighbor
    may hold another set. Privacy: `StabilityTestEvent` (Zhu & Wang (2022), Algorithm 2, with the exact normal
    quantile).
    """
    expect_positive(sigma=sigma)
    expect_open_unit(delta_test=delta_test)
    expect_count(1, shift=shift)
    stable = np.maximum(np.asarray(gaps, dtype=np.float64), shift)
    noise = sigma * generator.standard_normal(stable.shape)
    passed: BoolArray = stable + noise + sigma * float(ndtri(delta_test)) > shift
    return passed


def stability_test_laplace(
    gaps: ArrayLike, *, scale: float, delta_test: float, shift: int, generator: np.random.Generator
) -> BoolArray:
    """`stability_test` with Laplace noise of ``scale`` votes (Zhu & Wang (2022), Algorithm 5); ``[B]``
    booleans.

    Passes iff ``max(shift, q) + Laplace(scale) - t > shift``, ``t`` the ``1 - delta_test`` quantile of the
    noise. Privacy: `stability_test_laplace_event`. Raises ``ValueError`` as `stability_test` does.
    """
    expect_positive(scale=scale)
    expect_open_unit(delta_test=delta_test)
    expect_count(1, shift=shift)
    stable = np.maximum(np.asarray(gaps, dtype=np.float64), shift)
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
            failure_event(delta, neighboring_relation=relation),
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
        counts: ``[B, C]`` integers in ``[0, upper]``.
        upper: the public largest count, the number of teachers.
        scale_gap: scale of the Gumbel noise of the choice, in votes.
        sigma_test: standard deviation of the noise of the test, in votes.
        delta_test: probability that an unstable set passes.
        shift: 1 under ADD_REMOVE_TEACHER, 2 under REPLACE_RECORD.
        generator: source of the noise.
        allow_empty: whether k may be 0 or C.

    Returns:
        ``(members, released)``: ``[B, C]`` booleans, all False in a row that failed, and ``[B]`` booleans.
    """
    counts = _as_counts(counts, upper)
    members = np.zeros(counts.shape, dtype=np.bool_)
    released = np.zeros(len(counts), dtype=np.bool_)
    ranks = np.arange(counts.shape[1])
    for start in range(0, len(counts), _ROWS):
        rows = slice(start, start + _ROWS)
        order, gaps = sort_counts(counts[rows], upper=upper)
        k = choose_gap(gaps, scale=scale_gap, generator=generator, allow_empty=allow_empty)
        chosen = np.take_along_axis(gaps, k[:, None], axis=1)[:, 0]
        passed = stability_test(
            chosen, sigma=sigma_test, delta_test=delta_test, shift=shift, generator=generator
        )
        np.put_along_axis(members[rows], order, (ranks < k[:, None]) & passed[:, None], axis=1)
        released[rows] = passed
    return members, released


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
    """``[B, C]``: the set of k labels, all False in a row that failed the test."""
    released: BoolArray
    """``[B]``: whether the test passed."""
    rounds: IntArray
    """``[B]``: rounds of peeling that were run, 0 in a row that failed. A function of what was released."""


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
    counts = _as_counts(counts, upper)
    num_labels = counts.shape[1]
    expect_positive(scale_peel=scale_peel)
    expect_count(1, k=k)
    expect(k <= num_labels, f"k <= {num_labels} labels", k=k)
    expect(math.isfinite(pull) and pull >= 0, "pull >= 0", pull=pull)
    regularizer = -pull * np.abs(np.arange(num_labels + 1) - k)
    order, gaps = sort_counts(counts, upper=upper)
    j = choose_gap(
        gaps, scale=scale_gap, generator=generator, allow_empty=allow_empty, regularizer=regularizer
    )
    chosen = np.take_along_axis(gaps, j[:, None], axis=1)[:, 0]
    passed = stability_test(chosen, sigma=sigma_test, delta_test=delta_test, shift=shift, generator=generator)
    surplus = j - k
    drop = (surplus > 0) & (surplus <= k)
    rounds = np.where(surplus > k, k, np.abs(surplus)) * passed
    # the k smallest keys are released: distances below the largest count, noisy where something is peeled
    inside = np.arange(num_labels) < j[:, None]
    below = np.cumsum(np.where(np.arange(num_labels) == 0, 0, gaps[:, :-1]), axis=1).astype(np.float64)
    noise = scale_peel * gumbel(generator, counts.shape)
    keys = below + np.where(drop[:, None], noise, -noise)
    keys[inside & (surplus <= 0)[:, None]] = -np.inf
    keys[~inside & (surplus > 0)[:, None]] = np.inf
    ranks = np.argpartition(keys, k - 1, axis=1)[:, :k]
    members = np.zeros(counts.shape, dtype=np.bool_)
    np.put_along_axis(members, np.take_along_axis(order, ranks, axis=1), passed[:, None], axis=1)
    return FixedTopK(members, passed, rounds)


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


def _checked_regularizer(regularizer: ArrayLike, num_labels: int) -> NDArray[np.float64]:
    values = np.asarray(regularizer, dtype=np.float64)
    expect(
        values.shape == (num_labels + 1,), f"a regulariser of shape [{num_labels + 1}]", shape=values.shape
    )
    expect((values < np.inf).all(), "a regulariser below infinity", regularizer=values.tolist())
    return values


def _as_counts(counts: ArrayLike, upper: int) -> NDArray[np.integer]:
    counts = np.asarray(counts)
    expect(counts.ndim == 2 and counts.shape[1] > 0, "counts of shape [B, C]", shape=counts.shape)
    expect(counts.dtype.kind in "iu", "integer counts", dtype=str(counts.dtype))
    expect_count(1, upper=upper)
    if counts.size:
        low, high = int(counts.min()), int(counts.max())
        expect(low >= 0 and high <= upper, f"counts in 0..{upper}", minimum=low, maximum=high)
    return counts.astype(np.int64, copy=False)
