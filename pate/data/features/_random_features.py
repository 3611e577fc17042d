"""Random Fourier features of public bandwidth: linear answers to them bend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from pate._linear import Directions
from pate._validation import Float32Array, FloatArray, require_count
from pate.data._records import ArrayFeatures, FeatureMap, Features, map_by_rows
from pate.data.features._public_scaling import PublicScaling

_MOST = 600  # features, unless a number is given
_PAIRED = 1000  # public samples, whose distances give the bandwidth
# columns, and entries that equal their column's median, beyond which random features hardly ever win
_WIDEST, _SPARSE = 256, 0.75
_SCALING = "scaling."  # before the names of the scaling's arrays


class RandomFeatures(FeatureMap):
    """Random Fourier features of a Gaussian kernel, after `PublicScaling`.

    A linear student of them approximates a smooth function of any shape, where a linear student of
    the columns cannot: products of columns, several modes for a label, borders around a center. Row
    ``x``, scaled, becomes ``sqrt(2 / m) cos(x @ frequencies + phases)``, whose inner products
    approximate ``exp(-|x - y|^2 / (2 b^2))`` (Rahimi & Recht (2007)). The bandwidth ``b`` is the
    median distance of public samples; frequencies and phases are drawn from ``seed``.

    Args:
        num_features: the number ``m`` of features; None for 600, or half the number of public
            samples where that is less.
        seed: seed of frequencies and phases, and of the public samples of the bandwidth.
    """

    by_rows = True

    def __init__(self, num_features: int | None = None, seed: int = 0) -> None:
        require_count(0, seed=seed)
        if num_features is not None:
            require_count(1, num_features=num_features)
        self.num_features = num_features
        self.seed = seed
        self._scaling = PublicScaling()
        self._frequencies: Float32Array | None = None
        self._phases: FloatArray = np.empty(0)
        self._straight: Float32Array | None = None

    @classmethod
    def after(cls, scaling: PublicScaling) -> Self:
        """Return the map, not fitted yet, after a scaling that is."""
        made = cls()
        made._scaling = scaling
        return made

    def fit(self, public: Features) -> RandomFeatures:
        """Fit on public features ``[N, ...]``, flattened.

        Raises ``ValueError`` if all samples are alike.
        """
        if self._frequencies is None:
            self._scaling.fit(public)
            # its stream is the same in all versions of numpy
            random = np.random.RandomState(self.seed)
            some = np.sort(random.permutation(public.shape[0])[:_PAIRED])
            rows = self._scaling.transform(public.select(some)).reshape(len(some), -1)
            number = self.num_features or max(1, min(_MOST, public.shape[0] // 2))
            frequencies = random.standard_normal((rows.shape[1], number)) / _bandwidth(rows)
            self._frequencies = frequencies.astype(np.float32)
            self._phases = random.uniform(0, 2 * np.pi, number)
        return self

    def transform(self, features: Features) -> Float32Array:
        """Map features ``[N, ...]`` to ``[N, num_features]``, each row by itself."""
        return self._waves(ArrayFeatures(self._scaling.transform(features)))

    def _waves(self, scaled: Features) -> Float32Array:
        assert self._frequencies is not None, "fit comes before transform"
        frequencies = self._frequencies.astype(np.float64)
        held, angles = (np.empty(size) for size in frequencies.shape)
        straight = None if self._straight is None else self._straight.astype(np.float64)

        def wave(row: Float32Array) -> FloatArray:
            held[:] = row
            np.matmul(held, frequencies, out=angles)
            waves = np.sqrt(2 / max(1, len(angles))) * np.cos(angles + self._phases)
            return np.asarray(waves if straight is None else waves - held @ straight)

        return map_by_rows(scaled, len(angles), wave)

    @property
    def module_arguments(self) -> dict[str, int]:
        """The arguments of the torch module that maps as this map does."""
        return {"num_features": len(self._phases)}

    def state(self, shape: Sequence[int]) -> dict[str, NDArray[Any]]:
        """Return what was fitted on records of ``shape``, by the names in a student's file."""
        assert self._frequencies is not None, "fit comes before state"
        scaling = {f"{_SCALING}{name}": part for name, part in self._scaling.state(shape).items()}
        frequencies = self._frequencies.reshape(prod(shape), len(self._phases))
        return scaling | {"frequencies": frequencies, "phases": self._phases}

    @classmethod
    def restored(cls, state: Mapping[str, NDArray[Any]]) -> Self:
        """Return the fitted map that `state` described."""
        made = cls()
        made._scaling = PublicScaling.restored(
            {name.removeprefix(_SCALING): part for name, part in state.items()}
        )
        made._frequencies, made._phases = state["frequencies"], state["phases"]
        return made


