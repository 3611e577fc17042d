"""Sources around another source.

One is a class in a file of Python, wherever that file is. The other has no public samples of its
own: these are drawn from noisy moments of the private records, and paid for.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from copy import copy
from functools import cached_property
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from pate._files import read_arrays
from pate._own_code import SOURCES
from pate._validation import Float32Array, FloatArray, StrArray, as_float32, expecting, require
from pate.data._records import ArrayFeatures, FeatureMap, Records, Role
from pate.data._source import DataSource, expand_path
from pate.data.features import AutoFeatures, PublicScaling


class PythonFile(DataSource):
    """A `DataSource` written in a Python file of your own, such as `pate init --kind python` makes.

    Args:
        path: the file.
        name: the class in it, or a function that returns a source, such as
            `pate.data.TorchDatasets`.
        settings: the arguments of either.
        features: a public map of the features; None for the source's own.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        settings: dict[str, Any] | None = None,
        *,
        features: FeatureMap | None = None,
    ) -> None:
        self.path = expand_path(path)
        self.name = name
        self._settings = settings or {}
        super().__init__(features=features or self.source.feature_map)

    @cached_property
    def source(self) -> DataSource:
        """The source that is made of the settings."""
        require(self.path.is_file(), "a file of Python", path=str(self.path))
        make: Any = getattr(_module(self.path), self.name, None)
        require(
            callable(make),
            f"a subclass of pate.data.DataSource in {self.path}, or a function",
            name=self.name,
        )
        with expecting(f"settings of {self.name} in {self.path}", TypeError):
            signature(make).bind(**self._settings)
        source = make(**self._settings)
        require(
            isinstance(source, DataSource),
            f"a pate.data.DataSource from {self.name} in {self.path}",
            type=type(source).__name__,
        )
        return source

    @property
    def label_names(self) -> tuple[str, ...]:
        return self.source.label_names

    @property
    def ledger_path(self) -> Path | None:
        return self.source.ledger_path

    @property
    def permanent_ids(self) -> bool:
        return self.source.permanent_ids

    @property
    def unknown_labels(self) -> bool:
        return self.source.unknown_labels

    @property
    def budgets(self) -> tuple[float, ...]:
        return self.source.budgets

    def load(self, role: Role) -> Records:
        return self.source.load(role)

    def without(self, ids: Sequence[str]) -> Self:
        rest = super().without(ids)
        rest.__dict__["source"] = self.source.without(ids)
        return rest

    def fingerprint(self, role: Role) -> str:
        return self.source.fingerprint(role)


def _module(path: Path) -> Any:
    spec = spec_from_file_location(f"{SOURCES}{path.stem}", path)
    assert spec is not None and spec.loader is not None, "a file of Python has a loader"
    module = module_from_spec(spec)
    # dataclasses look up their module while they are made; afterwards it is removed, so that
    # objects are pickled by value: workers could not import it
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module


Bound = float | list[float]

# of a row, in place of the length that it adds to every row: only directions are left
_SHORT = 1e-3
_LEAST_SAMPLES = 1200  # two for each random feature
_LONGEST = 0.97  # of a drawn row of norm 1 at most, so that it has a finite length


