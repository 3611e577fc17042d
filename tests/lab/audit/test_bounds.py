"""Bounds from guesses: against laws that are known, and against all laws that the theorems
allow."""

import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from pate._core.accounting.cost import gaussian_delta
from pate.accounting import BoundedRangeEvent, GaussianEvent, NeighboringRelation, RDPAccountant
from pate.lab.audit.whole import (
    Bounds,
    Guesses,
    TradeOff,
    epsilon_bound,
    gaussian_trade_off,
    guess,
    hits_at,
    mu_bound,
    refutes,
    trade_off_of,
)

REPLACE = NeighboringRelation.REPLACE_RECORD
LEVEL = 0.05


def pairs(epsilon: float, delta: float) -> TradeOff:
    """The trade-off of (epsilon, delta)-DP."""
    return lambda hits: max(
        0.0, (hits - delta) * math.exp(-epsilon), 1 - delta - math.exp(epsilon) * (1 - hits)
    )


def most_likely_tail(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """The largest P[right >= v] under the conditions of `refutes`, by linear programming over all
    laws of v."""
    right, rows, limits = np.arange(r + 1), [], []
    for i in range(1, r + 1):
        hits, missed = (
            np.where(right >= i, right, 0) / m,
            np.where(right >= i - 1, r - right, 0) / m,
        )
        # hits <= exp(epsilon) missed + delta, and 1 - missed <= exp(epsilon) (1 - hits) + delta
        rows += [hits - math.exp(epsilon) * missed, math.exp(epsilon) * hits - missed]
        limits += [delta, math.exp(epsilon) + delta - 1]
    done = linprog(-1.0 * (right >= v), rows, limits, np.ones((1, r + 1)), [1.0])
    assert done.success
    return -float(done.fun)


@pytest.mark.parametrize(("m", "r"), [(1, 1), (4, 4), (9, 4), (12, 12)])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 0.0), (1.0, 0.0), (0.7, 0.02)])
def test_the_recursion_finds_the_most_likely_tail_of_all_laws(
    m: int, r: int, epsilon: float, delta: float
) -> None:
    for v in range(1, r + 1):
        most = most_likely_tail(m, r, v, epsilon, delta)
        guesses = Guesses(m, r, v)
        assert not refutes(guesses, pairs(epsilon, delta), confidence=1 - most * (1 - 1e-6))
        assert most > 1 - 1e-6 or refutes(
            guesses, pairs(epsilon, delta), confidence=1 - most * (1 + 1e-6)
        )


def test_one_gaussian_guess_has_its_exact_probability() -> None:
    for mu in (0.3, 1.0, 2.5):
        exact, guesses = float(ndtr(mu / 2)), Guesses(1, 1, 1)
        assert not refutes(guesses, gaussian_trade_off(mu), confidence=1 - exact * (1 - 1e-9))
        assert refutes(guesses, gaussian_trade_off(mu), confidence=1 - exact * (1 + 1e-9))


@pytest.mark.parametrize("m", [7, 60])
@pytest.mark.parametrize("epsilon", [0.0, 2.0])
def test_randomised_response_is_rarely_refuted_and_a_little_more_is(m: int, epsilon: float) -> None:
    """The law of the right guesses is binomial, so that the error is summed up and not sampled."""
    honest = 1 / (1 + math.exp(-epsilon))
    chances = binom.pmf(np.arange(m + 1), m, honest)
    by_guesses = [Guesses(m, m, v) for v in range(m + 1)]
    refuted = np.array(
        [refutes(guesses, pairs(epsilon, 0.0), confidence=1 - LEVEL) for guesses in by_guesses]
    )
    # rounded to the next cent, above which the bound is wrong
    beyond = np.array(
        [
            epsilon_bound(guesses, delta=0.0, confidence=1 - LEVEL) > epsilon
            for guesses in by_guesses
        ]
    )
    assert (chances * refuted).sum() <= LEVEL and (chances * beyond).sum() <= LEVEL
    # negative control: the same guesses of a mechanism that says more
    says_more = binom.pmf(np.arange(m + 1), m, 1 / (1 + math.exp(-epsilon - 3)))
    if m == 60:
        assert (says_more * refuted).sum() > 0.95 and (says_more * beyond).sum() > 0.95


