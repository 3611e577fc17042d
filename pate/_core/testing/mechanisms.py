"""The contracts of mechanisms and events: samplers follow laws, which cost what events say.

The test class of a mechanism lists its outputs and gives their law by its plain definition. It is
enumerated on all small counts and compared with samples, and between all neighbors with the event.

Events add up, survive JSON, and bound the laws that they describe. The test class of an event
provides events of one kind for given amounts of noise, and pairs of enumerated laws on neighbors of
a small mechanism that such an event describes.
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from pate._core.accounting.accountant import RDPAccountant
from pate._core.accounting.cost import NeighboringRelation, gaussian_delta
from pate._core.accounting.events import Event, event_from_dict
from pate._core.mechanisms.base import Mechanism, NotStatedError
from pate._core.mechanisms.noise import seeded_generator
from pate._core.testing.laws import (
    CLEARLY_DIFFERENT,
    ORDERS,
    RELATIONS,
    Contract,
    assert_drawn_by_law,
    assert_gaussian,
    assert_noise_matters,
    assert_paid,
    assert_refused,
    assert_tight,
    beyond_gaussian,
    chi_square_p_value,
    neighbors,
    renyi_divergence,
)
from pate._core.validation import FloatArray, IntArray

_MOST_PAIRS = 400  # of neighbors, for the comparisons of other relations and groups

Outcome = tuple[int, ...]
Grid = Sequence[Sequence[float]]


class MechanismContract(Contract):
    """Inherit, fill in the abstract methods, and name the class ``Test...``.

    A subclass makes the mechanism, lists its outputs and gives their exact law by its plain
    definition. The law is enumerated for every vector of counts in ``{0..max_count}^num_items`` and
    compared between all neighbors; samples are drawn for the rows of ``grid``.
    """

    num_items = 3
    max_count = 3
    max_move = 1
    """The largest change of one count between neighbors.

    Where ``law`` and ``select`` divide counts by a number of
    steps, this may be more than one of them: scores on a grid that is finer than the sensitivity.
    """
    draws = 20_000
    """Number of rows in the batch that tests a law."""
    single_draws = 60
    """Number of single rows that test a law."""
    grid: Grid = ((3, 2, 0), (1, 1, 1), (0, 3, 3), (2, 0, 1))
    loose_because = ""
    """Why no neighbors come within 10% of the event's curve; empty if some do, at some order."""
    tolerance = 1e-7
    """Relative error of the enumerated law."""
    outlier = 2**60
    """A count beyond all noise, next to which others keep their law; 0 if counts are bounded."""
    shift = 2**60
    """A number that changes no law when it is added to all counts; 0 if only differences matter."""

    counts_are_scores = True
    """Whether the mechanism takes the counts themselves, and states the law for them."""

    @abstractmethod
    def make(self, relation: NeighboringRelation) -> Mechanism[Any]:
        """Return the mechanism that protects ``relation``; for most, the same under both."""

    @abstractmethod
    def outcomes(self) -> list[Outcome]:
        """List all outputs."""

    @abstractmethod
    def law(self, mechanism: Any, scores: Any) -> FloatArray:
        """Return the probability of each outcome for ``scores`` ``[d]``, by the definition."""

    def select(self, mechanism: Any, scores: Any, generator: np.random.Generator) -> Any:
        """Return outcomes ``[n, m]`` or ``[m]`` on ``scores`` ``[n, d]`` or ``[d]``."""
        return mechanism(scores, generator=generator)

    def released_set(self, outcome: Outcome) -> frozenset[int] | None:
        """Return the items that an outcome releases, in any order, or None if nothing is released.

        Override it where outcomes are no indices of items. The law that the mechanism states is
        compared by it.
        """
        return frozenset(outcome)

    # inherited by every subclass

    def test_stated_law_is_the_law(self) -> None:
        """The law that the mechanism states for audits equals the law of the test class."""
        if not self.counts_are_scores:
            return
        mechanism, rows = self.make(RELATIONS[0]), np.asarray(self.grid)
        try:
            stated = mechanism.law(rows)
        except NotStatedError:
            return
        sets = [self.released_set(outcome) for outcome in self.outcomes()]
        for place, row in enumerate(rows):
            expected = defaultdict[frozenset[int] | None, float](float)
            for released, chance in zip(sets, self.law(mechanism, row).tolist(), strict=True):
                expected[released] += chance
            members = stated.members if stated.members.ndim == 2 else stated.members[place]
            found = defaultdict[frozenset[int] | None, float](float)
            for each, chance in zip(members, stated.chances[place].tolist(), strict=True):
                found[frozenset(np.flatnonzero(each).tolist())] += chance
            if stated.nothing is not None:
                found[None] += float(stated.nothing[place])
            for released in expected.keys() | found.keys():
                assert found[released] == pytest.approx(expected[released], abs=1e-6), (
                    f"Expected the law of the test class for {row}, got {found}"
                )

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_curves_of_the_other_relation_and_of_two_units_hold(
        self, relation: NeighboringRelation
    ) -> None:
        """Events bound mechanisms made for the other relation, and groups of two units."""
        (other,) = set(RELATIONS) - {relation}
        for mechanism, event, moved in (
            (self.make(other), self.make(other).event(relation), 1),
            (self.make(relation), self.make(relation).event(relation).for_group_size(2), 2),
        ):
            first, second, laws = _pairs(type(self), mechanism, relation, moved)
            cost, thin = event.cost(ORDERS), -(-len(first) // _MOST_PAIRS)
            first, second = first[::thin], second[::thin]
            worst = renyi_divergence(laws[first], laws[second], cost.delta0).max(axis=0)
            assert_paid(worst, cost.rdp, event, self.tolerance)

    def test_sampler_follows_the_law(self) -> None:
        """Frequencies of a batch agree with the enumerated law."""
        for mechanism in {self.make(relation) for relation in RELATIONS}:
            assert_drawn_by_law(self._p_value(mechanism, self.draws), mechanism)

    def test_single_rows_follow_the_law(self) -> None:
        """Rows one by one follow the same law as a batch."""
        mechanism = self.make(RELATIONS[0])
        assert_drawn_by_law(self._p_value(mechanism, self.single_draws, single=True), mechanism)

    def test_rows_of_a_batch_are_independent(self) -> None:
        """A row's release depends on its own scores, and on noise that no other row shares."""
        mechanism, rows = self.make(RELATIONS[0]), np.asarray([self.grid[0], self.grid[-1]])
        drawn = self._drawn(mechanism, np.tile(rows, (self.draws // 2, 1)), seeded_generator(1000))
        first, second = (self.law(mechanism, row) for row in rows)
        observed = np.bincount(
            drawn[::2] * len(first) + drawn[1::2], minlength=len(first) * len(second)
        )
        p_value = chi_square_p_value(
            observed, np.outer(first, second).ravel() * (self.draws // 2), rare=5
        )
        assert p_value > 1e-4, f"Expected independent rows in a batch, got p = {p_value:.1e}"

    def test_a_fifth_less_noise_is_caught(self) -> None:
        """The test of frequencies rejects 80% of the noise."""
        mechanism = self.make(RELATIONS[0])
        assert_noise_matters(self._p_value(mechanism, self.draws, noise=0.8), mechanism)

    @pytest.mark.parametrize("kind", ["outlier", "shift"])
    def test_no_magnitude_drowns_the_noise(self, kind: str) -> None:
        """Next to an outlier, or on top of a large number, counts keep their law."""
        mechanism, row, large = (
            self.make(RELATIONS[0]),
            np.asarray(self.grid[0]),
            getattr(self, kind),
        )
        if not large:
            pytest.skip("counts have a public bound, or are released themselves")
        beyond = 100 * max(getattr(mechanism, name) for name in mechanism.noise_parameters)
        one = (
            np.arange(row.size) == row.argmax()
            if kind == "outlier"
            else np.ones(row.size, dtype=np.bool_)
        )
        law = self.law(
            mechanism, np.where(one, row + round(beyond), row) if kind == "outlier" else row
        )
        draws = self.draws // 40
        drawn = self._drawn(
            mechanism, np.tile(np.where(one, row + large, row), (draws, 1)), seeded_generator(2000)
        )
        p_value = chi_square_p_value(np.bincount(drawn, minlength=len(law)), law * draws, rare=5)
        assert p_value > 1e-4, (
            f"Expected the law of small counts with a {kind} of {large}, got p = {p_value:.1e}"
        )

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_divergence_between_all_neighbors_is_within_the_curve(
        self, relation: NeighboringRelation
    ) -> None:
        """No pair of neighbors exceeds the event's Renyi curve."""
        event = self.make(relation).event(relation)
        assert_paid(self.worst_divergence(relation), event.cost(ORDERS).rdp, event, self.tolerance)

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_gaussian_of_the_event_covers_all_neighbors(
        self, relation: NeighboringRelation
    ) -> None:
        """No neighbors exceed the Gaussian trade-off of the event's ``mu``, where it has one."""
        event = self.make(relation).event(relation)
        first, second, laws = _pairs(type(self), self.make(relation), relation)
        _, log_survival, mu_squared, *_ = event.cost(ORDERS)
        charges = (
            np.full(laws.shape[1], mu_squared),
            np.full(laws.shape[1], -np.expm1(log_survival)),
        )
        assert_gaussian(beyond_gaussian(laws[first], laws[second], *charges), event, self.tolerance)

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_curve_is_tight_unless_explained(self, relation: NeighboringRelation) -> None:
        """Some neighbors come within 10% of the curve, exactly if `loose_because` is empty."""
        rdp = self.make(relation).event(relation).cost(ORDERS).rdp
        assert_tight(self.worst_divergence(relation), rdp, self.loose_because)

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_events_state_their_relation(self, relation: NeighboringRelation) -> None:
        """Events carry the relation that they were asked for."""
        mechanism = self.make(relation)
        assert mechanism.event(relation).neighboring_relation is relation
        assert mechanism.events()[relation] == mechanism.event(relation)
        for key, event in mechanism.events().items():
            assert event.neighboring_relation is key

    def test_parameters_make_the_mechanism(self) -> None:
        """Equal parameters make equal mechanisms, and noise of no width is refused."""
        mechanism, again = self.make(RELATIONS[0]), self.make(RELATIONS[0])
        assert mechanism == again and hash(mechanism) == hash(again), (
            f"Expected {type(mechanism).__name__} to be a frozen dataclass with equality by fields"
        )
        assert mechanism.noise_parameters, (
            "Expected the names of the scales of noise in noise_parameters, got none"
        )
        assert mechanism != mechanism.scaled(2.0)
        for factor in (0.0, -5.0, np.nan, np.inf):
            with pytest.raises(ValueError, match=r"^Expected \w+ > 0, got \w+=[^\n]*$"):
                mechanism.scaled(factor)

    def worst_divergence(self, relation: NeighboringRelation) -> FloatArray:
        """Return the largest divergence over all pairs of neighbors, ``[ORDERS]``."""
        return _worst_divergence(type(self), relation)

    def _p_value(
        self, mechanism: Mechanism[Any], draws: int, *, single: bool = False, noise: float = 1.0
    ) -> float:
        """Return the least p-value of draws with ``noise`` times the noise, over the grid."""
        sampler = mechanism.scaled(noise)
        least = 1.0
        for seed, scores in enumerate(self.grid):
            row = np.asarray(scores)
            generator = seeded_generator(seed)
            if single:
                released = [self.select(sampler, row, generator) for _ in range(draws)]
            else:
                released = self.select(sampler, np.tile(row, (draws, 1)), generator)
            drawn = self._places(released, draws)
            law = self.law(mechanism, row)
            assert law.min() >= 0 and abs(law.sum() - 1) <= max(1e-6, self.tolerance), (
                f"Expected probabilities of {scores} that add up to 1, got {law} of sum {law.sum()}"
            )
            p_value = chi_square_p_value(np.bincount(drawn, minlength=len(law)), law * draws)
            least = min(least, p_value)
            if least < CLEARLY_DIFFERENT:
                break
        return least

    def _drawn(
        self, sampler: Mechanism[Any], rows: Any, generator: np.random.Generator
    ) -> IntArray:
        """Return the indices ``[n]`` of the outcomes that were drawn for ``rows``."""
        return self._places(self.select(sampler, rows, generator), len(rows))

    def _places(self, released: Any, num: int) -> IntArray:
        """Return the indices ``[n]`` of ``num`` outcomes that were released."""
        outcomes, releases = np.array(self.outcomes()), np.asarray(released)
        assert releases.size == num * outcomes.shape[1], (
            f"Expected outcomes such as {outcomes[0]} for {num} rows, got shape {releases.shape}"
        )
        # one number per outcome; an index may be -1
        digits = (max(outcomes.max(), releases.max(initial=0)) + 2) ** np.arange(outcomes.shape[1])
        listed, drawn = (outcomes + 1) @ digits, (releases.reshape(num, -1) + 1) @ digits
        order = np.argsort(listed)
        places: IntArray = order[np.searchsorted(listed[order], drawn).clip(max=len(order) - 1)]
        unknown = releases.reshape(num, -1)[listed[places] != drawn]
        assert not len(unknown), f"Expected outcomes() to list all that is drawn, got {unknown[0]}"
        return places


@cache
def _laws(
    contract: Callable[[], MechanismContract], mechanism: Mechanism[Any]
) -> tuple[IntArray, FloatArray]:
    """Return all vectors of counts ``[n, d]`` and their laws ``[n, m]``."""
    checked = contract()
    counts = np.array(list(np.ndindex((checked.max_count + 1,) * checked.num_items)))
    return counts, np.array([checked.law(mechanism, row) for row in counts])


@cache
def _pairs(
    contract: Callable[[], MechanismContract],
    mechanism: Mechanism[Any],
    relation: NeighboringRelation,
    units: int = 1,
) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the different pairs of neighbors, as rows of the laws of all counts."""
    checked = contract()
    counts, laws = _laws(contract, mechanism)
    shape = (checked.max_count + 1,) * checked.num_items
    first, second = neighbors(counts, relation, shape, max_move=units * checked.max_move)
    # many counts have one law, and many neighbors the laws of others
    with np.errstate(divide="ignore"):
        _, distinct, law_of = np.unique(
            np.log(laws).round(12), axis=0, return_index=True, return_inverse=True
        )
    pairs = np.unique(law_of[first] * len(distinct) + law_of[second])
    first, second = distinct[np.stack(np.divmod(pairs, len(distinct)))]
    return first, second, laws


@cache
def _worst_divergence(
    contract: Callable[[], MechanismContract], relation: NeighboringRelation
) -> FloatArray:
    mechanism = contract().make(relation)
    first, second, laws = _pairs(contract, mechanism, relation)
    delta0 = mechanism.event(relation).cost(ORDERS).delta0
    return renyi_divergence(laws[first], laws[second], delta0).max(axis=0)


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
                    assert (divergence <= rdp * (1 + 1e-9) + 1e-12).all(), (
                        f"Expected a curve that covers the laws of noise {noise}, which differ"
                        f" {(divergence / rdp).max():.3g} times as much"
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
            assert laws, (
                "Expected laws_of_two, because `for_group_size` states a cost for two teachers"
            )
            for p, q in (pair for law in laws for pair in (law, law[::-1])):
                assert (enumerated_divergence(p, q) <= rdp * (1 + 1e-9) + 1e-12).all(), (
                    f"noise {noise}"
                )
                checked |= bool((enumerated_divergence(p, q) > once.rdp * 1.01).any())
        assert checked or not self.tight or not np.isfinite(rdp).any(), (
            "Expected laws that one teacher could not produce"
        )

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_one_teacher_is_the_event_itself(self, relation: NeighboringRelation) -> None:
        """A unit that reaches one teacher costs the event itself. An invalid number is refused."""
        event = self.event(1.0, relation)
        assert event.for_group_size(1) == event
        assert event.for_group_size(2).neighboring_relation is relation
        for teachers in (0, -1, 1.5, True):
            with pytest.raises(ValueError, match=r"^Expected [^\n]*$"):
                event.for_group_size(teachers)  # type: ignore[arg-type]

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
        for change in (*self.malformed(), {"neighboring_relation": "swap"}, {"surplus": 1}):
            assert_refused(partial(event_from_dict, complete | change), change)
        for name in complete:
            incomplete = {key: value for key, value in complete.items() if key != name}
            assert_refused(partial(event_from_dict, incomplete), incomplete)


def enumerated_divergence(log_p: np.ndarray, log_q: np.ndarray) -> np.ndarray:
    """Return the Renyi divergences ``[ORDERS]`` between unnormalized log-probabilities."""
    first, second = (law - np.logaddexp.reduce(law) for law in (log_p, log_q))
    terms = ORDERS[:, None] * first + (1 - ORDERS[:, None]) * second
    return np.asarray(np.maximum(np.logaddexp.reduce(terms, axis=1), 0) / (ORDERS - 1))
