"""Rendered faces: drawn layer by layer, from the wall behind them to the earrings.

A seed gives each face, whose picture has light, blur and grain. A folder of them is laid out as
CelebA's.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from joblib import Parallel, cpu_count, delayed
from PIL import Image

from pate._core.files.reading import Json, read_json
from pate._core.files.writing import require_disk, write_json, write_text
from pate._core.validation import Float32Array, UInt8Array, require, stage_bar
from scripts.faces.canvas import (
    FACE_ATTRIBUTES,
    Canvas,
    Dice,
    Geometry,
    Traits,
    Window,
    either,
    mix,
)

_TEETH = (0.99, 0.98, 0.95)


def _draw_background(canvas: Canvas, geometry: Geometry, _: Traits) -> None:
    across: Float32Array = np.cos(geometry.wall_angle)[:, None, None] * canvas.axis[None, None, :]
    down: Float32Array = np.sin(geometry.wall_angle)[:, None, None] * canvas.axis[None, :, None]
    along = (across + down) * np.float32(1 / 45) + np.float32(0.5)
    for channel, plane in enumerate(canvas.planes):
        near = geometry.wall_near[:, channel, None, None]
        plane[...] = near + along * (geometry.wall_far[:, channel, None, None] - near)


def _draw_hair_behind(canvas: Canvas, geometry: Geometry, traits: Traits) -> None:
    width = geometry.head_width + geometry.hair_volume
    dark = geometry.hair * np.float32(0.72)
    long_hair = canvas.window((0.0, 2.0, width + 1, 14.0), traits.long_hair)
    middle, half = (geometry.lock_length - 3.0) * 0.5, (geometry.lock_length + 12.0) * 0.5
    long_hair.paint(long_hair.ellipse(0.0, middle, width + 0.5, half, square=True), dark)
    # A bob for the women without long hair.
    bob = canvas.window((0.0, 0.0, width, 6.5), ~traits.long_hair & ~traits.bald & ~traits.male)
    bob.paint(bob.ellipse(0.0, -0.5, width - 0.1, 6.2, square=True), dark)


def _draw_body(canvas: Canvas, geometry: Geometry, traits: Traits) -> None:
    torso = canvas.window((0.0, 18.0, geometry.shoulder_width + 1, 8.5))
    torso.paint(torso.ellipse(0.0, 18.0, geometry.shoulder_width, 7.4), geometry.clothes)
    torso.paint(
        torso.ellipse(0.0, 19.5, geometry.shoulder_width - 2.5, 7.0, soft=3.0),
        (1.0, 1.0, 1.0),
        0.10,
    )
    neck = canvas.window((0.0, 9.0, geometry.neck_width + 1.5, 7.0))
    base = neck.ellipse(0.0, 9.8, geometry.neck_width + 0.9, 1.8 + geometry.neckline * 0.8)
    column = neck.ellipse(0.0, 7.5, geometry.neck_width, 4.6, square=True)
    neck.paint(np.maximum(base, column), geometry.shade)
    neck.paint(
        neck.ellipse(0.0, 12.6, geometry.neck_width + 0.3, 1.8, soft=2.0) * base, geometry.skin, 0.8
    )
    tie = canvas.window((0.0, 14.0, 6.5, 5.0), traits.wearing_necktie)
    for side in (-1.0, 1.0):
        collar = tie.stroke(side * 2.5, 11.9, 2.4, 1.1, tilt=-side * 1.3, taper=0.2)
        tie.paint(collar, (0.98, 0.98, 1.0))
    # The blade widens downwards from below the knot.
    half = np.float32(0.6) + (tie.v - np.float32(12.5)) * np.float32(0.3)
    blade = tie.ramp(half - np.abs(tie.u)) * tie.ramp(tie.v - np.float32(12.6))
    tie.paint(blade, geometry.tie)
    tie.paint(tie.ellipse(0.0, 12.2, 1.35, 1.05), geometry.tie * np.float32(0.8))


def _draw_head(canvas: Canvas, geometry: Geometry, traits: Traits) -> None:
    for side in (-1.0, 1.0):
        ear = canvas.window((side * geometry.head_width, 0.2, 1.8, 2.4), ~traits.long_hair)
        ear.paint(ear.ellipse(side * (geometry.head_width + 0.2), 0.2, 1.25, 1.9), geometry.shade)
        ear.paint(
            ear.ellipse(side * (geometry.head_width + 0.2), 0.1, 0.8, 1.3), geometry.skin, 0.7
        )
    head = canvas.window((0.0, 0.0, 10.0, 11.0))
    mask = head.head()
    head.paint(mask, geometry.shade)
    # A wide soft ellipse toward the light makes the head round.
    light_u, light_v = geometry.light_x * 1.4, geometry.light_y * 1.4 - 0.4
    lit = head.ellipse(light_u, light_v, geometry.head_width, geometry.chin - 0.4, soft=3.5)
    head.paint(lit * mask, geometry.skin)
    head.paint(
        head.ellipse(geometry.light_x * 3.0, geometry.light_y * 3.0 - 3.5, 3.6, 3.2, soft=4.0),
        (1.0, 0.97, 0.92),
        either(traits.bald, 0.34, 0.13),
    )


def _draw_skin_marks(canvas: Canvas, geometry: Geometry, traits: Traits) -> None:
    for side in (-1.0, 1.0):
        cheek = canvas.window((side * 4.7, 3.1, 3.0, 2.6), traits.rosy_cheeks)
        cheek.paint(cheek.ellipse(side * 4.7, 3.1, 2.1, 1.8, soft=1.6), (0.96, 0.30, 0.36), 0.66)
    old = geometry.wrinkles > 0
    folds = mix(geometry.shade, (0.28, 0.14, 0.10), 0.5)
    for side in (-1.0, 1.0):
        bag = canvas.window((side * geometry.eye_gap, 1.7, 2.2, 1.4), old)
        bag.paint(
            bag.stroke(side * geometry.eye_gap, geometry.eye_v + 2.6, 1.7, 0.5, bend=-0.5),
            folds,
            geometry.wrinkles,
        )
        fold = canvas.window((side * 3.7, 4.4, 1.6, 2.4), old)
        # From the side of the nose down to the side of the mouth.
        line = np.float32(2.6) + (fold.v - np.float32(2.6)) * np.float32(0.42)
        mask = fold.ramp(np.float32(0.5) - np.abs(fold.u * np.float32(side) - line))
        ends = fold.ramp(np.float32(1.9) - np.abs(fold.v - np.float32(4.4)))
        fold.paint(mask * ends, folds, geometry.wrinkles)
    for height in (-5.0, -6.5):
        brow = canvas.window((0.0, height, 4.6, 1.2), old)
        brow.paint(brow.stroke(0.0, height, 3.9, 0.38, bend=0.4), folds, geometry.wrinkles * 0.7)


def _draw_beard(canvas: Canvas, geometry: Geometry, traits: Traits) -> None:
    beard = canvas.window((0.0, 6.0, geometry.jaw_width + 2.5, 6.0), traits.beard)
    below = beard.v - beard.of(geometry.beard_line) + beard.u * beard.u * np.float32(0.11)
    mask = beard.ramp(below) * beard.head(grow=0.5)
    # Not above the ears.
    beard.paint(mask * beard.ramp(beard.v - np.float32(0.3)), geometry.whiskers, 0.94)
    mustache = canvas.window((0.0, 5.0, 4.4, 2.4), traits.mustache)
    mustache.paint(
        mustache.stroke(0.0, geometry.mouth_v - 1.55, 3.5, 1.0, bend=0.9, taper=0.55),
        geometry.whiskers,
        0.95,
    )


def _draw_nose(canvas: Canvas, geometry: Geometry, traits: Traits) -> None:
    nose = canvas.window((0.0, geometry.nose_v - 1.0, 4.0, 4.4))
    wide = geometry.nose_width
    tone = mix(geometry.shade, (0.78, 0.22, 0.18), either(traits.big_nose, 0.6, 0.12))
    nose.paint(
        nose.ellipse(-geometry.light_x * 0.5, geometry.nose_v - 1.9, wide * 0.5, 2.3, soft=1.6),
        tone,
        0.45,
    )
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


def _draw_eyes(canvas: Canvas, geometry: Geometry, traits: Traits) -> None:
    wide, high, middle = geometry.eye_width, geometry.eye_height, geometry.eye_v
    for side in (-1.0, 1.0):
        center = side * geometry.eye_gap
        lid = canvas.window((center, middle - 0.9, 3.4, 2.4), traits.heavy_makeup)
        lid.paint(
            lid.ellipse(center + side * 0.25, middle - 0.75, wide + 0.75, high * 0.5 + 1.0),
            geometry.eyeshadow,
            0.85,
        )
        eye = canvas.window((center, middle, wide + 0.8, high + 1.0))
        eye.paint(
            eye.ellipse(center, middle - 0.28, wide + 0.3, high + 0.25),
            (0.12, 0.07, 0.07),
            either(traits.male, 0.5, 0.8),
        )
        white = eye.ellipse(center, middle, wide, high)
        eye.paint(white, (0.98, 0.98, 0.97))
        across = center + geometry.gaze
        eye.paint(eye.ellipse(across, middle, 1.05, 1.15) * white, geometry.iris)
        eye.paint(eye.ellipse(across, middle, 0.45, 0.5) * white, (0.03, 0.02, 0.03), 0.9)
        eye.paint(
            eye.ellipse(across + 0.4, middle - 0.45, 0.36, 0.36) * white, (1.0, 1.0, 1.0), 0.9
        )
        lash = canvas.window((center + side * 0.3, middle, 3.0, high + 1.2), traits.heavy_makeup)
        lash.paint(
            lash.stroke(
                center + side * 0.3,
                middle - high * 0.95,
                wide + 0.5,
                0.42,
                bend=high * 0.6,
                tilt=-side * 0.3,
            ),
            (0.05, 0.03, 0.06),
            0.9,
        )


def _draw_eyebrows(canvas: Canvas, geometry: Geometry, _: Traits) -> None:
    for side in (-1.0, 1.0):
        center = side * geometry.eye_gap
        brow = canvas.window((center, geometry.brow_v, 3.0, 2.2))
        lift = np.maximum(geometry.brow_weight - 0.4, 0.0) * 0.3
        height, tilt = geometry.brow_v - lift, -side * geometry.brow_tilt
        brow.paint(
            brow.stroke(center, height, 2.1, geometry.brow_weight, bend=0.5, tilt=tilt, taper=0.4),
            geometry.brow,
            0.92,
        )


def _mouth_shape(
    window: Window, half_width: Float32Array
) -> tuple[Float32Array, Float32Array, Float32Array]:
    """Return half the mouth's width, its fullness in 0..1, and distances of pixels below it."""
    geometry = window.canvas.geometry
    half = window.of(half_width)
    x = np.square(window.u / half)
    # The line of the mouth; its corners go up with a smile.
    line = window.of(geometry.mouth_v) - (x - np.float32(0.4)) * window.of(geometry.mouth_bend)
    return half, np.maximum(np.float32(1.0) - x, np.float32(0.0)), window.v - line


