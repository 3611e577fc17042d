"""What charts draw."""

import base64
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from PIL import Image

from pate.lab.report.page import chart, line_chart


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


@pytest.mark.slow
def test_a_chart_is_a_picture_with_a_caption() -> None:
    found = line_chart("loss", "epoch", {"one": [(0, 0.5), (10, 1.0)], "two": [(5, 0.75)]})
    assert found is not None and found.caption == "loss against epoch: one, two"
    head, _, body = found.source.partition(",")
    pixels = np.asarray(Image.open(BytesIO(base64.b64decode(body))).convert("RGB"))
    assert head == "data:image/png;base64" and pixels.shape[0] < pixels.shape[1]
    assert (pixels[0] == 255).all() and pixels.min() < 80
    again = line_chart("loss", "epoch", {"one": [(0, 0.5), (10, 1.0)], "two": [(5, 0.75)]})
    assert found == again
    empty = chart("loss against epoch: one, two", "epoch", lambda axes: None)
    assert empty.source != found.source


def test_what_is_not_finite_is_left_out(drawn: list[Any]) -> None:
    points = {"one": [(2, 2.0), (1, float("nan")), (0, 1.0)], "none": [(0, float("inf"))]}
    found = line_chart("loss", "step", points)
    assert found is not None and found.caption == "loss against step: one"
    assert drawn == [("one", 2, ".")]
    assert line_chart("loss", "step", {"none": [(0, float("nan"))]}) is None


def test_many_points_have_no_dots(drawn: list[Any]) -> None:
    lines = {"long": [(x, x) for x in range(200)], "short": [(0, 0), (1, 1)]}
    assert line_chart("loss", "step", lines) is not None
    assert [(name, marker) for name, _, marker in drawn] == [("long", ""), ("short", ".")]
