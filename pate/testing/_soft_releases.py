"""The contract of aggregators that release values with Gaussian noise."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kstest

from pate._votes import Ballots, Votes, VoteShape
from pate.accounting._cost import NeighboringRelation
from pate.accounting._events import GaussianEvent, leaves
from pate.aggregators import Aggregator, Release
from pate.testing._ballot_laws import Array, BallotRows, neighbors
from pate.testing._contract import (
    Contract,
)
from pate.testing._laws import (
    RELATIONS,
)


class SoftReleaseContract(Contract):
    """Checks soft values: their noise is Gaussian, and as large as the event says."""

    num_labels = 3
    num_teachers = 4
    guesses: Sequence[tuple[float, ...] | None] = (None,)
    """Predictions to test with, including the worst for the sensitivity."""

    @abstractmethod
    def make(self, relation: NeighboringRelation) -> Aggregator:
        """Return the aggregator, run for ``relation``."""

    @abstractmethod
    def mean(self, votes: Ballots) -> Array:
        """Return the values of one query without noise, ``[C]``."""

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_noise_is_gaussian_of_the_stated_deviation(self, relation: NeighboringRelation) -> None:
        """Residuals divided by the stated standard deviation are standard normal."""
        aggregator = self.make(relation)
        assert self._ks(aggregator, aggregator) > 1e-4

    def test_a_fifth_less_noise_is_refuted(self) -> None:
        """The test of residuals rejects 80% of the noise."""
        aggregator = self.make(RELATIONS[0])
        assert self._ks(aggregator.scaled(0.8), aggregator) < 1e-6

    def test_noise_is_independent_between_labels_and_queries(self) -> None:
        """Residuals of different labels and of successive queries are uncorrelated."""
        noise = self._noise(self.make(RELATIONS[0]), 20_000)
        lagged = np.column_stack((noise[:-1], noise[1:]))
        correlation = np.corrcoef(lagged.T) - np.eye(lagged.shape[1])
        assert np.abs(correlation).max() < 0.05

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_sensitivity_is_that_of_the_event(self, relation: NeighboringRelation) -> None:
        """The event charges exactly the largest move of the mean between neighbors.

        The means are releases of `aggregate` with next to no noise, on all ballots.
        """
        aggregator = self.make(relation)
        event = aggregator.event(
            VoteShape(self.num_teachers, self.num_labels)
        ).to_world()  # which sees nothing but the release
        (gaussian,) = (leaf for leaf, _ in leaves(event) if isinstance(leaf, GaussianEvent))
        pairs = neighbors(VoteShape(self.num_teachers, self.num_labels), relation)
        rows = {
            ballots: row
            for row, ballots in enumerate({member for pair in pairs for member in pair})
        }
        first, second = np.array([(rows[a], rows[b]) for a, b in pairs]).T
        moves = 0.0
        for guess in self.guesses:
            votes = Votes.from_ballots(np.array(list(rows)))
            votes = replace(
                votes, predictions=None if guess is None else np.tile(guess, (len(rows), 1))
            )
            bare = (
                aggregator.scaled(1e-8)
                .aggregate(votes, generator=np.random.default_rng(0))
                .noisy_counts
            )
            assert bare is not None
            means = [self.mean(votes[row : row + 1]) for row in range(len(rows))]
            np.testing.assert_allclose(bare, means, atol=1e-6)
            moves = max(moves, float(np.linalg.norm(bare[first] - bare[second], axis=1).max()))
        noise_std = self._release(aggregator, 1).noise_std
        assert noise_std is not None
        assert moves == pytest.approx(noise_std / gaussian.noise_multiplier, rel=1e-6)

    def test_values_lie_on_a_public_grid(self) -> None:
        """Values are multiples of a power of two that depends on the noise alone."""
        aggregator = self.make(RELATIONS[0])
        release = self._release(aggregator, 2_000)
        assert release.noisy_counts is not None and release.noise_std is not None
        grid = 2.0 ** np.ceil(np.log2(release.noise_std / 2**20))
        # counts themselves lie on the grid too
        assert (release.noisy_counts / grid == np.rint(release.noisy_counts / grid)).all()

    def test_labels_follow_from_the_values(self) -> None:
        """Hard labels are a function of the released values, so they cost nothing more."""
        release = self._release(self.make(RELATIONS[0]), 2_000)
        assert release.noisy_counts is not None
        lowest_given = release.noisy_counts[release.labels == 1].min(initial=np.inf)
        highest_denied = release.noisy_counts[release.labels == 0].max(initial=-np.inf)
        assert highest_denied <= lowest_given

    def _ks(self, aggregator: Aggregator, claimed: Aggregator) -> float:
        noise = self._noise(aggregator, 5_000)
        return float(
            kstest(noise.ravel() / (self._release(claimed, 1).noise_std or np.nan), "norm").pvalue
        )

    def _noise(self, aggregator: Aggregator, draws: int) -> Array:
        release = self._release(aggregator, draws)
        assert release.noisy_counts is not None
        return np.asarray(
            release.noisy_counts - self.mean(_votes(self._ballots(), self.guesses[0]))
        )

    def _ballots(self) -> BallotRows:
        return tuple(
            tuple(int(j <= t) for j in range(self.num_labels)) for t in range(self.num_teachers)
        )

    def _release(self, aggregator: Aggregator, draws: int) -> Release:
        votes = _votes(self._ballots(), self.guesses[0])[np.zeros(draws, dtype=np.int64)]
        return aggregator.aggregate(votes, generator=np.random.default_rng(draws))


def _votes(ballots: BallotRows, predictions: tuple[float, ...] | None = None) -> Ballots:
    votes = Votes.from_ballots(np.array(ballots)[None])
    return replace(votes, predictions=None if predictions is None else np.array([predictions]))
