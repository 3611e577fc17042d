"""Votes from elsewhere: what a file may hold, and what is refused in one line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from pate import NamedVotes
from pate._labeling.stages.votes_import import Silos
from pate.aggregators import Ballots, Counts, Scores
from pate.teachers import VoteStore

IDS = np.array(["s3", "s1", "s2"])
NAMES = ("hat", "beard")
BALLOTS = np.array([[[1, 0], [1, 1]], [[0, 0], [1, 0]], [[0, 1], [0, 1]]], dtype=np.uint8)
COUNTS = BALLOTS.sum(axis=1).astype(np.int64)
FEATURES = np.array([[3.0, 0.5], [1.0, 0.5], [2.0, 0.5]])


def named(**changes: Any) -> NamedVotes:
    given: dict[str, Any] = {"ids": IDS, "label_names": NAMES, "ballots": BALLOTS}
    return NamedVotes(**(given | changes))


def scored(scores: Any = BALLOTS * 0.8) -> NamedVotes:
    return named(ballots=None, scores=scores)


def test_the_order_of_samples_is_that_of_their_ids() -> None:
    """An order that came from something private, such as the counts, must reach nothing that is
    public."""
    votes = named()
    assert votes.ids.tolist() == ["s1", "s2", "s3"]
    assert votes.ballots is not None and (votes.ballots == BALLOTS[[1, 2, 0]]).all()
    assert votes.num_teachers == 2
    order = np.array([2, 0, 1])
    other = named(ids=IDS[order], ballots=BALLOTS[order])
    assert other.fingerprint() == votes.fingerprint()
    counts = named(ballots=None, counts=COUNTS, num_teachers=2)
    assert counts.counts is not None and (counts.counts == COUNTS[[1, 2, 0]]).all()
    assert counts.fingerprint() != votes.fingerprint()


@pytest.mark.parametrize(
    "change", ["vote", "score", "form", "name", "id", "count", "teachers", "features", "feature"]
)
def test_the_fingerprint_is_of_everything(change: str) -> None:
    counts = {"ballots": None, "counts": COUNTS, "num_teachers": 2}
    flipped = BALLOTS.copy()
    flipped[0, 0, 0] ^= 1
    more = COUNTS.copy()
    more[0, 0] -= 1
    pairs: dict[str, tuple[NamedVotes, NamedVotes]] = {
        "vote": (named(), named(ballots=flipped)),
        "score": (scored(), scored(BALLOTS * 0.9)),
        "form": (named(), scored()),
        "name": (named(), named(label_names=("hat", "bald"))),
        "id": (named(), named(ids=np.array(["s3", "s1", "s9"]))),
        "count": (named(**counts), named(**(counts | {"counts": more}))),
        "teachers": (named(**counts), named(**(counts | {"num_teachers": 3}))),
        "features": (named(), named(features=FEATURES)),
        "feature": (named(features=FEATURES), named(features=FEATURES[::-1])),
    }
    before, after = pairs[change]
    assert before.fingerprint() != after.fingerprint()


MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"ids": np.array(["s1", "s1", "s2"])}, "ids that occur once, got twice=['s1']"),
    ({"ids": np.array([1.0, 2.0, 3.0])}, "ids that are texts or integers, got dtype='float64'"),
    ({"label_names": ("hat", "hat")}, "label_names that occur once, got twice=['hat']"),
    (
        {"ballots": BALLOTS[:2]},
        "ballots of shape [3, T, 2], as ids and label_names say, got shape=",
    ),
    ({"ballots": 2 * BALLOTS}, "ballots in {0, 1}, got values=[2]"),
    ({"ballots": BALLOTS.astype(np.str_)}, "ballots in {0, 1}, got dtype="),
    ({"num_teachers": 3}, "num_teachers=2, as in ballots, got num_teachers=3"),
    ({"scores": BALLOTS * 1.0}, "with num_teachers, got present=['ballots', 'scores']"),
    ({"ballots": None, "scores": BALLOTS}, "scores that are floats in [0, 1], got dtype='uint8'"),
    ({"ballots": None, "scores": BALLOTS * 1.01}, "in [0, 1], got minimum=0.0, maximum=1.01"),
    ({"ballots": None, "scores": np.where(BALLOTS, np.nan, 0)}, "or NaN all over from a teacher"),
    ({"ballots": None, "counts": COUNTS}, "num_teachers, the public number behind the counts"),
    ({"ballots": None, "counts": -COUNTS, "num_teachers": 4}, "counts in 0..4, got minimum=-2"),
    ({"ballots": None, "counts": COUNTS * 1.0, "num_teachers": 4}, "integer counts, got dtype="),
    ({"ballots": None, "counts": COUNTS, "num_teachers": 0}, "an integer num_teachers >= 1"),
    ({"features": FEATURES[:2]}, "features of shape [3, F], as ids say, got shape=(2, 2)"),
    ({"features": FEATURES * np.inf}, "finite features"),
]


@pytest.mark.parametrize(("changes", "message"), MALFORMED)
def test_malformed_votes_are_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as raised:
        named(**changes)
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_scores_are_kept_teacher_by_teacher() -> None:
    scores = BALLOTS * 0.5
    scores[:, 1] = np.nan
    votes = scored(scores)
    stored = votes.to_store(votes.kind)
    assert stored is not None
    np.testing.assert_array_equal(stored[0], 1 + 127 * BALLOTS[[1, 2, 0], 0])
    assert not stored[1].any()
    assert scored(scores.astype(np.float16)).fingerprint() == votes.fingerprint()
    np.testing.assert_array_equal(
        named().to_store(Scores), 1 + 254 * BALLOTS[[1, 2, 0]].swapaxes(0, 1)
    )
    assert scored(BALLOTS[:, 0] * 1.0).num_teachers == 1
    assert (Silos.of([named()]).kind, Silos.of([named(), votes]).kind) == (Ballots, Scores)


def test_a_file_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    for votes in (
        named(),
        scored(),
        named(ballots=None, counts=COUNTS, num_teachers=7),
        named(features=FEATURES),
    ):
        votes.save(tmp_path / "votes.npz")
        found = NamedVotes.read(tmp_path / "votes.npz")
        assert found.fingerprint() == votes.fingerprint()
        assert found.label_names == NAMES and found.num_teachers == votes.num_teachers


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_file_in_any_order_holds_the_same_ballots(
    save: Callable[..., None], order: Literal["C", "F"], tmp_path: Path
) -> None:
    generator = np.random.default_rng(5)
    ballots = generator.integers(0, 2, (50, 7, 11), dtype=np.uint8)
    given: dict[str, Any] = {
        "ids": generator.permutation(50),
        "label_names": np.char.mod("l%d", np.arange(11)),
    }
    save(tmp_path / "votes.npz", **given, ballots=np.asarray(ballots, order=order))
    packed, expected = NamedVotes.read(tmp_path / "votes.npz"), NamedVotes(**given, ballots=ballots)
    assert packed.num_teachers == 7 and packed.fingerprint() == expected.fingerprint()
    for kind in (Ballots, Scores):
        np.testing.assert_array_equal(packed.to_store(kind), expected.to_store(kind))
    known, theirs = (Silos.of([source]).members[0] for source in (tmp_path / "votes.npz", expected))
    assert (known.vote_sum_digest, known.kind) == (theirs.vote_sum_digest, Ballots)


def damage_nothing_there(path: Path) -> None:
    path.unlink()


def damage_pickles(path: Path) -> None:
    np.savez(path, ids=IDS.astype(object), label_names=np.array(NAMES), ballots=BALLOTS)


def damage_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def damage_no_names(path: Path) -> None:
    np.savez(path, ids=IDS, ballots=BALLOTS)


def damage_unknown(path: Path) -> None:
    np.savez(path, ids=IDS, label_names=np.array(NAMES), ballots=BALLOTS, ballot=BALLOTS)


def damage_teachers(path: Path) -> None:
    np.savez(path, ids=IDS, label_names=np.array(NAMES), counts=COUNTS, num_teachers=2.5)


def damage_value(path: Path) -> None:
    np.savez(path, ids=IDS, label_names=np.array(NAMES), ballots=3 * BALLOTS)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_nothing_there, "an .npz file of votes without pickled objects, got missing="),
        (damage_pickles, "an array of Python objects, which is never read"),
        (damage_cut, "an .npz file of votes without pickled objects in"),
        (damage_no_names, "missing=['label_names']"),
        (damage_unknown, "got ballot; did you mean ballots?"),
        (damage_teachers, "one integer num_teachers, got shape=(), dtype='float64'"),
        (damage_value, "ballots in {0, 1}, got values=[3]"),
    ],
)
def test_files_that_are_no_votes_are_one_line(
    damage: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "votes.npz"
    named().save(path)
    damage(path)
    with pytest.raises(ValueError) as raised:
        Silos.read(path)
    text = str(raised.value)
    assert message in text and "votes.npz" in text and "\n" not in text


def test_silos_are_joined_by_the_order_of_their_files(tmp_path: Path) -> None:
    one = named(ballots=BALLOTS[:, 0])  # one teacher, [N, C]
    order = np.array([1, 2, 0])
    other = named(ids=IDS[order], ballots=BALLOTS[order, 1:])
    counted = named(ballots=None, counts=COUNTS, num_teachers=5)
    for name, silo in (("b.npz", other), ("a.npz", one), ("c.npz", counted)):
        silo.save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no votes")
    (tmp_path / ".a.npz").write_bytes(b"what a file manager left")
    found = Silos.read(tmp_path)
    assert [silo.fingerprint for silo in found.members] == [
        silo.fingerprint() for silo in (one, other, counted)
    ]
    assert [silo.votes().fingerprint() for silo in found.members] == [
        silo.fingerprint for silo in found.members
    ]
    assert found.num_teachers == 7
    other.save(tmp_path / "a.npz")
    with pytest.raises(
        ValueError, match=r"^Expected the votes that .*a\.npz held when this command began, got"
    ):
        found.members[0].votes()


# Counts on disk


def store_of(folder: Path) -> VoteStore:
    """Two teachers with ballots, and five of whom only counts are known."""
    store = VoteStore(folder)
    packed = named().to_store(Ballots)
    assert packed is not None
    store.save_chunk(range(2), packed)
    store.save_counts(range(2, 7), COUNTS[[1, 2, 0]])
    store.write_manifest(ids=["s1", "s2", "s3"], label_names=NAMES, num_teachers=7, made_by={})
    return store


def test_counts_and_ballots_add_up(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    votes, ids = store.load(Counts)
    assert ids == ["s1", "s2", "s3"] and votes.num_teachers == 7
    assert (votes.counts == 2 * COUNTS[[1, 2, 0]]).all()
    some, ids = store.load(Counts, rows=np.array([2, 0]))
    assert ids == ["s3", "s1"] and (some.counts == 2 * COUNTS[[0, 1]]).all()
    assert store.manifest().kind is Counts
    with pytest.raises(ValueError, match=r"^Expected votes that are Ballots, got votes='Counts'$"):
        store.load(Ballots)
    store.check()
