"""Top-k by stability: labels are released exactly if no neighbor could have others.

A gap between sorted counts is chosen privately, then tested (Zhu & Wang (2022), "Adaptive
Private-K-Selection with Adaptive K and Application to Multi-label PATE"). `StableTopKMechanism`
releases the set above the gap, and `FixedTopKMechanism` a set of k by a gap near k, and peeling.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_expit

from pate._core.accounting.cost import NeighboringRelation, smallest_where
from pate._core.accounting.events import (
    BoundedRangeEvent,
    ComposedEvent,
    Event,
    RepeatedEvent,
    RootPeelingEvent,
)
from pate._core.mechanisms.base import (
    Case,
    Checks,
    Law,
    NotStatedError,
    Release,
    Released_co,
    ScoreMechanism,
    by_items,
    choice_law,
    peeling_law,
    sets_of,
)
from pate._core.mechanisms.exact_choice import REACH, ROWS, blocks_of, distances, sample_k_smallest
from pate._core.mechanisms.peeling import (
    GapChoice,
    GapNoise,
    SortedCounts,
    StabilityTest,
    as_counts,
    sort_rows,
)
from pate._core.validation import (
    BoolArray,
    FloatArray,
    IntArray,
    Rows,
    require,
    require_count,
    require_flag,
    require_in_open_unit_interval,
    require_not_negative,
)


@dataclass(frozen=True, kw_only=True)
class GapMechanism(ScoreMechanism[Released_co]):
    """The choice of a rank by its gap, and the test of that gap; see `StableTopKMechanism`."""

    noise_parameters: ClassVar[tuple[str, ...]] = ("scale_gap", "sigma_test")
    checks: ClassVar[Checks] = {
        "delta_test": require_in_open_unit_interval,
        "noise": GapChoice.checks["noise"],
        "allow_empty": require_flag,
    }

    num_teachers: int
    num_labels: int
    scale_gap: float
    sigma_test: float
    delta_test: float
    shift: float
    allow_empty: bool = True
    noise: GapNoise = "gumbel"

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.choice, self.test  # both check their parameters

    @cached_property
    def choice(self) -> GapChoice:
        """The choice of a rank."""
        return GapChoice(
            num_labels=self.num_labels,
            scale=self.scale_gap,
            sensitivity=self.sensitivity,
            noise=self.noise,
            allow_empty=self.allow_empty,
            majority_weight=self.majority_weight,
            **self._preferences,
        )

    @property
    def majority_weight(self) -> int | None:
        """The weight of the majorities for none and for all labels. None for sentinels."""
        return None

    @property
    @abstractmethod
    def _preferences(self) -> dict[str, Any]:
        """The ``regularizer`` of the choice, and its ``kbar``."""

    @cached_property
    def test(self) -> StabilityTest:
        """The test of the gap below that rank."""
        return StabilityTest(
            num_teachers=self.num_teachers,
            sigma=self.sigma_test,
            delta_test=self.delta_test,
            shift=self.shift,
            sensitivity=self.sensitivity,
            # a doubled majority moves by two sensitivities, whichever relation the cost is stated
            # under
            window=2 if self.majority_weight == 2 else None,
        )

    def event(self, relation: NeighboringRelation) -> Event:
        """Describe the choice of a gap, then its test (Zhu & Wang (2022), Theorem 11)."""
        return ComposedEvent(events=(self.choice.event(relation), self.test.event(relation)))

    def _rows(self, counts: ArrayLike) -> tuple[Rows, bool]:
        rows, single = as_counts(counts, self.num_teachers)
        require(
            rows.shape[1] == self.num_labels,
            f"counts of {self.num_labels} labels",
            num_labels=rows.shape[1],
        )
        return rows, single

    def _ranked(
        self, rows: Rows, generator: np.random.Generator
    ) -> tuple[SortedCounts, IntArray, BoolArray]:
        """Return sorted counts, the rank chosen ``[n]`` and whether it passed ``[n]``."""
        ranked = sort_rows(rows, self.num_teachers, self.majority_weight)
        rank = self.choice(ranked.gaps, generator=generator)
        gap = np.take_along_axis(ranked.gaps, rank[:, None], axis=1)[:, 0]
        return ranked, rank, self.test(gap, generator=generator)

    def _law_of_ranks(self, scores: Rows) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the order ``[B, C]``, the chances of ranks that pass ``[B, C + 1]``, of none."""
        if self.noise != "gumbel" and self.noise != "exponential":
            raise NotStatedError(
                f"the law of {type(self).__name__} with {self.noise} noise is not known"
            )
        rows, _ = self._rows(scores)
        ranked = sort_rows(rows, self.num_teachers, self.majority_weight)
        gaps, ranks = ranked.gaps.astype(np.float64), np.arange(self.num_labels + 1)
        preferred = np.array(self.choice.regularizer or np.zeros(ranks.size))
        preferred = np.where(np.isin(ranks, self.choice.ranks), preferred, -np.inf)
        chances = choice_law((gaps + preferred) / self.scale_gap, self.noise)
        nothing = (chances * self.test.failure(gaps)).sum(axis=1)
        return ranked.order, chances * self.test.probability(gaps), nothing


