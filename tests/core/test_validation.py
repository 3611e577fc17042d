import math
from collections.abc import Callable
from functools import partial

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


@pytest.mark.parametrize(
    ("check", "values"),
    [
        (require_positive, (0, -1, math.nan, math.inf, True, "1", None)),
        (require_in_open_unit_interval, (0.0, 1.0, -0.1, math.nan)),
        (partial(require_count, 1), (0, 1.5, math.nan, True)),
    ],
)
def test_values_out_of_range(check: Callable[..., None], values: tuple[object, ...]) -> None:
    for value in values:
        with pytest.raises((ValueError, TypeError), match="delta"):
            check(delta=value)
