"""Budgets at a probability, the arrows of plots, and the claims made of them."""

import itertools
import math

import numpy as np
import pytest

from pate.mechanisms import NoisyTopK
from scripts.reproduction.gillenwater import grade
from scripts.reproduction.shekelyan import (
    CONTENDERS,
    GRADES,
    SURE,
    Contender,
    epsilon_at,
    zipf_scores,
)

pytestmark = pytest.mark.slow

SCORES = np.concatenate((np.linspace(300, 200, 10), np.linspace(120, 0, 30)))


@pytest.mark.parametrize("contender", CONTENDERS, ids=lambda each: each.name)
def test_the_budget_gives_the_probability(contender: Contender) -> None:
    epsilon = epsilon_at(contender, SCORES, 10, "top")
    assert contender.probability(SCORES, 10, epsilon, "top") == pytest.approx(SURE, abs=2e-6)
    reached = [contender.probability(SCORES, 10, epsilon, each) for each in GRADES]
    assert reached == sorted(reached)


def test_one_shot_is_what_is_drawn() -> None:
    one_shot = next(each for each in CONTENDERS if each.name == "one-shot exponential")
    rows = np.tile(SCORES, (20_000, 1))
    drawn = grade(
        rows,
        NoisyTopK(k=10, scale=10 / 0.6, noise="exponential")(
            rows, generator=np.random.default_rng(0)
        ),
    )
    for name, values in zip(GRADES, drawn, strict=True):
        expected = one_shot.probability(SCORES, 10, 0.6, name)
        deviation = math.sqrt(expected * (1 - expected) / len(rows)) + 1e-4
        assert abs(values.mean() - expected) < 4 * deviation, name


def test_the_caption_of_figure_3_by_inclusion_and_exclusion() -> None:
    """Peeling as a race: item i comes at an exponential time of rate exp(x_i / 10), the ten best
    before all others."""
    scores = zipf_scores(0.04, 1.5e8)
    peeling = next(contender for contender in CONTENDERS if contender.name == "peeling")
    rates = np.exp((scores - scores[9]) / 10)
    late = [
        sum(chosen) for size in range(11) for chosen in itertools.combinations(rates[:10], size)
    ]
    signs = [(-1) ** size for size in range(11) for _ in range(math.comb(10, size))]
    others = rates[10:].sum()
    race = math.fsum(
        sign * others / (others + rate) for sign, rate in zip(signs, late, strict=True)
    )
    assert race == pytest.approx(0.99927, abs=5e-6)
    assert peeling.probability(scores, 10, 1.0, "top") == pytest.approx(race, abs=1e-6)
    # with i^s, as printed, scores lie 3 apart at s = 1, and the caption would not hold
    linear = np.arange(10_000, 0, -1) * 1.5e8 / (5000 * 10_001)
    assert peeling.probability(linear, 10, 1.0, "top") < 0.1