@dataclass(frozen=True, kw_only=True)
class StableTopKMechanism(GapMechanism[tuple[BoolArray, BoolArray]]):
    """Choose k by the widest noisy gap, then release the k largest counts if that gap is stable.

    "No label" (k = 0) and "all labels" (k = C) have the evidence of a majority in place of a gap:
    ``w (T / 2 - h_(1))`` and ``w (h_(C) - T / 2)``, for ``T = num_teachers`` and ``w`` the
    `majority_weight`. These sets are the same for all votes, and a majority moves by w
    sensitivities, which the shift covers.

    Privacy: a `GapChoice` composed with a `StabilityTest` (the composition of Zhu & Wang (2022),
    Theorem 11, at the curves of both parts; the theorem's own bound on a curve is not used).

    Args:
        num_teachers: the nominal number of teachers, which is the largest possible count; of other
            scores a public bound on them, within which they all lie, whatever the data.
        num_labels: the number of labels C.
        scale_gap: scale of the noise of the choice (its standard deviation for ``gaussian``), in
            votes.
        sigma_test: standard deviation of the noise of the test, in votes.
        delta_test: probability that an unstable set passes the test.
        shift: protection of the test, in votes: 1 under ADD_REMOVE_TEACHER, 2 under REPLACE_RECORD;
            times the sensitivity of other scores.
        sensitivity: the largest change of one score between neighbors, 1 for votes.
        allow_empty: whether k may be 0 or C, which the paper leaves out.
        noise: noise of the choice, any noise of `GapChoice`.
        regularizer: public numbers ``[C + 1]`` added to the gaps, in votes; minus infinity rules a
            k out.
        kbar: largest k, for an unknown domain: counts of rank beyond ``kbar + 1`` have no
            influence.

    Raises:
        ValueError: on a scale or deviation that is not positive, ``delta_test`` outside (0, 1), a
            ``shift`` or ``sensitivity`` that is no positive integer, an unknown noise, a
            regularizer or ``kbar`` that `GapChoice` refuses, or one label without the empty
            and the full set.
    """

    checks: ClassVar[Checks] = {name: GapChoice.checks[name] for name in ("regularizer", "kbar")}

    regularizer: tuple[float, ...] | None = None
    kbar: int | None = None

    @classmethod
    def defaults(cls, case: Case) -> Sequence[Mapping[str, Any]]:
        return [{"delta_test": case.delta_test, "noise": noise} for noise in ("gumbel", "gaussian")]

    @property
    def majority_weight(self) -> int | None:
        """2 where the shift covers two sensitivities, as for REPLACE_RECORD, and 1 otherwise."""
        if not self.allow_empty:
            return None
        return 2 if self.shift >= 2 * self.sensitivity else 1

    @property
    def _preferences(self) -> dict[str, Any]:
        return {"regularizer": self.regularizer, "kbar": self.kbar}

    def __call__(
        self, scores: ArrayLike, *, generator: np.random.Generator
    ) -> tuple[BoolArray, BoolArray]:
        """Release sets of labels by scores ``[C]`` or ``[B, C]`` in ``[0, num_teachers]``.

        Scores are integers.

        Returns:
            The members, booleans of the shape of the counts, all False in a row that failed; and
            whether the test passed, booleans ``[]`` or ``[B]``.

        Raises:
            ValueError: on counts of another shape, kind or range.
        """
        rows, single = self._rows(scores)
        # Gaussian noise is drawn for the whole batch at once: drawn by parts, seeded releases would
        # change
        size = max(1, len(rows)) if self.noise == "gaussian" else ROWS
        parts = [self._ranked(part, generator) for part in blocks_of(rows, size=size)]
        order = np.concatenate([ranked.order for ranked, _, _ in parts])
        k, released = (np.concatenate([part[place] for part in parts]) for place in (1, 2))
        members = np.zeros(rows.shape, dtype=np.bool_)
        inside = (np.arange(self.num_labels) < k[:, None]) & released[:, None]
        np.put_along_axis(members, order, inside, axis=1)
        return (members[0], released[0]) if single else (members, released)

    def answer(self, counts: ArrayLike, *, generator: np.random.Generator) -> Release:
        return Release.of_rows(*self(counts, generator=generator))

    def gap_to_answer(self, probability: float) -> float:
        """Return the least gap, in votes, whose set is released with ``probability``.

        All other gaps are 0, the noise of the choice is Gumbel, and no k is preferred.
        """
        others = self.choice.num_candidates - 1
        log_others = math.log(others) if others else -math.inf

        def is_reached(gap: float) -> bool:
            chosen = math.exp(log_expit(gap / self.scale_gap - log_others))
            return chosen * float(self.test.probability(gap)) >= probability

        high = max(self.scale_gap, self.sigma_test)
        while not is_reached(high):
            high *= 2
        return 0.0 if is_reached(0.0) else smallest_where(is_reached, 0.0, high, tolerance=1e-9)

    def max_answer_probability(self, widest: float) -> float:
        """Return the probability that the widest gap or majority that there is passes its test."""
        ends = (self.majority_weight or 0) * self.num_teachers / 2
        possible = (
            ends if rank in (0, self.num_labels) else self.num_teachers
            for rank in self.choice.ranks
        )
        return float(self.test.probability(max(possible)))

    def law(self, scores: Rows) -> Law:
        """Return the law of the sets of the 0, 1, .., C largest scores."""
        order, chances, nothing = self._law_of_ranks(scores)
        places, ranks = np.argsort(order, axis=1), np.arange(self.num_labels + 1)
        return Law(chances, places[:, None] < ranks[:, None], nothing)


