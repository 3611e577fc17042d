"""The records of this recipe: private ones to learn from, public ones to label, test ones.

Change it to read data of your own. As it is, it reads a CSV file with the columns ``id``, ``role``
(private, public or test), features that begin with ``x_`` and labels 0 or 1 that begin with ``y_``.
"""

import csv
from functools import cached_property
from pathlib import Path

import numpy as np

from pate.data import ArrayFeatures, DataSource, Records, Role


class MyRecords(DataSource):
    """Reads the file at ``path``; further arguments would be further `settings` in data.yaml."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = Path(__file__).parent / path

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        """All rows of the file."""
        with self.path.open(newline="") as file:
            return list(csv.DictReader(file))

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the labels, in the order of their columns."""
        return tuple(name for name in self.rows[0] if name.startswith("y_"))

    @property
    def ledger_path(self) -> Path:
        """The ledger of these data, which counts the releases of all runs on them."""
        return self.path.with_suffix(".ledger.sqlite")

    def load(self, role: Role) -> Records:
        """Return the records of a role.

        Public and test records must not depend on private ones in any way.
        """
        rows = [row for row in self.rows if row["role"] == role.value]
        inputs = [name for name in self.rows[0] if name.startswith("x_")]
        return Records(
            features=ArrayFeatures(
                np.array([[row[name] for name in inputs] for row in rows], dtype=np.float32)
            ),
            labels=np.array(
                [[row[name] for name in self.label_names] for row in rows], dtype=np.uint8
            ),
            # a name that stays when other records come and go: no row number
            ids=np.array([row["id"] for row in rows]),
        )
