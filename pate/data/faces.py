"""Rendered faces: the embedded data set.

A small renderer of cartoon faces with binary attributes, for trying the whole pipeline when CelebA is not at
hand. Nothing is downloaded and nothing is learned: latent traits (gender, age, skin) are sampled first, the
attributes given those, the geometry given both, and the geometry is drawn with anti-aliased soft masks, layer
by layer, over a whole block of faces at once.

Lengths are in units of 1/32 of the picture's width, so that one unit is one pixel at size 32. Face
coordinates (u, v) have their origin between the eyes and the nose, u to the right and v down.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from tqdm import tqdm  # type: ignore[import-untyped,unused-ignore]

__all__ = ["FACE_ATTRIBUTES", "FolderDiffersError", "iter_faces", "render_faces", "write_celeba_folder"]

UInt8Array = NDArray[np.uint8]
FloatArray = NDArray[np.float32]
BoolArray = NDArray[np.bool_]

FACE_ATTRIBUTES: tuple[str, ...] = (
    "Bald",
    "Bangs",
    "Beard",
    "Big_Nose",
    "Black_Hair",
    "Blond_Hair",
    "Brown_Hair",
    "Bushy_Eyebrows",
    "Chubby",
    "Eyeglasses",
    "Gray_Hair",
    "Heavy_Makeup",
    "Long_Hair",
    "Male",
    "Mouth_Slightly_Open",
    "Mustache",
    "Narrow_Eyes",
    "Pale_Skin",
    "Rosy_Cheeks",
    "Smiling",
    "Wearing_Earrings",
    "Wearing_Hat",
    "Wearing_Lipstick",
    "Wearing_Necktie",
    "Young",
)

# Bumped whenever the same (seed, i) would no longer give the same picture.
_VERSION = 1
# Faces are sampled and drawn in whole blocks, so that face i depends on (seed, i) alone; a block's working
# arrays also stay within a processor's cache at size 32.
_BLOCK = 100
_MIN_SIZE, _MAX_SIZE = 32, 64

_IMAGES = "img_align_celeba"
_ATTRIBUTE_FILE = "list_attr_celeba.txt"
_PARTITION_FILE = "list_eval_partition.txt"
_FINISHED = "faces.json"
_BEGUN = "faces.json.begun"

# Colours by name of hair, and skin as a ramp over the tone from 0 (dark) to 1 (pale).
_HAIR_PALETTE = np.array(
    [[0.09, 0.08, 0.10], [0.46, 0.22, 0.10], [0.94, 0.79, 0.34], [0.73, 0.74, 0.78]],
    dtype=np.float32,
)
_BLACK, _BROWN, _BLOND, _GRAY = range(4)
_TEETH = (0.99, 0.98, 0.95)
_SKIN_TONES = (0.0, 0.3, 0.6, 0.8, 1.0)
_SKIN_RAMP = np.array(
    [[0.38, 0.24, 0.17], [0.62, 0.42, 0.29], [0.84, 0.62, 0.47], [0.94, 0.76, 0.63], [1.00, 0.93, 0.90]],
    dtype=np.float32,
)


# --- sampling -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Dice:
    """Draws of one value per face, all float32 or bool [num]."""

    rng: np.random.Generator
    num: int

    def chance(self, probability: FloatArray | float) -> BoolArray:
        return np.asarray(self.rng.random(self.num, dtype=np.float32) < probability, dtype=np.bool_)

    def uniform(self, low: float, high: float) -> FloatArray:
        return np.float32(low) + np.float32(high - low) * self.rng.random(self.num, dtype=np.float32)

    def normal(self, deviation: float, limit: float = 2.5) -> FloatArray:
        """Normal draws around 0, clipped at `limit` deviations."""
        drawn = self.rng.standard_normal(self.num, dtype=np.float32)
        return np.clip(drawn, -limit, limit) * np.float32(deviation)

    def colour(self, low: float, high: float) -> FloatArray:
        """[num, 3]"""
        return np.float32(low) + np.float32(high - low) * self.rng.random((self.num, 3), dtype=np.float32)


@dataclass(frozen=True)
class _Traits:
    """What is true of each face: the attributes and the latent traits behind them, each [num]."""

    male: BoolArray
    young: BoolArray
    age: FloatArray
    tone: FloatArray
    pale: BoolArray
    hair: NDArray[np.int64]
    bald: BoolArray
    bangs: BoolArray
    long_hair: BoolArray
    hat: BoolArray
    beard: BoolArray
    mustache: BoolArray
    bushy: BoolArray
    chubby: BoolArray
    big_nose: BoolArray
    narrow: BoolArray
    glasses: BoolArray
    lipstick: BoolArray
    makeup: BoolArray
    rosy: BoolArray
    smiling: BoolArray
    mouth_open: BoolArray
    earrings: BoolArray
    necktie: BoolArray


def _either(condition: BoolArray, yes: FloatArray | float, no: FloatArray | float) -> FloatArray:
    return np.where(condition, yes, no).astype(np.float32)


def _sample_traits(dice: _Dice) -> _Traits:
    male = dice.chance(0.48)
    young = dice.chance(0.60)
    # A gap between the young and the others, so that age can be told from its signs.
    age = _either(young, dice.uniform(0.0, 0.45), dice.uniform(0.65, 1.0))
    pale = dice.chance(0.16)
    tone = _either(pale, dice.uniform(0.90, 1.0), dice.uniform(0.05, 0.74))

    hat = dice.chance(0.17)
    bald = dice.chance(_either(male, _either(young, 0.16, 0.46), 0.005)) & ~hat
    hair = _sample_hair(dice, young, tone)
    bangs = dice.chance(_either(male, 0.16, 0.40)) & ~bald & ~hat
    long_hair = dice.chance(_either(male, 0.06, 0.66)) & ~bald

    beard = dice.chance(_either(male, 0.42, 0.0))
    mustache = dice.chance(_either(male, _either(beard, 0.50, 0.22), 0.0))
    bushy = dice.chance(_either(male, 0.38, 0.10))
    chubby = dice.chance(_either(young, 0.18, 0.30))
    big_nose = dice.chance(_either(male, 0.34, 0.14))
    narrow = dice.chance(0.22)
    glasses = dice.chance(_either(young, 0.17, 0.38))
    lipstick = dice.chance(_either(male, 0.01, 0.62))
    makeup = dice.chance(_either(male, 0.01, _either(lipstick, 0.60, 0.14)))
    rosy = dice.chance(_either(male, 0.10, _either(makeup, 0.45, 0.28)))
    smiling = dice.chance(_either(male, 0.44, 0.54))
    mouth_open = dice.chance(_either(smiling, 0.50, 0.26))
    earrings = dice.chance(_either(male, 0.04, 0.42))
    necktie = dice.chance(_either(male, _either(young, 0.28, 0.42), 0.02))
    return _Traits(
        male=male, young=young, age=age, tone=tone, pale=pale, hair=hair, bald=bald, bangs=bangs,
        long_hair=long_hair, hat=hat, beard=beard, mustache=mustache, bushy=bushy, chubby=chubby,
        big_nose=big_nose, narrow=narrow, glasses=glasses, lipstick=lipstick, makeup=makeup, rosy=rosy,
        smiling=smiling, mouth_open=mouth_open, earrings=earrings, necktie=necktie,
    )  # fmt: skip


def _sample_hair(dice: _Dice, young: BoolArray, tone: FloatArray) -> NDArray[np.int64]:
    """Index into the palette: age brings grey, a darker skin mostly black or brown."""
    dark = tone < 0.35
    black = _either(dark, 0.66, 0.30)
    brown = black + _either(dark, 0.28, 0.40)
    draw = dice.uniform(0.0, 1.0)
    colour = np.select([draw < black, draw < brown], [_BLACK, _BROWN], _BLOND)
    gray = dice.chance(_either(young, 0.03, 0.56))
    return np.where(gray, _GRAY, colour).astype(np.int64)


def _attribute_table(traits: _Traits) -> UInt8Array:
    """uint8 [num, len(FACE_ATTRIBUTES)]; a bald head has no hair colour."""
    shown = ~traits.bald
    columns = {
        "Bald": traits.bald,
        "Bangs": traits.bangs,
        "Beard": traits.beard,
        "Big_Nose": traits.big_nose,
        "Black_Hair": shown & (traits.hair == _BLACK),
        "Blond_Hair": shown & (traits.hair == _BLOND),
        "Brown_Hair": shown & (traits.hair == _BROWN),
        "Bushy_Eyebrows": traits.bushy,
        "Chubby": traits.chubby,
        "Eyeglasses": traits.glasses,
        "Gray_Hair": shown & (traits.hair == _GRAY),
        "Heavy_Makeup": traits.makeup,
        "Long_Hair": traits.long_hair,
        "Male": traits.male,
        "Mouth_Slightly_Open": traits.mouth_open,
        "Mustache": traits.mustache,
        "Narrow_Eyes": traits.narrow,
        "Pale_Skin": traits.pale,
        "Rosy_Cheeks": traits.rosy,
        "Smiling": traits.smiling,
        "Wearing_Earrings": traits.earrings,
        "Wearing_Hat": traits.hat,
        "Wearing_Lipstick": traits.lipstick,
        "Wearing_Necktie": traits.necktie,
        "Young": traits.young,
    }
    return np.stack([columns[name] for name in FACE_ATTRIBUTES], axis=1).astype(np.uint8)


@dataclass(frozen=True)
class _Geometry:
    """How each face is drawn: placement, lengths and colours, float32 [num] or [num, 3]."""

    # placement of the face in the picture, and the light
    shift_x: FloatArray
    shift_y: FloatArray
    angle: FloatArray
    scale: FloatArray
    light_x: FloatArray
    light_y: FloatArray
    exposure: FloatArray
    contrast: FloatArray
    blur: FloatArray
    # background
    wall_near: FloatArray
    wall_far: FloatArray
    wall_angle: FloatArray
    # head and body
    head_width: FloatArray
    jaw_width: FloatArray
    chin: FloatArray
    neck_width: FloatArray
    shoulder_width: FloatArray
    neckline: FloatArray
    skin: FloatArray
    shade: FloatArray
    clothes: FloatArray
    tie: FloatArray
    # hair and hat
    hair: FloatArray
    hair_volume: FloatArray
    hairline: FloatArray
    hairline_bend: FloatArray
    parting: FloatArray
    wave_phase: FloatArray
    lock_length: FloatArray
    beanie: BoolArray
    hat: FloatArray
    ribbon: FloatArray
    # features
    eye_gap: FloatArray
    eye_v: FloatArray
    eye_width: FloatArray
    eye_height: FloatArray
    gaze: FloatArray
    iris: FloatArray
    brow_v: FloatArray
    brow_weight: FloatArray
    brow_tilt: FloatArray
    brow: FloatArray
    nose_v: FloatArray
    nose_width: FloatArray
    mouth_v: FloatArray
    mouth_width: FloatArray
    mouth_bend: FloatArray
    mouth_gap: FloatArray
    lip_weight: FloatArray
    lips: FloatArray
    eyeshadow: FloatArray
    square_frames: BoolArray
    frames: FloatArray
    tint: FloatArray
    hoops: BoolArray
    jewel: FloatArray
    whiskers: FloatArray
    beard_line: FloatArray
    wrinkles: FloatArray


def _pick(dice: _Dice, palette: list[tuple[float, float, float]], spread: float) -> FloatArray:
    """A colour [num, 3] near one of the palette's."""
    index = dice.rng.integers(len(palette), size=dice.num)
    near: FloatArray = np.array(palette, dtype=np.float32)[index] + dice.colour(-spread, spread)
    np.clip(near, 0.0, 1.0, out=near)
    return near


