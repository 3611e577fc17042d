"""Choices are those of noise that has all its digits: floats decide nothing that digits could
change."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, get_args

import mpmath
import numpy as np
import pytest
from numpy.typing import ArrayLike

from pate._core.mechanisms import exact_choice
from pate._core.mechanisms.exact_choice import sample_k_smallest, sum_of_exponentials
from pate._core.mechanisms.noise import (
    Interval,
    LazyReal,
    Noise,
    decimal_precision,
    enclose,
    exp_of,
    log_of,
    negative,
    product,
    quantile,
    total,
)
from pate._core.mechanisms.peeling import one_shot
from pate._core.validation import IntArray
from tests.core.mechanisms.scripted import Scripted

NOISES: tuple[Noise, ...] = get_args(Noise)
QUANTILES: dict[str, Any] = {
    "gumbel": lambda t: -mpmath.log(-mpmath.log(1 - t)),
    "exponential": lambda t: -mpmath.log(t),
    "laplace": lambda t: -mpmath.log(2 * t) if t < 0.5 else mpmath.log(2 * (1 - t)),
    "logistic": lambda t: mpmath.log((1 - t) / t),
    "half_logistic": lambda t: mpmath.log((2 - t) / t),
}


@pytest.mark.parametrize("scale", [1e301, -np.inf])
def test_noise_that_may_not_be_finite_is_refused(scale: float) -> None:
    """It would leave the choice to the places of the scores."""
    with pytest.raises(ValueError, match=r"^Expected a scale of noise <= 1e\+300, got scale="):
        sample_k_smallest(
            np.zeros((1, 3)), 1, noise="gumbel", scale=scale, generator=np.random.default_rng(0)
        )


@pytest.mark.parametrize("noise", NOISES)
def test_what_floats_decide_is_what_digits_decide(
    noise: Noise, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left to floats in the second half, and all comes out the same."""
    below = np.random.default_rng(0).integers(-2, 9, (24, 7)).astype(np.float64)
    below[:8, 0], below[4:12, 1] = -np.inf, np.inf

    def chosen(k: int) -> IntArray:
        scale = np.where(np.arange(24) % 3, 2.0, -1.5)[:, None]
        return sample_k_smallest(
            below, k, noise=noise, scale=scale, generator=np.random.default_rng(k)
        )

    expected = [chosen(k) for k in (1, 3, 7)]
    monkeypatch.setattr(exact_choice, "EXTREME", 1.0)
    for k, order in zip((1, 3, 7), expected, strict=True):
        np.testing.assert_array_equal(chosen(k), order)


@pytest.mark.parametrize("noise", NOISES)
def test_noise_lies_within_its_bounds_and_floats_err_within_the_margin(noise: Noise) -> None:
    mpmath.mp.dps = 80
    generator, slack = np.random.default_rng(1), Fraction(1, 10**22)
    edge = 2.0**-20 * (1 + generator.random(20))
    tails = np.concatenate((generator.random(60), edge, 1 - edge))
    for tail, value in zip(tails.tolist(), quantile(tails, noise).tolist(), strict=True):
        digits = LazyReal(int(tail * 2**53), 53)
        low, high = exact_choice._quantile_of(digits, noise, generator)
        exact = [
            QUANTILES[noise](mpmath.mpf(end.numerator) / end.denominator) for end in digits.ends
        ]
        most, least = (Fraction(str(end)) for end in exact)
        assert least - slack < low < least < most < high < most + slack
        assert max(abs(value - end) for end in exact) < 2.0**-31
    for extreme in (LazyReal(0, 53), LazyReal(2**53 - 1, 53), LazyReal(2**52 - 1, 52)):
        low, high = exact_choice._quantile_of(extreme, noise, generator)
        assert low < high and extreme.length > 52


class Stuck(np.random.Generator):
    """A generator of whose uniform numbers the first digits are always the same."""

    tail = 0.5

    def random(self, size: Any) -> Any:  # type: ignore[override]
        return np.full(size, self.tail)


