"""Clipped votes keep the contract of batches; their sums move as little as is said, and the search
costs its share."""

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import kstest

from pate import Votes, VoteShape
from pate._core.testing.laws import chi_square_p_value
from pate._labeling.aggregators import clipped_votes
from pate._labeling.aggregators.clipped_votes import Bisection, clipped_sums, factors_of, sizes_of
from pate._labeling.testing.aggregators import BallotRows, Law, neighbors
from pate.accounting import NeighboringRelation as Relation
from pate.aggregators import Aggregator, Ballots, ClippedVotes
from pate.testing import BatchContract

SEARCHED = 0.24  # a multiplier so small that three teachers are asked for a median


def clips_law(sizes: Sequence[int], most: int) -> dict[int, float]:
    """Return the probability of each clip that the search may find."""
    half, sigma = len(sizes) / 2, len(sizes) / 6

    def chosen(candidates: list[int]) -> dict[int, float]:
        if len(candidates) == 1:
            return {candidates[0]: 1.0}
        middle = (len(candidates) - 1) // 2
        below = sum(size <= candidates[middle] for size in sizes)
        down = float(ndtr((below - half) / sigma))
        found: dict[int, float] = defaultdict(float)
        for chance, part in (
            (down, candidates[: middle + 1]),
            (1 - down, candidates[middle + 1 :]),
        ):
            for median, inner in chosen(part).items():
                found[median] += chance * inner
        return found

    law: dict[int, float] = defaultdict(float)
    for median, chance in chosen(sizes_sought(most)).items():
        law[min(most, math.ceil(1.2 * median))] += chance
    return law


def sizes_sought(most: int) -> list[int]:
    """Return the sizes that are candidates for the median, for ballots of up to 1000 entries."""
    return sorted({math.ceil(most / 2 ** (k / 4)) for k in range(41)})


def joint_clipped_law(votes: Ballots, multiplier: float, guess: np.ndarray) -> Law:
    """Return the law of the labels of a batch by the plain definition of clipped votes."""
    said = np.abs(votes.ballots.astype(float) - guess[:, None])
    sizes, most = said.sum(axis=(0, 2)), guess.size
    whole = multiplier / math.sqrt(len(guess))
    steps = math.ceil(math.log2(max(2, len(sizes_sought(most)))))
    share = steps * (6 * whole / len(sizes)) ** 2
    clips = clips_law(sizes.tolist(), most) if share <= 0.25 else {most: 1.0}
    labels = np.array(list(itertools.product((0, 1), repeat=most)))
    total = np.zeros(len(labels))
    for clip, chance in clips.items():
        shrunk = said * np.minimum(1, np.sqrt(clip / np.maximum(sizes, 1)))[:, None]
        sigma = (
            whole / math.sqrt(1 - share if share <= 0.25 else 1) * math.sqrt(min(2 * clip, most))
        )
        differ = ndtr((shrunk.sum(axis=1) - len(sizes) / 2) / sigma)
        given = np.where(guess > 0, 1 - differ, differ).ravel()
        total += chance * np.where(labels > 0, given, 1 - given).prod(axis=1)
    answered = [
        tuple(x for row in each.reshape(guess.shape).tolist() for x in (*row, *(1,) * len(row), 0))
        for each in labels
    ]
    return dict(zip(answered, total.tolist(), strict=True))


class TestClippedVotes(BatchContract):
    """So few teachers that a search would cost more than it saves: nothing is clipped."""

    loose_because = "labels tell the sign of a noisy sum alone: 2 / pi of what the sum itself would"
    multiplier = 0.9

    def make(self, relation: Relation) -> Aggregator:
        return ClippedVotes(
            multiplier_clipped=self.multiplier,
            neighboring_relation=relation,
            around_predictions=self.predictions is not None,
        )

    def joint_law(self, votes: Ballots, relation: Relation) -> Law:
        guess = (
            np.zeros(votes.counts.shape) if votes.predictions is None else votes.predictions > 0.5
        )
        return joint_clipped_law(votes, self.multiplier, guess.astype(float))

    def malformed(self) -> list[dict[str, Any]]:
        return [{"multiplier_clipped": float("inf")}]


@pytest.mark.slow
class TestClippedVotesAroundPredictions(TestClippedVotes):
    predictions = (0.9, 0.2)


class TestClippedVotesThatSearch(TestClippedVotes):
    loose_because = "labels tell signs alone, and no two ballots differ most for the search and for the sum at once"
    multiplier = SEARCHED
    draws = 1_000  # the clip tells of less noise too


