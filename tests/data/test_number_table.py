import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate import cli
from pate._data_file import describe_data, read_data
from pate.data import NumberTable, PublicScaling, Role
from pate.data._tables import NumberColumns, hashed
from pate.student._carried import InputFormat
from pate.testing import SourceContract

LINES = (
    "id,age,gout,split,group,asthma,pressure",
    "a1,54,1,private,ann,0,131.5",
    "a2,-0.5,0,private,bob,1,1e2",
    "b1,38,0,public,cem,0,118",
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
    assert isinstance(private.features, NumberColumns)
    assert private.features.encoding.headings == ("age", "pressure")
    assert private.features.values.tolist() == [[54, 131.5], [-0.5, 100]]
    assert private.groups is not None and private.groups.tolist() == ["ann", "bob"]
    assert source.load(Role.PUBLIC).labels.tolist() == [[0, 0]]
    chosen = (
        NumberTable(table, labels=["gout"], columns=["pressure", "age"]).load(Role.TEST).features
    )
    assert isinstance(chosen, NumberColumns) and chosen.encoding.names == ("pressure", "age")
    assert chosen.values.dtype == np.float32 and chosen.values.tolist() == [[0, 41]]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "131.5",
            "high",
            r"^Expected a finite number \(words need `categories` or `texts`\) in column `pressure` of .*mine.csv,"
            r" got line=2, value='high'$",
        ),
        (
            "131.5",
            '"131,5"',
            r"^Expected a finite number \(decimals need a point\) in column `pressure` of .*, got"
            r" line=2, value='131,5'$",
        ),
        (
            "118",
            "nan",
            r"^Expected a finite number \(gaps need `fill`\) in column `pressure` of .*, got line=4, value='nan'$",
        ),
        (
            "1e2",
            "1e39",
            r"^Expected a finite number in column `pressure` of .*, got line=3, value='1e39'$",
        ),
        ("38,0", ",0", r"^Expected a finite number \(gaps .* `age` of .*, got line=4, value=''$"),
        ("id,age", "name,age", r"^Expected a column `id` in"),
        ("gout", "gaut", r"^Expected .*unknown=\['gout'\]$"),
        ("split", "spilt", r"^Expected a column `split` of .*, got column='spilt'$"),
    ],
)
def test_a_fault_is_said_in_one_line(table: Path, old: str, new: str, message: str) -> None:
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


RAW = """id,age,city,stage,gout,split
a1,54,Bern,1,1,private
a2,,Oslo,2,0,private
b1,30,Rome,1.0,0,public
b2,NA,Bern,,1,public
b3,40,?,2,0,public
c1,1,Rome,3,1,test
"""


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    path = tmp_path / "raw.csv"
    path.write_text(RAW)
    return path


def test_categories_and_gaps_are_encoded_by_public_records(raw: Path) -> None:
    source = NumberTable(
        raw,
        labels=["gout"],
        categories={"city": "public", "stage": [1, 2, 3]},
        fill="public",
    )
    private, test = source.load(Role.PRIVATE).features, source.load(Role.TEST).features
    assert isinstance(private, NumberColumns)
    assert private.encoding.headings == (
        *("age", "city=Bern", "city=Rome"),
        *("stage=1", "stage=2", "stage=3"),
    )
    # Oslo is a level of private records only, and the median of 30 and 40 fills the gap
    assert private[:].tolist() == [[54, 1, 0, 1, 0, 0], [35, 0, 0, 0, 1, 0]]
    assert source.load(Role.PUBLIC).features[:].tolist() == [
        [30, 0, 1, 1, 0, 0],
        [35, 1, 0, 0, 0, 0],
        [40, 0, 0, 0, 1, 0],
    ]
    assert test[:].tolist() == [[1, 0, 1, 0, 0, 1]]


def test_declared_levels_and_numbers_need_no_record(raw: Path) -> None:
    source = NumberTable(
        raw,
        labels=["gout"],
        columns=["city", "age"],
        categories={"city": ["Oslo"]},
        fill={"age": -1},
    )
    assert source.load(Role.PRIVATE).features[:].tolist() == [[0, 54], [1, -1]]


class TestEncodedTable(TestNumberTable):
    """With levels and numbers in place of gaps that public records give."""

    def write(self, folder: Path) -> None:
        lines = (
            f"t{i},{i if i % 4 else ''},{'ab'[i % 2]},{[*Role][i % 3].value},{i % 2}"
            for i in range(12)
        )
        (folder / "mine.csv").write_text("\n".join(("id,one,two,split,gout", *lines)))

    def open(self, folder: Path) -> NumberTable:
        return NumberTable(
            folder / "mine.csv", labels=["gout"], categories={"two": "public"}, fill="public"
        )

    def alter(self, folder: Path, role: Role) -> None:
        """Give the record the other level, so that its encoding stays."""
        row = int(self.open(folder).load(role).ids[-1][1:])
        self.change(folder, f"t{row}", f"t{row},{row},{'ba'[row % 2]},{role.value},{row % 2}\n")


