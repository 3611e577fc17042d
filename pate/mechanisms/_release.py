"""The release of a batch of queries: labels, and which of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pate._validation import BoolArray, FloatArray, IntArray, UInt8Array


class Release(NamedTuple):
    """The released labels of a batch; no reason is given for entries that are not released."""

    labels: UInt8Array
    """``[Q, C]`` in {0, 1}; 0 where nothing was released."""
    mask: BoolArray
    """``[Q, C]``: which labels were released."""
    noisy_counts: FloatArray | None = None
    """``[Q, C]``: noisy counts of the teachers that gave each label, possibly below 0 or above the
    number of teachers; 0 where nothing was released. None if the aggregator releases no counts."""
    noise_std: float | None = None
    """Standard deviation of the Gaussian noise in ``noisy_counts``, in votes, above 0; None without
    them, and if they are answers of a linear model, which has all the noise."""
    tiers: IntArray | None = None
    """``[Q]``: price tiers of queries, as in `Aggregator.event`; None if all cost the same."""
    linear: bool = False
    """Whether ``noisy_counts`` are ``num_teachers`` times the answers of a linear model."""
    columns: BoolArray | None = None
    """``[F]``: the features that such a model reads; None for all of them."""
    variance_ratio: float | None = None
    """About the variance of private records over that of public samples, along directions on which
    such a model depends; None if the release does not tell."""

    @classmethod
    def of_sets(cls, chosen: IntArray, num_labels: int) -> Release:
        """Release sets of labels, given as indices ``[Q, k]``; every query is answered.

        >>> Release.of_sets(np.array([[0, 2]]), num_labels=4).labels
        array([[1, 0, 1, 0]], dtype=uint8)
        """
        labels = np.zeros((len(chosen), num_labels), dtype=np.uint8)
        np.put_along_axis(labels, chosen, 1, axis=1)
        return cls(labels, np.ones(labels.shape, dtype=np.bool_))

    @classmethod
    def of_rows(
        cls, labels: BoolArray, passed: BoolArray, tiers: NDArray[np.integer] | None = None
    ) -> Release:
        """Release labels ``[Q, C]`` of the queries that ``passed`` ``[Q]``, and no others.

        >>> majority = np.array([[True, False], [True, True]])
        >>> release = Release.of_rows(majority, np.array([True, False]))
        >>> release.labels
        array([[1, 0],
               [0, 0]], dtype=uint8)
        >>> release.mask
        array([[ True,  True],
               [False, False]])
        """
        mask = np.repeat(passed[:, None], labels.shape[1], axis=1)
        return cls(
            (labels & mask).astype(np.uint8),
            mask,
            tiers=None if tiers is None else tiers.astype(np.int64),
        )
