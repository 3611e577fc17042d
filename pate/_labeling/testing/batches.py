"""Contracts of aggregators that answer a batch together, of noisy values, and of sources.

The law of one query says little about aggregators that answer the queries of a batch together, with
one clip, say, because a teacher changes all queries of a batch. So the test class states the law of
a batch too. Draws of batches of two queries are compared with it, in place of the test that queries
are independent, and the laws of all neighbors on two queries with twice the event.
"""

from __future__ import annotations

import itertools
import shutil
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy.stats import kstest

from pate._core.accounting.cost import NeighboringRelation
from pate._core.accounting.events import GaussianEvent, leaves
from pate._core.testing.laws import ORDERS, RELATIONS, Contract, assert_paid, renyi_divergence
from pate._core.validation import UNKNOWN, Float32Array, FloatArray, IntArray
from pate._labeling.aggregators.base import Aggregator, Release
from pate._labeling.data.records import Features, Records, Role
from pate._labeling.data.source import DataSource
from pate._labeling.testing.aggregators import (
    AggregatorContract,
    BallotRows,
    Grid,
    Law,
    different_laws,
    neighbors,
    outcomes_of,
    p_value_of,
)
from pate._labeling.votes.kinds import Ballots, Votes, VoteShape


class BatchContract(AggregatorContract):
    """Inherit in place of `AggregatorContract` where answers depend on the rest of a batch."""

    num_teachers = 3
    draws = 1_500
    least_draws = 100
    single_draws = 100
    grid: Grid = (((1, 1), (1, 1), (1, 0)), ((0, 0), (1, 0), (0, 0)), ((1, 0), (0, 1), (1, 0)))

    @abstractmethod
    def joint_law(self, votes: Ballots, relation: NeighboringRelation) -> Law:
        """Return the probability of each outcome of a batch: the outcomes of its queries in order.

        By the plain definition, for any number of queries.
        """

    def law(self, votes: Ballots, relation: NeighboringRelation) -> Law:
        """Return the law of a batch of one query."""
        return self.joint_law(votes, relation)

    def drawn(
        self, aggregator: Aggregator, votes: Ballots, generator: np.random.Generator
    ) -> IntArray:
        """Return outcomes of batches of one query each."""
        ballots, outcomes = votes.ballots, []
        # public values are the same for all of them
        starts = np.flatnonzero(np.append(True, (ballots[1:] != ballots[:-1]).any(axis=(1, 2))))
        for start, end in itertools.pairwise((*starts.tolist(), len(ballots))):
            query = votes[start : start + 1]
            outcomes += [outcomes_of(aggregator, query, generator) for _ in range(start, end)]
        return np.concatenate(outcomes)

    def test_queries_of_a_batch_are_independent(self) -> None:
        """They are not: two of them follow their joint law."""
        p_values = [self._of_pairs(self.make(relation), relation) for relation in RELATIONS]
        assert min(p_values) > 1e-4, (
            f"Expected batches that follow their joint law, got p = {min(p_values):.1e}"
        )

    def test_a_fifth_less_noise_is_caught_in_a_batch(self) -> None:
        """The test of joint frequencies rejects 80% of the noise."""
        assert self._of_pairs(self.make(RELATIONS[0]).scaled(0.8), RELATIONS[0]) < 1e-6

    @pytest.mark.parametrize("made_for", RELATIONS)
    @pytest.mark.parametrize("relation", RELATIONS)
    def test_a_batch_costs_no_more_than_its_queries(
        self, made_for: NeighboringRelation, relation: NeighboringRelation
    ) -> None:
        """No neighbors on two queries exceed two events, under either relation."""
        event = self.event(made_for, relation)
        assert_paid(self._worst_of_pairs(made_for, relation), 2 * event.cost(ORDERS).rdp, event)

    def pair(self, first: ArrayLike, second: ArrayLike) -> Ballots:
        """Return the votes on two queries."""
        return self._with_public(Votes.from_ballots(np.array((first, second))))

    def _of_pairs(self, aggregator: Aggregator, relation: NeighboringRelation) -> float:
        votes, generator = self.pair(self.grid[0], self.grid[-1]), np.random.default_rng(self.draws)
        drawn = [outcomes_of(aggregator, votes, generator).ravel() for _ in range(self.draws)]
        return p_value_of(np.array(drawn), self.joint_law(votes, relation), rare=5)

    @classmethod
    @cache
    def _worst_of_pairs(
        cls, made_for: NeighboringRelation, relation: NeighboringRelation
    ) -> FloatArray:
        """Return the largest divergence between all neighbors on two queries, ``[ORDERS]``."""
        both = VoteShape(cls.num_teachers, 2 * cls.num_labels)
        pairs = {(tuple(sorted(a)), tuple(sorted(b))) for a, b in neighbors(both, relation)}
        first, second, _ = different_laws(cls._joint_laws(made_for), pairs)
        # either query may fail
        delta0 = 1 - (1 - cls().event(made_for, relation).cost(ORDERS).delta0) ** 2
        return renyi_divergence(first, second, delta0).max(axis=0)

    @classmethod
    @cache
    def _joint_laws(cls, made_for: NeighboringRelation) -> dict[BallotRows, Law]:
        """Return the laws of all ballots ``[T, 2 C]`` on two queries, in any order of teachers."""
        contract, laws = cls(), {}
        kinds = itertools.product((0, 1), repeat=2 * cls.num_labels)
        for ballots in itertools.combinations_with_replacement(kinds, cls.num_teachers):
            first, second = np.array(ballots).reshape(cls.num_teachers, 2, -1).swapaxes(0, 1)
            laws[ballots] = contract.joint_law(contract.pair(first, second), made_for)
        return laws


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
    def mean(self, votes: Ballots) -> FloatArray:
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
        assert np.abs(np.corrcoef(lagged.T) - np.eye(lagged.shape[1])).max() < 0.05

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
        release = self._release(self.make(RELATIONS[0]), 2_000)
        assert release.noisy_counts is not None and release.noise_std is not None
        grid = 2.0 ** np.ceil(np.log2(release.noise_std / 2**20))
        # counts themselves lie on the grid too
        assert (release.noisy_counts / grid == np.rint(release.noisy_counts / grid)).all()

    def test_labels_follow_from_the_values(self) -> None:
        """Hard labels are a function of the released values, so they cost nothing more."""
        release = self._release(self.make(RELATIONS[0]), 2_000)
        assert release.noisy_counts is not None
        lowest_given = release.noisy_counts[release.labels == 1].min(initial=np.inf)
        assert release.noisy_counts[release.labels == 0].max(initial=-np.inf) <= lowest_given

    def _ks(self, aggregator: Aggregator, claimed: Aggregator) -> float:
        noise = self._noise(aggregator, 5_000)
        return float(
            kstest(noise.ravel() / (self._release(claimed, 1).noise_std or np.nan), "norm").pvalue
        )

    def _noise(self, aggregator: Aggregator, draws: int) -> FloatArray:
        release = self._release(aggregator, draws)
        assert release.noisy_counts is not None
        return np.asarray(release.noisy_counts - self.mean(self._query()))

    def _release(self, aggregator: Aggregator, draws: int) -> Release:
        votes = self._query()[np.zeros(draws, dtype=np.int64)]
        return aggregator.aggregate(votes, generator=np.random.default_rng(draws))

    def _query(self) -> Ballots:
        """Return votes on one query, where each teacher gives one label more than the last."""
        ballots = np.tri(self.num_teachers, self.num_labels, dtype=np.int64)
        guess = self.guesses[0]
        return replace(
            Votes.from_ballots(ballots[None]),
            predictions=None if guess is None else np.array([guess]),
        )


