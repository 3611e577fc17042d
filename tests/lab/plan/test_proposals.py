"""The aggregators propose themselves to the frontier."""

from dataclasses import replace

import numpy as np
import pytest

from pate import Outlook, Votes, VoteShape
from pate.accounting import NeighboringRelation
from pate.aggregators import (
    InteractiveScreen,
    NoisyVotes,
    Rounds,
    SiloVotes,
    registered,
)
from pate.lab.plan.frontier import candidates
from tests.labeling.aggregators.test_package import CONCRETE


@pytest.mark.slow
def test_names_tell_aggregators_apart() -> None:
    votes = Votes.from_counts(np.full((9, 5), 12), 60)
    outlook = Outlook.of(votes, delta=1e-5, relation=NeighboringRelation.REPLACE_RECORD)
    names = [each.display_name for _, _, each in candidates(outlook)]
    assert len(names) == len(set(names))
    noisy = NoisyVotes(sigma_votes=1.0)
    screen = InteractiveScreen(answers=noisy, sigma_interactive=1.0, threshold_interactive=3.0)
    assert screen.display_name == "InteractiveScreen (NoisyVotes)"


@pytest.mark.slow
def test_every_aggregator_is_registered_and_proposes_itself() -> None:
    outlook = Outlook(
        shape=VoteShape(60, 5),
        num_queries=9,
        delta=1e-5,
        relation=NeighboringRelation.ADD_REMOVE_TEACHER,
        labels_per_sample=2,
    )
    proposed = [each for _, _, each in candidates(outlook)]
    # what needs predictions comes as the last of two rounds
    proposers = {type(each) for each in proposed} | {
        type(each.rounds[-1]) for each in proposed if isinstance(each, Rounds)
    }
    # silos are named by `--silos`
    assert proposers == set(registered().values()) == set(CONCRETE) - {SiloVotes}
    assert not any("predictions" in each.needs for each in proposed)
    assert {each.neighboring_relation for each in proposed} == {outlook.relation}
    wide = [
        each
        for _, _, each in candidates(
            replace(outlook, shape=VoteShape(60, 65), labels_per_sample=65)
        )
    ]
    assert not {type(each).__name__ for each in wide} & {"Canonical", "Powerset"}
    with pytest.raises(
        ValueError, match=r"k \(`aggregator\.k`\), which follows from how many labels"
    ):
        candidates(replace(outlook, labels_per_sample=None))
