"""Costs of multi-winner voting by hand and against exact divergences."""

import math
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from scipy.special import log_ndtr
from scipy.stats import norm

from pate.accounting import NeighboringRelation
from scripts.reproduction import Verdict, multi_winner as w
from scripts.reproduction.__main__ import main
from scripts.reproduction.findings import kept
from tests.core.accounting import oracles

pytestmark = pytest.mark.slow

REPLACE = NeighboringRelation.REPLACE_RECORD


def test_theorem_6_holds_in_its_direction_alone() -> None:
    worst = w.one_way(50, 7.0)
    assert worst.stated <= 1 < 1.5 < worst.ratio
    assert worst.exact_other == pytest.approx(worst.ratio * worst.bound)
    noise = w.one_noise(7.0)
    # by hand: one of fifty votes less, in the direction that is the larger
    p, q = (norm.cdf((each - 25) / noise) for each in (worst.votes, worst.votes - 1))
    both_ways = [
        math.log(
            a**worst.order * b ** (1 - worst.order)
            + (1 - a) ** worst.order * (1 - b) ** (1 - worst.order)
        )
        / (worst.order - 1)
        for a, b in ((p, q), (q, p))
    ]
    assert (worst.exact_stated, worst.exact_other) == pytest.approx(tuple(both_ways), rel=1e-6)
    assert both_ways[0] < worst.bound < both_ways[1]


def test_theorem_6_bounds_one_direction_in_sixty_digits() -> None:
    sigma, order, there = 3.0, 12.0, []
    for count in range(31, 61):
        here, near = (
            [oracles.phi(mp.mpf(side * (each - 30)) / 3) for side in (1, -1)]
            for each in (count, count - 1)
        )
        bound = w.one_way_rdp(order, float(log_ndtr((30 - count) / sigma)), 1 / (2 * sigma**2))
        with mp.workdps(60):
            assert oracles.renyi(here, near, order) <= bound
            there.append(oracles.renyi(near, here, order) > bound)
    assert any(there)


def test_published_curve_of_smooth_sensitivity_falls_below_the_truth() -> None:
    """Papernot et al. (2018), Theorem 23: alpha e^(2 beta) / sigma^2 + (beta alpha -
    log(1 - 2 alpha beta) / 2) / (alpha - 1)."""
    beta, sigma, order = 0.01, 0.1, 49.0
    published = order * np.exp(2 * beta) / sigma**2 + (
        beta * order - np.log(1 - 2 * order * beta) / 2
    ) / (order - 1)
    assert published < oracles.normal_divergence(order, np.exp(-beta), sigma, sigma * np.exp(-beta))


def test_verdicts(tmp_path: Path) -> None:
    main(["dziedzic_multi_winner", "--output", str(tmp_path / "found")])
    (found,) = kept(tmp_path / "found")
    assert [claim.verdict for claim in found.claims] == [Verdict.REPRODUCED] * 2
    assert w.sensitivities()[REPLACE] == pytest.approx(math.sqrt(20))
