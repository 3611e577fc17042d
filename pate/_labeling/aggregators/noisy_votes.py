"""Labels from noisy counts of votes, label by label.

`NoisyVotes` counts labels, and `SiloVotes` does so where silos show their votes to no one. Screens
compare counts to decide which queries another aggregator answers.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from pate._core.accounting.cost import NeighboringRelation
from pate._core.accounting.events import (
    ComposedEvent,
    Event,
    FailureEvent,
    GaussianEvent,
    GaussianThresholdEvent,
    PartiesEvent,
)
from pate._core.mechanisms.noise import (
    add_gaussian,
    decode,
    exceeds,
    failure,
    require_room,
    share_sigma,
    summand,
)
from pate._core.validation import (
    BoolArray,
    FloatArray,
    given,
    require,
    require_count,
    require_not_negative,
)
from pate._labeling.aggregators.base import Aggregator, Outlook, Release, predictions_of
from pate._labeling.votes.kinds import Counts, MaskedTotal, Need, VoteShape


@dataclass(frozen=True, kw_only=True)
class NoisyVotes(Aggregator):
    """Add Gaussian noise to the count of every label: binary voting, and noisy counts.

    Choose it if teachers disagree or the budget is small, and a student learns from many samples:
        the soft counts are
    unbiased however large the noise. Every query is answered. The cost grows with the number of
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
        neighboring_relation: the relation of the cost that is stated first.
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
        require_not_negative(min_lead=self.min_lead)

    @classmethod
    def defaults(cls, outlook: Outlook) -> Sequence[Mapping[str, Any]]:
        return [{}, {"soft": False}, {"soft": False, "min_lead": outlook.shape.num_teachers / 10}]

    def event(
        self, shape: VoteShape, relation: NeighboringRelation | None = None, tier: int | None = None
    ) -> Event:
        return GaussianEvent(
            neighboring_relation=self.relation_of(relation),
            noise_multiplier=self.sigma_votes / math.sqrt(shape.num_labels),
        )

    def aggregate(self, votes: Counts, *, generator: np.random.Generator) -> Release:
        half = votes.num_teachers / 2
        margins = add_gaussian(votes.counts - half, sigma=self.sigma_votes, generator=generator)
        leading = margins > self.min_lead
        labels, mask = leading.astype(np.uint8), leading | (margins <= -self.min_lead)
        if not self.soft:
            return Release(labels, mask)
        return Release(labels, mask, np.where(mask, margins + half, 0.0), self.sigma_votes)

    def max_answer_probability(self, shape: VoteShape) -> float:
        """Return the probability that teachers who agree on a label have it given or denied."""
        margins = np.array([shape.num_teachers / 2, -shape.num_teachers / 2])
        return float(ndtr((margins - self.min_lead) / self.sigma_votes).sum())

    def teachers_to_answer(self, probability: float, num_labels: int) -> float:
        # a count is half of the teachers away from a tie
        return 2 * (self.min_lead + self.sigma_votes * float(ndtri(probability)))


