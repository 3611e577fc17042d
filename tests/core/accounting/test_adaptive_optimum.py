"""The adaptive optimum against enumeration of the adversary's tree, closed forms, and attacks that
are played out."""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import binom

from pate._core.accounting import adaptive as _adaptive
from pate._core.accounting.accountant import RenyiAccountant
from pate._core.accounting.adaptive import adaptive_profile, equal_rounds, pure_profile
from pate._core.accounting.base import total_cost
from pate._core.accounting.cost import DEFAULT_ORDERS, convert, gaussian_delta, remaining_delta
from pate._core.accounting.curves import bounded_range_pairs, gaussian_bit_pairs
from pate.accounting import (
    BoundedRangeEvent,
    ComposedEvent,
    Event,
    FailureEvent,
    GaussianEvent,
    NeighboringRelation,
    Pairs,
    PureDPEvent,
    RDPAccountant,
    RootPeelingEvent,
    StabilityTestEvent,
)
from tests.core.accounting.adversaries import bits, choices, enumerated

REPLACE = NeighboringRelation.REPLACE_RECORD
FloatArray = NDArray[np.float64]
EPSILONS = np.array([-0.7, -0.1, 0.0, 0.05, 0.3, 0.9, 1.7, 2.4])


def adaptive_epsilon(event: Event, count: int, *, delta: float) -> float:
    """Bound epsilon of ``count`` rounds of ``event`` against any adaptive adversary."""
    rounds = event.pairs()
    cost = total_cost([event], count)
    # a valid bound as well, and hence the range that the grid has to cover
    renyi = float(convert(cost, DEFAULT_ORDERS, delta=delta).min())
    if not rounds or not np.isfinite(renyi):
        return renyi
    margin = 1 + renyi / 2
    # near order 1 the curve is half of the variance of the loss
    spread = np.sqrt(2 * cost.rdp[0] / count)
    profile = adaptive_profile(
        rounds, count, low=-margin, high=renyi + margin, step=float(np.clip(spread / 32, 1e-5, 0.1))
    )
    return min(renyi, profile.at(remaining_delta(delta, cost.log_survival)))


def bound(rounds: Sequence[Pairs], count: int, *, step: float = 0.01) -> FloatArray:
    """The bound at EPSILONS, which are nodes."""
    profile = adaptive_profile(rounds, count, low=-9.0, high=9.0, step=step)
    at = np.searchsorted(profile.epsilon, EPSILONS - step / 2)
    np.testing.assert_allclose(profile.epsilon[at], EPSILONS, atol=1e-12)
    return profile.delta[at]


ETA, MU = 0.8, 0.5
LOSSES, THRESHOLDS = np.linspace(0.01, 0.99, 41) * ETA, np.linspace(-4, 4 - MU, 41)
CASES = {
    "choice": ([bounded_range_pairs(ETA)], [choices(ETA, LOSSES)], 1),
    "two choices": ([bounded_range_pairs(ETA)], [choices(ETA, LOSSES)] * 2, 2),
    "three choices": ([bounded_range_pairs(ETA)], [choices(ETA, LOSSES[::2])] * 3, 3),
    "bit": ([gaussian_bit_pairs(MU, 6)], [bits(MU, THRESHOLDS)], 1),
    "two bits": ([gaussian_bit_pairs(MU, 6)], [bits(MU, THRESHOLDS)] * 2, 2),
    "three bits": ([gaussian_bit_pairs(MU, 6)], [bits(MU, THRESHOLDS[8:-8:2])] * 3, 3),
    "query": (
        [bounded_range_pairs(ETA), gaussian_bit_pairs(MU, 6)],
        [choices(ETA, LOSSES), bits(MU, THRESHOLDS)],
        1,
    ),
    "two queries": (
        [bounded_range_pairs(ETA), gaussian_bit_pairs(MU, 6)],
        [choices(ETA, LOSSES[4::4]), bits(MU, THRESHOLDS[4:-4:4])] * 2,
        2,
    ),
}