@pytest.mark.parametrize("tail", [0.0, 1 - 2.0**-53])
@pytest.mark.parametrize("noise", ["gumbel", "laplace"])
def test_noise_that_agrees_in_all_digits_of_a_float_is_told_apart(
    noise: Noise, tail: float
) -> None:
    """None of equal scores comes first more often, as it would if ties went to the first."""
    generator = Stuck(np.random.PCG64(2))
    generator.tail = tail
    first = sample_k_smallest(np.zeros((200, 2)), 1, noise=noise, scale=1.0, generator=generator)[
        :, 0
    ]
    assert abs(first.mean() - 1 / 2) < 4 * math.sqrt(1 / 4 / 200)


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_what_lies_far_apart_is_ordered_by_exact_sums(dtype: Any) -> None:
    generator = np.random.default_rng(5)
    scores = generator.integers(0, 3, (50, 6)) + np.array([2**60, 2**60, 0, 0, 2**40, 5])
    scores = generator.permuted(scores, axis=1).astype(dtype)
    for k in (1, 3, 6):
        noise = quantile(np.random.default_rng(k).random(scores.shape), "gumbel")
        sums = np.vectorize(lambda x, z: Fraction(x) + Fraction(z), otypes=[object])(
            scores, noise
        ).tolist()
        expected = [sorted(range(6), key=row.__getitem__, reverse=True)[:k] for row in sums]
        np.testing.assert_array_equal(
            one_shot(scores, k, 1.0, "gumbel", np.random.default_rng(k)), expected
        )


@pytest.mark.parametrize("scale", [0.0, [[1.0], [0.0]], [[1.0, 0.0, 0.0]]])
def test_rows_without_noise_are_refused(scale: ArrayLike) -> None:
    """No digits of a uniform number tell two of their scores apart, and one of 0 would leave no
    number of a key."""
    with pytest.raises(
        ValueError, match=r"^Expected noise on all of a row but one at most, got zeros=[12]$"
    ):
        sample_k_smallest(
            np.zeros((2, 3)), 1, noise="gumbel", scale=scale, generator=np.random.default_rng(0)
        )


def resolved(
    below: list[float],
    k: int,
    monkeypatch: pytest.MonkeyPatch,
    *,
    tails: ArrayLike = 0.5,
    **settings: Any,
) -> set[int] | None:
    """Return the places of one row whose order is left to digits; Laplace noise is 0 at a tail of
    0.5."""
    places: list[set[int]] = []

    def in_order(values: dict[int, Fraction], *_: Any) -> list[int]:
        places.append(set(values))
        return list(values)

    monkeypatch.setattr(exact_choice, "_in_order", in_order)
    arguments: dict[str, Any] = {
        "noise": "laplace",
        "scale": 1.0,
        "generator": np.random.default_rng(0),
    } | settings
    sample_k_smallest(
        np.array([below]), k, tails=np.broadcast_to(tails, (1, len(below))), **arguments
    )
    return places[0] if places else None