def _mix(one: FloatArray, other: FloatArray | tuple[float, float, float], share: FloatArray | float) -> FloatArray:
    weight = np.asarray(share, dtype=np.float32)
    if weight.ndim == 1:
        weight = weight[:, None]
    mixed: FloatArray = one + weight * (np.asarray(other, dtype=np.float32) - one)
    return mixed


def _sample_geometry(dice: _Dice, traits: _Traits) -> _Geometry:
    male = traits.male.astype(np.float32)
    chubby = traits.chubby.astype(np.float32)
    big_nose = traits.big_nose.astype(np.float32)
    narrow = traits.narrow.astype(np.float32)
    age = traits.age
    old = (~traits.young).astype(np.float32)

    skin = np.stack([np.interp(traits.tone, _SKIN_TONES, ramp) for ramp in _SKIN_RAMP.T], axis=1)
    skin = np.clip(skin.astype(np.float32) + dice.colour(-0.02, 0.02), 0.0, 1.0)
    hair = _HAIR_PALETTE[traits.hair] * dice.uniform(0.84, 1.10)[:, None] + dice.colour(-0.02, 0.02)
    # Brown runs to auburn.
    auburn = dice.uniform(-0.25, 0.40) * (traits.hair == _BROWN)
    hair = _mix(hair, (0.68, 0.24, 0.09), auburn)
    hair = np.clip(hair, 0.02, 1.0)
    dark_hair = hair * np.float32(0.62)

    natural_lips = _mix(skin, (0.66, 0.30, 0.30), dice.uniform(0.25, 0.5))
    painted_lips = _pick(dice, [(0.86, 0.06, 0.16), (0.78, 0.05, 0.30), (0.95, 0.20, 0.38)], 0.05)
    clothes = _pick(
        dice,
        [
            (0.20, 0.30, 0.55), (0.65, 0.18, 0.20), (0.20, 0.48, 0.36), (0.88, 0.70, 0.25),
            (0.50, 0.30, 0.60), (0.25, 0.27, 0.32), (0.85, 0.83, 0.80), (0.30, 0.60, 0.75),
        ],
        0.06,
    )  # fmt: skip
    wall = np.clip(dice.uniform(0.45, 0.78)[:, None] + dice.colour(-0.13, 0.13), 0.0, 1.0)
    return _Geometry(
        shift_x=dice.normal(0.55, 2.7),
        shift_y=dice.normal(0.5, 3.0) - np.float32(0.4),
        angle=dice.normal(np.deg2rad(4.5), 2.67),
        scale=np.float32(1.0) + dice.normal(0.035),
        light_x=dice.uniform(-1.0, 1.0),
        light_y=dice.uniform(-0.7, 0.2),
        exposure=np.float32(1.0) + dice.normal(0.07),
        contrast=np.float32(1.0) + dice.normal(0.07),
        blur=dice.uniform(0.0, 0.35),
        wall_near=wall,
        wall_far=np.clip(wall + dice.uniform(-0.18, 0.18)[:, None], 0.0, 1.0),
        wall_angle=dice.uniform(0.0, 2 * np.pi),
        head_width=7.2 + 0.45 * male + 1.1 * chubby + dice.normal(0.25),
        jaw_width=5.0 + 0.35 * old + 1.15 * male + 1.9 * chubby + dice.normal(0.25),
        chin=9.0 + 0.6 * male - 0.2 * chubby + dice.normal(0.25),
        neck_width=2.7 + 1.2 * male + 0.7 * chubby + dice.normal(0.2),
        shoulder_width=11.2 + 2.4 * male + 0.8 * chubby + dice.normal(0.5),
        neckline=dice.uniform(0.0, 3.0) * (1 - male) + dice.uniform(-0.5, 1.0),
        skin=skin,
        shade=_mix(skin * np.float32(0.74), (0.45, 0.20, 0.16), 0.12),
        clothes=np.where(traits.necktie[:, None], _mix(clothes, (0.93, 0.94, 0.97), 0.9), clothes),
        tie=_pick(dice, [(0.75, 0.08, 0.12), (0.10, 0.16, 0.50), (0.06, 0.30, 0.22), (0.15, 0.13, 0.18)], 0.05),
        hair=hair,
        hair_volume=1.1 + 0.5 * (1 - male) + dice.normal(0.3),
        hairline=_either(
            traits.bangs,
            np.float32(-3.7) + dice.normal(0.2),
            -6.5 - 0.5 * male - 1.4 * np.maximum(age - 0.5, 0) * male + dice.normal(0.3),
        ),
        hairline_bend=_either(traits.bangs, 0.02, np.float32(0.085) + dice.normal(0.012)),
        parting=dice.normal(1.1),
        wave_phase=dice.uniform(0.0, 2 * np.pi),
        lock_length=np.float32(7.0) + dice.uniform(-1.0, 2.5),
        beanie=dice.chance(0.5),
        hat=_pick(
            dice,
            [
                (0.80, 0.15, 0.18),
                (0.13, 0.32, 0.66),
                (0.15, 0.52, 0.32),
                (0.95, 0.72, 0.15),
                (0.48, 0.20, 0.55),
            ],
            0.07,
        ),
        ribbon=_pick(dice, [(0.95, 0.93, 0.88), (0.12, 0.10, 0.14), (0.90, 0.55, 0.20)], 0.05),
        eye_gap=np.float32(3.4) + dice.normal(0.12),
        eye_v=np.float32(-0.7) + dice.normal(0.2),
        eye_width=1.85 + 0.2 * narrow - 0.12 * male + dice.normal(0.08),
        eye_height=_either(traits.narrow, 0.62, 1.72 - 0.18 * male - 0.30 * old) + dice.normal(0.08),
        gaze=dice.normal(0.3),
        iris=_pick(dice, [(0.25, 0.14, 0.07), (0.16, 0.34, 0.58), (0.18, 0.42, 0.24), (0.10, 0.08, 0.08)], 0.04),
        brow_v=np.float32(-3.45) + dice.normal(0.2) + 0.5 * narrow,
        brow_weight=_either(traits.bushy, 1.25, 0.28 + 0.10 * male) + dice.normal(0.05),
        brow_tilt=dice.normal(0.25) + np.float32(0.1),
        brow=_mix(_mix(dark_hair, (0.10, 0.06, 0.05), 0.45), (0.80, 0.80, 0.82), 0.35 * old),
        nose_v=np.float32(3.0) + dice.normal(0.2) + 0.3 * big_nose,
        nose_width=_either(traits.big_nose, 2.7, 1.1) + dice.normal(0.12),
        mouth_v=np.float32(5.8) + dice.normal(0.2),
        mouth_width=_either(traits.smiling, 3.8, 2.4) + 0.2 * male + dice.normal(0.2),
        mouth_bend=_either(traits.smiling, 1.9, -0.2) + dice.normal(0.2),
        mouth_gap=_either(traits.mouth_open, np.float32(2.5) + dice.normal(0.2), 0.0),
        lip_weight=_either(traits.lipstick, 0.85, 0.48 - 0.08 * male) + dice.normal(0.05),
        lips=np.where(traits.lipstick[:, None], painted_lips, natural_lips),
        eyeshadow=_pick(dice, [(0.45, 0.18, 0.60), (0.12, 0.40, 0.70), (0.10, 0.50, 0.50)], 0.05),
        square_frames=dice.chance(0.5),
        frames=_pick(dice, [(0.07, 0.06, 0.08), (0.30, 0.10, 0.06), (0.55, 0.08, 0.12), (0.10, 0.14, 0.38)], 0.04),
        tint=_either(dice.chance(0.14), 0.82, 0.14),
        hoops=dice.chance(0.5),
        jewel=_pick(dice, [(1.00, 0.84, 0.25), (0.97, 0.97, 0.99), (0.98, 0.62, 0.72)], 0.03),
        whiskers=_mix(dark_hair, (0.12, 0.07, 0.05), _either(traits.hair == _GRAY, 0.0, 0.3)),
        beard_line=np.float32(6.6) + dice.normal(0.25),
        wrinkles=np.clip((age - 0.5) * 1.6, 0.0, 1.0) * dice.uniform(0.75, 1.0),
    )


