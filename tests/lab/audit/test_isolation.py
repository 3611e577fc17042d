"""Records of which one is altered."""

from pathlib import Path

from pate.data import Role
from pate.lab.audit.isolation import Altered
from tests.labeling.data.test_budgets import BUDGETS, arrays


def test_neighbors_keep_their_budgets(tmp_path: Path) -> None:
    source = arrays(tmp_path, BUDGETS, [0.5, 1, 2])
    for change, expected in (("altered", [0.5, 2, 1]), ("removed", [0.5, 1])):
        budgets = Altered(source, change=change, row=1).records(Role.PRIVATE).budgets  # type: ignore[arg-type]
        assert budgets is not None and budgets.tolist() == expected
