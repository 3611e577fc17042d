"""Data sets of others have the same oddities as tables: extreme values, unknown labels, row numbers."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from pate._networks.datasets import Keys, TorchDatasets
from pate.data import (
    ArrayFeatures,
    AutoFeatures,
    ChainedFeatures,
    DataSource,
    FrozenBackbone,
    PublicScaling,
    Role,
    SentenceFeatures,
)
from tests.labeling.data import (
    test_row_numbers as row_numbers,
    test_unknown_labels as unknown_labels,
)
from tests.labeling.data.test_row_numbers import NUMBERED, SPLIT, Open
from tests.labeling.data.test_sentences import TEXTS as SENTENCES, model, stand_in as stand_in
from tests.networks.data.test_backbone import Backbone, pictures


def of_known(folder: Path, labels: np.ndarray, unknown: Any) -> DataSource:
    """Items whose unknown labels are None."""
    rows = [[None if np.isnan(value) else value for value in row] for row in labels]
    private, public, test = (
        cast(Any, [(np.ones(3), rows[i], f"item {i}") for i in range(role, 6, 3)])
        for role in range(3)
    )
    keys = Keys(unknown_labels=unknown)
    return TorchDatasets(private, public, test, ["gout", "asthma"], keys=keys)


@pytest.mark.parametrize("unknown", ["nan", -1])
def test_unknown_labels_are_read(unknown: Any, tmp_path: Path) -> None:
    unknown_labels.test_unknown_labels_are_read(of_known, unknown, tmp_path)


class Items:
    """A data set whose items are tuples."""

    def __init__(self, ids: list[str]) -> None:
        self.ids = ids

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, row: int) -> tuple[object, ...]:
        return np.ones(2, dtype=np.float32), np.array([row % 2]), self.ids[row]


def in_torch(folder: Path, ids: list[str], **options: Any) -> DataSource:
    private, public, test = (
        Items([name for name, split in zip(ids, SPLIT, strict=True) if split == number])
        for number in range(3)
    )
    parts: dict[str, Any] = {"private": private, "public": public, "test": test}
    return TorchDatasets(**parts, label_names=["y"], keys=Keys(**options))


class Columns(Items):
    """A data set with columns, as those of Hugging Face."""

    column_names = ("x", "y", "id")

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return [self[row][key] for row in range(len(self))]
        return {"x": np.ones(2, dtype=np.float32), "y": key % 2, "id": self.ids[key]}


def in_columns(folder: Path, ids: list[str], **options: Any) -> DataSource:
    parts = [
        [name for name, split in zip(ids, SPLIT, strict=True) if split == number]
        for number in range(3)
    ]
    private, public, test = (cast(Any, Columns(part)) for part in parts)
    keys = Keys(features="x", labels=["y"], ids="id", **options)
    return TorchDatasets(private, public, test, ["y"], keys=keys)


@pytest.mark.parametrize("source", [in_torch, in_columns])
@pytest.mark.parametrize("ids", NUMBERED.values(), ids=NUMBERED)
def test_row_numbers_are_refused_unless_they_are_permanent(
    source: Open, ids: list[str], tmp_path: Path
) -> None:
    row_numbers.test_row_numbers_are_refused_unless_they_are_permanent(source, ids, tmp_path)


@pytest.mark.usefixtures("stand_in")
def test_a_data_set_of_sentences(tmp_path: Path) -> None:
    parts: list[Any] = [[(text, [1], f"{role}{text}") for text in SENTENCES] for role in Role]
    keys = Keys(sentences=SentenceFeatures(folder=model(tmp_path / "model")))
    source = TorchDatasets(parts[0], parts[1], parts[2], ["angry"], keys=keys)
    assert source.records(Role.TEST).features.shape == (4, 8)


PICTURES = ArrayFeatures(pictures())


def chain(folder: Path) -> ChainedFeatures:
    maps = [FrozenBackbone(Backbone, folder, batch_size=8), PublicScaling(), AutoFeatures()]
    return ChainedFeatures(maps).fit(PICTURES)


def test_each_map_sees_the_features_of_the_one_before(tmp_path: Path) -> None:
    made = chain(tmp_path)
    first = FrozenBackbone(Backbone, tmp_path, batch_size=8).fit(PICTURES).transform(PICTURES)
    second = PublicScaling().fit(ArrayFeatures(first)).transform(ArrayFeatures(first))
    third = AutoFeatures().fit(ArrayFeatures(second))
    assert (np.asarray(made.transform(PICTURES)) == third.transform(ArrayFeatures(second))).all()
    assert made.widths == third.widths == (4, 25)
    assert made.fit(PICTURES) is made and len(made.shapes) == 3
