"""The contract of events: they add up, survive JSON, and bound the laws that they describe.

A subclass provides events of one kind for given amounts of noise, and pairs of enumerated laws on
neighbors of a small mechanism that such an event describes.
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from pate.accounting import Event, NeighboringRelation, RDPAccountant, event_from_dict
from pate.accounting._cost import gaussian_delta
from pate.testing._laws import ORDERS, RELATIONS, Contract, assert_refused

Laws = tuple[np.ndarray, np.ndarray]


class EventContract(Contract):
    """Inherit, fill in `event`, `laws` and `malformed`, and name the class ``Test...``."""

    noises: Sequence[float] = (0.5, 1.0, 3.0)
    tight = True
    """Whether some pair of `laws` comes within 2% of the curve, at some order."""

    tight_mu = True
    """Whether some pair of `laws` refutes a ``mu`` that is 2% smaller."""

    @abstractmethod
    def event(self, noise: float, relation: NeighboringRelation) -> Event:
        """Return the event of a mechanism with ``noise`` times its noise."""

    @abstractmethod
    def laws(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        """Return neighboring laws of a mechanism with ``noise`` times its noise, as logarithms.

        Arrays of shape ``[outcomes]``, equally long for both laws of a pair. Outcomes that delta0
        covers are left out.
        """

    @abstractmethod
    def malformed(self) -> list[dict[str, Any]]:
        """Return parameters that the event must refuse."""

    def laws_of_two(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        """Return laws as `laws` does, on data sets that differ in one unit at two teachers.

        Needed unless `Event.for_group_size` knows no cost for two teachers. Outcomes within its
        delta0 are left out.
        """
        return []

    # inherited by every subclass

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_repetition_is_multiplication(self, relation: NeighboringRelation) -> None:
        """Composing an event seven times costs seven times as much, in one call or in seven."""
        once = RDPAccountant(relation=relation).compose(self.event(1.0, relation))
        many = RDPAccountant(relation=relation).compose(self.event(1.0, relation), 7)
        one_by_one = RDPAccountant(relation=relation)
        for _ in range(7):
            one_by_one.compose(self.event(1.0, relation))
        np.testing.assert_allclose(many.rdp, 7 * once.rdp, rtol=1e-12)
        np.testing.assert_allclose(one_by_one.rdp, many.rdp, rtol=1e-12)
        assert one_by_one.delta0 == pytest.approx(many.delta0, rel=1e-12)
        assert many.delta0 == pytest.approx(1 - (1 - once.delta0) ** 7, rel=1e-6)

    def test_a_batch_is_what_its_events_are_in_any_order(self) -> None:
        """A batch costs as much as its events one by one, in any order."""
        relation = RELATIONS[0]
        events = [self.event(noise, relation) for noise in self.noises]
        counts = [3, 0, 5]
        batch = RDPAccountant(relation=relation).compose(events, counts)
        back = RDPAccountant(relation=relation)
        for event, count in reversed(list(zip(events, counts, strict=True))):
            back.compose(event, count)
        np.testing.assert_allclose(batch.rdp, back.rdp, rtol=1e-12)
        assert batch.delta0 == pytest.approx(back.delta0, rel=1e-12)
        assert batch.get_epsilon(delta=0.1) == pytest.approx(back.get_epsilon(delta=0.1), rel=1e-12)

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_json_round_trip(self, relation: NeighboringRelation) -> None:
        """An event survives JSON with its type, parameters and relation."""
        event = self.event(1.0, relation)
        again = event_from_dict(json.loads(json.dumps(event.to_dict(), allow_nan=False)))
        assert again == event and hash(again) == hash(event) and type(again) is type(event)
        assert again.neighboring_relation is relation

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_more_noise_never_costs_more(self, relation: NeighboringRelation) -> None:
        """No part of the cost rises with the noise, and some part falls."""
        ladder = [self.event(noise, relation).cost() for noise in sorted(self.noises)]
        for less, more in pairwise(ladder):
            assert (more.rdp <= less.rdp).all()
            assert more.delta0 <= less.delta0
            assert more.mu_squared <= less.mu_squared
        assert (ladder[-1].rdp < ladder[0].rdp).any() or ladder[-1].delta0 < ladder[0].delta0

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_curve_is_a_curve(self, relation: NeighboringRelation) -> None:
        """A curve is not negative and does not fall with the order."""
        for noise in self.noises:
            rdp, log_survival, mu_squared, *_ = self.event(noise, relation).cost(ORDERS)
            assert np.shape(rdp) == ORDERS.shape, (
                f"Expected a curve on the orders given, got shape {np.shape(rdp)}"
            )
            assert mu_squared >= 0
            assert not np.isnan(rdp).any() and (rdp >= 0).all()
            finite = rdp[np.isfinite(rdp)]
            assert (np.diff(finite) >= -1e-12 * finite[1:]).all(), (
                "a divergence grows with its order"
            )
            assert log_survival <= 0

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_curve_bounds_the_enumerated_divergence(self, relation: NeighboringRelation) -> None:
        """The curve bounds the divergence of the given laws, and closely if `tight`."""
        closest = 0.0
        for noise in self.noises:
            rdp = self.event(noise, relation).cost(ORDERS).rdp
            for p, q in self.laws(noise, relation):
                for first, second in ((p, q), (q, p)):
                    divergence = enumerated_divergence(first, second)
                    within = (divergence <= rdp * (1 + 1e-9) + 1e-12).all()
                    requirement = f"Expected a curve that covers the laws of noise {noise}"
                    assert within, (
                        f"{requirement}, which differ {(divergence / rdp).max():.3g} times as much"
                    )
                    closest = max(closest, float((divergence / np.maximum(rdp, 1e-300)).max()))
        if self.tight:
            assert closest > 0.98, (
                f"Expected laws within 2% of the curve, got {100 * closest:.0f}%: set tight = False"
            )

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_two_teachers_of_one_unit_are_within_the_curve(
        self, relation: NeighboringRelation
    ) -> None:
        """The event of a unit that reaches two teachers bounds the laws of two changed teachers."""
        requirement = (
            "Expected laws_of_two, because `for_group_size` states a cost for two teachers"
        )
        checked = False
        for noise in self.noises:
            rdp, log_survival, mu_squared, *_ = (
                self.event(noise, relation).for_group_size(2).cost(ORDERS)
            )
            once = self.event(noise, relation).cost(ORDERS)
            if not np.isfinite(rdp).any():
                continue
            assert (
                (rdp >= once.rdp).all()
                and log_survival <= once.log_survival
                and mu_squared >= once.mu_squared
            )
            laws = self.laws_of_two(noise, relation)
            assert laws, requirement
            for p, q in (pair for law in laws for pair in (law, law[::-1])):
                assert (enumerated_divergence(p, q) <= rdp * (1 + 1e-9) + 1e-12).all(), (
                    f"noise {noise}"
                )
                checked |= bool((enumerated_divergence(p, q) > once.rdp * 1.01).any())
        expected = checked or not self.tight or not np.isfinite(rdp).any()
        assert expected, "Expected laws that one teacher could not produce"

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_one_teacher_is_the_event_itself(self, relation: NeighboringRelation) -> None:
        """A unit that reaches one teacher costs the event itself; an invalid number is refused."""
        event = self.event(1.0, relation)
        assert event.for_group_size(1) == event
        assert event.for_group_size(2).neighboring_relation is relation
        for teachers in (0, -1, 1.5, True):
            with pytest.raises(ValueError, match=r"^Expected [^\n]*$"):
                event.for_group_size(teachers)  # type: ignore[arg-type]

    def test_less_noise_than_the_event_says_is_caught(self) -> None:
        """Laws of half the noise exceed the curve."""
        if not self.tight:
            pytest.skip("no laws come near the curve")
        relation = RELATIONS[0]
        rdp = self.event(1.0, relation).cost(ORDERS).rdp
        laws = self.laws(0.5, relation)
        assert any((enumerated_divergence(p, q) > rdp * 1.01).any() for p, q in laws)

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_gaussian_trade_off_bounds_the_enumerated_one(
        self, relation: NeighboringRelation
    ) -> None:
        """The Gaussian of the event's ``mu`` bounds the laws' trade-off, closely if `tight_mu`."""
        refuted, epsilons = False, np.array([0.0, 0.1, 0.5, 1.0, 2.0])
        for noise in self.noises:
            mu = math.sqrt(self.event(noise, relation).cost().mu_squared)
            if math.isinf(mu):
                pytest.skip("no Gaussian is known to dominate such an event")
            bounds, smaller = (
                [gaussian_delta(epsilon, part * mu) for epsilon in epsilons] for part in (1.0, 0.98)
            )
            for laws in self.laws(noise, relation):
                for log_p, log_q in (laws, laws[::-1]):
                    p, q = (np.exp(law - np.logaddexp.reduce(law)) for law in (log_p, log_q))
                    deltas = np.maximum(p - np.exp(epsilons)[:, None] * q, 0).sum(axis=1)
                    assert (deltas <= np.array(bounds) * (1 + 1e-9) + 1e-13).all(), (
                        noise,
                        deltas,
                        bounds,
                    )
                    refuted |= bool((deltas > smaller).any())
        assert refuted or not self.tight_mu

    def test_malformed_events_raise_in_one_line(self) -> None:
        """Wrong, surplus and missing fields raise `ValueError` with a one-line message."""
        complete = self.event(1.0, RELATIONS[0]).to_dict()
        cases = [*self.malformed(), {"neighboring_relation": "swap"}, {"surplus": 1}]
        for change in cases:
            assert_refused(partial(event_from_dict, complete | change), change)
        for name in complete:
            incomplete = {key: value for key, value in complete.items() if key != name}
            assert_refused(partial(event_from_dict, incomplete), incomplete)


def enumerated_divergence(log_p: np.ndarray, log_q: np.ndarray) -> np.ndarray:
    """Return the Renyi divergences ``[ORDERS]`` between unnormalized log-probabilities."""
    first, second = (law - np.logaddexp.reduce(law) for law in (log_p, log_q))
    terms = ORDERS[:, None] * first + (1 - ORDERS[:, None]) * second
    return np.asarray(np.maximum(np.logaddexp.reduce(terms, axis=1), 0) / (ORDERS - 1))
