"""What an aggregator refuses is refused before any vote is read."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate import LabelSettings, Votes, VoteShape
from pate._labeling.release.forecast import refuse_hopeless
from pate._labeling.release.labels import rehearse
from pate._labeling.runs.vote_store import VoteFacts
from pate.aggregators import (
    Aggregator,
    Ballots,
    ConfidentScreen,
    FixedStableTopK,
    InteractiveScreen,
    LimitedDomainTopK,
    Need,
    NoisyVotes,
    Release,
    Rounds,
    StableTopK,
    TopStableTopK,
)


def test_votes_are_made_up_and_noise_is_nobodys() -> None:
    """Each number of queries that a screen may leave is tried."""
    seen: list[Any] = []

    class Watched(NoisyVotes):
        def aggregate(self, votes: Any, *, generator: np.random.Generator) -> Release:
            key = generator.bit_generator.state["state"]["key"].tolist()
            seen.append((votes.num_queries, votes.counts.tolist(), key))
            return super().aggregate(votes, generator=generator)

    rehearse(Watched(sigma_votes=1.0), VoteShape(8, 3))
    assert [queries for queries, _, _ in seen] == [0, 1, 7]
    assert seen[-1][1] == [
        [0, 0, 0],
        [8, 8, 8],
        [4, 4, 4],
        [4, 3, 4],
        [4, 3, 2],
        [8, 3, 0],
        [8, 3, 0],
    ]
    assert {tuple(key) for _, _, key in seen} == {(0, 0)}

    class Counted(Watched):
        @property
        def needs(self) -> frozenset[Need]:
            return frozenset({Ballots})

        def aggregate(self, votes: Any, *, generator: np.random.Generator) -> Release:
            assert votes.ballots.shape == (votes.num_queries, 8, 3)
            np.testing.assert_array_equal(votes.ballots.sum(axis=1), votes.counts)
            return super().aggregate(votes, generator=generator)

    rehearse(Counted(sigma_votes=1.0), VoteShape(8, 3))
    # more labels than half of the teachers
    rehearse(Watched(sigma_votes=1.0), VoteShape(4, 5))
    assert seen[-1][1][4:] == [[2, 1, 0, 0, 0], [4, 1, 2, 1, 0], [4, 1, 0, 0, 0]]


@pytest.mark.parametrize("noise_std", [None, 0.0, -1.0, np.nan])
def test_counts_without_a_deviation_of_their_noise_are_refused(noise_std: float | None) -> None:
    class Untold(NoisyVotes):
        def aggregate(self, votes: Any, *, generator: np.random.Generator) -> Release:
            return super().aggregate(votes, generator=generator)._replace(noise_std=noise_std)

    with pytest.raises(
        ValueError, match=r"^Expected noise_std > 0, of noisy counts, got noise_std="
    ):
        rehearse(Untold(sigma_votes=1.0), VoteShape(8, 3))


STABLE = StableTopK(scale_gap=1.0, sigma_test=3.0, delta_test=1e-6)
FIXED: dict[str, Any] = {"scale_gap_fixed": 1.0, "sigma_test_fixed": 3.0, "delta_test_fixed": 1e-6}
LISTED: dict[str, Any] = {
    "scale_threshold_stable": 1.0,
    "scale_gap_stable": 1.0,
    "scale_peel_stable": 1.0,
}
NOISY = NoisyVotes(sigma_votes=1.0)
HOPELESS: list[Aggregator] = [
    STABLE,
    replace(STABLE, noise_law="gaussian"),
    FixedStableTopK(k=2, rank_penalty=0.5, scale_peel_fixed=1.0, **FIXED),
    LimitedDomainTopK(k=1, kbar=2, scale_domain=1.0, delta_domain=1e-6),
    TopStableTopK(k=1, kbar=2, delta_stable=1e-6, **LISTED),
    NoisyVotes(sigma_votes=1.0, soft=False, min_lead=7.0),
    ConfidentScreen(answers=NOISY, sigma_confident=1.0, threshold_confident=7.0),
    Rounds(rounds=(NOISY, STABLE)),
    InteractiveScreen(answers=STABLE, sigma_interactive=1.0, threshold_interactive=2),
]


@pytest.mark.parametrize("aggregator", HOPELESS, ids=lambda each: type(each).__name__)
def test_what_no_votes_would_have_answered_is_refused(aggregator: Aggregator) -> None:
    ids = np.array([f"r{row}" for row in range(7)])
    votes = VoteFacts(ids=ids, label_names="abc", num_teachers=10, kind=Ballots)
    predictions = Path("of a student.npz") if "predictions" in aggregator.needs else None
    settings = LabelSettings(aggregator, delta=1e-3, predictions=predictions)
    with pytest.raises(ValueError) as caught:
        refuse_hopeless(settings, votes)
    assert str(caught.value).startswith(
        "Expected at least 10% of the queries answered where all 10 teachers agree, by less noise than "
    )
    first = next(iter(aggregator.noise))
    assert first in str(caught.value) and "\n" not in str(caught.value)
    # of a tenth of the noise, and lower thresholds, nothing is refused
    lower: dict[str, Any] = (
        {"threshold_confident": 3.0} if isinstance(aggregator, ConfidentScreen) else {}
    )
    lower |= {"min_lead": 3.0} if isinstance(aggregator, NoisyVotes) else {}
    enough = replace(aggregator.scaled(0.1), **lower)
    refuse_hopeless(replace(settings, aggregator=enough), votes)


@pytest.mark.parametrize(
    "aggregator",
    [each for each in HOPELESS if each.needs.isdisjoint({"predictions", "features"})],
    ids=lambda each: type(each).__name__,
)
@pytest.mark.parametrize("noise", [0.45, 0.6])
def test_no_votes_are_answered_more_often_than_is_said(
    aggregator: Aggregator, noise: float
) -> None:
    """Votes of every kind, all labels of a query counted as one answer."""
    aggregator, shape, draws = aggregator.scaled(noise), VoteShape(10, 3), 400
    bound, most = aggregator.max_answer_probability(shape), 0.0
    for counts in ([10, 10, 10], [10, 10, 0], [10, 0, 0], [0, 0, 0], [10, 5, 0], [7, 7, 2]):
        release = aggregator.aggregate(
            Votes.from_counts(np.tile(counts, (draws, 1)), 10), generator=np.random.default_rng(0)
        )
        shares = (
            release.mask.mean(axis=0)
            if isinstance(aggregator, NoisyVotes)
            else [release.mask.any(axis=1).mean()]
        )
        most = max(most, *shares)
    assert most <= bound + 4 * (bound * (1 - bound) / draws) ** 0.5 + 1e-3


def test_answers_that_are_always_given_are_never_refused() -> None:
    fixed = next(each for each in HOPELESS if isinstance(each, FixedStableTopK))
    assert replace(fixed, fallback=True).max_answer_probability(VoteShape(10, 3)) == 1
    rehearse(NoisyVotes(sigma_votes=1e6), VoteShape(10, 3))
