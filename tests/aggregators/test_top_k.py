"""Sets of a public size keep the contract."""

from typing import Any

import numpy as np
import pytest

from pate import Votes, VoteShape
from pate.accounting import NeighboringRelation as Relation
from pate.aggregators import Aggregator, Canonical, Joint, Peeling
from pate.mechanisms import seeded_generator
from pate.mechanisms._canonical import CanonicalLoss
from pate.mechanisms._noise import Noise
from pate.testing import AggregatorContract
from pate.testing._aggregators import Grid, Law
from tests.aggregators.oracles import counts, sets_law
from tests.mechanisms import oracles

GRID = (
    ((1, 1, 0), (1, 1, 0), (1, 0, 0), (1, 1, 0)),
    ((0, 0, 1), (0, 0, 1), (0, 1, 1), (0, 1, 0)),
    ((0, 0, 0), (0, 0, 0), (1, 1, 1), (1, 0, 1)),
)


class _TopK(AggregatorContract):
    num_labels = 3
    grid: Grid = GRID
    k = 2
    scale = 1.0

    def malformed(self) -> list[dict[str, Any]]:
        return [{"k": 0}, {"k": 2.0}, {"k": True}]

    def test_too_large_a_set_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"^Expected k <= \d for 1 items, got k=\d$"):
            self.make(Relation.REPLACE_RECORD).event(VoteShape(4, self.k - 1 or 1))


class TestCanonical(_TopK):
    gamma = 0.5
    loss: CanonicalLoss = "lead"

    def make(self, relation: Relation) -> Aggregator:
        return Canonical(
            k=self.k,
            scale_canonical=self.scale,
            gamma=self.gamma,
            loss=self.loss,
            neighboring_relation=relation,
        )

    def law(self, votes: Votes, relation: Relation) -> Law:
        utilities = oracles.subset_utilities(counts(votes), self.k, self.gamma, self.loss)
        return sets_law(oracles.sets(3, self.k), oracles.softmax(utilities / self.scale), 3)

    def malformed(self) -> list[dict[str, Any]]:
        return [*super().malformed(), {"gamma": -0.1}, {"gamma": 1.1}, {"loss": "paper"}]


@pytest.mark.slow
class TestCanonicalOne(TestCanonical):
    k = 1
    gamma = 1.0


class TestCanonicalExponential(_TopK):
    scale = 0.8

    def make(self, relation: Relation) -> Aggregator:
        return Canonical(
            k=self.k,
            scale_canonical=self.scale,
            noise_law="exponential",
            neighboring_relation=relation,
        )

    def law(self, votes: Votes, relation: Relation) -> Law:
        utilities = oracles.subset_utilities(counts(votes), self.k, 0.5)
        return sets_law(oracles.sets(3, self.k), oracles.flip_law(utilities / self.scale), 3)

    def malformed(self) -> list[dict[str, Any]]:
        return [*super().malformed(), {"noise_law": "laplace"}]


class _NoisyPeeling(_TopK):
    """The set of the k largest counts with noise that is drawn once."""

    noise: Noise
    scale = 0.7

    def make(self, relation: Relation) -> Aggregator:
        return Peeling(
            k=self.k, scale_peel=self.scale, noise_law=self.noise, neighboring_relation=relation
        )

    def law(self, votes: Votes, relation: Relation) -> Law:
        scores = np.array(counts(votes)) / self.scale
        return sets_law(
            oracles.sets(3, self.k), oracles.one_shot_set_law(scores, self.k, self.noise), 3
        )

    def malformed(self) -> list[dict[str, Any]]:
        return [*super().malformed(), {"noise_law": "gaussian"}]

    def test_too_large_a_set_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"^Expected k <= 3 for 3 items, got k=4$"):
            Peeling(k=4, scale_peel=1.0, noise_law=self.noise).event(VoteShape(4, 3))


class TestPeelingExponential(_NoisyPeeling):
    noise = "exponential"


@pytest.mark.slow
class TestPeelingLaplace(_NoisyPeeling):
    noise = "laplace"
    loose_because = (
        "the far tails of both members are reached only by counts that lie further apart"
    )


