"""How far apart counts must lie for an aggregator to answer as without noise, and noise split to narrow that gap."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from pate._validation import require, require_in_open_unit_interval
from pate._votes import VoteShape
from pate.accounting._calibration import COARSE_ORDERS, Target
from pate.aggregators import Aggregator, NoisyVotes, Powerset, StableTopK
from pate.aggregators._top_k import LabelSets
from pate.mechanisms._success import gap_for_answer, gap_for_top_k


class Gap(NamedTuple):
    """How far apart counts must lie for an aggregator to give the same answer as without noise."""

    votes: float
    """The gap that a query needs, in votes."""
    available: float
    """The largest gap that the teachers can produce, in votes."""
    meaning: str
    """The sentence that explains it to a user, without the probability at its end."""


@singledispatch
def gap_needed(aggregator: Aggregator, shape: VoteShape, *, probability: float) -> Gap | None:
    """Return the gap at which a query is answered as without noise with the given probability, in (0, 1).

    Of classes of other packages it is what their own ``gap_needed(shape, probability=)`` returns.
    None where none is predicted.
    """
    predict = getattr(aggregator, "gap_needed", None)
    gap: Gap | None = None if predict is None else predict(shape, probability=probability)
    return gap


@gap_needed.register
def _(aggregator: NoisyVotes, shape: VoteShape, *, probability: float) -> Gap:
    # how far a count must lie from half of the teachers for its label to survive the noise
    votes = max(aggregator.min_lead + aggregator.sigma_votes * float(ndtri(probability)), 0.0)
    tie = shape.num_teachers / 2
    return Gap(votes, tie, f"A count {votes:.1f} votes away from {tie:g} keeps its label")


@gap_needed.register(LabelSets)
def _(aggregator: LabelSets[Any], shape: VoteShape, *, probability: float) -> Gap:
    # below the k-th count, whatever the others are
    votes = gap_for_top_k(
        aggregator.mechanism(shape), probability=probability, num_items=shape.num_labels
    )
    between = f"between the {aggregator.k} most voted labels and the others"
    meaning = f"A gap of {votes:.1f} votes {between} is what a query needs to be answered as without noise,"
    return Gap(votes, shape.num_teachers, meaning)


@gap_needed.register
def _(aggregator: Powerset, shape: VoteShape, *, probability: float) -> Gap:
    # by how many votes a set must lead to be chosen if no other set has a vote
    odds = math.log(2) * shape.num_labels + math.log(probability / (1 - probability))
    votes = max(aggregator.scale_powerset * odds, 0.0)
    between = "between the two label sets"
    meaning = f"A gap of {votes:.1f} votes {between} is what a query needs to be answered, and answered right,"
    return Gap(votes, shape.num_teachers, meaning)


@gap_needed.register
def _(aggregator: StableTopK, shape: VoteShape, *, probability: float) -> Gap | None:
    # it has to win against gaps of 0 above and below each label, and then to pass the test; in real
    # votes other gaps exceed 0 only by as much as teachers disagree
    if aggregator.regularizer is not None:
        return None
    votes = gap_for_answer(aggregator.mechanism(shape), probability=probability)
    meaning = f"A gap of {votes:.1f} votes between the counts is what a query needs to be answered,"
    return Gap(votes, shape.num_teachers, f"{meaning} and answered right,")


def split_noise(
    cls: type[StableTopK],
    target: Target,
    shape: VoteShape,
    *,
    delta_test: float | None = None,
    answered: float = 0.9,
) -> StableTopK | None:
    """Return the instance that meets a target, its noise split so that the gap that a query needs is narrowest.

    Args:
        cls: the class.
        target: the largest cost of all queries together.
        shape: the numbers of teachers and labels.
        delta_test: what each test adds to delta. None for half of the target's delta over all
            queries.
        answered: the probability with which a query of the predicted gap is answered.

    Raises:
        ValueError: if the tests alone cost the target's delta.
    """
    test_delta = target.delta / (2 * target.num_queries) if delta_test is None else delta_test
    require_in_open_unit_interval(delta_test=test_delta, answered=answered)
    largest = target.delta / target.num_queries
    spent = -math.expm1(target.num_queries * math.log1p(-test_delta))
    requirement = f"delta_test < {largest:.3g}, so that all tests stay below delta"
    require(spent < target.delta, requirement, delta_test=test_delta)
    equal = cls(
        scale_gap=1.0,
        sigma_test=1.0,
        delta_test=test_delta,
        neighboring_relation=target.neighboring_relation,
    )

    def gap(log_ratio: float) -> float:
        # fewer orders err on the private side, which is enough to compare splits
        unequal = replace(equal, scale_gap=math.exp(log_ratio))
        calibrated = unequal.calibrated(target, shape, tolerance=1e-3, orders=COARSE_ORDERS)
        return (
            math.inf
            if calibrated is None
            else gap_for_answer(calibrated.mechanism(shape), probability=answered)
        )

    # the gap is flat around its minimum: the ratio of the scales to within a twentieth loses
    # nothing noticeable
    centre = min(np.arange(-2.0, 2.01, 0.25).tolist(), key=gap)
    best = min((centre + np.arange(-0.2, 0.21, 0.05)).tolist(), key=gap)
    return replace(equal, scale_gap=math.exp(best)).calibrated(target, shape)