def test_a_profile_is_read_at_its_nodes_and_on_chords_between_them() -> None:
    profile = _adaptive.Profile(np.array([-1.0, 0.0, 1.0, 2.0]), np.array([0.9, 0.5, 0.2, 0.1]))
    for delta, epsilon in ((0.95, 0.0), (0.5, 0.0), (0.2, 1.0), (0.1, 2.0)):
        assert profile.at(delta) == pytest.approx(epsilon) and profile.at(delta) >= epsilon
    middle = math.log((1 + math.e) / 2)  # straight in exp(epsilon), and raised by a part in 10^12
    assert (
        0.9e-12 < profile.at(0.35) / middle - 1 < 1.1e-12
        and 0.9e-12 < profile.delta_at(middle) / 0.35 - 1 < 1.1e-12
    )
    assert profile.at(0.09) == math.inf
    for epsilon, delta in ((0.0, 0.5), (middle, 0.35), (2.0, 0.1), (3.0, 0.1)):
        assert (
            profile.delta_at(epsilon) == pytest.approx(delta) and profile.delta_at(epsilon) >= delta
        )
    assert _adaptive.Profile(np.array([0.5, 1.0]), np.array([0.2, 0.1])).at(0.3) == 0.5


@pytest.mark.parametrize("case", CASES)
def test_bounds_every_strategy_and_hardly_more(case: str) -> None:
    rounds, laws, count = CASES[case]
    found, best = bound(rounds, count), enumerated(np.exp(EPSILONS), laws)
    assert (found >= best).all()
    # the enumerated adversary has few choices, the bound a grid
    np.testing.assert_allclose(found, best, rtol=0.01, atol=2e-3)


def test_one_bounded_range_choice_has_a_closed_form() -> None:
    """sup over t is at e^t = e^((eta + epsilon) / 2)."""
    inside = np.abs(EPSILONS) < ETA
    exact = np.where(
        inside,
        (math.exp(ETA / 2) - np.exp(EPSILONS / 2)) ** 2 / math.expm1(ETA),
        np.maximum(0, -np.expm1(EPSILONS)),
    )
    found = bound([bounded_range_pairs(ETA)], 1)
    assert (found >= exact).all()
    np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("count", [1, 4, 16])
def test_bits_never_reach_the_gaussians_that_they_are_cut_from(count: int) -> None:
    profile = adaptive_profile([gaussian_bit_pairs(MU / 4, 30)], count, low=-4, high=4, step=0.002)
    for epsilon in (0.04, 0.1, 0.2):
        found = profile.delta[np.searchsorted(profile.epsilon, epsilon - 1e-3)]
        gaussian = gaussian_delta(epsilon, math.sqrt(count) * MU / 4)
        # one bit is as good as its Gaussian; several lose what they cut off
        assert (
            (1 if count == 1 else 0.3) * gaussian
            <= found
            <= gaussian * (1.02 if count == 1 else 0.97)
        )


def test_randomised_response_as_often_as_one_likes_is_binomial() -> None:
    count, epsilon = 30, 0.21
    high, k = 1 / (1 + math.exp(-epsilon)), np.arange(31)
    loss, law = (2 * k - count) * epsilon, binom.pmf(k, count, high)
    response = PureDPEvent(epsilon=epsilon, neighboring_relation=REPLACE)
    for delta in (1e-2, 1e-4, 1e-6):
        found = adaptive_epsilon(response, count, delta=delta)
        exact = float(law @ np.maximum(0, -np.expm1(found - loss)))
        assert exact <= delta
        assert float(law @ np.maximum(0, -np.expm1(0.99 * found - loss))) > delta
    # the grid is fine beside the spread of narrow losses
    narrow = adaptive_epsilon(
        PureDPEvent(epsilon=0.05, neighboring_relation=REPLACE), 40, delta=1e-5
    )
    assert abs(narrow / pure_profile(0.05, 40).at(1e-5) - 1) < 1e-6


@pytest.mark.parametrize(("epsilon", "count"), [(0.3, 1), (0.3, 2), (0.05, 7), (1.4, 6), (4.0, 9)])
def test_pure_rounds_are_exact_over_all_their_outcomes(epsilon: float, count: int) -> None:
    profile, truth = pure_profile(epsilon, count), math.exp(epsilon) / (1 + math.exp(epsilon))
    answers = np.array(list(product((0, 1), repeat=count)))
    p, q = (np.where(answers == 1, right, 1 - right).prod(axis=1) for right in (truth, 1 - truth))
    for at in np.linspace(0, count * epsilon, 23):
        exact = float(np.maximum(0, p - math.exp(at) * q).sum())
        assert exact * (1 - 1e-12) - 1e-14 <= profile.delta_at(at) <= exact * (1 + 1e-8) + 1e-14
        if 1e-4 < exact < 0.5:  # raised by a part in 10^9
            assert 0.99e-9 < profile.delta_at(at) / exact - 1 < 1.01e-9
        if 1e-9 < exact < 0.5:
            assert profile.at(exact) == pytest.approx(at, abs=1e-7)
    assert profile.delta_at(count * epsilon + 1) == 0 and profile.at(1e-300) == pytest.approx(
        count * epsilon
    )


