"""Exact divergences of a release: they follow from the votes, and show faults of counting without
sampling."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from pate import Votes, VoteShape
from pate._core.validation import FloatArray
from pate.accounting import NeighboringRelation, RDPAccountant, gaussian_epsilon
from pate.aggregators import (
    Aggregator,
    Canonical,
    GroupVoters,
    MomentQuery,
    NoisyVotes,
    Peeling,
    Powerset,
    RecordVoters,
    StableTopK,
    TauVoting,
)
from pate.lab.audit.canaries import CanaryTeachers, CanaryVotes, Exact
from pate.lab.audit.forced import joint_epsilon
from pate.testing import exact_epsilon
from tests.lab.audit.worlds import DELTA, MU, moments, voting

Plant = Callable[[pytest.MonkeyPatch], None]


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


def leaks(
    world: CanaryVotes, aggregator: Aggregator, *, paid: float = gaussian_epsilon(DELTA, MU)
) -> Exact:
    return world.exact(aggregator, np.random.default_rng(5), paid=paid, delta=DELTA)


@pytest.mark.parametrize(
    ("plant", "teachers", "poisons"),
    [(no_clip, None, 0.65), (a_shared_partition, 100, 0.0)],
    ids=["clip", "partition"],
)
def test_what_votes_are_counted_wrongly_is_found(
    plant: Plant, teachers: int | None, poisons: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = moments(canaries=16, size=100, teachers=teachers, poisons=poisons)
    honest = leaks(world, voting(world))
    assert gaussian_epsilon(DELTA, 0.45 * MU) < honest.epsilon < honest.paid and not honest.refuted
    assert 0.5 < honest.mean < honest.largest < norm.cdf(MU / 2) and honest.steps in (4, 7)
    plant(monkeypatch)
    assert leaks(world, voting(world)).refuted


def test_counts_leak_as_much_as_their_enumerated_laws() -> None:
    """One query and label: laws of a noisy count with a canary and without it, in steps so fine
    that none matters."""
    votes = Votes.from_ballots(np.array([[[1], [0], [1]]], dtype=np.uint8))
    world = CanaryTeachers(votes, np.array([[0]]), np.array([[[[[1]]]], [[[[0]]]]], dtype=np.uint8))
    told = world.exact(NoisyVotes(sigma_votes=1.5), np.random.default_rng(0), paid=9.0, delta=1e-3)
    edges = np.concatenate(([-np.inf], np.arange(-15, 20, 1e-3), [np.inf]))
    laws = [np.diff(norm.cdf(edges, loc=count, scale=1.5)) for count in (2, 1)]
    assert told.epsilon == pytest.approx(exact_epsilon(*laws, delta=1e-3), abs=2e-3)
    assert told.mean == told.largest == pytest.approx(norm.cdf(1 / 3))


def turned_teachers(*, num_queries: int = 80, doubt: float = 0.5) -> CanaryTeachers:
    """Random ballots of 20 teachers on five labels; four of them have canaries that turn all that
    they say."""
    doubted = np.random.default_rng(3).random((num_queries, 20, 5)) < doubt
    ballots = (doubted ^ np.array([1, 1, 0, 0, 0], dtype=np.bool_)).astype(np.uint8)
    ours = ballots[:, None, :4]
    return CanaryTeachers(
        Votes.from_ballots(ballots), np.arange(4)[None], np.stack((ours, 1 - ours))
    )


def test_gaussian_queries_add_up() -> None:
    world, sigma = turned_teachers(), math.sqrt(80 * 5) / MU
    told = leaks(world, NoisyVotes(sigma_votes=sigma))
    assert told.epsilon == pytest.approx(told.paid) and not told.refuted
    assert told.mean == pytest.approx(norm.cdf(MU / math.sqrt(80) / 2))
    assert leaks(world, NoisyVotes(sigma_votes=sigma * 0.9)).refuted


def test_ballots_within_tau_leak_as_plain_votes_do_and_others_less() -> None:
    world, sigma = turned_teachers(), math.sqrt(80 * 5) / MU
    plain = leaks(world, NoisyVotes(sigma_votes=sigma))
    tau = TauVoting(tau=math.sqrt(5), sigma_tau=sigma, threshold_tau=10.0)
    assert leaks(world, tau) == plain
    assert leaks(world, replace(tau, tau=1.0)).epsilon < 0.6 * plain.epsilon


DISCRETE: tuple[Aggregator, ...] = (
    Canonical(k=2, scale_canonical=8.0),
    Canonical(k=2, scale_canonical=8.0, noise_law="exponential"),
    Peeling(k=2, scale_peel=12.0),
    StableTopK(scale_gap=20.0, sigma_test=4.0, delta_test=1e-9),
)


@pytest.mark.parametrize("aggregator", DISCRETE, ids=lambda aggregator: type(aggregator).__name__)
def test_discrete_releases_leak_what_is_paid_at_most(aggregator: Aggregator) -> None:
    """What is paid for all queries is not exceeded; it is, where the votes are released with a
    sixth of the noise."""
    world = turned_teachers(num_queries=15, doubt=0.1)
    accountant = RDPAccountant(relation=NeighboringRelation.REPLACE_RECORD)
    accountant.compose(aggregator.event(VoteShape(20, 5)), 15)
    paid = accountant.get_epsilon(delta=DELTA)
    told = leaks(world, aggregator, paid=paid)
    assert 0.1 * paid < told.epsilon < paid and not told.refuted
    assert 0.5 < told.mean < told.largest < 1 and told.steps == 15
    less = {name: getattr(aggregator, name) / 6 for name in aggregator.noise_parameters}
    assert leaks(world, replace(aggregator, **less), paid=paid).refuted


@pytest.mark.parametrize(
    ("aggregator", "yes", "num_teachers", "turned"),
    [
        (
            StableTopK(scale_gap=1.0, sigma_test=0.4, delta_test=1e-10, allow_empty=False),
            8,
            20,
            [0, 1],
        ),
        (Powerset(scale_powerset=0.05), 1, 2, [0, 0]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Aggregator) else str(value),
)
def test_outcomes_rarer_than_what_float_errs_are_possible(
    aggregator: Aggregator, yes: int, num_teachers: int, turned: list[int]
) -> None:
    """With so little noise one version has a rare outcome that the other has with a chance below
    1e-16."""
    ballots = np.zeros((1, num_teachers, len(turned)), dtype=np.uint8)
    ballots[0, :yes, 0] = 1
    first, second = ballots[:, None, :1], np.array(turned, dtype=np.uint8)[None, None, None]
    world = CanaryTeachers(Votes.from_ballots(ballots), np.array([[0]]), np.stack((first, second)))
    accountant = RDPAccountant(relation=NeighboringRelation.REPLACE_RECORD)
    paid = accountant.compose(
        aggregator.event(VoteShape(num_teachers, len(turned))), 1
    ).get_epsilon(delta=1e-9)
    told = world.exact(aggregator, np.random.default_rng(5), paid=paid, delta=1e-9)
    assert 0.1 * paid < told.epsilon < paid and not told.refuted


def test_a_canary_that_turns_nothing_leaks_nothing() -> None:
    votes = Votes.from_ballots(np.zeros((4, 3, 2), dtype=np.uint8))
    same = np.zeros((2, 4, 1, 1, 2), dtype=np.uint8)
    told = leaks(CanaryTeachers(votes, np.array([[0]]), same), Canonical(k=1, scale_canonical=1.0))
    assert (told.epsilon, told.mean, told.largest) == (0.0, 0.5, 0.5)


# the sum of the losses of several answers


def product_of(laws: np.ndarray) -> list[float]:
    """Return the law of all answers together, enumerated."""
    return [math.prod(chances) for chances in itertools.product(*laws.tolist())]


@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3, 0.1])
@pytest.mark.parametrize("zeros", [False, True])
def test_answers_together_leak_as_much_as_their_enumerated_law(zeros: bool, delta: float) -> None:
    generator = np.random.default_rng(1)
    p, q = generator.dirichlet(np.ones(4), size=(2, 5))
    q = 0.7 * p + 0.3 * q
    if zeros:  # what is possible on one side alone, seldom
        p, q = (
            np.column_stack((p * (1 - 1e-5), np.full(5, 1e-5), np.zeros(5))),
            np.column_stack((q, np.zeros((5, 2)))),
        )
    expected = exact_epsilon(product_of(p), product_of(q), delta=delta)
    told = joint_epsilon(p, q, delta=delta)
    if math.isinf(expected):
        assert told == 700
    else:
        assert expected - 0.02 <= told <= expected
    assert told == joint_epsilon(q, p, delta=delta)


def test_laws_that_share_nothing_are_told_though_their_sums_err() -> None:
    """One answer of two shares no outcome, and its chances add up to more than 1."""
    p = np.array([[0.1, 0.1, 0.1, 0.7000000000000002, 0.0], [0.5, 0.5, 0.0, 0.0, 0.0]])
    q = np.array([[0.0, 0.0, 0.0, 0.0, 1.0], [0.4, 0.6, 0.0, 0.0, 0.0]])
    assert p[0].sum() > 1
    assert joint_epsilon(p, q, delta=DELTA) == joint_epsilon(p[:1], q[:1], delta=DELTA) == 700


@pytest.mark.parametrize(
    ("n", "chance"), [(40, 0.6), pytest.param(150, 0.53, marks=pytest.mark.slow)]
)
def test_bits_leak_as_the_binomial_law_of_them(n: int, chance: float) -> None:
    """So unlikely a tail, and so small a delta, that a transform without care would make them
    up."""
    p, q = np.full((n, 2), [chance, 1 - chance]), np.full((n, 2), [1 - chance, chance])
    ones = np.arange(n + 1)
    coefficients = np.array([math.comb(n, k) for k in range(n + 1)], dtype=np.float64)
    first = coefficients * chance**ones * (1 - chance) ** (n - ones)
    for delta in (1e-3, 1e-6, 1e-9):
        expected = exact_epsilon(first.tolist(), first[::-1].tolist(), delta=delta)
        assert expected - 0.02 <= joint_epsilon(p, q, delta=delta) <= expected
