"""Aggregators that see public features of the queries: who is given them, and what is said where
there are none."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from pate import Votes, VoteShape
from pate._labeling.aggregators.base import features_of
from pate._labeling.release.labels import rehearse
from pate._labeling.testing.aggregators import Law
from pate.accounting import NeighboringRelation
from pate.aggregators import ConfidentScreen, Counts, Need, NoisyVotes, Release
from pate.testing import AggregatorContract
from tests.labeling.aggregators.oracles import counts, gaussian_labels_law


@dataclass(frozen=True, kw_only=True)
class VotesWhereKnown(NoisyVotes):
    """Noisy votes on the queries whose first feature is above 0; the others deny every label, at
    the same cost."""

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({Counts, "features"})

    def aggregate(self, votes: Counts, *, generator: np.random.Generator) -> Release:
        known = features_of(votes)[:, 0] > 0
        release = super().aggregate(votes, generator=generator)
        return release._replace(labels=release.labels * known[:, None].astype(np.uint8))


@pytest.mark.parametrize("feature", [1.0, -1.0])
def test_the_law_may_follow_the_features(feature: float) -> None:
    class Known(AggregatorContract):
        features = (feature, 7.0)

        def make(self, relation: NeighboringRelation) -> VotesWhereKnown:
            return VotesWhereKnown(sigma_votes=1.5, neighboring_relation=relation)

        def law(self, votes: Counts, relation: NeighboringRelation) -> Law:
            if features_of(votes)[0, 0] <= 0:
                return {(0, 0, 1, 1, 0): 1.0}
            return gaussian_labels_law([h - votes.num_teachers / 2 for h in counts(votes)], 1.5)

        def malformed(self) -> list[dict[str, Any]]:
            return []

    contract = Known()
    contract.test_release_follows_the_law()
    contract.test_queries_of_a_batch_are_independent()
    contract.test_proposals_can_be_run(NeighboringRelation.ADD_REMOVE_TEACHER)
    contract.test_votes_that_lack_what_is_needed_are_refused()


def test_a_screen_asks_for_what_its_answers_need() -> None:
    answers = VotesWhereKnown(sigma_votes=1.0)
    screen = ConfidentScreen(answers=answers, sigma_confident=1.0, threshold_confident=2.0)
    assert "features" in screen.needs - replace(screen, answers=NoisyVotes(sigma_votes=1.0)).needs
    votes = Votes.from_counts(np.ones((2, 3), dtype=np.int64), 8)
    rehearse(screen, VoteShape(8, 3), like=votes.with_public(features=np.ones((2, 5))))
    with pytest.raises(
        ValueError, match=r"^Expected votes with the public features of their queries, got none$"
    ):
        rehearse(screen, VoteShape(8, 3))