def test_no_adaptive_play_of_unequal_answers_exceeds_pure_rounds() -> None:
    """Among them laws that reach the ratio on one side alone, and the reverse of each."""
    epsilon, gammas = 0.7, np.exp(np.linspace(0, 2.1, 15))
    q = np.linspace(0.05, 0.45, 9)
    one_sided = np.stack(
        [np.stack([q * math.exp(epsilon), 1 - q * math.exp(epsilon)], 1), np.stack([q, 1 - q], 1)],
        1,
    )
    one_sided = one_sided[
        (one_sided[:, 0, 1] * math.exp(epsilon) >= one_sided[:, 1, 1]) & (one_sided[:, 0, 1] > 0)
    ]
    truth = 1 / (1 + math.exp(-epsilon))
    response = np.array([[[truth, 1 - truth], [1 - truth, truth]]])
    laws = np.concatenate([one_sided, one_sided[:, ::-1], response])
    best, bound = enumerated(gammas, [laws] * 3), pure_profile(epsilon, 3)
    bounds = np.array([bound.delta_at(math.log(gamma)) for gamma in gammas])
    assert (best <= bounds + 1e-15).all() and (best >= bounds * (1 - 1e-8)).all()
    # a wider round beside them does
    wide = 1 / (1 + math.exp(-1.01 * epsilon))
    assert (
        enumerated(gammas, [laws, laws, np.array([[[wide, 1 - wide], [1 - wide, wide]]])]) > bounds
    )[3:].all()


def test_equal_choices_lie_between_their_best_fixed_law_and_the_curve() -> None:
    """The composition of one law at a time has a closed form (Dong, Durfee & Rogers (2020))."""
    eta, count, delta = 0.1657, 100, 1e-6
    total = RDPAccountant(relation=REPLACE).compose(
        BoundedRangeEvent(eta=eta, neighboring_relation=REPLACE), count
    )
    guarantee, k = total.guarantee(delta=delta), np.arange(count + 1)
    assert guarantee.rounds == count and guarantee.order is guarantee.mu is None
    largest = 0.0
    for t in eta * np.linspace(0.3, 0.7, 41):
        p = float(choices(eta, np.array([t]))[0, 0, 0])
        law, loss = binom.pmf(k, count, p), k * t + (count - k) * (t - eta)
        largest = max(
            largest, float(law @ np.maximum(0, -np.expm1(guarantee.epsilon * 0.993 - loss)))
        )
    assert largest > delta  # what is stated is at most 0.7% above what one law reaches
    assert guarantee.epsilon < 0.96 * total.guarantee(delta=delta, by=[RenyiAccountant()]).epsilon
    assert total.get_delta(guarantee.epsilon) == pytest.approx(delta, rel=1e-6)


def test_rounds_are_equal_only_if_all_are_one_release() -> None:
    pure, wider = (
        PureDPEvent(epsilon=epsilon, neighboring_relation=REPLACE) for epsilon in (0.1, 0.1000001)
    )
    choice = BoundedRangeEvent(eta=0.1, neighboring_relation=REPLACE)
    failure = FailureEvent(delta=1e-9, neighboring_relation=REPLACE)
    twice = ComposedEvent(events=(pure, failure, pure))
    equal = equal_rounds([(twice, 20), (failure, 5), (wider, 0)])
    assert equal is not None and equal[0] == 40
    unequal: list[tuple[Event, ...]] = [
        (pure, wider),
        (pure, choice),
        (failure,),
        (stable_top_k(),),
    ]
    unequal.append((RootPeelingEvent(eta=0.1, count=3, neighboring_relation=REPLACE),))
    for events in unequal:
        assert equal_rounds([(event, 10) for event in events]) is None
    assert equal_rounds([(choice, 128)]) is not None and equal_rounds([(choice, 129)]) is None
    assert equal_rounds([(pure, 10_000)]) is not None and equal_rounds([(pure, 10_001)]) is None
    assert all(
        equal_rounds([(event, 1)]) is None
        for event in (
            GaussianEvent(noise_multiplier=1.0, neighboring_relation=REPLACE),
            unequal[-1][0],
        )
    )
    assert (
        equal_rounds([(choice.for_group_size(60), 1)]) is None
        and equal_rounds([(pure.for_group_size(101), 1)]) is None
    )
    # what may fail beside them takes its part of delta
    total = RDPAccountant(relation=REPLACE).compose(twice, 20)
    alone = RDPAccountant(relation=REPLACE).compose(pure, 40)
    left = (1e-6 - total.delta0) / (1 - total.delta0)
    assert total.guarantee(delta=1e-6).rounds == 40
    assert total.get_epsilon(delta=1e-6) == pytest.approx(alone.get_epsilon(delta=left), rel=1e-12)
    assert total.get_epsilon(delta=total.delta0) == math.inf
    # more rounds, and wider ones, never cost less
    epsilons = [
        RDPAccountant(relation=REPLACE).compose(choice, n).get_epsilon(delta=1e-6)
        for n in (127, 128, 129)
    ]
    assert epsilons == sorted(epsilons)
    narrow = (
        BoundedRangeEvent(eta=eta, neighboring_relation=REPLACE)
        for eta in (5e-4, 9.99e-4, 1e-3, 1.001e-3)
    )
    epsilons = [
        RDPAccountant(relation=REPLACE).compose(event, 50).get_epsilon(delta=1e-6)
        for event in narrow
    ]
    assert epsilons == sorted(epsilons)


