"""Rendered faces from a seed, and a folder of them that is laid out as CelebA's."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from joblib import Parallel, cpu_count, delayed
from PIL import Image

from pate._files import Json, read_json, require_disk, write_json, write_text
from pate._progress import stage_bar
from pate._validation import UInt8Array, require
from pate.data.faces._canvas import FACE_ATTRIBUTES, Canvas, Dice, Geometry, Traits
from pate.data.faces._drawing import draw_faces

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
    exposure = (geometry.exposure * geometry.contrast)[:, None, None]
    planes *= (light * np.float32(0.012) + np.float32(1.0)) * exposure
    planes += (np.float32(0.5) * (1 - geometry.contrast))[:, None, None]
    share = geometry.blur[:, None, None] * np.float32(0.5)
    for axis in (2, 3):
        lines = np.moveaxis(planes, axis, -1)
        mean = (lines[..., :-2] + lines[..., 2:]) * np.float32(0.5)
        lines[..., 1:-1] += (mean - lines[..., 1:-1]) * share
    planes += rng.standard_normal(planes.shape, dtype=np.float32) * np.float32(0.022)
    pixels = np.clip(planes * np.float32(255) + np.float32(0.5), 0.0, 255.0)
    return np.ascontiguousarray(pixels.astype(np.uint8).transpose(1, 2, 3, 0))


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


class FolderDiffersError(FileExistsError, ValueError):
    """The folder holds something other than the requested faces."""


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
    same parameters already, nothing is done; a folder left half-written is written anew. The first
    faces are the private ones (partition 0, CelebA's train), the next the public ones (1, valid),
    the rest the test set (2).

    Args:
        output: the folder, created if it is missing.
        num: number of faces.
        seed: any integer >= 0.
        size: the pictures' width and height, 32 to 64.
        private_fraction: share of the faces in partition 0.
        public_fraction: share of the faces in partition 1.
        progress: whether to show a progress bar.

    Raises:
        ValueError: for a negative num or seed, a size outside 32..64, fractions that are not shares
            of 1, or more faces than the disk has room for.
        FolderDiffersError: (a FileExistsError and a ValueError) if the folder holds other faces, or
            a data set that this function did not write.
    """
    require_request(num, seed=seed, size=size)
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
    require_disk(num * (_HEAD + _DEPTH * size**2), output, "faces", files=num)
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
    parts = _partition(num, private_fraction, public_fraction)
    roles = "".join(f"{_name(index)} {part}\n" for index, part in enumerate(parts))
    write_text(output / _PARTITION_FILE, roles)
    write_json(output / _FINISHED, wanted)
    (output / _BEGUN).unlink()


def _write_pictures(folder: Path, indices: range, *, seed: int, size: int) -> list[str]:
    """Write the pictures of some faces, and return their rows of the attribute table."""
    rows: list[str] = []
    for images, attributes in iter_faces(len(indices), seed=seed, size=size, start=indices.start):
        for image, signs in zip(images, attributes.astype(np.int64) * 2 - 1, strict=True):
            name = _name(indices.start + len(rows))
            Image.fromarray(image).save(folder / name, quality=95, subsampling=0)
            rows.append(f"{name} {' '.join(map(str, signs))}")
    return rows


def _name(index: int) -> str:
    """Return the name of a face's picture, which counts from 1 as CelebA's do."""
    return f"{index + 1:06d}.jpg"


def _is_written(output: Path, wanted: Json) -> bool:
    """Return whether the folder is complete with these parameters.

    Raises `FolderDiffersError` if it is another data set.
    """
    finished, begun = output / _FINISHED, output / _BEGUN
    if finished.exists():
        existing = read_json(finished.read_text(encoding="utf-8"))
        differing = [key for key in wanted if existing.get(key) != wanted[key]]
        if differing:
            expected, got = (
                ", ".join(f"{key}={of.get(key)}" for key in differing) for of in (wanted, existing)
            )
            raise FolderDiffersError(f"Expected faces of {expected} in {output}, got {got}")
        return True
    # Never draw over a true CelebA: only files that this module began may be rewritten.
    if not begun.exists():
        for name in (_IMAGES, _ATTRIBUTE_FILE, _PARTITION_FILE):
            if (output / name).exists():
                raise FolderDiffersError(
                    f"Expected a new folder or one of rendered faces, got {output} with {name}"
                )
    return False


def _partition(num: int, private_fraction: float, public_fraction: float) -> list[int]:
    """Return 0 (private), 1 (public) or 2 (test) for each face, by its position."""
    train = round(num * private_fraction)
    valid = min(round(num * (private_fraction + public_fraction)), num) - train
    return [0] * train + [1] * valid + [2] * (num - train - valid)
