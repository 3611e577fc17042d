"""Canaries, and the exact leakage of one release on each. NOT PRIVATE.

Canaries are records among the private ones, each in one of two versions by a fair coin. Their
leakage follows from the votes with either version.

The attacker has the strongest view that the definition of privacy allows: all other votes, and the
output of the mechanism itself, not only the labels that follow from it. Nothing is sampled. Chadha,
Jagielski, Papernot, Choquette-Choo & Nasr (2024) audit private prediction in this way, query by
query.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from scipy.special import ndtr, ndtri

from pate._core.accounting.cost import gaussian_epsilon
from pate._core.progress import stage_bar
from pate._core.validation import (
    BoolArray,
    FloatArray,
    IntArray,
    StrArray,
    UInt8Array,
    require,
    require_count,
)
from pate._labeling.aggregators.clipped_votes import ClippedVotes, TauVoting
from pate._labeling.aggregators.noisy_votes import NoisyVotes
from pate._labeling.aggregators.score_votes import ScoreVotes, released
from pate._labeling.data.records import ArrayFeatures, Records, Role
from pate._labeling.data.source import DataSource
from pate._labeling.linear import flat
from pate._labeling.votes.kinds import Ballots, Moments as MomentVotes
from pate._labeling.votes.voters import GroupVoters, RecordVoters, Voters
from pate.lab.audit.forced import ForcedGenerator, Laws, Sums, joint_epsilon

Kind = Literal["outlying", "duplicated", "mislabelled"]
"""The kind: one or two records far from others in columns of their own, or a usual one."""
# the distance of an outlying canary in each of its columns, in deviations of the public samples
_REACH = 2.5
Leak = TypeVar("Leak")


@dataclass(frozen=True, eq=False)
class Canaries:
    """Both versions of each canary, and the public samples that reveal them.

    Attributes:
        features: ``[2, m, F]``, for present and for absent canaries.
        labels: ``[2, m, C]`` in {0, 1}, likewise.
        probes: ``[p, F]``, public samples. Their answers depend on canaries.
        mixture: ``[m, p]``: the score of a canary is a sum of answers by these weights, each times
            ``signs``.
        signs: ``[m, C]`` in {-1, 1}: the direction of the answers' move if a canary is there.
        copies: the number of records of each canary.
    """

    features: FloatArray
    labels: UInt8Array
    probes: FloatArray
    mixture: FloatArray
    signs: FloatArray
    copies: int

    def scores(self, answers: FloatArray) -> FloatArray:
        """Return the score ``[m]`` of each canary from answers ``[p, C]`` to the probes."""
        return np.asarray(
            ((self.mixture @ (answers - answers.mean(axis=0))) * self.signs).sum(axis=1)
        )


class CanaryRecords(DataSource):
    """The records of another source, with canaries among the private ones. For audits: NOT PRIVATE.

    Outlying canaries lie in orthogonal directions of columns of their own, where all other
    records are 0. A canary is on one side if it is present and on the other if it is not. The
    public samples include probes, each with a large value in one such column. So each canary has a
    code of its own over the probes in ballots, and a place of its own in sums.

    Args:
        source: the source. Its features must be rows of numbers once they are mapped.
        canaries: the number of canaries, a power of two.
        kind: their kind.
        seed: the seed of the coins; with a canary's id it decides the canary's version.
        poisons: the share of the source's private records that an adversary owns. Average features
            and random labels make their ballots small. Their ids, groups and number stay.
    """

    is_audit = True

    def __init__(
        self,
        source: DataSource,
        *,
        canaries: int,
        kind: Kind = "outlying",
        seed: int = 0,
        poisons: float = 0.0,
    ) -> None:
        super().__init__()
        require_count(2, canaries=canaries)
        require(canaries.bit_count() == 1, "a power of two of canaries", canaries=canaries)
        require(kind in get_args(Kind), f"kind in {', '.join(get_args(Kind))}", kind=kind)
        require_count(0, seed=seed)
        require(0 <= poisons < 1, "0 <= poisons < 1, a share of the records", poisons=poisons)
        self.source, self._num, self._kind, self._seed, self._poisons = (
            source,
            canaries,
            kind,
            seed,
            poisons,
        )

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the labels of the source."""
        return self.source.label_names

    @cached_property
    def canaries(self) -> Canaries:
        """The canaries, which depend on the records of the source."""
        private = self.source.records(Role.PRIVATE)
        require(
            len(private.features.shape) == 2,
            "features that are rows of numbers: a feature map, such as PublicPCA, makes them of"
            " pictures",
            shape=private.features.shape,
        )
        require(
            not self.source.unknown_labels,
            "labels that are all known, for an audit",
            unknown_labels=True,
        )
        if self._kind == "mislabelled":
            require(
                len(private) >= self._num,
                f"{self._num} private records to mislabel",
                canaries=self._num,
            )
            chosen = np.argsort(
                [_coin(self._seed, str(name)) for name in private.ids], kind="stable"
            )[: self._num]
            rows = flat(private.features[np.sort(chosen)])
            right = (private.labels[np.sort(chosen)] > 0).astype(np.uint8)
            return Canaries(
                np.stack((rows, rows)),
                np.stack((1 - right, right)),
                rows,
                np.eye(self._num),
                np.where(right, -1.0, 1.0),
                1,
            )
        present = np.tile(private.labels.mean(axis=0) <= 0.5, (self._num, 1)).astype(np.uint8)
        public = flat(self.source.records(Role.PUBLIC).features[:])
        spread = float(np.sqrt(public.var(axis=0).mean())) or 1.0
        num = np.arange(self._num)
        codes = 1.0 - 2.0 * (np.bitwise_count(num[:, None] & num[None]) % 2)
        ours = _REACH * spread * codes
        # the columns then have the variance of all others
        far = spread * np.sqrt((len(public) + 2 * self._num) / 2) * np.eye(self._num)
        center = public.mean(axis=0)
        return Canaries(
            features=np.stack(
                [np.column_stack((np.tile(center, (self._num, 1)), rows)) for rows in (ours, -ours)]
            ),
            labels=np.stack((present, present)),
            probes=np.column_stack(
                (np.tile(center, (2 * self._num, 1)), np.concatenate((far, -far)))
            ),
            mixture=np.column_stack((codes, -codes)),
            signs=np.where(present, 1.0, -1.0),
            copies=2 if self._kind == "duplicated" else 1,
        )

    @property
    def ids(self) -> StrArray:
        """The ids ``[copies, m]`` of the canaries."""
        return np.array(
            [
                [f"canary-{i}-{copy}" for i in range(self._num)]
                for copy in range(self.canaries.copies)
            ]
        )

    @cached_property
    def present(self) -> BoolArray:
        """Whether each canary ``[m]`` is in its first version."""
        return np.array([_coin(self._seed, str(name)) % 2 == 0 for name in self.ids[0]])

    @property
    def probe_ids(self) -> StrArray:
        """The ids ``[p]`` of the probes among the public samples."""
        return np.array([f"probe-{i}" for i in range(len(self.canaries.probes))])

    def load(self, role: Role) -> Records:
        """Return the mapped records of the source, with canaries or probes added for this role."""
        records, canaries = self.source.records(role), self.canaries
        theirs = np.zeros((len(records), canaries.probes.shape[1]))
        theirs[:, : records.features.shape[1]] = flat(records.features[:])
        rows: list[FloatArray] = [theirs]
        labels, ids = [np.array(records.labels)], [records.ids]
        if role is Role.PUBLIC:
            rows.append(canaries.probes)
            ids.append(self.probe_ids)
            labels.append(np.zeros((len(canaries.probes), self.num_labels), dtype=np.uint8))
        if role is Role.PRIVATE:
            which, each = np.where(self.present, 0, 1), np.arange(self._num)
            rows += [canaries.features[which, each]] * canaries.copies
            labels += [canaries.labels[which, each]] * canaries.copies
            ids += list(self.ids)
            draws = np.array(
                [_coin(self._seed, f"poison {name}") for name in records.ids], dtype=np.uint64
            )
            poisoned = np.argsort(draws, kind="stable")[: int(self._poisons * len(records))]
            theirs[poisoned] = canaries.probes.mean(axis=0)
            labels[0][poisoned] = np.random.default_rng(self._seed).integers(
                0, 2, (len(poisoned), self.num_labels)
            )
        names = np.concatenate([part.astype(str) for part in ids])
        groups, added = records.groups, names[len(records) :]
        return Records(
            features=ArrayFeatures(np.concatenate(rows).astype(np.float32)),
            labels=np.concatenate([part.astype(np.uint8) for part in labels]),
            ids=names,
            groups=None if groups is None else np.append(groups.astype(str), added),
        )


