"""What is true of all aggregators together."""

import inspect
import math
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, ndtr, ndtri

import pate.aggregators
from pate import Votes, VoteShape
from pate._labeling.votes.kinds import Counts
from pate.accounting import NeighboringRelation, Target
from pate.aggregators import (
    Aggregator,
    FixedStableTopK,
    LimitedDomainTopK,
    NoisyVotes,
    Peeling,
    Rounds,
    StableTopK,
)
from tests.labeling.aggregators.test_of_mechanism import is_its_mechanism

EXPORTED = [getattr(pate.aggregators, name) for name in dir(pate.aggregators)]
CLASSES = [cls for cls in EXPORTED if inspect.isclass(cls) and issubclass(cls, Aggregator)]
CONCRETE = [cls for cls in CLASSES if not inspect.isabstract(cls)]


def test_no_two_aggregators_share_the_name_of_a_noise_parameter() -> None:
    for first, second in combinations(CONCRETE, 2):
        if issubclass(first, second) or issubclass(second, first):
            continue  # the same mechanism, of other voters
        assert not set(first.noise_parameters) & set(second.noise_parameters)


@pytest.mark.parametrize("cls", CONCRETE)
def test_every_aggregator_keeps_the_contract(cls: type[Aggregator]) -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    # one that is its mechanism has the mechanism's contract
    assert is_its_mechanism(cls) or f"return {cls.__name__}(" in tests


@pytest.mark.parametrize("seed", [0, None])
def test_a_seed_is_no_generator(seed: Any) -> None:
    told = r"^Expected a generator such as pate.private_generator\(\), got generator="
    votes = Counts(counts=np.array([[5, 3, 1]]), num_teachers=9)
    with pytest.raises(ValueError, match=told):
        NoisyVotes(sigma_votes=1.0).aggregate(votes, generator=seed)


def test_noise_that_may_be_infinite_is_refused() -> None:
    assert NoisyVotes(sigma_votes=1e300).noise == {"sigma_votes": 1e300}
    for scale in (1.1e300, 1e-310):
        with pytest.raises(ValueError) as raised:
            NoisyVotes(sigma_votes=scale)
        expected = f"Expected 1e-300 <= sigma_votes <= 1e+300, got sigma_votes={scale!r}"
        assert str(raised.value) == expected


STABLE: dict[str, Any] = {"scale_gap": 2.0, "sigma_test": 9.0, "delta_test": 1e-4}
FIXED: dict[str, Any] = {f"{name}_fixed": scale for name, scale in STABLE.items()} | {
    "scale_peel_fixed": 1.0
}
LIMITED = LimitedDomainTopK(k=1, kbar=2, scale_domain=4.0, delta_domain=1e-4)
ANSWERED: dict[str, tuple[Aggregator, float]] = {
    "counts": (NoisyVotes(sigma_votes=10.0), 1.0),
    "sets": (Peeling(k=2, scale_peel=1.0), 1.0),
    "leads": (NoisyVotes(sigma_votes=10.0, min_lead=15.0), float(ndtr(0.5) + ndtr(-3.5))),
    "gaps": (StableTopK(**STABLE), float(ndtr(38 / 9 + ndtri(1e-4)))),
    "fixed": (FixedStableTopK(k=2, rank_penalty=0.0, **FIXED), float(ndtr(38 / 9 + ndtri(1e-4)))),
    "fallback": (FixedStableTopK(k=2, rank_penalty=0.0, fallback=True, **FIXED), 1.0),
    "domain": (LIMITED, float(expit(38 / 4 + math.log(1e-4)))),
    "rounds": (
        Rounds(rounds=(NoisyVotes(sigma_votes=10.0), LIMITED)),
        float(expit(38 / 4 + math.log(1e-4))),
    ),
}


@pytest.mark.parametrize("kind", ANSWERED)
def test_most_is_answered_of_teachers_of_one_mind(kind: str) -> None:
    """Forty of them give two labels of four; as often as is said, and as in closed form."""
    aggregator, expected = ANSWERED[kind]
    most = aggregator.max_answer_probability(VoteShape(40, 4))
    assert most == pytest.approx(expected, rel=1e-9)
    votes = replace(
        Votes.from_counts(np.tile([40, 40, 0, 0], (2000, 1)), 40), features=np.zeros((2000, 1))
    )
    answered = (
        aggregator.aggregate(votes, generator=np.random.default_rng(0)).mask.any(axis=1).mean()
    )
    if kind != "leads":  # one label by one
        assert abs(answered - most) <= 4 * math.sqrt(most * (1 - most) / 2000)


@pytest.mark.parametrize("epsilon", [0.1, 0.7, 3.0])
def test_noise_is_a_millionth_more_than_is_needed_at_most(epsilon: float) -> None:
    target = Target(
        epsilon=epsilon,
        delta=1e-6,
        num_queries=7,
        neighboring_relation=NeighboringRelation.REPLACE_RECORD,
    )
    noisy, shape = NoisyVotes(sigma_votes=1.0), VoteShape(40, 4)
    found, least = noisy.calibrated(target, shape), noisy.calibrated(target, shape, tolerance=1e-12)
    assert found is not None and least is not None
    assert 1 <= found.sigma_votes / least.sigma_votes <= 1 + 1e-6
