from pathlib import Path

import numpy as np
import pytest

from pate.data import NumberTable, PublicScaling, Role
from pate.data._number_table import NumberColumns
from pate.testing import SourceContract

LINES = (
    "id,age,gout,split,group,asthma,pressure",
    "a1,54,1,private,ann,0,131.5",
    "a2,-0.5,0,private,bob,1,1e2",
    "b1,38,0,public,cem,-1,118",
    "c1,41,1,test,dan,1,0",
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(LINES))
    return path


class TestNumberTable(SourceContract):
    def write(self, folder: Path) -> None:
        lines = (f"t{i},{i / 3},{i**2},{[*Role][i % 3].value},{i % 2}" for i in range(12))
        (folder / "mine.csv").write_text("\n".join(("id,one,two,split,gout", *lines)))

    def open(self, folder: Path) -> NumberTable:
        return NumberTable(folder / "mine.csv", labels=["gout"], features=PublicScaling())

    def remove(self, folder: Path, row: int) -> None:
        self.change(folder, str(self.open(folder).load(Role.PRIVATE).ids[row]), "")

    def alter(self, folder: Path, role: Role) -> None:
        name = str(self.open(folder).load(role).ids[-1])
        self.change(folder, name, f"{name},-1,7,{role.value},{int(name[1:]) % 2}\n")

    def change(self, folder: Path, name: str, line: str) -> None:
        lines = (folder / "mine.csv").read_text().splitlines(keepends=True)
        (folder / "mine.csv").write_text(
            "".join(line if old.startswith(f"{name},") else old for old in lines)
        )


def test_columns_that_are_no_labels_are_features(table: Path) -> None:
    source = NumberTable(table, labels=["asthma", "gout"])
    private = source.load(Role.PRIVATE)
    assert source.label_names == ("asthma", "gout") and private.labels.tolist() == [[0, 1], [1, 0]]
    assert isinstance(private.features, NumberColumns) and private.features.names == (
        "age",
        "pressure",
    )
    assert private.features.values.tolist() == [[54, 131.5], [-0.5, 100]]
    assert private.groups is not None and private.groups.tolist() == ["ann", "bob"]
    assert source.load(Role.PUBLIC).labels.tolist() == [[0, 0]]
    chosen = (
        NumberTable(table, labels=["gout"], columns=["pressure", "age"]).load(Role.TEST).features
    )
    assert isinstance(chosen, NumberColumns) and chosen.names == ("pressure", "age")
    assert chosen.values.dtype == np.float32 and chosen.values.tolist() == [[0, 41]]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "131.5",
            "high",
            r"^Expected a finite number in column `pressure` of .*mine.csv, got line=2, value='high'$",
        ),
        (
            "118",
            "nan",
            r"^Expected a finite number in column `pressure` of .*, got line=4, value='nan'$",
        ),
        (
            "1e2",
            "1e39",
            r"^Expected a finite number in column `pressure` of .*, got line=3, value='1e39'$",
        ),
        ("38,0", ",0", r"^Expected a finite number in column `age` of .*, got line=4, value=''$"),
        ("id,age", "name,age", r"^Expected a column `id` in"),
        ("gout", "gaut", r"^Expected .*unknown=\['gout'\]$"),
        ("split", "spilt", r"^Expected a column `split` of .*, got column='spilt'$"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(table: Path, old: str, new: str, message: str) -> None:
    table.write_text(table.read_text().replace(old, new))
    with pytest.raises(ValueError, match=message):
        NumberTable(table, labels=["gout"], public_fraction=0.2).load(Role.PUBLIC)


def test_features_are_others_than_labels(table: Path) -> None:
    with pytest.raises(
        ValueError, match=r"^Expected columns that are labels or features, got both=\['gout'\]$"
    ):
        NumberTable(table, labels=["gout"], columns=["age", "gout"])
    table.write_text("id,gout,split\na1,1,public")
    with pytest.raises(ValueError, match=r"^Expected a column of numbers in .*mine.csv$"):
        NumberTable(table, labels=["gout"]).load(Role.PUBLIC)
    with pytest.raises(ValueError, match=r"^Expected a column `age` in .*mine.csv"):
        NumberTable(table, labels=["gout"], columns=["age"]).load(Role.PUBLIC)
