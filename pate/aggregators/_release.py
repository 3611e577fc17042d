"""Parts that several aggregators share."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate.aggregators.base import Release
from pate.typing import UInt8Array
from pate.validation import expect
from pate.votes import Votes

FloatArray = NDArray[np.float64]

_ROWS = 1024  # rows worked on at once, so that the intermediate arrays stay in cache


def release_sets(chosen: NDArray[np.int64], num_labels: int) -> Release:
    """Release sets of labels, given as indices ``[Q, k]``; every query is answered."""
    labels = np.zeros((len(chosen), num_labels), dtype=np.uint8)
    np.put_along_axis(labels, chosen, 1, axis=1)
    return Release(labels, np.ones(labels.shape, dtype=np.bool_))


def release_rows(labels: NDArray[np.bool_], passed: NDArray[np.bool_]) -> Release:
    """Release labels ``[Q, C]`` of the queries that ``passed`` ``[Q]``, and nothing of the others."""
    mask = np.repeat(passed[:, None], labels.shape[1], axis=1)
    return Release((labels & mask).astype(np.uint8), mask)


def add_gaussian(values: ArrayLike, *, sigma: float, generator: np.random.Generator) -> FloatArray:
    """Return ``values`` ``[Q, C]`` with Gaussian noise of ``sigma``, rounded to a grid of ``sigma / 2^20`` at least."""
    exact = np.asarray(values)
    grid = 2.0 ** math.ceil(math.log2(sigma) - 20)
    noisy = np.empty(exact.shape)
    for start in range(0, len(exact), _ROWS):
        part = noisy[start : start + _ROWS]
        generator.standard_normal(out=part)
        part *= sigma / grid
        part += exact[start : start + _ROWS] / grid
        np.rint(part, out=part)
        part *= grid
    return noisy


def ballots_of(votes: Votes) -> UInt8Array:
    """Return what each teacher said, ``[Q, T, C]``. Raises ``ValueError`` where the votes are counts alone."""
    if votes.ballots is None:
        raise ValueError("Expected votes with what each teacher said, got counts alone")
    return votes.ballots


def predictions_of(votes: Votes) -> FloatArray:
    """Return what a student predicts, ``[Q, C]`` in [0, 1]. Raises ``ValueError`` where no student was asked."""
    if votes.predictions is None:
        raise ValueError("Expected votes with a student's predictions, got none")
    return votes.predictions


def expect_k(k: int, num_labels: int, *, largest: int) -> None:
    """Raise ``ValueError`` unless a set of ``k`` of ``num_labels`` labels can be asked for."""
    expect(k <= largest, f"k <= {largest} for {num_labels} labels", k=k)
