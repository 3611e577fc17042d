"""Gaussian noise on the counts of all labels: Binary voting, hard or soft, and thresholds on it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtr, ndtri

from pate._validation import require_positive
from pate._votes import Counts, VoteShape
from pate.accounting import Event, GaussianEvent, NeighboringRelation
from pate.aggregators._base import Aggregator, Gap, Release
from pate.aggregators._outlook import Outlook
from pate.mechanisms._exact_normal import add_gaussian


@dataclass(frozen=True, kw_only=True)
class NoisyVotes(Aggregator):
    """Add Gaussian noise to the count of every label: binary voting, and noisy counts.

    Choose it if teachers disagree or the budget is small, and a student learns from many samples:
        the soft counts are
    unbiased however large the noise. Every query is answered; the cost grows with the number of
    labels. With a ``min_lead`` and hard labels it withholds labels that are in doubt, one by one:
    choose that if the student cannot use soft counts and a wrong label hurts more than a missing
    one.

    Privacy: a Gaussian mechanism on the counts, of L2 sensitivity ``sqrt(C)`` under REPLACE_RECORD
    and ADD_REMOVE_TEACHER alike: one teacher moves every count by one vote at most. Hard labels,
    withheld ones and soft counts cost the same: all follow from the noisy counts and the number of
    teachers, which is public (Dziedzic et al. (2023), Binary voting; with a ``min_lead`` the
    Gaussian mechanism of GNMax of Papernot et al. (2018) with a public threshold in place of the
    maximum).

    >>> votes = Votes.from_counts([[95, 90, 5, 0], [50, 40, 60, 45]], num_teachers=100)
    >>> aggregator = NoisyVotes(sigma_votes=5.0)
    >>> aggregator.aggregate(votes, generator=seeded_generator(0)).labels
    array([[1, 1, 0, 0],
           [1, 0, 1, 0]], dtype=uint8)

    Args:
        sigma_votes: standard deviation of the noise on each count, in votes.
        neighboring_relation: the relation under which the cost is stated first.
        soft: whether the noisy counts are released with the labels.
        min_lead: number of votes by which a noisy count must exceed half of the teachers for the
            label to be given, or fall short of it for the label to be denied, at least 0: a public
            constant. Other labels are withheld.

    Raises:
        ValueError: on a deviation that is not positive or ``min_lead < 0``.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("sigma_votes",)

    sigma_votes: float
    soft: bool = True
    min_lead: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_lead != 0:
            require_positive(min_lead=self.min_lead)

    @classmethod
    def defaults(cls, outlook: Outlook) -> Sequence[Mapping[str, Any]]:
        lead = outlook.shape.num_teachers / 10
        return [{}, {"soft": False}, {"soft": False, "min_lead": lead}]

    def gap_needed(self, shape: VoteShape, *, probability: float) -> Gap:
        """Return how far from half of the teachers a count must lie to survive the noise."""
        votes = max(self.min_lead + self.sigma_votes * float(ndtri(probability)), 0.0)
        tie = shape.num_teachers / 2
        return Gap(votes, tie, f"A count {votes:.1f} votes away from {tie:g} keeps its label")

    def event(
        self, shape: VoteShape, relation: NeighboringRelation | None = None, tier: int | None = None
    ) -> Event:
        noise_multiplier = self.sigma_votes / math.sqrt(shape.num_labels)
        return GaussianEvent(
            neighboring_relation=self.relation_of(relation), noise_multiplier=noise_multiplier
        )

    def aggregate(self, votes: Counts, *, generator: np.random.Generator) -> Release:
        half = votes.num_teachers / 2
        margins = add_gaussian(votes.counts - half, sigma=self.sigma_votes, generator=generator)
        leading = margins > self.min_lead
        mask = (
            leading | (margins <= -self.min_lead)
            if self.min_lead
            else np.ones(leading.shape, dtype=np.bool_)
        )
        if not self.soft:
            return Release(leading.astype(np.uint8), mask)
        noisy_counts = margins + half
        if self.min_lead:
            noisy_counts[~mask] = 0.0
        return Release(
            leading.astype(np.uint8), mask, noisy_counts=noisy_counts, noise_std=self.sigma_votes
        )

    def max_answer_probability(self, shape: VoteShape) -> float:
        """Return the probability that teachers who agree on a label have it given or denied."""
        margins = np.array([shape.num_teachers / 2, -shape.num_teachers / 2])
        return float(ndtr((margins - self.min_lead) / self.sigma_votes).sum())