@pytest.mark.parametrize("m", [5, 60])
def test_what_delta_hides_is_not_held_against_epsilon(m: int) -> None:
    """All is told with a probability of delta, or nothing: (0, delta)-DP, and the worst for many
    canaries."""
    delta = LEVEL / (2 * m) / 4
    everything = Guesses(m, m, m)
    assert epsilon_bound(everything, delta=0.0, confidence=0.999) > 0 or m == 5
    told = delta + (1 - delta) * 0.5**m
    for confidence in (1 - told / 2, 1 - told * (1 - 1e-9)):
        assert epsilon_bound(everything, delta=delta, confidence=confidence) == 0.0
    # without its term the bound is wrong: it says that epsilon is positive
    if m == 60:
        assert epsilon_bound(everything, delta=0.0, confidence=1 - told) > 0
    assert not refutes(everything, pairs(0.0, delta), confidence=1 - told * (1 - 1e-6))


@pytest.mark.parametrize(
    ("mu", "near"), [(0.85, 0.4), pytest.param(1.7, 0.5, marks=pytest.mark.slow)]
)
def test_bounds_of_gaussian_mechanisms_hold_and_come_near(mu: float, near: float) -> None:
    """Each canary is seen with noise of its own: the strongest attack on a sum of orthogonal
    ballots."""
    generator, delta, m, seeds = np.random.default_rng(7), 1e-6, 512, 24
    beyond, found = 0, []
    for _ in range(seeds):
        present = generator.random(m) < 0.5
        scores = np.where(present, mu / 2, -mu / 2) + generator.standard_normal(m)
        guesses = guess(scores, present)
        beyond += refutes(guesses, gaussian_trade_off(mu), confidence=1 - LEVEL)
        beyond += (
            gaussian_delta(epsilon_bound(guesses, delta=delta, confidence=1 - LEVEL), mu) < delta
        )
        found.append(refutes(guesses, gaussian_trade_off(near * mu), confidence=1 - LEVEL))
    assert beyond <= 2 * LEVEL * seeds  # of two bounds
    # negative control: a mu that is claimed to be less than half of what it is
    assert np.mean(found) > 0.7
    bounds = Bounds.of(scores, present, gaussian_trade_off(near * mu), delta=delta)
    assert bounds.refuted == (bounds.mu > near * mu) == found[-1]


def test_a_number_of_guesses_that_is_chosen_afterwards_is_wrong_too_often() -> None:
    generator, m, trials = np.random.default_rng(1), 40, 200
    fixed, chosen = 0, 0
    for _ in range(trials):
        right = np.cumsum(generator.random(m) < 0.5)
        bound = [
            mu_bound(Guesses(m, r, int(right[r - 1])), confidence=1 - LEVEL) > 0
            for r in (10, 20, 30, 40)
        ]
        fixed += bound[-1]
        chosen += any(bound)
    assert fixed <= LEVEL * trials < chosen


def test_the_trade_off_of_an_account_is_that_of_its_events() -> None:
    gaussian = RDPAccountant(relation=REPLACE).compose(
        GaussianEvent(neighboring_relation=REPLACE, noise_multiplier=2.0), 4
    )
    assert trade_off_of(gaussian)(0.8) == pytest.approx(gaussian_trade_off(1.0)(0.8))
    # the same verdicts, those included where more is right than can be
    for right in (50, 57, 60, 64):
        verdicts = [
            refutes(Guesses(256, 64, right), trade_off, confidence=0.98)
            for trade_off in (trade_off_of(gaussian), gaussian_trade_off(1.0))
        ]
        assert verdicts[0] == verdicts[1] == (right == 64)
    assert hits_at(gaussian_trade_off(1.0), 0.01) == pytest.approx(float(ndtr(ndtri(0.01) + 1)))
    ranged = RDPAccountant(relation=REPLACE).compose(
        BoundedRangeEvent(neighboring_relation=REPLACE, eta=0.5), 20
    )
    trade_off, grid = trade_off_of(ranged), np.linspace(0, 1, 101)
    values = np.array([trade_off(float(hits)) for hits in grid])
    assert (
        (np.diff(values, 2) > -1e-9).all()
        and (values <= grid).all()
        and values[-1] == pytest.approx(1.0)
    )
    for epsilon in (0.5, 2.0):
        close = pairs(epsilon, ranged.get_delta(epsilon))
        assert all(trade_off(float(hits)) >= close(float(hits)) - 0.02 for hits in grid)
