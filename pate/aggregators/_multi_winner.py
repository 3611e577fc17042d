"""Aggregators of the literature on several winners.

In powerset voting the most frequent ballot wins as a whole; in tau voting no ballot has a norm
above tau.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pate._validation import FloatArray, IntArray, UInt8Array, require, require_positive
from pate._votes import Ballots, Need, VoteShape
from pate._votes.voters import blocks
from pate.accounting import BoundedRangeEvent, Event, GaussianEvent, NeighboringRelation
from pate.aggregators._base import Aggregator, Gap, Release, predictions_of
from pate.aggregators._outlook import Outlook
from pate.mechanisms._base import Law, choice_law, require_few
from pate.mechanisms._exact_choice import (
    SLACK,
    Chance,
    Proposals,
    cumulative_weights,
    draw,
    pick,
)
from pate.mechanisms._noise import add_gaussian

Codes = NDArray[np.uint64]

MOST_LABELS = 64


@dataclass(frozen=True, kw_only=True)
class Powerset(Aggregator):
    """Release the most frequent ballot, with Gumbel noise on the counts of all 2^C sets of labels.

    Choose it if there are few labels that occur together, so that many teachers cast the very same
    ballot. Every query is answered, possibly by a set without any votes.

    Privacy: one ``eta``-bounded-range choice, ``eta = 2 / scale_powerset``: one set loses the vote
    that another gains, so the counts of the sets move within a window of 2 votes under
    REPLACE_RECORD, and under ADD_REMOVE_TEACHER too, as a teacher that takes no part counts for the
    empty set (Dziedzic et al. (2023), Powerset voting, with Gumbel in place of Gaussian noise).

    >>> votes = Votes.from_ballots([[[1, 1, 0]] * 60 + [[1, 0, 0]] * 40])
    >>> aggregator = Powerset(scale_powerset=2.0)
    >>> aggregator.aggregate(votes, generator=seeded_generator(0)).labels
    array([[1, 1, 0]], dtype=uint8)

    Args:
        scale_powerset: scale of the Gumbel noise, in votes.
        neighboring_relation: the relation under which the cost is stated first.

    Raises:
        ValueError: on a scale that is not positive.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("scale_powerset",)

    scale_powerset: float

    @property
    def needs(self) -> frozenset[Need]:
        """The ballots, which are the sets that are voted for."""
        return frozenset({Ballots})

    @classmethod
    def defaults(cls, outlook: Outlook) -> Sequence[Mapping[str, Any]]:
        return [{}] if outlook.shape.num_labels <= MOST_LABELS else []

    def gap_needed(self, shape: VoteShape, *, probability: float) -> Gap:
        """Return by how many votes a set must lead to be chosen if no other set has a vote."""
        odds = math.log(2) * shape.num_labels + math.log(probability / (1 - probability))
        votes = max(self.scale_powerset * odds, 0.0)
        meaning = (
            f"A gap of {votes:.1f} votes between the two label sets is what a query needs to be"
            " answered, and answered right,"
        )
        return Gap(votes, shape.num_teachers, meaning)

    def law(self, votes: Ballots) -> Law:
        require_few(2**votes.num_labels, "gumbel")
        sets = np.arange(2**votes.num_labels, dtype=np.uint64)
        codes = _encode(votes.ballots)
        counts = np.array([np.bincount(row.astype(np.int64), minlength=len(sets)) for row in codes])
        return Law(
            choice_law(counts / self.scale_powerset, "gumbel"), _decode(sets, votes.num_labels) > 0
        )

    def laws(self, votes: Ballots, neighbors: Ballots) -> tuple[FloatArray, FloatArray]:
        # sets with unchanged numbers of votes are one outcome: one factor changes their chances
        scale, most = self.scale_powerset, 2.0**votes.num_labels
        rows = []
        for ballots in zip(votes.ballots, neighbors.ballots, strict=True):
            before, after = (Counter(map(bytes, side)) for side in ballots)
            moved = sorted(code for code in before | after if before[code] != after[code])
            chances = []
            for counted in (before, after):
                highest = max(counted.values())
                weights = {
                    code: math.exp((count - highest) / scale) for code, count in counted.items()
                }
                unseen = math.exp(-highest / scale)
                others = [weight for code, weight in weights.items() if code not in moved]
                rest = sum(others) + (most - len(moved) - len(others)) * unseen
                parts = [*(weights.get(code, unseen) for code in moved), rest]
                chances.append([part / sum(parts) for part in parts])
            rows.append(chances)
        widest = max((len(first) for first, _ in rows), default=1)
        padded = np.array(
            [[side + [0.0] * (widest - len(side)) for side in row] for row in rows]
        ).reshape(-1, 2, widest)
        return padded[:, 0], padded[:, 1]

    def event(
        self, shape: VoteShape, relation: NeighboringRelation | None = None, tier: int | None = None
    ) -> Event:
        _require_codes(shape.num_labels)
        return BoundedRangeEvent(
            neighboring_relation=self.relation_of(relation), eta=2 / self.scale_powerset
        )

    def aggregate(self, votes: Ballots, *, generator: np.random.Generator) -> Release:
        ballots = votes.ballots
        _require_codes(votes.num_labels)
        chosen = np.empty(votes.num_queries, dtype=np.uint64)
        for rows in blocks(len(chosen), ballots[:1].size):
            codes = np.sort(_encode(ballots[rows]), axis=1)
            chosen[rows] = _choose(codes, votes.num_labels, self.scale_powerset, generator)
        labels = _decode(chosen, votes.num_labels)
        return Release(labels, np.ones(labels.shape, dtype=np.bool_))