def _draw_mouth(canvas: Canvas, geometry: Geometry, traits: Traits) -> None:
    box = (0.0, geometry.mouth_v + 0.5, geometry.mouth_width + 0.8, 4.2)
    mouth = canvas.window(box)
    half, rise, below = _mouth_shape(mouth, geometry.mouth_width)
    gap, weight = mouth.of(geometry.mouth_gap), mouth.of(geometry.lip_weight)
    corner = np.float32(0.25)
    upper = below + rise * (np.float32(0.35) * gap + weight) + corner
    lower = rise * (gap + weight * np.float32(1.25)) + corner - below
    ends = mouth.ramp(half - np.abs(mouth.u))
    mouth.paint(mouth.ramp(np.minimum(upper, lower)) * ends, geometry.lips)
    # Closed lips show the line between them, or the teeth of a grin.
    closed = ~traits.mouth_slightly_open
    smile = traits.smiling.astype(np.float32)
    seam = mouth.ramp(np.float32(0.3) + rise * mouth.of(0.22 * smile) - np.abs(below)) * ends
    mouth.paint(seam, geometry.lips * np.float32(0.45), 0.85 * (closed & ~traits.smiling))
    mouth.paint(seam, _TEETH, 0.95 * (closed & traits.smiling))
    inner = canvas.window(box, traits.mouth_slightly_open)
    half, rise, below = _mouth_shape(inner, geometry.mouth_width - 0.35)
    gap = inner.of(geometry.mouth_gap)
    shape = np.minimum(below + rise * gap * np.float32(0.35), rise * gap - below)
    throat = inner.ramp(shape) * inner.ramp(half - np.abs(inner.u))
    inner.paint(throat, (0.22, 0.02, 0.05))
    inner.paint(inner.ramp(rise * gap * np.float32(0.08) - below) * throat, _TEETH, smile)


