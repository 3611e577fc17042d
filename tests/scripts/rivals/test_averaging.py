"""The mean of clipped weights: what one teacher moves, the noise that covers it, and the clip."""

import itertools

import numpy as np
import pytest

from pate.accounting._accountant import RDPAccountant
from pate.accounting._gaussian import gaussian_epsilon
from pate.accounting._relation import NeighboringRelation
from scripts.rivals.averaging import NORMS, averaged, averaging_event, histogram_of, noised_median

WEIGHTS = [np.array([[a], [b]]) for a, b in itertools.product((-1e3, -1.0, 0.0, 0.5, 40.0, np.nan), repeat=2)]


class Still:
    """A generator whose noise is zero and which keeps the standard deviations that it was asked for."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    def normal(self, *, scale: float, size: object) -> np.ndarray:
        self.asked.append(scale)
        return np.zeros(size)  # type: ignore[call-overload, no-any-return]


def test_a_teacher_moves_the_histogram_by_two_counts() -> None:
    lengths = np.geomspace(1e-6, 1e6, 40)
    rest = histogram_of(np.array([1.0, 3.0, 3.0]))
    assert rest.sum() == 3
    alone = [histogram_of(np.array([length])) for length in lengths]
    moved = [float(np.linalg.norm(one - other)) for one, other in itertools.combinations(alone, 2)]
    assert max(moved) == pytest.approx(np.sqrt(2))


def test_no_neighbor_is_further_than_the_noise_allows() -> None:
    """With the clip given, which is released before, one teacher of three takes all values."""
    rest = [np.array([[3.0], [4.0]]), np.array([[0.1], [0.2]]), np.array([[5.0], [0.0]])]
    by_clip: dict[float, list[tuple[np.ndarray, float]]] = {}
    for other in WEIGHTS:
        still = Still()
        mean = averaged(np.stack([*rest, other]), 1.0, generator=still)  # type: ignore[arg-type]
        histogram, noise = still.asked
        assert histogram == pytest.approx(2 * np.sqrt(2))
        by_clip.setdefault(noise / 2, []).append((4 * mean, noise))
    assert len(by_clip) > 1
    reached = []
    for clip, found in by_clip.items():
        apart = [float(np.linalg.norm(a - b)) for (a, _), (b, _) in itertools.combinations(found, 2)]
        assert max(apart) <= 2 * clip * (1 + 1e-12)
        reached.append(max(apart) / (2 * clip))
    assert max(reached) == pytest.approx(1)


@pytest.mark.slow
def test_noise_has_the_law_that_is_paid_for() -> None:
    # all norms are 3: nearly all draws find the bound 4
    weights, draws = np.tile(np.array([3.0, 0, 0, 0]), (400, 1)), 3000
    found = [averaged(weights, 0.5, generator=np.random.default_rng(seed))[1:] for seed in range(draws)]
    ratio = float(np.std(found)) / (2 * 4 * 0.5 / 400)
    assert ratio == pytest.approx(1, abs=5 / np.sqrt(2 * 3 * draws))
    assert ratio != pytest.approx(1.1, abs=5 / np.sqrt(2 * 3 * draws))


def test_the_median_is_found() -> None:
    generator = np.random.default_rng(0)
    for middle in (0.2, 5.0, 300.0):
        lengths = middle * np.exp(generator.normal(size=2001))
        clip = noised_median(histogram_of(lengths), 3.0, generator=generator)
        assert middle / 2 <= clip <= middle * 2
        assert clip in NORMS


def test_what_it_costs_is_exact() -> None:
    relation = NeighboringRelation.REPLACE_RECORD
    found = RDPAccountant(relation=relation).compose(averaging_event(4.0)).get_epsilon(delta=1e-6)
    assert found == pytest.approx(gaussian_epsilon(1e-6, np.sqrt(1 / 4**2 + 1 / 8**2)), rel=1e-9)
