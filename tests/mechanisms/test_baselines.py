"""Noise on all counts, and the scale of one-shot Laplace noise."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import gamma, kstest, laplace

from pate import mechanisms as m
from pate.accounting import NeighboringRelation, PureDPEvent

RELATION = NeighboringRelation.REPLACE_RECORD


def test_laplace_noise_follows_its_law_on_every_count() -> None:
    noisy = m.laplace_counts(np.tile([2**40, 0, 7], (4000, 1)), scale=3.0, generator=m.seeded_generator(0))
    for column, count in enumerate((2**40, 0, 7)):
        assert kstest(noisy[:, column] - count, laplace(scale=3.0).cdf).pvalue > 1e-3
    assert abs(np.asarray(np.corrcoef(noisy.T))[0, 1]) < 0.07


def test_gamma_noise_is_uniform_on_cubes_of_gamma_size() -> None:
    noise: NDArray[np.float64] = m.gamma_counts(np.full((4000, 5), 9), scale=2.0, generator=m.seeded_generator(0))
    noise -= 9
    size = np.abs(noise).max(axis=1)
    # the density falls with the largest coordinate alone, of which there are as many as r^(d - 1)
    assert kstest(size, gamma(5, scale=2.0).cdf).pvalue > 1e-3
    face = np.bincount(np.abs(noise).argmax(axis=1), minlength=5)
    assert (np.abs(face - 800) < 5 * math.sqrt(800)).all()
    inside = (noise / size[:, None])[np.abs(noise) < size[:, None]]
    assert kstest(inside, "uniform", (-1, 2)).pvalue > 1e-3


@pytest.mark.parametrize("release", [m.laplace_counts, m.gamma_counts])
def test_shapes_and_refusals(release: Callable[..., NDArray[np.float64]]) -> None:
    generator = m.seeded_generator(0)
    assert release([1, 2, 3], scale=1.0, generator=generator).shape == (3,)
    assert release([[1, 2, 3]], scale=1.0, generator=generator).shape == (1, 3)
    unsigned = release(np.array([0, 1], dtype=np.uint8), scale=1e-6, generator=generator)
    np.testing.assert_allclose(unsigned, [0, 1], atol=1e-3)
    with pytest.raises(ValueError, match=r"^Expected scale > 0, got scale=-5.0$"):
        release([1, 2], scale=-5.0, generator=generator)
    with pytest.raises(ValueError, match=r"^Expected finite scores"):
        release([1, np.nan], scale=1.0, generator=generator)


def test_events_grow_with_the_number_of_counts_only_for_laplace() -> None:
    assert m.laplace_counts_event(num_items=8, scale=4.0, neighboring_relation=RELATION) == PureDPEvent(
        neighboring_relation=RELATION, epsilon=2.0
    )
    assert m.gamma_counts_event(scale=4.0, neighboring_relation=RELATION) == PureDPEvent(
        neighboring_relation=RELATION, epsilon=0.25
    )


def test_one_shot_scale_against_the_pure_bound() -> None:
    """Up to ``k = 16 log(d / delta)`` the pure guarantee at this scale is the stronger one."""
    epsilon, delta, d = 0.2, 0.05, 100
    crossing = 16 * math.log(d / delta)
    for k in (int(crossing), int(crossing) + 1):
        scale = m.one_shot_laplace_scale(k=k, num_items=d, epsilon=epsilon, delta=delta)
        event = m.one_shot_laplace_event(k=k, scale=scale, neighboring_relation=RELATION)
        assert isinstance(event, PureDPEvent)
        assert event.epsilon == pytest.approx(epsilon * math.sqrt(k / crossing))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "Expected an integer k >= 1, got k=0"),
        ({"num_items": 0}, "Expected an integer num_items >= 1, got num_items=0"),
        ({"epsilon": 0.0}, "Expected epsilon > 0, got epsilon=0.0"),
        ({"delta": 2.0}, "Expected 0 < delta < 1, got delta=2.0"),
    ],
)
def test_one_shot_scale_refuses(arguments: dict[str, float], message: str) -> None:
    given = {"k": 3, "num_items": 9, "epsilon": 0.1, "delta": 0.01} | arguments
    with pytest.raises(ValueError) as caught:
        m.one_shot_laplace_scale(**given)  # type: ignore[arg-type]
    assert str(caught.value) == message
