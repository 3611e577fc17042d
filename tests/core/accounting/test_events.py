"""Every event fulfills the contract; what is no event, or mixes relations, is refused."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtri
from scipy.stats import laplace

from pate._core.accounting.events import GroupEvent, leaves, total_cost
from pate._core.testing.mechanisms import Laws
from pate.accounting import (
    BoundedRangeEvent,
    ComposedEvent,
    Cost,
    Event,
    FailureEvent,
    GaussianEvent,
    GaussianNoisyMaxEvent,
    GaussianThresholdEvent,
    NeighboringRelation,
    PartiesEvent,
    PureDPEvent,
    RenyiCurveEvent,
    RepeatedEvent,
    RootPeelingEvent,
    StabilityTestEvent,
    event_from_dict,
)
from pate.testing import EventContract
from tests.core.accounting.oracles import noisy_max_law

REPLACE, TEACHER = NeighboringRelation.REPLACE_RECORD, NeighboringRelation.ADD_REMOVE_TEACHER
NOT_POSITIVE: tuple[Any, ...] = (0.0, -1.0, float("nan"), float("inf"), "2", None, True)


def softmax(scores: list[float]) -> np.ndarray:
    """Log-law of the exponential mechanism."""
    return np.asarray(scores - np.logaddexp.reduce(scores))


def rounded_to_a_hundredth(mean: float, sd: float) -> np.ndarray:
    """Log-law of a normal number that is rounded to a hundredth, within 11."""
    edges = (np.arange(-11, 11, 0.01) - mean) / sd
    # either tail from its own side
    low, high = (
        np.where(edges[:-1] < 0, edges[:-1], -edges[1:]),
        np.where(edges[:-1] < 0, edges[1:], -edges[:-1]),
    )
    return np.asarray(log_ndtr(high) + np.log(-np.expm1(log_ndtr(low) - log_ndtr(high))))


def both(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Log-law of two independent outcomes."""
    return np.asarray(np.add.outer(first, second)).ravel()


