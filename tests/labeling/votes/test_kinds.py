from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import numpy as np
import pytest

from pate import Votes, VoteShape
from pate._labeling.votes.kinds import pack_ballots, unpack_ballots
from pate.aggregators import (
    Aggregator,
    Ballots,
    ClippedVotes,
    ConfidentScreen,
    Counts,
    Geometry,
    MaskedTotal,
    Moments,
    NoisyVotes,
    Peeling,
    RecordVoters,
    Rounds,
    Scores,
    ScoreVoters,
    ScoreVotes,
    SiloVotes,
    TauVoting,
)


def test_packing_keeps_every_vote() -> None:
    ballots = np.random.default_rng(0).integers(0, 2, size=(5, 7, 11)).astype(np.bool_)
    packed = pack_ballots(ballots)
    assert packed.shape == (5, 7, 2)
    assert (unpack_ballots(packed, 11) == ballots).all()


def test_teachers_are_voters_by_their_ballots() -> None:
    generator = np.random.default_rng(1)
    ballots, features = (
        generator.integers(0, 2, size=(9, 6, 4)).astype(np.uint8),
        generator.normal(size=(9, 3)),
    )
    votes = Votes.from_ballots(ballots).with_public(features=features)
    assert isinstance(votes.voters, ScoreVoters)
    np.testing.assert_array_equal(votes.voters.scores[0], 1 + 254 * ballots.swapaxes(0, 1))
    assert votes.voters.num_voters == 6
    np.testing.assert_array_equal(votes.voters.geometry.samples, Geometry.of(features).samples)
    # of a part, the voters learn from all queries
    assert votes[:0].voters is votes.voters and votes[2:][np.array([1])].num_queries == 1
    with pytest.raises(ValueError, match=r"^Expected votes with the public features[^\n]*$"):
        _ = Votes.from_ballots(ballots).voters


class Sum:
    identity = "a sum"

    def open(self) -> NoReturn:
        raise AssertionError("opened")


def one_of_each_kind() -> dict[type[Votes], Votes]:
    """Unanimous votes of six teachers for both labels of three samples, with side information."""
    ballots, features = np.ones((3, 6, 2), dtype=np.uint8), np.eye(3)
    models = ScoreVoters.of((np.full((6, 3, 2), 255, dtype=np.uint8),), features)
    records = RecordVoters(
        geometry=models.geometry,
        num_voters=6,
        num_labels=2,
        coordinates=np.repeat(models.geometry.samples, 2, axis=0),
        labels=np.ones((6, 2), dtype=np.uint8),
    )
    made = (
        Votes.from_counts(ballots.sum(axis=1, dtype=np.int64), 6),
        Votes.from_ballots(ballots),
        Votes.from_voters(models, features),
        Votes.from_voters(records, features),
        Votes.from_total(Sum(), 3, VoteShape(6, 2)),
    )
    known: dict[str, Any] = {"predictions": np.ones((3, 2)), "features": features}
    return {type(votes): votes.with_public(**known) for votes in made}


def test_no_kind_has_counts_that_are_not_known() -> None:
    kinds = one_of_each_kind()
    assert [*kinds] == [*Votes.kinds.values()]
    assert {kind for kind, votes in kinds.items() if hasattr(votes, "counts")} == {Counts, Ballots}
    assert {votes.shape for votes in kinds.values()} == {VoteShape(6, 2)}
    assert {votes.num_queries for votes in kinds.values()} == {3}
    with pytest.raises(TypeError, match="abstract"):
        Votes()  # type: ignore[abstract]


NOISY, CLIPPED = NoisyVotes(sigma_votes=0.1), ClippedVotes(multiplier_clipped=0.1)
SCORES, SILOS = ScoreVotes(multiplier_scores=0.1), SiloVotes(sigma_silos=0.1, silos=3)
SCREEN: dict[str, Any] = {"sigma_confident": 0.1, "threshold_confident": 1.0}


@pytest.mark.parametrize(
    ("aggregator", "takes"),
    [
        (NOISY, (Counts, Ballots)),
        (Peeling(k=1, scale_peel=0.1), (Counts, Ballots)),
        (CLIPPED, (Ballots,)),
        (TauVoting(tau=1.0, sigma_tau=0.1, threshold_tau=3.0), (Ballots,)),
        (SCORES, (Ballots, Scores, Moments)),
        (SILOS, (Counts, Ballots, MaskedTotal)),
        (Rounds(rounds=(SCORES, SCORES)), (Ballots, Scores, Moments)),
        (Rounds(rounds=(SCORES, NOISY)), (Ballots,)),
        (Rounds(rounds=(SILOS, SILOS)), (Counts, Ballots)),
        (Rounds(rounds=(SILOS,)), (Counts, Ballots, MaskedTotal)),
        (ConfidentScreen(answers=SILOS, **SCREEN), (Counts, Ballots)),
        (ConfidentScreen(answers=CLIPPED, **SCREEN), (Ballots,)),
        (ConfidentScreen(answers=SCORES, **SCREEN), (Ballots,)),
    ],
)
def test_an_aggregator_takes_its_kinds_and_refuses_all_others(
    aggregator: Aggregator, takes: tuple[type[Votes], ...]
) -> None:
    """A part of a composite is asked before the first noise is drawn."""
    for kind, votes in one_of_each_kind().items():
        if kind in takes:
            aggregator.require_kind(kind)
            continue
        generator, words = np.random.default_rng(0), " or ".join(each.__name__ for each in takes)
        message = f"Expected votes that are {words}, which {type(aggregator).__name__} takes"
        if kind is Moments and Ballots in takes:
            message += " (`start_from: first` makes Ballots)"
        for refused in (
            partial(aggregator.aggregate, votes, generator=generator),
            partial(aggregator.require_kind, kind),
        ):
            with pytest.raises(ValueError) as raised:
                refused()
            assert str(raised.value) == f"{message}, got votes={kind.__name__!r}"
        assert generator.random() == np.random.default_rng(0).random()


@pytest.mark.parametrize("name", ["predictions", "features"])
def test_side_information_that_is_needed_is_asked_for_first(name: str) -> None:
    around = replace(CLIPPED, around_predictions=True)
    missing: dict[str, Any] = {name: None}
    aggregator: Aggregator = around if name == "predictions" else Rounds(rounds=(NOISY, around))
    votes = replace(one_of_each_kind()[Ballots], **missing)
    generator = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"^Expected votes with [^\n]*, got none$"):
        aggregator.aggregate(votes, generator=generator)
    assert generator.random() == np.random.default_rng(0).random()


def test_more_teachers_than_floats_count_are_refused() -> None:
    """A distance from a tie of 2^62 of them would overflow, and noise on counts of 2^53 would be
    rounded."""
    Votes.from_counts([[2**53 - 1]], 2**53 - 1)
    for teachers in (2**53, 2**62):
        with pytest.raises(
            ValueError, match=rf"^Expected num_teachers < 2\^53, got num_teachers={teachers}$"
        ):
            Votes.from_counts([[5]], teachers)
