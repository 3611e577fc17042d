from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit

from models import Linear
from pate._core.validation import FloatArray, UInt8Array
from pate._labeling.votes.kinds import highest, pack_ballots
from pate._networks.teachers.training import SavedChunk
from pate.aggregators import Ballots, Counts
from pate.data import ArrayFeatures
from pate.teachers import VoteJob, VoteStore, cast_votes, load_chunk
from tests.networks.teachers.test_training import State, partitions, plan, records, train


def test_votes_come_back_as_they_went(tmp_path: Path) -> None:
    ballots = np.random.default_rng(0).integers(0, 2, size=(5, 7, 11)).astype(np.uint8)
    store = VoteStore(tmp_path)
    store.save_chunk(range(3, 5), pack_ballots(ballots[3:]))
    store.save_chunk(range(3), pack_ballots(ballots[:3]))
    names = [f"l{j}" for j in range(11)]
    store.write_manifest(
        ids=list("abcdefg"), label_names=names, num_teachers=5, made_by={"code": "1"}
    )
    votes, ids = store.load(Ballots)
    assert ids == list("abcdefg")
    assert (votes.counts == ballots.sum(axis=0)).all()
    assert votes.ballots is not None
    assert (votes.ballots == ballots.transpose(1, 0, 2)).all()
    assert type(store.load(Counts)[0]) is Counts
    # one bit a vote, and a header
    assert store.chunk_file(range(3)).stat().st_size == 3 * 7 * 2 + 128
    store.check()


def test_changed_votes_are_noticed(tmp_path: Path) -> None:
    store = VoteStore(tmp_path)
    for teachers in (range(2), range(2, 4)):
        store.save_chunk(teachers, np.zeros((2, 3, 1), dtype=np.uint8))
    store.write_manifest(ids=["a", "b", "c"], label_names=["x"], num_teachers=4, made_by={})
    path = store.chunk_file(range(2, 4))
    content = bytearray(path.read_bytes())
    content[-1] ^= 128
    for damaged in (bytes(content), path.read_bytes()[:-1], None):
        path.unlink()
        if damaged is not None:
            path.write_bytes(damaged)
        with pytest.raises(
            ValueError, match=r"Delete it, .* got changed_or_missing='.*votes_00002\.npy"
        ):
            store.check()
    assert not store.has_chunk(range(2, 4)) and store.has_chunk(range(2))
    store.save_chunk(range(2, 4), np.zeros((2, 3, 1), dtype=np.uint8))
    store.check()
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="the votes that were cast"):
        store.write_manifest(ids=["a", "b", "c"], label_names=["x"], num_teachers=4, made_by={})
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ValueError, match="what `pate teachers vote` left"):
        store.check()


@pytest.mark.parametrize("batch_size", [1, 7, 256])
def test_votes_are_each_teacher_s_on_each_sample(batch_size: int, tmp_path: Path) -> None:
    """Sample by sample and teacher by teacher, from the weights in the file."""
    settings = plan(network=Linear)
    state = train(settings, records(), partitions([30, 30, 0, 30]), tmp_path)
    features = np.asarray(records(num=120).features)
    packed = cast_votes(
        load_chunk(settings, range(4), (6,), 4, tmp_path),
        ArrayFeatures(features),
        batch_size=batch_size,
    )
    found = np.unpackbits(packed, axis=-1, count=4)
    logits = logits_of(state, features)
    sure = np.abs(logits) > 1e-4
    expected = (logits > 0) & (np.arange(4) != 2)[:, None, None]
    assert sure.mean() > 0.99 and (found == expected)[sure].all()
    # neighboring samples are told apart: a shift by one would be seen
    assert (found[:, 1:] != found[:, :-1]).any(axis=(1, 2))[[0, 1, 3]].all()


def test_a_logit_of_zero_says_no(tmp_path: Path) -> None:
    settings = plan(network=Linear)
    train(settings, records(), partitions([30, 30, 30, 30]), tmp_path)
    chunk = load_chunk(settings, range(4), (6,), 4, tmp_path)
    features = ArrayFeatures(np.zeros((3, 6), dtype=np.float32))
    for level, said in ((0.0, False), (1e-30, True), (-1e-30, False)):
        with torch.no_grad():
            for value in chunk.stacked.values():
                value.fill_(level)
        found = np.unpackbits(cast_votes(chunk, features), axis=-1, count=4)
        assert found.shape == (4, 3, 4) and (found == said).all(), level


