import numpy as np
import pytest

from pate.votes import Votes, count_packed, pack_ballots, unpack_ballots


def test_packing_keeps_every_vote() -> None:
    ballots = np.random.default_rng(0).integers(0, 2, size=(5, 7, 11)).astype(np.bool_)
    packed = pack_ballots(ballots)
    assert packed.shape == (5, 7, 2)
    assert (unpack_ballots(packed, 11) == ballots).all()
    assert (count_packed(packed, 11) == ballots.sum(axis=0)).all()


def test_counts_of_ballots() -> None:
    ballots = np.random.default_rng(1).integers(0, 2, size=(3, 6, 4)).astype(np.uint8)
    votes = Votes.from_ballots(ballots)
    assert votes.num_teachers == 6
    assert (votes.counts == ballots.sum(axis=1)).all()


@pytest.mark.parametrize("counts", [np.array([[5]]), np.array([[-1]]), np.array([1]), np.array([[0.5]])])
def test_counts_that_cannot_be(counts: np.ndarray) -> None:
    with pytest.raises(ValueError, match="Expected"):
        Votes.from_counts(counts, 4)