# --- drawing ------------------------------------------------------------------------------------------------


class _Stage:
    """The pictures being drawn: planes float32 [3, num, size, size] and each pixel's face coordinates."""

    def __init__(self, geometry: _Geometry, size: int) -> None:
        self.num = geometry.angle.shape[0]
        self.size = size
        self.geometry = geometry
        self.planes: FloatArray = np.empty((3, self.num, size, size), dtype=np.float32)
        self.cos = np.cos(geometry.angle)
        self.sin = np.sin(geometry.angle)
        # Pixels per unit of a face's own coordinates: masks ramp from 0 to 1 over one pixel.
        self.slope: FloatArray = geometry.scale * np.float32(size / 32)
        self.axis: FloatArray = ((np.arange(size, dtype=np.float32) + 0.5) * (32 / size) - 16).astype(np.float32)
        x = (self.axis[None, None, :] - geometry.shift_x[:, None, None]) / geometry.scale[:, None, None]
        y = (self.axis[None, :, None] - geometry.shift_y[:, None, None]) / geometry.scale[:, None, None]
        cos, sin = self.cos[:, None, None], self.sin[:, None, None]
        self.u: FloatArray = x * cos + y * sin
        self.v: FloatArray = y * cos - x * sin

    def patch(
        self,
        box: tuple[FloatArray | float, FloatArray | float, FloatArray | float, FloatArray | float],
        faces: BoolArray | None = None,
    ) -> "_Patch | None":
        """The pixels that may lie in any face's box (centre u, centre v, half width, half height).

        Small features are drawn within such a window and only on the faces that have them, which is where the
        renderer's speed comes from. None where there is nothing to draw.
        """
        chosen: NDArray[np.int64] | slice = slice(None)
        if faces is not None and not faces.all():
            chosen = np.flatnonzero(faces)
            if chosen.size == 0:
                return None
        geometry = self.geometry
        u, v, wide, high = (np.broadcast_to(np.asarray(b, dtype=np.float32), self.num)[chosen] for b in box)
        cos, sin, scale = self.cos[chosen], self.sin[chosen], geometry.scale[chosen]
        margin = np.float32(1.0)
        x = geometry.shift_x[chosen] + scale * (u * cos - v * sin)
        y = geometry.shift_y[chosen] + scale * (u * sin + v * cos)
        reach_x = scale * (wide * np.abs(cos) + high * np.abs(sin)) + margin
        reach_y = scale * (wide * np.abs(sin) + high * np.abs(cos)) + margin
        rows, cols = self._span(y - reach_y, y + reach_y), self._span(x - reach_x, x + reach_x)
        if rows.start >= rows.stop or cols.start >= cols.stop:
            return None
        return _Patch(self, chosen, rows, cols)

    def _span(self, low: FloatArray, high: FloatArray) -> slice:
        per_unit = self.size / 32
        first = int(np.floor((float(low.min()) + 16) * per_unit))
        last = int(np.ceil((float(high.max()) + 16) * per_unit))
        return slice(max(first, 0), min(max(last, 0), self.size))