def _coin(seed: int, name: str) -> int:
    """Return 64 bits as a function of only a seed and an id."""
    return int.from_bytes(
        hashlib.blake2b(name.encode(), digest_size=8, key=b"%d" % seed).digest(), "big"
    )


@dataclass(frozen=True)
class Exact:
    """The leakage of each answer of a release, and of all together, on the version of a canary.

    Attributes:
        steps: the number of answers: queries, or rounds of noisy sums.
        mean: the success rate of the best guess by one answer, on average over canaries and
            answers.
        largest: the largest success rate over canaries and answers.
        epsilon: the epsilon, at the delta of the statement, of all answers on the canary that they
            reveal most.
        paid: the epsilon that was paid for the release.
    """

    steps: int
    mean: float
    largest: float
    epsilon: float
    paid: float

    @classmethod
    def of_moves(cls, moves: FloatArray, *, paid: float, delta: float) -> Exact:
        """Return the leakage of Gaussian answers with ``moves`` ``[m, steps]`` in deviations."""
        right = ndtr(moves / 2)
        return cls(
            moves.shape[1],
            float(right.mean()),
            float(right.max()),
            gaussian_epsilon(delta, float(np.sqrt((moves**2).sum(axis=1)).max())),
            paid,
        )

    @classmethod
    def of_laws(cls, pairs: Iterable[Laws], *, steps: int, paid: float, delta: float) -> Exact:
        """Return the leakage of answers with the laws ``pairs``, one of each canary.

        The canary that they reveal most is found by the Gaussian noise with the same success rate,
        answer by answer.
        """
        largest, most = 0.5, -1.0
        means, worst = [], None
        for pair in pairs:
            right = 0.5 + np.abs(pair[0] - pair[1]).sum(axis=1) / 4
            means.append(0.5 + float((right - 0.5).sum()) / steps)
            largest = max(largest, float(right.max(initial=0.5)))
            mu_squared = float((ndtri(np.minimum(right, 1 - 1e-12)) ** 2).sum())
            if mu_squared > most:
                most, worst = mu_squared, pair
        assert worst is not None, "there are canaries"
        return cls(steps, float(np.mean(means)), largest, joint_epsilon(*worst, delta=delta), paid)

    @property
    def refuted(self) -> bool:
        """Whether a canary leaks more than was paid. The margin is far above rounding errors."""
        return self.epsilon > self.paid * (1 + 1e-6)

    @property
    def text(self) -> str:
        """The largest epsilon and success rates in words."""
        return (
            f"epsilon = {self.epsilon:.3f} at least, where {self.paid:.3f} was paid; the best guess"
            f" by one of {self.steps} answers is right in {self.mean:.1%}, at most"
            f" {self.largest:.1%}"
        )


