from dataclasses import replace

import numpy as np
import pytest

from pate import Votes
from pate._votes import pack_ballots, teacher_blocks, unpack_ballots
from pate.aggregators import Geometry, ScoreVoters


def test_packing_keeps_every_vote() -> None:
    ballots = np.random.default_rng(0).integers(0, 2, size=(5, 7, 11)).astype(np.bool_)
    packed = pack_ballots(ballots)
    assert packed.shape == (5, 7, 2)
    assert (unpack_ballots(packed, 11) == ballots).all()


def test_counts_of_ballots() -> None:
    ballots = np.random.default_rng(1).integers(0, 2, size=(3, 6, 4)).astype(np.uint8)
    votes = Votes.from_ballots(ballots)
    assert votes.num_teachers == 6
    assert (votes.counts == ballots.sum(axis=1)).all()


def test_teachers_are_voters_by_their_ballots() -> None:
    generator = np.random.default_rng(1)
    ballots, features = (
        generator.integers(0, 2, size=(9, 6, 4)).astype(np.uint8),
        generator.normal(size=(9, 3)),
    )
    votes = replace(Votes.from_ballots(ballots), features=features).with_voters()
    assert isinstance(votes.voters, ScoreVoters)
    np.testing.assert_array_equal(votes.voters.scores[0], 1 + 254 * ballots.swapaxes(0, 1))
    assert votes.voters.num_voters == 6
    np.testing.assert_array_equal(votes.voters.geometry.samples, Geometry.of(features).samples)
    for change in ({"ballots": None}, {"features": None}):
        with pytest.raises(
            ValueError,
            match=r"^Expected votes with the ballot of each teacher and with features[^\n]*$",
        ):
            replace(votes, **change).with_voters()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "counts", [np.array([[5]]), np.array([[-1]]), np.array([1]), np.array([[0.5]])]
)
def test_counts_that_cannot_be(counts: np.ndarray) -> None:
    with pytest.raises(ValueError, match="Expected"):
        Votes.from_counts(counts, 4)


@pytest.mark.parametrize(("teachers", "entries"), [(7, 0), (7, 1), (70_000, 1000), (5, 1 << 30)])
def test_blocks_of_teachers_are_small_and_leave_nobody_out(teachers: int, entries: int) -> None:
    blocks = list(teacher_blocks(teachers, entries))
    assert [i for block in blocks for i in range(teachers)[block]] == list(range(teachers))
    assert all(
        (block.stop - block.start) * entries <= 1 << 22 or block.stop - block.start == 1
        for block in blocks
    )


def test_more_teachers_than_floats_count_are_refused() -> None:
    """A distance from a tie of 2^62 of them would overflow, and noise on counts of 2^53 would be
    rounded."""
    Votes.from_counts([[2**53 - 1]], 2**53 - 1)
    for teachers in (2**53, 2**62):
        with pytest.raises(
            ValueError, match=rf"^Expected num_teachers < 2\^53, got num_teachers={teachers}$"
        ):
            Votes.from_counts([[5]], teachers)
