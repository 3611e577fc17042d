"""The answers of a linear student without torch, with feature map, gate and cuts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate._linear import LinearStudent
from pate._validation import BoolArray, Float32Array
from pate.data._records import ArrayFeatures, FeatureMap, as_features

Predict = Callable[[NDArray[Any]], tuple[Float32Array, BoolArray]]
"""Maps samples ``[B, ...]``, float32 or uint8 pictures, to probabilities and labels ``[B, C]``."""

_WHITE = np.float32(255)


@dataclass(frozen=True, eq=False)
class LinearPredictor:
    """A linear student from raw samples to answers.

    Attributes:
        features: the map from raw samples to the input of the student; None for the samples.
        student: the linear model of each label.
        cuts: float32 ``[C]``; a label is given where its probability is above its cut.
    """

    features: FeatureMap | None
    student: LinearStudent
    cuts: Float32Array

    def __call__(self, samples: NDArray[Any]) -> tuple[Float32Array, BoolArray]:
        """Return probabilities and labels, float32 and bool ``[B, C]``.

        Args:
            samples: float32 ``[B, ...]``, or pictures in uint8, with 255 as 1.
        """
        values = samples.astype(np.float32)
        if samples.dtype == np.uint8:
            values /= _WHITE
        if self.features is not None:
            values = as_features(self.features.transform(ArrayFeatures(values)))[:]
        return self.decided(values)

    def decided(self, features: NDArray[Any]) -> tuple[Float32Array, BoolArray]:
        """Return probabilities and labels of mapped features ``[B, ...]``."""
        probabilities = self.student.predict(features).astype(np.float32)
        return probabilities, probabilities > self.cuts


def arrays_of(student: LinearStudent) -> dict[str, NDArray[Any]]:
    """Return a linear student as the arrays of its files, in single precision.

    They are ``weight`` ``[C, F]``, ``bias`` ``[C]``, which is 0 for a label of which nothing was
    released, ``departs`` ``[C]`` and ``constant_logits`` ``[C]``.
    """
    bias = student.weights[-1]
    return {
        "weight": np.ascontiguousarray(student.weights[:-1].T, dtype=np.float32),
        "bias": np.where(np.isfinite(bias), bias, 0).astype(np.float32),
        "departs": student.departs,
        "constant_logits": student.constants.astype(np.float32),
    }


def student_from(arrays: Mapping[str, NDArray[Any]]) -> LinearStudent:
    """Return the linear student with the arrays of `arrays_of`."""
    constants = arrays["constant_logits"].astype(np.float64)
    bias = np.where(np.isneginf(constants), -np.inf, arrays["bias"])
    weights = np.concatenate((arrays["weight"].T, bias[None]))
    return LinearStudent(weights, arrays["departs"], constants)
