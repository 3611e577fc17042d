"""The contract of a source: fingerprints that stay, lazy features, old names."""

import numpy as np
import pytest

from pate._labeling.data import records
from pate.data import UNKNOWN, ArrayFeatures, DataSource, Features, PublicPCA, Records, Role


class Given(DataSource):
    """Features that a test gives, with no place on disk."""

    label_names = ("a",)

    def __init__(self, features: Features, mapping: PublicPCA | None = None) -> None:
        super().__init__(features=mapping)
        self.given = features

    def load(self, role: Role) -> Records:
        num = self.given.shape[0]
        ids = np.char.mod(f"{role.value}%d", np.arange(num))
        return Records(features=self.given, labels=np.ones((num, 1), dtype=np.uint8), ids=ids)


@pytest.mark.parametrize("label", [0.9, 2, 254, np.nan])
def test_records_of_other_labels_than_known_ones(label: float) -> None:
    """A source of one's own may make them. Shares became 0, or unknown, without a word."""
    two, labels = ArrayFeatures(np.eye(2, dtype=np.float32)), np.array([[0, 1], [1, label]])
    with pytest.raises(ValueError, match=r"^Expected labels 0, 1 or UNKNOWN=255, got values=\["):
        Records(features=two, labels=labels, ids=np.array(["a", "b"]))
    labels[1, 1] = UNKNOWN
    kept = Records(features=two, labels=labels, ids=np.array(["a", "b"]))
    assert kept.labels.tolist() == [[0, 1], [1, UNKNOWN]]


@pytest.mark.parametrize(
    ("private", "public", "copied"),
    [
        (np.eye(9), np.eye(9), 9),
        (np.eye(9), -np.eye(9), 0),
        (np.zeros((9, 2)), np.zeros((4, 2)), 0),  # all alike
        (np.arange(40), np.r_[0:10, 90:120], 10),
        (np.arange(40), np.r_[0:3, 90:120], 0),  # few
        (np.arange(9), np.r_[0, 90:94], 0),  # of so few, one is chance
    ],
)
def test_copies_are_more_than_chance_explains(
    private: np.ndarray, public: np.ndarray, copied: int
) -> None:
    rows = [ArrayFeatures(part.reshape(len(part), -1)) for part in (private, public)]
    for features in (rows, [part.select(np.arange(part.shape[0])) for part in rows]):
        assert records.copied_rows(*features).tolist() == [*range(copied)]
