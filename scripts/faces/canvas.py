"""Rendered faces: their traits, their geometry, and a canvas that many are drawn on at once.

The geometry (measures and colors) follows from the traits. The canvas draws in soft masks of simple
shapes. Lengths are in units of 1/32 of the picture's width, so that one unit is one pixel at size
32. Face coordinates (u, v) have their origin between the eyes and the nose, u to the right and v
down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pate._core.validation import BoolArray, Float32Array, IntArray, UInt8Array

FACE_ATTRIBUTES: tuple[str, ...] = (
    "Bald", "Bangs", "Beard", "Big_Nose", "Black_Hair", "Blond_Hair", "Brown_Hair", 
    "Bushy_Eyebrows", "Chubby",
    "Eyeglasses", "Gray_Hair", "Heavy_Makeup", "Long_Hair", "Male", "Mouth_Slightly_Open", 
    "Mustache", "Narrow_Eyes",
    "Pale_Skin", "Rosy_Cheeks", "Smiling", "Wearing_Earrings", "Wearing_Hat", 
    "Wearing_Lipstick", "Wearing_Necktie",
    "Young",
)  # fmt: skip
"""The labels of a face, in the order of their columns."""

BLACK, BROWN, BLOND, GRAY = range(4)
_HAIR_COLOURS = {"Black_Hair": BLACK, "Brown_Hair": BROWN, "Blond_Hair": BLOND, "Gray_Hair": GRAY}


@dataclass(frozen=True)
class Dice:
    """Draws of one value per face, float32 or bool ``[num]``.

    Attributes:
        rng: source of the draws.
        num: the number of faces.
    """

    rng: np.random.Generator
    num: int

    def chance(self, probability: Float32Array | float) -> BoolArray:
        """Draw True with a probability, one for all faces or one for each."""
        return np.asarray(self.rng.random(self.num, dtype=np.float32) < probability, dtype=np.bool_)

    def uniform(self, low: float, high: float, *channels: int) -> Float32Array:
        """Draw uniformly between two bounds, ``[num]``, or colors ``[num, channels]``."""
        drawn = self.rng.random((self.num, *channels), dtype=np.float32)
        return np.float32(low) + np.float32(high - low) * drawn

    def normal(self, deviation: float, limit: float = 2.5) -> Float32Array:
        """Draw normally around 0, clipped at ``limit`` deviations."""
        drawn = self.rng.standard_normal(self.num, dtype=np.float32)
        return np.clip(drawn, -limit, limit) * np.float32(deviation)


def either(
    condition: BoolArray, yes: Float32Array | float, no: Float32Array | float
) -> Float32Array:
    """Return ``yes`` where the condition holds and ``no`` elsewhere, as float32."""
    return np.where(condition, yes, no).astype(np.float32)


class Traits:
    """The traits of each face, ``[num]`` each: attributes by name, and the variables behind them.

    The order of the draws must not change: seeds rely on it.

    Attributes:
        age: from 0 (young) to 1 (old).
        tone: skin tone, from 0 (dark) to 1 (pale).
        hair: color of the hair, `BLACK` to `GRAY`, for bald heads too.
    """

    def __init__(self, dice: Dice) -> None:
        self.male = dice.chance(0.48)
        self.young = dice.chance(0.60)
        # A gap between the young and the others, so that age can be told from its signs.
        self.age = either(self.young, dice.uniform(0.0, 0.45), dice.uniform(0.65, 1.0))
        self.pale_skin = dice.chance(0.16)
        self.tone = either(self.pale_skin, dice.uniform(0.90, 1.0), dice.uniform(0.05, 0.74))

        self.wearing_hat = dice.chance(0.17)
        self.bald = (
            dice.chance(either(self.male, either(self.young, 0.16, 0.46), 0.005))
            & ~self.wearing_hat
        )
        self.hair = _sample_hair(dice, self.young, self.tone)
        self.bangs = dice.chance(either(self.male, 0.16, 0.40)) & ~self.bald & ~self.wearing_hat
        self.long_hair = dice.chance(either(self.male, 0.06, 0.66)) & ~self.bald

        self.beard = dice.chance(either(self.male, 0.42, 0.0))
        self.mustache = dice.chance(either(self.male, either(self.beard, 0.50, 0.22), 0.0))
        self.bushy_eyebrows = dice.chance(either(self.male, 0.38, 0.10))
        self.chubby = dice.chance(either(self.young, 0.18, 0.30))
        self.big_nose = dice.chance(either(self.male, 0.34, 0.14))
        self.narrow_eyes = dice.chance(0.22)
        self.eyeglasses = dice.chance(either(self.young, 0.17, 0.38))
        self.wearing_lipstick = dice.chance(either(self.male, 0.01, 0.62))
        self.heavy_makeup = dice.chance(
            either(self.male, 0.01, either(self.wearing_lipstick, 0.60, 0.14))
        )
        self.rosy_cheeks = dice.chance(
            either(self.male, 0.10, either(self.heavy_makeup, 0.45, 0.28))
        )
        self.smiling = dice.chance(either(self.male, 0.44, 0.54))
        self.mouth_slightly_open = dice.chance(either(self.smiling, 0.50, 0.26))
        self.wearing_earrings = dice.chance(either(self.male, 0.04, 0.42))
        self.wearing_necktie = dice.chance(either(self.male, either(self.young, 0.28, 0.42), 0.02))

    def attributes(self) -> UInt8Array:
        """Return labels ``[num, len(FACE_ATTRIBUTES)]`` in {0, 1}; bald heads have no color."""
        columns = [
            (self.hair == _HAIR_COLOURS[name]) & ~self.bald
            if name in _HAIR_COLOURS
            else getattr(self, name.lower())
            for name in FACE_ATTRIBUTES
        ]
        return np.stack(columns, axis=1).astype(np.uint8)


def _sample_hair(dice: Dice, young: BoolArray, tone: Float32Array) -> IntArray:
    """Sample colors of hair: gray comes with age, black or brown mostly with darker skin."""
    black = either(tone < 0.35, 0.66, 0.30)
    brown = black + either(tone < 0.35, 0.28, 0.40)
    draw, gray = dice.uniform(0.0, 1.0), dice.chance(either(young, 0.03, 0.56))
    return np.select([gray, draw < black, draw < brown], [GRAY, BLACK, BROWN], BLOND)


# by the number of a hair's color
_HAIR_PALETTE = np.array(
    [[0.09, 0.08, 0.10], [0.46, 0.22, 0.10], [0.94, 0.79, 0.34], [0.73, 0.74, 0.78]],
    dtype=np.float32,
)
# skin runs from dark to pale over the tone
_SKIN_TONES = (0.0, 0.3, 0.6, 0.8, 1.0)
_SKIN_RAMP = np.array(
    [
        [0.38, 0.24, 0.17],
        [0.62, 0.42, 0.29],
        [0.84, 0.62, 0.47],
        [0.94, 0.76, 0.63],
        [1.00, 0.93, 0.90],
    ],
    dtype=np.float32,
)


def _pick(dice: Dice, palette: list[tuple[float, float, float]], spread: float) -> Float32Array:
    """Draw colors ``[num, 3]`` near the colors of a palette."""
    index = dice.rng.integers(len(palette), size=dice.num)
    colors = np.array(palette, dtype=np.float32)[index]
    return np.clip(colors + dice.uniform(-spread, spread, 3), 0.0, 1.0)


def mix(
    one: Float32Array, other: Float32Array | tuple[float, float, float], share: Float32Array | float
) -> Float32Array:
    """Return colors ``[num, 3]`` mixed with another color, one for all faces or one for each."""
    weight = np.asarray(share, dtype=np.float32).reshape(-1, 1)
    return one + weight * (np.asarray(other, dtype=np.float32) - one)


class Geometry:
    """Placement, lengths and colors of faces by their traits, float32 ``[num]`` or ``[num, 3]``.

    The order of the draws must not change: seeds rely on it.
    """

    def __init__(self, dice: Dice, traits: Traits) -> None:
        male, old = (trait.astype(np.float32) for trait in (traits.male, ~traits.young))
        self._draw_colors(dice, traits)
        self._draw_placement(dice)
        self._draw_body(dice, traits, male, old)
        self._draw_hair(dice, traits, male)
        self._draw_features(dice, traits, male, old)
        self._draw_mouth(dice, traits, male)
        self._draw_ornaments(dice, traits)

    def _draw_colors(self, dice: Dice, traits: Traits) -> None:
        ramps = [np.interp(traits.tone, _SKIN_TONES, ramp) for ramp in _SKIN_RAMP.T]
        skin = np.stack(ramps, axis=1).astype(np.float32) + dice.uniform(-0.02, 0.02, 3)
        self.skin = np.clip(skin, 0.0, 1.0)
        hair = _HAIR_PALETTE[traits.hair] * dice.uniform(0.84, 1.10)[:, None] + dice.uniform(
            -0.02, 0.02, 3
        )
        # Brown runs to auburn.
        auburn = dice.uniform(-0.25, 0.40) * (traits.hair == BROWN)
        self.hair = np.clip(mix(hair, (0.68, 0.24, 0.09), auburn), 0.02, 1.0)
        self._dark_hair = self.hair * np.float32(0.62)

        self._natural_lips = mix(self.skin, (0.66, 0.30, 0.30), dice.uniform(0.25, 0.5))
        self._painted_lips = _pick(
            dice, [(0.86, 0.06, 0.16), (0.78, 0.05, 0.30), (0.95, 0.20, 0.38)], 0.05
        )
        self.clothes = _pick(
            dice,
            [
                (0.20, 0.30, 0.55), (0.65, 0.18, 0.20), (0.20, 0.48, 0.36), (0.88, 0.70, 0.25),
                (0.50, 0.30, 0.60), (0.25, 0.27, 0.32), (0.85, 0.83, 0.80), (0.30, 0.60, 0.75),
            ],
            0.06,
        )  # fmt: skip
        wall = dice.uniform(0.45, 0.78)[:, None] + dice.uniform(-0.13, 0.13, 3)
        self.wall_near = np.clip(wall, 0.0, 1.0)

    def _draw_placement(self, dice: Dice) -> None:
        # of the face in the picture, and the light
        self.shift_x = dice.normal(0.55, 2.7)
        self.shift_y = dice.normal(0.5, 3.0) - np.float32(0.4)
        self.angle = dice.normal(np.deg2rad(4.5), 2.67)
        self.scale = np.float32(1.0) + dice.normal(0.035)
        self.light_x = dice.uniform(-1.0, 1.0)
        self.light_y = dice.uniform(-0.7, 0.2)
        self.exposure = np.float32(1.0) + dice.normal(0.07)
        self.contrast = np.float32(1.0) + dice.normal(0.07)
        self.blur = dice.uniform(0.0, 0.35)
        # background
        self.wall_far = np.clip(self.wall_near + dice.uniform(-0.18, 0.18)[:, None], 0.0, 1.0)
        self.wall_angle = dice.uniform(0.0, 2 * np.pi)

    def _draw_body(self, dice: Dice, traits: Traits, male: Float32Array, old: Float32Array) -> None:
        chubby = traits.chubby.astype(np.float32)
        self.head_width = 7.2 + 0.45 * male + 1.1 * chubby + dice.normal(0.25)
        self.jaw_width = 5.0 + 0.35 * old + 1.15 * male + 1.9 * chubby + dice.normal(0.25)
        self.chin = 9.0 + 0.6 * male - 0.2 * chubby + dice.normal(0.25)
        self.neck_width = 2.7 + 1.2 * male + 0.7 * chubby + dice.normal(0.2)
        self.shoulder_width = 11.2 + 2.4 * male + 0.8 * chubby + dice.normal(0.5)
        self.neckline = dice.uniform(0.0, 3.0) * (1 - male) + dice.uniform(-0.5, 1.0)
        self.shade = mix(self.skin * np.float32(0.74), (0.45, 0.20, 0.16), 0.12)
        self.clothes = np.where(
            traits.wearing_necktie[:, None],
            mix(self.clothes, (0.93, 0.94, 0.97), 0.9),
            self.clothes,
        )
        self.tie = _pick(
            dice,
            [(0.75, 0.08, 0.12), (0.10, 0.16, 0.50), (0.06, 0.30, 0.22), (0.15, 0.13, 0.18)],
            0.05,
        )

    def _draw_hair(self, dice: Dice, traits: Traits, male: Float32Array) -> None:
        self.hair_volume: Float32Array = 1.1 + 0.5 * (1 - male) + dice.normal(0.3)
        self.hairline = either(
            traits.bangs,
            np.float32(-3.7) + dice.normal(0.2),
            -6.5 - 0.5 * male - 1.4 * np.maximum(traits.age - 0.5, 0) * male + dice.normal(0.3),
        )
        self.hairline_bend = either(traits.bangs, 0.02, np.float32(0.085) + dice.normal(0.012))
        self.parting = dice.normal(1.1)
        self.wave_phase = dice.uniform(0.0, 2 * np.pi)
        self.lock_length = np.float32(7.0) + dice.uniform(-1.0, 2.5)
        self.beanie = dice.chance(0.5)
        self.hat = _pick(
            dice,
            [
                (0.80, 0.15, 0.18),
                (0.13, 0.32, 0.66),
                (0.15, 0.52, 0.32),
                (0.95, 0.72, 0.15),
                (0.48, 0.20, 0.55),
            ],
            0.07,
        )
        self.ribbon = _pick(
            dice, [(0.95, 0.93, 0.88), (0.12, 0.10, 0.14), (0.90, 0.55, 0.20)], 0.05
        )

    def _draw_features(
        self, dice: Dice, traits: Traits, male: Float32Array, old: Float32Array
    ) -> None:
        narrow, big_nose = (
            trait.astype(np.float32) for trait in (traits.narrow_eyes, traits.big_nose)
        )
        self.eye_gap = np.float32(3.4) + dice.normal(0.12)
        self.eye_v = np.float32(-0.7) + dice.normal(0.2)
        self.eye_width = 1.85 + 0.2 * narrow - 0.12 * male + dice.normal(0.08)
        self.eye_height = either(
            traits.narrow_eyes, 0.62, 1.72 - 0.18 * male - 0.30 * old
        ) + dice.normal(0.08)
        self.gaze = dice.normal(0.3)
        self.iris = _pick(
            dice,
            [(0.25, 0.14, 0.07), (0.16, 0.34, 0.58), (0.18, 0.42, 0.24), (0.10, 0.08, 0.08)],
            0.04,
        )
        self.brow_v = np.float32(-3.45) + dice.normal(0.2) + 0.5 * narrow
        self.brow_weight = either(traits.bushy_eyebrows, 1.25, 0.28 + 0.10 * male) + dice.normal(
            0.05
        )
        self.brow_tilt = dice.normal(0.25) + np.float32(0.1)
        self.brow = mix(
            mix(self._dark_hair, (0.10, 0.06, 0.05), 0.45), (0.80, 0.80, 0.82), 0.35 * old
        )
        self.nose_v: Float32Array = np.float32(3.0) + dice.normal(0.2) + 0.3 * big_nose
        self.nose_width = either(traits.big_nose, 2.7, 1.1) + dice.normal(0.12)

    def _draw_mouth(self, dice: Dice, traits: Traits, male: Float32Array) -> None:
        self.mouth_v = np.float32(5.8) + dice.normal(0.2)
        self.mouth_width = either(traits.smiling, 3.8, 2.4) + 0.2 * male + dice.normal(0.2)
        self.mouth_bend = either(traits.smiling, 1.9, -0.2) + dice.normal(0.2)
        self.mouth_gap = either(traits.mouth_slightly_open, np.float32(2.5) + dice.normal(0.2), 0.0)
        self.lip_weight = either(traits.wearing_lipstick, 0.85, 0.48 - 0.08 * male) + dice.normal(
            0.05
        )
        self.lips = np.where(
            traits.wearing_lipstick[:, None], self._painted_lips, self._natural_lips
        )

    def _draw_ornaments(self, dice: Dice, traits: Traits) -> None:
        self.eyeshadow = _pick(
            dice, [(0.45, 0.18, 0.60), (0.12, 0.40, 0.70), (0.10, 0.50, 0.50)], 0.05
        )
        self.square_frames = dice.chance(0.5)
        self.frames = _pick(
            dice,
            [(0.07, 0.06, 0.08), (0.30, 0.10, 0.06), (0.55, 0.08, 0.12), (0.10, 0.14, 0.38)],
            0.04,
        )
        self.tint = either(dice.chance(0.14), 0.82, 0.14)
        self.hoops = dice.chance(0.5)
        self.jewel = _pick(dice, [(1.00, 0.84, 0.25), (0.97, 0.97, 0.99), (0.98, 0.62, 0.72)], 0.03)
        self.whiskers = mix(
            self._dark_hair, (0.12, 0.07, 0.05), either(traits.hair == GRAY, 0.0, 0.3)
        )
        self.beard_line = np.float32(6.6) + dice.normal(0.25)
        self.wrinkles = np.clip((traits.age - 0.5) * 1.6, 0.0, 1.0) * dice.uniform(0.75, 1.0)


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
        # Pixels per unit of a face's own coordinates: masks ramp from 0 to 1 over one pixel.
        self.slope: Float32Array = geometry.scale * np.float32(size / 32)
        self.axis: Float32Array = (
            (np.arange(size, dtype=np.float32) + 0.5) * (32 / size) - 16
        ).astype(np.float32)
        turned = np.cos(geometry.angle), np.sin(geometry.angle)
        self._placement = np.array([geometry.shift_x, geometry.shift_y, geometry.scale, *turned])
        shift_x, shift_y, scale, cos, sin = self._placement[:, :, None, None]
        x = (self.axis[None, None, :] - shift_x) / scale
        y = (self.axis[None, :, None] - shift_y) / scale
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
        u, v, wide, high = (side if isinstance(side, float) else side[chosen] for side in box)
        shift_x, shift_y, scale, cos, sin = self._placement[:, chosen]
        x = shift_x + scale * (u * cos - v * sin)
        y = shift_y + scale * (u * sin + v * cos)
        cos, sin = np.abs(cos), np.abs(sin)
        reach_x = scale * (wide * cos + high * sin) + np.float32(1.0)
        reach_y = scale * (wide * sin + high * cos) + np.float32(1.0)
        rows, cols = self._span(y - reach_y, y + reach_y), self._span(x - reach_x, x + reach_x)
        return Window(self, chosen, rows, cols)

    def _span(self, low: Float32Array, high: Float32Array) -> slice:
        first = int(np.floor((float(low.min()) + 16) * (self.size / 32)))
        last = int(np.ceil((float(high.max()) + 16) * (self.size / 32)))
        return slice(max(first, 0), min(max(last, 0), self.size))


class Window:
    """Pixels of faces on a canvas; ``u`` and ``v`` are float32 ``[faces, rows, cols]``."""

    def __init__(self, canvas: Canvas, faces: IntArray | slice, rows: slice, cols: slice) -> None:
        self.canvas = canvas
        self.faces = faces
        self.where = (faces, rows, cols)
        # without gaps: loops over rows of a few pixels are slow
        self.u: Float32Array = np.ascontiguousarray(canvas.u[self.where])
        self.v: Float32Array = np.ascontiguousarray(canvas.v[self.where])
        self.slope: Float32Array = self.of(canvas.slope)

    def of(self, values: PerFace) -> Float32Array:
        """Return values per face ``[num]``, or one, in the window's shape ``[faces, 1, 1]``."""
        array = np.asarray(values, dtype=np.float32)
        return array.reshape(1, 1, 1) if array.ndim == 0 else array[self.faces][:, None, None]

    def ramp(self, distance: Float32Array, soft: float = 1.0) -> Float32Array:
        """Turn a signed distance, positive inside, into a mask with a soft edge."""
        mask = distance * (self.slope / np.float32(soft))
        mask += np.float32(0.5)
        return mask.clip(0.0, 1.0, out=mask)

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
        distance, down = self.u - self.of(u), self.v - self.of(v)
        for along, radius in ((distance, radius_u), (down, radius_v)):
            along *= 1 / radius
            for _ in range(1 + square):
                np.square(along, out=along)
        distance += down
        # level - 1 over its slope at the outline is the distance to first order.
        distance -= np.float32(1.0)
        distance *= np.minimum(radius_u, radius_v) * np.float32(-0.25 if square else -0.5)
        return self.ramp(distance if ring is None else np.float32(ring) - np.abs(distance), soft)

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
        half, thick = self.of(wide), self.of(weight)
        x = (self.u - self.of(u)) / half
        square = x * x
        line = square * self.of(bend) + x * self.of(tilt) + self.of(v)
        inside = thick - (thick * np.float32(taper)) * np.minimum(square, np.float32(1.0))
        ends = self.ramp((np.float32(1.0) - np.abs(x)) * half)
        return self.ramp(inside - np.abs(line - self.v)) * ends

    def head(self, grow: float = 0.0) -> Float32Array:
        """Return the mask of the head: the skull's ellipse joined with the jaw's."""
        geometry = self.canvas.geometry
        skull = self.ellipse(0.0, -1.8, geometry.head_width + grow, 7.5 + grow)
        jaw = self.ellipse(0.0, 1.8, geometry.jaw_width + 0.7 + grow, geometry.chin - 1.8 + grow)
        # The jaw is squarer than an ellipse: join a second, wider and shorter one.
        cheeks = self.ellipse(0.0, 2.2, geometry.jaw_width + 1.1 + grow, geometry.chin - 3.6 + grow)
        return np.maximum(np.maximum(skull, jaw), cheeks)

    def paint(
        self,
        mask: Float32Array,
        color: Float32Array | tuple[float, float, float],
        opacity: PerFace = 1.0,
    ) -> None:
        """Blend a color, ``[num, 3]`` or one for all, into the window by the mask."""
        if not (isinstance(opacity, float) and opacity == 1.0):
            mask = mask * self.of(opacity)
        tints = np.asarray(color, dtype=np.float32).reshape(-1, 3)
        of_all = tints if len(tints) == 1 else tints[self.faces]
        where = (slice(None), *self.where)
        below = self.canvas.planes[where]
        change = of_all.T[:, :, None, None] - below
        change *= mask
        below += change
        if not isinstance(self.faces, slice):  # a copy
            self.canvas.planes[where] = below