def test_a_configuration_holds_levels(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "data.yaml").write_text(
        f"data:\n  class_path: NumberTable\n  init_args:\n    path: {raw}\n    labels: [gout]\n"
        "    categories: {city: public, stage: [1, 2]}\n    fill: {age: 40}\n"
    )
    source = read_data(tmp_path / "data.yaml")
    assert source.load(Role.TEST).features[:].tolist() == [[1, 0, 1, 0, 0]]
    assert describe_data(source)["init_args"]["categories"] == {"city": "public", "stage": [1, 2]}


def test_texts_are_hashed_words_next_to_numbers(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        'id,age,note,gout,split\na,1,so late,0,private\nb,2,NA,1,public\nc,3,"late, so",1,test\n'
    )
    source = NumberTable(path, labels=["gout"], texts={"note": 8})
    rows = np.concatenate([source.load(role).features[:] for role in Role])
    assert rows[:, 0].tolist() == [1, 2, 3] and not rows[1, 1:].any()
    (words,) = hashed(["so late"], 8).toarray()
    assert (rows[[0, 2], 1:] == words).all()
    features = source.load(Role.PUBLIC).features
    taken = InputFormat.of(features)
    assert isinstance(features, NumberColumns) and taken.shape == (9,)
    assert features.encoding.headings == ("age", *(f"note#{place}" for place in range(8)))
    again = InputFormat.from_dict(json.loads(json.dumps(taken.to_dict())))
    assert again.encoded({"age": [3], "note": ["late so"]})[0].tolist() == rows[2].tolist()
    with pytest.raises(ValueError, match=r"integer texts\[note\] >= 2, got texts\[note\]=1"):
        NumberTable(path, labels=["gout"], texts={"note": 1})
    with pytest.raises(ValueError, match="columns that are texts or categories"):
        NumberTable(path, labels=["gout"], texts={"note": 8}, categories={"note": "public"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"categories": {"town": "public"}}, r"`categories` of features in .*unknown=\['town'\]"),
        ({"fill": {"town": 1}}, r"`fill` of features in .*unknown=\['town'\]"),
        ({"categories": {"stage": [1, "1.0"]}}, r"levels of `stage` that occur once"),
    ],
)
def test_wrong_settings_of_columns_are_refused(
    raw: Path, settings: dict[str, Any], message: str
) -> None:
    given = {"categories": {"city": "public"}, "fill": "public"} | settings
    with pytest.raises(ValueError, match=message):
        NumberTable(raw, labels=["gout"], **given).load(Role.TEST)


def test_all_faults_of_a_file_are_said_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        "id,age,weight,city,gout,split,spit\n"
        "a1,x,1,Bern,2,private,0\na1,1,,Rome,1,train,0\na3,y,,Rome,1,test,0\n"
    )
    with pytest.raises(ValueError) as refused:
        NumberTable(path, labels=["gout", "asthma"]).load(Role.TEST)
    lines = str(refused.value).split("\n")
    assert lines == [
        f"Expected each `id` once in {path}, got id='a1', lines=(2, 3)",
        f"Expected a column `split` of {path}, got column='spit'",
        "Expected names of labels among age, weight, city, gout (mine.csv), got unknown=['asthma']",
        f"Expected private, public or test in column `split` of {path}, got line=3, value='train'",
        f"Expected a finite number (words need `categories` or `texts`) in column `age` of {path}, got"
        " line=2, value='x', further_lines=1",
        f"Expected a finite number (gaps need `fill`) in column `weight` of {path}, got line=3,"
        " value='', further_lines=1",
        f"Expected a finite number (words need `categories` or `texts`) in column `city` of {path}, got"
        " line=2, value='Bern', further_lines=2",
    ]
    path.write_text("name,age\na1,1,2\nb,1\n")
    with pytest.raises(ValueError) as refused:
        NumberTable(path, labels=["gout"], columns=["weight"]).load(Role.TEST)
    assert [line.split(", got")[0] for line in str(refused.value).split("\n")] == [
        f"Expected a column `id` in {path}, between commas",
        f"Expected a column `weight` in {path}, between commas",
        f"Expected 2 values in each line of {path}",
    ]
    (tmp_path / "data.yaml").write_text(
        f"data:\n  class_path: NumberTable\n  init_args: {{path: {path}, labels: [gout]}}\n"
    )
    words = [f"--config={tmp_path}/data.yaml", "--fit=closed_form", f"--run={tmp_path}/run"]
    assert cli.main(["teachers", "fit", "--network=pate.models.Linear", *words]) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line.split(" in ")[0] for line in said] == [
        "pate teachers fit: Expected a column `id`",
        "pate teachers fit: Expected 2 values",
    ]


