"""The majorities of all items at once, if the least certain of them is stable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from pate._validation import BoolArray, FloatArray, IntArray, require_in_open_unit_interval
from pate.accounting import Event, NeighboringRelation
from pate.mechanisms._base import Case, Checks, Mechanism
from pate.mechanisms._law import Law
from pate.mechanisms._ranking import Rows, as_batch
from pate.mechanisms._release import Release
from pate.mechanisms._stability import StabilityTest

_SHIFT = 1  # votes by which one teacher moves a distance from a tie, under either relation


@dataclass(frozen=True, kw_only=True)
class MajorityMechanism(Mechanism[tuple[BoolArray, BoolArray]]):
    """Release which counts exceed half of the teachers, if the one nearest to a tie is far from it.

    Privacy: a `StabilityTest` of the least of the distances ``abs(h_j - T / 2)``, which moves by 1
    vote under ADD_REMOVE_TEACHER and REPLACE_RECORD alike: a majority may turn only within that.

    >>> mechanism = MajorityMechanism(num_teachers=100, sigma=2.0, delta=1e-6)
    >>> mechanism(np.array([95, 90, 5, 0]), generator=seeded_generator(0))
    (array([ True,  True, False, False]), np.True_)

    Args:
        num_teachers: the nominal number of teachers T.
        sigma: standard deviation of the noise of the test, in votes.
        delta: probability that an unstable majority passes the test.

    Raises:
        ValueError: on ``num_teachers < 2``, ``sigma <= 0`` or ``delta`` outside (0, 1).
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("sigma",)
    checks: ClassVar[Checks] = {"delta": require_in_open_unit_interval}

    num_teachers: int
    sigma: float
    delta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.test  # which checks its parameters

    @classmethod
    def defaults(cls, case: Case) -> Sequence[Mapping[str, Any]]:
        return [{"delta": case.delta_test}]

    @cached_property
    def test(self) -> StabilityTest:
        """The test of the least distance from a tie, a multiple of 1/2 up to ``T / 2`` votes."""
        return StabilityTest(
            # the farther of two distances is T / 2 at most, so the nearer one is within the T // 2
            # gaps of the event
            num_teachers=self.num_teachers // 2,
            sigma=self.sigma,
            delta_test=self.delta,
            shift=_SHIFT,
            window=_SHIFT,
        )

    def __call__(
        self, scores: ArrayLike, *, generator: np.random.Generator
    ) -> tuple[BoolArray, BoolArray]:
        """Return majorities, booleans of the shape of ``[C]`` or ``[B, C]``, and which rows passed.

        A row that failed has no majorities.

        Raises:
            ValueError: on counts that are no numbers, or lie outside of ``0..num_teachers``.
        """
        rows, single = as_batch(scores)
        leads = self._leads(rows)
        passed = self.test(np.abs(leads).min(axis=1) / 2, generator=generator)
        members = (leads > 0) & passed[:, None]
        return (members[0], passed[0]) if single else (members, passed)

    def event(self, relation: NeighboringRelation) -> Event:
        return self.test.event(relation)

    def answer(self, counts: ArrayLike, *, generator: np.random.Generator) -> Release:
        return Release.of_rows(*self(counts, generator=generator))

    def max_answer_probability(self, widest: float) -> float:
        """Return the probability that teachers who agree on all labels pass the test."""
        return float(self.test.probability(self.num_teachers / 2))

    def law(self, scores: Rows) -> Law:
        leads = self._leads(scores)
        distances: FloatArray = np.abs(leads).min(axis=1) / 2
        passed = self.test.probability(distances)[:, None]
        return Law(passed, (leads > 0)[:, None], self.test.failure(distances))

    def _leads(self, rows: Rows) -> IntArray:
        return 2 * rows.astype(np.int64) - self.num_teachers
