"""Inputs at the edge of what is allowed, and beyond it, for every mechanism that selects k of d."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom

from pate import mechanisms as m
from pate.accounting import NeighboringRelation

Select = Callable[..., NDArray[np.int64]]
RELATION = NeighboringRelation.ADD_REMOVE_TEACHER


def one(choose: Callable[..., NDArray[np.int64]]) -> Select:
    """Give a choice of one item the signature of a choice of k."""
    return lambda scores, *, k, **others: np.asarray(choose(scores, **others))[..., None]


def listed(choose: Callable[..., m.Listed], *scales: str) -> Select:
    """Give a list from the k largest the signature of a choice of k, with one scale for all its noise."""

    def select(scores: ArrayLike, *, k: int, scale: float, generator: np.random.Generator) -> NDArray[np.int64]:
        noise = dict.fromkeys(scales, scale)
        fixed = {"kbar": k, "delta": 0.4, "neighboring_relation": RELATION}
        return choose(scores, k=k, generator=generator, **fixed, **noise).items

    return select


SEQUENCES: dict[str, Select] = {
    "cdp_peel": m.cdp_peel,
    "pnf_peel": m.pnf_peel,
    "joint": m.joint,
    "joint_flip": partial(m.joint, noise="exponential"),
    "one_shot_laplace": m.one_shot_laplace,
}
SETS: dict[str, Select] = {
    **{
        f"lipschitz_{noise}": partial(m.lipschitz_top_k, noise=noise)
        for noise in ("gumbel", "exponential", "laplace", "logistic", "half_logistic")
    },
    "one_shot_exponential_mechanism": m.one_shot_exponential_mechanism,
    "one_shot_permute_and_flip": m.one_shot_permute_and_flip,
}
PROPER: dict[str, Select] = {
    f"canonical_{noise}_{gamma}": partial(m.canonical, noise=noise, gamma=gamma)
    for noise in ("gumbel", "exponential")
    for gamma in (0.0, 0.5, 1.0)
}
ONES: dict[str, Select] = {
    "exponential_mechanism": one(m.exponential_mechanism),
    "permute_and_flip": one(m.permute_and_flip),
    "report_noisy_max": one(m.report_noisy_max),
}
LISTS: dict[str, Select] = {
    "limited_domain": listed(m.limited_domain, "scale"),
    "top_stable": listed(m.top_stable, "scale_threshold", "scale_gap", "scale_peel"),
}
SELECTIONS = SEQUENCES | SETS | PROPER
ALL = SELECTIONS | ONES | LISTS


def each(mechanisms: dict[str, Select]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("select", list(mechanisms.values()), ids=list(mechanisms))


def run(select: Select, scores: ArrayLike, *, k: int, scale: float = 1.0, seed: int = 0) -> NDArray[np.int64]:
    return select(scores, k=k, scale=scale, generator=m.seeded_generator(seed))


@each(ALL)
def test_only_differences_of_scores_matter_whatever_their_type(select: Select) -> None:
    """Unsigned numbers do not wrap and large ones keep their last digit."""
    k = 1 if select in ONES.values() else 2
    near_zero = np.tile([1, 0, 3, 2, 0, 3], (20, 1))
    expected = run(select, near_zero, k=k)
    assert len(np.unique(expected, axis=0)) > 1  # there is noise to repeat
    for dtype in (np.uint8, np.int8, np.uint16, np.int32, np.uint32, np.uint64):
        np.testing.assert_array_equal(run(select, near_zero.astype(dtype), k=k), expected)
    for offset in (2**31, 2**40, 2**62, -5, -(2**62)):
        np.testing.assert_array_equal(run(select, near_zero + offset, k=k), expected)
    np.testing.assert_array_equal(run(select, near_zero.astype(np.uint64) + np.uint64(2**63), k=k), expected)
    np.testing.assert_array_equal(run(select, near_zero[0] + 2**33, k=k), run(select, near_zero[0] - 0.0, k=k))


@each(SELECTIONS)
@pytest.mark.parametrize("num_items", [2, 3, 6])
def test_output_has_distinct_indices(select: Select, num_items: int) -> None:
    largest = num_items - 1 if select in PROPER.values() else num_items
    for k in {1, num_items - 1, largest}:
        inputs: list[NDArray[Any]] = [
            np.arange(num_items),
            np.zeros(num_items, np.uint8),
            np.linspace(-3, 3, num_items),
        ]
        for scores in inputs:
            single, batch = run(select, scores, k=k), run(select, np.tile(scores, (7, 1)), k=k)
            assert single.dtype == batch.dtype == np.int64
            assert single.shape == (k,) and batch.shape == (7, k)
            for row in (single, *batch):
                assert len(set(row.tolist())) == k and set(row.tolist()) <= set(range(num_items))
                assert select in SEQUENCES.values() or (np.diff(row) > 0).all()


@each(SEQUENCES | SETS)
def test_one_item_is_all_there_is(select: Select) -> None:
    assert run(select, [5], k=1).tolist() == [0]
    assert run(select, [[5], [-3]], k=1).tolist() == [[0], [0]]


@each(SELECTIONS | ONES)
def test_equal_scores_are_equally_likely(select: Select) -> None:
    draws, d, k = 3000, 5, 1 if select in ONES.values() else 2
    for value in (0, 2**40, -1e300):
        chosen = run(select, np.full((draws, d), value), k=k, scale=2.0)
        assert_even(np.bincount(chosen.ravel(), minlength=d), draws, k / d)


@each(SELECTIONS | ONES)
def test_an_epsilon_of_a_millionth_forgets_the_scores(select: Select) -> None:
    draws, d, k = 3000, 5, 1 if select in ONES.values() else 2
    scale = m.scale_for_epsilon(1e-6, window=2, draws=k)
    chosen = run(select, np.tile(np.arange(d), (draws, 1)), k=k, scale=scale)
    assert_even(np.bincount(chosen.ravel(), minlength=d), draws, k / d)


@each(SELECTIONS | ONES)
@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float64])
def test_an_epsilon_of_a_thousand_finds_the_top(select: Select, dtype: type) -> None:
    k = 1 if select in ONES.values() else 3
    scale = m.scale_for_epsilon(1e3, window=4, draws=k)
    scores: NDArray[Any] = np.array([0, 9, 2, 7, 5, 1], dtype=dtype)
    top = [1, 3, 4][:k]
    assert run(select, scores, k=k, scale=scale).tolist() == top
    assert (run(select, np.tile(scores, (50, 1)), k=k, scale=scale) == top).all()


@each(ALL)
def test_huge_scores_do_not_overflow(select: Select) -> None:
    scores = np.array([-1e300, 1e300, 5e299, -1e300])
    k = 1 if select in ONES.values() else 2
    assert run(select, scores, k=k, scale=1e-3).tolist() == [1, 2][:k]
    assert (run(select, np.tile(scores, (9, 1)), k=k, scale=1e-3) == [1, 2][:k]).all()
    ends = np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max, 0])
    assert run(select, ends, k=1).tolist() == [1]


@each(ALL)
def test_no_rows_give_no_rows(select: Select) -> None:
    assert run(select, np.zeros((0, 4), dtype=np.int64), k=1).shape == (0, 1)


@each(ALL)
@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([1.0, np.nan, 2.0], "Expected finite scores, got minimum=nan, maximum=nan"),
        ([1.0, np.inf, 2.0], "Expected finite scores, got minimum=1.0, maximum=inf"),
        ([1.0, -np.inf, 2.0], "Expected finite scores, got minimum=-inf, maximum=2.0"),
        ([-1.7e308, 1.7e308, 0], "Expected finite scores, got minimum=-1.7e+308, maximum=1.7e+308"),
        ([[1.0, 2.0, 3.0], [np.nan, 1.0, 2.0]], "Expected finite scores, got minimum=nan, maximum=nan"),
        ([True, False, True], "Expected integer or float scores, got dtype='bool'"),
        (["a", "b", "c"], "Expected integer or float scores, got dtype='<U1'"),
        ([1j, 2j, 3j], "Expected integer or float scores, got dtype='complex128'"),
        ([], "Expected scores of shape [d] or [batch, d], got shape=(0,)"),
        (3.0, "Expected scores of shape [d] or [batch, d], got shape=()"),
        ([[[1, 2, 3]]], "Expected scores of shape [d] or [batch, d], got shape=(1, 1, 3)"),
    ],
)
def test_scores_that_are_refused(select: Select, scores: ArrayLike, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        run(select, scores, k=1)
    assert str(caught.value) == message


@each(SELECTIONS | LISTS)
@pytest.mark.parametrize("k", [0, -1, 5, 1.5, True, None])
def test_k_that_is_refused(select: Select, k: Any) -> None:
    with pytest.raises(ValueError, match=r"^Expected .*k.*, got kb?a?r?=" + str(k)):
        run(select, [1, 2, 3, 4], k=k)


@each(PROPER)
def test_a_canonical_subset_leaves_an_item_out(select: Select) -> None:
    with pytest.raises(ValueError, match=r"^Expected k <= 3 for 4 items, got k=4$"):
        run(select, [1, 2, 3, 4], k=4)


@each(ALL)
@pytest.mark.parametrize("scale", [0.0, -5.0, np.nan, np.inf])
def test_noise_that_is_refused(select: Select, scale: float) -> None:
    with pytest.raises(ValueError, match=rf"^Expected scale\w* > 0, got scale\w*={scale}$"):
        run(select, [1, 2, 3], k=1, scale=scale)


def assert_even(counts: NDArray[np.int64], draws: int, chance: float) -> None:
    low, high = binom.ppf([1e-6, 1 - 1e-6], draws, chance)
    assert ((counts >= low) & (counts <= high)).all(), counts