def logits_of(state: State, features: FloatArray) -> FloatArray:
    weights, biases = (state[f"1.{name}"].double().numpy() for name in ("weight", "bias"))
    return np.asarray(
        np.einsum("tcd,nd->tnc", weights, features.astype(np.float64)) + biases[:, None]
    )


@pytest.mark.parametrize("chunk_size", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_scores_are_probabilities_and_nothing_is_said_without_records(
    chunk_size: int, tmp_path: Path
) -> None:
    settings = plan(network=Linear, chunk_size=chunk_size)
    state = train(settings, records(), partitions([30, 30, 0, 30]), tmp_path)
    features = np.asarray(records(num=120).features)
    scores = np.concatenate(
        [
            cast_votes(
                load_chunk(settings, chunk, (6,), 4, tmp_path),
                ArrayFeatures(features),
                "scores",
                batch_size=50,
            )
            for chunk in settings.chunks()
        ]
    )
    assert scores.dtype == np.uint8 and (scores[2] == 0).all()
    present = [0, 1, 3]
    np.testing.assert_allclose(
        (scores[present] - 1.0) / 254,
        expit(logits_of(state, features))[present],
        atol=0.5 / 254 + 1e-5,
    )


def quantile_bits(
    labels: UInt8Array, folder: Path, chunk_size: int = 4
) -> tuple[UInt8Array, FloatArray]:
    """Return the votes and logits of teachers of 30, 30, 0 and 30 records with ``labels``, on 120
    samples."""
    settings, features = (
        plan(network=Linear, chunk_size=chunk_size),
        np.asarray(records(num=120).features),
    )
    state = train(settings, records(Y=labels), partitions([30, 30, 0, 30]), folder)
    packed = [
        cast_votes(
            load_chunk(settings, chunk, (6,), 4, folder), ArrayFeatures(features), "quantile_bits"
        )
        for chunk in settings.chunks()
    ]
    return np.unpackbits(np.concatenate(packed), axis=-1, count=4), logits_of(state, features)


def assert_quantile_bits_are_their_own(folder: Path) -> None:
    """Assert that other labels of a record of the second teacher move its votes and nobody
    else's."""
    labels = records().labels.copy()
    before, _ = quantile_bits(labels, folder / "before")
    labels[35] ^= 1
    after, _ = quantile_bits(labels, folder / "after")
    assert (after != before).any(axis=(1, 2)).tolist() == [False, True, False, False]


def test_quantile_bits_follow_from_a_teacher_s_own_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_quantile_bits_are_their_own(tmp_path / "sound")
    write = SavedChunk.write

    def write_shared(chunk: SavedChunk, path: Path) -> None:
        """A planted fault: each teacher is told the shares of all."""
        shared = chunk.label_shares.nanmean(0).expand_as(chunk.label_shares)
        write(
            replace(chunk, label_shares=shared.where(chunk.label_shares.isfinite(), torch.nan)),
            path,
        )

    monkeypatch.setattr(SavedChunk, "write", write_shared)
    with pytest.raises(AssertionError):
        assert_quantile_bits_are_their_own(tmp_path / "faulty")


@pytest.mark.parametrize("chunk_size", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_quantile_bits_are_as_many_as_a_teacher_s_own_records_say(
    chunk_size: int, tmp_path: Path
) -> None:
    labels = records().labels.copy()
    labels[:30, 2] = 0
    before, logits = quantile_bits(labels, tmp_path, chunk_size)
    for teacher, own in enumerate(partitions([30, 30, 0, 30])):
        taken = (
            np.rint(120 * labels[own].mean(axis=0)).astype(int)
            if len(own)
            else np.zeros(4, dtype=int)
        )
        assert before[teacher].sum(axis=0).tolist() == taken.tolist()
        for label, number in enumerate(taken.tolist()):
            best = set(np.argsort(-logits[teacher, :, label])[:number].tolist())
            # near ties of float32
            assert len(best ^ set(np.flatnonzero(before[teacher, :, label]).tolist())) <= 2
    assert not before[0, :, 2].any() and before[1, :, 2].any()


def test_of_equal_logits_the_first_samples_are_taken() -> None:
    taken = highest(
        np.array([[1, 0], [1, 0], [2, 0], [1, 0]], dtype=np.float32),
        np.array([0.5, 0.25], dtype=np.float32),
    )
    assert taken.T.tolist() == [[True, False, True, False], [True, False, False, False]]
    logits = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    shares = np.array([0.0, 1 / 3, 1.0], dtype=np.float32)
    assert highest(logits, shares).sum(axis=0).tolist() == [0, 3, 9]


def test_absent_teachers_cast_no_vote(tmp_path: Path) -> None:
    settings = plan()
    train(settings, records(), partitions([30, 30, 30, 30]), tmp_path)
    features = records().features
    store = VoteStore(tmp_path / "votes")
    everyone = VoteJob(
        plan=settings, teachers_folder=tmp_path, samples=features, num_labels=4, store=store
    )
    everyone.work(range(4), lambda steps: None)
    everybody = np.load(store.chunk_file(range(4)))
    replace(everyone, absent=(1, 3)).work(range(4), lambda steps: None)
    present = np.load(store.chunk_file(range(4)))
    assert everybody.any(axis=(1, 2)).all()
    assert (present[[1, 3]] == 0).all() and (present[[0, 2]] == everybody[[0, 2]]).all()
    replace(everyone, voting="scores", absent=(1,)).work(range(4), lambda steps: None)
    assert np.load(store.chunk_file(range(4))).all(axis=(1, 2)).tolist() == [
        True,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize("ballots", [False, True])
def test_chosen_rows_are_those_of_all(ballots: bool, tmp_path: Path) -> None:
    said = np.random.default_rng(1).integers(0, 2, size=(9, 6, 10)).astype(np.uint8)
    store = VoteStore(tmp_path)
    # by their first teacher, not by name: 100000 comes before 99996 in the alphabet
    for start, part in ((99_996, said[:4]), (100_000, said[4:])):
        store.save_chunk(range(start, start + len(part)), pack_ballots(part))
    store.write_manifest(
        ids=list("abcdef"), label_names=[str(j) for j in range(10)], num_teachers=9, made_by={}
    )
    rows = np.array([4, 0, 5])
    votes, ids = store.load(Ballots if ballots else Counts, rows=rows)
    assert ids == ["e", "a", "f"]
    np.testing.assert_array_equal(votes.counts, said.sum(axis=0)[rows])
    assert isinstance(votes, Ballots) == ballots
    if isinstance(votes, Ballots):
        np.testing.assert_array_equal(votes.ballots, said.transpose(1, 0, 2)[rows])


def test_scores_come_back_as_they_went_and_are_not_counted(tmp_path: Path) -> None:
    scores = np.random.default_rng(2).integers(0, 256, size=(5, 3, 2)).astype(np.uint8)
    store = VoteStore(tmp_path)
    for teachers in (range(99_999, 100_002), range(2)):  # by their first teacher, not by name
        store.save_chunk(teachers, scores[2:] if len(teachers) == 3 else scores[:2])
    sealed: dict[str, Any] = {
        "ids": list("abc"),
        "label_names": ["x", "y"],
        "made_by": {},
        "ballots": "scores",
    }
    store.write_manifest(num_teachers=5, **sealed)
    assert all(isinstance(chunk, np.memmap) for chunk in store.scores())
    np.testing.assert_array_equal(np.concatenate(store.scores()), scores)
    with pytest.raises(ValueError, match=r"^Expected votes that are Counts, got votes='Scores'$"):
        store.load(Counts)
    store.write_manifest(num_teachers=6, **sealed)
    with pytest.raises(ValueError, match=r"^Expected votes of 6 teachers, got teachers=5$"):
        store.scores()
    store.write_manifest(num_teachers=5, **sealed | {"label_names": ["x"]})
    with pytest.raises(
        ValueError, match=r"^Expected votes on 3 samples, 1 bytes each, in votes_00000.npy"
    ):
        store.scores()
