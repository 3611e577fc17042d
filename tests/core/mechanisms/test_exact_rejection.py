"""Draws from many outcomes: what is proposed is right only roughly, and what is kept exactly."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from pate import mechanisms as m
from pate._core.mechanisms import exact_choice as race
from pate._core.mechanisms.canonical import CanonicalLoss
from pate._core.mechanisms.exact_choice import Chance, Proposals
from pate._core.mechanisms.noise import ChoiceNoise, LazyReal
from pate._core.testing.laws import chi_square_p_value
from pate._core.validation import BoolArray, FloatArray, IntArray
from tests.core.mechanisms import oracles
from tests.core.mechanisms.scripted import Scripted

COUNTS = np.random.default_rng(0).integers(0, 9, (40, 7))
NOISES: tuple[ChoiceNoise, ...] = ("gumbel", "exponential")
LOSSES: tuple[tuple[float, CanonicalLoss], ...] = ((0.3, "lead"), (0.5, "published"), (1.0, "lead"))
CHANCES = np.array([[1.0, 0.7, 0.2, 1e-3], [0.1, 1.0, 0.9, 0.9]])


def drawn(rates: FloatArray, draws: int, *, flip: bool, seed: int) -> list[IntArray]:
    """Draw from both rows of `CHANCES`, proposed at rates that are too large for some."""
    generator = m.seeded_generator(seed)
    rows = np.repeat([0, 1], draws)
    cumulative = np.tile(race.cumulative_weights(rates), (rows.size, 1))
    log_rates = np.full(rows.size, math.log(rates.sum()) + race.SLACK)
    losses = -np.log(CHANCES)

    def propose(at: IntArray) -> Proposals:
        picked = race.pick(cumulative[at], generator)
        loss = losses[rows[at], picked.places]

        def chance(place: int) -> Chance:
            return Chance(
                1 / picked.share(place),
                Fraction(float(loss[place])) + Fraction(float(log_rates[0])),
            )

        chances = -loss - picked.log_shares - log_rates[at]
        return Proposals(
            picked.places[:, None],
            chances,
            chance,
            loss,
            lambda place: Fraction(float(loss[place])),
        )

    chosen = race.draw(log_rates, propose, generator, noise="exponential" if flip else "gumbel")[
        :, 0
    ]
    return [np.bincount(chosen[rows == row], minlength=4) for row in (0, 1)]


@pytest.mark.parametrize("rates", [np.ones(4), np.array([1.0, 5.0, 2.0, 1.0])])
def test_rows_are_drawn_each_by_its_own_law(rates: FloatArray) -> None:
    """Whatever the rates of the proposals; neither law passes for the other."""
    draws, laws = 20_000, (oracles.softmax, oracles.flip_law)
    for flip in (False, True):
        for chances, observed in zip(CHANCES, drawn(rates, draws, flip=flip, seed=3), strict=True):
            assert chi_square_p_value(observed, draws * laws[flip](np.log(chances))) > 1e-4
            assert chi_square_p_value(observed, draws * laws[not flip](np.log(chances))) < 1e-9


@pytest.mark.parametrize("rate", [0.1, 0.6])
def test_an_outcome_that_is_proposed_too_rarely_is_noticed(rate: float) -> None:
    with pytest.raises(
        ArithmeticError, match=r"^An outcome is proposed less often than its law demands\.$"
    ):
        drawn(np.array([1.0, rate, rate, rate]), 10, flip=False, seed=0)


def _joint(scores: FloatArray | IntArray) -> list[IntArray]:
    return [
        m.JointMechanism(k=3, scale=1.5, noise=noise)(scores, generator=np.random.default_rng(7))
        for noise in NOISES
    ]


def _canonical(scores: FloatArray | IntArray) -> list[IntArray]:
    return [
        m.CanonicalMechanism(k=3, scale=1.5, gamma=gamma, noise=noise, loss=loss)(
            scores, generator=np.random.default_rng(8)
        )
        for noise in NOISES
        for gamma, loss in LOSSES
    ]


DRAWS = pytest.mark.parametrize(
    ("draw", "scores"),
    [
        (_joint, COUNTS),
        (_joint, COUNTS[0] / 3),
        (_canonical, COUNTS),
        (_canonical, 4 * COUNTS),
        (_canonical, COUNTS[0] / 3),
    ],
    ids=["joint", "joint-row", "canonical", "canonical-apart", "canonical-row"],
)


@DRAWS
def test_what_floats_decide_is_what_digits_decide(
    draw: Callable[[FloatArray | IntArray], list[IntArray]],
    scores: FloatArray | IntArray,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is left to floats in the second half, and all comes out the same."""
    expected = draw(scores)
    monkeypatch.setattr(race, "_LOG_MARGIN", math.inf)
    monkeypatch.setattr(race, "MARGIN", math.inf)
    for one, other in zip(draw(scores), expected, strict=True):
        np.testing.assert_array_equal(one, other)


