from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import vstack

from pate._labeling.data.tables import hashed
from pate.data import PublicScaling, Role, TextTable
from pate.testing import SourceContract

HEAD = "id,text,split,person,angry\n"
LINES = (
    'a1,"It is broken, again!",private,ann,1',
    '"a2","two\nlines",private,bob,0',
    "b1,Thank you,public,cem,0",
    "c1,thank YOU,test,dan,0",
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text(HEAD.replace("person", "group") + "\n".join(LINES))
    return path


class TestTextTable(SourceContract):
    def write(self, folder: Path) -> None:
        words = ["one", "two", "three", "four", "five"]
        lines = (
            f"t{i},words of {words[i % 5]} {i},{[*Role][i % 3].value},{i % 2}" for i in range(12)
        )
        (folder / "mine.csv").write_text("\n".join(("id,text,split,angry", *lines)))

    def open(self, folder: Path) -> TextTable:
        return TextTable(folder / "mine.csv", num_features=64, features=PublicScaling())

    def remove(self, folder: Path, row: int) -> None:
        self.change(folder, str(self.open(folder).load(Role.PRIVATE).ids[row]), "")

    def alter(self, folder: Path, role: Role) -> None:
        name = str(self.open(folder).load(role).ids[-1])
        self.change(folder, name, f"{name},wholly other words,{role.value},{int(name[1:]) % 2}\n")

    def change(self, folder: Path, name: str, line: str) -> None:
        lines = (folder / "mine.csv").read_text().splitlines(keepends=True)
        (folder / "mine.csv").write_text(
            "".join(line if old.startswith(f"{name},") else old for old in lines)
        )


def test_texts_are_counted_words(table: Path) -> None:
    source = TextTable(table, num_features=64)
    private, public, test = (source.records(role) for role in Role)
    assert source.label_names == ("angry",) and private.labels.ravel().tolist() == [1, 0]
    assert private.ids.tolist() == ["a1", "a2"]
    assert private.groups is not None and private.groups.tolist() == ["ann", "bob"]
    rows = private.features[np.array([[1, 0], [0, 1]])]
    assert (
        rows.shape == (2, 2, 64) and rows.dtype == np.float32 and (rows[0] == rows[1, ::-1]).all()
    )
    assert np.allclose((rows**2).sum(axis=-1), 1)
    assert (public.features[np.arange(1)] == test.features[np.arange(1)]).all()
    assert source.ledger_path == table.with_suffix(".ledger.sqlite")


def test_a_text_is_hashed_by_itself() -> None:
    texts = ["the red house", "a blue one", "", "the red house"]
    alone = vstack([hashed([text], 32) for text in texts])
    assert (hashed(texts, 32) != alone).nnz == 0
