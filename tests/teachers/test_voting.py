from pathlib import Path

import numpy as np
import pytest

from pate.teachers.voting import VoteStore
from pate.votes import pack_ballots


def test_votes_come_back_as_they_went(tmp_path: Path) -> None:
    ballots = np.random.default_rng(0).integers(0, 2, size=(5, 7, 11)).astype(np.uint8)
    store = VoteStore(tmp_path)
    store.save_chunk(range(3, 5), pack_ballots(ballots[3:]))
    store.save_chunk(range(3), pack_ballots(ballots[:3]))
    names = [f"l{j}" for j in range(11)]
    store.seal(ids=list("abcdefg"), label_names=names, num_teachers=5, made_by={"code": "1"})
    votes, ids = store.load(ballots=True)
    assert ids == list("abcdefg")
    assert (votes.counts == ballots.sum(axis=0)).all()
    assert votes.ballots is not None
    assert (votes.ballots == ballots.transpose(1, 0, 2)).all()
    assert store.load()[0].ballots is None
    # one bit a vote, and a header
    assert store.chunk_file(range(3)).stat().st_size == 3 * 7 * 2 + 128


def test_missing_votes_are_noticed(tmp_path: Path) -> None:
    store = VoteStore(tmp_path)
    store.save_chunk(range(2), np.zeros((2, 3, 1), dtype=np.uint8))
    store.seal(ids=["a", "b", "c"], label_names=["x"], num_teachers=4, made_by={})
    with pytest.raises(ValueError, match="votes of 4 teachers, got found=2"):
        store.load()