class FixedTopK(NamedTuple):
    """The release of a `FixedTopKMechanism`."""

    members: BoolArray
    """``[C]`` or ``[B, C]``: the set of k labels; all False in a failed row without fallback.
    """
    released: BoolArray
    """``[]`` or ``[B]``: whether the test passed, and so which branch was taken."""
    rounds: IntArray
    """``[]`` or ``[B]``: number of rounds of peeling; in a row that failed, k with a fallback and 0
    without. It is a function of the chosen rank and of the test, and the event of both pays for it.
    """


@dataclass(frozen=True, kw_only=True)
class FixedTopKMechanism(GapMechanism[FixedTopK]):
    """Release a set of k labels by a stable gap near k (Zhu & Wang (2022), Algorithm 3).

    A rank j is chosen by the gaps less ``rank_penalty * abs(j - k)`` and tested as in
    `StableTopKMechanism`. If it passes and j is below k, the missing labels are peeled from the
    rest. If j is above k, the surplus is peeled off or the k are peeled from the j largest,
    whichever takes fewer rounds. A row that fails releases nothing, or with ``fallback`` the k
    labels that k rounds of peeling choose among all (line 5 of the algorithm; a round is an
    exponential mechanism).

    Privacy: a `GapChoice` composed with a test of it, then one bounded-range choice for every round
    of peeling, k at most, by adaptive composition: the chosen rank and the outcome of the test,
    which the first two pay for, determine the number of rounds and their items. A choice has the
    range ``w / scale_peel``; ``w`` is 1 vote (or sensitivity) under ADD_REMOVE_TEACHER and 2 under
    REPLACE_RECORD. With ``scale_noise_with_rounds``, r rounds have noise of ``scale_peel sqrt(r /
    k)``, so that they cost about as much as k rounds and never more: the curve of an eta-bounded
    range is ``eta^2 max_c of the integral of T(x) l(eta (x
    - c)) dx / (alpha - 1)``, with a fixed triangle T and the logistic density l, which falls with
    the distance from 0; so it falls against ``eta^2`` as eta grows.

    The other parameters are as in `StableTopKMechanism`, without ``regularizer`` and ``kbar``.

    Args:
        k: size of the set, 1..C.
        rank_penalty: public preference for ranks near k, in votes per rank, at least 0.
        scale_peel: scale of the Gumbel noise of the peeling, in votes.
        fallback: whether rows that fail the test release k labels by peeling.
        scale_noise_with_rounds: whether fewer rounds of peeling have less noise, by the root of
            their number over k.

    Raises:
        ValueError: on noise that is not positive, ``delta_test`` outside (0, 1), a ``shift`` or
            ``sensitivity`` that is no positive integer, ``k`` outside 1..C, ``rank_penalty
            < 0``, an unknown noise, or one label without the empty and the full set.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("scale_gap", "sigma_test", "scale_peel")
    checks: ClassVar[Checks] = {
        "k": partial(require_count, 1),
        "rank_penalty": require_not_negative,
        "fallback": require_flag,
        "scale_noise_with_rounds": require_flag,
    }

    k: int
    rank_penalty: float
    scale_peel: float
    fallback: bool = False
    scale_noise_with_rounds: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.k <= self.num_labels,
            f"k <= {self.num_labels} for {self.num_labels} labels",
            k=self.k,
        )

    @classmethod
    def defaults(cls, case: Case) -> Sequence[Mapping[str, Any]]:
        settings = {"k": case.k, "rank_penalty": case.largest / 20, "delta_test": case.delta_test}
        return [{**settings, "fallback": fallback} for fallback in (False, True)]

    @property
    def _preferences(self) -> dict[str, Any]:
        ranks = np.arange(self.num_labels + 1)
        return {"regularizer": tuple((-self.rank_penalty * np.abs(ranks - self.k)).tolist())}

    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> FixedTopK:
        """Release sets of k labels by scores ``[C]`` or ``[B, C]`` in ``[0, num_teachers]``.

        Scores are integers.

        Raises:
            ValueError: on counts of another shape, kind or range.
        """
        rows, single = self._rows(scores)
        (order, gaps), j, passed = self._ranked(rows, generator)
        k, ranks = self.k, np.arange(self.num_labels)
        answered = passed
        if self.fallback:
            # from no label on, k are peeled
            j, answered = np.where(passed, j, 0), np.ones_like(passed)
        surplus = j - k
        drop = (surplus > 0) & (surplus <= k)
        rounds = np.where(surplus > k, k, np.abs(surplus)) * answered
        # without a round the k largest are released; else the k smallest keys, which are distances
        # below the k-th largest count, noisy where labels are peeled. Tails are drawn for all rows:
        # none depend on other rows
        peeled, tails = np.flatnonzero(rounds), generator.random(rows.shape)
        j, surplus, drop = j[peeled], surplus[peeled], drop[peeled]
        inside = ranks < j[:, None]
        descending = -np.cumsum(np.where(ranks == 0, 0, gaps[peeled, :-1]), axis=1)
        below = distances(descending, descending[:, k - 1 : k], reach=REACH * self.scale_peel)
        below[inside & (surplus < 0)[:, None]] = -np.inf
        below[~inside & (surplus > 0)[:, None]] = np.inf
        scale = np.where(drop, -1, 1)[:, None] * self._scale_of(rounds[peeled, None])
        chosen = np.tile(ranks[:k], (len(rows), 1))
        chosen[peeled] = sample_k_smallest(
            below, k, noise="gumbel", scale=scale, generator=generator, tails=tails[peeled]
        )
        members = np.zeros(rows.shape, dtype=np.bool_)
        np.put_along_axis(
            members, np.take_along_axis(order, chosen, axis=1), answered[:, None], axis=1
        )
        return (
            FixedTopK(members[0], passed[0], rounds[0])
            if single
            else FixedTopK(members, passed, rounds)
        )

    def event(self, relation: NeighboringRelation, rounds: int | None = None) -> Event:
        """Describe the choice, the test and ``rounds`` rounds of peeling, for one row of counts.

        Reserve the event of k rounds (None), the dearest of all; the actual `FixedTopK.rounds` may
        be settled after the release.

        Raises:
            ValueError: on ``rounds`` outside 0..k.
        """
        stable, any_rounds = super().event(relation), rounds is None
        rounds = self.k if rounds is None else rounds
        require_count(0, rounds=rounds)
        require(rounds <= self.k, f"rounds <= k = {self.k}", rounds=rounds)
        if rounds == 0:
            return stable
        eta = self.window(relation) / float(self._scale_of(np.asarray(rounds)))
        if any_rounds and self.scale_noise_with_rounds:
            peeling = RootPeelingEvent(neighboring_relation=relation, eta=eta, count=self.k)
            return ComposedEvent(events=(stable, peeling))
        round_of_peeling = BoundedRangeEvent(neighboring_relation=relation, eta=eta)
        return ComposedEvent(events=(stable, RepeatedEvent(event=round_of_peeling, count=rounds)))

    def tier_event(self, relation: NeighboringRelation, tier: int) -> Event:
        """Describe the cost of a row after ``tier`` items were peeled."""
        return self.event(relation, tier)

    def answer(self, counts: ArrayLike, *, generator: np.random.Generator) -> Release:
        members, passed, rounds = self(counts, generator=generator)
        return Release.of_rows(members, passed | self.fallback, rounds)

    def max_answer_probability(self, widest: float) -> float:
        """Return the probability that the widest gap passes its test, or 1 with a fallback."""
        return 1.0 if self.fallback else float(self.test.probability(widest))

    def law(self, scores: Rows) -> Law:
        """Return the law of all sets of k labels."""
        order, passed, nothing = self._law_of_ranks(scores)
        if self.fallback:
            passed[:, 0] += nothing
        counts = np.take_along_axis(scores, order, axis=1)
        sets = sets_of(self.num_labels, self.k, "gumbel")
        columns = {tuple(items): column for column, items in enumerate(sets.tolist())}
        chances = np.zeros((len(scores), len(sets)))
        for rank in np.flatnonzero(passed.any(axis=0)).tolist():
            for items, chance in self._peeled(counts, rank):
                chances[:, columns[items]] += passed[:, rank] * chance
        of_labels, members = by_items(chances, sets, order)
        return Law(of_labels, members, None if self.fallback else nothing)

    def _peeled(
        self, counts: Rows, rank: int
    ) -> Iterator[tuple[tuple[int, ...], FloatArray | float]]:
        """Yield sets of k ranks that follow from a rank, and their chances ``[B]``."""
        surplus = rank - self.k
        if not surplus:
            yield tuple(range(rank)), 1.0
            return
        drop, rounds = 0 < surplus <= self.k, min(abs(surplus), self.k)
        among = np.arange(rank) if surplus > 0 else np.arange(rank, self.num_labels)
        scale = float(self._scale_of(np.asarray(rounds)))
        law = peeling_law(counts[:, among] * (-1 if drop else 1), rounds, scale, "gumbel")
        kept = range(rank if surplus < 0 else 0)
        for chance, members in zip(law.chances.T, law.members != drop, strict=True):
            yield (*kept, *among[members].tolist()), chance

    def _scale_of(self, rounds: IntArray) -> FloatArray:
        """Return the scale of the noise of so many rounds of peeling, in votes."""
        share = np.sqrt(rounds / self.k) if self.scale_noise_with_rounds else np.ones(rounds.shape)
        return self.scale_peel * share
