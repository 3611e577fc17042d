"""Public maps on numpy, all fitted on public samples.

`PublicPCA` finds few features among many, and `PublicScaling` gives columns comparable units. With
`AutoFeatures` a linear model follows bends. `ChainedFeatures` applies maps one after the other. At
the end the arrays of a map that leave with a student.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.linalg import norm
from numpy.typing import NDArray
from scipy.sparse.linalg import eigsh
from scipy.spatial.distance import cdist

from pate._core.files.reading import Json
from pate._core.package import find
from pate._core.validation import (
    Float32Array,
    FloatArray,
    IntArray,
    require,
    require_count,
    stage_bar,
)
from pate._labeling.data.pictures import PatchFeatures
from pate._labeling.data.records import (
    FeatureMap,
    Features,
    as_features,
    blocks_of,
    map_by_rows,
)
from pate._labeling.linear import Directions, power_above, product_bits

# larger matrices are decomposed by iteration, in a fraction of the time, which Ctrl-C can end
_DIRECT = 4096
# public samples that take less are held in memory while a map is fitted; of more, as many at equal
# distances are taken
_HELD_BYTES = 1 << 28


class PublicPCA(FeatureMap):
    """Whitened principal components of the public samples: few features, for weak teachers.

    It is fitted to public samples of 256 MB at most, and to a part of more, at equal distances.

    >>> table = ArrayFeatures(np.array([[1.0, 300.0], [2.0, 100.0], [3.0, 250.0], [5.0, 200.0]]))
    >>> PublicPCA(num_components=1).fit(table).transform(table).shape
    (4, 1)

    Args:
        num_components: number of components, less than the numbers of features and of public
            samples.

    Raises:
        ValueError: unless ``num_components >= 1``.
    """

    by_rows = True

    def __init__(self, num_components: int) -> None:
        require_count(1, num_components=num_components)
        self.num_components = num_components
        self._mean: Float32Array = np.empty(0, dtype=np.float32)
        self._weights: Float32Array = np.empty(0, dtype=np.float32)

    def fit(self, public: Features) -> PublicPCA:
        """Fit on public features ``[N, ...]``, flattened."""
        if not self._mean.size:
            rows, width = _held_rows(public), prod(public.shape[1:])
            limit = min(len(rows), width)
            require(
                self.num_components < limit,
                f"num_components < {limit}, for {len(rows)} public samples of {width} features",
                num_components=self.num_components,
            )
            with stage_bar(
                None, f"components of {len(rows)} samples", unit="sample", shown=limit > _DIRECT
            ):
                values = public[rows].reshape(len(rows), width).astype(np.float64)
                self._mean = values.mean(axis=0).astype(np.float32)
                self._weights = _whitening(values - self._mean, self.num_components)
        return self

    def transform(self, features: Features) -> Float32Array:
        """Map features ``[N, ...]`` to ``[N, num_components]``, each row by itself."""
        mean, weights = self._mean, self._weights
        return map_by_rows(
            features, len(weights.T), lambda row: np.subtract(row, mean, out=row) @ weights
        )

    def state(self, shape: Sequence[int]) -> dict[str, NDArray[Any]]:
        """Return what was fitted on records of ``shape``, by the names in a student's file."""
        return {"mean": self._mean, "weights": self._weights}

    @classmethod
    def restored(cls, state: Mapping[str, NDArray[Any]]) -> Self:
        """Return the fitted map that `state` described."""
        made = cls(state["weights"].shape[1])
        made._mean, made._weights = state["mean"], state["weights"]
        return made