@dataclass(frozen=True, kw_only=True)
class Screen(Aggregator):
    """A noisy check before the aggregator ``answers``, which sees the queries that pass.

    Every query pays for the check, and a query that passes for its answer too. The ledger reserves
    both for every query and settles the actual cost. A subclass says what is checked.
    """

    answers: Aggregator

    @abstractmethod
    def _checked(self, votes: Counts) -> tuple[FloatArray, float]:
        """Return distances ``[Q, C]`` in votes, and the threshold of their mean."""

    def __post_init__(self) -> None:
        super().__post_init__()
        relation, expected = self.answers.neighboring_relation, self.neighboring_relation
        require(
            relation is expected,
            f"answers for {expected.value}, as the screen",
            neighboring_relation=relation.value,
        )

    @staticmethod
    def _before(outlook: Outlook) -> dict[str, Any]:
        """Return the settings of a screen before `NoisyVotes`."""
        return {"answers": NoisyVotes(sigma_votes=1.0, neighboring_relation=outlook.relation)}

    @property
    def noise(self) -> dict[str, float]:
        return super().noise | self.answers.noise

    @property
    def needs(self) -> frozenset[Need]:
        """The counts that it checks, and the needs of ``answers``."""
        return super().needs | self.answers.needs

    def screen_event(self, relation: NeighboringRelation) -> Event:
        """Describe the cost of the check: a noisy threshold on a distance of sensitivity 1."""
        (sigma,) = super().noise.values()
        return GaussianThresholdEvent(neighboring_relation=relation, noise_multiplier=sigma)

    def event(
        self, shape: VoteShape, relation: NeighboringRelation | None = None, tier: int | None = None
    ) -> Event:
        """Describe the cost of a query: the screen, then tier ``tier - 1`` of ``answers``."""
        resolved = self.relation_of(relation)
        require_count(0, **given(tier=tier))
        if tier == 0:
            return self.screen_event(resolved)
        answer = self.answers.event(shape, resolved, None if tier is None else tier - 1)
        return ComposedEvent(events=(self.screen_event(resolved), answer))

    def scaled(self, factor: float) -> Self:
        return replace(super().scaled(factor), answers=self.answers.scaled(factor))

    def max_answer_probability(self, shape: VoteShape) -> float:
        return self.answers.max_answer_probability(shape)

    def aggregate(self, votes: Counts, *, generator: np.random.Generator) -> Release:
        (sigma,) = super().noise.values()
        distances, threshold = self._checked(votes)
        num = distances.shape[1]  # compared as a sum, which is exact
        passed = exceeds(
            distances.sum(axis=1), num * threshold, sigma=num * sigma, generator=generator
        )
        return self._ask(votes, passed, generator)

    def _ask(self, votes: Counts, passed: BoolArray, generator: np.random.Generator) -> Release:
        """Pass the queries marked in ``passed`` ``[Q]`` on to ``answers``; leave the others empty.

        Of a linear model's answers, which are of all queries or of none, the labels are kept.
        """
        answers = self.answers.aggregate(votes[passed], generator=generator)

        def among_all(answered: NDArray[Any]) -> NDArray[Any]:
            values = np.zeros(votes.counts.shape, dtype=answered.dtype)
            values[passed] = answered
            return values

        counts = None if answers.linear else answers.noisy_counts
        tiers = passed.astype(np.int64)
        if answers.tiers is not None:
            tiers[passed] += answers.tiers
        return Release(
            among_all(answers.labels),
            among_all(answers.mask),
            noisy_counts=None if counts is None else among_all(counts),
            noise_std=answers.noise_std,
            tiers=tiers,
        )


