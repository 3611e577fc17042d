"""A canvas on which many faces are drawn at once, in soft masks of simple shapes."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from pate._validation import BoolArray, Float32Array, IntArray
from pate.data.faces._geometry import Geometry

PerFace: TypeAlias = Float32Array | float
"""One number for each face, ``[num]``, or one for all."""


class Canvas:
    """The pictures being drawn.

    Attributes:
        planes: red, green and blue, float32 ``[3, num, size, size]``.
        u: each pixel's face coordinate to the right, float32 ``[num, size, size]``.
        v: each pixel's face coordinate downwards, likewise.
    """

    def __init__(self, geometry: Geometry, size: int) -> None:
        self.num = geometry.angle.shape[0]
        self.size = size
        self.geometry = geometry
        self.planes: Float32Array = np.empty((3, self.num, size, size), dtype=np.float32)
        self.cos = np.cos(geometry.angle)
        self.sin = np.sin(geometry.angle)
        # Pixels per unit of a face's own coordinates: masks ramp from 0 to 1 over one pixel.
        self.slope: Float32Array = geometry.scale * np.float32(size / 32)
        self.axis: Float32Array = (
            (np.arange(size, dtype=np.float32) + 0.5) * (32 / size) - 16
        ).astype(np.float32)
        x = (self.axis[None, None, :] - geometry.shift_x[:, None, None]) / geometry.scale[
            :, None, None
        ]
        y = (self.axis[None, :, None] - geometry.shift_y[:, None, None]) / geometry.scale[
            :, None, None
        ]
        cos, sin = self.cos[:, None, None], self.sin[:, None, None]
        self.u: Float32Array = x * cos + y * sin
        self.v: Float32Array = y * cos - x * sin

    def window(
        self, box: tuple[PerFace, PerFace, PerFace, PerFace], faces: BoolArray | None = None
    ) -> Window:
        """Return the window of pixels that may lie in any face's ``box``.

        A box is ``(center u, center v, half width, half height)``. The renderer is fast because
        small features are drawn within such a window, and only on the ``faces`` that have them. A
        window without faces or pixels is empty: nothing is drawn in it.
        """
        chosen: IntArray | slice = slice(None)
        if faces is not None and not faces.all():
            chosen = np.flatnonzero(faces)
            if chosen.size == 0:
                return Window(self, chosen, slice(0), slice(0))
        geometry = self.geometry
        u, v, wide, high = (
            np.broadcast_to(np.asarray(b, dtype=np.float32), self.num)[chosen] for b in box
        )
        cos, sin, scale = self.cos[chosen], self.sin[chosen], geometry.scale[chosen]
        margin = np.float32(1.0)
        x = geometry.shift_x[chosen] + scale * (u * cos - v * sin)
        y = geometry.shift_y[chosen] + scale * (u * sin + v * cos)
        reach_x = scale * (wide * np.abs(cos) + high * np.abs(sin)) + margin
        reach_y = scale * (wide * np.abs(sin) + high * np.abs(cos)) + margin
        rows, cols = self._span(y - reach_y, y + reach_y), self._span(x - reach_x, x + reach_x)
        return Window(self, chosen, rows, cols)

    def _span(self, low: Float32Array, high: Float32Array) -> slice:
        per_unit = self.size / 32
        first = int(np.floor((float(low.min()) + 16) * per_unit))
        last = int(np.ceil((float(high.max()) + 16) * per_unit))
        return slice(max(first, 0), min(max(last, 0), self.size))


class Window:
    """Pixels of faces on a canvas; ``u`` and ``v`` are float32 ``[faces, rows, cols]``."""

    def __init__(self, canvas: Canvas, faces: IntArray | slice, rows: slice, cols: slice) -> None:
        self.canvas = canvas
        self.faces = faces
        self.where = (faces, rows, cols)
        self.u: Float32Array = canvas.u[self.where]
        self.v: Float32Array = canvas.v[self.where]
        self.slope: Float32Array = self.of(canvas.slope)

    def of(self, values: PerFace) -> Float32Array:
        """Return values per face ``[num]``, or one, in the window's shape ``[faces, 1, 1]``."""
        array = np.asarray(values, dtype=np.float32)
        return array.reshape(1, 1, 1) if array.ndim == 0 else array[self.faces][:, None, None]

    def ramp(self, distance: Float32Array, soft: float = 1.0) -> Float32Array:
        """Turn a signed distance, positive inside, into a mask with a soft edge, in place."""
        distance *= self.slope / np.float32(soft)
        distance += np.float32(0.5)
        return np.clip(distance, 0.0, 1.0, out=distance)

    def ellipse(
        self,
        u: PerFace,
        v: PerFace,
        wide: PerFace,
        high: PerFace,
        *,
        soft: float = 1.0,
        square: bool = False,
        ring: float | None = None,
    ) -> Float32Array:
        """Return the mask of an ellipse or rounded rectangle, or an outline ``2 * ring`` wide."""
        radius_u, radius_v = self.of(wide), self.of(high)
        level = self.u - self.of(u)
        level *= 1 / radius_u
        level *= level
        other = self.v - self.of(v)
        other *= 1 / radius_v
        other *= other
        if square:
            level *= level
            other *= other
        level += other
        # level - 1 over its slope at the outline is the distance to first order.
        level -= np.float32(1.0)
        level *= np.minimum(radius_u, radius_v) * np.float32(-0.25 if square else -0.5)
        if ring is not None:
            np.abs(level, out=level)
            np.subtract(np.float32(ring), level, out=level)
        return self.ramp(level, soft)

    def stroke(
        self,
        u: PerFace,
        v: PerFace,
        wide: PerFace,
        weight: PerFace,
        *,
        bend: PerFace = 0.0,
        tilt: PerFace = 0.0,
        taper: float = 0.5,
    ) -> Float32Array:
        """Return a stroke's mask, ``2 * weight`` thick, along v + tilt x + bend x^2, x in -1..1."""
        half = self.of(wide)
        x = (self.u - self.of(u)) / half
        square = x * x
        line = square * self.of(bend)
        line += x * self.of(tilt)
        line += self.of(v)
        line -= self.v
        np.abs(line, out=line)
        thick = self.of(weight)
        inside = thick - (thick * np.float32(taper)) * np.minimum(square, np.float32(1.0))
        inside -= line
        mask = self.ramp(inside)
        np.abs(x, out=x)
        np.subtract(np.float32(1.0), x, out=x)
        x *= half
        mask *= self.ramp(x)
        return mask

    def head(self, grow: float = 0.0) -> Float32Array:
        """Return the mask of the head: the skull's ellipse joined with the jaw's."""
        geometry = self.canvas.geometry
        skull = self.ellipse(0.0, -1.8, geometry.head_width + grow, 7.5 + grow)
        jaw_v = 1.8
        jaw = self.ellipse(
            0.0, jaw_v, geometry.jaw_width + 0.7 + grow, geometry.chin - jaw_v + grow
        )
        # The jaw is squarer than an ellipse: join a second, wider and shorter one.
        cheeks = self.ellipse(0.0, 2.2, geometry.jaw_width + 1.1 + grow, geometry.chin - 3.6 + grow)
        return np.maximum(np.maximum(skull, jaw, out=skull), cheeks, out=skull)

    def paint(
        self,
        mask: Float32Array,
        colour: Float32Array | tuple[float, float, float],
        opacity: PerFace = 1.0,
    ) -> None:
        """Blend a color, ``[num, 3]`` or one for all, into the window by the mask."""
        if not (isinstance(opacity, float) and opacity == 1.0):
            mask = mask * self.of(opacity)
        tints = np.asarray(colour, dtype=np.float32)
        for channel, plane in enumerate(self.canvas.planes):
            change = self.of(tints[..., channel]) - plane[self.where]
            change *= mask
            plane[self.where] += change
