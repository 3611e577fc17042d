"""Every event fulfils the contract; what is no event, or mixes relations, is refused."""

from typing import Any

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtri

from pate.accounting.events import (
    BoundedRangeEvent,
    ComposedEvent,
    Event,
    FailureEvent,
    GaussianEvent,
    GaussianNoisyMaxEvent,
    GaussianThresholdEvent,
    PureDPEvent,
    RenyiCurveEvent,
    RepeatedEvent,
    SmoothSensitivityEvent,
    StabilityTestEvent,
    event_from_dict,
    leaves,
)
from pate.accounting.relation import NeighboringRelation
from pate.testing.events import EventContract, Laws
from tests.accounting.oracles import noisy_max_law

REPLACE, TEACHER = NeighboringRelation.REPLACE_RECORD, NeighboringRelation.ADD_REMOVE_TEACHER
NOT_POSITIVE: tuple[Any, ...] = (0.0, -1.0, float("nan"), float("inf"), "2", None, True)


def softmax(scores: list[float]) -> np.ndarray:
    """Log-law of the exponential mechanism."""
    return np.asarray(scores - np.logaddexp.reduce(scores))


def told_to_a_hundredth(mean: float, sd: float) -> np.ndarray:
    """Log-law of a normal number that is told to a hundredth, within 11."""
    edges = (np.arange(-11, 11, 0.01) - mean) / sd
    # either tail from its own side
    low, high = np.where(edges[:-1] < 0, edges[:-1], -edges[1:]), np.where(edges[:-1] < 0, edges[1:], -edges[:-1])
    return np.asarray(log_ndtr(high) + np.log(-np.expm1(log_ndtr(low) - log_ndtr(high))))