def stable_top_k(**changes: float) -> ComposedEvent:
    eta = changes.pop("eta", 0.6)
    test = {"sigma": 5.0, "delta_test": 1e-9, "shift": 2, "num_teachers": 80, **changes}
    return ComposedEvent(
        events=(
            BoundedRangeEvent(eta=eta, neighboring_relation=REPLACE),
            StabilityTestEvent(**test, neighboring_relation=REPLACE),  # type: ignore[arg-type]
        )
    )


@pytest.mark.parametrize("case", ["choice", "two choices", "query"])
def test_a_chord_that_is_too_low_is_noticed(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: with the value of the upper node in place of the chord, enumeration finds
    better strategies."""
    monkeypatch.setattr(_adaptive, "_chord", lambda place, step: np.zeros_like(place))
    rounds, laws, count = CASES[case]
    assert (bound(rounds, count) < enumerated(np.exp(EPSILONS), laws)).any()


def test_corners_on_the_arc_are_too_few() -> None:
    """Negative control: a polygon inside the arc misses strategies that one around it, of as many
    corners, covers."""
    around = bounded_range_pairs(ETA, sides=4)
    u = np.exp(ETA * np.array([0.625, 0.875]))
    inside = Pairs(
        p=(math.exp(ETA) - u) / math.expm1(ETA), q=(math.exp(ETA) / u - 1) / math.expm1(ETA)
    )
    best = enumerated(np.exp(EPSILONS), [choices(ETA, LOSSES)])
    assert (bound([around], 1) >= best).all()
    assert (bound([inside], 1, step=0.001)[1:-1] < best[1:-1]).any()


@pytest.mark.parametrize("delta", [1e-2, 1e-7])
@pytest.mark.parametrize("count", [1, 2])
def test_rare_outcomes_of_a_test_are_within_reach(delta: float, count: int) -> None:
    """At small delta the worst gaps are those at which the test hardly ever passes, or fails."""
    test = StabilityTestEvent(
        sigma=5, delta_test=1e-9, shift=2, num_teachers=80, neighboring_relation=REPLACE
    )
    found = adaptive_epsilon(test, count, delta=delta)
    laws = bits(2 / 5, (np.arange(2, 79, 0.5) - 2) / 5 + ndtri(1e-9))
    best = enumerated(np.exp(np.array([found, 0.95 * found])), [laws] * count)
    assert best[0] <= delta < best[1]


@pytest.mark.parametrize(
    ("delta_test", "num_teachers", "reach", "nearest"),
    [
        (1e-3, 80, ndtri(1e-3) + 78 / 5, 0.0),
        (1e-9, 5, -ndtri(1e-9), -ndtri(1e-9) - 3 / 5 - 1 / 5),
        (0.9, 2, ndtri(0.9), 0.0),
        (0.9, 1, ndtri(0.9), 0.0),
    ],
)
def test_bits_of_a_test_reach_as_far_as_its_gaps(
    delta_test: float, num_teachers: int, reach: float, nearest: float
) -> None:
    test = StabilityTestEvent(
        sigma=5,
        delta_test=delta_test,
        shift=2,
        num_teachers=num_teachers,
        neighboring_relation=REPLACE,
    )
    (pairs,) = test.pairs()
    np.testing.assert_array_equal(
        pairs, gaussian_bit_pairs(2 / 5, float(reach), nearest=float(nearest))
    )