def _draw_hair_in_front(canvas: Canvas, geometry: Geometry, traits: Traits) -> None:
    width = geometry.head_width + geometry.hair_volume
    shine = mix(geometry.hair, (1.0, 0.97, 0.90), 0.30)
    top = canvas.window((0.0, -5.0, width + 1.0, 8.5), ~traits.bald)
    dome = top.ellipse(0.0, -2.2, width, 7.4 + geometry.hair_volume)
    # Parted hair runs down from the parting; bangs end in a wavy fringe.
    away = top.u - top.of(either(traits.bangs, 0.0, geometry.parting))
    line = away * away * top.of(geometry.hairline_bend) + top.of(geometry.hairline)
    wave = np.sin(top.u * np.float32(2.0) + top.of(geometry.wave_phase))
    line += wave * top.of(either(traits.bangs, 0.4, 0.12))
    # Sideburns end at the ears.
    dome = dome * top.ramp(line - top.v) * top.ramp(np.float32(1.2) - top.v)
    top.paint(dome, geometry.hair)
    gleam = top.ellipse(geometry.light_x * 3.0, -7.8, 3.6, 1.3, soft=2.0)
    top.paint(gleam * dome, shine, 0.8)
    for side in (-1.0, 1.0):
        lock_u = side * (geometry.head_width + 0.6)
        lock = canvas.window((lock_u, 4.0, 3.6, 12.0), traits.long_hair)
        lock.paint(lock.ellipse(lock_u, geometry.lock_length - 4.0, 1.7, 8.5), geometry.hair)
        lock.paint(lock.ellipse(lock_u - 0.3, 2.0, 0.6, 4.0, soft=1.5), shine, 0.5)
        fringe = canvas.window(
            (side * geometry.head_width, -0.5, 1.6, 2.8), traits.bald & ~traits.young
        )
        fringe.paint(
            fringe.ellipse(side * (geometry.head_width + 0.1), -0.9, 1.1, 2.3), geometry.hair, 0.95
        )


