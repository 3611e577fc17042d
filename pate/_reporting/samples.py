"""Queried samples with their released labels: pictures as data URIs, or rows of numbers."""

from __future__ import annotations

import base64
from io import BytesIO

import numpy as np
from PIL import Image

from pate._reporting.findings import Findings
from pate._reporting.page import Gallery, Sample
from pate._runs.released import ReleasedLabels
from pate._validation import Float32Array, IntArray, UInt8Array
from pate.data._records import Features

_SIDE = 128  # pixels of the longer side of a picture, at most
_SMALLEST_SIDE = 8
_VALUES = 6  # of a record that is no picture


def gallery(findings: Findings, num_samples: int) -> Gallery | None:
    """Return the first ``num_samples`` queries with released labels; None without features."""
    released = findings.released
    if released is None or released.features is None:
        return None
    labels, features = released.labels, released.features
    rows = np.arange(min(num_samples, len(labels.ids)))
    values = features[rows]
    pictures = (
        [data_uri(_encoded(pixels)) for pixels in _bytes_of(values)]
        if _are_pictures(features)
        else None
    )
    samples = []
    for row in rows.tolist():
        predicted = findings.predictions.get(row)
        sample = Sample(
            name=str(labels.ids[row]),
            picture="" if pictures is None else pictures[row],
            values=() if pictures is not None else _texts(values[row]),
            released=_named(labels, labels.labels[row]),
            answered=bool(labels.answered[row]),
            withheld=int((~labels.mask[row]).sum()),
            predicted=None if predicted is None else _named(labels, predicted),
        )
        samples.append(sample)
    return Gallery(tuple(samples))


def data_uri(content: bytes, kind: str = "image/png") -> str:
    """Return a picture as a data URI."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _named(labels: ReleasedLabels, answers: IntArray) -> tuple[str, ...]:
    return tuple(
        name
        for name, positive in zip(labels.label_names, answers.tolist(), strict=True)
        if positive
    )


def _are_pictures(features: Features) -> bool:
    """Whether features have the shape ``[N, 1 or 3, height, width]``."""
    return (
        len(features.shape) == 4
        and features.shape[1] in (1, 3)
        and min(features.shape[2:]) >= _SMALLEST_SIDE
    )


def _bytes_of(values: Float32Array) -> UInt8Array:
    """Return pictures ``[n, channels, height, width]`` as ``[n, height, width, 3]``.

    Values in [0, 1] or whole bytes are taken as they are; others are stretched from the least to
    the greatest.
    """
    low, high = float(values.min(initial=0)), float(values.max(initial=0))
    if low >= 0 and high <= 255:
        low, high = 0.0, 1.0 if high <= 1 else 255.0
    shades = np.rint((values.transpose(0, 2, 3, 1) - low) / (high - low) * 255).astype(np.uint8)
    return np.array(np.broadcast_to(shades, (*shades.shape[:3], 3)))


def _encoded(pixels: UInt8Array) -> bytes:
    picture = Image.fromarray(pixels)
    picture.thumbnail((_SIDE, _SIDE))
    file = BytesIO()
    picture.save(file, format="png", optimize=True)
    return file.getvalue()


def _texts(values: Float32Array) -> tuple[str, ...]:
    flat = values.ravel()
    more = (f"and {len(flat) - _VALUES} more",) if len(flat) > _VALUES else ()
    return (*(f"{value:.3g}" for value in flat[:_VALUES].tolist()), *more)
