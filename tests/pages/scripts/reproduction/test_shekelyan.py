"""Budgets at a probability, the arrows of plots, and the claims made of them."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from pate.mechanisms import NoisyTopK
from scripts.reproduction import Effort, Verdict, shekelyan
from scripts.reproduction.gillenwater import grade
from scripts.reproduction.shekelyan import (
    CONTENDERS,
    GRADES,
    SURE,
    VECTORS,
    Contender,
    Crossing,
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


def reached_at(times: float) -> list[Crossing]:
    epsilons = {"canonical (ours)": 0.5, "canonical": 1.0, "canonical, gamma 1": 2.0}
    epsilons |= {"one-shot exponential": times, "peeling": 2 * times}
    return [
        Crossing(name, 100, grade, epsilon)
        for name, epsilon in epsilons.items()
        for grade in GRADES
    ]


def test_claims_follow_from_the_budgets() -> None:
    near = shekelyan._arrow_claim(reached_at(54.0), 100)
    assert near.verdict is Verdict.DIFFERENT and near.ours.startswith("54 times at")
    assert shekelyan._arrow_claim(reached_at(34.5), 100).verdict is Verdict.REPRODUCED
    assert shekelyan._arrow_claim(reached_at(20.0), 100).verdict is Verdict.REFUTED
    assert shekelyan._least_claim("all", {"A": reached_at(3.0)}).verdict is Verdict.REPRODUCED
    assert shekelyan._least_claim("all", {"A": reached_at(0.9)}).verdict is Verdict.DIFFERENT


@pytest.fixture
def effort(tmp_path: Path) -> Effort:
    """A data folder of small vectors under the names of the large ones."""
    (tmp_path / "topk").mkdir()
    generator = np.random.default_rng(1)
    for file in VECTORS.values():
        np.save(tmp_path / "topk" / file, generator.permutation(np.arange(400) ** 2))
    return Effort(data=tmp_path)


def test_figures_of_small_vectors(effort: Effort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shekelyan, "PUBLISHED_TIMES", {100: 34, 10: 6, 20: 1})
    monkeypatch.setattr(shekelyan, "_SIZES", (10, 20, 100))
    few = {name: VECTORS[name] for name in ("NETFLIX", "HEPTH")}
    monkeypatch.setattr(shekelyan, "VECTORS", few)
    monkeypatch.setattr(Effort, "trials", lambda *_: 2)
    found = [make(effort) for make in (shekelyan.netflix, shekelyan.vectors, shekelyan.noises)]
    assert [len(made.claims) for made in found] == [5, 1, 1]
    assert {row["vector"] for row in found[1].rows} == {"HEPTH"}
    assert all("epsilon" in row for made in found for row in made.rows)


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
