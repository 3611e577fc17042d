"""The geometry of charts."""

import numpy as np
import pytest

from pate.lab.report.page import histogram, line_chart


def test_lines_are_placed_between_the_axes() -> None:
    chart = line_chart("loss", "epoch", {"one": [(0, 0.5), (10, 1.0)], "two": [(5, 0.75)]})
    assert chart is not None
    (left, low), (right, high) = chart.lines[0].points
    assert (left, right) == (chart.left, chart.right)
    assert low == chart.bottom > high >= chart.top
    (middle,) = chart.lines[1].points
    assert middle == pytest.approx(((left + right) / 2, (low + high) / 2))
    assert [tick.text for tick in chart.x_ticks] == ["0", "2", "4", "6", "8", "10"]
    assert [tick.text for tick in chart.y_ticks] == ["0.5", "0.6", "0.7", "0.8", "0.9", "1.0"]


@pytest.mark.parametrize(
    ("low", "high"),
    [(0.0, 1e-3), (0.66, 0.7), (-3.0, 2.0), (0.0, 12345.0), (1.0, 1.0), (0.1, 0.35)],
)
def test_ticks_say_where_they_are(low: float, high: float) -> None:
    chart = line_chart("loss", "step", {"one": [(0, low), (1, high)]})
    assert chart is not None
    values = np.array([float(tick.text.replace(",", "")) for tick in chart.y_ticks])
    places = np.array([tick.place for tick in chart.y_ticks])
    assert 2 <= len(values) <= 8
    assert (np.diff(values) > 0).all()
    assert values[0] <= low
    assert high <= values[-1]
    slope = (places[-1] - places[0]) / (values[-1] - values[0])
    np.testing.assert_allclose(places, places[0] + slope * (values - values[0]), atol=0.02)
    for (_, y), value in zip(chart.lines[0].points, (low, high), strict=True):
        assert y == pytest.approx(places[0] + slope * (value - values[0]), abs=0.02)


def test_what_is_not_finite_is_left_out() -> None:
    chart = line_chart(
        "loss",
        "step",
        {"one": [(0, 1.0), (1, float("nan")), (2, 2.0)], "none": [(0, float("inf"))]},
    )
    assert chart is not None
    assert [(line.name, len(line.points)) for line in chart.lines] == [("one", 2)]
    assert line_chart("loss", "step", {"none": [(0, float("nan"))]}) is None


def test_many_points_have_no_dots() -> None:
    chart = line_chart(
        "loss", "step", {"long": [(x, x) for x in range(200)], "short": [(0, 0), (1, 1)]}
    )
    assert chart is not None
    assert [line.dots for line in chart.lines] == [False, True]


def test_columns_stand_on_the_axis() -> None:
    chart = histogram("votes", "share", np.array([0.0, 5.0, 10.0]), np.linspace(0, 1, 4))
    heights = [column.height for column in chart.columns]
    assert heights[0] == 0
    assert heights[2] == pytest.approx(2 * heights[1])
    assert all(
        column.top + column.height == pytest.approx(chart.bottom) for column in chart.columns
    )
    assert chart.columns[1].text == "0.33 to 0.67: 5"
    assert chart.left < chart.columns[0].left
    assert chart.columns[-1].left + chart.columns[-1].width < chart.right


def test_a_histogram_of_nothing_has_axes() -> None:
    assert len(histogram("votes", "share", np.zeros(2), np.linspace(0, 1, 3)).y_ticks) > 1