def _draw_glasses(canvas: Canvas, geometry: Geometry, traits: Traits) -> None:
    frame_v = geometry.eye_v + 0.15
    for squares in (False, True):
        worn = traits.eyeglasses & (geometry.square_frames == squares)
        for side in (-1.0, 1.0):
            center = side * (geometry.eye_gap + 0.1)
            lens = canvas.window((center, frame_v, 3.4, 3.2), worn)
            lens.paint(
                lens.ellipse(center, frame_v, 2.7, 2.4, square=squares),
                (0.10, 0.12, 0.16),
                geometry.tint,
            )
            lens.paint(
                lens.ellipse(center - 0.9, frame_v - 0.9, 0.7, 0.5, soft=1.3), (1.0, 1.0, 1.0), 0.35
            )
            lens.paint(
                lens.ellipse(center, frame_v, 2.75, 2.45, square=squares, ring=0.44),
                geometry.frames,
            )
    bar = canvas.window((0.0, frame_v, 9.0, 1.2), traits.eyeglasses)
    across = np.abs(bar.u)
    away = np.abs(across - bar.of(geometry.eye_gap + 0.1))
    arms = bar.ramp(np.float32(0.36) - np.abs(bar.v - bar.of(frame_v - 0.4)))
    ends = bar.ramp(bar.of(geometry.head_width + 0.3) - across)
    bar.paint(arms * bar.ramp(away - np.float32(2.7)) * ends, geometry.frames)


