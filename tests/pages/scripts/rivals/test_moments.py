"""Least squares on noised moments: what one unit moves, by trying all neighbors, and the noise that
covers it."""

import itertools

import numpy as np
import pytest

from pate._core.validation import FloatArray
from scripts.rivals.contributions import Contributions
from scripts.rivals.moments import Moments, noised_crosses, noised_moments

pytestmark = pytest.mark.slow

ANGLES = np.linspace(0, 2 * np.pi, 9)[:-1]
POINTS = [
    length * np.array([np.cos(a), np.sin(a)]) for length in (0.0, 0.3, 0.7, 1.0) for a in ANGLES
]
LABELS = [np.array(labels, dtype=np.float64) for labels in itertools.product((0, 1), repeat=2)]
CLIP = 1.2


def moments(units: list[list[tuple[FloatArray, FloatArray]]]) -> Moments:
    """The moments of units, each a list of records."""
    rows = [record for unit in units for record in unit]
    starts = np.cumsum([0, *(len(unit) for unit in units)])[:-1]
    features = np.array([x for x, _ in rows], dtype=np.float32).reshape(-1, 2)
    labels = np.array([y for _, y in rows], dtype=np.float32).reshape(-1, 2)
    return Moments.of(
        Contributions(features=features, labels=labels, starts=starts.astype(np.int64)), CLIP
    )


def distance(one: Moments, other: Moments) -> float:
    """How far two releases lie apart, in standard deviations of the noise at a multiplier of 1."""
    d, e = one.products - other.products, one.crosses - other.crosses
    upper = d[np.triu_indices(len(d), 1)]
    return float(
        np.sqrt((np.diag(d) ** 2).sum() / 8 + (upper**2).sum() / 4 + (e**2).sum() / (4 * CLIP**2))
    )


def crosses_distance(one: Moments, other: Moments) -> float:
    """The same for crosses with a count."""
    e = one.crosses - other.crosses
    return float(np.sqrt((e**2).sum() / (4 * CLIP**2) + (one.count - other.count) ** 2 / (4 / 3)))


@pytest.mark.parametrize("apart", [distance, crosses_distance])
def test_no_neighbor_is_further_than_the_noise_allows(apart: object) -> None:
    assert callable(apart)
    rest = [[(np.array([0.6, -0.2]), LABELS[1])]]
    records = list(itertools.product(POINTS, LABELS))
    known = [moments([*rest, [record]]) for record in records]
    worst = max(apart(one, other) for one, other in itertools.combinations(known, 2))
    without = moments(rest)
    removed = max(apart(one, without) for one in known)
    assert removed <= 1 + 1e-6
    # tight: an altered record reaches the bound
    assert worst == pytest.approx(1, abs=1e-6)


def standard(noise_multiplier: float, believed: float) -> bool:
    """Whether noise drawn at one multiplier has the standard deviations of another, to five
    standard errors."""
    generator, draws = np.random.default_rng(5), 4000
    exact = moments([[(POINTS[-1], LABELS[0])]])
    found: dict[str, list[float]] = {"diagonal": [], "upper": [], "crosses": [], "count": []}
    for _ in range(draws):
        both = noised_moments(exact, noise_multiplier, generator=generator)
        assert both.products[0, 1] == both.products[1, 0]
        assert np.isnan(both.count)
        known = noised_crosses(exact, np.eye(2), noise_multiplier, generator=generator)
        found["diagonal"].append(float(both.products[1, 1] - exact.products[1, 1]))
        found["upper"].append(float(both.products[0, 1] - exact.products[0, 1]))
        found["crosses"] += [float((each.crosses - exact.crosses)[0, 1]) for each in (both, known)]
        # far from where it is kept above 1
        far = Moments(exact.products, exact.crosses, 1e6, CLIP)
        found["count"].append(
            noised_crosses(far, np.eye(2), noise_multiplier, generator=generator).count - 1e6
        )
    scales = {"diagonal": np.sqrt(8), "upper": 2.0, "crosses": 2 * CLIP, "count": np.sqrt(4 / 3)}
    ratios = {name: np.std(found[name]) / (believed * scales[name]) for name in found}
    return all(abs(ratio - 1) < 5 / np.sqrt(2 * draws) for ratio in ratios.values())


def test_noise_has_the_law_that_is_paid_for() -> None:
    assert standard(3.0, 3.0)
    assert not standard(3.0, 3.5)
