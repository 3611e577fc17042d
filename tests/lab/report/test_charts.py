"""What charts draw."""

from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from pate.lab.report.page import line_chart


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The lines that were drawn: their name, number of points and marker."""
    found: list[Any] = []
    plot = Axes.plot

    def watched(self: Axes, *args: Any, **options: Any) -> Any:
        lines = plot(self, *args, **options)
        found.extend(
            (each.get_label(), np.size(each.get_xdata()), each.get_marker()) for each in lines
        )
        return lines

    monkeypatch.setattr(Axes, "plot", watched)
    return found


def test_what_is_not_finite_is_left_out(drawn: list[Any]) -> None:
    points = {"one": [(2, 2.0), (1, float("nan")), (0, 1.0)], "none": [(0, float("inf"))]}
    found = line_chart("loss", "step", points)
    assert found is not None and found.caption == "loss against step: one"
    assert drawn == [("one", 2, ".")]
    assert line_chart("loss", "step", {"none": [(0, float("nan"))]}) is None