@DRAWS
def test_chances_in_floats_are_those_in_fractions(
    draw: Callable[[FloatArray | IntArray], list[IntArray]],
    scores: FloatArray | IntArray,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A chance that is a little too large changes hardly any draw, and is noticed here."""
    are_kept, checked = race._are_kept, 0

    def compared(proposals: Proposals, generator: np.random.Generator) -> BoolArray:
        nonlocal checked
        for place, log_chance in enumerate(proposals.log_chances.tolist()):
            factor, low, high = proposals.chance(place)
            exact = math.log(factor.numerator) - math.log(factor.denominator) - float(low)
            if high is not None:
                exact += math.log(-math.expm1(float(low - high)))
            assert log_chance == pytest.approx(exact, abs=1e-9)
            checked += 1
        return are_kept(proposals, generator)

    monkeypatch.setattr(race, "_are_kept", compared)
    draw(scores)
    assert checked


def test_what_lies_within_the_margins_is_left_to_digits_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And coins of which few digits are drawn, where the chance is as small."""
    decided: list[int] = []

    def happens(chance: int, *_: Any) -> bool:
        decided.append(chance)
        return True

    monkeypatch.setattr(race, "happens", happens)
    shares, extreme = np.array([-1.05, -0.95, 0.95, 1.05]), np.array([0.98, 0.98, 1.02]) * 2.0**-20
    log_chances = np.concatenate((np.full(4, -1.0), [-13.1, -12.9, -20.0]))
    coins = np.concatenate((np.exp(-1 - shares * 2.0**-14), extreme))
    proposals: Any = Proposals(np.zeros((7, 1), np.int64), log_chances, lambda place: place)  # type: ignore[arg-type, return-value]
    kept = race._are_kept(proposals, Scripted(coins))
    assert decided == [1, 2, 4] and kept.tolist() == [False, True, True, True, True, True, False]

    # how long is waited for a coin, if the loss is 1/2
    needed = np.concatenate((np.full(4, 8.0), [13.1, 12.9, 20.0]))
    times = np.log1p(np.expm1(needed) / -math.expm1(-0.5))
    coins = np.concatenate((np.exp(-8 - shares * 9 * 2.0**-28), extreme))
    taken, doubtful = race._are_taken(np.full(7, 0.5), times, coins, np.zeros(7, np.bool_))
    assert doubtful.tolist() == [False, True, True, False, True, False, False]
    assert taken.tolist() == [False, False, True, True, True, True, False]


@pytest.mark.parametrize("factor", [1, 1000])
def test_chances_beyond_the_digits_of_a_float_are_met(factor: int) -> None:
    """The first digits of a uniform number leave it open, and those that follow decide by the
    chance that is left."""
    generator = np.random.default_rng(1)
    chance = Chance(Fraction(factor, 3), Fraction(38), Fraction(39))
    exact = mpmath.mpf(factor) / 3 * (mpmath.exp(-38) - mpmath.exp(-39)) * 2**53
    digits = int(mpmath.floor(exact))
    happened = [race.happens(chance, LazyReal(digits, 53), generator) for _ in range(700)]
    rest = float(exact - digits)
    assert 0.05 < rest < 0.95 and abs(np.mean(happened) - rest) < 4 * math.sqrt(
        rest * (1 - rest) / 700
    )
    assert race.happens(chance, LazyReal(digits - 1, 53), generator) or digits == 0
    assert not race.happens(chance, LazyReal(digits + 1, 53), generator)


def test_times_beyond_the_digits_of_a_float_are_told_apart() -> None:
    """A wait that is known to a half only: the coin passes with the mean of the chance over what it
    may be."""
    generator, coin, draws = np.random.default_rng(2), 0.85, 250
    loss, rate = Fraction(1, 2), Chance(Fraction(1), Fraction(1, 4))
    taken = [
        race.is_taken(loss, [LazyReal(1, 1)], rate, LazyReal(int(coin * 2**53), 53), generator)
        for _ in range(draws)
    ]
    heads = math.exp(-0.5)
    # the time at which the chance has fallen to the coin, and the uniform number of that time
    latest = math.log((1 / coin - heads) / (1 - heads))
    passes = (1 - math.exp(-latest * math.exp(0.25))) / 0.5
    assert 0.1 < passes < 0.9 and abs(np.mean(taken) - passes) < 4 * math.sqrt(
        passes * (1 - passes) / draws
    )
    assert race.is_taken(Fraction(0), [LazyReal(0, 53)], rate, LazyReal(2**53 - 1, 53), generator)
    assert not race.is_taken(loss, [LazyReal(0, 300)], rate, LazyReal(2**52, 53), generator)


def test_weights_are_integers_however_small_the_masses() -> None:
    cumulative = race.cumulative_weights(np.array([[1.0, 0.0, 1e-40, 1.0], [0.0, 0.0, 0.0, 0.0]]))
    assert np.diff(cumulative[0]).tolist() == [1, 1, 2**49 + 1] and np.diff(
        cumulative[1]
    ).tolist() == [1, 1, 1]
    picked = race.pick(np.tile([[1, 3, 6]], (60_000, 1)), np.random.default_rng(3))
    assert [picked.share(int(np.argmax(picked.places == place))) for place in range(3)] == [
        Fraction(1, 6),
        Fraction(1, 3),
        Fraction(1, 2),
    ]
    assert chi_square_p_value(np.bincount(picked.places), np.array([10_000, 20_000, 30_000])) > 1e-4


@pytest.mark.parametrize("noise", NOISES)
def test_logarithms_of_chances_err_by_far_less_than_is_allowed(
    noise: ChoiceNoise, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of thousands of items too, where they are differences of large numbers."""
    keep, errors = race._are_kept, []

    def kept(proposals: Proposals, generator: np.random.Generator) -> BoolArray:
        for place, log_chance in enumerate(proposals.log_chances.tolist()):
            factor, low, high = proposals.chance(place)
            ends = [
                mpmath.mpf(end.numerator) / end.denominator
                for end in (low, low if high is None else high)
            ]
            less = 0 if high is None else mpmath.exp(-ends[1])
            exact = (
                mpmath.mpf(factor.numerator) / factor.denominator * (mpmath.exp(-ends[0]) - less)
            )
            errors.append(abs(float(mpmath.log(exact)) - log_chance) if exact else 0.0)
        return keep(proposals, generator)

    monkeypatch.setattr(race, "_are_kept", kept)
    mpmath.mp.dps = 60
    scores = np.random.default_rng(4).integers(0, 3000, 5000)
    for mechanism in (
        m.CanonicalMechanism(k=300, scale=20.0, noise=noise),
        m.CanonicalMechanism(k=300, scale=20.0, gamma=1.0, noise=noise),
        m.JointMechanism(k=300, scale=20.0, noise=noise),
    ):
        mechanism(scores, generator=np.random.default_rng(5))
    assert len(errors) > 3 and max(errors) < 2.0**-26
