"""The contract of sources of records, to be inherited by the test class of each."""

from __future__ import annotations

import shutil
from abc import abstractmethod
from pathlib import Path

import numpy as np
import pytest

from pate._core.testing.laws import Contract
from pate._core.validation import UNKNOWN, Float32Array, IntArray
from pate._labeling.data.records import Features, Records, Role
from pate._labeling.data.source import DataSource


class SourceContract(Contract):
    """Tests of a `DataSource` on a few records, for a subclass whose name begins with ``Test``.

    The source is written once into a folder of its own; changes are made to copies of that folder.
    """

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write the files of a small source, two records per role or more, into an empty folder."""

    @abstractmethod
    def open(self, folder: Path) -> DataSource:
        """Return the source in a folder."""

    @abstractmethod
    def remove(self, folder: Path, row: int) -> None:
        """Remove private record number ``row``, in the order of ``load``, from the folder."""

    @abstractmethod
    def alter(self, folder: Path, role: Role) -> None:
        """Change the features of the last record of a role, and nothing else, in the folder."""

    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """The source as it was written; not to be changed."""
        folder = tmp_path_factory.mktemp("source") / "source"
        folder.mkdir()
        cls().write(folder)
        return folder

    @pytest.fixture
    def copy(self, folder: Path, tmp_path: Path) -> Path:
        """A copy of the source that a test may change."""
        return shutil.copytree(folder, tmp_path / "source")

    def test_records_have_the_shapes_and_types_of_the_contract(self, folder: Path) -> None:
        """Features are float32, labels uint8 in {0, 1} or unknown, and all roles are alike."""
        source = self.open(folder)
        for role in Role:
            records = source.load(role)
            assert len(records) >= 2
            assert records.labels.shape == (len(records), len(source.label_names))
            values = {0, 1, UNKNOWN} if source.unknown_labels else {0, 1}
            assert records.labels.dtype == np.uint8 and set(np.unique(records.labels)) <= values
            assert records.ids.dtype.kind == "U" and (
                records.groups is None or records.groups.dtype.kind == "U"
            )
            assert source.records(role).features.shape == (len(records), *source.input_shape)

    def test_roles_are_disjoint(self, folder: Path) -> None:
        """No record has two roles, and none has another's id."""
        ids = [self.open(folder).load(role).ids for role in Role]
        assert len(np.unique(np.concatenate(ids))) == sum(map(len, ids))

    def test_ids_are_no_row_numbers(self, folder: Path) -> None:
        """Private ids do not count the rows, unless the source says that they are permanent."""
        try:
            self.open(folder).require_distinct()
        except ValueError as error:
            raise AssertionError(str(error)) from None

    def test_labels_are_named_once(self, folder: Path) -> None:
        """Names of labels are unique, and known before records are read."""
        names = self.open(folder).label_names
        assert names and len(set(names)) == len(names)

    def test_lazy_reads_agree_with_full_reads(self, folder: Path) -> None:
        """Features by any index are rows of all features, and reading changes nothing."""
        for role in Role:
            features = self.open(folder).load(role).features
            num = features.shape[0]
            index = np.random.default_rng(0).integers(num, size=(3, 2))
            few = features[index]  # before anything else was read
            all_features = _read(features)
            assert few.dtype == all_features.dtype == np.float32
            assert all_features.shape == features.shape and np.isfinite(all_features).all()
            assert np.array_equal(few, all_features[index])
            few[...] = -1  # the result belongs to the reader
            assert np.array_equal(_read(features), all_features)
            rows = np.arange(num)[::-2].copy()
            assert np.array_equal(_read(features.select(rows)), all_features[rows])
            assert features.select(rows).shape == (len(rows), *features.shape[1:])

    def test_a_fingerprint_is_of_the_records(self, folder: Path) -> None:
        """Two readings of the same records have one fingerprint, and no two roles do."""
        fingerprints = _fingerprints(self.open(folder))
        assert _fingerprints(self.open(folder)) == fingerprints and len(
            set(fingerprints.values())
        ) == len(Role)

    @pytest.mark.parametrize("role", list(Role))
    def test_a_fingerprint_changes_when_a_record_does(
        self, folder: Path, copy: Path, role: Role
    ) -> None:
        """Other features of one record change the fingerprint of its role and of no other."""
        self.alter(copy, role)
        before, after = _fingerprints(self.open(folder)), _fingerprints(self.open(copy))
        assert [other for other in Role if before[other] != after[other]] == [role]

    @pytest.mark.parametrize("row", [0, -1])
    def test_removing_a_record_changes_no_other(self, folder: Path, copy: Path, row: int) -> None:
        """Ids belong to their records, and ids of other roles reveal nothing on private ones.

        Neither in their content nor in their order, nor in how wide their ids are, nor through a
        feature map.
        """
        before, after = self.open(folder), self.open(copy)
        records = before.load(Role.PRIVATE)
        mapped = before.records(Role.PRIVATE)
        self.remove(copy, row % len(records))
        rest = np.delete(np.arange(len(records)), row)
        require_same(after.load(Role.PRIVATE), records, rest)
        require_same(after.records(Role.PRIVATE), mapped, rest)
        for role in (Role.PUBLIC, Role.TEST):
            require_same(after.load(role), before.load(role))
            assert after.fingerprint(role) == before.fingerprint(role)
        assert after.fingerprint(Role.PRIVATE) != before.fingerprint(Role.PRIVATE)

    def test_private_features_reach_no_public_record(self, folder: Path, copy: Path) -> None:
        """Changing a private record leaves public and test records unchanged."""
        self.alter(copy, Role.PRIVATE)
        before, after = self.open(folder), self.open(copy)
        after.records(Role.PRIVATE)
        for role in (Role.PUBLIC, Role.TEST):
            require_same(after.records(role), before.records(role))


def require_same(actual: Records, expected: Records, rows: IntArray | None = None) -> None:
    """Assert that records equal ``rows`` of others; for all rows (None), also the types."""
    chosen = np.arange(len(expected)) if rows is None else rows
    assert actual.ids.tolist() == expected.ids[chosen].tolist()
    assert np.array_equal(actual.labels, expected.labels[chosen])
    assert (actual.groups is None) == (expected.groups is None)
    if actual.groups is not None and expected.groups is not None:
        assert actual.groups.tolist() == expected.groups[chosen].tolist()
        assert rows is not None or actual.groups.dtype == expected.groups.dtype
    assert rows is not None or actual.ids.dtype == expected.ids.dtype
    assert np.array_equal(_read(actual.features), _read(expected.features)[chosen])


def _fingerprints(source: DataSource) -> dict[Role, str]:
    return {role: source.fingerprint(role) for role in Role}


def _read(features: Features) -> Float32Array:
    return features[np.arange(features.shape[0])]
