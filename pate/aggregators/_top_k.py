"""Sets of k labels for a public k: canonical, peeling and joint. Every query is answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np

from pate._validation import require
from pate._votes import Counts, VoteShape
from pate.aggregators._base import Release
from pate.aggregators._of_mechanism import MechanismAggregator
from pate.mechanisms._base import TopKMechanism
from pate.mechanisms._canonical import CanonicalLoss, CanonicalMechanism, CanonicalNoise
from pate.mechanisms._joint import JointMechanism, JointNoise
from pate.mechanisms._noise import Noise
from pate.mechanisms._noisy_top_k import NoisyTopK
from pate.mechanisms._peeling import PermuteAndFlipPeeling

Sets = TypeVar("Sets", bound=TopKMechanism)


@dataclass(frozen=True, kw_only=True)
class LabelSets(MechanismAggregator[Sets]):
    """Release a set of k labels for every query."""

    k: int

    def mechanism(self, shape: VoteShape) -> Sets:
        largest = shape.num_labels - self.kind.spare
        require(self.k <= largest, f"k <= {largest} for {shape.num_labels} labels", k=self.k)
        return super().mechanism(shape)

    def aggregate(self, votes: Counts, *, generator: np.random.Generator) -> Release:
        return Release.of_sets(
            self.mechanism(votes.shape)(votes.counts, generator=generator), votes.num_labels
        )


@dataclass(frozen=True, kw_only=True)
class Canonical(LabelSets[CanonicalMechanism]):
    """Release one set of k labels, chosen among all of them at the cost of a single choice.

    Choose it if every sample has k labels and there are at most 25 in all, or k is most of them:
        the cost of a query
    grows neither with k nor with the number of labels, but the gap that it needs grows with the
    logarithm of the number of sets (``gap_needed``; `Peeling` compares).

    Privacy: one ``eta``-bounded-range choice, ``eta = window / scale_canonical`` with a window of 1
        vote under
    ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD, for both losses of
        `pate.mechanisms.CanonicalMechanism`: ours, which
    credits the k most voted labels with their lead over the next one, and that of Shekelyan &
    Loukides (2022).

    Args:
        k: number of labels of every sample, below the number of labels.
        noise_law: ``gumbel``, or ``exponential`` for a pure choice of ``eta`` (permute-and-flip
            among all sets).
        scale_canonical: scale of the noise, in votes.
        neighboring_relation: the relation under which the cost is stated first.
        gamma: weight of the least voted label in the set against the most voted one outside it, in
            [0, 1].
        loss: ``lead`` (ours) or ``published``, with which the k most voted labels are less likely
            at the same cost.

    Raises:
        ValueError: on a scale that is not positive, ``k < 1``, ``gamma`` outside [0, 1] or an
            unknown loss.
    """

    names: ClassVar[Mapping[str, str]] = {"scale_canonical": "scale", "noise_law": "noise"}

    noise_law: CanonicalNoise = "gumbel"
    scale_canonical: float
    gamma: float = 0.5
    loss: CanonicalLoss = "lead"


@dataclass(frozen=True, kw_only=True)
class Peeling(LabelSets[NoisyTopK]):
    """Release the k labels of the largest noisy counts.

    Choose it for a few of many labels: it costs k choices, so that the noise grows with the root of
        k, but the gap that
    it needs grows with the logarithm of the number of labels alone. With 40 labels `Canonical`
    needs a smaller gap for k of 18 and more, with 80 labels from 53 on, and up to 25 labels for any
    k (``gap_needed``).

    Privacy: k ``eta``-bounded-range choices, ``eta = window / scale_peel`` with a window of 1 vote
        under
    ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD (Durfee & Rogers (2019), Lemma 4.2). Any other
    noise is drawn once, and the set costs pure ``k eta`` (Shekelyan & Loukides (2022)).

    Args:
        k: number of labels of every sample.
        noise_law: ``gumbel``, ``exponential``, ``laplace``, ``logistic`` or ``half_logistic``.
        scale_peel: scale of the noise, in votes.
        neighboring_relation: the relation under which the cost is stated first.

    Raises:
        ValueError: on a scale that is not positive, ``k < 1`` or an unknown noise.
    """

    names: ClassVar[Mapping[str, str]] = {"scale_peel": "scale", "noise_law": "noise"}

    scale_peel: float
    noise_law: Noise = "gumbel"


@dataclass(frozen=True, kw_only=True)
class Joint(LabelSets[JointMechanism]):
    """Release the labels of a sequence of k, chosen among all sequences at the cost of a single choice, as a set.

    Choose it to compare with the paper: `Canonical` makes a single choice too, on scores that move
        half as far.

    Privacy: one ``eta``-bounded-range choice, ``eta = window / scale_joint`` with a window of 2
        votes under
    ADD_REMOVE_TEACHER and 4 under REPLACE_RECORD, half of that for k = 1 (Gillenwater et al.
    (2022)).

    Args:
        k: number of labels of every sample.
        noise_law: ``gumbel``, or ``exponential`` for a pure choice of ``eta`` (permute-and-flip
            among all sequences).
        scale_joint: scale of the noise, in votes.
        neighboring_relation: the relation under which the cost is stated first.

    Raises:
        ValueError: on a scale that is not positive, ``k < 1`` or an unknown noise.
    """

    names: ClassVar[Mapping[str, str]] = {"scale_joint": "scale", "noise_law": "noise"}

    noise_law: JointNoise = "gumbel"
    scale_joint: float


@dataclass(frozen=True, kw_only=True)
class PermuteAndFlip(LabelSets[PermuteAndFlipPeeling]):
    """Release a set of k labels, one after another by permute-and-flip.

    Choose it for a few queries of which a single pure epsilon counts: at the same pure epsilon it
        errs less often than
    `Peeling`. For many queries a bounded range composes better.

    Privacy: k pure choices of ``window / scale_flip``, with a window of 1 vote under
        ADD_REMOVE_TEACHER and 2 under
    REPLACE_RECORD (McKenna & Sheldon (2020)).

    Args:
        k: number of labels of every sample.
        scale_flip: scale of the exponential noise, in votes.
        neighboring_relation: the relation under which the cost is stated first.

    Raises:
        ValueError: on a scale that is not positive or ``k < 1``.
    """

    names: ClassVar[Mapping[str, str]] = {"scale_flip": "scale"}

    scale_flip: float
