"""Geometry of rendered faces: their measures and colors, given their traits.

Lengths are in units of 1/32 of the picture's width, so that one unit is one pixel at size 32. Face
coordinates (u, v) have their origin between the eyes and the nose, u to the right and v down.
"""

from __future__ import annotations

import numpy as np

from pate._validation import Float32Array
from pate.data.faces._traits import BROWN, GRAY, Dice, Traits, either

# by the number of a hair's colour
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
    near: Float32Array = np.array(palette, dtype=np.float32)[index] + dice.colour(-spread, spread)
    np.clip(near, 0.0, 1.0, out=near)
    return near


def mix(
    one: Float32Array, other: Float32Array | tuple[float, float, float], share: Float32Array | float
) -> Float32Array:
    """Return colors ``[num, 3]`` mixed with another color, one for all faces or one for each."""
    weight = np.asarray(share, dtype=np.float32)
    if weight.ndim == 1:
        weight = weight[:, None]
    return one + weight * (np.asarray(other, dtype=np.float32) - one)


class Geometry:
    """Placement, lengths and colors of faces by their traits, float32 ``[num]`` or ``[num, 3]``.

    The order of the draws must not change: seeds rely on it.
    """

    def __init__(self, dice: Dice, traits: Traits) -> None:
        male = traits.male.astype(np.float32)
        chubby = traits.chubby.astype(np.float32)
        big_nose = traits.big_nose.astype(np.float32)
        narrow = traits.narrow_eyes.astype(np.float32)
        age = traits.age
        old = (~traits.young).astype(np.float32)

        skin = np.stack(
            [np.interp(traits.tone, _SKIN_TONES, ramp) for ramp in _SKIN_RAMP.T], axis=1
        )
        skin = np.clip(skin.astype(np.float32) + dice.colour(-0.02, 0.02), 0.0, 1.0)
        hair = _HAIR_PALETTE[traits.hair] * dice.uniform(0.84, 1.10)[:, None] + dice.colour(
            -0.02, 0.02
        )
        # Brown runs to auburn.
        auburn = dice.uniform(-0.25, 0.40) * (traits.hair == BROWN)
        hair = mix(hair, (0.68, 0.24, 0.09), auburn)
        hair = np.clip(hair, 0.02, 1.0)
        dark_hair = hair * np.float32(0.62)

        natural_lips = mix(skin, (0.66, 0.30, 0.30), dice.uniform(0.25, 0.5))
        painted_lips = _pick(
            dice, [(0.86, 0.06, 0.16), (0.78, 0.05, 0.30), (0.95, 0.20, 0.38)], 0.05
        )
        clothes = _pick(
            dice,
            [
                (0.20, 0.30, 0.55), (0.65, 0.18, 0.20), (0.20, 0.48, 0.36), (0.88, 0.70, 0.25),
                (0.50, 0.30, 0.60), (0.25, 0.27, 0.32), (0.85, 0.83, 0.80), (0.30, 0.60, 0.75),
            ],
            0.06,
        )  # fmt: skip
        wall = np.clip(dice.uniform(0.45, 0.78)[:, None] + dice.colour(-0.13, 0.13), 0.0, 1.0)
        # placement of the face in the picture, and the light
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
        self.wall_near = wall
        self.wall_far = np.clip(wall + dice.uniform(-0.18, 0.18)[:, None], 0.0, 1.0)
        self.wall_angle = dice.uniform(0.0, 2 * np.pi)
        # head and body
        self.head_width = 7.2 + 0.45 * male + 1.1 * chubby + dice.normal(0.25)
        self.jaw_width = 5.0 + 0.35 * old + 1.15 * male + 1.9 * chubby + dice.normal(0.25)
        self.chin = 9.0 + 0.6 * male - 0.2 * chubby + dice.normal(0.25)
        self.neck_width = 2.7 + 1.2 * male + 0.7 * chubby + dice.normal(0.2)
        self.shoulder_width = 11.2 + 2.4 * male + 0.8 * chubby + dice.normal(0.5)
        self.neckline = dice.uniform(0.0, 3.0) * (1 - male) + dice.uniform(-0.5, 1.0)
        self.skin = skin
        self.shade = mix(skin * np.float32(0.74), (0.45, 0.20, 0.16), 0.12)
        self.clothes = np.where(
            traits.wearing_necktie[:, None], mix(clothes, (0.93, 0.94, 0.97), 0.9), clothes
        )
        self.tie = _pick(
            dice,
            [(0.75, 0.08, 0.12), (0.10, 0.16, 0.50), (0.06, 0.30, 0.22), (0.15, 0.13, 0.18)],
            0.05,
        )
        # hair and hat
        self.hair = hair
        self.hair_volume: Float32Array = 1.1 + 0.5 * (1 - male) + dice.normal(0.3)
        self.hairline = either(
            traits.bangs,
            np.float32(-3.7) + dice.normal(0.2),
            -6.5 - 0.5 * male - 1.4 * np.maximum(age - 0.5, 0) * male + dice.normal(0.3),
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
        # features
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
        self.brow = mix(mix(dark_hair, (0.10, 0.06, 0.05), 0.45), (0.80, 0.80, 0.82), 0.35 * old)
        self.nose_v: Float32Array = np.float32(3.0) + dice.normal(0.2) + 0.3 * big_nose
        self.nose_width = either(traits.big_nose, 2.7, 1.1) + dice.normal(0.12)
        self.mouth_v = np.float32(5.8) + dice.normal(0.2)
        self.mouth_width = either(traits.smiling, 3.8, 2.4) + 0.2 * male + dice.normal(0.2)
        self.mouth_bend = either(traits.smiling, 1.9, -0.2) + dice.normal(0.2)
        self.mouth_gap = either(traits.mouth_slightly_open, np.float32(2.5) + dice.normal(0.2), 0.0)
        self.lip_weight = either(traits.wearing_lipstick, 0.85, 0.48 - 0.08 * male) + dice.normal(
            0.05
        )
        self.lips = np.where(traits.wearing_lipstick[:, None], painted_lips, natural_lips)
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
        self.whiskers = mix(dark_hair, (0.12, 0.07, 0.05), either(traits.hair == GRAY, 0.0, 0.3))
        self.beard_line = np.float32(6.6) + dice.normal(0.25)
        self.wrinkles = np.clip((age - 0.5) * 1.6, 0.0, 1.0) * dice.uniform(0.75, 1.0)