class _Patch:
    """A window of some of the stage's faces; `u` and `v` are float32 [faces, rows, cols]."""

    def __init__(self, stage: _Stage, faces: NDArray[np.int64] | slice, rows: slice, cols: slice) -> None:
        self.stage = stage
        self.faces = faces
        self.where = (faces, rows, cols)
        self.u: FloatArray = stage.u[self.where]
        self.v: FloatArray = stage.v[self.where]
        self.slope: FloatArray = self.of(stage.slope)

    def of(self, values: FloatArray | float) -> FloatArray:
        """One value per face [num], or one for all, made to go with the window [faces, 1, 1]."""
        array = np.asarray(values, dtype=np.float32)
        return array.reshape(1, 1, 1) if array.ndim == 0 else array[self.faces][:, None, None]

    def ramp(self, distance: FloatArray, soft: float = 1.0) -> FloatArray:
        """Soft mask of a signed distance, positive inside; spoils its argument."""
        distance *= self.slope / np.float32(soft)
        distance += np.float32(0.5)
        return np.clip(distance, 0.0, 1.0, out=distance)

    def ellipse(
        self,
        u: FloatArray | float,
        v: FloatArray | float,
        wide: FloatArray | float,
        high: FloatArray | float,
        *,
        soft: float = 1.0,
        square: bool = False,
        ring: float | None = None,
    ) -> FloatArray:
        """Mask of an ellipse or a rounded rectangle (`square`); `ring` is the half width of its outline."""
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
        u: FloatArray | float,
        v: FloatArray | float,
        wide: FloatArray | float,
        weight: FloatArray | float,
        *,
        bend: FloatArray | float = 0.0,
        tilt: FloatArray | float = 0.0,
        taper: float = 0.5,
    ) -> FloatArray:
        """Mask of a stroke along v + tilt x + bend x^2, x in -1..1 over 2 `wide`; 2 `weight` thick."""
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

    def head(self, grow: float = 0.0) -> FloatArray:
        """Mask of the head: the skull's ellipse joined with the jaw's."""
        geometry = self.stage.geometry
        skull = self.ellipse(0.0, -1.8, geometry.head_width + grow, 7.5 + grow)
        jaw_v = 1.8
        jaw = self.ellipse(0.0, jaw_v, geometry.jaw_width + 0.7 + grow, geometry.chin - jaw_v + grow)
        # The jaw is squarer than an ellipse: join a second, wider and shorter one.
        cheeks = self.ellipse(0.0, 2.2, geometry.jaw_width + 1.1 + grow, geometry.chin - 3.6 + grow)
        return np.maximum(np.maximum(skull, jaw, out=skull), cheeks, out=skull)

    def paint(
        self,
        mask: FloatArray,
        colour: FloatArray | tuple[float, float, float],
        opacity: FloatArray | float = 1.0,
    ) -> None:
        """Lay a colour, [num, 3] or one for all, over the window where the mask says."""
        if not (isinstance(opacity, float) and opacity == 1.0):
            mask = mask * self.of(opacity)
        tints = np.asarray(colour, dtype=np.float32)
        for channel, plane in enumerate(self.stage.planes):
            change = self.of(tints[..., channel]) - plane[self.where]
            change *= mask
            plane[self.where] += change


def _draw_background(stage: _Stage) -> None:
    geometry = stage.geometry
    across: FloatArray = np.cos(geometry.wall_angle)[:, None, None] * stage.axis[None, None, :]
    down: FloatArray = np.sin(geometry.wall_angle)[:, None, None] * stage.axis[None, :, None]
    along: FloatArray = across + down
    along *= np.float32(1 / 45)
    along += np.float32(0.5)
    for channel, plane in enumerate(stage.planes):
        near = geometry.wall_near[:, channel, None, None]
        plane[...] = near + along * (geometry.wall_far[:, channel, None, None] - near)


def _draw_hair_behind(stage: _Stage, traits: _Traits) -> None:
    geometry = stage.geometry
    width = geometry.head_width + geometry.hair_volume
    dark = geometry.hair * np.float32(0.72)
    long_hair = stage.patch((0.0, 2.0, width + 1, 14.0), traits.long_hair)
    if long_hair is not None:
        length = geometry.lock_length
        mask = long_hair.ellipse(0.0, (length - 3.0) * 0.5, width + 0.5, (length + 12.0) * 0.5, square=True)
        long_hair.paint(mask, dark)
    # A bob for the women without long hair.
    bob = stage.patch((0.0, 0.0, width, 6.5), ~traits.long_hair & ~traits.bald & ~traits.male)
    if bob is not None:
        bob.paint(bob.ellipse(0.0, -0.5, width - 0.1, 6.2, square=True), dark)