@dataclass(frozen=True, kw_only=True)
class ConfidentScreen(Screen):
    """Pass on to ``answers`` only the queries with confident teachers.

    Choose it if some samples are hopeless and ``answers`` is expensive: a query that is refused
    costs no more than the screen.

    Privacy: a noisy threshold on the mean of the distances ``abs(h_j - T / 2)``, of
    sensitivity 1 under REPLACE_RECORD and ADD_REMOVE_TEACHER alike; then ``answers``, if the
    query is passed on (Papernot et al. (2018), Confident-GNMax, at the exact cost of its released
    bit).

    >>> votes = Votes.from_counts([[95, 90, 5, 0], [50, 40, 60, 45]], num_teachers=100)
    >>> aggregator = ConfidentScreen(
    ...     answers=NoisyVotes(sigma_votes=5.0), sigma_confident=5.0, threshold_confident=30.0
    ... )
    >>> aggregator.aggregate(votes, generator=seeded_generator(0)).mask
    array([[ True,  True,  True,  True],
           [False, False, False, False]])

    Args:
        answers: the aggregator that answers, for the same relation.
        sigma_confident: standard deviation of the noise on the screen, in votes.
        threshold_confident: the noisy distance from a tie that answers a query, in votes.
        neighboring_relation: the relation of the cost that is stated first.

    Raises:
        ValueError: on a deviation that is not positive, or ``answers`` for another relation.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("sigma_confident",)

    sigma_confident: float
    threshold_confident: float

    @classmethod
    def defaults(cls, outlook: Outlook) -> Sequence[Mapping[str, Any]]:
        return [cls._before(outlook) | {"threshold_confident": outlook.shape.num_teachers / 3}]

    def _checked(self, votes: Counts) -> tuple[FloatArray, float]:
        return np.abs(votes.counts - votes.num_teachers / 2), self.threshold_confident

    def max_answer_probability(self, shape: VoteShape) -> float:
        """Return the probability that teachers who agree on all labels pass and get an answer."""
        passed = ndtr((shape.num_teachers / 2 - self.threshold_confident) / self.sigma_confident)
        return float(passed) * super().max_answer_probability(shape)


@dataclass(frozen=True, kw_only=True)
class InteractiveScreen(Screen):
    """Pass on to ``answers`` the queries where teachers contradict a student; confirm the rest.

    Choose it to improve a student that was trained on an earlier release: if the teachers agree
    with it, its own confident predictions become labels, at the price of the screen.

    Privacy: the predictions are public. A noisy threshold on the mean of the
    distances ``abs(h_j - T p_j)`` to predictions ``p``, of sensitivity 1 under REPLACE_RECORD and
    ADD_REMOVE_TEACHER alike; then ``answers``, if the query is passed on (Papernot et al.
    (2018), Interactive-GNMax, at the exact cost of its released bit).

    Args:
        answers: the aggregator that answers, for the same relation.
        sigma_interactive: standard deviation of the noise on the screen, in votes.
        threshold_interactive: the noisy distance from the student that answers a query, in
            votes.
        min_confidence: the least probability, of a label or of its absence, at which a prediction
            is confirmed.
        neighboring_relation: the relation of the cost that is stated first.

    Raises:
        ValueError: on a deviation that is not positive, ``min_confidence`` outside [1/2, 1], or
            ``answers`` for another relation.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("sigma_interactive",)

    sigma_interactive: float
    threshold_interactive: float
    min_confidence: float = 0.5

    @classmethod
    def defaults(cls, outlook: Outlook) -> Sequence[Mapping[str, Any]]:
        return [cls._before(outlook) | {"threshold_interactive": outlook.shape.num_teachers / 8}]

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            0.5 <= self.min_confidence <= 1,
            "0.5 <= min_confidence <= 1",
            min_confidence=self.min_confidence,
        )

    @property
    def needs(self) -> frozenset[Need]:
        """The needs of a screen, and the predictions that it confirms."""
        return super().needs | {"predictions"}

    def _checked(self, votes: Counts) -> tuple[FloatArray, float]:
        # distances and their sums are exact
        expected = np.rint(votes.num_teachers * predictions_of(votes) * 2.0**20) / 2**20
        return np.abs(votes.counts - expected), self.threshold_interactive

    def _ask(self, votes: Counts, passed: BoolArray, generator: np.random.Generator) -> Release:
        release, predictions = super()._ask(votes, passed, generator), predictions_of(votes)
        sure = ~passed[:, None] & (np.maximum(predictions, 1 - predictions) >= self.min_confidence)
        release.labels[sure], release.mask[sure] = predictions[sure] > 0.5, True
        if release.noisy_counts is not None:
            release.noisy_counts[sure] = votes.num_teachers * predictions[sure]
        return release