@pytest.mark.slow
class TestPeelingLogistic(_NoisyPeeling):
    noise = "logistic"
    loose_because = TestPeelingLaplace.loose_because


@pytest.mark.slow
class TestPeelingHalfLogistic(_NoisyPeeling):
    noise = "half_logistic"


class TestCanonicalPublished(TestCanonical):
    loss = "published"
    loose_because = "no set of so few labels gains on those at the top by the whole window"

    def test_the_loss_is_named_where_it_is_not_ours(self) -> None:
        assert self.make(Relation.REPLACE_RECORD).display_name == "Canonical (k=2, published loss)"
        assert TestCanonical().make(Relation.REPLACE_RECORD).display_name == "Canonical (k=2)"


class TestPeelingOne(_TopK):
    k = 1

    def make(self, relation: Relation) -> Aggregator:
        return Peeling(k=self.k, scale_peel=self.scale, neighboring_relation=relation)

    def law(self, votes: Votes, relation: Relation) -> Law:
        sequences = oracles.sequences(3, self.k)
        scores = tuple(count / self.scale for count in counts(votes))
        return sets_law(sequences, oracles.peel_law(scores, sequences, oracles.softmax), 3)

    def test_too_large_a_set_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"^Expected k <= 3 for 3 items, got k=4$"):
            Peeling(k=4, scale_peel=1.0).event(VoteShape(4, 3))


class TestPeelingTwo(TestPeelingOne):
    k = 2


class TestJoint(_TopK):
    loose_because = "no pair of sequences of so few labels moves through the whole window"

    def make(self, relation: Relation) -> Aggregator:
        return Joint(k=self.k, scale_joint=self.scale, neighboring_relation=relation)

    def law(self, votes: Votes, relation: Relation) -> Law:
        losses = oracles.sequence_losses(counts(votes), self.k)
        return sets_law(oracles.sequences(3, self.k), oracles.softmax(-losses / self.scale), 3)

    def test_too_large_a_set_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"^Expected k <= 3 for 3 items, got k=4$"):
            Joint(k=4, scale_joint=1.0).event(VoteShape(4, 3))


class TestJointOne(TestJoint):
    k = 1
    loose_because = ""


class TestJointExponential(TestJointOne):
    scale = 0.8

    def make(self, relation: Relation) -> Aggregator:
        return Joint(
            k=self.k, scale_joint=self.scale, noise_law="exponential", neighboring_relation=relation
        )

    def law(self, votes: Votes, relation: Relation) -> Law:
        losses = oracles.sequence_losses(counts(votes), self.k)
        return sets_law(oracles.sequences(3, self.k), oracles.flip_law(-losses / self.scale), 3)

    def malformed(self) -> list[dict[str, Any]]:
        return [*super().malformed(), {"noise_law": "laplace"}]


def test_the_least_voted_label_counts_half_unless_it_is_told() -> None:
    assert Canonical(k=1, scale_canonical=1.0).gamma == 0.5


def test_the_gap_needed_is_that_of_the_mechanism() -> None:
    shape = VoteShape(200, 6)
    for aggregator in (
        Canonical(k=2, scale_canonical=4.0),
        Peeling(k=2, scale_peel=4.0),
        Joint(k=2, scale_joint=4.0),
    ):
        gap = aggregator.gap_needed(shape, probability=0.9)
        assert gap is not None
        votes, available, meaning = gap
        assert available == 200 and meaning.startswith(
            f"A gap of {votes:.1f} votes between the 2 most voted labels"
        )
        counts = np.tile([votes, 0, votes, 0, 0, 0], (4000, 1))
        found = aggregator.mechanism(VoteShape(9, counts.shape[1]))(
            counts, generator=seeded_generator(0)
        )
        right = (np.sort(found, axis=1) == [0, 2]).all(axis=1).mean()
        # the gap of the joint mechanism is a bound
        assert 0.885 < right < (1 if isinstance(aggregator, Joint) else 0.915)
    with pytest.raises(ValueError, match=r"^Expected k <= 2 for 3 items, got k=3$"):
        Canonical(k=3, scale_canonical=1.0).gap_needed(VoteShape(9, 3), probability=0.5)
