"""Sets of k labels, k public: canonical, peeling and joint. Every query is answered."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pate.accounting.events import Event
from pate.accounting.relation import NeighboringRelation
from pate.aggregators._release import expect_k, release_sets
from pate.aggregators.base import Aggregator, Release
from pate.mechanisms.canonical import canonical, canonical_event
from pate.mechanisms.joint import joint, joint_event
from pate.mechanisms.lipschitz import lipschitz_event, one_shot_exponential_mechanism
from pate.validation import expect, expect_count
from pate.votes import Votes


@dataclass(frozen=True, kw_only=True)
class Canonical(Aggregator):
    """Release one set of k labels, chosen among all of them at the cost of a single choice.

    Choose it where every sample has k labels: the cost of a query grows neither with k nor with the number of labels.

    Privacy: one ``eta``-bounded-range choice, ``eta = window / scale_canonical`` with a window of 1 vote under
    ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD (Shekelyan & Loukides (2022)).

    Args:
        k: how many labels every sample has, below the number of labels.
        scale_canonical: scale of the Gumbel noise, in votes.
        neighboring_relation: the relation that a cost is stated for first.
        gamma: weight of the least voted label inside the set against the most voted one outside, in [0, 1].

    Raises:
        ValueError: on a scale that is not positive, ``k < 1`` or ``gamma`` outside [0, 1].
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("scale_canonical",)

    k: int
    scale_canonical: float
    gamma: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_count(1, k=self.k)
        expect(0 <= self.gamma <= 1, "0 <= gamma <= 1", gamma=self.gamma)

    def event(
        self, *, num_teachers: int, num_labels: int, neighboring_relation: NeighboringRelation | None = None
    ) -> Event:
        """Describe the cost of one query, which depends neither on k nor on the number of labels."""
        expect_count(2, num_teachers=num_teachers)
        expect_k(self.k, num_labels, largest=num_labels - 1)
        return canonical_event(scale=self.scale_canonical, neighboring_relation=self.relation_of(neighboring_relation))

    def aggregate(self, votes: Votes, *, generator: np.random.Generator) -> Release:
        """Label a batch of queries."""
        chosen = canonical(votes.counts, k=self.k, scale=self.scale_canonical, gamma=self.gamma, generator=generator)
        return release_sets(chosen, votes.num_labels)


@dataclass(frozen=True, kw_only=True)
class Peeling(Aggregator):
    """Release the k labels of the largest noisy counts.

    Choose it for k of one or two. `Canonical` is cheaper beyond: this costs k choices.

    Privacy: k ``eta``-bounded-range choices, ``eta = window / scale_peel`` with a window of 1 vote under
    ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD (Durfee & Rogers (2019), Lemma 4.2).

    Args:
        k: how many labels every sample has.
        scale_peel: scale of the Gumbel noise, in votes.
        neighboring_relation: the relation that a cost is stated for first.

    Raises:
        ValueError: on a scale that is not positive or ``k < 1``.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("scale_peel",)

    k: int
    scale_peel: float

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_count(1, k=self.k)

    def event(
        self, *, num_teachers: int, num_labels: int, neighboring_relation: NeighboringRelation | None = None
    ) -> Event:
        """Describe the cost of one query, which does not depend on the number of labels."""
        expect_count(2, num_teachers=num_teachers)
        expect_k(self.k, num_labels, largest=num_labels)
        return lipschitz_event(
            noise="gumbel",
            k=self.k,
            scale=self.scale_peel,
            neighboring_relation=self.relation_of(neighboring_relation),
        )

    def aggregate(self, votes: Votes, *, generator: np.random.Generator) -> Release:
        """Label a batch of queries."""
        chosen = one_shot_exponential_mechanism(votes.counts, k=self.k, scale=self.scale_peel, generator=generator)
        return release_sets(chosen, votes.num_labels)


@dataclass(frozen=True, kw_only=True)
class Joint(Aggregator):
    """Release the set of a sequence of k labels, chosen among all sequences at the cost of a single choice.

    Choose it to compare with the paper: `Canonical` makes one choice too, on scores that move half as far.

    Privacy: one ``eta``-bounded-range choice, ``eta = window / scale_joint`` with a window of 2 votes under
    ADD_REMOVE_TEACHER and 4 under REPLACE_RECORD, half of that for k = 1 (Gillenwater et al. (2022)).

    Args:
        k: how many labels every sample has.
        scale_joint: scale of the Gumbel noise, in votes.
        neighboring_relation: the relation that a cost is stated for first.

    Raises:
        ValueError: on a scale that is not positive or ``k < 1``.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("scale_joint",)

    k: int
    scale_joint: float

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_count(1, k=self.k)

    def event(
        self, *, num_teachers: int, num_labels: int, neighboring_relation: NeighboringRelation | None = None
    ) -> Event:
        """Describe the cost of one query, which does not depend on the number of labels."""
        expect_count(2, num_teachers=num_teachers)
        expect_k(self.k, num_labels, largest=num_labels)
        return joint_event(
            k=self.k, scale=self.scale_joint, neighboring_relation=self.relation_of(neighboring_relation)
        )

    def aggregate(self, votes: Votes, *, generator: np.random.Generator) -> Release:
        """Label a batch of queries."""
        chosen = joint(votes.counts, k=self.k, scale=self.scale_joint, generator=generator)
        return release_sets(chosen, votes.num_labels)
