"""Shares of noise: their sum is Gaussian but for what is stated, to the last digit."""

import math

import numpy as np
import pytest
from scipy.stats import kstest, norm

from pate._core.accounting.cost import gaussian_log_delta
from pate._core.mechanisms.noise import decode, failure, share_grid, share_sigma, split, summand
from pate._core.validation import FloatArray


def rounded_law(sigma: float, reach: int) -> FloatArray:
    """The law of a normal number of ``sigma`` steps, rounded, on ``-reach .. reach``."""
    steps = np.abs(np.arange(-reach, reach + 1))
    return np.asarray(norm.sf((steps - 0.5) / sigma) - norm.sf((steps + 0.5) / sigma))


def stated_failure(deviation: float, num: int) -> float:
    """What the theorem says of ``num`` shares of ``deviation`` steps."""
    theta = 2 * sum(np.exp(-((np.pi * part * deviation) ** 2)) for part in (1, 2, 3))
    return float(1 - np.exp(-(num - 1) / (24 * deviation**2)) * (1 - theta) ** (num - 1))


def lacking(deviation: float, num: int, *, noise: float = 1.0) -> float:
    """The largest share of the Gaussian's law that is not in that of a sum, at any outcome, by
    convolution."""
    reach = int(12 * deviation * np.sqrt(num)) + 2
    share = rounded_law(noise * deviation, reach)
    total = share
    for _ in range(num - 1):
        total = np.convolve(total, share, "same")
    gaussian = rounded_law(deviation * np.sqrt(num), reach)
    likely = gaussian > 1e-12
    return float(1 - (total[likely] / gaussian[likely]).min())


@pytest.mark.parametrize("num", [2, 5])
@pytest.mark.parametrize("deviation", [0.5, 1.0, 4.0])
def test_a_sum_lacks_no_more_of_the_gaussian_than_is_stated(deviation: float, num: int) -> None:
    stated = stated_failure(deviation, num)
    exact = lacking(deviation, num)
    assert stated / 20 < exact <= stated
    assert lacking(deviation, num, noise=0.5) > stated or deviation < 1


MODULUS = 64
EPSILONS = (0.1, 0.5, 1.0, 2.0)


def masked_views(counts: tuple[int, int], deviation: float, *, colluding: bool) -> FloatArray:
    """The law of two masked vectors modulo 64, of counts in steps; ``[noise, 64, 64]`` next to what
    a colluder drew."""
    law = np.zeros(MODULUS)
    np.add.at(law, np.arange(-30, 31) % MODULUS, rounded_law(deviation, 30))
    views = np.zeros((MODULUS if colluding else 1, MODULUS, MODULUS))
    first, second = np.arange(MODULUS)[:, None], np.arange(MODULUS)
    joint = law[first] * law[second]  # of the noise of each
    for mask in range(MODULUS):
        sent = (counts[0] + first + mask) % MODULUS, (counts[1] + second - mask) % MODULUS
        np.add.at(views, (second if colluding else 0 * second, *sent), joint / MODULUS)
    return views


def over(views: FloatArray, neighbors: FloatArray, epsilon: float) -> float:
    """The delta of a pair of laws at ``epsilon``, in the worse direction."""
    return max(
        float(np.maximum(p - np.exp(epsilon) * q, 0).sum())
        for p, q in ((views, neighbors), (neighbors, views))
    )


def test_masked_vectors_say_what_their_sum_says() -> None:
    """Given the sum, either of them is uniform: the law of both is that of the sum, modulo 64, over
    as many masks."""
    sums = np.zeros(MODULUS)
    np.add.at(
        sums, np.arange(-60, 61) % MODULUS, np.convolve(rounded_law(3.0, 30), rounded_law(3.0, 30))
    )
    total = np.add.outer(np.arange(MODULUS), np.arange(MODULUS)) % MODULUS
    for counts in ((7, 3), (2, 8), (0, 9)):
        (views,) = masked_views(counts, 3.0, colluding=False)
        np.testing.assert_allclose(views, sums[total - sum(counts)] / MODULUS, atol=1e-17)


@pytest.mark.parametrize("colluding", [False, True])
def test_what_a_server_sees_costs_no_more_than_is_stated(colluding: bool) -> None:
    """A vote has two steps of the grid.

    Of two silos one may collude; shares for twice as many cost more.
    """
    sigma, vote = 4.0, 2  # steps

    def exceeds_statement(num_honest: int) -> bool:
        deviation = share_sigma(sigma, num_honest)
        delta0 = stated_failure(deviation, num_honest)
        views = [
            masked_views(counts, deviation, colluding=colluding)
            for counts in ((7, 3), (7 - vote, 3))
        ]
        stated = [
            delta0 + (1 - delta0) * np.exp(gaussian_log_delta(epsilon, vote / sigma))
            for epsilon in EPSILONS
        ]
        return any(
            over(views[0], views[1], epsilon) > delta
            for epsilon, delta in zip(EPSILONS, stated, strict=True)
        )

    assert not exceeds_statement(1 if colluding else 2)
    assert exceeds_statement(2 if colluding else 4)


def test_what_is_stated_of_the_grid_in_use() -> None:
    for sigma in (0.3, 1.0, 7.7, 1e6):
        steps = sigma / share_grid(sigma)
        assert 2**30 <= steps < 2**31 and np.log2(share_grid(sigma)) % 1 == 0
        for num in (1, 2, 40):
            assert (num - 1) / (24 * steps**2) < failure(num) < 6e-20 * num


@pytest.mark.parametrize(("sigma", "num"), [(5.0, 1), (2.0, 9), (1e-3, 40), (2.0**20, 2)])
def test_sums_are_rounded_as_noise_of_one_party_is(sigma: float, num: int) -> None:
    grid = split(np.zeros(1), sigma * math.sqrt(num))[2]
    # just beyond the middle of steps
    steps = np.array([1, 5, -3, 7]) * round(grid / share_grid(sigma)) // 2 + 1
    decoded = decode(steps.astype(np.int64).view(np.uint64), sigma, num)
    np.testing.assert_array_equal(decoded, np.array([1, 3, -1, 4]) * grid)


def test_shares_add_up_to_their_noise() -> None:
    generator = np.random.default_rng(0)
    counts = np.array([[[5, 0, 80]], [[0, 7, 11]], [[1, 1, 1]]]).repeat(20_000, axis=1)
    total = sum(
        (summand(silo, 2.0, generator) for silo in counts),
        start=np.zeros((20_000, 3), dtype=np.uint64),
    )
    noise = decode(total, 2.0, 3) - counts.sum(axis=0)
    assert kstest(noise.ravel(), norm(scale=2 * np.sqrt(3)).cdf).pvalue > 1e-3
    assert kstest(noise.ravel() * 1.05, norm(scale=2 * np.sqrt(3)).cdf).pvalue < 1e-6
    assert share_sigma(2 * np.sqrt(3), 3) == pytest.approx(2.0)
