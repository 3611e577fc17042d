from itertools import product

import numpy as np
import pytest

from pate._core.mechanisms.noisy_counts import sum_of_products
from pate.accounting import GaussianEvent, NeighboringRelation
from pate.mechanisms import Moments, NoisyMoments, seeded_generator

GRID = 2.0**28
ROWS = [np.array(row) for row in product((-1.0, -0.6, 0.0, 0.8), repeat=2)]
"""Some are longer than 1, and count as rows of norm 1."""


def total(*units: list[np.ndarray]) -> np.ndarray:
    rows = np.array([row for unit in units for row in unit]).reshape(-1, 2)
    shares = np.array([1 / len(unit) for unit in units for _ in unit])
    return sum_of_products([(rows, shares)]) / GRID


def moved(one: np.ndarray, other: np.ndarray) -> float:
    """Return the move of what is released, in units of the noise of an entry of the diagonal."""
    difference = one - other
    off = np.triu(difference, 1) * np.sqrt(2)
    return float(np.sqrt((np.diag(difference) ** 2).sum() + (off**2).sum()))


UNITS = [[row] for row in ROWS] + [[ROWS[i], ROWS[-1 - j]] for i in range(4) for j in range(4)]


def test_a_replaced_unit_moves_the_sum_by_no_more_than_is_paid_for() -> None:
    worst = max(moved(total(one), total(other)) for one, other in product(UNITS, repeat=2))
    assert 1.4 < worst <= np.sqrt(2)


def test_rows_with_an_inner_product_of_a_third_below_zero_reach_it() -> None:
    far = np.array([-1 / 3, np.sqrt(8 / 9)])
    assert moved(total([np.array([1.0, 0.0])]), total([far])) == pytest.approx(np.sqrt(2), abs=1e-3)


def test_a_unit_more_moves_it_by_one() -> None:
    empty = total([ROWS[5]]) - total([ROWS[5]])
    assert 0.99 < max(moved(total(unit), empty) for unit in UNITS) <= 1


def test_a_group_that_counts_by_its_rows_would_move_it_further() -> None:
    rows = np.array([[1.0, 0.0]] * 2 + [[0.0, 1.0]] * 2)
    one, other = (sum_of_products([(part, np.ones(2))]) / GRID for part in (rows[:2], rows[2:]))
    assert moved(one, other) > np.sqrt(2)


def test_sums_do_not_depend_on_blocks() -> None:
    rows = np.random.default_rng(0).normal(size=(1000, 7))
    parts = np.split(rows, (3, 500))
    whole = sum_of_products([(rows, np.ones(1000))])
    divided = sum_of_products([(part, np.ones(len(part))) for part in parts])
    assert np.array_equal(whole, divided)


@pytest.mark.parametrize(("stated", "right"), [(1.0, True), (0.9, False)])
def test_noise_has_the_stated_law(stated: float, right: bool) -> None:
    """Off the diagonal; on it there is twice the variance."""
    generator, rows = seeded_generator(0), np.full((400, 3), 0.5)
    mechanism, values = NoisyMoments(noise_multiplier=2.0), []
    diagonal: list[np.ndarray] = []
    for _ in range(900):
        moments = mechanism([(rows, np.ones(400))], generator=generator)
        count = 4 / 3 * 2.0 / moments.error
        noisy = (moments.products - 0.25) * count
        values.append(noisy[np.triu_indices(3, 1)])
        diagonal.append(np.diag(noisy))
    # products of 400 exact rows, less a quarter of the noisy count
    off = np.array(values) - np.array(values).mean(axis=1, keepdims=True)
    deviation = float(np.sqrt((off**2).sum() / (900 * 2))) / (4 / 3 * 2.0 * stated)
    # both degrees of freedom of three entries count
    assert (abs(deviation - 1) < 3 / 3600**0.5) is right
    on = np.array(diagonal) - np.array(diagonal).mean(axis=1, keepdims=True)
    deviation = float(np.sqrt((on**2).sum() / (900 * 2))) / (4 / 3 * 2.0 * 2**0.5 * stated)
    assert (abs(deviation - 1) < 3 / 3600**0.5) is right


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_the_cost_is_one_gaussian_mechanism(relation: NeighboringRelation) -> None:
    expected = GaussianEvent(neighboring_relation=relation, noise_multiplier=3.0)
    assert NoisyMoments(noise_multiplier=3.0).event(relation) == expected


def test_drawn_samples_have_the_moments_of_the_rows() -> None:
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(50_000, 6)) * [0.5, 0.3, 0.1, 0.1, 0.1, 0.1] + 0.1
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    moments = NoisyMoments(noise_multiplier=1.0)(
        [(rows, np.ones(len(rows)))], generator=seeded_generator(1)
    )
    drawn = moments.draw(4000, generator=seeded_generator(2))
    assert (np.linalg.norm(drawn, axis=1) <= 1 + 1e-12).all()
    assert np.abs(drawn.mean(axis=0) - rows.mean(axis=0)).max() < 0.02
    assert np.abs(drawn.var(axis=0) / rows.var(axis=0) - 1)[:2].max() < 0.15


def test_directions_within_the_noise_are_taken_for_equal() -> None:
    noise = np.random.default_rng(0).normal(size=(40, 40)) * 0.01
    products = 0.02 * np.eye(40) + (noise + noise.T) / np.sqrt(2)
    drawn = Moments(mean=np.zeros(40), products=products, error=0.01).draw(
        20_000, generator=seeded_generator(0)
    )
    assert np.linalg.eigvalsh(np.cov(drawn.T)).max() < 0.03
    assert np.linalg.eigvalsh(products).max() > 0.1


def test_directions_of_equal_variance_are_drawn_alike() -> None:
    drawn = Moments(mean=np.zeros(50), products=np.eye(50) / 100, error=1e-4).draw(
        200, generator=seeded_generator(0)
    )
    values = np.linalg.eigvalsh(np.cov(drawn.T))
    assert values.max() / values.min() < 1.3


def test_a_multiplier_is_positive() -> None:
    with pytest.raises(ValueError, match=r"Expected noise_multiplier > 0, got noise_multiplier=0"):
        NoisyMoments(noise_multiplier=0)
