"""The two neighboring relations."""

import itertools

import numpy as np
import pytest

from pate.accounting import NeighboringRelation

MOVES = {
    NeighboringRelation.REPLACE_RECORD: (-1, 0, 1),
    NeighboringRelation.ADD_REMOVE_TEACHER: (0, 1),
}


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_the_score_range_covers_all_moves(relation: NeighboringRelation) -> None:
    counts = np.array([7, 5, 2])
    moves = np.array(list(itertools.product(MOVES[relation], repeat=3)))
    assert (moves.max(axis=1) - moves.min(axis=1)).max() == relation.score_range
    # a gap between sorted counts moves by the same at most, either way
    gaps = -np.diff(-np.sort(-(counts + moves), axis=1)) + np.diff(-np.sort(-counts))
    assert np.abs(gaps).max() == relation.score_range
