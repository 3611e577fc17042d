"""The k most voted labels with their noisy counts: order and counts together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pate._validation import require
from pate._votes import Counts, VoteShape
from pate.aggregators._base import Release
from pate.aggregators._of_mechanism import MechanismAggregator
from pate.mechanisms._peeled_counts import PeeledCounts


@dataclass(frozen=True, kw_only=True)
class PeeledVotes(MechanismAggregator[PeeledCounts]):
    """Choose k labels by peeling, then count the votes of these alone, with noise.

    Choose it if samples have up to k of many labels: a label is given if it is chosen and more than
        half of the
    teachers seem to vote for it, and all others are denied. So k bounds the number of labels of a
    sample, where `Peeling` gives each sample k labels, and a query costs what k labels cost, where
    `NoisyVotes` pays for all.

    Privacy: k bounded-range choices of ``window / scale_chosen``, with a window of 1 vote under
        ADD_REMOVE_TEACHER and
    2 under REPLACE_RECORD, and Gaussian noise of ``sigma_chosen`` on k counts that move by 1 vote
    under both (`pate.mechanisms.PeeledCounts`).

    Args:
        k: largest number of labels of a sample.
        scale_chosen: scale of the Gumbel noise of the choice, in votes.
        sigma_chosen: standard deviation of the noise on the counts of the chosen, in votes.
        neighboring_relation: the relation under which the cost is stated first.
        soft: release the noisy counts of the chosen labels, and nothing of the others. That is more
            about these, but a student that learns from it sees no sample without a label that it
            might have.

    Raises:
        ValueError: on noise that is not positive, or ``k < 1``.
    """

    names: ClassVar[Mapping[str, str]] = {"scale_chosen": "scale", "sigma_chosen": "sigma"}

    k: int
    scale_chosen: float
    sigma_chosen: float
    soft: bool = False

    def mechanism(self, shape: VoteShape) -> PeeledCounts:
        require(
            self.k <= shape.num_labels,
            f"k <= {shape.num_labels} for {shape.num_labels} labels",
            k=self.k,
        )
        return super().mechanism(shape)

    def aggregate(self, votes: Counts, *, generator: np.random.Generator) -> Release:
        """Label a batch of queries; all labels of each are answered, or with ``soft`` the k that are chosen."""
        items, scores = self.mechanism(votes.shape)(votes.counts, generator=generator)
        chosen = np.zeros(votes.counts.shape, dtype=np.bool_)
        noisy = np.zeros(votes.counts.shape)
        np.put_along_axis(chosen, items, True, axis=1)
        np.put_along_axis(noisy, items, scores, axis=1)
        labels = (chosen & (noisy > votes.num_teachers / 2)).astype(np.uint8)
        if self.soft:
            return Release(labels, chosen, noisy, self.sigma_chosen)
        return Release(labels, np.ones_like(chosen))
