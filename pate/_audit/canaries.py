"""Canaries: records among the private ones, each in one of two versions by a fair coin."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from pate._linear import flat
from pate._validation import BoolArray, FloatArray, StrArray, UInt8Array, require, require_count
from pate.data import ArrayFeatures, DataSource, Records, Role

Kind = Literal["outlying", "duplicated", "mislabelled"]
"""The kind: one or two records far from others in columns of their own, or a usual one."""
# the distance of an outlying canary in each of its columns, in deviations of the public samples
_REACH = 2.5


@dataclass(frozen=True, eq=False)
class Canaries:
    """Both versions of each canary, and the public samples that reveal them.

    Attributes:
        features: ``[2, m, F]``, for present and for absent canaries.
        labels: ``[2, m, C]`` in {0, 1}, likewise.
        probes: ``[p, F]``, public samples; their answers depend on canaries.
        mixture: ``[m, p]``: the score of a canary is a sum of answers by these weights, each times
            ``signs``.
        signs: ``[m, C]`` in {-1, 1}: the direction in which a present canary moves the answers.
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

    Outlying canaries lie in orthogonal directions of columns of their own, in which all other
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

    def __init__(
        self,
        source: DataSource,
        *,
        canaries: int,
        kind: Kind = "outlying",
        seed: int = 0,
        poisons: float = 0.0,
    ) -> None:
        super().__init__(budgets=source.budgets)
        require_count(2, canaries=canaries)
        require(canaries.bit_count() == 1, "a power of two of canaries", canaries=canaries)
        require(kind in get_args(Kind), f"kind in {', '.join(get_args(Kind))}", kind=kind)
        require_count(0, seed=seed)
        require(0 <= poisons < 1, "0 <= poisons < 1, a share of the records", poisons=poisons)
        self._source, self._num, self._kind, self._seed, self._poisons = (
            source,
            canaries,
            kind,
            seed,
            poisons,
        )

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the labels of the source."""
        return self._source.label_names

    @property
    def source(self) -> DataSource:
        """The source without canaries."""
        return self._source

    @cached_property
    def canaries(self) -> Canaries:
        """The canaries, which depend on the records of the source."""
        private = self._source.records(Role.PRIVATE)
        rows_of = "features that are rows of numbers: a feature map, such as PublicPCA, makes them of pictures"
        require(len(private.features.shape) == 2, rows_of, shape=private.features.shape)
        require(
            not self._source.unknown_labels,
            "labels that are all known, for an audit",
            unknown_labels=True,
        )
        present = np.tile(private.labels.mean(axis=0) <= 0.5, (self._num, 1)).astype(np.uint8)
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
            labels = np.stack((1 - right, right))
            return Canaries(
                np.stack((rows, rows)),
                labels,
                rows,
                np.eye(self._num),
                np.where(right, -1.0, 1.0),
                1,
            )
        public = flat(self._source.records(Role.PUBLIC).features[:])
        spread = float(np.sqrt(public.var(axis=0).mean())) or 1.0
        num = np.arange(self._num)
        codes = 1.0 - 2.0 * (np.bitwise_count(num[:, None] & num[None]) % 2)
        ours = _REACH * spread * codes
        # the columns then have the variance of all others
        lift = spread * np.sqrt((len(public) + 2 * self._num) / 2)
        far = np.concatenate((lift * np.eye(self._num), -lift * np.eye(self._num)))
        center = public.mean(axis=0)
        return Canaries(
            features=np.stack(
                [np.column_stack((np.tile(center, (self._num, 1)), rows)) for rows in (ours, -ours)]
            ),
            labels=np.stack((present, present)),
            probes=np.column_stack((np.tile(center, (2 * self._num, 1)), far)),
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
        records, canaries = self._source.records(role), self.canaries
        theirs = flat(records.features[:])
        theirs = np.column_stack(
            (theirs, np.zeros((len(theirs), canaries.probes.shape[1] - theirs.shape[1])))
        )
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
        groups = records.groups
        if groups is not None:
            groups = np.concatenate((groups.astype(str), names[len(records) :]))
        budgets = None
        if records.budgets is not None:
            # the statement that is tested is of the largest budget
            budgets = np.append(
                records.budgets, np.full(len(names) - len(records), self.budgets[-1])
            )
        features = ArrayFeatures(np.concatenate(rows).astype(np.float32))
        joined = np.concatenate([part.astype(np.uint8) for part in labels])
        return Records(features=features, labels=joined, ids=names, groups=groups, budgets=budgets)


def _coin(seed: int, name: str) -> int:
    """Return 64 bits as a function of only a seed and an id."""
    return int.from_bytes(
        hashlib.blake2b(name.encode(), digest_size=8, key=b"%d" % seed).digest(), "big"
    )
