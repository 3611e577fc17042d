import math

import numpy as np
import pytest

from pate._core.validation import (
    require,
    require_count,
    require_in_open_unit_interval,
    require_positive,
)


def test_one_line_says_what_was_expected_and_what_came() -> None:
    with pytest.raises(ValueError, match=r"^Expected scale_gap > 0, got scale_gap=-5\.0$"):
        require_positive(scale_gap=-5.0)


def test_numbers_of_numpy_are_told_as_numbers() -> None:
    with pytest.raises(
        ValueError, match=r"^Expected no bad rows, got rows=40, share=0\.5, clean=False$"
    ):
        require(
            False,
            "no bad rows",
            rows=np.count_nonzero(np.ones(40)),
            share=np.float32(0.5),
            clean=np.bool_(False),
        )


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True, "1", None])
def test_positive(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        require_positive(sigma=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, math.nan])
def test_open_unit(value: float) -> None:
    with pytest.raises(ValueError, match="delta"):
        require_in_open_unit_interval(delta=value)


@pytest.mark.parametrize("value", [0, 1.5, math.nan, True])
def test_count(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        require_count(1, num=value)  # type: ignore[arg-type]
