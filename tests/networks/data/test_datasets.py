"""Data sets of torch and Hugging Face, and sources in files of Python."""

from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from pate._labeling.runs.run import Run
from pate._networks.teachers.stage import fit_teachers
from pate.data import DataSource, Keys, Role, TorchDatasets
from pate.models import Linear
from pate.teachers import Execution, TeacherPlan
from pate.testing import SourceContract
from tests.conftest import make_arrays
from tests.labeling.data.test_arrays import without

NAMES = ["a", "b", "c", "d"]
Arrays = dict[str, np.ndarray]


def of_role(arrays: Arrays | Path, role: Role) -> Arrays:
    """Return the records of a role among arrays, or in a file that is read now."""
    found = dict(np.load(arrays)) if isinstance(arrays, Path) else arrays
    rows = np.flatnonzero(found["split"] == [*Role].index(role))
    return {name: found[name][rows] for name in ("X", "Y", "ids", "group") if name in found}


class Tuples(Dataset[tuple[torch.Tensor, torch.Tensor, str]]):
    """Some records, as a data set of torch gives them."""

    def __init__(self, arrays: Arrays | Path, role: Role) -> None:
        self._all, self._role = arrays, role

    @cached_property
    def arrays(self) -> Arrays:
        return of_role(self._all, self._role)

    @cached_property
    def person(self) -> list[str]:
        return list(self.arrays["group"].tolist())

    def __len__(self) -> int:
        return len(self.arrays["X"])

    def __getitem__(self, item: int) -> tuple[torch.Tensor, torch.Tensor, str]:
        arrays = self.arrays
        return (
            torch.from_numpy(arrays["X"][item]),
            torch.from_numpy(arrays["Y"][item]),
            str(arrays["ids"][item]),
        )


class Columns:
    """Some records, as a data set of Hugging Face gives them: columns, and rows that are
    mappings."""

    column_names = ("inputs", "name", "person", *NAMES)

    def __init__(self, arrays: Arrays | Path, role: Role) -> None:
        self._all, self._role = arrays, role

    @cached_property
    def _columns(self) -> dict[str, list[Any]]:
        arrays = of_role(self._all, self._role)
        values = [arrays["X"], arrays["ids"], arrays.get("group", arrays["ids"]), *arrays["Y"].T]
        return dict(zip(self.column_names, (each.tolist() for each in values), strict=True))

    def __len__(self) -> int:
        return len(self._columns["name"])

    def __getitem__(self, key: int | str) -> Any:
        if isinstance(key, str):
            return self._columns[key]
        return {name: values[key] for name, values in self._columns.items()}


class DatasetsContract(SourceContract):
    """Sixty records in arrays, which stand for whatever a data set reads."""

    def write(self, folder: Path) -> None:
        arrays = make_arrays(60) | {"group": np.repeat([f"p{i}" for i in range(20)], 3)}
        np.savez(folder / "data.npz", **arrays)  # type: ignore[arg-type]

    def arrays(self, folder: Path) -> Arrays:
        return dict(np.load(folder / "data.npz"))

    def remove(self, folder: Path, row: int) -> None:
        np.savez(folder / "data.npz", **without(self.arrays(folder), row))  # type: ignore[arg-type]

    def alter(self, folder: Path, role: Role) -> None:
        arrays = self.arrays(folder)
        arrays["X"][np.flatnonzero(arrays["split"] == [*Role].index(role))[-1]] += 1
        np.savez(folder / "data.npz", **arrays)  # type: ignore[arg-type]


class TestTorchDatasets(DatasetsContract):
    """Tuples, and groups in an attribute."""

    def open(self, folder: Path) -> DataSource:
        private, public, test = (Tuples(folder / "data.npz", role) for role in Role)
        keys = Keys(groups="person")
        return TorchDatasets(
            private, public, test, NAMES, keys=keys, ledger=folder / "ledger.sqlite"
        )


def of_columns(arrays: Arrays | Path) -> TorchDatasets:
    private, public, test = (cast(Any, Columns(arrays, role)) for role in Role)
    keys = Keys(features="inputs", labels=NAMES, ids="name", groups="person")
    return TorchDatasets(private, public, test, NAMES, keys=keys)


class TestColumns(DatasetsContract):
    """Columns, one for each label."""

    def open(self, folder: Path) -> DataSource:
        return of_columns(folder / "data.npz")


@pytest.fixture
def arrays() -> Arrays:
    return make_arrays(60) | {"group": np.repeat([f"p{i}" for i in range(20)], 3)}


@pytest.fixture
def sets(arrays: Arrays) -> list[Tuples]:
    return [Tuples(arrays, role) for role in Role]


def test_adapters_read_the_same_records(arrays: Arrays, sets: list[Tuples]) -> None:
    private, public, test = sets
    torch_source = TorchDatasets(private, public, test, NAMES, keys=Keys(groups="person"))
    sources = [
        torch_source,
        of_columns(arrays),
    ]
    for role in Role:
        assert len({source.fingerprint(role) for source in sources}) == 1
    assert torch_source.load(Role.PRIVATE).groups is not None
    assert torch_source.ledger_path is None


def wrong(sets: list[Tuples], **changes: Any) -> TorchDatasets:
    private, public, test = sets
    return TorchDatasets(
        private, public, test, changes.pop("label_names", NAMES), keys=Keys(**changes)
    )


@pytest.mark.parametrize(("one", "other"), list(combinations(Role, 2)))
def test_an_id_belongs_to_one_role(
    sets: list[Tuples], one: Role, other: Role, tmp_path: Path
) -> None:
    """Whatever the source, and before anything is trained."""
    plan = TeacherPlan(num_teachers=2, network=Linear, num_steps=1, batch_size=1)
    wrong(sets).require_distinct()
    first, second = (sets[list(Role).index(role)].arrays["ids"] for role in (one, other))
    second[-1] = first[0]
    with pytest.raises(
        ValueError, match=rf"{other} samples that are no {one} records, got shared_ids=.*{first[0]}"
    ):
        fit_teachers(Run(tmp_path / "run"), wrong(sets), plan, Execution())
    assert not (tmp_path / "run").exists()