@dataclass(frozen=True, kw_only=True)
class SiloVotes(Aggregator):
    """Release noisy counts of all labels. Each silo adds a share of the noise.

    Choose it if no party may see the votes of all silos: it releases the same as `NoisyVotes`, from
    masked counts that `pate silo` sends and `pate label --silos` adds up.

    Each silo knows the share that it drew, and subtracts it from the sum. So there are two figures.
    The cost, which targets and budgets are met by, is the cost to ``colluding`` silos that put
    their shares together, if ``dropouts`` others never send theirs. To all others
    (`Event.to_world`) the noise is ``sqrt((silos - dropouts) / (silos - colluding - dropouts))``
    times as wide.

    Privacy: a Gaussian mechanism on the counts, of L2 sensitivity ``sqrt(C)`` under REPLACE_RECORD
    and ADD_REMOVE_TEACHER alike, except with a probability of 2^-64 for each label and silo
    (docs/appendix/noise.md, "Noise in shares"; Kairouz, Liu & Steinke (2021) sum discrete Gaussians
    instead).

    Args:
        sigma_silos: standard deviation of the noise that the honest silos add together to each
            count, in votes.
        silos: number of silos, at least 2.
        colluding: number of silos that may pool the shares that they drew, or send them to the
            server; at least 1.
        dropouts: number of silos that may fail to send their counts.
        single_sums: whether a server may open the counts of one silo by themselves, with all of the
            stated noise, if it shows silos different lists of those in the sum. It can where one
            silo is sure to take part without colluding and another may drop out.
        neighboring_relation: the relation of the cost that is stated first.

    Raises:
        ValueError: on a deviation that is not positive, fewer than two silos, none that is sure to
            take part without colluding, or so many that may drop out that a server could open
            another sum than the one of all that take part.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("sigma_silos",)
    takes: ClassVar[frozenset[Need]] = frozenset({Counts | MaskedTotal})
    offered: ClassVar[bool] = False  # `--silos` names it

    sigma_silos: float
    silos: int
    colluding: int = 1
    dropouts: int = 0
    single_sums: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count(2, silos=self.silos)
        require_count(1, colluding=self.colluding)  # a silo knows the share that it drew
        require_count(0, dropouts=self.dropouts)
        require(
            self.num_honest >= 1,
            f"one of {self.silos} silos that neither colludes nor drops out",
            colluding=self.colluding,
            dropouts=self.dropouts,
        )
        alone = self.num_honest == 1
        hint = "; `single_sums` lets a server open the counts of one silo" if alone else ""
        require(
            self.has_one_sum or (alone and self.single_sums),
            f"dropouts * (dropouts + 1) < silos - colluding{hint}",
            silos=self.silos,
            colluding=self.colluding,
            dropouts=self.dropouts,
        )

    @property
    def num_honest(self) -> int:
        """The number of silos with shares that are sure to be in the sum, and secret."""
        return self.silos - self.colluding - self.dropouts

    @property
    def has_one_sum(self) -> bool:
        """Whether a server can open one sum only, whichever lists of silos it shows to whom."""
        return self.dropouts * (self.dropouts + 1) < self.silos - self.colluding

    @property
    def share_sigma(self) -> float:
        """The standard deviation of the noise of each silo, in votes."""
        return share_sigma(self.sigma_silos, self.num_honest)

    def event(
        self, shape: VoteShape, relation: NeighboringRelation | None = None, tier: int | None = None
    ) -> Event:
        require_room(shape.num_teachers, sigma=self.share_sigma)
        stated = self.relation_of(relation)
        failing = FailureEvent(
            neighboring_relation=stated,
            delta=shape.num_labels * failure(self.silos),
            tail="constant",
        )

        def release(sigma: float) -> Event:
            noise = GaussianEvent(
                neighboring_relation=stated, noise_multiplier=sigma / math.sqrt(shape.num_labels)
            )
            return ComposedEvent(events=(noise, failing))

        # of the noise for those who know none of the shares, in votes
        world = self.share_sigma * math.sqrt(self.silos - self.dropouts)
        return PartiesEvent(parties=release(self.sigma_silos), world=release(world))

    def aggregate(self, votes: Counts | MaskedTotal, *, generator: np.random.Generator) -> Release:
        """Label a batch of queries from the silos' sum, or with shares from ``generator``."""
        if isinstance(votes, MaskedTotal):
            total, num_shares = votes.total.open()
        else:  # as silos would, but with the counts in one hand
            total, num_shares = np.zeros(votes.counts.shape, dtype=np.uint64), self.silos
            for silo in range(self.silos):
                total += summand(
                    votes.counts if silo == 0 else 0 * votes.counts, self.share_sigma, generator
                )
        counts = decode(total, self.share_sigma, num_shares)
        labels = (counts > votes.num_teachers / 2).astype(np.uint8)
        noise_std = self.share_sigma * math.sqrt(num_shares)
        return Release(labels, np.ones(labels.shape, dtype=np.bool_), counts, noise_std)