def listed(entries: int, num_teachers: int) -> dict[BallotRows, int]:
    """Return all sets of ballots ``[T, Q C]`` with a number for each."""
    kinds = itertools.product((0, 1), repeat=entries)
    return {
        each: row
        for row, each in enumerate(itertools.combinations_with_replacement(kinds, num_teachers))
    }


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("guess", [(0, 0, 0, 0), (1, 0, 1, 0), (0, 0, 0)])
def test_sums_move_by_what_is_said_at_most_and_may_move_so_far(
    relation: Relation, guess: tuple[int, ...]
) -> None:
    """On all ballots of two teachers on all entries of a batch."""
    entries = len(guess)
    shape = (2, 2) if entries == 4 else (1, 3)
    predicted, rows = np.array(guess, dtype=np.uint8).reshape(shape), listed(entries, 2)
    batches = [
        Votes.from_ballots(np.array(each).reshape(2, *shape).swapaxes(0, 1)) for each in rows
    ]
    sizes = [sizes_of(batch.ballots, predicted) for batch in batches if batch.ballots is not None]
    np.testing.assert_array_equal(
        sizes, [[sum(x != g for x, g in zip(b, guess, strict=True)) for b in each] for each in rows]
    )
    pairs = np.array(
        [
            [rows[tuple(sorted(each))] for each in pair]
            for pair in neighbors(VoteShape(2, entries), relation)
        ]
    )
    for clip in range(1, entries + 1):
        sums = np.array(
            [
                clipped_sums(batch, predicted, size, clip).ravel()
                for batch, size in zip(batches, sizes, strict=True)
            ]
        )
        assert sums.min() >= 0
        moves = ((sums[pairs[:, 0]] - sums[pairs[:, 1]]) ** 2).sum(axis=1)
        bound = min(2 * clip, entries)
        assert moves.max() <= bound, "not even by a rounding error"
        if relation is Relation.REPLACE_RECORD:
            assert moves.max() == pytest.approx(bound, rel=1e-5)
        elif not any(guess):
            assert moves.max() == pytest.approx(clip, rel=1e-5)
        # negative control: what a clip lets through is more than a smaller one pays for
        if relation is Relation.REPLACE_RECORD and 2 * clip <= entries:
            assert moves.max() > 2 * (clip - 1)
        for candidate in range(1, entries + 1):
            below = (np.array(sizes) <= candidate).sum(axis=1)
            moved = np.abs(below[pairs[:, 0]] - below[pairs[:, 1]])
            assert moved.max() <= 1 and (
                moved.max() == 1 or candidate == entries or relation is not Relation.REPLACE_RECORD
            )


def test_factors_are_roots_rounded_down() -> None:
    sizes = np.array([2, 3, 7, 1000, 10**9, 3])
    for clip in (1, 2, 3, 10**9):
        above = sizes[sizes > clip]
        factors = factors_of(above, clip)
        np.testing.assert_allclose(factors, np.sqrt(clip / above), atol=2.0**-20)
        for size, factor in zip(above.tolist(), factors.tolist(), strict=True):
            units = int(factor * 2**20)
            assert (
                units == factor * 2**20 and size * units**2 <= clip << 40 < size * (units + 1) ** 2
            )


class Decided:
    """Comparisons that are decided in a given way, and counted."""

    def __init__(self, below: Sequence[bool]) -> None:
        self.below, self.drawn = below, 0

    def __call__(self, values: Any, thresholds: Any, *, sigma: float, generator: Any) -> bool:
        self.drawn += 1
        return self.below[self.drawn - 1]


