"""Gaps, tests and StableTopK at the edge of what is allowed, and beyond it."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from pate import mechanisms as m
from pate.accounting import (
    BoundedRangeEvent,
    ComposedEvent,
    GaussianNoisyMaxEvent,
    NeighboringRelation,
    PureDPEvent,
    cost,
)
from pate.mechanisms.stability import GapNoise

ADD, REPLACE = NeighboringRelation.ADD_REMOVE_TEACHER, NeighboringRelation.REPLACE_RECORD
NOISES: tuple[GapNoise, ...] = ("gumbel", "exponential", "laplace", "gaussian")
STABLE: dict[str, Any] = {"upper": 100, "scale_gap": 2.0, "sigma_test": 2.0, "delta_test": 1e-3, "shift": 2}
FIXED: dict[str, Any] = STABLE | {"k": 2, "pull": 1.0, "scale_peel": 2.0}
COUNTS = np.array([[90, 3, 80, 9], [50, 50, 50, 50], [0, 100, 0, 100]])


# gaps


def test_gaps_of_sorted_counts() -> None:
    order, gaps = m.sort_counts([[3, 9, 3, 0], [10, 10, 10, 10]], upper=10)
    assert order.tolist() == [[1, 0, 2, 3], [0, 1, 2, 3]]
    assert gaps.tolist() == [[1, 6, 0, 3, 0], [0, 0, 0, 0, 10]]


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint64])
def test_one_row_is_the_first_of_a_batch_of_one(dtype: type) -> None:
    row = COUNTS[0].astype(dtype)
    order, gaps = m.sort_counts(row, upper=100)
    assert order.tolist() == [0, 2, 3, 1] and gaps.tolist() == [10, 10, 71, 6, 3]
    for one, many in (
        (
            (m.choose_gap(gaps, scale=30.0, generator=m.seeded_generator(0)),),
            (m.choose_gap(gaps[None], scale=30.0, generator=m.seeded_generator(0)),),
        ),
        (
            m.stable_top_k(row, **STABLE, generator=m.seeded_generator(0)),
            m.stable_top_k(row[None], **STABLE, generator=m.seeded_generator(0)),
        ),
        (
            m.fixed_stable_top_k(row, **FIXED, generator=m.seeded_generator(0)),
            m.fixed_stable_top_k(row[None], **FIXED, generator=m.seeded_generator(0)),
        ),
    ):
        for alone, batched in zip(one, many, strict=True):
            np.testing.assert_array_equal(alone, batched[0])


@pytest.mark.parametrize(("upper", "num_labels"), [(2**33, 3), (2**53 - 1, 3), (2**53 - 1, 3000)])
def test_counts_above_two_to_the_31(upper: int, num_labels: int) -> None:
    """The last is too wide for one key per entry."""
    counts = upper - np.arange(num_labels)[::-1]
    order, gaps = m.sort_counts(counts, upper=upper)
    assert order.tolist() == list(range(num_labels))[::-1]
    assert gaps.tolist() == [0, *[1] * (num_labels - 1), upper - num_labels + 1]


@pytest.mark.parametrize(
    ("counts", "upper", "message"),
    [
        ([[1, 2.5]], 3, "Expected integer counts, got dtype='float64'"),
        ([[1, np.nan]], 3, "Expected finite scores, got minimum=nan, maximum=nan"),
        ([[1, 4]], 3, "Expected counts in 0..3, got minimum=1, maximum=4"),
        ([[-1, 2]], 3, "Expected counts in 0..3, got minimum=-1, maximum=2"),
        ([[1, 2]], 0, "Expected an integer upper >= 1, got upper=0"),
        ([[1, 2]], 2**53, "Expected upper < 2^53, got upper=9007199254740992"),
    ],
)
def test_counts_that_are_refused(counts: Any, upper: int, message: str) -> None:
    for call in (
        lambda: m.sort_counts(counts, upper=upper),
        lambda: m.stable_top_k(counts, **STABLE | {"upper": upper}, generator=m.seeded_generator(0)),
        lambda: m.fixed_stable_top_k(counts, **FIXED | {"upper": upper}, generator=m.seeded_generator(0)),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        assert str(caught.value) == message


# the choice of a gap


@pytest.mark.parametrize("noise", NOISES)
def test_little_noise_finds_the_widest_gap_and_much_forgets_it(noise: GapNoise) -> None:
    gaps = np.tile([0, 3, 9, 1], (3000, 1))
    assert (m.choose_gap(gaps, scale=1e-3, noise=noise, generator=m.seeded_generator(0)) == 2).all()
    chosen = np.bincount(m.choose_gap(gaps, scale=1e6, noise=noise, generator=m.seeded_generator(0)), minlength=4)
    low, high = binom.ppf([1e-6, 1 - 1e-6], 3000, 1 / 4)
    assert ((chosen >= low) & (chosen <= high)).all()


@pytest.mark.parametrize("noise", NOISES)
def test_gaps_beyond_kbar_have_no_influence(noise: GapNoise) -> None:
    gaps = np.tile([0, 3, 2, 1, 4], (100, 1))
    other = gaps.copy()
    other[:, 3:] = 10**6
    first, second = (
        m.choose_gap(q, scale=2.0, noise=noise, kbar=2, generator=m.seeded_generator(0)) for q in (gaps, other)
    )
    np.testing.assert_array_equal(first, second)
    assert set(first.tolist()) == {0, 1, 2}


def test_regularizer_rules_out_and_attracts() -> None:
    gaps = np.zeros((2000, 4))
    chosen = m.choose_gap(
        gaps, scale=1.0, regularizer=[-np.inf, 0, -np.inf, math.log(3)], generator=m.seeded_generator(0)
    )
    assert set(chosen.tolist()) == {1, 3}
    assert (chosen == 3).mean() == pytest.approx(0.75, abs=0.05)


def test_without_sentinels_two_labels_leave_one_choice() -> None:
    gaps = np.array([[9, 0, 9]])
    assert m.choose_gap(gaps, scale=1.0, allow_empty=False, generator=m.seeded_generator(0)).tolist() == [1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scale": -5.0}, "Expected scale > 0, got scale=-5.0"),
        ({"noise": "cauchy"}, f"Expected a noise among {NOISES}, got noise='cauchy'"),
        ({"kbar": 0}, "Expected an integer kbar >= 1, got kbar=0"),
        ({"kbar": 4}, "Expected kbar <= 3 for 3 items, got kbar=4"),
        ({"gaps": [0.0, np.nan, 1.0]}, "Expected finite scores, got minimum=nan, maximum=nan"),
        (
            {"gaps": [3, 4], "allow_empty": False},
            "Expected at least two labels without the empty and the full set, got num_labels=1",
        ),
        ({"regularizer": [0.0, 1.0]}, "Expected a regulariser of shape [4], got shape=(2,)"),
        (
            {"regularizer": [0.0, 1.0, np.nan, 0.0]},
            "Expected a regulariser below infinity, got regularizer=[0.0, 1.0, nan, 0.0]",
        ),
        (
            {"regularizer": [0.0, -np.inf, -np.inf, 0.0], "allow_empty": False},
            "Expected a regulariser that allows some k, got regularizer=[0.0, -inf, -inf, 0.0]",
        ),
    ],
)
def test_choices_that_are_refused(arguments: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"gaps": [[1, 2, 3, 4]], "scale": 1.0, "generator": m.seeded_generator(0)}
    with pytest.raises(ValueError) as caught:
        m.choose_gap(**given | arguments)
    assert str(caught.value) == message


def test_gaussian_noise_is_charged_by_the_number_of_candidates() -> None:
    with pytest.raises(ValueError, match=r"^Expected num_candidates with Gaussian noise, got num_candidates=None$"):
        m.choose_gap_event(scale=1.0, noise="gaussian", neighboring_relation=ADD)
    few, many = (
        cost(m.choose_gap_event(scale=50.0, noise="gaussian", num_candidates=n, neighboring_relation=ADD)).rdp
        for n in (2, 40)
    )
    assert (few < many).all()


@pytest.mark.parametrize("noise", ["cauchy", "logistic", "Gumbel", None])
def test_an_event_of_unknown_noise_is_refused(noise: Any) -> None:
    with pytest.raises(ValueError, match=r"^Expected [^\n]*noise[^\n]*$"):
        m.choose_gap_event(scale=1.0, noise=noise, num_candidates=3, neighboring_relation=ADD)


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_a_choice_costs_the_window_of_gaps_over_its_scale(relation: NeighboringRelation) -> None:
    eta = 2 * relation.count_window / 5
    common: dict[str, Any] = {"scale": 5.0, "neighboring_relation": relation}
    assert m.choose_gap_event(**common) == BoundedRangeEvent(eta=eta, neighboring_relation=relation)
    for noise in ("exponential", "laplace"):
        expected = PureDPEvent(epsilon=eta, neighboring_relation=relation)
        assert m.choose_gap_event(**common, noise=noise) == expected
    gaussian = GaussianNoisyMaxEvent(noise_multiplier=1 / eta, num_candidates=7, neighboring_relation=relation)
    assert m.choose_gap_event(**common, noise="gaussian", num_candidates=7) == gaussian


# the tests of stability


@pytest.mark.parametrize("test", ["gaussian", "laplace"])
@pytest.mark.parametrize("shift", [1, 2])
def test_an_unstable_gap_passes_as_often_as_it_may(test: str, shift: int) -> None:
    draws, delta = 20_000, 0.1
    gaps = np.repeat([[-3, 0, shift]], draws, axis=0)
    generator = m.seeded_generator(0)
    if test == "gaussian":
        passed = m.stability_test(gaps, sigma=3.0, delta_test=delta, shift=shift, generator=generator)
    else:
        passed = m.stability_test_laplace(gaps, scale=3.0, delta_test=delta, shift=shift, generator=generator)
    low, high = binom.ppf([1e-6, 1 - 1e-6], draws, delta)
    assert ((passed.sum(axis=0) >= low) & (passed.sum(axis=0) <= high)).all()


@pytest.mark.parametrize("noise", [1e-6, 1e3])
def test_a_gap_passes_when_it_is_wide_against_the_noise(noise: float) -> None:
    for gap, expected in ((2 + 100 * noise, True), (2, False)):
        gaps = np.full(100, gap)
        for passed in (
            m.stability_test(gaps, sigma=noise, delta_test=1e-9, shift=2, generator=m.seeded_generator(0)),
            m.stability_test_laplace(gaps, scale=noise, delta_test=1e-9, shift=2, generator=m.seeded_generator(0)),
        ):
            assert (passed == expected).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sigma": 0.0}, "Expected sigma > 0, got sigma=0.0"),
        ({"delta_test": 1.0}, "Expected 0 < delta_test < 1, got delta_test=1.0"),
        ({"shift": 0}, "Expected an integer shift >= 1, got shift=0"),
        ({"gaps": [1.0, np.inf]}, "Expected finite gaps, got gaps=[1.0, inf]"),
    ],
)
def test_tests_that_are_refused(arguments: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"gaps": [1], "sigma": 1.0, "delta_test": 0.1, "shift": 1}
    given |= {"generator": m.seeded_generator(0)} | arguments
    with pytest.raises(ValueError) as caught:
        m.stability_test(**given)
    assert str(caught.value) == message
    with pytest.raises(ValueError) as caught:
        m.stability_test_laplace(scale=given.pop("sigma"), **given)
    assert str(caught.value) == message.replace("sigma", "scale")
    if "gaps" not in arguments:
        of_event = {name: arguments.get(name, right) for name, right in (("delta_test", 0.1), ("shift", 1))}
        with pytest.raises(ValueError) as caught:
            m.stability_test_laplace_event(scale=arguments.get("sigma", 1.0), neighboring_relation=REPLACE, **of_event)
        assert str(caught.value) == message.replace("sigma", "scale")


def test_laplace_test_run_for_another_relation_fails_more_often() -> None:
    """A test that subtracts 1 lets a gap of 2 pass more often: with the chance that the noise exceeds what is left."""
    for relation, expected in ((ADD, 1e-3), (REPLACE, 1e-3 * math.exp(1 / 4))):
        event = m.stability_test_laplace_event(scale=4.0, delta_test=1e-3, shift=1, neighboring_relation=relation)
        assert cost(event).delta0 == pytest.approx(expected)
        assert isinstance(event, ComposedEvent)
        assert event.events[0] == PureDPEvent(neighboring_relation=relation, epsilon=relation.count_window / 4)
    certain = m.stability_test_laplace_event(scale=1e-6, delta_test=1e-3, shift=1, neighboring_relation=REPLACE)
    assert cost(certain).delta0 == pytest.approx(1)
    likely = m.stability_test_laplace_event(scale=0.1, delta_test=0.4, shift=1, neighboring_relation=REPLACE)
    assert cost(likely).delta0 == pytest.approx(1 - math.exp(-10) / 2 / (2 * 0.4), rel=1e-6)


# StableTopK


@pytest.mark.parametrize("name", ["scale_gap", "sigma_test"])
def test_an_event_names_the_noise_that_it_refuses(name: str) -> None:
    given: dict[str, Any] = {"num_teachers": 9, "delta_test": 0.1, "shift": 1, "neighboring_relation": ADD}
    with pytest.raises(ValueError, match=f"^Expected {name} > 0, got {name}=-5.0$"):
        m.stable_top_k_event(**given | {"scale_gap": 1.0, "sigma_test": 1.0, name: -5.0})


def test_little_noise_releases_the_set_above_the_widest_gap() -> None:
    members, released = m.stable_top_k(
        COUNTS, **STABLE | {"scale_gap": 1e-3, "sigma_test": 1e-3}, generator=m.seeded_generator(0)
    )
    assert released.all()
    # equal counts leave nothing but the sentinels, of which none and all are as far
    assert members[[0, 2]].tolist() == [[True, False, True, False], [False, True, False, True]]
    assert members[1].all() or not members[1].any()


def test_without_the_empty_set_equal_counts_release_nothing() -> None:
    members, released = m.stable_top_k(
        np.full((200, 5), 50), **STABLE | {"delta_test": 1e-9}, allow_empty=False, generator=m.seeded_generator(0)
    )
    assert not released.any() and not members.any()


def test_one_label_is_in_or_out() -> None:
    for count, expected in ((100, True), (0, False)):
        members, released = m.stable_top_k([[count]], **STABLE, generator=m.seeded_generator(0))
        assert released.all() and members.tolist() == [[expected]]


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_fixed_k_is_what_comes_out(k: int) -> None:
    members, released, rounds = m.fixed_stable_top_k(
        np.tile(COUNTS, (50, 1)), **FIXED | {"k": k}, generator=m.seeded_generator(0)
    )
    assert released.any()
    np.testing.assert_array_equal(members.sum(axis=1), k * released)
    assert ((rounds >= 0) & (rounds <= k * released)).all()


def test_fixed_k_with_little_noise_is_the_top() -> None:
    quiet = FIXED | {"scale_gap": 1e-3, "sigma_test": 1e-3, "scale_peel": 1e-3}
    for k, expected in ((1, [0]), (2, [0, 2]), (3, [0, 2, 3])):
        for pull in (0.0, 1e3):
            members, released, rounds = m.fixed_stable_top_k(
                COUNTS[0], **quiet | {"k": k, "pull": pull}, generator=m.seeded_generator(0)
            )
            # without a pull the widest gap is that below two labels
            assert released and np.flatnonzero(members).tolist() == expected
            assert rounds == (0 if pull else abs(k - 2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "Expected an integer k >= 1, got k=0"),
        ({"k": 5}, "Expected k <= 4 for 4 items, got k=5"),
        ({"pull": -1.0}, "Expected pull >= 0, got pull=-1.0"),
        ({"pull": math.inf}, "Expected pull >= 0, got pull=inf"),
        ({"scale_peel": 0.0}, "Expected scale_peel > 0, got scale_peel=0.0"),
    ],
)
def test_fixed_k_that_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        m.fixed_stable_top_k(COUNTS, **FIXED | arguments, generator=m.seeded_generator(0))
    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["scale_gap", "sigma_test"])
def test_noise_that_is_refused_is_named(name: str) -> None:
    mechanisms: list[Callable[..., Any]] = [m.stable_top_k, m.fixed_stable_top_k]
    for mechanism, arguments in zip(mechanisms, (STABLE, FIXED), strict=True):
        with pytest.raises(ValueError) as caught:
            mechanism(COUNTS, **arguments | {name: -5.0}, generator=m.seeded_generator(0))
        assert str(caught.value) == f"Expected {name} > 0, got {name}=-5.0"


def test_fixed_k_reserves_k_rounds_and_settles_what_was_run() -> None:
    event = {name: FIXED[name] for name in ("scale_gap", "sigma_test", "delta_test", "shift")}
    shared: dict[str, Any] = event | {"num_teachers": 100, "neighboring_relation": REPLACE}
    stable = m.stable_top_k_event(**shared)
    none, one, all_of_them = (
        m.fixed_stable_top_k_event(**shared, k=3, scale_peel=4.0, rounds=rounds) for rounds in (0, 1, None)
    )
    peel = cost(BoundedRangeEvent(neighboring_relation=REPLACE, eta=0.5)).rdp
    assert none == stable
    np.testing.assert_allclose(cost(one).rdp, cost(stable).rdp + peel)
    np.testing.assert_allclose(cost(all_of_them).rdp, cost(stable).rdp + 3 * peel)
