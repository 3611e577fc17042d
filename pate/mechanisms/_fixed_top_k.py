"""Sets of k items by a stable gap near k, and peeling: Zhu & Wang (2022), Algorithm 3."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pate._validation import (
    BoolArray,
    FloatArray,
    IntArray,
    require,
    require_count,
)
from pate.accounting import (
    BoundedRangeEvent,
    ComposedEvent,
    Event,
    NeighboringRelation,
    RepeatedEvent,
    RootPeelingEvent,
)
from pate.mechanisms._base import Case, Checks, Release
from pate.mechanisms._exact_choice import sample_k_smallest
from pate.mechanisms._law import (
    Law,
    by_items,
    peeling_law,
    sets_of,
)
from pate.mechanisms._ranking import REACH, Rows, distances
from pate.mechanisms._stable_top_k import GapMechanism


def _require_penalty(**penalties: float) -> None:
    for name, penalty in penalties.items():
        require(math.isfinite(penalty) and penalty >= 0, f"{name} >= 0", **{name: penalty})


class FixedTopK(NamedTuple):
    """The release of a `FixedTopKMechanism`."""

    members: BoolArray
    """``[C]`` or ``[B, C]``: the set of k labels; all False in a failed row without fallback.
    """
    released: BoolArray
    """``[]`` or ``[B]``: whether the test passed, and so which branch was taken."""
    rounds: IntArray
    """``[]`` or ``[B]``: number of rounds of peeling; in a row that failed, k with a fallback and 0
    without. It is a function of the chosen rank and of the test, for which the event of both pays.
    """


@dataclass(frozen=True, kw_only=True)
class FixedTopKMechanism(GapMechanism[FixedTopK]):
    """Release a set of k labels by a stable gap near k (Zhu & Wang (2022), Algorithm 3).

    A rank j is chosen by the gaps less ``rank_penalty * abs(j - k)`` and tested as in
    `StableTopKMechanism`. If it passes and j is below k, the missing labels are peeled from the
    rest; if j is above k, the surplus is peeled off or the k are peeled from the j largest,
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
            ``sensitivity`` that is not positive, or no integer though ``integer_scores``, more than
            2^32 scales of noise within ``num_teachers`` if not, ``k`` outside 1..C, ``rank_penalty
            < 0``, an unknown noise, or one label without the empty and the full set.
    """

    short_name: ClassVar[str] = "stable_fixed"
    noise_parameters: ClassVar[tuple[str, ...]] = ("scale_gap", "sigma_test", "scale_peel")
    checks: ClassVar[Checks] = {"k": partial(require_count, 1), "rank_penalty": _require_penalty}

    k: int
    rank_penalty: float
    scale_peel: float
    fallback: bool = False
    scale_noise_with_rounds: bool = False

    def __post_init__(self) -> None:
        require(
            self.k <= self.num_labels,
            f"k <= {self.num_labels} for {self.num_labels} labels",
            k=self.k,
        )
        super().__post_init__()

    @classmethod
    def defaults(cls, case: Case) -> Sequence[Mapping[str, Any]]:
        settings = {"k": case.k, "rank_penalty": case.largest / 20, "delta_test": case.delta_test}
        return [{**settings, "fallback": fallback} for fallback in (False, True)]

    @property
    def _preference(self) -> tuple[float, ...]:
        return tuple(-self.rank_penalty * abs(j - self.k) for j in range(self.num_labels + 1))

    @property
    def _least_preference(self) -> float:
        """The penalty of the ranks next to k, of which the gap is meant."""
        return self.rank_penalty

    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> FixedTopK:
        """Release sets of k labels by scores ``[C]`` or ``[B, C]`` in ``[0, num_teachers]``.

        Scores are integers if ``integer_scores``.

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
        """Describe the cost of a row for which ``tier`` items were peeled."""
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