@pytest.mark.parametrize("most", [1, 2, 3, 7, 16, 17, 1000])
def test_a_search_never_takes_more_steps_than_it_pays(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bisection = Bisection(num_teachers=10, most=most)
    candidates, steps = bisection.candidates.tolist(), bisection.num_steps
    assert candidates == sorted(set(candidates)) and candidates[0] == 1 and candidates[-1] == most
    drawn, found = [], set()
    for below in itertools.product((False, True), repeat=steps):
        decided = Decided(below)
        monkeypatch.setattr(clipped_votes, "exceeds", decided)
        found.add(bisection.median(np.ones(10, dtype=np.int64), np.random.default_rng(0)))
        drawn.append(decided.drawn)
    assert max(drawn) == steps or most == 1
    assert found == {min(most, math.ceil(1.2 * each)) for each in candidates}


def test_a_search_has_the_noise_that_it_pays_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """In each of its comparisons; half of it is noticed."""
    sizes, draws = np.array([1, 1, 2, 3, 5, 8, 8, 8, 9]), 500
    expected = clips_law(sizes.tolist(), 9)

    def pvalue() -> float:
        generator = np.random.default_rng(0)
        clips = [
            Bisection(num_teachers=len(sizes), most=9).median(sizes, generator)
            for _ in range(draws)
        ]
        observed = np.array([clips.count(clip) for clip in expected])
        assert observed.sum() == draws
        return chi_square_p_value(observed, draws * np.array(list(expected.values())))

    assert pvalue() > 1e-4
    search = clipped_votes.noisy_median
    monkeypatch.setattr(
        clipped_votes,
        "noisy_median",
        lambda *args, sigma, **rest: search(*args, sigma=sigma / 2, **rest),
    )
    assert pvalue() < 1e-9


@pytest.mark.parametrize(("queries", "labels", "teachers"), [(50, 4, 40), (7, 5, 200), (1, 1, 2)])
@pytest.mark.parametrize("multiplier", [0.01, 2.0, 1e4])
def test_the_noise_of_a_batch_costs_what_its_queries_cost(
    queries: int, labels: int, teachers: int, multiplier: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Squared inverse multipliers of comparisons and sum add up to those of the event, whatever
    clip was found."""
    votes = Votes.from_ballots(np.ones((queries, teachers, labels), dtype=np.uint8))
    most, sigmas = queries * labels, []

    def find(self: Bisection, sizes: np.ndarray, generator: np.random.Generator) -> int:
        sigmas.append(self.num_teachers / 6)
        return clip

    monkeypatch.setattr(Bisection, "median", find)
    voting = ClippedVotes(multiplier_clipped=multiplier)
    event: Any = voting.event(votes.shape)
    for clip in {1, math.ceil(most / 3), most}:
        sigmas.clear()
        release = voting.aggregate(votes, generator=np.random.default_rng(0))
        assert release.noise_std is not None
        clipped = clip if sigmas else most
        paid = sum(
            Bisection(num_teachers=teachers, most=most).num_steps / sigma**2 for sigma in sigmas
        )
        paid += min(2 * clipped, most) / release.noise_std**2
        assert paid == pytest.approx(queries / event.noise_multiplier**2, rel=1e-12)
        assert not sigmas or paid * 0.75 <= min(2 * clipped, most) / release.noise_std**2 * (
            1 + 1e-12
        )
    assert bool(sigmas) == (
        math.ceil(math.log2(max(2, len(sizes_sought(most))))) * 36 * multiplier**2 / queries
        <= 0.25 * teachers**2
    )


def test_what_a_search_costs_depends_on_nothing_that_teachers_say() -> None:
    """The deviation of the noise is one of a few public numbers, of ballots that say nothing or
    everything too."""
    voting, shape = ClippedVotes(multiplier_clipped=1.0), (5, 60, 4)
    share = Bisection(num_teachers=60, most=20).share(1 / math.sqrt(5))
    public = {
        math.sqrt(min(2 * clip, 20) / 5 / (1 - share))
        for clip in {min(20, math.ceil(1.2 * c)) for c in sizes_sought(20)}
    }
    generator, found = np.random.default_rng(0), set()
    for chance in (0.0, 0.02, 0.1, 0.5, 1.0):
        votes = Votes.from_ballots((generator.random(shape) < chance).astype(np.uint8))
        found |= {voting.aggregate(votes, generator=generator).noise_std for _ in range(20)}
    assert len(found) >= 4
    for each in found:
        assert each is not None and min(abs(each - other) for other in public) < 1e-12


@pytest.mark.parametrize("around", [False, True])
def test_noise_is_gaussian_of_the_stated_deviation(around: bool) -> None:
    generator = np.random.default_rng(3)
    ballots = (generator.random((900, 30, 3)) < generator.random((1, 30, 1))).astype(np.uint8)
    guess = (generator.random((900, 3)) < 0.5 * around).astype(np.uint8)
    votes = replace(Votes.from_ballots(ballots), predictions=guess.astype(float))
    voting = ClippedVotes(multiplier_clipped=30.0, around_predictions=around)
    release = voting.aggregate(votes, generator=generator)
    assert release.noise_std is not None and release.noisy_counts is not None
    share = Bisection(num_teachers=30, most=2700).share(1.0)
    assert share <= 0.25
    clip = round(release.noise_std**2 * (1 - share) / 2)
    sums = clipped_sums(votes, guess, sizes_of(ballots, guess), clip)
    noisy = np.where(guess > 0, 30 - release.noisy_counts, release.noisy_counts)
    noise = ((noisy - sums) / release.noise_std).ravel()
    assert kstest(noise, "norm").pvalue > 1e-4
    assert kstest(noise / 0.8, "norm").pvalue < 1e-6
    grid = 2.0 ** math.ceil(math.log2(release.noise_std) - 20)
    assert (release.noisy_counts / grid == np.rint(release.noisy_counts / grid)).all() or 30 % grid
    np.testing.assert_array_equal(release.labels, release.noisy_counts > 15)


def test_a_tie_gives_no_label_and_no_query_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clipped_votes, "add_gaussian", lambda sums, **_: sums)
    ballots = np.zeros((1, 4, 3), dtype=np.uint8)
    ballots[0, :2, 0] = ballots[0, :3, 1] = 1
    voting = ClippedVotes(multiplier_clipped=1e4)
    release = voting.aggregate(Votes.from_ballots(ballots), generator=np.random.default_rng(0))
    assert release.labels.tolist() == [[0, 1, 0]]
    none = voting.aggregate(Votes.from_ballots(ballots[:0]), generator=np.random.default_rng(0))
    assert none.labels.shape == none.mask.shape == (0, 3) and none.noise_std == 1
    assert none.noisy_counts is not None and none.noisy_counts.shape == (0, 3)
