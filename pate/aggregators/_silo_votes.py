"""Gaussian noise on counts, drawn in shares by silos, so that no count is seen without noise."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pate._validation import require, require_count
from pate._votes import Counts, MaskedTotal, Need, VoteShape
from pate.accounting import (
    ComposedEvent,
    Event,
    FailureEvent,
    GaussianEvent,
    NeighboringRelation,
    PartiesEvent,
)
from pate.aggregators._base import Aggregator, Release
from pate.mechanisms._noise_shares import decode, failure, require_room, share_sigma, summand


@dataclass(frozen=True, kw_only=True)
class SiloVotes(Aggregator):
    """Release noisy counts of all labels, to which each silo adds a share of the noise.

    Choose it if no party may see the votes of all silos: it releases the same as `NoisyVotes`, from
    masked counts that `pate silo` sends and `pate label --silos` adds up.

    Each silo knows the share that it drew, and subtracts it from the sum. So there are two figures.
    The cost, which targets and budgets are met by, is the cost to ``colluding`` silos that put
    their shares together, if ``dropouts`` others never send theirs. To everybody else
    (`Event.to_world`) the noise is ``sqrt((silos - dropouts) / (silos - colluding - dropouts))``
    times as wide.

    Privacy: a Gaussian mechanism on the counts, of L2 sensitivity ``sqrt(C)`` under REPLACE_RECORD
    and ADD_REMOVE_TEACHER alike, except with a probability of 2^-64 for each label and silo
    (docs/privacy.md, "Noise in shares"; Kairouz, Liu & Steinke (2021) sum discrete Gaussians
    instead).

    Args:
        sigma_silos: standard deviation of the noise that the honest silos add together to each
            count, in votes.
        silos: number of silos, at least 2.
        colluding: number of silos that may pool the shares that they drew, or send them to the
            server; at least 1.
        dropouts: number of silos that may fail to send their counts.
        neighboring_relation: the relation under which the cost is stated first.

    Raises:
        ValueError: on a deviation that is not positive, fewer than two silos, none that is sure to
            take part without colluding, or so many that may drop out that a server could open a
            sum with less noise.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("sigma_silos",)
    offered: ClassVar[bool] = False  # `--silos` names it

    sigma_silos: float
    silos: int
    colluding: int = 1
    dropouts: int = 0

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
        # a server could show each silo another list of silos in the sum, and open a part of it
        safe = (
            self.dropouts * (self.dropouts + 1) < self.silos - self.colluding
            or self.num_honest == 1
        )
        require(
            safe,
            "dropouts * (dropouts + 1) < silos - colluding, or one silo left whose noise is enough",
            silos=self.silos,
            colluding=self.colluding,
            dropouts=self.dropouts,
        )

    @property
    def num_honest(self) -> int:
        """The number of silos with shares that are sure to be in the sum, and secret."""
        return self.silos - self.colluding - self.dropouts

    @property
    def share_sigma(self) -> float:
        """The standard deviation of the noise of each silo, in votes."""
        return share_sigma(self.sigma_silos, self.num_honest)

    @property
    def world_sigma(self) -> float:
        """The standard deviation of the noise to whoever knows none of the shares, in votes."""
        return self.share_sigma * math.sqrt(self.silos - self.dropouts)

    @property
    def needs(self) -> frozenset[Need]:
        """The sum of the silos, or the counts of all in one hand."""
        return frozenset({Counts | MaskedTotal})

    def event(
        self, shape: VoteShape, relation: NeighboringRelation | None = None, tier: int | None = None
    ) -> Event:
        require_room(shape.num_teachers, sigma=self.share_sigma)
        stated = self.relation_of(relation)
        delta = shape.num_labels * failure(self.silos)
        failing = FailureEvent(neighboring_relation=stated, delta=delta, tail="constant")

        def release(sigma: float) -> Event:
            multiplier = sigma / math.sqrt(shape.num_labels)
            noise = GaussianEvent(neighboring_relation=stated, noise_multiplier=multiplier)
            return ComposedEvent(events=(noise, failing))

        return PartiesEvent(parties=release(self.sigma_silos), world=release(self.world_sigma))

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
        noisy_counts = decode(total, self.share_sigma, num_shares)
        labels = (noisy_counts > votes.num_teachers / 2).astype(np.uint8)
        mask = np.ones(labels.shape, dtype=np.bool_)
        noise_std = self.share_sigma * math.sqrt(num_shares)
        return Release(labels, mask, noisy_counts=noisy_counts, noise_std=noise_std)
