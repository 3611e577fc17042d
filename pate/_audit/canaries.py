"""Canaries: records of which a fair coin each decided in which of two versions they are among the private ones."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from pate._linear import flat
from pate._typing import BoolArray, FloatArray, StrArray, UInt8Array
from pate._validation import require, require_count
from pate.data._records import ArrayFeatures, Records, Role
from pate.data._source import DataSource

Kind = Literal["outlying", "duplicated", "mislabelled"]
"""How canaries look: far from all records, in columns of their own, in one record or in two; or like a record."""
_REACH = 2.5  # of an outlying canary in each of its columns, in standard deviations of the public samples


@dataclass(frozen=True, eq=False)
class Canaries:
    """What both versions of each canary are, and where to look for them.

    Attributes:
        features: ``[2, m, F]``, of a canary that is present and of one that is not.
        labels: ``[2, m, C]`` in {0, 1}, likewise.
        probes: ``[p, F]``, public samples whose answers tell about canaries.
        mixture: ``[m, p]``: the score of a canary is a sum of answers by these weights, each times
            ``signs``.
        signs: ``[m, C]`` in {-1, 1}: in which direction a canary that is present moves the answers.
        copies: how many records each canary is.
    """

    features: FloatArray
    labels: UInt8Array
    probes: FloatArray
    mixture: FloatArray
    signs: FloatArray
    copies: int

    def scores(self, answers: FloatArray) -> FloatArray:
        """Return the score ``[m]`` of each canary from answers ``[p, C]`` to the probes, whatever their unit."""
        return np.asarray(
            ((self.mixture @ (answers - answers.mean(axis=0))) * self.signs).sum(axis=1)
        )


class CanaryRecords(DataSource):
    """The records of another source, with canaries among the private ones. For audits: NOT PRIVATE.

    Outlying canaries lie in columns of their own, in which all other records are 0, in orthogonal
    directions; present or not, a canary is on one side or on the other. Whoever chooses the public
    samples has added some in which one such column is large, the probes. In ballots each canary so
    has a code of its own over all probes, and in sums a place.

    Args:
        source: the source, whose features must be rows of numbers once they are mapped.
        canaries: how many there are, a power of two.
        kind: how they look.
        seed: with a canary's id it decides in which version the canary is present.
        poisons: the share of the source's private records that an adversary owns, who makes ballots
            small by average features and random labels. Their ids, groups and number stay.
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
        super().__init__()
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
        """Those of the source."""
        return self._source.label_names

    @cached_property
    def canaries(self) -> Canaries:
        """The canaries, which depend on the records of the source."""
        private = self._source.records(Role.PRIVATE)
        rows_of = "features that are rows of numbers: a feature map, such as PublicPCA, makes them of pictures"
        require(len(private.features.shape) == 2, rows_of, shape=private.features.shape)
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
        lift = spread * np.sqrt(
            (len(public) + 2 * self._num) / 2
        )  # so that their variance is that of other columns
        far = np.concatenate((lift * np.eye(self._num), -lift * np.eye(self._num)))
        centre = public.mean(axis=0)
        return Canaries(
            features=np.stack(
                [np.column_stack((np.tile(centre, (self._num, 1)), rows)) for rows in (ours, -ours)]
            ),
            labels=np.stack((present, present)),
            probes=np.column_stack((np.tile(centre, (2 * self._num, 1)), far)),
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
        """Which canaries ``[m]`` are in their first version."""
        return np.array([_coin(self._seed, str(name)) % 2 == 0 for name in self.ids[0]])

    @property
    def probe_ids(self) -> StrArray:
        """The ids ``[p]`` of the probes among the public samples."""
        return np.array([f"probe-{i}" for i in range(len(self.canaries.probes))])

    def load(self, role: Role) -> Records:
        """Return the records of the source, mapped by its public map, and what is added to those of this role."""
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
        features = ArrayFeatures(np.concatenate(rows).astype(np.float32))
        joined = np.concatenate([part.astype(np.uint8) for part in labels])
        return Records(features=features, labels=joined, ids=names, groups=groups)


def _coin(seed: int, name: str) -> int:
    """Return 64 bits that are a function of a seed and an id alone."""
    return int.from_bytes(
        hashlib.blake2b(name.encode(), digest_size=8, key=b"%d" % seed).digest(), "big"
    )
