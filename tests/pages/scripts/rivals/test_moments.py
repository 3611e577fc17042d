"""Least squares on noised moments: what one unit moves, by trying all neighbors, and the noise that
covers it."""

import itertools
import math

import numpy as np
import pytest

from pate._core.validation import FloatArray
from pate.data import ArrayFeatures
from scripts.rivals.contributions import Contributions, PublicScale
from scripts.rivals.moments import (
    Moments,
    noised_crosses,
    noised_moments,
    noisy_coding,
)

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


def test_a_group_moves_no_more_than_a_record() -> None:
    generator = np.random.default_rng(0)

    def group() -> list[tuple[FloatArray, FloatArray]]:
        return [
            (POINTS[generator.integers(len(POINTS))], LABELS[generator.integers(4)])
            for _ in range(size())
        ]

    def size() -> int:
        return int(generator.integers(1, 5))

    rest = [group(), group()]
    found = []
    for _ in range(400):
        one, other = moments([*rest, group()]), moments([*rest, group()])
        found += [
            f(*pair)
            for f in (distance, crosses_distance)
            for pair in ((one, other), (one, moments(rest)))
        ]
    assert max(found) <= 1 + 1e-6
    same = [(POINTS[-1], LABELS[-1])] * 3
    opposite = [(-POINTS[-1], LABELS[-1])] * 2
    assert distance(moments([*rest, same]), moments([*rest, opposite])) == pytest.approx(
        1, abs=1e-6
    )


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


def test_features_are_scaled_by_public_records_alone() -> None:
    generator = np.random.default_rng(2)
    public = (
        generator.normal(size=(300, 4)).astype(np.float32)
        * np.array([1, 10, 100, 0], dtype=np.float32)
        + 3
    )
    private = generator.normal(size=(50, 4)).astype(np.float32) * 1e4
    for standardise in (False, True):
        scale = PublicScale.of(ArrayFeatures(public), standardise=standardise)
        mapped = scale(ArrayFeatures(private))
        norms = np.linalg.norm(mapped.astype(np.float64), axis=1)
        assert norms.max() <= 1
        assert np.median(np.linalg.norm(scale(ArrayFeatures(public)), axis=1)) == pytest.approx(
            1, abs=0.05
        )
        # each record by itself
        assert np.array_equal(mapped[7:9], scale(ArrayFeatures(private[7:9])))
    assert np.isinf(scale.spread[3])
    with pytest.raises(ValueError, match="public features that differ"):
        PublicScale.of(ArrayFeatures(np.ones((5, 2), dtype=np.float32)), standardise=False)


def test_the_coding_of_labels_is_the_shortest_and_costs_a_twentieth() -> None:
    generator = np.random.default_rng(3)
    # of 1, 2 and 8 labels
    labels = np.repeat(np.tri(12, 12)[[0, 1, 7]], [100, 250, 50], axis=0).astype(np.float32)
    private = Contributions(
        features=np.ones((400, 1), dtype=np.float32), labels=labels, starts=np.arange(400)
    )
    clip, shift, rest = noisy_coding(private, 0.1, generator=generator)
    assert clip == pytest.approx(1.2 * math.sqrt(2)) and shift == 0
    assert 1 / rest**2 == pytest.approx(0.95 / 0.1**2)
    dense = Contributions(features=private.features, labels=1 - labels, starts=private.starts)
    assert noisy_coding(dense, 0.1, generator=generator)[:2] == (math.sqrt(12) / 2, 0.5)
    assert Moments.of(dense, math.sqrt(12) / 2, 0.5).crosses == pytest.approx(
        (0.5 - labels).sum(axis=0)[None]
    )
    # comparisons take what is paid for them; a single label has no clip to look for
    assert len({noisy_coding(private, 40.0, generator=generator).clip for _ in range(200)}) == 3
    single = Contributions(features=private.features, labels=labels[:, :1], starts=private.starts)
    assert noisy_coding(single, 0.1, generator=generator) == (0.5, 0.5, 0.1)
