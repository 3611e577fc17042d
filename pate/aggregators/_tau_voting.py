"""Tau voting: no ballot has a norm above tau."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from pate._validation import FloatArray, IntArray, UInt8Array, require, require_positive
from pate._votes import Ballots, Need, VoteShape
from pate._votes.voters import blocks
from pate.accounting import Event, GaussianEvent, NeighboringRelation
from pate.aggregators._base import Aggregator, Release, predictions_of
from pate.aggregators._outlook import Outlook
from pate.mechanisms._exact_normal import add_gaussian

Norm = Literal["l2", "l1"]

# of the factors by which ballots are scaled: sums over 2^23 teachers are exact in float64
_BITS = 30


@dataclass(frozen=True, kw_only=True)
class TauVoting(Aggregator):
    """Scale every ballot down to a norm of at most tau, add them up, and add Gaussian noise.

    Choose it if most ballots have few labels, or few that differ from a public student's
    predictions: the noise depends on tau, not on the number of labels. Ballots of a larger norm are
    scaled down, so the soft counts are too low.

    Privacy: a Gaussian mechanism on the clipped sums. Its L2 sensitivity is the largest norm of a
    clipped ballot under ADD_REMOVE_TEACHER, and of the difference of two under REPLACE_RECORD,
    taken exactly over all ballots: at most ``tau`` and ``min(sqrt(2) tau, sqrt(C))`` for the L2
    norm (Dziedzic et al. (2023), tau voting). Around predictions it is as under REPLACE_RECORD for
    both: a teacher that takes no part differs from the student in every label that the student
    gives, so that any two clipped ballots may be neighbors.

    >>> votes = Votes.from_ballots([[[1, 1, 0]] * 60 + [[1, 0, 0]] * 40])
    >>> aggregator = TauVoting(tau=2.0, sigma_tau=3.0, threshold_tau=50.0)
    >>> aggregator.aggregate(votes, generator=seeded_generator(0)).labels
    array([[1, 1, 0]], dtype=uint8)

    Args:
        tau: the largest norm of a ballot.
        sigma_tau: standard deviation of the noise on each sum, in votes.
        threshold_tau: the noisy sum above which a label is given, in votes: a public constant, such
            as half the number of teachers.
        norm: ``l2`` or ``l1``, the norm that is clipped.
        neighboring_relation: the relation under which the cost is stated first.
        around_predictions: whether ballots are read as differences from the student's rounded
            predictions, a label keeping its prediction unless ``threshold_tau`` teachers differ.
        soft: whether the noisy counts are released with the labels.

    Raises:
        ValueError: on a norm, threshold or deviation that is not positive, or another name of a
            norm.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("sigma_tau",)

    tau: float
    sigma_tau: float
    threshold_tau: float
    norm: Norm = "l2"
    around_predictions: bool = False
    soft: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(tau=self.tau, threshold_tau=self.threshold_tau)
        require(self.norm in get_args(Norm), f"norm among {get_args(Norm)}", norm=self.norm)

    @classmethod
    def defaults(cls, outlook: Outlook) -> Sequence[Mapping[str, Any]]:
        # three that hardly clip a ballot of k labels, or of k differences from a student
        half, root = outlook.shape.num_teachers / 2, math.sqrt(outlook.k)
        choices: list[dict[str, Any]] = [
            {"tau": 1.25 * root},
            {"tau": outlook.k, "norm": "l1"},
            {"tau": root, "around_predictions": True},
        ]
        return [{"threshold_tau": half, **choice} for choice in choices]

    @classmethod
    def variants(cls, outlook: Outlook) -> Mapping[str, Sequence[Any]]:
        return {"soft": (False, True)}

    @property
    def needs(self) -> frozenset[Need]:
        """The ballots, and the predictions that they are read around."""
        return frozenset({Ballots, "predictions"} if self.around_predictions else {Ballots})

    def event(
        self, shape: VoteShape, relation: NeighboringRelation | None = None, tier: int | None = None
    ) -> Event:
        resolved = self.relation_of(relation)
        sensitivity = self.sensitivity(shape.num_labels, resolved)
        return GaussianEvent(
            neighboring_relation=resolved, noise_multiplier=self.sigma_tau / sensitivity
        )

    def sensitivity(self, num_labels: int, relation: NeighboringRelation) -> float:
        """Return the largest L2 distance by which one teacher can move the clipped sums."""
        sizes = np.arange(num_labels + 1)
        weights = self._weights(sizes)
        squares = sizes * weights**2
        if relation is NeighboringRelation.ADD_REMOVE_TEACHER and not self.around_predictions:
            return math.sqrt(float(squares.max()))
        # two ballots differ most where they share no label: without those, the larger weighs no
        # less in the others
        disjoint = sizes[:, None] + sizes <= num_labels
        return math.sqrt(float((squares[:, None] + squares)[disjoint].max()))

    def aggregate(self, votes: Ballots, *, generator: np.random.Generator) -> Release:
        noisy = add_gaussian(self.clipped_sums(votes), sigma=self.sigma_tau, generator=generator)
        labels = (noisy > self.threshold_tau).astype(np.uint8)
        if self.around_predictions:
            guess = _guess(votes)
            labels ^= guess
            noisy = np.where(guess > 0, votes.num_teachers - noisy, noisy)
        mask = np.ones(labels.shape, dtype=np.bool_)
        if not self.soft:
            return Release(labels, mask)
        return Release(labels, mask, noisy_counts=noisy, noise_std=self.sigma_tau)

    def clipped_sums(self, votes: Ballots) -> FloatArray:
        """Return the sums ``[Q, C]`` of clipped ballots, without noise."""
        sums = np.empty(votes.counts.shape)
        ballots = votes.ballots
        guess = _guess(votes) if self.around_predictions else None
        for rows in blocks(len(sums), ballots[:1].size):
            differing = ballots[rows] if guess is None else ballots[rows] ^ guess[rows, None]
            weights = self._weights(differing.sum(axis=2, dtype=np.int64))
            sums[rows] = (weights[:, None] @ differing.astype(np.float64))[:, 0]
        return sums

    def _weights(self, sizes: IntArray) -> FloatArray:
        """Return the factors that scale ballots of ``sizes`` labels down, for exact sums."""
        norms = np.maximum(sizes, 1) if self.norm == "l1" else np.sqrt(np.maximum(sizes, 1))
        factors: FloatArray = np.floor(np.minimum(1.0, self.tau / norms) * 2.0**_BITS) / 2**_BITS
        return factors


def _guess(votes: Ballots) -> UInt8Array:
    return (predictions_of(votes) > 0.5).astype(np.uint8)