class SourceContract(Contract):
    """Tests of a `DataSource` on a few records, for a subclass whose name begins with ``Test``.

    The source is written once into a folder of its own; changes are made to copies of that folder.
    """

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write the files of a small source, two records per role or more, into an empty folder."""

    @abstractmethod
    def open(self, folder: Path) -> DataSource:
        """Return the source in a folder."""

    @abstractmethod
    def remove(self, folder: Path, row: int) -> None:
        """Remove private record number ``row``, in the order of ``load``, from the folder."""

    @abstractmethod
    def alter(self, folder: Path, role: Role) -> None:
        """Change the features of the last record of a role, and nothing else, in the folder."""

    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """The source as it was written; not to be changed."""
        folder = tmp_path_factory.mktemp("source") / "source"
        folder.mkdir()
        cls().write(folder)
        return folder

    @pytest.fixture
    def copy(self, folder: Path, tmp_path: Path) -> Path:
        """A copy of the source that a test may change."""
        return shutil.copytree(folder, tmp_path / "source")

    def test_records_have_the_shapes_and_types_of_the_contract(self, folder: Path) -> None:
        """Features are float32, labels uint8 in {0, 1} or unknown, and all roles are alike."""
        source = self.open(folder)
        for role in Role:
            records = source.load(role)
            assert len(records) >= 2
            assert records.labels.shape == (len(records), len(source.label_names))
            values = {0, 1, UNKNOWN} if source.unknown_labels else {0, 1}
            assert records.labels.dtype == np.uint8 and set(np.unique(records.labels)) <= values
            assert records.ids.dtype.kind == "U" and (
                records.groups is None or records.groups.dtype.kind == "U"
            )
            assert source.records(role).features.shape == (len(records), *source.input_shape)

    def test_roles_are_disjoint(self, folder: Path) -> None:
        """No record has two roles, and none has another's id."""
        ids = [self.open(folder).load(role).ids for role in Role]
        assert len(np.unique(np.concatenate(ids))) == sum(map(len, ids))

    def test_ids_are_no_row_numbers(self, folder: Path) -> None:
        """Private ids do not count the rows, unless the source says that they are permanent."""
        try:
            self.open(folder).require_distinct()
        except ValueError as error:
            raise AssertionError(str(error)) from None

    def test_labels_are_named_once(self, folder: Path) -> None:
        """Names of labels are unique, and known before records are read."""
        names = self.open(folder).label_names
        assert names and len(set(names)) == len(names)

    def test_lazy_reads_agree_with_full_reads(self, folder: Path) -> None:
        """Features by any index are rows of all features, and reading changes nothing."""
        for role in Role:
            features = self.open(folder).load(role).features
            num = features.shape[0]
            index = np.random.default_rng(0).integers(num, size=(3, 2))
            few = features[index]  # before anything else was read
            all_features = _read(features)
            assert few.dtype == all_features.dtype == np.float32
            assert all_features.shape == features.shape and np.isfinite(all_features).all()
            assert np.array_equal(few, all_features[index])
            few[...] = -1  # the result belongs to the reader
            assert np.array_equal(_read(features), all_features)
            rows = np.arange(num)[::-2].copy()
            assert np.array_equal(_read(features.select(rows)), all_features[rows])
            assert features.select(rows).shape == (len(rows), *features.shape[1:])

    def test_a_fingerprint_is_of_the_records(self, folder: Path) -> None:
        """Two readings of the same records have one fingerprint, and no two roles do."""
        fingerprints = _fingerprints(self.open(folder))
        assert _fingerprints(self.open(folder)) == fingerprints and len(
            set(fingerprints.values())
        ) == len(Role)

    @pytest.mark.parametrize("role", list(Role))
    def test_a_fingerprint_changes_when_a_record_does(
        self, folder: Path, copy: Path, role: Role
    ) -> None:
        """Other features of one record change the fingerprint of its role and of no other."""
        self.alter(copy, role)
        before, after = _fingerprints(self.open(folder)), _fingerprints(self.open(copy))
        assert [other for other in Role if before[other] != after[other]] == [role]

    @pytest.mark.parametrize("row", [0, -1])
    def test_removing_a_record_changes_no_other(self, folder: Path, copy: Path, row: int) -> None:
        """Ids belong to their records, and ids of other roles reveal nothing on private ones.

        Neither in their content nor in their order, nor in how wide their ids are, nor through a
        feature map.
        """
        before, after = self.open(folder), self.open(copy)
        records = before.load(Role.PRIVATE)
        mapped = before.records(Role.PRIVATE)
        self.remove(copy, row % len(records))
        rest = np.delete(np.arange(len(records)), row)
        require_same(after.load(Role.PRIVATE), records, rest)
        require_same(after.records(Role.PRIVATE), mapped, rest)
        for role in (Role.PUBLIC, Role.TEST):
            require_same(after.load(role), before.load(role))
            assert after.fingerprint(role) == before.fingerprint(role)
        assert after.fingerprint(Role.PRIVATE) != before.fingerprint(Role.PRIVATE)

    def test_private_features_reach_no_public_record(self, folder: Path, copy: Path) -> None:
        """Changing a private record leaves public and test records unchanged."""
        self.alter(copy, Role.PRIVATE)
        before, after = self.open(folder), self.open(copy)
        after.records(Role.PRIVATE)
        for role in (Role.PUBLIC, Role.TEST):
            require_same(after.records(role), before.records(role))


def require_same(actual: Records, expected: Records, rows: IntArray | None = None) -> None:
    """Assert that records equal ``rows`` of others; for all rows (None), also the types."""
    chosen = np.arange(len(expected)) if rows is None else rows
    assert actual.ids.tolist() == expected.ids[chosen].tolist()
    assert np.array_equal(actual.labels, expected.labels[chosen])
    assert (actual.groups is None) == (expected.groups is None)
    if actual.groups is not None and expected.groups is not None:
        assert actual.groups.tolist() == expected.groups[chosen].tolist()
        assert rows is not None or actual.groups.dtype == expected.groups.dtype
    assert rows is not None or actual.ids.dtype == expected.ids.dtype
    assert np.array_equal(_read(actual.features), _read(expected.features)[chosen])


def _fingerprints(source: DataSource) -> dict[Role, str]:
    return {role: source.fingerprint(role) for role in Role}


def _read(features: Features) -> Float32Array:
    return features[np.arange(features.shape[0])]
