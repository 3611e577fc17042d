"""The contract of aggregators: releases follow their law, which costs no more than events say.

A subclass provides the aggregator, and the exact law of one query by its plain definition. All
ballots of a few teachers on a few labels are enumerated, `aggregate` is run on each of them and
compared with the law, and the laws of all neighbors are compared: a teacher votes differently, or
takes no part and casts a row of zeros, among the same nominal number of teachers. An outcome is
``(*labels, *mask, tier)``, with tier 0 if the release has none. The aggregator also answers votes
of 200 teachers, with the noise that a target needs.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from pate._core.accounting.accountant import Target, epsilon_of
from pate._core.accounting.cost import Cost, NeighboringRelation
from pate._core.accounting.events import Event, leaves
from pate._core.settings import Partial
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
    renyi_divergence,
    unpaid_loss,
    usual_ballots,
)
from pate._core.validation import FloatArray, IntArray
from pate._labeling.aggregators.base import Aggregator, Outlook, Release
from pate._labeling.votes.kinds import Ballots, Counts, Votes, VoteShape, serves

Outcome = tuple[int, ...]
Law = Mapping[Outcome, float]
BallotRows = tuple[tuple[int, ...], ...]
Grid = Sequence[BallotRows]


def neighbors(
    shape: VoteShape, relation: NeighboringRelation
) -> list[tuple[BallotRows, BallotRows]]:
    """Return all ordered pairs of neighboring ballots ``[T, C]``, each set of teachers once.

    A teacher that takes no part casts a row of zeros. The number of teachers is the same on both
    sides.
    """
    absent = (0,) * shape.num_labels
    kinds = list(itertools.product((0, 1), repeat=shape.num_labels))
    moves = list(itertools.permutations(kinds, 2))
    if relation is NeighboringRelation.ADD_REMOVE_TEACHER:
        moves = [move for move in moves if absent in move]
    return [
        ((*others, a), (*others, b))
        for others in itertools.combinations_with_replacement(kinds, shape.num_teachers - 1)
        for a, b in moves
    ]


def different_laws(
    laws: Mapping[BallotRows, Law],
    pairs: Iterable[tuple[BallotRows, BallotRows]],
    teachers: int = 1,
) -> tuple[FloatArray, FloatArray, list[Outcome]]:
    """Return the different laws at the ends of ``teachers`` pairs in a row, and their outcomes."""
    outcomes = sorted({outcome for law in laws.values() for outcome in law})
    table = np.array([[law.get(outcome, 0.0) for outcome in outcomes] for law in laws.values()])
    rows = {ballots: row for row, ballots in enumerate(laws)}
    # many ballots have one law
    _, found, which = np.unique(table.round(15), axis=0, return_index=True, return_inverse=True)
    distinct, law_of = table[found], which.reshape(-1)
    near = np.zeros((len(laws), len(laws)), dtype=np.int64)
    near[tuple(np.array([(rows[a], rows[b]) for a, b in pairs]).T)] = 1
    starts, stops = np.nonzero(
        np.linalg.matrix_power(near + np.eye(len(laws), dtype=np.int64), teachers)
    )
    ends = np.unique(law_of[starts] * len(distinct) + law_of[stops])
    first, second = np.divmod(ends[ends // len(distinct) != ends % len(distinct)], len(distinct))
    return distinct[first], distinct[second], outcomes


def p_value_of(drawn: IntArray, law: Law, *, rare: float = 0.0) -> float:
    """Return the p-value of a chi-square test of outcomes ``[n, m]``; an unknown one fails."""
    assert abs(sum(law.values()) - 1) <= 1e-6 and min(law.values()) >= 0, (
        f"Expected a law of probabilities that add up to 1, got {dict(law)}"
    )
    seen = Counter(map(tuple, drawn.tolist()))
    unknown = sorted(seen.keys() - law.keys())
    assert not unknown, (
        f"Expected a law with all outcomes (*labels, *mask, tier) that are drawn, got {unknown[:3]}"
    )
    observed = np.array([seen[outcome] for outcome in law])
    return chi_square_p_value(observed, np.array(list(law.values())) * len(drawn), rare=rare)


def outcomes_of(aggregator: Aggregator, votes: Ballots, generator: np.random.Generator) -> IntArray:
    """Return the outcomes ``[Q, 2 C + 1]`` of one call of `aggregate`, and check the release."""
    release = aggregator.aggregate(votes, generator=generator)
    assert isinstance(release, Release), f"Expected a Release, got {type(release).__name__}"
    labels, mask, tiers = release.labels, release.mask, release.tiers
    shapes, wanted = {labels.shape, mask.shape}, votes.counts.shape
    assert shapes == {wanted}, f"Expected labels and mask of shape [Q, C] = {wanted}, got {shapes}"
    assert labels.dtype == np.uint8 and mask.dtype == np.bool_, (
        f"Expected labels of uint8 and a mask of bool, got {labels.dtype} and {mask.dtype}"
    )
    tiers_or_zero = np.zeros(len(labels), dtype=np.int64) if tiers is None else tiers
    return np.column_stack((labels, mask, tiers_or_zero)).astype(np.int64)


class AggregatorContract(Contract):
    """Inherit, fill in, and name the class ``Test...``."""

    num_labels = 2
    num_teachers = 4
    draws = 20_000
    least_draws = 300
    """Number of queries with each of all ballots, at least."""
    single_draws = 100
    grid: Grid = usual_ballots(4, 2)
    predictions: tuple[float, ...] | None = None
    features: tuple[float, ...] | None = None
    """Public features of every query, for an aggregator that needs them."""
    loose_because = ""
    """Why no neighbors come within 10% of the event's curve; empty if some do, at some order."""

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        shape = cls.num_teachers, cls.num_labels
        if "grid" not in vars(cls) and np.shape(cls.grid)[1:] != shape:
            cls.grid = usual_ballots(*shape)

    @abstractmethod
    def make(self, relation: NeighboringRelation) -> Aggregator:
        """Return the aggregator, run for ``relation``."""

    @abstractmethod
    def law(self, votes: Ballots, relation: NeighboringRelation) -> Law:
        """Return the probability of each outcome of one query, by the plain definition."""

    @abstractmethod
    def malformed(self) -> list[dict[str, Any]]:
        """Return parameters that the aggregator must refuse."""

    def test_release_follows_the_law(self) -> None:
        """Frequencies of a batch agree with the law, closely enough to notice 20% less noise."""
        aggregator = self.make(RELATIONS[0])
        assert_drawn_by_law(self._p_value(aggregator, self.draws), aggregator)

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_release_follows_the_law_on_all_ballots(self, relation: NeighboringRelation) -> None:
        """The laws that are compared between neighbors are the laws of the code, on all ballots."""
        laws = self._laws_of_ballots(relation)
        ballots = np.array([votes_of_law for votes_of_law, _ in laws.values()])
        draws = max(self.least_draws, self.draws // len(laws))
        votes = self._with_public(Votes.from_ballots(np.repeat(ballots, draws, axis=0)))
        drawn = self.drawn(self.make(relation), votes, np.random.default_rng(len(laws)))
        parts = zip(np.split(drawn, len(laws)), laws.values(), strict=True)
        p_values = [p_value_of(part, law) for part, (_, law) in parts]
        assert_drawn_by_law(len(p_values) * min(p_values), self.make(relation))

    def test_one_query_at_a_time_follows_the_law(self) -> None:
        """Queries answered one by one follow the same law as a batch."""
        aggregator = self.make(RELATIONS[0])
        p_value = self._p_value(aggregator, self.single_draws, single=True)
        assert_drawn_by_law(p_value, aggregator)

    def test_queries_of_a_batch_are_independent(self) -> None:
        """A query's release depends on its own votes, and on noise that no other query shares."""
        aggregator, pairs = self.make(RELATIONS[0]), self.draws // 2
        votes = self._with_public(
            Votes.from_ballots(np.tile([self.grid[0], self.grid[-1]], (pairs, 1, 1)))
        )
        drawn = outcomes_of(aggregator, votes, np.random.default_rng(pairs)).reshape(pairs, -1)
        first, second = (
            self.law(self.votes(ballots), RELATIONS[0]) for ballots in (self.grid[0], self.grid[-1])
        )
        p_value = p_value_of(
            drawn, {(*a, *b): first[a] * second[b] for a in first for b in second}, rare=5
        )
        assert p_value > 1e-4, f"Expected independent queries in a batch, got p = {p_value:.1e}"

    def test_a_fifth_less_noise_is_caught(self) -> None:
        """The test of frequencies rejects 80% of the noise."""
        aggregator = self.make(RELATIONS[0]).scaled(0.8)
        assert_noise_matters(self._p_value(aggregator, self.draws), aggregator)

    @pytest.mark.parametrize("relation", RELATIONS)
    @pytest.mark.parametrize("made_for", RELATIONS)
    def test_divergence_between_all_neighbors_is_within_the_curve(
        self, made_for: NeighboringRelation, relation: NeighboringRelation
    ) -> None:
        """No pair of neighbors exceeds the event's Renyi curve, under either relation."""
        event = self.event(made_for, relation)
        assert_paid(self.worst_divergence(made_for, relation), event.cost(ORDERS).rdp, event)

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_two_teachers_of_one_unit_are_within_its_curve(
        self, relation: NeighboringRelation
    ) -> None:
        """The event of a unit that reaches two teachers bounds all ballots that two changed."""
        event = self.event(relation, relation).for_group_size(2)
        assert_paid(self.worst_divergence(relation, relation, 2), event.cost(ORDERS).rdp, event)

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_curve_is_tight_unless_explained(self, relation: NeighboringRelation) -> None:
        """Some neighbors come within 10% of the curve, exactly if `loose_because` is empty."""
        rdp = self.event(relation, relation).cost(ORDERS).rdp
        assert_tight(self.worst_divergence(relation, relation), rdp, self.loose_because)

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_event_states_the_relation(self, relation: NeighboringRelation) -> None:
        """Events carry the requested relation, and by default the aggregator's own."""
        aggregator = self.make(relation)
        assert aggregator.event(self.shape) == self.event(relation, relation)
        assert aggregator.events(self.shape) == {
            stated: self.event(relation, stated) for stated in RELATIONS
        }
        for stated in RELATIONS:
            assert self.event(relation, stated).neighboring_relation is stated

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_realised_cost_is_at_most_what_is_reserved(self, relation: NeighboringRelation) -> None:
        """No tier costs more than the reserved event, and the dearest tier costs as much."""
        aggregator = self.make(relation)
        for stated in RELATIONS:
            reserved = aggregator.event(self.shape, stated).cost(ORDERS)
            paid = [
                aggregator.event(self.shape, stated, tier).cost(ORDERS)
                for tier in self._tiers(relation)
            ]
            assert all((cost.rdp <= reserved.rdp * (1 + 1e-12)).all() for cost in paid)
            assert all(cost.delta0 <= reserved.delta0 * (1 + 1e-9) for cost in paid)
            assert any(np.allclose(cost.rdp, reserved.rdp) for cost in paid)

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_what_happens_is_part_of_what_is_reserved(self, relation: NeighboringRelation) -> None:
        """A tier has no choices and tests but the reserved ones, which weigh less among many."""
        aggregator = self.make(relation).scaled(100.0)  # so much noise that everything weighs less
        reserved = _parts(aggregator.event(self.shape))
        costs = [event.cost(ORDERS) for event in reserved.elements()]
        plain = sum(cost.mu_squared for cost in costs if not cost.rounds)
        for tier in self._tiers(relation):
            others = list((_parts(aggregator.event(self.shape, tier=tier)) - reserved).elements())
            beyond = sum(event.cost(ORDERS).mu_squared for event in others)
            assert beyond <= plain * (1 + 1e-9), (
                f"Expected the events of tier {tier} among those reserved, got {others}"
            )

    @pytest.mark.parametrize("relation", RELATIONS)
    @pytest.mark.parametrize("made_for", RELATIONS)
    def test_realised_costs_hold_between_all_neighbors(
        self, made_for: NeighboringRelation, relation: NeighboringRelation
    ) -> None:
        """Given the price of each outcome, nothing more is revealed on average.

        A ledger's filter rests on this.
        """
        unpaid = self.unpaid(made_for, relation, lambda tier: tier)
        assert unpaid <= 1e-9, (
            f"Expected each tier to pay for all that it reveals, got {unpaid:.3g} too little"
        )

    @pytest.mark.parametrize("relation", RELATIONS)
    @pytest.mark.parametrize("made_for", RELATIONS)
    def test_realised_gaussians_cover_all_neighbors(
        self, made_for: NeighboringRelation, relation: NeighboringRelation
    ) -> None:
        """A Gaussian filter holds too, where events have a ``mu``.

        It is tried against one adversary, who spends all that is left.
        """
        first, second, charged = self._charged(made_for, relation, lambda tier: tier)
        mu_squared, delta0 = (
            np.array([getattr(cost, name) for cost in charged]) for name in ("mu_squared", "delta0")
        )
        assert_gaussian(
            beyond_gaussian(first, second, mu_squared, delta0), self.event(made_for, relation)
        )

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_more_noise_never_costs_more(self, relation: NeighboringRelation) -> None:
        """Twice the noise lowers the curve at some order and raises it at none."""
        costlier, cheaper = (
            aggregator.event(self.shape).cost(ORDERS)
            for aggregator in (self.make(relation), self.make(relation).scaled(2.0))
        )
        assert (cheaper.rdp <= costlier.rdp).all() and (cheaper.rdp < costlier.rdp).any()

    def test_calibrated_noise_meets_a_target_and_hardly_more(self) -> None:
        """Calibration meets the target, and 0.2% less noise would miss it."""
        aggregator, relation = self.make(RELATIONS[0]), RELATIONS[1]
        delta0 = aggregator.event(self.shape, relation).cost(ORDERS).delta0
        target = Target(
            epsilon=1.5, delta=(1 + 3 * delta0) / 4, num_queries=1, neighboring_relation=relation
        )
        calibrated = aggregator.calibrated(target, self.shape, tolerance=1e-3, orders=ORDERS)
        assert calibrated is not None and type(calibrated) is type(aggregator)
        factors = np.divide(list(calibrated.noise.values()), list(aggregator.noise.values()))
        np.testing.assert_allclose(factors, factors[0])
        less = calibrated.scaled(1 - 2e-3)
        spent = [
            epsilon_of(
                candidate.event(self.shape, relation), count=1, delta=target.delta, orders=ORDERS
            )
            for candidate in (calibrated, less)
        ]
        assert spent[0] <= 1.5 < spent[1]

    def test_charges_are_those_of_the_release(self) -> None:
        """Charges count each query once, by its tier."""
        aggregator, release = self.make(RELATIONS[0]), self._release(50, seed=0)
        charges = aggregator.charges(release, self.shape)
        assert sum(count for _, count in charges) == len(release.labels)
        tiers = [None] if release.tiers is None else sorted(set(release.tiers.tolist()))
        assert [events for events, _ in charges] == [
            aggregator.events(self.shape, tier) for tier in tiers
        ]

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_proposals_can_be_run(self, relation: NeighboringRelation) -> None:
        """Proposals label the votes that they were made for."""
        votes = self._repeated(self.grid[0], 3)
        outlook = Outlook(
            shape=self.shape, num_queries=3, delta=1e-3, relation=relation, labels_per_sample=1
        )
        for proposal in type(self.make(relation)).proposals(outlook):
            predicted_votes = replace(votes, predictions=np.full(votes.counts.shape, 0.5))
            assert proposal.neighboring_relation is relation
            assert proposal.event(self.shape).neighboring_relation is relation
            release = proposal.aggregate(predicted_votes, generator=np.random.default_rng(0))
            assert len(release.labels) == 3

    def test_what_is_not_released_is_blank(self) -> None:
        """Labels and values are zero wherever the mask is False."""
        release = self._release(500, seed=0)
        shape = (500 * len(self.grid), self.num_labels)
        assert release.labels.shape == release.mask.shape == shape
        assert release.labels.dtype == np.uint8 and release.mask.dtype == np.bool_
        assert set(np.unique(release.labels)) <= {0, 1}
        assert not release.labels[~release.mask].any()
        if release.noisy_counts is not None:
            assert (
                release.noisy_counts.shape == shape
                and release.noise_std is not None
                and release.noise_std > 0
            )
            assert not release.noisy_counts[~release.mask].any()

    def test_one_seed_gives_one_release(self) -> None:
        """Equal seeds give equal releases, and different seeds different ones."""
        first, again, other = (
            [part.tolist() if isinstance(part, np.ndarray) else part for part in release]
            for release in (self._release(200, seed=seed) for seed in (5, 5, 6))
        )
        assert first == again and first != other

    def test_no_queries_no_labels(self) -> None:
        """A batch of no queries gives arrays of no rows."""
        votes = self.votes(self.grid[0])[np.zeros(0, dtype=np.int64)]
        release = self.make(RELATIONS[0]).aggregate(votes, generator=np.random.default_rng(0))
        assert release.labels.shape == release.mask.shape == (0, self.num_labels)

    def test_bad_parameters_raise_in_one_line(self) -> None:
        """Malformed parameters and panels raise `ValueError` with a one-line message."""
        aggregator = self.make(RELATIONS[0])
        noise = [
            {name: bad}
            for name in aggregator.noise_parameters
            for bad in (0.0, -5.0, float("nan"), True)
        ]
        for change in [*noise, *self.malformed(), {"neighboring_relation": "swap"}]:
            assert_refused(partial(replace, aggregator, **change), change, r"[^\n]*")
        for num_teachers, num_labels in ((1, 3), (9, 0)):
            with pytest.raises(ValueError, match=r"^Expected [^\n]*$"):
                aggregator.event(VoteShape(num_teachers, num_labels))

    def test_noise_has_no_default(self) -> None:
        """Every noise parameter has to be given."""
        aggregator = self.make(RELATIONS[0])
        assert aggregator.noise
        assert set(aggregator.noise_parameters) <= set(Partial(type(aggregator)).missing)

    def test_votes_that_lack_what_is_needed_are_refused(self) -> None:
        """Votes that lack a needed kind, predictions or features are refused, and no others."""
        aggregator, complete = self.make(RELATIONS[0]), self.votes(self.grid[0])
        public = {"predictions": complete.predictions, "features": complete.features}
        counts = Votes.from_counts(complete.counts, self.num_teachers).with_public(**public)
        offered: list[tuple[Votes, bool]] = [(counts, serves(Counts, aggregator.needs))]
        for name in public:
            missing: dict[str, Any] = {name: None}
            offered.append((replace(complete, **missing), name not in aggregator.needs))
        for votes, served in offered:
            generator = np.random.default_rng(0)
            if served:
                assert len(aggregator.aggregate(votes, generator=generator).labels) == 1
            else:
                with pytest.raises(ValueError, match=r"^Expected votes [^\n]*$"):
                    aggregator.aggregate(votes, generator=generator)

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_no_label_is_answered_more_often_than_admitted(
        self, relation: NeighboringRelation
    ) -> None:
        """No votes of the shape have a label answered more often than the aggregator admits."""
        first, last = self.num_labels, 2 * self.num_labels
        admitted = self.make(relation).max_answer_probability(self.shape)
        for ballots, law in self._laws_of_ballots(relation).values():
            answered = sum(p * np.array(outcome[first:last]) for outcome, p in law.items())
            assert np.max(answered) <= admitted + 1e-6, (
                f"Expected at most {admitted}, got {answered} for {ballots}"
            )

    def drawn(
        self, aggregator: Aggregator, votes: Ballots, generator: np.random.Generator
    ) -> IntArray:
        """Return outcomes ``[Q, 2 C + 1]`` that follow the law of one query each."""
        return outcomes_of(aggregator, votes, generator)

    def votes(self, ballots: BallotRows) -> Ballots:
        """Return the votes on one query."""
        return self._with_public(Votes.from_ballots(np.array(ballots)[None]))

    def event(self, made_for: NeighboringRelation, relation: NeighboringRelation) -> Event:
        """Return the event under ``relation`` of the aggregator that is run for ``made_for``."""
        return self.make(made_for).event(self.shape, relation)

    @property
    def shape(self) -> VoteShape:
        """The numbers of teachers and labels."""
        return VoteShape(self.num_teachers, self.num_labels)

    @classmethod
    @cache
    def _laws_of_ballots(
        cls, made_for: NeighboringRelation
    ) -> dict[BallotRows, tuple[BallotRows, Law]]:
        """Return ballots with different visible parts, and their laws, by that part."""
        contract, visible = cls(), cls._visible_part()
        kinds = itertools.product((0, 1), repeat=cls.num_labels)
        listed = itertools.combinations_with_replacement(kinds, cls.num_teachers)
        representatives = {visible(ballots): ballots for ballots in listed}
        return {
            key: (ballots, contract.law(contract.votes(ballots), made_for))
            for key, ballots in representatives.items()
        }

    @classmethod
    @cache
    def _laws_of_neighbors(
        cls, made_for: NeighboringRelation, relation: NeighboringRelation, teachers: int = 1
    ) -> tuple[FloatArray, FloatArray, list[Outcome]]:
        """Return the different laws of all neighbors, ``[N, M]`` each, and their M outcomes.

        Of one teacher that changed or, with ``teachers=2``, of two.
        """
        visible = cls._visible_part()
        laws = {key: law for key, (_, law) in cls._laws_of_ballots(made_for).items()}
        pairs = {(visible(a), visible(b)) for a, b in neighbors(cls().shape, relation)}
        return different_laws(laws, pairs, teachers)

    @classmethod
    def _visible_part(cls) -> Callable[[BallotRows], BallotRows]:
        """Return a function to the part of ballots that laws depend on; never their order."""
        if serves(Counts, cls().make(RELATIONS[0]).needs):
            return lambda ballots: (tuple(map(sum, zip(*ballots, strict=True))),)
        return lambda ballots: tuple(sorted(ballots))

    @classmethod
    @cache
    def worst_divergence(
        cls, made_for: NeighboringRelation, relation: NeighboringRelation, teachers: int = 1
    ) -> FloatArray:
        """Return the largest divergence over all pairs of neighbors, ``[ORDERS]``.

        Of one teacher that changed or, with ``teachers=2``, of two.
        """
        first, second, _ = cls._laws_of_neighbors(made_for, relation, teachers)
        delta0 = cls().event(made_for, relation).for_group_size(teachers).cost(ORDERS).delta0
        return renyi_divergence(first, second, delta0).max(axis=0)

    def unpaid(
        self,
        made_for: NeighboringRelation,
        relation: NeighboringRelation,
        charged: Callable[[int], int],
    ) -> float:
        """Return by how much outcomes reveal more than the tier ``charged`` for each one pays for.

        It is the largest `unpaid_loss` over orders and pairs of neighbors, with the curve and the
        delta0 that each outcome is charged; at most 0 if enough is paid.
        """
        first, second, charged_for = self._charged(made_for, relation, charged)
        rdp, delta0 = (
            np.array([getattr(cost, name) for cost in charged_for]) for name in ("rdp", "delta0")
        )
        return float(unpaid_loss(first, second, rdp, delta0).max())

    def _charged(
        self,
        made_for: NeighboringRelation,
        relation: NeighboringRelation,
        charged: Callable[[int], int],
    ) -> tuple[FloatArray, FloatArray, list[Cost]]:
        """Return the laws of all neighbors, ``[N, M]`` each, and the charge of each outcome."""
        first, second, outcomes = self._laws_of_neighbors(made_for, relation)
        aggregator = self.make(made_for)
        costs = {
            tier: aggregator.event(self.shape, relation, charged(tier)).cost(ORDERS)
            for tier in {outcome[-1] for outcome in outcomes}
        }
        return first, second, [costs[outcome[-1]] for outcome in outcomes]

    def _tiers(self, relation: NeighboringRelation) -> list[int]:
        """Return the price tiers of all outcomes on the grid."""
        laws = (self.law(self.votes(ballots), relation) for ballots in self.grid)
        return sorted({outcome[-1] for law in laws for outcome in law})

    def _with_public(self, votes: Ballots) -> Ballots:
        predictions, features = (
            None
            if values is None
            else np.tile(np.asarray(values, dtype=np.float64), (votes.num_queries, 1))
            for values in (self.predictions, self.features)
        )
        return replace(votes, predictions=predictions, features=features)

    def _release(self, draws: int, seed: int) -> Release:
        rows = np.concatenate([self._repeated(ballots, draws).ballots for ballots in self.grid])
        votes = self._with_public(Votes.from_ballots(rows))
        return self.make(RELATIONS[0]).aggregate(votes, generator=np.random.default_rng(seed))

    def _repeated(self, ballots: BallotRows, draws: int) -> Ballots:
        return self.votes(ballots)[np.zeros(draws, dtype=np.int64)]

    def _p_value(self, aggregator: Aggregator, draws: int, *, single: bool = False) -> float:
        """Return the least p-value of draws against the law on the ballots of the grid."""
        least = 1.0
        for seed, ballots in enumerate(self.grid):
            generator = np.random.default_rng([seed, draws])
            votes = self._repeated(ballots, draws)
            if single:
                rows = [outcomes_of(aggregator, votes[:1], generator) for _ in range(draws)]
                drawn = np.concatenate(rows)
            else:
                drawn = self.drawn(aggregator, votes, generator)
            least = min(least, p_value_of(drawn, self.law(votes[:1], RELATIONS[0])))
            if least < CLEARLY_DIFFERENT:
                break
        return least


def _parts(event: Event) -> Counter[Event]:
    """Return the basic events that an event consists of, and how often each happens."""
    return sum((Counter({leaf: count}) for leaf, count in leaves(event)), Counter[Event]())
