"""The canonical mechanism, where its classes can be listed and where they are too many."""

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from pate import mechanisms as m
from pate._core.mechanisms import canonical as _canonical
from pate._core.mechanisms.canonical import CanonicalLoss
from pate._core.mechanisms.exact_choice import Picked
from pate._core.mechanisms.noise import ChoiceNoise
from pate._core.testing.laws import chi_square_p_value
from pate._core.testing.mechanisms import Grid
from pate.accounting import NeighboringRelation
from pate.testing import MechanismContract
from tests.core.mechanisms import oracles
from tests.core.mechanisms.scripted import Scripted

# in descending order, steep at first, so that heads matter as much as tails
SCORES = np.concatenate(([34.0, 31.5, 29.0, 26.5, 24.0], np.linspace(23.4, 2.0, 35)))


class TestCanonical(MechanismContract):
    num_items = 4
    max_count = 3
    k = 2
    scale = 1.5
    gamma = 0.5
    noise: ChoiceNoise = "gumbel"
    loss: CanonicalLoss = "lead"
    grid: Grid = ((3, 2, 0, 1), (1, 1, 1, 1), (0, 3, 3, 0), (3, 3, 2, 2))

    def make(self, relation: NeighboringRelation) -> m.CanonicalMechanism:
        return m.CanonicalMechanism(
            k=self.k, scale=self.scale, gamma=self.gamma, noise=self.noise, loss=self.loss
        )

    def outcomes(self) -> list[tuple[int, ...]]:
        return oracles.sets(self.num_items, self.k)

    def law(self, mechanism: m.CanonicalMechanism, scores: oracles.Array) -> oracles.Array:
        choice = oracles.softmax if mechanism.noise == "gumbel" else oracles.flip_law
        utilities = oracles.subset_utilities(scores, mechanism.k, mechanism.gamma, mechanism.loss)
        return choice(utilities / mechanism.scale)


@pytest.mark.slow
class TestCanonicalTail(TestCanonical):
    gamma = 1.0


@pytest.mark.slow
class TestCanonicalHead(TestCanonical):
    gamma = 0.0


class TestCanonicalOblique(TestCanonical):
    gamma = 0.3
    num_items = 5
    max_count = 2
    k = 3
    grid: Grid = ((2, 2, 0, 1, 0), (1, 1, 1, 1, 1), (0, 2, 2, 0, 1))


@pytest.mark.slow
class TestCanonicalOne(TestCanonical):
    k = 1


# of few sets, those at the top keep most of the probability, and without credit for their lead they
# hardly move
HELD_BACK = (
    "no set gains on those at the top by the whole window, which it takes many items to outweigh"
)


class TestCanonicalPublished(TestCanonical):
    loss = "published"
    loose_because = HELD_BACK

    def test_the_published_loss_differs_from_ours(self) -> None:
        """The two losses differ in law wherever the top-k is ahead, so that neither passes for the
        other."""
        ours = m.CanonicalMechanism(k=self.k, scale=self.scale)
        assert self._p_value(ours, self.draws) > 1e-4
        theirs = self.make(NeighboringRelation.REPLACE_RECORD)
        self.grid = ((3, 3, 0, 1), (2, 3, 1, 0))
        drawn = [
            self._drawn(theirs, np.tile(row, (self.draws, 1)), m.seeded_generator(0))
            for row in self.grid
        ]
        for row, found in zip(self.grid, drawn, strict=True):
            expected = self.law(ours, np.array(row)) * self.draws
            assert chi_square_p_value(np.bincount(found, minlength=len(expected)), expected) < 1e-6


class TestCanonicalFlip(TestCanonical):
    noise = "exponential"
    scale = 0.4


@pytest.mark.slow
class TestCanonicalFlipPublished(TestCanonicalFlip):
    loss = "published"
    loose_because = HELD_BACK


def classes_of(chosen: NDArray[np.int64], k: int, num_items: int) -> NDArray[np.int64]:
    """Number the class of subsets ``[n, k]`` of ranks: 0 for the top-k."""
    head = (chosen == np.arange(k)).cumprod(axis=1).sum(axis=1)
    tail = chosen[:, -1] + 1
    return np.where(head == k, 0, 1 + head * (num_items - k) + tail - k - 1)


