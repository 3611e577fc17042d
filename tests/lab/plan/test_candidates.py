"""What is compared: proposals, and with variants every other form of them that their classes
declare."""

from collections import Counter
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest

from pate import Outlook, VoteShape
from pate._labeling.release.completion import one_change_variants
from pate.accounting import NeighboringRelation
from pate.aggregators import (
    Aggregator,
    NoisyVotes,
    Peeling,
    Rounds,
    StableTopK,
    TauVoting,
    TopStableTopK,
)
from pate.lab.plan.frontier import Comparison, candidates, frontier
from pate.lab.plan.sources import Simulation, simulated

OUTLOOK = Outlook(
    shape=VoteShape(60, 6),
    num_queries=9,
    delta=1e-5,
    relation=NeighboringRelation.ADD_REMOVE_TEACHER,
    labels_per_sample=2,
)


def changed(form: Aggregator, proposal: Aggregator) -> dict[str, Any]:
    return {
        each.name: getattr(form, each.name)
        for each in fields(form)
        if getattr(form, each.name) != getattr(proposal, each.name)
    }


@pytest.mark.slow
def test_every_form_is_compared_once_and_has_a_name_of_its_own() -> None:
    found = candidates(OUTLOOK, variants=True)
    proposed = [each for _, _, each in candidates(OUTLOOK)]
    assert [each for _, _, each in found if each in proposed] == proposed
    assert max(Counter(name for name, _, _ in found).values()) == 1
    assert all(
        left != right for i, (_, _, left) in enumerate(found) for _, _, right in found[i + 1 :]
    )
    names = {name: family for name, family, _ in found}
    for name, family in {
        "StableTopK, noise_law=laplace": "StableTopK",
        "StableTopK, test_law=laplace": "StableTopK",
        "StableTopK, kbar=4": "StableTopK",
        "FixedStableTopK (k=2, fallback), scale_noise_with_rounds=True": "FixedStableTopK",
        "Peeling (k=2), noise_law=half_logistic": "Peeling",
        "PeeledVotes (k=2), soft=True": "PeeledVotes",
        "Canonical (k=2), loss=published": "Canonical",
        "Joint (k=2), noise_law=exponential": "Joint",
        "ConfidentScreen (NoisyVotes), over=worst": "ConfidentScreen",
        "Rounds (ClippedVotes, TauVoting (around a student)), soft=False": "TauVoting",
        "Rounds (ClippedVotes, ClippedVotes (around a student))": "Rounds",
    }.items():
        assert names[name] == family
    # proposed for all others
    gaussian = {family for name, family in names.items() if "noise_law=gaussian" in name}
    assert gaussian == {"FixedStableTopK"}
    assert {each.neighboring_relation for _, _, each in found} == {OUTLOOK.relation}


def test_a_form_differs_in_one_field() -> None:
    classes: tuple[type[Aggregator], ...] = (StableTopK, TopStableTopK, Peeling)
    for proposal in (proposal for cls in classes for proposal in cls.proposals(OUTLOOK)):
        others = one_change_variants(proposal, OUTLOOK)
        assert others
        for name, form in others.items():
            ((field, value),) = changed(form, proposal).items()
            assert name == f"{field}={value}" and form.noise == proposal.noise


def test_forms_of_a_list_follow_what_is_listed() -> None:
    relation = NeighboringRelation.REPLACE_RECORD  # another one than that of the outlook
    noisy = NoisyVotes(sigma_votes=1.0)
    tau = TauVoting(tau=1.5, sigma_tau=1.0, threshold_tau=30.0, around_predictions=True)
    found = candidates(OUTLOOK, [noisy, tau], variants=True)
    assert [name for name, _, _ in found] == [
        "NoisyVotes",
        "NoisyVotes, soft=False",
        "Rounds (ClippedVotes, TauVoting (around a student))",
        "Rounds (ClippedVotes, TauVoting (around a student)), soft=False",
    ]
    last = found[-1].aggregator
    assert (
        isinstance(last, Rounds)
        and isinstance(last.rounds[-1], TauVoting)
        and not last.rounds[-1].soft
    )
    assert {each.neighboring_relation for _, _, each in found} == {relation}
    # what is listed is no variant too
    both = candidates(OUTLOOK, [noisy, replace(noisy, soft=False)], variants=True)
    assert [name for name, _, _ in both] == ["NoisyVotes", "NoisyVotes (hard)"]


def test_what_the_panel_or_the_outlook_does_not_allow_is_no_form() -> None:
    stable, _ = StableTopK.proposals(OUTLOOK)
    single = replace(OUTLOOK, shape=VoteShape(60, 1), labels_per_sample=1)
    assert (
        "allow_empty=False"
        in one_change_variants(stable, OUTLOOK).keys() - one_change_variants(stable, single).keys()
    )
    assert not [name for name in one_change_variants(stable, single) if name.startswith("kbar")]
    assert (
        "kbar=4"
        in one_change_variants(stable, OUTLOOK).keys()
        - one_change_variants(stable, replace(OUTLOOK, labels_per_sample=None)).keys()
    )


def test_another_package_says_what_its_forms_are() -> None:
    """Nothing, unless it says so; and what it says is called as it is here."""

    @dataclass(frozen=True, kw_only=True)
    class Outside(NoisyVotes):
        weight: float = 1.0

        @classmethod
        def variants(cls, outlook: Outlook) -> dict[str, tuple[Any, ...]]:
            return {"weight": (0.5, 1.0)}

    found = candidates(OUTLOOK, [Outside(sigma_votes=1.0)], variants=True)
    assert [(name, family) for name, family, _ in found] == [
        ("Outside", "Outside"),
        ("Outside, weight=0.5", "Outside"),
    ]


def test_a_comparison_shows_the_forms() -> None:
    task = simulated(Simulation(num_labels=3, num_teachers=60, num_public=40, num_features=6))
    peeling = Peeling(k=1, scale_peel=1.0)
    comparison = Comparison(epsilons=(8.0,), num_queries=40, seeds=1, variants=True)
    found = frontier(task, comparison, [peeling])
    names = ["Peeling (k=1)"]
    names += [
        f"Peeling (k=1), noise_law={law}"
        for law in ("exponential", "laplace", "logistic", "half_logistic")
    ]
    assert [point["aggregator"] for point in found.rows] == names
    assert found.families == dict.fromkeys(names, "Peeling")
    # all but Gumbel noise cost pure epsilon
    assert len({point["parameters"] for point in found.rows}) == 2
    assert np.allclose([point["epsilon"] for point in found.rows], 8, rtol=2e-3)
    plain = frontier(task, replace(comparison, variants=False), [peeling])
    assert plain.rows == found.rows[:1] and not plain.families
