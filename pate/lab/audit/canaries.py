"""Canaries: records among the private ones, each in one of two versions by a fair coin.

An audit guesses the coins from what is released. NOT PRIVATE.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pate._core.validation import (
    BoolArray,
    FloatArray,
    StrArray,
    UInt8Array,
    require,
    require_count,
)
from pate._labeling.data.records import ArrayFeatures, Records, Role
from pate._labeling.data.source import DataSource
from pate._labeling.linear import flat

# the distance of a canary in each of its columns, in deviations of the public samples
_REACH = 2.5


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
    """

    features: FloatArray
    labels: UInt8Array
    probes: FloatArray
    mixture: FloatArray
    signs: FloatArray

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
        seed: the seed of the coins; with a canary's id it decides the canary's version.
    """

    is_audit = True

    def __init__(self, source: DataSource, *, canaries: int, seed: int = 0) -> None:
        super().__init__()
        require_count(2, canaries=canaries)
        require(canaries.bit_count() == 1, "a power of two of canaries", canaries=canaries)
        require_count(0, seed=seed)
        self.source, self._num, self._seed = source, canaries, seed

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
        )

    @property
    def ids(self) -> StrArray:
        """The ids ``[m]`` of the canaries."""
        return np.array([f"canary-{i}" for i in range(self._num)])

    @cached_property
    def present(self) -> BoolArray:
        """Whether each canary ``[m]`` is in its first version."""
        return np.array([_coin(self._seed, str(name)) % 2 == 0 for name in self.ids])

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
            rows.append(canaries.features[which, each])
            labels.append(canaries.labels[which, each])
            ids.append(self.ids)
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