def _held_rows(public: Features) -> IntArray:
    """Return the rows of samples that are held in memory at once, at equal distances."""
    num = public.shape[0]
    return np.arange(0, num, max(1, -(-4 * num * prod(public.shape[1:]) // _HELD_BYTES)))


def _whitening(centered: FloatArray, number: int) -> Float32Array:
    """Return the scaled principal components ``[F, number]`` of samples ``[N, F]``, widest first.

    Fewer samples than features have inner products with the same eigenvalues, which are fewer.
    Where samples are copies of each other there may be fewer directions: further components are 0.
    """
    few = len(centered) < centered.shape[1]
    products = (centered @ centered.T if few else centered.T @ centered) / (len(centered) - 1)
    values, vectors = (
        # the first vector is drawn unless it is given
        eigsh(products, k=number, v0=np.ones(len(products)), tol=1e-6)
        if len(products) > _DIRECT
        else np.linalg.eigh(products)
    )
    top = np.argsort(values)[::-1][:number]
    values, vectors = values[top], vectors[:, top]
    if not few:
        return (vectors / np.sqrt(np.maximum(values, 1e-12))).astype(np.float32)
    varies = values > 1e-9 * values[0]
    scales = np.where(varies, values, 1) * np.sqrt(len(centered) - 1)
    return np.asarray(centered.T @ vectors / scales * varies, dtype=np.float32)


# a table is of one unit if most columns' units differ from the middle one by less
_ALIKE, _MOST = 10.0, 0.9
_FARTHEST = 10.0  # units
_ROWS = 4096
_COLUMNS = 64  # sorted at once


class PublicScaling(FeatureMap):
    """Columns in comparable units and rows of about unit length: one learning rate suits any table.

    A column is centered at its public median, clipped at 10 units on either side and divided by its
    unit: the median distance of the public values that differ from the median. So the scale of a
    word in few texts, or of a pixel that is mostly black, is the size of its values and not their
    frequency, and outliers do not move it. If nine tenths of the columns have units within a factor
    of 10 of the median unit, as words, pixels and components do, these are divided by the median
    unit: wider columns among them carry more information. A column that is constant on public
    samples becomes 0.

    A row ``x`` then becomes ``sqrt(2) x / sqrt(m^2 + |x|^2)``, where ``m`` is the public median
    length: the median row has length 1 and none exceeds ``sqrt(2)``, so that long rows, and extreme
    private ones, count for little more.

    >>> table = ArrayFeatures(np.array([[1.0, 300.0], [2.0, 100.0], [3.0, 250.0], [5.0, 200.0]]))
    >>> PublicScaling().fit(table).transform(table).round(2)
    array([[-0.71,  0.71],
           [-0.21, -1.26],
           [ 0.  ,  0.  ],
           [ 0.71, -0.71]], dtype=float32)
    """

    by_rows = True

    def __init__(self) -> None:
        self._centre: Float32Array = np.empty(0, dtype=np.float32)
        self._bounds: FloatArray = np.empty(0)
        self._units: FloatArray = np.empty(0)
        self._length = 1.0

    def fit(self, public: Features) -> PublicScaling:
        """Fit on public features ``[N, ...]``, flattened.

        Raises ``ValueError`` if all samples are alike.
        """
        if not self._centre.size:
            rows = _held_rows(public)
            values = public[rows].reshape(len(rows), -1)
            centre, units = _center_and_units(values)
            varies = units > 0
            require(varies.any(), "public features that differ")
            middle = float(np.median(units[varies]))
            alike = (units > middle / _ALIKE) & (units < middle * _ALIKE)
            shared = alike if alike[varies].mean() >= _MOST else np.zeros_like(alike)
            self._bounds = _FARTHEST * units
            self._units = np.where(shared, middle, np.where(varies, units, 1))
            self._centre = centre
            parts = np.array_split(values, -(-len(rows) // _ROWS))
            lengths = np.concatenate([norm(self._departures(part), axis=1) for part in parts])
            self._length = float(np.median(lengths[lengths > 0]))
        return self

    def transform(self, features: Features) -> Float32Array:
        """Map features ``[N, ...]`` to as many, held in memory, each row by itself."""
        mapped = np.empty(features.shape, dtype=np.float32)
        for index in blocks_of(features, range(len(mapped))):
            departures = self._departures(features[index].reshape(len(index), -1))
            squares = self._length**2 + norm(departures, axis=1) ** 2
            scaled = departures * np.sqrt(2 / squares)[:, None]
            mapped[index] = scaled.reshape(len(index), *features.shape[1:])
        return mapped

    def state(self, shape: Sequence[int]) -> dict[str, NDArray[Any]]:
        """Return what was fitted on records of ``shape``, by the names in a student's file."""
        return {
            "centre": self._centre.reshape(shape),
            "bounds": self._bounds.reshape(shape),
            "units": self._units.reshape(shape),
            "length": np.array(self._length),
        }

    @classmethod
    def restored(cls, state: Mapping[str, NDArray[Any]]) -> Self:
        """Return the fitted map that `state` described."""
        made = cls()
        made._centre, made._bounds, made._units = (
            state[name].ravel() for name in ("centre", "bounds", "units")
        )
        made._length = float(state["length"])
        return made

    def _departures(self, values: Float32Array) -> FloatArray:
        distances = (values.astype(np.float64) - self._centre).clip(-self._bounds, self._bounds)
        return np.asarray(distances / self._units)


def _center_and_units(values: Float32Array) -> tuple[Float32Array, FloatArray]:
    """Return the medians ``[F]`` of columns ``[N, F]``, and the median distances of other values.

    The upper of two middle values is taken. A column of one value has a unit of 0.
    """
    num, width = values.shape
    centre, units = np.empty(width, dtype=np.float32), np.empty(width)
    for start in range(0, width, _COLUMNS):
        columns = slice(start, start + _COLUMNS)
        part = np.sort(values[:, columns].astype(np.float64), axis=0)
        centre[columns] = part[num // 2]
        distances = np.sort(np.abs(part - part[num // 2]), axis=0)
        middle = np.minimum(((distances == 0).sum(axis=0) + num) // 2, num - 1)
        units[columns] = distances[middle, np.arange(distances.shape[1])]
    return centre, units


_MOST_WAVES = 600  # features, unless a number is given
_PAIRED = 1000  # public samples, whose distances give the bandwidth
_ALONE, _TURNS = 10, (1.0, 2.0)  # one in so many waves, and radians for a standard deviation
_NARROWEST = 1e-5  # scaled columns and bandwidths: frequencies lie on one grid, in float32
# columns, and entries that equal their column's median, beyond these, random features rarely win
_WIDEST, _SPARSE = 256, 0.75
_VECTOR = 16  # numbers of a vector of the processor, at most
_LONGEST = 2.0  # scaled rows are shorter
_WAVED = 1024  # rows at once
_SCALING = "scaling."  # before the names of the scaling's arrays


class AutoFeatures(FeatureMap):
    """The columns of `PublicScaling` and, for narrow dense rows, how they bend.

    A linear student of the second part approximates a smooth function of any shape, where one of
    the columns cannot: products of columns, several modes for a label, borders around a center. It
    has random Fourier features of a Gaussian kernel: row ``x``, scaled, becomes ``sqrt(2 / m) cos(x
    @ frequencies + phases)``, whose inner products approximate ``exp(-|x - y|^2 / (2 b^2))``
    (Rahimi & Recht (2007)). The bandwidth ``b`` is the median distance of public samples;
    frequencies and phases are drawn from ``seed``. A tenth of the waves, at most, go along single
    columns, as many along each: 1 to 2 radians for a standard deviation. Rules about thresholds
    need few of these. Columns of one or two values have none. The linear functions of the columns
    that come closest on public samples are taken off.

    So it adds to the columns and repeats nothing: columns, waves along one and others are parts.
    `ScoreVotes` has a prior for each, and asks little about a later one until labels are known to
    need it. There is none where it rarely helps, which public samples show: with more than 256
    columns, or more than half as many as samples, or if at least three quarters of the entries
    equal their column's median, as words do. Such rows have one part, as after `PublicScaling`.

    >>> columns = np.random.default_rng(0).standard_normal((40, 3))
    >>> features = AutoFeatures(num_features=8).fit(ArrayFeatures(columns))
    >>> features.transform(ArrayFeatures(columns)).shape
    (40, 11)

    Args:
        num_features: the number ``m`` of features that bend; None for 600, or half the number of
            public samples where that is less.
        seed: seed of frequencies and phases, and of the public samples of the bandwidth.

    Raises:
        ValueError: unless ``num_features >= 1``.
    """

    by_rows = True

    def __init__(self, num_features: int | None = None, seed: int = 0) -> None:
        require_count(0, seed=seed)
        if num_features is not None:
            require_count(1, num_features=num_features)
        self.num_features = num_features
        self.seed = seed
        self._scaling = PublicScaling()
        self._frequencies: Float32Array = np.empty(0, dtype=np.float32)
        self._straight: Float32Array = np.empty(0, dtype=np.float32)
        self._phases: FloatArray = np.empty(0)

    def fit(self, public: Features) -> AutoFeatures:
        """Fit on public features ``[N, ...]``, flattened.

        Raises ``ValueError`` if all samples are alike.
        """
        if self._frequencies.ndim == 2:  # it is fitted
            return self
        self._scaling.fit(public)
        num, rows = public.shape[0], np.arange(min(public.shape[0], _PAIRED))
        scaled = self._scaling.transform(public.select(rows)).reshape(len(rows), -1)
        width = scaled.shape[1]
        if width > min(_WIDEST, num // 2) or (scaled == 0).mean() >= _SPARSE:
            self._frequencies = self._straight = np.empty((width, 0), dtype=np.float32)
            return self
        # its stream is the same in all versions of numpy
        random = np.random.RandomState(self.seed)
        some = np.sort(random.permutation(num)[:_PAIRED])
        drawn = self._scaling.transform(public.select(some)).reshape(len(some), -1)
        number = self.num_features or max(1, min(_MOST_WAVES, num // 2))
        frequencies = random.standard_normal((width, number)) / _bandwidth(drawn)
        given = np.asarray(public.select(some)).reshape(drawn.shape)
        spread = drawn.std(axis=0, dtype=np.float64)
        bends = np.array([len(np.unique(column)) > 2 for column in given.T])
        bent = np.flatnonzero(bends & (spread > _NARROWEST))
        alone = np.tile(bent, number // (_ALONE * max(1, len(bent))))
        frequencies[:, : len(alone)] = 0
        frequencies[alone, np.arange(len(alone))] = (
            random.uniform(*_TURNS, len(alone)) / spread[alone]
        )
        self._frequencies = frequencies.astype(np.float32)
        self._phases = random.uniform(0, 2 * np.pi, number)
        scaled = self._scaling.transform(public).reshape(-1, width)
        columns = Directions.of(scaled.astype(np.float64))
        waves = np.empty((num, number), dtype=np.float32)
        self._write_waves(scaled, waves)
        along = columns.left.T @ waves
        self._straight = (columns.right / columns.spread @ along).astype(np.float32)
        return self

    @property
    def widths(self) -> tuple[int, ...]:
        """The numbers of columns, of waves along one and of others; empty without waves."""
        width, number = self._frequencies.shape
        alone = int((np.count_nonzero(self._frequencies, axis=0) == 1).sum())
        return tuple(filter(None, (width, alone, number - alone))) if number else ()

    def transform(self, features: Features) -> Float32Array:
        """Map features ``[N, ...]`` to features ``[N, F]``, each row by itself."""
        width, number = self._frequencies.shape
        scaled = self._scaling.transform(features)
        scaled = scaled.reshape(len(scaled), width)
        if not number:
            return scaled
        mapped = np.empty((len(scaled), width + number), dtype=np.float32)
        mapped[:, :width] = scaled
        self._write_waves(scaled, mapped[:, width:])
        return mapped

    def _write_waves(self, scaled: Float32Array, mapped: Float32Array) -> None:
        """Write the waves of ``scaled`` ``[N, F]`` to ``mapped`` ``[N, num_features]``.

        A row is the same to the last bit whatever rows stand beside it: a record that comes or goes
        must not move others. Products of rows and frequencies are sums of whole numbers, and rows
        begin with a vector of the processor.
        """
        width, number = self._frequencies.shape
        bits, spare = product_bits(width), -number % _VECTOR
        frequencies, grid = _on_grid(np.pad(self._frequencies, ((0, 0), (0, spare))), bits)
        phases = np.pad(self._phases, (0, spare)) / (2 * np.pi)
        straight, straight_grid = _on_grid(self._straight, bits)
        unit = _LONGEST / (1 << bits)
        for start in range(0, len(scaled), _WAVED):
            rows = slice(start, start + _WAVED)
            steps = np.rint(scaled[rows] / unit)
            lost = ~np.isfinite(steps).all(axis=1)  # a record may hold NaN
            steps[lost] = 0
            turns = steps @ frequencies
            turns *= grid * unit / (2 * np.pi)
            turns += phases
            turns -= np.rint(turns)  # half a turn at most, which float32 holds
            turns *= 2 * np.pi
            waves = np.cos(turns.astype(np.float32))[:, :number]
            waves *= np.sqrt(2 / number)
            if straight.size:
                waves -= (steps @ straight) * (straight_grid * unit)
            waves[lost] = np.nan
            mapped[rows] = waves

    def state(self, shape: Sequence[int]) -> dict[str, NDArray[Any]]:
        """Return what was fitted on records of ``shape``, by the names in a student's file."""
        scaling = {f"{_SCALING}{name}": part for name, part in self._scaling.state(shape).items()}
        return scaling | {
            "frequencies": self._frequencies.reshape(prod(shape), len(self._phases)),
            "phases": self._phases,
            "straight": self._straight,
        }

    @classmethod
    def restored(cls, state: Mapping[str, NDArray[Any]]) -> Self:
        """Return the fitted map that `state` described."""
        made = cls()
        made._scaling = PublicScaling.restored(
            {name.removeprefix(_SCALING): part for name, part in state.items()}
        )
        made._frequencies, made._phases = state["frequencies"], state["phases"]
        made._straight = state["straight"]
        return made


def _on_grid(matrix: NDArray[Any], bits: int) -> tuple[FloatArray, float]:
    """Return a matrix as whole numbers of up to ``bits`` bits, and what one of them is."""
    grid = power_above(float(np.abs(matrix).max(initial=0)) or 1.0) / (1 << bits)
    return np.rint(matrix.astype(np.float64) / grid), grid


def _bandwidth(rows: Float32Array) -> float:
    """Return the median distance between the halves of rows ``[N, F]``, of those that differ."""
    half = len(rows) // 2
    distances = cdist(rows[:half], rows[half : 2 * half])
    apart = distances[distances > 0]
    return max(float(np.median(apart)), _NARROWEST) if apart.size else 1.0


class ChainedFeatures(FeatureMap):
    """Public maps, each applied to the features of the one before.

    For example, `FrozenBackbone` describes pictures, and `PublicScaling` brings its features to the
    scale that linear answers need.

    >>> table = ArrayFeatures(np.array([[1.0, 300.0], [2.0, 100.0], [3.0, 250.0], [5.0, 200.0]]))
    >>> features = ChainedFeatures([PublicPCA(num_components=1), PublicScaling()]).fit(table)
    >>> features.transform(table).shape
    (4, 1)

    Args:
        maps: the maps, at least one.

    Raises:
        ValueError: without maps.
    """

    def __init__(self, maps: list[FeatureMap]) -> None:
        require(maps, "at least one map", maps=maps)
        self.maps = maps
        self.shapes: list[tuple[int, ...]] = []

    def fit(self, public: Features) -> ChainedFeatures:
        """Fit each map on public features ``[N, ...]`` as the maps before return them."""
        for part in self.maps[len(self.shapes) :]:
            self.shapes.append(tuple(public.shape[1:]))
            public = as_features(part.fit(public).transform(public))
        return self

    @property
    def widths(self) -> tuple[int, ...]:
        """Those of the last map."""
        return self.maps[-1].widths

    def transform(self, features: Features) -> Features | Float32Array:
        """Map features ``[N, ...]`` by all maps."""
        for part in self.maps:
            features = as_features(part.transform(features))
        return features


MAP_MODULES = "pate.data.features._modules"
"""The torch modules that map as feature maps do, as files of students call their place."""

MapSettings: TypeAlias = Json | str | list[Json]
"""Class path and arguments of a module, or only its path; or these for each part of a chain."""

MapInNumpy: TypeAlias = PublicScaling | PublicPCA | AutoFeatures | PatchFeatures
_IN_NUMPY: dict[str, type[MapInNumpy]] = {
    f"{MAP_MODULES}.Scaling": PublicScaling,
    f"{MAP_MODULES}.Projection": PublicPCA,
    f"{MAP_MODULES}.ScaledAndWaves": AutoFeatures,
    f"{MAP_MODULES}.Patches": PatchFeatures,
}
"""The maps that need no torch, by the modules that map as they do."""
_SIZES = {
    "num_components": "weights",
    "num_features": "phases",
    "num_places": "index",
    "num_regions": "regions",
    "num_pixels": "filters",
    "num_centers": "offsets",
}
"""The arguments of modules, and the arrays whose last sizes they are."""


class SavedMap(NamedTuple):
    """A fitted feature map as data.

    Attributes:
        settings: class path and arguments of the torch module that maps as the map does.
        state: its arrays, or tensors of a network, by their names in that module.
    """

    settings: MapSettings
    state: Mapping[str, Any]


def save_map(features: FeatureMap, shape: tuple[int, ...]) -> SavedMap:
    """Return a fitted map as data.

    Args:
        features: the map.
        shape: shape of a raw record.

    Raises:
        ValueError: in one line, if nothing says how a map of this class is a module.
    """
    if isinstance(features, ChainedFeatures):
        parts = [
            save_map(part, inner)
            for part, inner in zip(features.maps, features.shapes, strict=True)
        ]
        return SavedMap(
            [
                {"map": part.settings, "shape": list(inner)}
                for part, inner in zip(parts, features.shapes, strict=True)
            ],
            {
                f"{place}.{name}": values
                for place, part in enumerate(parts)
                for name, values in part.state.items()
            },
        )
    path = next((path for path, kind in _IN_NUMPY.items() if type(features) is kind), None)
    if path is None:
        made = find("as_module")(features, shape)
        return SavedMap(made.settings, made.module.state_dict())
    assert isinstance(features, MapInNumpy)
    state = features.state(shape)
    sizes = {name: state[array].shape[-1] for name, array in _SIZES.items() if array in state}
    return SavedMap({"class_path": path, "init_args": sizes} if sizes else path, state)


def needs_torch(settings: MapSettings | None) -> bool:
    """Return whether the map of `SavedMap.settings`, None for none, maps by torch."""
    if isinstance(settings, list):
        return any(needs_torch(part["map"]) for part in settings)
    return settings is not None and _path(settings) not in _IN_NUMPY


def restore_map(
    settings: MapSettings, state: Mapping[str, NDArray[Any]], shape: tuple[int, ...]
) -> MapInNumpy | ChainedFeatures:
    """Return the map that `save_map` described and that needs no torch.

    Args:
        settings: as in `SavedMap`.
        state: its arrays.
        shape: shape of a raw record.

    Raises:
        ValueError: in one line, if the arrays are not those of such a map.
    """
    if isinstance(settings, list):
        shapes = [tuple(part["shape"]) for part in settings]
        of_part = [
            {
                name.removeprefix(f"{place}."): values
                for name, values in state.items()
                if name.startswith(f"{place}.")
            }
            for place in range(len(settings))
        ]
        require(shapes[:1] == [shape], f"maps of samples of shape {shape}", shapes=shapes)
        known = sum(map(len, of_part))
        require(known == len(state), f"the arrays of {len(settings)} maps", arrays=[*state])
        chain = ChainedFeatures(
            [
                restore_map(part["map"], arrays, inner)
                for part, arrays, inner in zip(settings, of_part, shapes, strict=True)
            ]
        )
        chain.shapes = shapes
        return chain
    kind = _IN_NUMPY[_path(settings)]
    try:
        made = kind.restored(state)
        expected = {name: values.shape for name, values in made.state(shape).items()}
    except (KeyError, IndexError, ValueError) as error:
        expected = {"error": (str(error),)}
    found = {name: values.shape for name, values in state.items()}
    require(found == expected, f"the arrays of {kind.__name__}", arrays=found)
    return made


def _path(settings: Json | str) -> str:
    return str(settings.get("class_path")) if isinstance(settings, dict) else settings
