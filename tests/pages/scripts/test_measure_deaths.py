"""A worker that dies delays the others by less than a chunk."""

import pytest

from scripts.measure_deaths import measure


@pytest.mark.slow
@pytest.mark.parametrize("replaced", [False, True])
def test_a_death_costs_less_than_a_chunk(replaced: bool) -> None:
    outcome = measure(6, 3.0, replaced, seed=1)
    assert 0 <= outcome.waited < 1 and outcome.beyond < 1