def _draw_body(stage: _Stage, traits: _Traits) -> None:
    geometry = stage.geometry
    torso = stage.patch((0.0, 18.0, geometry.shoulder_width + 1, 8.5))
    if torso is not None:
        mask = torso.ellipse(0.0, 18.0, geometry.shoulder_width, 7.4)
        torso.paint(mask, geometry.clothes)
        torso.paint(torso.ellipse(0.0, 19.5, geometry.shoulder_width - 2.5, 7.0, soft=3.0), (1.0, 1.0, 1.0), 0.10)
    neck = stage.patch((0.0, 9.0, geometry.neck_width + 1.5, 7.0))
    if neck is not None:
        base = neck.ellipse(0.0, 9.8, geometry.neck_width + 0.9, 1.8 + geometry.neckline * 0.8)
        column = neck.ellipse(0.0, 7.5, geometry.neck_width, 4.6, square=True)
        neck.paint(np.maximum(base, column), geometry.shade)
        neck.paint(neck.ellipse(0.0, 12.6, geometry.neck_width + 0.3, 1.8, soft=2.0) * base, geometry.skin, 0.8)
    tie = stage.patch((0.0, 14.0, 6.5, 5.0), traits.necktie)
    if tie is not None:
        collar = (0.98, 0.98, 1.0)
        for side in (-1.0, 1.0):
            flap = tie.stroke(side * 2.5, 11.9, 2.4, 1.1, tilt=-side * 1.3, taper=0.2)
            tie.paint(flap, collar)
        # The blade widens downwards from below the knot.
        blade = np.abs(tie.u)
        np.subtract(np.float32(0.6) + (tie.v - np.float32(12.5)) * np.float32(0.3), blade, out=blade)
        blade = tie.ramp(blade) * tie.ramp(tie.v - np.float32(12.6))
        tie.paint(blade, geometry.tie)
        tie.paint(tie.ellipse(0.0, 12.2, 1.35, 1.05), geometry.tie * np.float32(0.8))


def _draw_head(stage: _Stage, traits: _Traits) -> None:
    geometry = stage.geometry
    for side in (-1.0, 1.0):
        ear = stage.patch((side * geometry.head_width, 0.2, 1.8, 2.4), ~traits.long_hair)
        if ear is not None:
            ear.paint(ear.ellipse(side * (geometry.head_width + 0.2), 0.2, 1.25, 1.9), geometry.shade)
            ear.paint(ear.ellipse(side * (geometry.head_width + 0.2), 0.1, 0.8, 1.3), geometry.skin, 0.7)
    head = stage.patch((0.0, 0.0, 10.0, 11.0))
    if head is None:
        return
    mask = head.head()
    head.paint(mask, geometry.shade)
    # A wide soft ellipse towards the light makes the head round.
    lit = head.ellipse(
        geometry.light_x * 1.4,
        geometry.light_y * 1.4 - 0.4,
        geometry.head_width,
        geometry.chin - 0.4,
        soft=3.5,
    )
    lit *= mask
    head.paint(lit, geometry.skin)
    glow = head.ellipse(geometry.light_x * 3.0, geometry.light_y * 3.0 - 3.5, 3.6, 3.2, soft=4.0)
    head.paint(glow, (1.0, 0.97, 0.92), _either(traits.bald, 0.34, 0.13))


def _draw_skin_marks(stage: _Stage, traits: _Traits) -> None:
    geometry = stage.geometry
    for side in (-1.0, 1.0):
        cheek = stage.patch((side * 4.7, 3.1, 3.0, 2.6), traits.rosy)
        if cheek is not None:
            cheek.paint(cheek.ellipse(side * 4.7, 3.1, 2.1, 1.8, soft=1.6), (0.96, 0.30, 0.36), 0.66)
    old = geometry.wrinkles > 0
    folds = _mix(geometry.shade, (0.28, 0.14, 0.10), 0.5)
    for side in (-1.0, 1.0):
        bag = stage.patch((side * geometry.eye_gap, 1.7, 2.2, 1.4), old)
        if bag is not None:
            mask = bag.stroke(side * geometry.eye_gap, geometry.eye_v + 2.6, 1.7, 0.5, bend=-0.5)
            bag.paint(mask, folds, geometry.wrinkles)
        fold = stage.patch((side * 3.7, 4.4, 1.6, 2.4), old)
        if fold is not None:
            # From beside the nose down to beside the mouth.
            line = np.abs(fold.u * np.float32(side) - (np.float32(2.6) + (fold.v - np.float32(2.6)) * np.float32(0.42)))
            line = fold.ramp(np.float32(0.5) - line) * fold.ramp(np.float32(1.9) - np.abs(fold.v - np.float32(4.4)))
            fold.paint(line, folds, geometry.wrinkles)
    for height in (-5.0, -6.5):
        brow = stage.patch((0.0, height, 4.6, 1.2), old)
        if brow is not None:
            brow.paint(brow.stroke(0.0, height, 3.9, 0.38, bend=0.4), folds, geometry.wrinkles * 0.7)


def _draw_beard(stage: _Stage, traits: _Traits) -> None:
    geometry = stage.geometry
    beard = stage.patch((0.0, 6.0, geometry.jaw_width + 2.5, 6.0), traits.beard)
    if beard is not None:
        line = beard.v - beard.of(geometry.beard_line)
        line += beard.u * beard.u * np.float32(0.11)
        mask = beard.ramp(line)
        mask *= beard.head(grow=0.5)
        # Not above the ears.
        mask *= beard.ramp(beard.v - np.float32(0.3))
        beard.paint(mask, geometry.whiskers, 0.94)
    mustache = stage.patch((0.0, 5.0, 4.4, 2.4), traits.mustache)
    if mustache is not None:
        mask = mustache.stroke(0.0, geometry.mouth_v - 1.55, 3.5, 1.0, bend=0.9, taper=0.55)
        mustache.paint(mask, geometry.whiskers, 0.95)


def _draw_nose(stage: _Stage, traits: _Traits) -> None:
    geometry = stage.geometry
    nose = stage.patch((0.0, geometry.nose_v - 1.0, 4.0, 4.4))
    if nose is None:
        return
    wide = geometry.nose_width
    tone = _mix(geometry.shade, (0.78, 0.22, 0.18), _either(traits.big_nose, 0.6, 0.12))
    nose.paint(nose.ellipse(-geometry.light_x * 0.5, geometry.nose_v - 1.9, wide * 0.5, 2.3, soft=1.6), tone, 0.45)
    nose.paint(nose.ellipse(0.0, geometry.nose_v + 0.15, wide, wide * 0.62 + 0.15), tone, 0.95)
    nose.paint(
        nose.ellipse(0.0, geometry.nose_v - 0.25, wide * 0.72, wide * 0.46 + 0.1, soft=1.4),
        geometry.skin,
        0.9,
    )
    nose.paint(
        nose.ellipse(geometry.light_x * 0.4, geometry.nose_v - 0.5, 0.5, 0.5, soft=1.4),
        (1.0, 0.98, 0.95),
        0.45,
    )


