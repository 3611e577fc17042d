"""What is true of all aggregators together."""

import inspect
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import pate.aggregators
from pate._planning.outlook import Outlook
from pate._planning.proposals import propose, title
from pate._votes import Panel, Votes
from pate.accounting._relation import NeighboringRelation
from pate.aggregators import Aggregator, InteractiveScreen, NoisyVotes, Rounds, registered

EXPORTED = list(vars(pate.aggregators).values())
CLASSES = [cls for cls in EXPORTED if inspect.isclass(cls) and issubclass(cls, Aggregator)]
CONCRETE = [cls for cls in CLASSES if not inspect.isabstract(cls)]


def test_no_two_aggregators_share_the_name_of_a_noise_parameter() -> None:
    for first, second in combinations(CONCRETE, 2):
        assert not set(first.noise_parameters) & set(second.noise_parameters)


@pytest.mark.parametrize("cls", CONCRETE)
def test_a_docstring_says_when_to_choose_it_and_what_it_guarantees(cls: type[Aggregator]) -> None:
    text = inspect.getdoc(cls) or ""
    for word in ("Choose it", "Privacy:", "REPLACE_RECORD", "Args:", "Raises:", "neighboring_relation:"):
        assert word in text or (word == "REPLACE_RECORD" and "That of `NoisyVotes`" in text.replace("that", "That"))


@pytest.mark.parametrize("cls", CONCRETE)
def test_every_aggregator_keeps_the_contract(cls: type[Aggregator]) -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert f"return {cls.__name__}(" in tests


@pytest.mark.slow
def test_names_tell_aggregators_apart() -> None:
    votes = Votes.from_counts(np.full((9, 5), 12), 60)
    outlook = Outlook.of(votes, delta=1e-5, relation=NeighboringRelation.REPLACE_RECORD)
    names = [title(each) for each in propose(outlook)]
    assert len(names) == len(set(names))
    noisy = NoisyVotes(sigma_votes=1.0)
    screen = InteractiveScreen(answers=noisy, sigma_interactive=1.0, threshold_interactive=3.0)
    assert title(screen) == "InteractiveScreen (NoisyVotes)"


@pytest.mark.slow
def test_every_aggregator_is_registered_and_proposes_itself() -> None:
    outlook = Outlook(
        panel=Panel(60, 5),
        num_queries=9,
        delta=1e-5,
        relation=NeighboringRelation.ADD_REMOVE_TEACHER,
        labels_per_sample=2,
    )
    proposed = propose(outlook)
    # what needs predictions comes as the last of two rounds
    proposers = {type(each) for each in proposed} | {
        type(each.rounds[-1]) for each in proposed if isinstance(each, Rounds)
    }
    assert proposers == set(registered().values()) == set(CONCRETE)
    assert not any(each.needs_predictions for each in proposed)
    assert {each.neighboring_relation for each in proposed} == {outlook.relation}
    wide = propose(replace(outlook, panel=Panel(60, 65), labels_per_sample=65))
    assert not {type(each).__name__ for each in wide} & {"Canonical", "Powerset"}
    with pytest.raises(ValueError, match=r"k \(--aggregator\.k\), which follows from how many labels"):
        propose(replace(outlook, labels_per_sample=None))


def test_noise_that_may_be_infinite_is_refused() -> None:
    assert NoisyVotes(sigma_votes=1e300).noise == {"sigma_votes": 1e300}
    with pytest.raises(ValueError, match=r"^Expected sigma_votes <= 1e\+300, got sigma_votes=1e\+301$"):
        NoisyVotes(sigma_votes=1e301)