@pytest.mark.parametrize(
    ("gamma", "noise", "loss"),
    [
        (1.0, "gumbel", "lead"),
        (1.0, "exponential", "lead"),
        pytest.param(0.5, "gumbel", "published", marks=pytest.mark.slow),
        pytest.param(0.0, "gumbel", "lead", marks=pytest.mark.slow),
        pytest.param(0.5, "exponential", "published", marks=pytest.mark.slow),
    ],
)
def test_single_rows_of_many_items_follow_the_law(
    gamma: float, noise: ChoiceNoise, loss: CanonicalLoss, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two points of the first envelope make it as loose as it can be."""
    monkeypatch.setattr(_canonical, "_POINTS", 2)
    k, scale, draws = 4, 1.5, 1500
    mechanism = m.CanonicalMechanism(k=k, scale=scale, gamma=gamma, noise=noise, loss=loss)
    generator = m.seeded_generator(0)
    chosen = np.array([mechanism(SCORES, generator=generator) for _ in range(draws)])
    observed = np.bincount(classes_of(chosen, k, 40), minlength=1 + k * 36)
    law = class_law(k, scale, gamma, noise, loss)
    assert chi_square_p_value(observed, draws * law) > 1e-4
    assert (
        chi_square_p_value(observed, draws * class_law(k, 0.8 * scale, gamma, noise, loss)) < 1e-6
    )


@pytest.mark.parametrize("points", [2, pytest.param(13, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("gamma", "scale", "loss"), [(0.5, 0.3, "lead"), (0.2, 0.1, "published"), (0.0, 5.0, "lead")]
)
def test_all_proposals_of_a_row_have_their_law(
    gamma: float, scale: float, loss: CanonicalLoss, points: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All proposals are listed: the share of each, times the chance that it is kept, is the weight
    of its class, in fractions. Tails alone and in runs are among them."""
    monkeypatch.setattr(_canonical, "_POINTS", points)
    k, num_items = 4, 40
    mechanism = m.CanonicalMechanism(k=k, scale=scale, gamma=gamma, loss=loss)
    terms = mechanism._terms(mechanism._ranked(SCORES[None])[1])
    sampler = _canonical.EnvelopeSampler(terms, Scripted())
    picked: list[Picked] = []

    def pick(cumulative: NDArray[np.int64], script: Scripted) -> Picked:
        place = script.numbers.pop(0)
        weights = np.diff(cumulative, prepend=0)
        picked.append(Picked(np.array([place]), weights[:, place], cumulative[:, -1]))
        return picked[-1]

    monkeypatch.setattr(_canonical, "pick", pick)
    widths = np.diff(sampler.ends, prepend=-2).tolist()
    shares: dict[tuple[int, ...], Fraction] = {}
    for run, width in enumerate(widths):
        for offset, head in np.ndindex(width, k if run else 1):
            picked.clear()
            sampler.generator = Scripted(run, [offset], head)
            proposals = sampler.propose(np.zeros(1, dtype=np.int64))
            found = tuple(proposals.outcomes[0].tolist())
            assert found not in shares and proposals.loss is not None
            shares[found] = math.prod((one.share(0) for one in picked), start=Fraction(1, width))
            chance = proposals.chance(0)
            assert shares[found] * chance.factor == sets_of(*found, k=k)
            assert chance.low == proposals.loss(0) + Fraction(float(sampler.log_rates[0]))
            log_chance = math.log(chance.factor) - float(chance.low)
            assert log_chance < 0 and abs(proposals.log_chances[0] - log_chance) < 1e-9
    assert sum(shares.values()) == 1 and (max(widths) > 1) == (scale < 1)
    classes = {(head, tail) for head in range(k) for tail in range(k, num_items)}
    assert shares.keys() == {(-1, k - 1)} | classes


def sets_of(head: int, tail: int, *, k: int) -> int:
    """Count the sets of a class by ranks from 0."""
    return 1 if tail < k else math.comb(tail - head - 1, k - 1 - head)


def class_law(
    k: int, scale: float, gamma: float, noise: ChoiceNoise, loss: CanonicalLoss
) -> NDArray[np.float64]:
    heads, tails = np.arange(k)[:, None], np.arange(k + 1, 41)[None, :]
    outside = SCORES[k] if loss == "lead" else SCORES[k - 1]
    losses = gamma * (SCORES[k - 1] - SCORES[tails - 1]) + (1 - gamma) * (SCORES[heads] - outside)
    sizes = [[math.comb(t - h - 2, k - h - 1) for t in range(k + 1, 41)] for h in range(k)]
    chances = np.append(1.0, np.exp(-losses / scale).ravel())
    counts = np.append(1.0, np.array(sizes, dtype=float).ravel())
    if noise == "exponential":
        return oracles.flip_class_law(chances, counts)
    law: NDArray[np.float64] = chances * counts / (chances @ counts)
    return law


def test_members_of_a_class_are_equally_likely() -> None:
    listing = oracles.sets(8, 3)
    index = {subset: i for i, subset in enumerate(listing)}
    generator = m.seeded_generator(0)
    in_batch = m.CanonicalMechanism(k=3, scale=1.0)(np.zeros((4000, 8)), generator=generator)
    by_tail = m.CanonicalMechanism(k=3, scale=1.0, gamma=1.0)
    alone = [by_tail(np.zeros(8), generator=generator) for _ in range(2000)]
    for drawn in (in_batch, np.array(alone)):
        draws = len(drawn)
        observed = np.bincount(
            [index[tuple(row)] for row in drawn.tolist()], minlength=len(listing)
        )
        assert chi_square_p_value(observed, np.full(len(listing), draws / len(listing))) > 1e-4


def test_more_subsets_than_a_float_can_count() -> None:
    """``binom(4000, 2000)`` is beyond 1e1200: all in log space, alone and in a batch."""
    scores = np.repeat([10, 0], [2000, 2000])
    noises: tuple[ChoiceNoise, ...] = ("gumbel", "exponential")
    for noise in noises:
        for gamma in (0.5, 1.0):
            mechanism = m.CanonicalMechanism(k=2000, scale=1e-2, gamma=gamma, noise=noise)
            chosen = mechanism([scores, scores], generator=m.seeded_generator(0))
            assert (chosen[:, -1] > 2000).all()  # the top-k is one of too many
            assert (np.diff(chosen, axis=1) > 0).all()