class DrawnPublic(DataSource):
    """The private and test records of another source, with public samples that are drawn.

    Whoever has no public samples names the file that they shall have. `pate run`, or
    `Pipeline.draw_public_samples`, draws them once from noisy moments of the private records
    (`pate.mechanisms.NoisyMoments`), enters this release in the ledger, and writes the file, which
    is public. A target epsilon covers the samples and the labels together.

    The drawn samples have about the mean of the records and their widest directions. No record
    resembles them more than others do. `AutoFeatures` reads narrow rows by random features, too.

    A row ``x`` of the source becomes ``sqrt(2) x / sqrt(m^2 + |x|^2)``, by `PublicScaling` with
    constants that follow from the bounds: columns in units of their range, from the value nearest
    to 0, and ``m`` a quarter of the length of a row of uniform numbers. Without bounds only the
    direction of a row counts, and columns need one unit.

    Args:
        source: the source of private and test records, each a row of numbers. It needs no public
            records, and those that it has are not read.
        samples: the ``.npz`` of the drawn samples.
        bounds: the range of each column, ``[low, high]``, each a number or one for every column,
            known without a look at the records. Values beyond are clipped. None for columns of one
            unit, of which only the direction of a row counts.

    Raises:
        ValueError: if the source has a feature map of its own, or personal budgets.
    """

    def __init__(
        self, source: DataSource, *, samples: Path, bounds: list[Bound] | None = None
    ) -> None:
        super().__init__(permanent_ids=source.permanent_ids, unknown_labels=source.unknown_labels)
        require(
            source.feature_map is None,
            "a source without `features` in DrawnPublic, which scales its rows",
            features=type(source.feature_map).__name__,
        )
        require(not source.budgets, "a source without `budgets`, which moments do not weigh")
        self._source, self.samples, self._bounds = source, expand_path(samples), bounds
        self._rehearses = False

    @property
    def label_names(self) -> tuple[str, ...]:
        return self._source.label_names

    @property
    def ledger_path(self) -> Path | None:
        """The ledger of the source."""
        return self._source.ledger_path

    @cached_property
    def feature_map(self) -> FeatureMap:
        """The map of rows: `AutoFeatures` of drawn samples, after `scaling`."""
        return AutoFeatures.after(self.scaling)

    def load(self, role: Role) -> Records:
        if role is not Role.PUBLIC:
            return self._source.load(role)
        if self._rehearses:
            shape = (self.num_samples, self._num_columns)
            rows = np.random.default_rng(0).standard_normal(shape) / math.sqrt(self._num_columns)
            features, ids = self.unscaled(rows), drawn_ids(self.num_samples)
        else:
            require(
                self.samples.is_file(),
                "public samples, which `pate run` or Pipeline.draw_public_samples draws",
                missing=str(self.samples),
            )
            arrays = read_arrays(self.samples, ("X", "ids"))
            features, ids = arrays["X"], arrays["ids"]
        unlabeled = np.zeros((len(features), self.num_labels), dtype=np.uint8)
        return Records(features=ArrayFeatures(features), labels=unlabeled, ids=ids)

    @property
    def num_samples(self) -> int:
        """The number of samples that are drawn: two for each column, and 1,200 at least."""
        return max(_LEAST_SAMPLES, 2 * self._num_columns)

    def rehearsal(self) -> DrawnPublic:
        """Return the same source with other public samples, from a fixed seed.

        Whatever depends only on their number and shape can be checked by them before they are paid
        for.
        """
        made = copy(self)
        made._records, made._rehearses = {}, True
        made.__dict__.pop("feature_map", None)  # fitted to these samples
        return made

    @cached_property
    def scaling(self) -> PublicScaling:
        """The map of a row, twice the squared norm of which is below 1 when it is halved."""
        size = self._num_columns
        centre, unit, length = np.zeros(size), np.ones(size), _SHORT
        if self._bounds is not None:
            low, high = column_bounds(self._bounds, size)
            centre = np.zeros(size).clip(low, high)
            unit, length = np.maximum(high - centre, centre - low), float(np.sqrt(size / 3)) / 4
        state = {
            "centre": as_float32(centre),
            "bounds": np.full(size, np.inf) if self._bounds is None else unit,
            "units": unit,
            "length": np.array(length),
        }
        return PublicScaling.restored(state)

    @cached_property
    def _num_columns(self) -> int:
        shape = tuple(self._source.load(Role.PRIVATE).features.shape[1:])
        require(
            len(shape) == 1,
            "records that are rows of numbers, of which public samples are drawn",
            shape=list(shape),
        )
        return shape[0]

    def unscaled(self, rows: FloatArray) -> Float32Array:
        """Return the features ``[P, F]`` that `scaling` maps to ``sqrt(2)`` times ``rows``.

        Longer rows are shortened to a norm of 0.97.
        """
        state = self.scaling.state(rows.shape[1:])
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        inner = rows * np.minimum(1, _LONGEST / np.maximum(norms, _LONGEST))
        squares = (inner**2).sum(axis=1, keepdims=True)
        lengths = float(state["length"]) / np.sqrt(1 - squares)
        return as_float32(inner * lengths * state["units"] + state["centre"])


def drawn_ids(number: int) -> StrArray:
    """Return the ids of samples that are drawn."""
    return np.char.mod("drawn%06d", np.arange(number))


def column_bounds(bounds: Sequence[ArrayLike], size: int) -> tuple[FloatArray, FloatArray]:
    """Return the least and the largest values ``[size]`` of columns.

    Raises ``ValueError`` unless they are finite and ``low < high``.
    """
    wanted = f"bounds (low, high), finite and low < high, each a number or {size} of them"
    try:
        low, high = (np.broadcast_to(np.asarray(bound, dtype=np.float64), size) for bound in bounds)
        ordered = bool(np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all())
    except (TypeError, ValueError):
        ordered = False
    require(ordered, wanted, bounds=bounds)
    return low, high
