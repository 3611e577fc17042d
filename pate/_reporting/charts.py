"""The geometry of charts: from numbers to lines, columns and ticks in units of a drawing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pate._reporting.page import Chart, Column, Line, Tick
from pate._validation import FloatArray

_MOST_DOTS = 40  # points of a line that are drawn as dots, too
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


def line_chart(
    title: str, x_label: str, series: Mapping[str, Sequence[tuple[float, float]]]
) -> Chart | None:
    """Return a chart of named series of points ``(x, y)``; None if no point is finite.

    Points that are not finite are left out.
    """
    finite = {
        name: [(x, y) for x, y in sorted(points) if math.isfinite(x) and math.isfinite(y)]
        for name, points in series.items()
    }
    finite = {name: points for name, points in finite.items() if points}
    if not finite:
        return None
    xs, ys = zip(*(point for points in finite.values() for point in points), strict=True)
    x_ticks, place_x = _axis(min(xs), max(xs), Chart.left, Chart.right, integers=True)
    y_ticks, place_y = _axis(min(ys), max(ys), Chart.bottom, Chart.top, widened=True)
    lines = tuple(
        Line(
            name, tuple((place_x(x), place_y(y)) for x, y in points), dots=len(points) <= _MOST_DOTS
        )
        for name, points in finite.items()
    )
    return Chart(title, x_label, x_ticks, y_ticks, lines=lines)


def histogram(title: str, x_label: str, counts: FloatArray, edges: FloatArray) -> Chart:
    """Return a histogram of ``counts`` ``[B]`` between ``edges`` ``[B + 1]``."""
    x_ticks, place_x = _axis(float(edges[0]), float(edges[-1]), Chart.left, Chart.right)
    y_ticks, place_y = _axis(
        0.0, max(float(counts.max(initial=0)), 1.0), Chart.bottom, Chart.top, widened=True
    )
    columns = []
    for count, low, high in zip(
        counts.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True
    ):
        left, right, top = place_x(low), place_x(high), place_y(count)
        text = f"{low:.2f} to {high:.2f}: {count:,.0f}"
        columns.append(
            Column(left + 0.5, top, max(right - left - 1, 0.5), round(place_y(0.0) - top, 2), text)
        )
    return Chart(title, x_label, x_ticks, y_ticks, columns=tuple(columns))


def _axis(
    low: float, high: float, begin: int, end: int, *, integers: bool = False, widened: bool = False
) -> tuple[tuple[Tick, ...], Callable[[float], float]]:
    """Return the ticks of an axis and the function that places values on it.

    Args:
        low: the smallest value, and ``high`` the largest.
        high: see ``low``.
        begin: where the axis begins, and ``end`` where it ends, in units of the drawing.
        end: see ``begin``.
        integers: whether the values are integers.
        widened: whether the axis begins and ends at a tick.
    """
    if high <= low:
        low, high = low - 0.5, high + 0.5
    step = _step((high - low) / 5)
    step = max(1.0, step) if integers else step
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    if widened:
        low, high = first * step, last * step
    values = np.arange(first, last + 1) * step

    def place(value: float) -> float:
        return round(begin + (value - low) / (high - low) * (end - begin), 2)

    slack = 1e-9 * (high - low)
    digits = max(0, -math.floor(math.log10(step) + 1e-9)) + (0 if _is_round(step) else 1)
    ticks = tuple(
        Tick(place(value), f"{value:,.{digits}f}")
        for value in values.tolist()
        if low - slack <= value <= high + slack
    )
    return ticks, place


def _step(rough: float) -> float:
    """Return the smallest round step that is no smaller than ``rough``."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in _STEPS if step * power >= rough * (1 - 1e-9))


def _is_round(step: float) -> bool:
    """Whether a step has one digit that is not 0."""
    leading = step / 10.0 ** math.floor(math.log10(step) + 1e-9)
    return abs(leading - round(leading)) < 1e-6