@pytest.mark.parametrize("scale", [[1.0], [3.0], [0.0, -3.0, 1.0, 1.0, 1.0]])
@pytest.mark.parametrize("far", [0.0, 2.0**22])
def test_keys_that_are_close_are_left_to_digits_and_no_others(
    scale: list[float], far: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among the first k, and between them and the next; keys far from 0 are close at a greater
    distance."""
    margin = 2.0**-28 * max(map(abs, scale)) + 2.0**-50 * far
    order: list[float] = [-9.0, far, far + 1, far + 2, far + 3]
    for pair in range(4):
        for share in (0.9, 1.1):
            below = order.copy()
            below[pair] = order[pair + 1] - share * margin
            expected = set(range(max(3, pair + 2))) if share < 1 and pair < 3 else None
            assert resolved(below, 3, monkeypatch, scale=[scale]) == expected


def test_tails_that_are_extreme_are_left_to_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever their keys lie, since nothing is known of these."""
    for tail, extreme in ((0.98 * 2.0**-20, True), (1.02 * 2.0**-20, False)):
        for one in (tail, 1 - tail):
            expected = {0, 2} if extreme else None
            assert (
                resolved([0.0, 300.0, 99.0, 200.0], 1, monkeypatch, tails=[0.5, 0.5, one, 0.5])
                == expected
            )


def test_what_was_clipped_is_ordered_by_exact_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    far = 2.0**20 * 4
    for lead, clipped in ((0.98, False), (1.02, True)):
        below = [5.0, -lead * far, 0.0]
        settings: dict[str, Any] = {"scale": 4.0, "exact": lambda row, place: Fraction(0)}
        assert resolved(below, 2, monkeypatch, **settings) == ({1, 2} if clipped else None)
        assert resolved(below, 2, monkeypatch, scale=4.0) is None


def test_numbers_whose_bounds_overlap_are_told_apart_by_further_digits() -> None:
    """Whichever begins lower; no more is drawn for numbers that are clear of one another."""
    scales = dict.fromkeys(range(3), Fraction(1))
    for words, first in (((0, 2**63), 1), ((2**63, 0), 0)):
        tails = {0: LazyReal(1, 2), 1: LazyReal(1, 2), 2: LazyReal(1, 2)}
        # the noise of either is within log(2) and log(1), and less of it at a larger tail
        values = {0: Fraction(0), 1: Fraction(1, 10), 2: Fraction(5)}
        order = exact_choice._in_order(
            values, tails, scales, "exponential", Scripted(*words[::-1]), {}
        )
        assert order[0] == first and order[2] == 2 and tails[2].length == 2


def is_tight(bounds: Interval, exact: tuple[mpmath.mpf, mpmath.mpf], *, digits: int) -> bool:
    """Whether bounds enclose what lies between two numbers, and exceed it by some units of the last
    digit only."""
    low, high = (mpmath.mpf(str(bound)) for bound in bounds)
    slack = 4 * mpmath.mpf(10) ** (1 - digits) * max(abs(low), abs(high))
    return bool(exact[0] - slack < low < exact[0] <= exact[1] < high < exact[1] + slack)


@pytest.mark.parametrize("prec", [6, 30])
def test_bounds_are_tight(prec: int) -> None:
    """On few digits, where a bound that is rounded the wrong way lies on the wrong side at once."""
    numbers = [
        Fraction(int(part), 2**20) for part in np.random.default_rng(6).integers(1, 2**20, 40)
    ]
    with localcontext(prec=prec), mpmath.workdps(60):
        for one, other in zip(numbers[::2], numbers[1::2], strict=True):
            first, second = (
                mpmath.mpf(number.numerator) / number.denominator for number in (one, other)
            )
            bounds = enclose(one), enclose(other)
            for interval, exact in (
                (bounds[0], first),
                (enclose(-one), -first),
                (negative(bounds[0]), -first),
                (total(*bounds), first + second),
                (product(*bounds), first * second),
                (exp_of(bounds[0]), mpmath.exp(first)),
                (exp_of(enclose(-one)), mpmath.exp(-first)),
                (log_of(bounds[0]), mpmath.log(first)),
            ):
                assert is_tight(interval, (exact, exact), digits=prec - 1)


def test_a_product_is_no_less_than_zero() -> None:
    """Of lower bounds that may lie below it, though no number does."""
    unsure, sure = (Decimal(-1), Decimal(3)), (Decimal(2), Decimal(5))
    for bounds in (product(unsure, sure), product(sure, unsure), product(unsure, unsure)):
        assert -1e-20 < bounds[0] <= 0 and 8 < bounds[1] < 16


def test_contexts_have_24_digits_to_spare() -> None:
    for length in (0, 53, 117, 1141):
        with decimal_precision(length) as context:
            assert 10**24 * 2**length <= 10**context.prec < 10 ** (24 + length // 3 + 1)
            assert Decimal(-(10**9)).exp() > 0  # which other contexts round to 0


def test_waits_are_bounded_by_those_of_the_ends_of_their_digits() -> None:
    tails = [
        LazyReal(int(digits), 20) for digits in np.random.default_rng(7).integers(1, 2**20 - 1, 40)
    ]
    with localcontext(prec=20), mpmath.workdps(45):
        for one, other in zip(tails[::2], tails[1::2], strict=True):
            least, most = (-mpmath.log(mpmath.mpf(one.digits + i) / 2**20) for i in (1, 0))
            assert is_tight(sum_of_exponentials([one]), (least, most), digits=19)
            low, high = (-mpmath.log(mpmath.mpf(other.digits + i) / 2**20) for i in (1, 0))
            assert is_tight(
                sum_of_exponentials([one, other]), (least + low, most + high), digits=19
            )
        assert sum_of_exponentials([tails[0], LazyReal(0, 20)])[1] == Decimal("Infinity")
        assert is_tight(
            tails[0].bounds,
            tuple(mpmath.mpf(tails[0].digits + i) / 2**20 for i in (0, 1)),
            digits=19,
        )
