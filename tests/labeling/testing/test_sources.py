"""The contract of sources finds what is wrong with a source."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pate.data import ArrayFeatures, Arrays, DataSource, Records, Role
from pate.testing import SourceContract
from tests.labeling.data.test_arrays import ArraysContract


class NumbersRows(Arrays):
    """Names records by where they stand."""

    def load(self, role: Role) -> Records:
        records = super().load(role)
        return replace(records, ids=np.char.mod(f"{role.value}%d", np.arange(len(records))))


class NumbersTheTable(Arrays):
    """Names records by numbers from 0 on."""

    def load(self, role: Role) -> Records:
        first = sum(
            len(super(NumbersTheTable, self).load(before)) for before in Role if before < role
        )
        records = super().load(role)
        return replace(records, ids=np.char.mod("%d", first + np.arange(len(records))))


class Centers(Arrays):
    """Centers all features at the mean of the private ones."""

    def load(self, role: Role) -> Records:
        mean = np.asarray(super().load(Role.PRIVATE).features).mean(axis=0)
        records = super().load(role)
        return replace(records, features=ArrayFeatures(np.asarray(records.features) - mean))


class Forgets(Arrays):
    """Has a fingerprint of the ids alone."""

    def fingerprint(self, role: Role) -> str:
        return ",".join(self.load(role).ids.tolist())


class Mixes(Arrays):
    """Has one record in two roles."""

    def load(self, role: Role) -> Records:
        records = super().load(role)
        return replace(records, ids=np.append(records.ids[:-1], "one"))


CHECKS: list[tuple[type[Arrays], Callable[[SourceContract, Path, Path], None]]] = [
    (NumbersRows, lambda contract, a, b: contract.test_removing_a_record_changes_no_other(a, b, 0)),
    (NumbersTheTable, lambda contract, a, _: contract.test_ids_are_no_row_numbers(a)),
    (Centers, lambda contract, a, b: contract.test_private_features_reach_no_public_record(a, b)),
    (Centers, lambda contract, a, b: contract.test_removing_a_record_changes_no_other(a, b, 0)),
    (
        Forgets,
        lambda contract, a, b: contract.test_a_fingerprint_changes_when_a_record_does(
            a, b, Role.TEST
        ),
    ),
    (Mixes, lambda contract, a, _: contract.test_roles_are_disjoint(a)),
]


@pytest.mark.parametrize(("kind", "check"), CHECKS)
def test_faults_are_found(
    kind: type[Arrays], check: Callable[[SourceContract, Path, Path], None], tmp_path: Path
) -> None:
    class Contract(ArraysContract):
        kind: type[Arrays] = Arrays

        def open(self, folder: Path) -> DataSource:
            return self.kind(folder / "data.npz")

        def place(self, folder: Path, role: Role, row: int) -> int:
            return ArraysContract().place(folder, role, row)

    for each in (Arrays, kind):
        folder = tmp_path / each.__name__
        folder.mkdir()
        contract = Contract()
        contract.write(folder)
        contract.kind = each
        copy = shutil.copytree(folder, tmp_path / f"{each.__name__} copy")
        if each is Arrays:
            check(contract, folder, copy)
        else:
            with pytest.raises(AssertionError):
                check(contract, folder, copy)