def both(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Log-law of two independent outcomes."""
    return np.asarray(np.add.outer(first, second)).ravel()


class TestGaussianEvent(EventContract):
    def event(self, noise: float, relation: NeighboringRelation) -> Event:
        return GaussianEvent(noise_multiplier=2 * noise, neighboring_relation=relation)

    def laws(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        return [(told_to_a_hundredth(0, 1), told_to_a_hundredth(1 / (2 * noise), 1))]

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

    def malformed(self) -> list[dict[str, Any]]:
        return [{"noise_multiplier": bad} for bad in NOT_POSITIVE]


class TestBoundedRangeEvent(EventContract):
    def event(self, noise: float, relation: NeighboringRelation) -> Event:
        return BoundedRangeEvent(eta=1 / noise, neighboring_relation=relation)

    def laws(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        # the exponential mechanism on two scores that move within a window of 1, wherever they stand
        return [(softmax([0, x]), softmax([1 / noise, x])) for x in np.linspace(-3, 3, 61).tolist()]

    def malformed(self) -> list[dict[str, Any]]:
        return [{"eta": bad} for bad in NOT_POSITIVE]


class TestPureDPEvent(EventContract):
    def event(self, noise: float, relation: NeighboringRelation) -> Event:
        return PureDPEvent(epsilon=1 / noise, neighboring_relation=relation)

    def laws(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        response = softmax([1 / noise, 0])
        return [(response, response[::-1])]

    def malformed(self) -> list[dict[str, Any]]:
        return [{"epsilon": bad} for bad in NOT_POSITIVE]


class TestGaussianNoisyMaxEvent(EventContract):
    tight = tight_mu = False  # what is proven is known to be far from what is true
    noises = (1.0, 2.0, 4.0)

    def event(self, noise: float, relation: NeighboringRelation) -> Event:
        return GaussianNoisyMaxEvent(noise_multiplier=noise, num_candidates=3, neighboring_relation=relation)

    def laws(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        starts = [(x, y, 0.0) for x in (-4.0, -1.0, 0.0, 1.0) for y in (-2.0, 0.0, 3.0)]
        moves = [(1.0, 0.0, 0.0), (0.0, 1.0, 1.0), (1.0, 1.0, 0.0)]
        return [
            (np.log(noisy_max_law(start, noise)), np.log(noisy_max_law(np.add(start, move).tolist(), noise)))
            for start in starts
            for move in moves
        ]

    def malformed(self) -> list[dict[str, Any]]:
        return [{"noise_multiplier": bad} for bad in NOT_POSITIVE] + [{"num_candidates": bad} for bad in (0, 2.0, "3")]


class TestStabilityTestEvent(EventContract):
    delta_test = 1e-3

    def event(self, noise: float, relation: NeighboringRelation) -> Event:
        return StabilityTestEvent(
            sigma=2 * noise,
            delta_test=self.delta_test,
            shift=relation.count_window,
            num_teachers=40,
            neighboring_relation=relation,
        )

    def laws(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        window = relation.count_window

        def law(gap: int) -> np.ndarray:
            passes = (max(window, gap) - window) / (2 * noise) + ndtri(self.delta_test)
            return np.array([log_ndtr(passes), log_ndtr(-passes)])

        return [(law(gap), law(gap + window)) for gap in range(41)]

    def malformed(self) -> list[dict[str, Any]]:
        bad: dict[str, tuple[Any, ...]] = dict.fromkeys(("shift", "num_teachers", "window"), (0, -1, 1.5, "2", True))
        bad |= {"sigma": NOT_POSITIVE, "delta_test": (0.0, 1.0, -0.1, float("nan"), "x")}
        return [{name: value} for name, values in bad.items() for value in values]

    def test_window_follows_the_relation_unless_it_is_given(self) -> None:
        event = self.event(1.0, REPLACE)
        assert isinstance(event, StabilityTestEvent) and event.gap_window == 2
        assert event_from_dict(event.to_dict() | {"window": 1}).gap_window == 1  # type: ignore[attr-defined]


class TestFailureEvent(EventContract):
    tight = tight_mu = False  # nothing but delta0

    def event(self, noise: float, relation: NeighboringRelation) -> Event:
        return FailureEvent(delta=1e-5 / noise, neighboring_relation=relation)

    def laws(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        return [(softmax([0, 0]), softmax([0, 0]))]

    def malformed(self) -> list[dict[str, Any]]:
        return [{"delta": bad} for bad in (0.0, 1.0, float("nan"), None)]


class TestSmoothSensitivityEvent(EventContract):
    beta = 1e-3

    def event(self, noise: float, relation: NeighboringRelation) -> Event:
        return SmoothSensitivityEvent(beta=self.beta, noise_multiplier=2 * noise, neighboring_relation=relation)

    def laws(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        # the neighbor's sensitivity, and so its noise, is the smaller by a factor of exp(-beta)
        narrower = np.exp(-self.beta)
        return [(told_to_a_hundredth(0, 1), told_to_a_hundredth(narrower / (2 * noise), narrower))]

    def malformed(self) -> list[dict[str, Any]]:
        return [{name: bad} for name in ("beta", "noise_multiplier") for bad in NOT_POSITIVE]


class TestRenyiCurveEvent(EventContract):
    def event(self, noise: float, relation: NeighboringRelation) -> Event:
        orders = 1 + np.geomspace(5e-3, 1.2e5, 500)
        return RenyiCurveEvent(
            orders=tuple(orders.tolist()), rdp=tuple((orders / 8 / noise**2).tolist()), neighboring_relation=relation
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
        return RepeatedEvent(event=PureDPEvent(epsilon=1 / noise, neighboring_relation=relation), count=2)

    def laws(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        (once,) = TestPureDPEvent().laws(noise, relation)
        return [(both(once[0], once[0]), both(once[1], once[1]))]

    def malformed(self) -> list[dict[str, Any]]:
        return [{"count": 0}, {"count": 1.5}, {"event": None}, {"event": {"type": "PureDPEvent"}}, {"event": "x"}]


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
        choices, tests = TestBoundedRangeEvent().laws(noise, relation), TestStabilityTestEvent().laws(noise, relation)
        return [
            (both(choice[i], test[j]), both(choice[1 - i], test[1 - j]))
            for choice in choices[::6]
            for test in tests[::5]
            for i, j in ((0, 0), (0, 1))
        ]

    def malformed(self) -> list[dict[str, Any]]:
        other = GaussianEvent(noise_multiplier=1.0, neighboring_relation=TEACHER).to_dict()
        return [{"events": []}, {"events": None}, {"events": [other]}, {"events": [1]}, {"events": "GaussianEvent"}]


@pytest.mark.parametrize("description", [{"type": "Laplace"}, {}, {"type": []}, {"type": None}, [], "Gaussian", None])
def test_unknown_events_raise(description: Any) -> None:
    with pytest.raises(ValueError, match=r"^Expected [^\n]*$"):
        event_from_dict(description)


def test_a_mixture_of_relations_is_refused() -> None:
    mine, other = (GaussianEvent(noise_multiplier=1.0, neighboring_relation=each) for each in (REPLACE, TEACHER))
    with pytest.raises(ValueError, match="one neighboring relation"):
        ComposedEvent(events=(mine, other))
    with pytest.raises(ValueError, match="one neighboring relation"):
        RepeatedEvent(event=mine, count=2, neighboring_relation=TEACHER)


def test_events_cannot_be_changed() -> None:
    event = GaussianEvent(noise_multiplier=1.0, neighboring_relation=REPLACE)
    with pytest.raises(AttributeError):
        event.noise_multiplier = 2.0  # type: ignore[misc]


def test_numpy_numbers_become_plain_ones() -> None:
    event = GaussianEvent(noise_multiplier=np.float64(2.0), neighboring_relation=REPLACE)
    assert type(event.to_dict()["noise_multiplier"]) is float


def test_leaves_multiply_nested_counts() -> None:
    part = PureDPEvent(epsilon=1.0, neighboring_relation=REPLACE)
    nested = RepeatedEvent(event=ComposedEvent(events=(part, RepeatedEvent(event=part, count=5))), count=3)
    assert [count for _, count in leaves(nested, 2)] == [6, 30]
