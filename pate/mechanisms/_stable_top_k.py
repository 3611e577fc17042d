"""Top-k by stability: choose a gap between sorted counts privately, then test and release.

Zhu & Wang (2022), "Adaptive Private-K-Selection with Adaptive K and Application to Multi-label
PATE".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, assert_never

import numpy as np
from numpy.typing import ArrayLike

from pate._validation import (
    BoolArray,
    FloatArray,
    IntArray,
    require,
    require_in_open_unit_interval,
)
from pate.accounting import (
    ComposedEvent,
    Event,
    NeighboringRelation,
)
from pate.mechanisms._base import Case, Checks, Release, Released_co, ScoreMechanism
from pate.mechanisms._gaps import GapChoice, GapNoise, SortedCounts, as_counts, sort_rows
from pate.mechanisms._law import (
    Law,
    NotStatedError,
    choice_law,
)
from pate.mechanisms._noise import require_noise
from pate.mechanisms._ranking import ROWS, Rows
from pate.mechanisms._stability import LaplaceStabilityTest, StabilityTest, TestedBy


@dataclass(frozen=True, kw_only=True)
class GapMechanism(ScoreMechanism[Released_co]):
    """The choice of a rank by its gap, and the test of that gap; see `StableTopKMechanism`."""

    noise_parameters: ClassVar[tuple[str, ...]] = ("scale_gap", "sigma_test")
    checks: ClassVar[Checks] = {
        "delta_test": require_in_open_unit_interval,
        "noise": GapChoice.checks["noise"],
        "test_noise": partial(require_noise, TestedBy),
    }

    num_teachers: float
    num_labels: int
    scale_gap: float
    sigma_test: float
    delta_test: float
    shift: float
    integer_scores: bool = True
    allow_empty: bool = True
    noise: GapNoise = "gumbel"
    test_noise: TestedBy = "gaussian"

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.choice, self.test  # both check their parameters
        if not self.integer_scores:
            # gaps of real scores are rounded to 2^-53 of the bound, by which they move more than
            # the event knows
            scale = min(getattr(self, name) for name in self.noise_parameters)
            require(
                self.num_teachers <= 2**32 * scale,
                f"num_teachers <= {2**32 * scale}",
                num_teachers=self.num_teachers,
            )

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
            regularizer=self._preference,
            kbar=self._largest_rank,
        )

    @property
    def majority_weight(self) -> int | None:
        """The weight of the majorities for none and for all labels; None for sentinels."""
        return None

    @property
    def _preference(self) -> tuple[float, ...] | None:
        """Public numbers ``[C + 1]`` added to the gaps."""
        return None

    @property
    def _largest_rank(self) -> int | None:
        """The largest rank that may be chosen, where counts beyond it must have no influence."""
        return None

    @cached_property
    def test(self) -> StabilityTest | LaplaceStabilityTest:
        """The test of the gap below that rank."""
        tested: dict[str, Any] = {
            "delta_test": self.delta_test,
            "shift": self.shift,
            "sensitivity": self.sensitivity,
            # a doubled majority moves by two sensitivities, whichever relation the cost is stated
            # under
            "window": 2 if self.majority_weight == 2 else None,
        }
        if self.test_noise == "laplace":
            return LaplaceStabilityTest(scale=self.sigma_test, **tested)
        if self.test_noise != "gaussian":
            assert_never(self.test_noise)
        return StabilityTest(
            num_teachers=self.num_teachers,
            sigma=self.sigma_test,
            integer_scores=self.integer_scores,
            **tested,
        )

    def choose(self, scores: ArrayLike, *, generator: np.random.Generator) -> IntArray:
        """Choose items as a call does, from scores clipped to 0 and the bound.

        Clipping moves no score farther.
        """
        within = np.clip(np.asarray(scores, dtype=np.float64), 0, self.num_teachers)
        released: Any = self(within, generator=generator)
        return np.flatnonzero(released[0])

    def event(self, relation: NeighboringRelation) -> Event:
        """Describe the choice of a gap, then its test (Zhu & Wang (2022), Theorem 11)."""
        return ComposedEvent(events=(self.choice.event(relation), self.test.event(relation)))

    def accuracy(self, *, gap: float, num_items: int = 1, widest_other: float = 0.0) -> float:
        """Return a probability, at least, with which the set above a gap is released.

        Args:
            gap: the gap below the chosen rank, in votes, at least 0; for a given k, below the k-th
                count.
            num_items: does not matter.
            widest_other: the largest of all other gaps, and majorities for none or all of the
                labels, in votes.

        Raises:
            ValueError: on gaps that are negative or not finite.
            NotStatedError: with a regularizer.
        """
        require(0 <= gap < math.inf, "a finite gap >= 0", gap=gap)
        require(
            0 <= widest_other < math.inf, "a finite widest_other >= 0", widest_other=widest_other
        )
        test = float(self.test.probability(gap))
        return self.choice.probability(gap - widest_other + self._least_preference) * test

    @property
    def _least_preference(self) -> float:
        """The least preference, in votes, of the rank of that gap over any other."""
        return 0.0

    def _rows(self, counts: ArrayLike) -> tuple[Rows, bool]:
        rows, single = as_counts(counts, self.num_teachers, integer_scores=self.integer_scores)
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
        preferred = np.array(self._preference or np.zeros(ranks.size))
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

    Privacy: a `GapChoice` composed with a `StabilityTest` or a `LaplaceStabilityTest` (the
    composition of Zhu & Wang (2022), Theorem 11, at the curves of both parts; the theorem's own
    bound on a curve is not used).

    Args:
        num_teachers: the nominal number of teachers, which is the largest possible count; of other
            scores a public bound on them, within which they all lie, whatever the data.
        num_labels: the number of labels C.
        scale_gap: scale of the noise of the choice (its standard deviation for ``gaussian``), in
            votes.
        sigma_test: standard deviation of the noise of the test, or its scale if that is
            ``laplace``, in votes.
        delta_test: probability that an unstable set passes the test.
        shift: protection of the test, in votes: 1 under ADD_REMOVE_TEACHER, 2 under REPLACE_RECORD;
            times the sensitivity of other scores.
        sensitivity: the most by which one score changes between neighbors, 1 for votes.
        integer_scores: whether scores and their sensitivity must be integers, as counts are; if
            not, the cost covers all real numbers.
        allow_empty: whether k may be 0 or C, which the paper leaves out.
        noise: noise of the choice, any noise of `GapChoice`.
        test_noise: noise of the test, ``gaussian`` or ``laplace``.
        regularizer: public numbers ``[C + 1]`` added to the gaps, in votes; minus infinity rules a
            k out.
        kbar: largest k, for an unknown domain: counts of rank beyond ``kbar + 1`` have no
            influence.

    Raises:
        ValueError: on a scale or deviation that is not positive, ``delta_test`` outside (0, 1), a
            ``shift`` or ``sensitivity`` that is not positive, or not an integer though
            ``integer_scores``, more than 2^32 scales of noise within ``num_teachers`` if not, an
            unknown noise, a regularizer or ``kbar`` that `GapChoice` refuses, or one label without
            the empty and the full set.
    """

    short_name: ClassVar[str] = "stable"
    checks: ClassVar[Checks] = {name: GapChoice.checks[name] for name in ("regularizer", "kbar")}

    gap_meaning: ClassVar[str] = (
        "A gap of {gap:.1f} votes between the counts is what a query needs to be answered, and"
        " answered right,"
    )

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
    def widest_gap(self) -> float:
        """The widest gap, or majority, of any scores at a rank that may be chosen, in votes."""
        ends = (self.majority_weight or 0) * self.num_teachers / 2
        widest = {
            rank: ends if rank in (0, self.num_labels) else self.num_teachers
            for rank in self.choice.ranks
        }
        return max(widest.values())

    @property
    def _preference(self) -> tuple[float, ...] | None:
        return self.regularizer

    @property
    def _largest_rank(self) -> int | None:
        return self.kbar

    @property
    def _least_preference(self) -> float:
        if self.regularizer is not None:
            raise NotStatedError("Expected no regularizer, with which no accuracy is known")
        return 0.0

    def __call__(
        self, scores: ArrayLike, *, generator: np.random.Generator
    ) -> tuple[BoolArray, BoolArray]:
        """Release sets of labels by scores ``[C]`` or ``[B, C]`` in ``[0, num_teachers]``.

        Scores are integers if ``integer_scores``.

        Returns:
            The members, booleans of the shape of the counts, all False in a row that failed; and
            whether the test passed, booleans ``[]`` or ``[B]``.

        Raises:
            ValueError: on counts of another shape, kind or range.
        """
        rows, single = self._rows(scores)
        members = np.zeros(rows.shape, dtype=np.bool_)
        released = np.zeros(len(rows), dtype=np.bool_)
        ranks = np.arange(self.num_labels)
        # Gaussian noise is drawn for the whole batch at once: drawn by parts, seeded releases would
        # change
        step = max(1, len(rows)) if self.noise == "gaussian" else ROWS
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            ranked, k, passed = self._ranked(rows[part], generator)
            np.put_along_axis(
                members[part], ranked.order, (ranks < k[:, None]) & passed[:, None], axis=1
            )
            released[part] = passed
        return (members[0], released[0]) if single else (members, released)

    def answer(self, counts: ArrayLike, *, generator: np.random.Generator) -> Release:
        return Release.of_rows(*self(counts, generator=generator))

    def max_answer_probability(self, widest: float) -> float:
        """Return the probability that the widest gap of all passes its test."""
        return float(self.test.probability(self.widest_gap))

    def law(self, scores: Rows) -> Law:
        """Return the law of the sets of the 0, 1, .., C largest scores."""
        order, chances, nothing = self._law_of_ranks(scores)
        places, ranks = np.argsort(order, axis=1), np.arange(self.num_labels + 1)
        return Law(chances, places[:, None] < ranks[:, None], nothing)
