"""All labels by majority, if no single teacher can turn any of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pate._votes import Counts, VoteShape
from pate.aggregators._base import Release
from pate.aggregators._of_mechanism import MechanismAggregator
from pate.mechanisms._stability import StabilityTest

_SHIFT = 1  # votes by which one teacher moves a distance from a tie, under either relation


@dataclass(frozen=True, kw_only=True)
class StableMajority(MechanismAggregator[StabilityTest]):
    """Release the majority of every label if the least certain of them is far from a tie.

    Choose it if teachers agree on all labels of a sample: a query costs a single test, however many
        labels there are,
    about half of `StableTopK`. If one label is in doubt, the query is not answered.

    Privacy: a Gaussian propose-test-release (the test of Zhu & Wang (2022), Algorithm 2) on the
        least of the distances
    ``abs(h_j - T / 2)``, which moves by 1 vote under REPLACE_RECORD and ADD_REMOVE_TEACHER alike. A
    majority may turn only within that distance. The test works on distances in votes, multiples of
    1/2 up to ``T / 2``.

    Args:
        sigma_majority: standard deviation of the noise of the test, in votes.
        delta_majority: probability that an unstable majority passes the test, paid by every query.
        neighboring_relation: the relation under which the cost is stated first.

    Raises:
        ValueError: on a deviation that is not positive, or ``delta_majority`` outside (0, 1).
    """

    names: ClassVar[Mapping[str, str]] = {"sigma_majority": "sigma", "delta_majority": "delta_test"}

    sigma_majority: float
    delta_majority: float

    def mechanism(self, shape: VoteShape) -> StabilityTest:
        # the farther of two distances is T / 2 at most, so the nearer one is within the T // 2 gaps
        # of the event
        return replace(
            super().mechanism(shape),
            num_teachers=shape.num_teachers // 2,
            shift=_SHIFT,
            window=_SHIFT,
        )

    def aggregate(self, votes: Counts, *, generator: np.random.Generator) -> Release:
        leads = 2 * votes.counts.astype(np.int64) - votes.num_teachers
        passed = self.mechanism(votes.shape)(np.abs(leads).min(axis=1) / 2, generator=generator)
        return Release.of_rows(leads > 0, passed)

    def most_answered(self, shape: VoteShape) -> float:
        """Return the probability that teachers who agree on all labels pass the test."""
        return float(self.mechanism(shape).probability(shape.num_teachers / 2))