def test_a_column_lists_names_of_labels(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        "id,age,topics,split\n"
        "a,1,sports;news,private\nb,2,,public\nc,3,\"['news', 'local, odd']\",test\n"
        "d,4,sport|news,test\n"
    )
    source = NumberTable(path, labels={"topics": ["news", "sports"]})
    assert source.label_names == ("news", "sports")
    labels = [source.load(role).labels.tolist() for role in Role]
    assert labels == [[[1, 1]], [[0, 0]], [[1, 0], [1, 0]]]
    assert source.load(Role.TEST).features[:].tolist() == [[3], [4]]
    comma = NumberTable(path, labels={"topics": ["local, odd"]})
    assert comma.load(Role.TEST).labels.tolist() == [[0], [0]]
    faults: list[tuple[dict[str, list[str]], str]] = [
        ({"topic": ["news"]}, r"names of labels among age, topics .*unknown=\['topic'\]"),
        ({"topics": []}, r"names of labels that column `topics` of .* lists"),
        ({"topics": ["news", "news"]}, r"label names that occur once"),
    ]
    for wrong, message in faults:
        with pytest.raises(ValueError, match=message):
            NumberTable(path, labels=wrong).load(Role.TEST)


def test_columns_may_have_names_of_their_own(table: Path) -> None:
    text = table.read_text()
    for name, theirs in (("id,", "patient,"), ("split", "fold"), ("group", "ward")):
        text = text.replace(name, theirs)
    names = {"id": "patient", "split": "fold", "group": "ward"}
    before = NumberTable(table, labels=["gout"]).load(Role.PRIVATE)
    table.write_text(text)
    after = NumberTable(table, labels=["gout"], names=names).load(Role.PRIVATE)
    assert after.ids.tolist() == before.ids.tolist() and after.groups is not None
    assert after.groups.tolist() == ["ann", "bob"]
    assert after.features[:].tolist() == before.features[:].tolist()
    with pytest.raises(ValueError, match=r"`names` of columns among id, split, .*got idd"):
        NumberTable(table, labels=["gout"], names={"idd": "patient"}).load(Role.TEST)
    with pytest.raises(ValueError, match=r"^Expected a column `number` in .*mine.csv"):
        NumberTable(table, labels=["gout"], names=names | {"id": "number"}).load(Role.TEST)


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_spreadsheets_choose_another_delimiter(table: Path, delimiter: str) -> None:
    before = NumberTable(table, labels=["gout"]).load(Role.PRIVATE).features[:].tolist()
    table.write_text(table.read_text().replace(",", delimiter))
    assert NumberTable(table, labels=["gout"]).load(Role.PRIVATE).features[:].tolist() == before


def test_labels_as_other_programs_write_them(table: Path) -> None:
    before = NumberTable(table, labels=["gout"]).load(Role.PRIVATE).labels.tolist()
    text = table.read_text().replace("54,1,", "54,True,").replace("-0.5,0,", "-0.5,0.0,")
    table.write_text(text)
    assert NumberTable(table, labels=["gout"]).load(Role.PRIVATE).labels.tolist() == before


def test_parquet_is_read_as_csv(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {
        "id": ["a", "b", "c"],
        "age": [1.5, None, 3.0],
        "stage": [1, 2, None],
        "topics": [["sports", "news"], [], ["news"]],
        "split": ["private", "public", "test"],
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "mine.parquet")
    source = NumberTable(
        tmp_path / "mine.parquet",
        labels={"topics": ["news", "sports"]},
        categories={"stage": [1, 2]},
        fill={"age": 0},
    )
    features = [source.load(role).features[:].tolist() for role in Role]
    assert features == [[[1.5, 1, 0]], [[0, 0, 1]], [[3, 0, 0]]]
    assert source.load(Role.PRIVATE).labels.tolist() == [[1, 1]]
    (tmp_path / "mine.parquet").write_text("id,age\n")
    with pytest.raises(ValueError, match=r"^Expected a parquet file, got .*mine.parquet"):
        NumberTable(tmp_path / "mine.parquet", labels=["gout"]).load(Role.TEST)


def test_parquet_needs_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "mine.parquet").touch()
    with pytest.raises(ValueError, match=r"^Expected pyarrow, .* pip install 'pate\[parquet\]'$"):
        NumberTable(tmp_path / "mine.parquet", labels=["gout"]).load(Role.TEST)