def _draw_eyes(stage: _Stage, traits: _Traits) -> None:
    geometry = stage.geometry
    wide, high, middle = geometry.eye_width, geometry.eye_height, geometry.eye_v
    for side in (-1.0, 1.0):
        centre = side * geometry.eye_gap
        lid = stage.patch((centre, middle - 0.9, 3.4, 2.4), traits.makeup)
        if lid is not None:
            shadow = lid.ellipse(centre + side * 0.25, middle - 0.75, wide + 0.75, high * 0.5 + 1.0)
            lid.paint(shadow, geometry.eyeshadow, 0.85)
        eye = stage.patch((centre, middle, wide + 0.8, high + 1.0))
        if eye is None:
            continue
        rim = eye.ellipse(centre, middle - 0.28, wide + 0.3, high + 0.25)
        eye.paint(rim, (0.12, 0.07, 0.07), _either(traits.male, 0.5, 0.8))
        white = eye.ellipse(centre, middle, wide, high)
        eye.paint(white, (0.98, 0.98, 0.97))
        across = centre + geometry.gaze
        eye.paint(eye.ellipse(across, middle, 1.05, 1.15) * white, geometry.iris)
        eye.paint(eye.ellipse(across, middle, 0.45, 0.5) * white, (0.03, 0.02, 0.03), 0.9)
        eye.paint(eye.ellipse(across + 0.4, middle - 0.45, 0.36, 0.36) * white, (1.0, 1.0, 1.0), 0.9)
        lash = stage.patch((centre + side * 0.3, middle, 3.0, high + 1.2), traits.makeup)
        if lash is not None:
            mask = lash.stroke(
                centre + side * 0.3, middle - high * 0.95, wide + 0.5, 0.42, bend=high * 0.6, tilt=-side * 0.3
            )
            lash.paint(mask, (0.05, 0.03, 0.06), 0.9)
    for side in (-1.0, 1.0):
        centre = side * geometry.eye_gap
        brow = stage.patch((centre, geometry.brow_v, 3.0, 2.2))
        if brow is not None:
            lift = np.maximum(geometry.brow_weight - 0.4, 0.0) * 0.3
            mask = brow.stroke(
                centre,
                geometry.brow_v - lift,
                2.1,
                geometry.brow_weight,
                bend=0.5,
                tilt=-side * geometry.brow_tilt,
                taper=0.4,
            )
            brow.paint(mask, geometry.brow, 0.92)


def _draw_mouth(stage: _Stage, traits: _Traits) -> None:
    geometry = stage.geometry
    mouth = stage.patch((0.0, geometry.mouth_v + 0.5, geometry.mouth_width + 0.8, 4.2))
    if mouth is None:
        return
    half = mouth.of(geometry.mouth_width)
    x = mouth.u / half
    x *= x
    rise = np.maximum(np.float32(1.0) - x, np.float32(0.0))
    # The line of the mouth; its corners go up with a smile.
    line = mouth.of(geometry.mouth_v) - (x - np.float32(0.4)) * mouth.of(geometry.mouth_bend)
    below = mouth.v - line
    gap, weight = mouth.of(geometry.mouth_gap), mouth.of(geometry.lip_weight)
    corner = np.float32(0.25)
    upper = below + rise * (np.float32(0.35) * gap + weight)
    upper += corner
    lower = rise * (gap + weight * np.float32(1.25)) + corner
    lower -= below
    ends = mouth.ramp(half - np.abs(mouth.u))
    lips = mouth.ramp(np.minimum(upper, lower)) * ends
    mouth.paint(lips, geometry.lips)
    # Closed lips show the line between them, or the teeth of a grin.
    closed = ~traits.mouth_open
    smile = traits.smiling.astype(np.float32)
    seam = mouth.ramp(np.float32(0.3) + rise * mouth.of(0.22 * smile) - np.abs(below)) * ends
    mouth.paint(seam, geometry.lips * np.float32(0.45), 0.85 * (closed & ~traits.smiling))
    mouth.paint(seam, _TEETH, 0.95 * (closed & traits.smiling))
    inner = stage.patch((0.0, geometry.mouth_v + 0.5, geometry.mouth_width + 0.8, 4.2), traits.mouth_open)
    if inner is None:
        return
    half = inner.of(geometry.mouth_width - 0.35)
    x = inner.u / half
    x *= x
    rise = np.maximum(np.float32(1.0) - x, np.float32(0.0))
    line = inner.of(geometry.mouth_v) - (x - np.float32(0.4)) * inner.of(geometry.mouth_bend)
    below = inner.v - line
    gap = inner.of(geometry.mouth_gap)
    throat = inner.ramp(np.minimum(below + rise * gap * np.float32(0.35), rise * gap - below))
    throat *= inner.ramp(half - np.abs(inner.u))
    inner.paint(throat, (0.22, 0.02, 0.05))
    teeth = inner.ramp(rise * gap * np.float32(0.08) - below) * throat
    inner.paint(teeth, _TEETH, smile)


def _draw_hair_in_front(stage: _Stage, traits: _Traits) -> None:
    geometry = stage.geometry
    width = geometry.head_width + geometry.hair_volume
    shine = _mix(geometry.hair, (1.0, 0.97, 0.90), 0.30)
    top = stage.patch((0.0, -5.0, width + 1.0, 8.5), ~traits.bald)
    if top is not None:
        dome = top.ellipse(0.0, -2.2, width, 7.4 + geometry.hair_volume)
        # Parted hair runs down from the parting; bangs end in a wavy fringe.
        away = top.u - top.of(_either(traits.bangs, 0.0, geometry.parting))
        line = away * away
        line *= top.of(geometry.hairline_bend)
        line += top.of(geometry.hairline)
        wave = np.sin(top.u * np.float32(2.0) + top.of(geometry.wave_phase))
        wave *= top.of(_either(traits.bangs, 0.4, 0.12))
        line += wave
        line -= top.v
        dome *= top.ramp(line)
        # Sideburns end at the ears.
        dome *= top.ramp(np.float32(1.2) - top.v)
        top.paint(dome, geometry.hair)
        gleam = top.ellipse(geometry.light_x * 3.0, -7.8, 3.6, 1.3, soft=2.0)
        gleam *= dome
        top.paint(gleam, shine, 0.8)
    for side in (-1.0, 1.0):
        lock_u = side * (geometry.head_width + 0.6)
        lock = stage.patch((lock_u, 4.0, 3.6, 12.0), traits.long_hair)
        if lock is not None:
            mask = lock.ellipse(lock_u, geometry.lock_length - 4.0, 1.7, 8.5)
            lock.paint(mask, geometry.hair)
            lock.paint(lock.ellipse(lock_u - 0.3, 2.0, 0.6, 4.0, soft=1.5), shine, 0.5)
        fringe = stage.patch((side * geometry.head_width, -0.5, 1.6, 2.8), traits.bald & ~traits.young)
        if fringe is not None:
            fringe.paint(fringe.ellipse(side * (geometry.head_width + 0.1), -0.9, 1.1, 2.3), geometry.hair, 0.95)


def _draw_glasses(stage: _Stage, traits: _Traits) -> None:
    geometry = stage.geometry
    frame_v = geometry.eye_v + 0.15
    for squares in (False, True):
        worn = traits.glasses & (geometry.square_frames == squares)
        for side in (-1.0, 1.0):
            centre = side * (geometry.eye_gap + 0.1)
            lens = stage.patch((centre, frame_v, 3.4, 3.2), worn)
            if lens is not None:
                lens.paint(lens.ellipse(centre, frame_v, 2.7, 2.4, square=squares), (0.10, 0.12, 0.16), geometry.tint)
                lens.paint(lens.ellipse(centre - 0.9, frame_v - 0.9, 0.7, 0.5, soft=1.3), (1.0, 1.0, 1.0), 0.35)
                ring = lens.ellipse(centre, frame_v, 2.75, 2.45, square=squares, ring=0.44)
                lens.paint(ring, geometry.frames)
    bar = stage.patch((0.0, frame_v, 9.0, 1.2), traits.glasses)
    if bar is not None:
        across = np.abs(bar.u)
        away = np.abs(across - bar.of(geometry.eye_gap + 0.1))
        arms = bar.ramp(np.float32(0.36) - np.abs(bar.v - bar.of(frame_v - 0.4)))
        arms *= bar.ramp(away - np.float32(2.7))
        arms *= bar.ramp(bar.of(geometry.head_width + 0.3) - across)
        bar.paint(arms, geometry.frames)


