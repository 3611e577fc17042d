"""Normal numbers made of noise, and the tests of them."""

import numpy as np
import pytest
from scipy.stats import norm

from pate._core.validation import FloatArray, IntArray
from pate._labeling.aggregators.clipped_votes import noisy_median
from pate.lab.audit.laws import FACTORS, Gaussians, Outcomes, median_law, p_values

SHAPE = (6, 4, 30, 5)
AXES = ("releases", "rounds", "rows", "columns")


def normal(seed: int) -> FloatArray:
    return np.random.default_rng(seed).standard_normal(SHAPE)


def test_p_values_of_normal_numbers_are_uniform() -> None:
    """None of 100 arrays looks faulty, and a tenth of the p-values is about a tenth."""
    found = [p_values(normal(seed)[:2, :2], AXES) for seed in range(100)]
    assert min(min(each.values()) for each in found) > 1e-6
    for name in ("size", "mean", "law", "sums over rows", "sums over releases"):
        below = np.mean([each[name] < 0.1 for each in found])
        assert abs(below - 0.1) < 4 * np.sqrt(0.1 * 0.9 / 100)
    # the largest of many correlations: the union bound is larger, never much smaller
    assert np.mean([each["pairs of rows"] < 0.1 for each in found]) < 0.2


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda z: 0.8 * z, "size"),
        (lambda z: z + 0.2, "mean"),
        (lambda z: np.sign(z), "law"),
        (lambda z: z * (np.arange(30)[:, None] > 4), "size"),
        (lambda z: np.broadcast_to(z[:1], SHAPE), "pairs of releases"),
        (lambda z: np.broadcast_to(z[:, :1], SHAPE), "pairs of rounds"),
        (lambda z: np.broadcast_to(z[:, :, :1], SHAPE), "pairs of rows"),
        (lambda z: np.broadcast_to(z[..., :1], SHAPE), "sums over columns"),
        (lambda z: np.where(np.arange(30)[:, None] == 7, z[:, :, 3:4], z), "pairs of rows"),
    ],
)
def test_each_test_finds_its_fault(change: object, name: str) -> None:
    assert callable(change)
    assert p_values(change(normal(3)), AXES)[name] < 1e-9
    assert p_values(normal(3), AXES)[name] > 1e-3


def outcomes(chosen: FloatArray | IntArray) -> Outcomes:
    def law(factor: float) -> FloatArray:
        chances = np.tile(np.exp(-np.array([0.0, 0.5, 1.5]) / factor), (4000, 1))
        return np.asarray(chances / chances.sum(axis=1, keepdims=True))

    return Outcomes({factor: law(factor) for factor in (1.0, *FACTORS)}, chosen.astype(np.int64))


def test_outcomes_become_normal_and_less_noise_moves_their_mean() -> None:
    generator = np.random.default_rng(0)
    empty = outcomes(np.zeros(4000))
    drawn = {factor: empty.simulated(factor, generator) for factor in (1.0, *FACTORS)}
    assert min(p_values(drawn[1.0], ()).values()) > 1e-3
    assert all(p_values(drawn[factor], ())["mean"] < 1e-9 for factor in FACTORS)
    chances = empty.chances[1.0][0]
    honest = outcomes(generator.choice(3, 4000, p=chances)).normals(generator)
    assert min(p_values(honest, ()).values()) > 1e-3


def test_an_outcome_without_a_chance_is_as_far_out_as_can_be() -> None:
    normals = outcomes(np.full(4000, -1.0)).normals(np.random.default_rng(0))
    assert (normals == 40).all() and p_values(normals, ())["size"] == 0


def test_the_law_of_a_bisection_is_that_of_its_draws() -> None:
    sizes = np.repeat([0.5, 1.5, 2.5, 3.5], [40, 8, 12, 40])
    candidates = np.array([1.0, 2.0, 3.0])
    above = (sizes[:, None] > candidates).sum(axis=0)
    law = median_law(above, 50.0, 10.0)
    enough = norm.cdf([(50 - 52) / 10, (50 - 60) / 10])
    assert law == pytest.approx([enough.prod(), enough[0] * (1 - enough[1]), 1 - enough[0]])
    generator = np.random.default_rng(1)
    drawn = [
        noisy_median(sizes, candidates, num_voters=100, sigma=10.0, generator=generator)
        for _ in range(1500)
    ]
    shares = np.array([np.mean(np.equal(drawn, candidate)) for candidate in candidates])
    assert np.all(np.abs(shares - law) < 4 * np.sqrt(law * (1 - law) / 1500))
    assert not np.all(np.abs(shares - median_law(above, 50.0, 5.0)) < 0.05)


def test_gaussians_are_simulated_in_their_shape() -> None:
    noise = Gaussians(normal(0))
    half = noise.simulated(0.5, np.random.default_rng(0))
    assert half.shape == SHAPE and half.std() == pytest.approx(0.5, rel=0.05)
