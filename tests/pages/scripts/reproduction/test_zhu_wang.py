"""The studies of Zhu & Wang (2022), and the claims of the paper on their figures."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr

from pate._labeling.commands.shipped import find_study
from pate.lab.study.study import Study, read_study
from scripts.reproduction import Effort, Verdict, zhu_wang_figures
from scripts.reproduction.findings import Row
from scripts.reproduction.zhu_wang_figures import DOMAIN, PEELING, STABLE, TOP_STABLE

pytestmark = pytest.mark.slow

NAMES = (PEELING, DOMAIN, TOP_STABLE, STABLE)


def shipped(name: str) -> Study:
    return read_study(Path(find_study(name)))


def test_the_budget_of_algorithm_3_is_split_as_published() -> None:
    study = shipped("zhu_wang_covid")
    fixed = study.partials[study.named.index(STABLE)].settings
    (k,) = study.k
    # one half of rho is Algorithm 2 with rho / 2, the other is k rounds of Gumbel noise
    rho = 2 / fixed["sigma_test_fixed"] ** 2
    assert fixed["scale_gap_fixed"] == fixed["sigma_test_fixed"] and fixed["fallback"]
    assert k / (8 * fixed["scale_peel_fixed"] ** 2) == pytest.approx(rho / 2, rel=1e-3)
    # the threshold of the paper, of a failure of half of delta over ten releases
    published = ndtr(-math.sqrt(2 * math.log(2 * 10 / study.delta)))
    assert fixed["delta_test_fixed"] == pytest.approx(published, rel=0.02)


def rows_of(found: dict[str, list[float]]) -> list[Row]:
    return [
        {"mechanism": name, "mean": value} for name, values in found.items() for value in values
    ]


def test_claims_of_four_intervals_follow_from_recall() -> None:
    means = dict.fromkeys(NAMES, 0.5) | {PEELING: 0.9, DOMAIN: 0.1, STABLE: 0.8}
    recalls = {name: [mean + day / 100 for day in range(4)] for name, mean in means.items()}
    assert [claim.verdict for claim in zhu_wang_figures.covid_claims(rows_of(recalls))] == [
        # the third at prices that are not the paper's
        Verdict.DIFFERENT if i == 2 else Verdict.REPRODUCED
        for i in range(5)
    ]
    other = zhu_wang_figures.covid_claims(
        rows_of(recalls | {DOMAIN: [0.95] * 4, STABLE: [0.3] * 4})
    )
    assert [claim.verdict for claim in other] == [Verdict.REFUTED] + [Verdict.DIFFERENT] * 4
    nothing = zhu_wang_figures.covid_claims(rows_of(recalls | {DOMAIN: [0.0] * 4}))
    assert "3 of 4 rise" in nothing[2].ours and DOMAIN not in nothing[2].ours


def test_figures_of_small_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Effort, "trials", lambda *_: 3)
    (tmp_path / "topk").mkdir()
    generator = np.random.default_rng(2)
    days = generator.integers(-3, 3000, (40, 20))
    np.savez(tmp_path / "topk" / "US_COVID19_STATES.npz", daily=days)
    found = zhu_wang_figures.covid(Effort(data=tmp_path))
    assert len(found.rows) == 4 * 4 and len(found.claims) == 5
    bins = zhu_wang_figures.bins(Effort())
    assert {row["k"] for row in bins.rows} == {10, 50, 150, 500, 1500}
    assert bins.claims[0].verdict is Verdict.REPRODUCED