def _draw_hat(stage: _Stage, traits: _Traits) -> None:
    geometry = stage.geometry
    width = geometry.head_width + np.maximum(geometry.hair_volume * 0.6, 0.5)
    shadow = geometry.hat * np.float32(0.7)
    light = _mix(geometry.hat, (1.0, 1.0, 1.0), 0.3)
    beanie = stage.patch((0.0, -8.5, width + 2.0, 8.0), traits.hat & geometry.beanie)
    if beanie is not None:
        dome = beanie.ellipse(0.0, -4.6, width + 0.2, 8.2)
        dome *= beanie.ramp(np.float32(-4.6) - beanie.v)
        beanie.paint(dome, geometry.hat)
        gleam = beanie.ellipse(geometry.light_x * 3.5, -9.2, 3.2, 2.2, soft=2.5) * dome
        beanie.paint(gleam, light, 0.8)
        fold = beanie.ellipse(0.0, -5.4, width + 0.7, 1.6, square=True)
        beanie.paint(fold, geometry.ribbon)
        beanie.paint(beanie.ellipse(0.0, -13.0, 1.8, 1.6), geometry.ribbon)
    brim = stage.patch((0.0, -8.5, width + 6.5, 6.5), traits.hat & ~geometry.beanie)
    if brim is not None:
        crown = brim.ellipse(0.0, -8.4, width - 0.5, 5.0, square=True)
        brim.paint(crown, geometry.hat)
        gleam = brim.ellipse(geometry.light_x * 3.5, -10.5, 3.2, 2.2, soft=2.5) * crown
        brim.paint(gleam, light, 0.8)
        band = brim.ramp(np.float32(1.0) - np.abs(brim.v + np.float32(6.9))) * crown
        brim.paint(band, geometry.ribbon)
        brim.paint(brim.ellipse(0.0, -5.0, width + 3.6, 1.35), shadow)
        brim.paint(brim.ellipse(0.0, -5.3, width + 3.4, 1.0), geometry.hat)


def _draw_earrings(stage: _Stage, traits: _Traits) -> None:
    geometry = stage.geometry
    for side in (-1.0, 1.0):
        centre = side * (geometry.head_width + 0.7)
        drop = stage.patch((centre, 3.8, 2.0, 2.6), traits.earrings & ~geometry.hoops)
        if drop is not None:
            drop.paint(drop.ellipse(centre, 3.8, 1.55, 2.05), (0.15, 0.10, 0.12), 0.45)
            drop.paint(drop.ellipse(centre, 3.8, 1.25, 1.75), geometry.jewel)
            drop.paint(drop.ellipse(centre - 0.3, 3.2, 0.4, 0.4), (1.0, 1.0, 1.0), 0.8)
        hoop = stage.patch((centre, 3.9, 2.4, 2.8), traits.earrings & geometry.hoops)
        if hoop is not None:
            hoop.paint(hoop.ellipse(centre, 3.9, 1.45, 1.75, ring=0.85), (0.15, 0.10, 0.12), 0.35)
            hoop.paint(hoop.ellipse(centre, 3.9, 1.45, 1.75, ring=0.62), geometry.jewel)


def _finish(stage: _Stage, rng: np.random.Generator) -> UInt8Array:
    """Light, contrast, blur and grain of the photograph; uint8 [num, size, size, 3]."""
    geometry, planes = stage.geometry, stage.planes
    light = stage.axis[None, None, :] * geometry.light_x[:, None, None]
    light = light + stage.axis[None, :, None] * geometry.light_y[:, None, None]
    light *= np.float32(0.012)
    light += np.float32(1.0)
    light *= (geometry.exposure * geometry.contrast)[:, None, None]
    planes *= light
    planes += (np.float32(0.5) * (1 - geometry.contrast))[:, None, None]
    share = geometry.blur[:, None, None] * np.float32(0.5)
    for axis in (2, 3):
        inner = [slice(None)] * 4
        before, after = list(inner), list(inner)
        inner[axis], before[axis], after[axis] = slice(1, -1), slice(None, -2), slice(2, None)
        mean = planes[tuple(before)] + planes[tuple(after)]
        mean *= np.float32(0.5)
        mean -= planes[tuple(inner)]
        mean *= share
        planes[tuple(inner)] += mean
    grain = rng.standard_normal(planes.shape, dtype=np.float32)
    grain *= np.float32(0.022)
    planes += grain
    planes *= np.float32(255)
    planes += np.float32(0.5)
    np.clip(planes, 0.0, 255.0, out=planes)
    return np.ascontiguousarray(planes.astype(np.uint8).transpose(1, 2, 3, 0))


