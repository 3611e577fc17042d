"""Theorem 11 against the algorithm as printed, in fifty digits and by its mechanism here, and
Theorem 20."""

import math

import mpmath as mp
import numpy as np
import pytest
from scipy.stats import norm

from pate.mechanisms import StableTopKMechanism
from scripts.reproduction import Effort, Reason, Verdict
from scripts.reproduction.zhu_wang_theorems import Counterexample, counterexample, theorems

pytestmark = pytest.mark.slow


def in_fifty_digits(example: Counterexample, counts: tuple[float, float, float]) -> mp.mpf:
    """The probability of the first item, from Algorithm 2: Gumbel noise of 2 / epsilon, epsilon = 2
    sqrt(rho)."""
    rho = mp.mpf(example.rho)
    gaps = counts[0] - counts[1], counts[1] - counts[2]
    weights = [mp.exp(mp.sqrt(rho) * gap) for gap in gaps]
    sigma = 1 / mp.sqrt(rho)
    bound = max(1, gaps[0]) - sigma * mp.sqrt(2 * mp.log(1 / mp.mpf(example.delta_test)))
    return weights[0] / sum(weights) * mp.ncdf((bound - 1) / sigma)


@pytest.mark.parametrize(("delta", "times"), [(1e-6, 1.42), (1e-9, 6.38), (1e-12, 22.86)])
def test_theorem_11_is_refuted_in_fifty_digits(delta: float, times: float) -> None:
    example = counterexample(delta, delta / 1000)
    with mp.workdps(50):
        first, second = example.first, example.second
        before = in_fifty_digits(example, (first + second, second, 0))
        after = in_fifty_digits(example, (first + second + 1, second, 1))
        epsilon = example.rho + mp.sqrt(2 * example.rho * mp.log(1 / mp.mpf(delta)))
        needed = (after - mp.exp(epsilon) * before) / (mp.mpf(delta) + mp.mpf(example.delta_test))
    assert (
        float(needed) == pytest.approx(times, abs=0.01) == pytest.approx(example.excess, abs=0.01)
    )
    # what follows from zCDP holds; the root that is printed belongs to half of rho
    assert example.delta_at(example.converted) < delta
    halved = example._replace(rho=example.rho / 2)
    assert halved.converted - halved.rho == pytest.approx(example.claimed - example.rho)


def test_the_law_is_that_of_the_mechanism() -> None:
    """With a threshold that lets something through, for draws to count."""
    example = Counterexample(rho=0.25, delta=0.1, delta_test=0.1, first=5, second=6)
    counts, draws = np.tile(np.array([12, 6, 1]), (100_000, 1)), 100_000
    mechanism = StableTopKMechanism(
        num_teachers=20,
        num_labels=3,
        scale_gap=2.0,
        sigma_test=2.0,
        delta_test=float(norm.cdf(-math.sqrt(2 * math.log(10)))),
        shift=1,
        allow_empty=False,
    )
    members, released = mechanism(counts, generator=np.random.default_rng(0))
    share = float((released & members[:, 0] & ~members[:, 1]).mean())
    expected = example.released(True)
    error = math.sqrt(expected * (1 - expected) / draws)
    assert share == pytest.approx(expected, abs=4 * error)
    assert abs(share - example.released(False)) > 10 * error  # the negative control


def test_verdicts_of_statements() -> None:
    found = theorems(Effort())
    assert [claim.verdict for claim in found.claims] == [Verdict.DIFFERENT] + [
        Verdict.REPRODUCED
    ] * 4
    assert (
        found.claims[0].reason is Reason.MISPRINT
        and "need 0.40, 1.01, 3.82 times it" in found.claims[0].why
    )
    # Laplace noise of a deviation of 50: pure 2 sqrt(2) / 50 a query, by the conversion of its zCDP
    # at most
    rho = 600 * ((2 * math.sqrt(2) / 50) ** 2 / 2 + 1 / 7200)
    spent = float(found.claims[2].ours.split("Laplace ")[1].split()[0])
    assert 0.7 < spent / (rho + 2 * math.sqrt(rho * math.log(2.5e6))) < 1
