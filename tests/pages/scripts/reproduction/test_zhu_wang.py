"""The studies of Zhu & Wang (2022), and the claims of the paper on their figures."""

import math
from pathlib import Path

import pytest
from scipy.special import ndtr

from pate._labeling.commands.places import find_study
from pate.lab.study.study import Study
from scripts.reproduction.zhu_wang_figures import STABLE, read_study

pytestmark = pytest.mark.slow


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