def _render_block(seed: int, block: int, size: int) -> tuple[UInt8Array, UInt8Array]:
    """The whole block's images and attributes."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, block]))
    dice = _Dice(rng, _BLOCK)
    traits = _sample_traits(dice)
    stage = _Stage(_sample_geometry(dice, traits), size)
    _draw_background(stage)
    _draw_hair_behind(stage, traits)
    _draw_body(stage, traits)
    _draw_head(stage, traits)
    _draw_skin_marks(stage, traits)
    _draw_beard(stage, traits)
    _draw_nose(stage, traits)
    _draw_mouth(stage, traits)
    _draw_eyes(stage, traits)
    _draw_hair_in_front(stage, traits)
    _draw_glasses(stage, traits)
    _draw_hat(stage, traits)
    _draw_earrings(stage, traits)
    return _finish(stage, rng), _attribute_table(traits)


# --- public -------------------------------------------------------------------------------------------------


def _check_request(num: int, seed: int, size: int, start: int = 0) -> None:
    if num < 0:
        raise ValueError(f"Expected num >= 0, got num={num}")
    if seed < 0:
        raise ValueError(f"Expected seed >= 0, got seed={seed}")
    if not _MIN_SIZE <= size <= _MAX_SIZE:
        raise ValueError(f"Expected {_MIN_SIZE} <= size <= {_MAX_SIZE}, got size={size}")
    if start < 0:
        raise ValueError(f"Expected start >= 0, got start={start}")


def iter_faces(num: int, *, seed: int, size: int = 32, start: int = 0) -> Iterator[tuple[UInt8Array, UInt8Array]]:
    """Render faces start, ..., start + num - 1 block by block.

    Args:
        num: how many faces.
        seed: any integer >= 0; face i depends on (seed, i) only.
        size: the pictures' width and height, 32 to 64.
        start: index of the first face.

    Returns:
        An iterator over (images, attributes) as of `render_faces`, at most a hundred faces at a time.

    Raises:
        ValueError: for a negative num, seed or start, or a size outside 32..64; at the call, not
            at the first step.
    """
    _check_request(num, seed, size, start)
    return _iter_blocks(num, seed, size, start)


def _iter_blocks(num: int, seed: int, size: int, start: int) -> Iterator[tuple[UInt8Array, UInt8Array]]:
    stop = start + num
    for block in range(start // _BLOCK, -(-stop // _BLOCK) if num else 0):
        images, attributes = _render_block(seed, block, size)
        kept = slice(max(start - block * _BLOCK, 0), min(stop - block * _BLOCK, _BLOCK))
        yield images[kept], attributes[kept]


def render_faces(num: int, *, seed: int, size: int = 32, start: int = 0) -> tuple[UInt8Array, UInt8Array]:
    """Render faces start, ..., start + num - 1 of the seed.

    Face i depends on (seed, i) only, so that a longer data set begins with a shorter one.

    Args:
        num: how many faces.
        seed: any integer >= 0.
        size: the pictures' width and height, 32 to 64.
        start: index of the first face.

    Returns:
        images uint8 [num, size, size, 3] and attributes uint8 [num, len(FACE_ATTRIBUTES)] in {0, 1}, the
        columns in the order of FACE_ATTRIBUTES.

    Raises:
        ValueError: for a negative num, seed or start, or a size outside 32..64.
    """
    _check_request(num, seed, size, start)
    images = np.empty((num, size, size, 3), dtype=np.uint8)
    attributes = np.empty((num, len(FACE_ATTRIBUTES)), dtype=np.uint8)
    done = 0
    for some_images, some_attributes in _iter_blocks(num, seed, size, start):
        images[done : done + len(some_images)] = some_images
        attributes[done : done + len(some_images)] = some_attributes
        done += len(some_images)
    return images, attributes


class FolderDiffersError(FileExistsError, ValueError):
    """The folder holds something other than the faces asked for."""


def _replace_text(path: Path, text: str) -> None:
    """Write a file so that a reader sees all of it or none."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def _is_written(output: Path, wanted: dict[str, int | float]) -> bool:
    """Whether the folder is finished with these parameters; a folder that is not to be rewritten raises."""
    finished, begun = output / _FINISHED, output / _BEGUN
    if finished.exists():
        found = json.loads(finished.read_text(encoding="utf-8"))
        differing = [f"{key}={found.get(key)}" for key in wanted if found.get(key) != wanted[key]]
        if differing:
            asked = ", ".join(f"{key}={wanted[key]}" for key in wanted if found.get(key) != wanted[key])
            raise FolderDiffersError(f"Expected faces of {asked} in {output}, got {', '.join(differing)}")
        return True
    # Never draw over a true CelebA: only what this module began may be rewritten.
    if not begun.exists():
        for name in (_IMAGES, _ATTRIBUTE_FILE, _PARTITION_FILE):
            if (output / name).exists():
                raise FolderDiffersError(f"Expected a new folder or one of rendered faces, got {output} with {name}")
    return False


def _partition(num: int, private_fraction: float, public_fraction: float) -> list[int]:
    """0 (train), 1 (valid) or 2 (test) of each face, by its position."""
    train = round(num * private_fraction)
    valid = min(round(num * (private_fraction + public_fraction)), num) - train
    return [0] * train + [1] * valid + [2] * (num - train - valid)


def write_celeba_folder(
    output: Path,
    *,
    num: int,
    seed: int = 0,
    size: int = 32,
    private_fraction: float = 0.8,
    public_fraction: float = 0.1,
    progress: bool = True,
) -> None:
    """Write rendered faces as a folder laid out like CelebA's.

    The folder gets `img_align_celeba/000001.jpg` and so on, `list_attr_celeba.txt`, `list_eval_partition.txt`
    and, last, `faces.json` with the parameters: where that says the same parameters nothing is done, and a
    folder left half-written is written anew. The first faces are the private ones (partition 0, CelebA's
    train), the next the public ones (1, valid), the rest the test set (2).

    Args:
        output: the folder, made where it is missing.
        num: how many faces.
        seed: any integer >= 0.
        size: the pictures' width and height, 32 to 64.
        private_fraction: share of the faces in partition 0.
        public_fraction: share of the faces in partition 1.
        progress: whether to show a progress bar.

    Raises:
        ValueError: for a negative num or seed, a size outside 32..64, or fractions that are not shares of 1.
        FolderDiffersError: (a FileExistsError and a ValueError) where the folder holds other faces, or a data
            set that this function did not write.
    """
    _check_request(num, seed, size)
    for name, fraction in (("private_fraction", private_fraction), ("public_fraction", public_fraction)):
        if not 0 <= fraction <= 1:
            raise ValueError(f"Expected 0 <= {name} <= 1, got {name}={fraction}")
    # A hair over 1 is the rounding of, say, 0.7 + 0.3.
    if private_fraction + public_fraction > 1 + 1e-9:
        raise ValueError(
            "Expected private_fraction + public_fraction <= 1, "
            f"got private_fraction={private_fraction}, public_fraction={public_fraction}"
        )
    wanted: dict[str, int | float] = {
        "num": num,
        "seed": seed,
        "size": size,
        "private_fraction": private_fraction,
        "public_fraction": public_fraction,
        "version": _VERSION,
    }
    output = Path(output)
    if _is_written(output, wanted):
        # Left where the last run was killed at its very end.
        (output / _BEGUN).unlink(missing_ok=True)
        return
    folder = output / _IMAGES
    output.mkdir(parents=True, exist_ok=True)
    _replace_text(output / _BEGUN, json.dumps(wanted) + "\n")
    folder.mkdir(exist_ok=True)
    # What a killed run left, tables first: they never describe other images than those beside them.
    for left in (output / _ATTRIBUTE_FILE, output / _PARTITION_FILE, *folder.glob("*.jpg")):
        left.unlink(missing_ok=True)

    names = [f"{index:06d}.jpg" for index in range(1, num + 1)]
    rows: list[str] = []
    with tqdm(total=num, desc="faces", unit="face", disable=not progress) as bar:
        for images, attributes in _iter_blocks(num, seed, size, 0):
            for image, signs in zip(images, attributes.astype(np.int64) * 2 - 1, strict=True):
                name = names[len(rows)]
                Image.fromarray(image).save(folder / name, quality=95, subsampling=0)
                rows.append(f"{name} {' '.join(map(str, signs))}")
            bar.update(len(images))

    _replace_text(output / _ATTRIBUTE_FILE, "\n".join([str(num), " ".join(FACE_ATTRIBUTES), *rows]) + "\n")
    parts = _partition(num, private_fraction, public_fraction)
    _replace_text(
        output / _PARTITION_FILE,
        "".join(f"{name} {part}\n" for name, part in zip(names, parts, strict=True)),
    )
    _replace_text(output / _FINISHED, json.dumps(wanted, indent=2) + "\n")
    (output / _BEGUN).unlink()