class TestGaussianEvent(EventContract):
    def event(self, noise: float, relation: NeighboringRelation) -> Event:
        return GaussianEvent(noise_multiplier=2 * noise, neighboring_relation=relation)

    def laws(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        return [(rounded_to_a_hundredth(0, 1), rounded_to_a_hundredth(1 / (2 * noise), 1))]

    def laws_of_two(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        return [(rounded_to_a_hundredth(0, 1), rounded_to_a_hundredth(2 / (2 * noise), 1))]

    def malformed(self) -> list[dict[str, Any]]:
        return [{"noise_multiplier": bad} for bad in NOT_POSITIVE]


class TestGaussianThresholdEvent(EventContract):
    def event(self, noise: float, relation: NeighboringRelation) -> Event:
        return GaussianThresholdEvent(noise_multiplier=2 * noise, neighboring_relation=relation)

    def laws(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        starts = np.linspace(-20, 8, 141) / (2 * noise)
        ends = starts + 1 / (2 * noise)
        return [
            (np.array([log_ndtr(a), log_ndtr(-a)]), np.array([log_ndtr(b), log_ndtr(-b)]))
            for a, b in zip(starts, ends, strict=True)
        ]

    def laws_of_two(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        return self.laws(noise / 2, relation)

    def malformed(self) -> list[dict[str, Any]]:
        return [{"noise_multiplier": bad} for bad in NOT_POSITIVE]


class TestBoundedRangeEvent(EventContract):
    def event(self, noise: float, relation: NeighboringRelation) -> Event:
        return BoundedRangeEvent(eta=1 / noise, neighboring_relation=relation)

    def laws(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        # the exponential mechanism on two scores that move within a window of 1, wherever they
        # stand
        return [(softmax([0, x]), softmax([1 / noise, x])) for x in np.linspace(-3, 3, 61).tolist()]

    def laws_of_two(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        # one of the scores moves by a window with either teacher
        return [(softmax([0, x]), softmax([2 / noise, x])) for x in np.linspace(-3, 3, 61).tolist()]

    def malformed(self) -> list[dict[str, Any]]:
        return [{"eta": bad} for bad in NOT_POSITIVE]


class TestRootPeelingEvent(EventContract):
    tight_mu = False

    def event(self, noise: float, relation: NeighboringRelation) -> Event:
        return RootPeelingEvent(eta=1 / noise, count=4, neighboring_relation=relation)

    def laws(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        # one choice of twice the range, or four of them
        once = [(softmax([0, x]), softmax([2 / noise, x])) for x in np.linspace(-3, 3, 61).tolist()]
        four = [(softmax([0, x]), softmax([1 / noise, x])) for x in np.linspace(-3, 3, 61).tolist()]
        return once + [(_four_times(p), _four_times(q)) for p, q in four]

    def laws_of_two(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        return self.laws(noise / 2, relation)

    def malformed(self) -> list[dict[str, Any]]:
        return [{"eta": bad} for bad in NOT_POSITIVE] + [
            {"count": bad} for bad in (0, -1, 1.5, "2", None)
        ]


def _four_times(law: NDArray[np.float64]) -> NDArray[np.float64]:
    twice = np.add.outer(law, law).ravel()
    return np.add.outer(twice, twice).ravel()


class TestPureDPEvent(EventContract):
    def event(self, noise: float, relation: NeighboringRelation) -> Event:
        return PureDPEvent(epsilon=1 / noise, neighboring_relation=relation)

    def laws(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        response = softmax([1 / noise, 0])
        return [(response, response[::-1])]

    def laws_of_two(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        # a whole number with two-sided geometric noise, told as at most 0, 1, or at least 2: it
        # moves from 0 to 2
        a = np.exp(-1 / noise)
        low = np.log(np.array([1, (1 - a) * a, a**2]) / (1 + a))
        return [(low, low[::-1])]

    def malformed(self) -> list[dict[str, Any]]:
        return [{"epsilon": bad} for bad in NOT_POSITIVE]


class TestGaussianNoisyMaxEvent(EventContract):
    tight = tight_mu = False  # what is proven is known to be far from what is true
    noises = (1.0, 2.0, 4.0)

    def event(self, noise: float, relation: NeighboringRelation) -> Event:
        return GaussianNoisyMaxEvent(
            noise_multiplier=noise, num_candidates=3, neighboring_relation=relation
        )

    def laws(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        starts = [(x, y, 0.0) for x in (-4.0, -1.0, 0.0, 1.0) for y in (-2.0, 0.0, 3.0)]
        moves = [(1.0, 0.0, 0.0), (0.0, 1.0, 1.0), (1.0, 1.0, 0.0)]
        return [
            (
                np.log(noisy_max_law(start, noise)),
                np.log(noisy_max_law(np.add(start, move).tolist(), noise)),
            )
            for start in starts
            for move in moves
        ]

    def laws_of_two(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        starts = [(x, y, 0.0) for x in (-4.0, -1.0, 0.0, 1.0) for y in (-2.0, 0.0, 3.0)]
        moves = [(2.0, 0.0, 0.0), (0.0, 2.0, 2.0), (1.0, 2.0, 0.0)]
        return [
            (
                np.log(noisy_max_law(start, noise)),
                np.log(noisy_max_law(np.add(start, move).tolist(), noise)),
            )
            for start in starts
            for move in moves
        ]

    def malformed(self) -> list[dict[str, Any]]:
        return [{"noise_multiplier": bad} for bad in NOT_POSITIVE] + [
            {"num_candidates": bad} for bad in (0, 2.0, "3")
        ]


class TestStabilityTestEvent(EventContract):
    delta_test = 1e-3

    def event(self, noise: float, relation: NeighboringRelation) -> Event:
        return StabilityTestEvent(
            sigma=2 * noise,
            delta_test=self.delta_test,
            shift=relation.score_range,
            num_teachers=40,
            neighboring_relation=relation,
        )

    def laws(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        return self.laws_of(1, noise, relation)

    def laws_of_two(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        return self.laws_of(2, noise, relation)

    def laws_of(self, teachers: int, noise: float, relation: NeighboringRelation) -> list[Laws]:
        window = relation.score_range

        def law(gap: int) -> np.ndarray:
            passes = (max(window, gap) - window) / (2 * noise) + ndtri(self.delta_test)
            return np.array([log_ndtr(passes), log_ndtr(-passes)])

        return [(law(gap), law(gap + teachers * window)) for gap in range(41)]

    @pytest.mark.parametrize("relation", NeighboringRelation)
    @pytest.mark.parametrize("teachers", [2, 3])
    def test_a_gap_that_more_teachers_may_close_passes_as_often_as_delta0(
        self, relation: NeighboringRelation, teachers: int
    ) -> None:
        passes = np.exp(self.laws_of(teachers, 1.0, relation)[0][1][0])  # of a gap of all windows
        assert self.event(1.0, relation).for_group_size(teachers).cost().delta0 == pytest.approx(
            passes, rel=1e-12
        )
        assert passes > 3 * self.delta_test

    def malformed(self) -> list[dict[str, Any]]:
        bad: dict[str, tuple[Any, ...]] = dict.fromkeys(
            ("shift", "num_teachers", "window"), (0, -1, 1.5, "2", True)
        )
        bad |= {"sigma": NOT_POSITIVE, "delta_test": (0.0, 1.0, -0.1, float("nan"), "x")}
        return [{name: value} for name, values in bad.items() for value in values]

    def test_window_follows_the_relation_unless_it_is_given(self) -> None:
        event = self.event(1.0, REPLACE)
        assert isinstance(event, StabilityTestEvent) and event.gap_window == 2
        assert event_from_dict(event.to_dict() | {"window": 1}).gap_window == 1  # type: ignore[attr-defined]


class TestFailureEvent(EventContract):
    tight = tight_mu = False  # nothing but delta0

    def event(self, noise: float, relation: NeighboringRelation) -> Event:
        return FailureEvent(
            delta=1e-5 / noise, tail="exponential", step=1 / noise, neighboring_relation=relation
        )

    def laws(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        return [(softmax([0, 0]), softmax([0, 0]))]

    laws_of_two = laws

    def malformed(self) -> list[dict[str, Any]]:
        return [
            *({"delta": bad} for bad in (0.0, 1.0, float("nan"), None)),
            *({"tail": bad} for bad in (None, "heavy", 1)),
            *({"step": bad} for bad in NOT_POSITIVE),
        ]

    def test_more_teachers_bring_the_threshold_nearer(self) -> None:
        """It is how often Laplace noise of scale 3 exceeds the rest of a threshold."""
        threshold = laplace.isf(1e-4)
        event = FailureEvent(
            delta=1e-4, tail="exponential", step=1 / 3, neighboring_relation=REPLACE
        )
        for teachers in (2, 3, 30):
            passes = float(laplace.sf(threshold - (teachers - 1) / 3))
            stated = event.for_group_size(teachers).cost().delta0
            assert passes <= stated * (1 + 1e-9) <= 1 + 1e-9
            if passes < 0.5:
                assert passes == pytest.approx(stated, rel=1e-9)

    def test_a_constant_tail_is_the_same_for_all(self) -> None:
        failure = FailureEvent(delta=1e-5, tail="constant", neighboring_relation=REPLACE)
        assert failure.for_group_size(3) == failure and failure.cost().delta0 == pytest.approx(1e-5)
        with pytest.raises(ValueError, match=r"^Expected a tail with its step"):
            FailureEvent(delta=1e-5, tail="constant", step=1.0, neighboring_relation=REPLACE)

    def test_without_a_tail_nothing_is_known(self) -> None:
        failure = FailureEvent(delta=1e-5, neighboring_relation=REPLACE)
        total = ComposedEvent(
            events=(GaussianEvent(noise_multiplier=40.0, neighboring_relation=REPLACE), failure)
        )
        assert (
            np.isinf(total.for_group_size(2).cost().rdp).all()
            and total.for_group_size(2).cost().mu_squared == np.inf
        )


class TestRenyiCurveEvent(EventContract):
    def event(self, noise: float, relation: NeighboringRelation) -> Event:
        orders = 1 + np.geomspace(5e-3, 1.2e5, 500)
        return RenyiCurveEvent(
            orders=tuple(orders.tolist()),
            rdp=tuple((orders / 8 / noise**2).tolist()),
            neighboring_relation=relation,
        )

    def laws(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        return TestGaussianEvent().laws(noise, relation)

    def malformed(self) -> list[dict[str, Any]]:
        return [
            {"orders": [2.0, 2.0], "rdp": [1.0, 1.0]},
            {"orders": [1.0], "rdp": [1.0]},
            {"orders": [2.0], "rdp": [1.0, 2.0]},
            {"orders": [2.0], "rdp": [float("nan")]},
            {"orders": [2.0], "rdp": [-1.0]},
            {"orders": [2.0], "rdp": [float("inf")]},
            {"orders": [], "rdp": []},
            {"orders": 2.0},
        ]


class TestRepeatedEvent(EventContract):
    tight_mu = False  # a Gaussian that dominates each of several choices is more than dominates all of them

    def event(self, noise: float, relation: NeighboringRelation) -> Event:
        return RepeatedEvent(
            event=PureDPEvent(epsilon=1 / noise, neighboring_relation=relation), count=2
        )

    def laws(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        (once,) = TestPureDPEvent().laws(noise, relation)
        return [(both(once[0], once[0]), both(once[1], once[1]))]

    def laws_of_two(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        (once,) = TestPureDPEvent().laws_of_two(noise, relation)
        return [(both(once[0], once[0]), both(once[1], once[1]))]

    def malformed(self) -> list[dict[str, Any]]:
        return [
            {"count": 0},
            {"count": 1.5},
            {"event": None},
            {"event": {"type": "PureDPEvent"}},
            {"event": "x"},
        ]


class TestPartiesEvent(EventContract):
    def event(self, noise: float, relation: NeighboringRelation) -> Event:
        parties, world = (
            TestGaussianEvent().event(factor * noise, relation) for factor in (1, 1.5)
        )
        return PartiesEvent(parties=parties, world=world)

    def laws(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        return TestGaussianEvent().laws(noise, relation)

    def laws_of_two(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        return TestGaussianEvent().laws_of_two(noise, relation)

    def malformed(self) -> list[dict[str, Any]]:
        cheaper = GaussianEvent(noise_multiplier=0.1, neighboring_relation=REPLACE)
        other = GaussianEvent(noise_multiplier=100.0, neighboring_relation=TEACHER)
        return [{"parties": None}, {"world": "x"}, {"world": cheaper}, {"world": other}]

    def test_the_world_is_found_wherever_it_is_nested(self) -> None:
        event, alone = (
            self.event(2.0, REPLACE),
            GaussianEvent(noise_multiplier=1.0, neighboring_relation=REPLACE),
        )
        world = GaussianEvent(noise_multiplier=6.0, neighboring_relation=REPLACE)
        assert event.to_world() == world and event.for_group_size(
            3
        ).to_world() == world.for_group_size(3)
        nested = ComposedEvent(events=(RepeatedEvent(event=event, count=3), alone))
        seen = [(leaf, times) for leaf, times in leaves(nested.to_world())]
        assert seen == [(world, 3), (alone, 1)]
        plain = RepeatedEvent(event=alone, count=2)
        assert plain.to_world() is plain and alone.to_world() is alone


class TestComposedEvent(EventContract):
    tight_mu = False

    def event(self, noise: float, relation: NeighboringRelation) -> Event:
        return ComposedEvent(
            events=(
                TestBoundedRangeEvent().event(noise, relation),
                RepeatedEvent(event=TestStabilityTestEvent().event(noise, relation), count=1),
            )
        )

    def laws(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        return self.pairs(
            TestBoundedRangeEvent().laws(noise, relation),
            TestStabilityTestEvent().laws(noise, relation),
        )

    def laws_of_two(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        choices = TestBoundedRangeEvent().laws_of_two(noise, relation)
        return self.pairs(choices, TestStabilityTestEvent().laws_of_two(noise, relation))

    def pairs(self, choices: list[Laws], tests: list[Laws]) -> list[Laws]:
        return [
            (both(choice[i], test[j]), both(choice[1 - i], test[1 - j]))
            for choice in choices[::6]
            for test in tests[::5]
            for i, j in ((0, 0), (0, 1))
        ]

    def malformed(self) -> list[dict[str, Any]]:
        other = GaussianEvent(noise_multiplier=1.0, neighboring_relation=TEACHER).to_dict()
        return [
            {"events": []},
            {"events": None},
            {"events": [other]},
            {"events": [1]},
            {"events": "GaussianEvent"},
        ]


@pytest.mark.parametrize(
    "description", [{"type": "Laplace"}, {}, {"type": []}, {"type": None}, [], "Gaussian", None]
)
def test_unknown_events_raise(description: Any) -> None:
    with pytest.raises(ValueError, match=r"^Expected [^\n]*$"):
        event_from_dict(description)


def test_leaves_multiply_nested_counts() -> None:
    part = PureDPEvent(epsilon=1.0, neighboring_relation=REPLACE)
    nested = RepeatedEvent(
        event=ComposedEvent(events=(part, RepeatedEvent(event=part, count=5))), count=3
    )
    assert [count for _, count in leaves(nested, 2)] == [6, 30]


def test_what_holds_for_any_release_holds_for_one_of_known_mu() -> None:
    """A kind that does not say more is charged at the Gaussian of its ``mu``, which grows with the
    teachers."""
    once = GaussianEvent(noise_multiplier=4.0, neighboring_relation=REPLACE)
    any_release = GroupEvent(event=once, teachers=2, neighboring_relation=REPLACE)
    for event, teachers in ((any_release, 2), (any_release.for_group_size(3), 6)):
        exact = once.for_group_size(teachers).cost()
        np.testing.assert_allclose(event.cost().rdp, exact.rdp, rtol=1e-12)
        assert event.cost().mu_squared == pytest.approx(exact.mu_squared, rel=1e-12)


def test_only_bits_that_weigh_less_among_many_count_as_rounds() -> None:
    gaussian = GaussianEvent(noise_multiplier=9.0, neighboring_relation=REPLACE)
    choice = BoundedRangeEvent(eta=0.1, neighboring_relation=REPLACE)
    wide = BoundedRangeEvent(eta=9.0, neighboring_relation=REPLACE)
    assert [event.cost().rounds for event in (gaussian, choice, wide)] == [0, 1, 0]
    total = total_cost((choice, choice, wide), (2, 3, 4), np.array([2.0]))
    assert total.rounds == 5
    assert RootPeelingEvent(eta=0.1, count=1, neighboring_relation=REPLACE).cost().mu_squared > 0


@pytest.mark.parametrize("sigma", [5.0, 40.0])
def test_a_test_weighs_what_its_window_in_scales_of_noise_says(sigma: float) -> None:
    def cost(scale: float, relation: NeighboringRelation) -> Cost:
        shift = relation.score_range
        return StabilityTestEvent(
            sigma=scale,
            delta_test=1e-6,
            shift=shift,
            num_teachers=30,
            neighboring_relation=relation,
        ).cost()

    one, two = cost(sigma, TEACHER), cost(2 * sigma, REPLACE)
    np.testing.assert_allclose(one.narrow_weights, two.narrow_weights, rtol=1e-12)
    assert one.rounds == two.rounds == 1
    # a bit at its threshold: 2 / pi of a Gaussian, and hardly more
    least = 2 / np.pi / sigma**2
    assert least <= one.narrow_weights[-1] <= 1.05 * least < one.mu_squared


def test_what_never_happened_costs_nothing_though_it_would_be_infinite() -> None:
    """Beside others of its kind and of others."""
    event = GaussianEvent(noise_multiplier=9.0, neighboring_relation=REPLACE)
    curve = RenyiCurveEvent(orders=(2.0,), rdp=(0.1,), neighboring_relation=REPLACE)
    less = RenyiCurveEvent(orders=(2.0,), rdp=(0.05,), neighboring_relation=REPLACE)
    for events, counts, expected in (
        ((event, curve), (3, 0), event.cost() * 3),
        ((less, curve), (1, 0), less.cost()),
    ):
        total = total_cost(events, counts)
        assert total.mu_squared == pytest.approx(expected.mu_squared)
        np.testing.assert_allclose(total.rdp, expected.rdp, rtol=1e-12)