class CanaryVotes(ABC):
    """The votes of a run, with canaries that can be turned to either version.

    Attributes:
        num_canaries: the number of canaries.
        num_queries: the number of queries that are asked together.
    """

    num_canaries: int
    num_queries: int

    @abstractmethod
    def turned(self, present: BoolArray) -> Any:
        """Return the votes with each canary ``[m]`` present or absent."""

    def exact(
        self, aggregator: Any, generator: np.random.Generator, *, paid: float, delta: float
    ) -> Exact:
        """Return the leakage of a release that was paid for: of noisy sums, or by its `laws`.

        Coins are tossed for all canaries. Then each is turned without the others, and its votes are
        counted again by the code of the release. Of score votes each round has a sum, given the
        ones before, and of other votes each query, given the same outcome of each other draw.

        Raises:
            NotStatedError: if the law of the aggregator is not known, or has too many outcomes.
        """
        present = generator.random((self.num_canaries,)) < 0.5
        coins = [present ^ single for single in np.eye(self.num_canaries, dtype=np.bool_)]
        votes, key = self.turned(present), int(generator.integers(2**63))
        kept = ForcedGenerator(key)

        def moves(other: Any) -> FloatArray:
            forced = ForcedGenerator(key, kept.draws)
            aggregator.aggregate(other, generator=forced)
            one, turned = kept.draws[-1], forced.draws[-1]
            assert isinstance(one, Sums) and isinstance(turned, Sums), "sums come last"
            return np.sqrt(one.squared_moves(turned).sum(axis=1))

        def laws(other: Any) -> Laws:
            moved = np.flatnonzero((other.ballots != votes.ballots).any(axis=(1, 2)))
            pair: Laws = aggregator.laws(votes[moved], other[moved])
            return pair

        def each(leak: Callable[[Any], Leak]) -> Iterator[Leak]:
            with stage_bar(len(coins), "leak", unit="divergence") as bar:
                for coin in coins:
                    yield leak(self.turned(coin))
                    bar.update()

        # a subclass may have other noise
        if isinstance(votes, MomentVotes) or type(aggregator) is ScoreVotes:
            rounds = self._moves_of_rounds(aggregator, votes.voters, coins, generator)
            return Exact.of_moves(rounds, paid=paid, delta=delta)
        if type(aggregator) in (NoisyVotes, TauVoting, ClippedVotes):
            aggregator.aggregate(votes, generator=kept)
            return Exact.of_moves(np.array([*each(moves)]), paid=paid, delta=delta)
        return Exact.of_laws(each(laws), steps=self.num_queries, paid=paid, delta=delta)

    def _moves_of_rounds(
        self,
        aggregator: Any,
        voters: Voters,
        coins: Sequence[BoolArray],
        generator: np.random.Generator,
    ) -> FloatArray:
        """Return the moves ``[m, rounds]`` of noisy sums in deviations, given the sums before."""
        steps = []
        rounds = list(released(aggregator, voters, self.num_queries, generator))
        with stage_bar(len(coins) * len(rounds), "leak", unit="divergence") as bar:
            for _, question, _, _, moments in rounds:
                geometry = question.geometry
                total, step = voters.along(geometry).clipped_sum(question, moments.clip), []
                for coin in coins:  # one after another: each has a copy of all records
                    other = self.turned(coin).voters.along(geometry)
                    moved = other.clipped_sum(question, moments.clip) - total
                    step.append(float(np.linalg.norm(moved)) / moments.sigma)
                    bar.update()
                steps.append(step)
        return np.transpose(steps)


