"""Audits of releases made again and again: nothing honest is accused, and planted faults are
found."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from scipy.special import ndtr

import pate.aggregators._score_votes as score_votes
from pate import Votes
from pate._audit.bounds import gaussian_trade_off
from pate._audit.repeated import CanaryMoments, CanaryTeachers, Repeated
from pate._validation import FloatArray
from pate.accounting import gaussian_epsilon
from pate.aggregators import (
    Counts,
    GroupVoters,
    MomentQuery,
    NoisyVotes,
    RecordVoters,
    Release,
)
from pate.mechanisms import add_gaussian
from tests._audit.worlds import DELTA, MU, audited, moments

TEACHERS = 800
RUNS = 45
Plant = Callable[[pytest.MonkeyPatch], None]


def half_the_noise(patch: pytest.MonkeyPatch) -> None:
    drawn = add_gaussian
    patch.setattr(
        score_votes,
        "add_gaussian",
        lambda values, *, sigma, generator: drawn(values, sigma=sigma / 2, generator=generator),
    )


def a_seed_used_twice(patch: pytest.MonkeyPatch) -> None:
    """All rounds of a release have the noise of the first one."""
    drawn, seeds = add_gaussian, iter(range(10**6))
    state = {"seed": 0}

    def again(values: FloatArray, *, sigma: float, generator: np.random.Generator) -> FloatArray:
        if values.size == 1:  # the number of voters, which is counted first
            state["seed"] = next(seeds) + int(generator.integers(2**32))
        return drawn(values, sigma=sigma, generator=np.random.default_rng(state["seed"]))

    patch.setattr(score_votes, "add_gaussian", again)


def a_vote_outside_of_the_mechanism(patch: pytest.MonkeyPatch) -> None:
    """What voters say of the first label is used as it is."""
    drawn = add_gaussian

    def leaking(values: FloatArray, *, sigma: float, generator: np.random.Generator) -> FloatArray:
        noisy = drawn(values, sigma=sigma, generator=generator)
        if values.ndim == 2:
            noisy[:, 0] = values[:, 0]
        return noisy

    patch.setattr(score_votes, "add_gaussian", leaking)


def no_clip(patch: pytest.MonkeyPatch) -> None:
    clipped = RecordVoters.clipped_sum

    def unclipped(voters: RecordVoters, question: MomentQuery, clip: float) -> FloatArray:
        return clipped(voters, question, question.largest_norm)

    patch.setattr(RecordVoters, "clipped_sum", unclipped)


def a_shared_partition(patch: pytest.MonkeyPatch) -> None:
    """Every two teachers have the records of both."""
    sums = GroupVoters._sums

    def shared(voters: GroupVoters, question: MomentQuery) -> Iterator[tuple[FloatArray, int]]:
        parts = list(sums(voters, question))
        for (total, samples), (other, others) in zip(parts[::2], parts[1::2], strict=False):
            yield total + other, samples + others
            yield total + other, samples + others

    patch.setattr(GroupVoters, "_sums", shared)


FAULTS: dict[str, tuple[Plant, Callable[[], CanaryMoments]]] = {
    "half the noise": (half_the_noise, moments),
    "a seed used twice": (a_seed_used_twice, moments),
    "a vote outside of the mechanism": (a_vote_outside_of_the_mechanism, moments),
    # others make ballots small, so that a clip is there to be missed
    "no clip": (no_clip, lambda: moments(poisons=0.65, size=2300)),
    "a shared partition": (a_shared_partition, lambda: moments(teachers=TEACHERS, size=300)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found_in_19_of_20_audits(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, world = FAULTS[name]
    releases = world()
    # negative control: the same audit of the same world
    assert not audited(releases, runs=RUNS, seed=0).refuted
    plant(monkeypatch)
    found = [audited(releases, runs=RUNS, seed=seed).refuted for seed in range(20)]
    assert sum(found) >= 19


@pytest.mark.slow
def test_honest_releases_raise_no_alarm_in_100_audits() -> None:
    world = moments()
    found = [audited(world, runs=RUNS, seed=seed) for seed in range(100)]
    assert not any(audit.refuted for audit in found)
    assert all(audit.mu <= MU for audit in found)


@pytest.mark.slow
def test_a_hundred_releases_prove_half_of_what_is_stated() -> None:
    for world in (moments(), moments(poisons=0.65, size=2300)):
        audit = audited(world, runs=100, seed=0)
        stated = gaussian_epsilon(DELTA, MU)
        assert stated / 2 <= audit.gaussian_epsilon <= stated


@pytest.mark.parametrize("name", ["a seed used twice", "no clip"])
def test_gross_faults_are_found_in_few_releases(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, _ = FAULTS[name]
    world = moments(canaries=16)
    plant(monkeypatch)
    assert audited(world, runs=RUNS // 3, seed=1).refuted


def test_a_canary_in_two_records_is_worth_two() -> None:
    audit = audited(moments("duplicated", canaries=32), runs=8, seed=0, copies=2)
    assert 0.7 < audit.right < 0.86 and not audit.refuted


def coded(
    generator: np.random.Generator, *, canaries: int, teachers: int, queries: int, labels: int
) -> CanaryTeachers:
    """Teachers of whom a canary turns all votes around, among others whose votes are halved."""
    ballots = generator.integers(0, 2, (queries, teachers, labels), dtype=np.uint8)
    sides = np.stack((ballots[:, None, :canaries], 1 - ballots[:, None, :canaries]))
    return CanaryTeachers(Votes.from_ballots(ballots), np.arange(canaries)[None], sides)


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_votes_are_audited_by_their_noisy_counts(share: float) -> None:
    """A share of the noise that was paid for: all of it, or not even half."""
    generator = np.random.default_rng(2)
    world = coded(generator, canaries=16, teachers=60, queries=80, labels=5)
    sigma = np.sqrt(80 * 5) / MU
    shares = list(world.repeat(NoisyVotes(sigma_votes=share * sigma), runs=25, generator=generator))
    audit = Repeated.of(shares, gaussian_trade_off(MU), delta=DELTA)
    assert audit.refuted == (share < 1)
    assert audit.mu > 0.2 and abs(audit.right - {1.0: 0.65, 0.4: 0.85}[share]) < 0.06


class Labels(NoisyVotes):
    """Noisy votes of which only the labels are released."""

    def aggregate(self, votes: Counts, *, generator: np.random.Generator) -> Release:
        return (
            super()
            .aggregate(votes, generator=generator)
            ._replace(noisy_counts=None, noise_std=None)
        )


def test_labels_tell_nearly_as_much_where_votes_are_halved() -> None:
    """A label has the sign of a count, which is worth ``2 / pi`` of its squared mu near a tie."""
    generator = np.random.default_rng(4)
    world = coded(generator, canaries=16, teachers=60, queries=80, labels=5)
    shares = list(
        world.repeat(Labels(sigma_votes=float(np.sqrt(400)) / MU), runs=30, generator=generator)
    )
    assert abs(float(np.mean(shares)) - ndtr(MU / 2 * np.sqrt(2 / np.pi))) < 0.05
    assert not Repeated.of(shares, gaussian_trade_off(MU), delta=DELTA).refuted
