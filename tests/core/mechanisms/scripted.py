"""A generator whose numbers are written down before they are drawn."""

from typing import Any

import numpy as np


class Scripted(np.random.Generator):
    """Returns the numbers of a script in their order, and fails where others are asked for."""

    def __init__(self, *numbers: Any) -> None:
        super().__init__(np.random.PCG64(0))
        self.numbers = list(numbers)
        self.ranges: list[tuple[Any, Any]] = []
        """Of the integers that were asked for."""

    def integers(self, low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64) -> Any:  # type: ignore[override]
        least, most = (0, low) if high is None else (low, high)
        self.ranges.append((least, most))
        drawn = np.asarray(self.numbers.pop(0), dtype=dtype)
        assert drawn.shape == (np.shape(most) if size is None else np.empty(size, np.bool_).shape)
        assert np.all(drawn.astype(object) >= least) and np.all(drawn.astype(object) < most)
        return drawn[()]

    def random(self, size: Any = None) -> Any:  # type: ignore[override]
        drawn = np.asarray(self.numbers.pop(0), dtype=np.float64)
        assert drawn.shape == np.empty(() if size is None else size, np.bool_).shape
        assert np.all(drawn >= 0) and np.all(drawn < 1)
        return drawn[()]