def _require_codes(num_labels: int) -> None:
    """Raise ``ValueError`` unless a set of labels fits into an integer."""
    require(num_labels <= MOST_LABELS, f"num_labels <= {MOST_LABELS}", num_labels=num_labels)


def _choose(codes: Codes, num_labels: int, scale: float, generator: np.random.Generator) -> Codes:
    """Choose a set for each row of sorted ballots ``[Q, T]``; n votes weigh ``exp(n / scale)``.

    A weight of 1 belongs to the uniform choice among all sets, and the rest to the sets with votes.
    """
    first = np.ones(codes.shape, dtype=np.bool_)
    first[:, 1:] = codes[:, 1:] != codes[:, :-1]
    starts = np.flatnonzero(first)
    votes = np.zeros(codes.shape, dtype=np.int64)
    # rows end where the next begins, so the length of a run never reaches into the next row
    votes.ravel()[starts] = np.diff(starts, append=codes.size)
    most = votes.max(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        extra = (votes - most) / scale + np.log(-np.expm1(-votes / scale))
    logs = np.column_stack((num_labels * math.log(2) - most / scale, extra))
    cumulative = cumulative_weights(np.exp(logs))
    log_rates = np.log(np.exp(logs).sum(axis=1)) + SLACK

    def propose(rows: IntArray) -> Proposals:
        picked = pick(cumulative[rows], generator)
        log_chances = logs[rows, picked.places] - log_rates[rows] - picked.log_shares

        def chance(place: int) -> Chance:
            row, column = rows[place], int(picked.places[place])
            raised = Fraction(float(log_rates[row])) + Fraction(int(most[row, 0])) / Fraction(scale)
            if not column:
                return Chance(2**num_labels / picked.share(place), raised)
            own = Fraction(int(votes[row, column - 1])) / Fraction(scale)
            return Chance(1 / picked.share(place), raised - own, raised)

        return Proposals(picked.places[:, None], log_chances, chance)

    columns = draw(log_rates, propose, generator, noise="gumbel")[:, 0]
    any_set = generator.integers(
        0, 2**num_labels - 1, size=len(codes), dtype=np.uint64, endpoint=True
    )
    return np.where(columns > 0, codes[np.arange(len(codes)), columns - 1], any_set)


def _encode(ballots: UInt8Array) -> Codes:
    """Return ballots ``[..., C]`` as numbers ``[...]``, label j as bit j."""
    packed = np.zeros((*ballots.shape[:-1], 8), dtype=np.uint8)
    bits = np.packbits(ballots, axis=-1, bitorder="little")
    packed[..., : bits.shape[-1]] = bits
    return np.asarray(packed.view("<u8")[..., 0], dtype=np.uint64)


def _decode(codes: Codes, num_labels: int) -> UInt8Array:
    """Undo `_encode`: ``[Q]`` to ``[Q, C]``."""
    packed = codes.astype("<u8")[:, None].view(np.uint8)
    return np.unpackbits(packed, axis=1, count=num_labels, bitorder="little")


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
        return np.floor(np.minimum(1.0, self.tau / norms) * 2.0**_BITS) / 2**_BITS


def _guess(votes: Ballots) -> UInt8Array:
    return (predictions_of(votes) > 0.5).astype(np.uint8)
