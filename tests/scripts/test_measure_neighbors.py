"""The noise of nearest neighbors, against that of a Gaussian mechanism."""

import pytest

from pate.accounting import GaussianEvent, NeighboringRelation
from pate.accounting._accountant import epsilon_of
from scripts.measure_neighbors import DELTA, noise_multiplier


@pytest.mark.slow
def test_without_sampling_the_noise_is_gaussian_and_sampling_needs_less() -> None:
    whole = noise_multiplier(1.0, 20, 1.0)
    event = GaussianEvent(
        neighboring_relation=NeighboringRelation.ADD_REMOVE_TEACHER, noise_multiplier=whole
    )
    assert epsilon_of(event, count=20, delta=DELTA) == pytest.approx(1.0, rel=0.01)
    assert noise_multiplier(1.0, 20, 0.1) < whole / 5
