"""The contracts find what is wrong with a mechanism or an aggregator, and say so."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy.special import ndtr

from pate._core.mechanisms.exact_choice import below_rank
from pate._core.validation import FloatArray, IntArray
from pate._labeling.testing.aggregators import Law
from pate.accounting import Event, NeighboringRelation, PureDPEvent
from pate.aggregators import Aggregator, Counts, NoisyVotes, Release
from pate.mechanisms import GumbelPeeling, Mechanism, NoisyTopK
from pate.testing import (
    AggregatorContract,
    BatchContract,
    EventContract,
    MechanismContract,
    SourceContract,
)
from tests.core.mechanisms import test_noisy_top_k, test_peeling
from tests.labeling.aggregators.oracles import counts, gaussian_labels_law


@dataclass(frozen=True, kw_only=True)
class Threshold(Mechanism[IntArray]):
    """Says whether a count with Laplace noise is 2 at least."""

    noise_parameters = ("scale",)

    scale: float

    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> IntArray:
        column = np.atleast_2d(scores)[:, 0]
        return (column + generator.laplace(scale=self.scale, size=len(column)) >= 2).astype(
            np.int64
        )[:, None]

    def event(self, relation: NeighboringRelation) -> Event:
        return PureDPEvent(neighboring_relation=relation, epsilon=1 / self.scale)


class Shares(Threshold):
    """Has one noise for two rows."""

    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> IntArray:
        column = np.atleast_2d(scores)[:, 0]
        noise = np.repeat(generator.laplace(scale=self.scale, size=-(-len(column) // 2)), 2)[
            : len(column)
        ]
        return (column + noise >= 2).astype(np.int64)[:, None]


class Understates(Threshold):
    """Claims half of what it costs."""

    def event(self, relation: NeighboringRelation) -> Event:
        return PureDPEvent(neighboring_relation=relation, epsilon=0.5 / self.scale)


class Flattens(Threshold):
    """Answers the first row alone."""

    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> IntArray:
        whole: IntArray = super().__call__(scores, generator=generator)
        return whole[:1, 0]


class Thresholds(MechanismContract):
    num_items = 1
    shift = 0
    grid = ((3,), (0,))
    kind: type[Threshold] = Threshold

    def make(self, relation: NeighboringRelation) -> Threshold:
        return self.kind(scale=0.8)

    def outcomes(self) -> list[tuple[int, ...]]:
        return [(0,), (1,)]

    def law(self, mechanism: Threshold, scores: Any) -> FloatArray:
        above = 0.5 * np.exp(-np.abs(scores[0] - 2) / mechanism.scale)
        return np.array([above, 1 - above] if scores[0] >= 2 else [1 - above, above])


class TestThreshold(Thresholds):
    pass


RELATION = NeighboringRelation.REPLACE_RECORD
WRONG: list[tuple[type[Threshold], Callable[[MechanismContract], None], str]] = [
    (Shares, lambda contract: contract.test_rows_of_a_batch_are_independent(), "independent rows"),
    (
        Flattens,
        lambda contract: contract.test_sampler_follows_the_law(),
        "Expected outcomes such as",
    ),
    (
        Understates,
        lambda contract: contract.test_divergence_between_all_neighbors_is_within_the_curve(
            RELATION
        ),
        "some differ 2.12 times as much",
    ),
]


@pytest.mark.parametrize(("kind", "check", "message"), WRONG)
def test_faults_of_a_mechanism_are_found(
    kind: type[Threshold], check: Callable[[MechanismContract], None], message: str
) -> None:
    contract = type("Contract", (Thresholds,), {"kind": kind})()
    with pytest.raises(AssertionError, match=message):
        check(contract)


class Drowns(NoisyTopK):
    """Adds its noise to scores that were made floats."""

    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> IntArray:
        rows = np.asarray(scores, dtype=np.float64)
        best: IntArray = np.argmax(rows + self.scale * generator.gumbel(size=rows.shape), axis=-1)
        return best[..., None]


class DrownsBesideOthers(GumbelPeeling):
    """Adds its noise to distances from the largest score."""

    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> IntArray:
        below = below_rank(np.asarray(scores), 1)
        order: IntArray = np.argsort(
            below - self.scale * generator.gumbel(size=below.shape), axis=-1
        )
        return order[..., : self.k]


@pytest.mark.parametrize("kind", ["shift", "outlier"])
def test_noise_that_is_drowned_is_found(kind: str) -> None:
    class Contract(test_peeling.TestGumbelPeeling):
        def make(self, relation: NeighboringRelation) -> GumbelPeeling:
            return DrownsBesideOthers(k=2, scale=2.0)

    class ContractOfOne(test_noisy_top_k.TestExponentialMechanism):
        def make(self, relation: NeighboringRelation) -> NoisyTopK:
            return Drowns(k=1, scale=2.0)

    contract = ContractOfOne() if kind == "shift" else Contract()
    with pytest.raises(AssertionError, match=f"Expected the law of small counts with a {kind} of"):
        contract.test_no_magnitude_drowns_the_noise(kind)


class Copies(NoisyVotes):
    """Gives a query the labels of the one before it."""

    def aggregate(self, votes: Counts, *, generator: np.random.Generator) -> Release:
        shifted = np.roll(np.arange(votes.num_queries), 1)
        return super().aggregate(votes[shifted], generator=generator)


class OfNoisyVotes(AggregatorContract):
    kind: type[NoisyVotes] = NoisyVotes

    def make(self, relation: NeighboringRelation) -> Aggregator:
        return self.kind(sigma_votes=1.5, neighboring_relation=relation)

    def law(self, votes: Counts, relation: NeighboringRelation) -> Law:
        return gaussian_labels_law([h - votes.num_teachers / 2 for h in counts(votes)], 1.5)

    def malformed(self) -> list[dict[str, Any]]:
        return []


def test_an_aggregator_that_mixes_queries_is_found() -> None:
    contract = OfNoisyVotes()
    contract.test_queries_of_a_batch_are_independent()
    contract.kind = Copies
    with pytest.raises(AssertionError, match="independent queries in a batch"):
        contract.test_queries_of_a_batch_are_independent()


class OneNoise(NoisyVotes):
    """Adds the noise of one query to all queries of a batch, so that their differences are told
    exactly."""

    def aggregate(self, votes: Counts, *, generator: np.random.Generator) -> Release:
        noise = self.sigma_votes * generator.standard_normal(votes.num_labels)
        labels = 2 * (votes.counts + noise) > votes.num_teachers
        return Release(labels.astype(np.uint8), np.ones(labels.shape, dtype=np.bool_))


class Batches(BatchContract):
    num_teachers = 2
    grid = (((1, 1), (1, 0)), ((0, 0), (1, 0)))
    kind: type[NoisyVotes] = NoisyVotes

    def make(self, relation: NeighboringRelation) -> Aggregator:
        return self.kind(sigma_votes=1.5, neighboring_relation=relation)

    def joint_law(self, votes: Counts, relation: NeighboringRelation) -> Law:
        laws = [
            gaussian_labels_law([h - votes.num_teachers / 2 for h in row], 1.5)
            for row in votes.counts.tolist()
        ]
        joint: dict[tuple[int, ...], float] = {(): 1.0}
        for law in laws:
            joint = {(*a, *b): p * q for a, p in joint.items() for b, q in law.items()}
        return joint

    def malformed(self) -> list[dict[str, Any]]:
        return []


class BatchesOfOneNoise(Batches):
    kind = OneNoise

    def joint_law(self, votes: Counts, relation: NeighboringRelation) -> Law:
        """Return the law: each label of all queries is given where the common noise exceeds a level
        of each query."""
        joint: dict[tuple[int, ...], float] = {(): 1.0}
        for column in votes.counts.T.tolist():
            levels = sorted({(votes.num_teachers / 2 - h) / 1.5 for h in column})
            edges = [-np.inf, *levels, np.inf]
            single: dict[tuple[int, ...], float] = {}
            for low, high in pairwise(edges):
                given = tuple(int((votes.num_teachers / 2 - h) / 1.5 <= low) for h in column)
                single[given] = single.get(given, 0.0) + float(ndtr(high) - ndtr(low))
            joint = {(*a, *b): p * q for a, p in joint.items() for b, q in single.items()}
        law: dict[tuple[int, ...], float] = {}
        for given, chance in joint.items():
            rows = np.array(given).reshape(votes.num_labels, -1).T.tolist()
            law[tuple(x for row in rows for x in (*row, *(1 for _ in row), 0))] = chance
        return law


@pytest.mark.slow
def test_an_aggregator_whose_batches_tell_more_than_their_queries_is_found() -> None:
    """Query by query nothing is wrong with it."""
    honest, shared = Batches(), BatchesOfOneNoise()
    for contract in (honest, shared):
        contract.test_queries_of_a_batch_are_independent()
        contract.test_divergence_between_all_neighbors_is_within_the_curve(RELATION, RELATION)
    honest.test_a_batch_costs_no_more_than_its_queries(RELATION, RELATION)
    with pytest.raises(AssertionError, match="Expected an event that covers all neighbors"):
        shared.test_a_batch_costs_no_more_than_its_queries(RELATION, RELATION)
    honest.kind = OneNoise
    with pytest.raises(AssertionError, match="Expected batches that follow their joint law"):
        honest.test_queries_of_a_batch_are_independent()


@pytest.mark.parametrize(
    "contract",
    [AggregatorContract, BatchContract, EventContract, MechanismContract, SourceContract],
)
def test_a_test_class_that_leaves_something_out_is_refused(contract: type) -> None:
    """pytest passes over abstract classes without a word."""
    with pytest.raises(TypeError, match=r"^Expected TestNothing to define \w+, "):
        type("TestNothing", (contract,), {})