def _draw_hat(canvas: Canvas, geometry: Geometry, traits: Traits) -> None:
    width = geometry.head_width + np.maximum(geometry.hair_volume * 0.6, 0.5)
    shadow = geometry.hat * np.float32(0.7)
    light = mix(geometry.hat, (1.0, 1.0, 1.0), 0.3)
    beanie = canvas.window((0.0, -8.5, width + 2.0, 8.0), traits.wearing_hat & geometry.beanie)
    dome = beanie.ellipse(0.0, -4.6, width + 0.2, 8.2) * beanie.ramp(np.float32(-4.6) - beanie.v)
    beanie.paint(dome, geometry.hat)
    beanie.paint(
        beanie.ellipse(geometry.light_x * 3.5, -9.2, 3.2, 2.2, soft=2.5) * dome, light, 0.8
    )
    beanie.paint(beanie.ellipse(0.0, -5.4, width + 0.7, 1.6, square=True), geometry.ribbon)
    beanie.paint(beanie.ellipse(0.0, -13.0, 1.8, 1.6), geometry.ribbon)
    brim = canvas.window((0.0, -8.5, width + 6.5, 6.5), traits.wearing_hat & ~geometry.beanie)
    crown = brim.ellipse(0.0, -8.4, width - 0.5, 5.0, square=True)
    brim.paint(crown, geometry.hat)
    brim.paint(brim.ellipse(geometry.light_x * 3.5, -10.5, 3.2, 2.2, soft=2.5) * crown, light, 0.8)
    brim.paint(
        brim.ramp(np.float32(1.0) - np.abs(brim.v + np.float32(6.9))) * crown, geometry.ribbon
    )
    brim.paint(brim.ellipse(0.0, -5.0, width + 3.6, 1.35), shadow)
    brim.paint(brim.ellipse(0.0, -5.3, width + 3.4, 1.0), geometry.hat)


def _draw_earrings(canvas: Canvas, geometry: Geometry, traits: Traits) -> None:
    for side in (-1.0, 1.0):
        center = side * (geometry.head_width + 0.7)
        drop = canvas.window((center, 3.8, 2.0, 2.6), traits.wearing_earrings & ~geometry.hoops)
        drop.paint(drop.ellipse(center, 3.8, 1.55, 2.05), (0.15, 0.10, 0.12), 0.45)
        drop.paint(drop.ellipse(center, 3.8, 1.25, 1.75), geometry.jewel)
        drop.paint(drop.ellipse(center - 0.3, 3.2, 0.4, 0.4), (1.0, 1.0, 1.0), 0.8)
        hoop = canvas.window((center, 3.9, 2.4, 2.8), traits.wearing_earrings & geometry.hoops)
        hoop.paint(hoop.ellipse(center, 3.9, 1.45, 1.75, ring=0.85), (0.15, 0.10, 0.12), 0.35)
        hoop.paint(hoop.ellipse(center, 3.9, 1.45, 1.75, ring=0.62), geometry.jewel)


# from back to front
_LAYERS: tuple[Callable[[Canvas, Geometry, Traits], None], ...] = (
    _draw_background, _draw_hair_behind, _draw_body, _draw_head, _draw_skin_marks, _draw_beard,
    _draw_nose, _draw_mouth, _draw_eyes, _draw_eyebrows, _draw_hair_in_front, _draw_glasses,
    _draw_hat, _draw_earrings,
)  # fmt: skip


def _draw_faces(canvas: Canvas, traits: Traits) -> None:
    """Draw faces of the canvas's geometry and the given traits."""
    for draw in _LAYERS:
        draw(canvas, canvas.geometry, traits)


# Faces are sampled and drawn in whole blocks, so that face i depends only on (seed, i); a block's
# working arrays also stay within a processor's cache at size 32.
_BLOCK = 100
_MIN_SIZE, _MAX_SIZE = 32, 64


def render_faces(
    num: int, *, seed: int, size: int = 32, start: int = 0
) -> tuple[UInt8Array, UInt8Array]:
    """Render faces ``start`` to ``start + num - 1`` of a seed.

    Face i depends on (seed, i) only, so that a longer data set begins with a shorter one.

    Args:
        num: number of faces.
        seed: any integer >= 0.
        size: the pictures' width and height, 32 to 64.
        start: index of the first face.

    Returns:
        images uint8 ``[num, size, size, 3]`` and attributes uint8 ``[num, len(FACE_ATTRIBUTES)]``
        in {0, 1}, the columns in the order of `FACE_ATTRIBUTES`.

    Raises:
        ValueError: for a negative num, seed or start, or a size outside 32..64.
    """
    _require_request(num, seed=seed, size=size, start=start)
    none = np.empty((0, size, size, 3), np.uint8), np.empty((0, len(FACE_ATTRIBUTES)), np.uint8)
    blocks = _iter_faces(num, seed=seed, size=size, start=start)
    images, attributes = map(np.concatenate, zip(none, *blocks, strict=True))
    return images, attributes


