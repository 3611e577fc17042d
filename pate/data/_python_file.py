"""A source of records that is a class in a file of Python, wherever that file is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cached_property
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from pathlib import Path
from typing import Any, Self

from pate._own_code import SOURCES
from pate._validation import expecting, require
from pate.data._records import FeatureMap, Records, Role
from pate.data._source import DataSource, expand_path


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