class AutoFeatures(RandomFeatures):
    """The columns of `PublicScaling` and, for narrow dense rows, how they bend.

    The second part is `RandomFeatures`, of which the linear functions of the columns are left out
    that come closest on public samples. So it adds to the columns and repeats nothing:
    `ScoreVotes` has a prior for each part, and asks little about the second until labels are known
    to need it. There is none where it hardly ever helps, which public samples show: with more than
    256 columns, or more than half as many as samples, or if at least three quarters of the entries
    equal their column's median, as words do. Such rows have one part, as after `PublicScaling`.

    Args:
        num_features: as of `RandomFeatures`.
        seed: as of `RandomFeatures`.
    """

    def fit(self, public: Features) -> AutoFeatures:
        """Fit on public features ``[N, ...]``, flattened.

        Raises ``ValueError`` if all samples are alike.
        """
        if self._frequencies is None:
            self._scaling.fit(public)
            rows = np.arange(min(public.shape[0], _PAIRED))
            scaled = self._scaling.transform(public.select(rows)).reshape(len(rows), -1)
            width = scaled.shape[1]
            most = min(_WIDEST, public.shape[0] // 2)
            if width <= most and (scaled == 0).mean() < _SPARSE:
                super().fit(public)
                scaled = self._scaling.transform(public).reshape(-1, width)
                columns = Directions.of(scaled.astype(np.float64))
                along = columns.left.T @ self._waves(ArrayFeatures(scaled))
                self._straight = (columns.right / columns.spread @ along).astype(np.float32)
            else:
                self._frequencies = self._straight = np.empty((width, 0), dtype=np.float32)
        return self

    @property
    def version(self) -> int:
        """1, since the second part leaves out linear functions of the columns."""
        return 1

    @property
    def widths(self) -> tuple[int, ...]:
        """The numbers of columns and of features that bend; empty without these."""
        assert self._frequencies is not None, "fit comes before widths"
        width, number = self._frequencies.shape
        return (width, number) if number else ()

    def transform(self, features: Features) -> Float32Array:
        """Map features ``[N, ...]`` to columns and how they bend, each row by itself."""
        number, *shape = features.shape
        scaled = self._scaling.transform(features).reshape(number, prod(shape))
        return np.hstack((scaled, self._waves(ArrayFeatures(scaled))))

    def state(self, shape: Sequence[int]) -> dict[str, NDArray[Any]]:
        """Return what was fitted on records of ``shape``, by the names in a student's file."""
        assert self._straight is not None, "fit comes before state"
        return super().state(shape) | {"straight": self._straight}

    @classmethod
    def restored(cls, state: Mapping[str, NDArray[Any]]) -> Self:
        """Return the fitted map that `state` described."""
        made = super().restored(state)
        made._straight = state["straight"]
        return made


def _bandwidth(rows: Float32Array) -> float:
    """Return the median distance between the halves of rows ``[N, F]``, of those that differ."""
    half = len(rows) // 2
    distances = cdist(rows[:half], rows[half : 2 * half])
    apart = distances[distances > 0]
    return float(np.median(apart)) if apart.size else 1.0