def _require_request(num: int, *, seed: int, size: int, start: int = 0) -> None:
    """Raise ``ValueError`` unless such faces can be rendered."""
    require(num >= 0, "num >= 0", num=num)
    require(seed >= 0, "seed >= 0", seed=seed)
    require(_MIN_SIZE <= size <= _MAX_SIZE, f"{_MIN_SIZE} <= size <= {_MAX_SIZE}", size=size)
    require(start >= 0, "start >= 0", start=start)


def _iter_faces(
    num: int, *, seed: int, size: int, start: int = 0
) -> Iterator[tuple[UInt8Array, UInt8Array]]:
    """Yield images and attributes like `render_faces`, at most a hundred faces at a time."""
    stop = start + num
    for block in range(start // _BLOCK, -(-stop // _BLOCK) if num else 0):
        images, attributes = _render_block(seed, block, size)
        requested = slice(max(start - block * _BLOCK, 0), min(stop - block * _BLOCK, _BLOCK))
        yield images[requested], attributes[requested]


def _render_block(seed: int, block: int, size: int) -> tuple[UInt8Array, UInt8Array]:
    rng = np.random.default_rng(np.random.SeedSequence([seed, block]))
    dice = Dice(rng, _BLOCK)
    traits = Traits(dice)
    canvas = Canvas(Geometry(dice, traits), size)
    _draw_faces(canvas, traits)
    return _photographs(canvas, rng), traits.attributes()


def _photographs(canvas: Canvas, rng: np.random.Generator) -> UInt8Array:
    """Return photographs with light, contrast, blur and grain: uint8 ``[num, size, size, 3]``."""
    geometry, planes = canvas.geometry, canvas.planes
    light_x, light_y = geometry.light_x[:, None, None], geometry.light_y[:, None, None]
    light = canvas.axis[None, None, :] * light_x + canvas.axis[None, :, None] * light_y
    exposure = (geometry.exposure * geometry.contrast)[:, None, None]
    planes *= (light * np.float32(0.012) + np.float32(1.0)) * exposure
    planes += (np.float32(0.5) * (1 - geometry.contrast))[:, None, None]
    share = geometry.blur[:, None, None] * np.float32(0.5)
    for axis in (2, 3):
        lines = np.moveaxis(planes, axis, -1)
        mean = lines[..., :-2] + lines[..., 2:]
        mean *= np.float32(0.5)
        mean -= lines[..., 1:-1]
        mean *= share
        lines[..., 1:-1] += mean
    planes += rng.standard_normal(planes.shape, dtype=np.float32) * np.float32(0.022)
    planes *= np.float32(255)
    planes += np.float32(0.5)
    pixels = planes.clip(0.0, 255.0, out=planes).astype(np.uint8)
    return np.ascontiguousarray(pixels.transpose(1, 2, 3, 0))


# Bumped whenever the same (seed, i) would no longer give the same picture.
_VERSION = 1

_IMAGES = "img_align_celeba"
_ATTRIBUTE_FILE = "list_attr_celeba.txt"
_PARTITION_FILE = "list_eval_partition.txt"
_FINISHED = "faces.json"
_BEGUN = "faces.json.begun"
# Faces that one call draws; more than a few such calls are worth processes of their own.
_SHARE = 1000
_FEW = 5
_HEAD, _DEPTH = 800, 1  # bytes of a picture with its row in the table, and more for each pixel


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

    The folder gets `img_align_celeba/000001.jpg` and so on, `list_attr_celeba.txt`,
    `list_eval_partition.txt` and, last, `faces.json` with the parameters. If that file holds the
    same parameters already, nothing is done. A folder left half-written is written anew. The first
    faces are private (partition 0, CelebA's train), the next public (1, valid), the rest the test
    set (2).

    Args:
        output: the folder, created if it is missing.
        num: number of faces.
        seed: any integer >= 0.
        size: the pictures' width and height, 32 to 64.
        private_fraction: share of the faces in partition 0.
        public_fraction: share of the faces in partition 1.
        progress: whether to show a progress bar.

    Raises:
        ValueError: for num < 1, a negative seed, a size outside 32..64, fractions that are not
            shares of 1, more faces than the disk has room for, or a folder of other data.
    """
    require(num >= 1, "num >= 1", num=num)
    _require_request(num, seed=seed, size=size)
    fractions = {"private_fraction": private_fraction, "public_fraction": public_fraction}
    for name, fraction in fractions.items():
        require(0 <= fraction <= 1, f"0 <= {name} <= 1", **{name: fraction})
    # A hair over 1 is the rounding of, say, 0.7 + 0.3.
    require(
        sum(fractions.values()) <= 1 + 1e-9, "private_fraction + public_fraction <= 1", **fractions
    )
    wanted = {"num": num, "seed": seed, "size": size, **fractions, "version": _VERSION}
    output = Path(output)
    if _is_written(output, wanted):
        # Left where the last run was killed at its very end.
        (output / _BEGUN).unlink(missing_ok=True)
        return
    # a file takes whole blocks
    require_disk(num * (4096 + _HEAD + _DEPTH * size**2), output, "faces")
    folder = output / _IMAGES
    output.mkdir(parents=True, exist_ok=True)
    write_json(output / _BEGUN, wanted)
    folder.mkdir(exist_ok=True)
    # The files of a killed run, tables first: a table never describes other images than its own.
    for leftover in (output / _ATTRIBUTE_FILE, output / _PARTITION_FILE, *folder.glob("*.jpg")):
        leftover.unlink(missing_ok=True)

    shares = [range(start, min(start + _SHARE, num)) for start in range(0, num, _SHARE)]
    # a face depends only on its seed and index, whichever process draws it
    workers = Parallel(n_jobs=cpu_count() if len(shares) > _FEW else 1, return_as="generator")
    rows: list[str] = []
    with stage_bar(num, "faces", unit="face", shown=progress) as bar:
        for written in workers(
            delayed(_write_pictures)(folder, share, seed=seed, size=size) for share in shares
        ):
            rows += written
            bar.update(len(written))

    write_text(
        output / _ATTRIBUTE_FILE, "\n".join([str(num), " ".join(FACE_ATTRIBUTES), *rows]) + "\n"
    )
    parts = enumerate(_partition(num, private_fraction, public_fraction))
    write_text(output / _PARTITION_FILE, "".join(f"{_name(i)} {part}\n" for i, part in parts))
    write_json(output / _FINISHED, wanted)
    (output / _BEGUN).unlink()


def _write_pictures(folder: Path, indices: range, *, seed: int, size: int) -> list[str]:
    """Write the pictures of some faces, and return their rows of the attribute table."""
    rows: list[str] = []
    for images, attributes in _iter_faces(len(indices), seed=seed, size=size, start=indices.start):
        signs_of_all = (attributes.astype(np.int64) * 2 - 1).tolist()
        for image, signs in zip(images, signs_of_all, strict=True):
            name = _name(indices.start + len(rows))
            Image.fromarray(image).save(folder / name, quality=95, subsampling=0)
            rows.append(f"{name} {' '.join(map(str, signs))}")
    return rows


def _name(index: int) -> str:
    """Return the name of a face's picture, which counts from 1 as CelebA's do."""
    return f"{index + 1:06d}.jpg"


def _is_written(output: Path, wanted: Json) -> bool:
    """Return whether the folder is complete with these parameters.

    Raises ``ValueError`` if it is another data set.
    """
    finished = output / _FINISHED
    if finished.exists():
        found = read_json(finished.read_text(encoding="utf-8"))
        require(found == wanted, f"faces of {wanted} in {output}", found=found)
        return True
    # Never draw over a true CelebA: only files that this module began may be rewritten.
    taken = [
        name for name in (_IMAGES, _ATTRIBUTE_FILE, _PARTITION_FILE) if (output / name).exists()
    ]
    require(
        not taken or (output / _BEGUN).exists(),
        f"a new folder or one of drawn faces in {output}",
        found=taken,
    )
    return False


def _partition(num: int, private_fraction: float, public_fraction: float) -> list[int]:
    """Return 0 (private), 1 (public) or 2 (test) for each face, by its position."""
    train = round(num * private_fraction)
    valid = min(round(num * (private_fraction + public_fraction)), num) - train
    return [0] * train + [1] * valid + [2] * (num - train - valid)