class CanaryMoments(CanaryVotes):
    """Canaries among records that vote by moments. The attacker sees the noisy sums of all rounds.

    Args:
        votes: the votes, with records or groups of records as voters.
        canaries: the canaries.
        rows: ``[copies, m]``, their rows among these records.
    """

    def __init__(self, votes: MomentVotes, canaries: Canaries, rows: IntArray) -> None:
        voters: Any = votes.voters
        require(
            isinstance(voters, RecordVoters | GroupVoters),
            "records as voters",
            voters=type(voters).__name__,
        )
        self._votes, self._voters, self._rows = votes, voters, rows
        self.num_canaries, self.num_queries = rows.shape[1], votes.num_queries
        self._sides = [
            RecordVoters(
                geometry=voters.geometry,
                num_voters=voters.num_voters,
                num_labels=voters.num_labels,
                coordinates=voters.geometry.coordinates(features.astype(np.float32)),
                labels=labels,
            )
            for features, labels in zip(canaries.features, canaries.labels, strict=True)
        ]

    def turned(self, present: BoolArray) -> MomentVotes:
        """Return the votes with each canary ``[m]`` present or absent."""
        facts = {name: np.array(getattr(self._voters, name)) for name in ("coordinates", "labels")}
        for rows, (name, values) in product(self._rows, facts.items()):
            first, second = (getattr(side, name) for side in self._sides)
            values[rows] = np.where(present[:, None], first, second)
        return replace(self._votes, voters=replace(self._voters, **facts))


class CanaryTeachers(CanaryVotes):
    """Canaries that decide all votes of a teacher. The attacker sees noisy counts, or else labels.

    Args:
        votes: the votes, with ballots ``[Q, T, C]``.
        teachers: ``[copies, m]``, the teachers that have canaries.
        ballots: ``[2, Q, copies, m, C]``, the ballots of these teachers with their canary present,
            and with it absent.
    """

    def __init__(self, votes: Ballots, teachers: IntArray, ballots: UInt8Array) -> None:
        self._votes, self._teachers, self._ballots = votes, teachers, ballots
        self.num_canaries, self.num_queries = teachers.shape[1], votes.num_queries

    def turned(self, present: BoolArray) -> Ballots:
        """Return the votes with each canary ``[m]`` present or absent."""
        ballots = np.array(self._votes.ballots)
        for copy, teachers in enumerate(self._teachers):
            first, second = self._ballots[:, :, copy]
            ballots[:, teachers] = np.where(present[None, :, None], first, second)
        return replace(self._votes, ballots=ballots)
