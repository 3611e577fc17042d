"""Rendering of faces: pictures and attributes of face ``start`` and those after it, from a seed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pate._validation import UInt8Array, require
from pate.data.faces._canvas import Canvas
from pate.data.faces._drawing import draw_faces
from pate.data.faces._geometry import Geometry
from pate.data.faces._traits import FACE_ATTRIBUTES, Dice, Traits

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
    require_request(num, seed=seed, size=size, start=start)
    images = np.empty((num, size, size, 3), dtype=np.uint8)
    attributes = np.empty((num, len(FACE_ATTRIBUTES)), dtype=np.uint8)
    done = 0
    for some_images, some_attributes in iter_faces(num, seed=seed, size=size, start=start):
        images[done : done + len(some_images)] = some_images
        attributes[done : done + len(some_images)] = some_attributes
        done += len(some_images)
    return images, attributes


def require_request(num: int, *, seed: int, size: int, start: int = 0) -> None:
    """Raise ``ValueError`` unless such faces can be rendered."""
    require(num >= 0, "num >= 0", num=num)
    require(seed >= 0, "seed >= 0", seed=seed)
    require(_MIN_SIZE <= size <= _MAX_SIZE, f"{_MIN_SIZE} <= size <= {_MAX_SIZE}", size=size)
    require(start >= 0, "start >= 0", start=start)


def iter_faces(
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
    draw_faces(canvas, traits)
    return _photographs(canvas, rng), traits.attributes()


def _photographs(canvas: Canvas, rng: np.random.Generator) -> UInt8Array:
    """Return photographs with light, contrast, blur and grain: uint8 ``[num, size, size, 3]``."""
    geometry, planes = canvas.geometry, canvas.planes
    light = canvas.axis[None, None, :] * geometry.light_x[:, None, None]
    light = light + canvas.axis[None, :, None] * geometry.light_y[:, None, None]
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
