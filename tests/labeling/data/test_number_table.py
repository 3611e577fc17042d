import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pate._labeling.data.tables import _OTHERS, NumberColumns
from pate._labeling.runs.carried import InputFormat
from pate._labeling.runs.run import read_data
from pate.data import UNKNOWN, NumberTable, PublicScaling, Role
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
        raw, labels=["gout"], categories={"city": "public", "stage": [1, 2, 3]}, fill="public"
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


def test_all_faults_of_a_file_are_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        "id,age,weight,city,gout,split\n"
        "a1,x,1,Bern,2,private\na1,1,,Rome,1,train\na3,y,,Rome,1,test\n"
    )
    with pytest.raises(ValueError) as refused:
        NumberTable(path, labels=["gout", "asthma"]).load(Role.TEST)
    lines = str(refused.value).split("\n")
    assert lines == [
        f"Expected each `id` once in column `id` of {path}, got line=2, value='a1', further_lines=1",
        "Expected names of labels among age, weight, city, gout (mine.csv), got unknown=['asthma']",
        f"Expected private, public or test in column `split` of {path}, got line=3, value='train'",
        f"Expected a finite number ({_OTHERS}) in column `age` of {path}, got"
        " line=2, value='x', further_lines=1",
        f"Expected a finite number ({_OTHERS}) in column `weight` of {path}, got line=3,"
        " value='', further_lines=1",
        f"Expected a finite number ({_OTHERS}) in column `city` of {path}, got"
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
    faults: list[tuple[Any, str]] = [
        ({"topic": ["news"]}, r"names of labels among age, topics .*unknown=\['topic'\]"),
        ({"topics": []}, r"names of labels that column `topics` of .* lists"),
        ({"topics": ["news", "news"]}, r"label names that occur once"),
        ({"topics": {"news": 2}}, r"a coding of label `topics` by 1, 0, and null"),
    ]
    for wrong, message in faults:
        with pytest.raises(ValueError, match=message):
            NumberTable(path, labels=wrong).load(Role.TEST)


def test_labels_are_coded_by_what_is_declared(tmp_path: Path) -> None:
    """Whether YAML reads a word as true or a code as a number, and named after their column."""
    path = tmp_path / "mine.csv"
    path.write_text(
        "id,age,smokes,grade,left,right,split\na,1,Yes,2,flu,flu,private\n"
        "b,2,No,1.0,,flu,public\nc,3,none,-99,flu,,test\n"
    )
    declared = "{smokes: {Yes: 1, No: 0, none: null}, grade: {2: 1, 1: 0, -99: null}, left: [flu], right: [flu]}"
    (tmp_path / "data.yaml").write_text(
        "data:\n  class_path: NumberTable\n  init_args:"
        f" {{path: {path}, labels: {declared}, columns: [age]}}\n"
    )
    for source in (
        read_data(tmp_path / "data.yaml"),
        NumberTable(path, labels=yaml.safe_load(declared), columns=["age"]),
    ):
        assert source.label_names == ("smokes", "grade", "left=flu", "right=flu")
        rows = [source.load(role).labels.tolist() for role in Role]
        assert rows == [[[1, 1, 1, 1]], [[0, 0, 0, 1]], [[UNKNOWN, UNKNOWN, 1, 0]]]
        assert source.unknown_labels
    labels: Any = {"smokes": {"Yes": 1, "No": 0}}
    with pytest.raises(ValueError, match=r"one of Yes, No in column `smokes` .*value='none'"):
        NumberTable(path, labels=labels, columns=["age"]).load(Role.TEST)


def test_a_column_that_counts_the_rows_must_be_named(tmp_path: Path) -> None:
    rows = [f"r{i}x,{2 * i + i // 9},{i % 7},{i % 2},{[*Role][i % 3].value}" for i in range(60)]
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(["id,row,age,gout,split", *rows]))
    with pytest.raises(ValueError, match=r"`columns`, since some count .*counters=\['row'\]"):
        NumberTable(path, labels=["gout"]).load(Role.TEST)
    source = NumberTable(path, labels=["gout"], columns=["row", "age"])
    assert source.load(Role.TEST).features.shape == (20, 2)


def test_a_declaration_and_no_likeness_gives_a_column_its_meaning(tmp_path: Path) -> None:
    """Only exact names, and these not where another column is said to have the meaning."""
    path = write_rows(
        tmp_path / "mine.csv",
        "Group,group,ID,person_id,identity",
        *(f"{i},{i % 2},{i % 4},p{i},{i % 3}" for i in range(9)),
    )
    settings: Any = {"columns": ["Group", "ID", "identity"]}
    grouped = NumberTable(path, labels=["gout"], **settings).load(Role.PRIVATE)
    assert grouped.groups is not None and set(grouped.groups.tolist()) == {"0", "1"}
    none: Any = {"names": {"group": None}} | settings
    assert NumberTable(path, labels=["gout"], **none).load(Role.PRIVATE).groups is None
    other: Any = {"names": {"group": "person_id"}, "columns": ["group"]}
    source = NumberTable(path, labels=["gout"], **other).load(Role.PRIVATE)
    assert source.groups is not None and source.groups.tolist() == ["p0", "p3", "p6"]
    assert source.features[:].tolist() == [[0], [1], [0]]
    with pytest.raises(ValueError, match=r"`public_fraction` or column `split` .* not both"):
        NumberTable(path, labels=["gout"], public_fraction=0.3, **settings).load(Role.TEST)


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


def values_of(path: Path, **settings: Any) -> list[list[float]]:
    """Return the features of all records of a table, in the order of their roles."""
    source = NumberTable(path, labels=["gout"], **settings)
    return np.concatenate([source.load(role).features[:] for role in Role]).tolist()


def write_rows(path: Path, head: str, *rows: str) -> Path:
    """Write a table with a record of each role for every three rows."""
    lines = [f"r{i}x,{[*Role][i % 3].value},{i % 2},{row}" for i, row in enumerate(rows)]
    path.write_text("\n".join([f"id,split,gout,{head}", *lines]))
    return path


@pytest.mark.parametrize(
    ("form", "texts", "numbers"),
    [
        ("decimal_comma", ["1,5", "1.234,25", "-12"], [1.5, 1234.25, -12]),
        ("thousands_comma", ["1,234", "1,234,567.5", "12"], [1234, 1234567.5, 12]),
        ("percent", ["12%", "12.5 %", "100%"], [0.12, 0.125, 1]),
        ("iso_date", ["2000-01-02", "2000-01-02 12:00", "2000-01-02T02:00:00+02:00"], [1, 1.5, 1]),
        ("%d.%m.%Y", ["02.01.2000", "1.2.2000", "31.12.1999"], [1, 31, -1]),
    ],
)
def test_numbers_and_dates_are_read_as_they_are_written(
    form: str, texts: list[str], numbers: list[float], tmp_path: Path
) -> None:
    path = write_rows(tmp_path / "mine.csv", "value", *(f'"{text}"' for text in texts))
    read = values_of(path, formats={"value": form})
    assert np.allclose(np.ravel(read), numbers)
    with pytest.raises(ValueError, match="numbers and dates `formats`"):
        values_of(path)
    features = NumberTable(path, labels=["gout"], formats={"value": form}).load(Role.TEST).features
    again = InputFormat.from_dict(json.loads(json.dumps(InputFormat.of(features).to_dict())))
    assert np.allclose(np.ravel(again.encoded({"value": texts})), numbers)


def test_signs_of_missing_numbers_are_named(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "mine.csv", "value", "n.d.", "4", "inf", "n.d.", "6", "1")
    numbers = values_of(path, gaps=["n.d.", "inf"], fill="public")
    assert np.ravel(numbers).tolist() == [5, 5, 4, 6, 5, 1]
    with pytest.raises(ValueError, match=r"signs of missing numbers `gaps`.*value='n\.d\.'"):
        values_of(path, fill="public")
    path = write_rows(tmp_path / "coded.csv", "value", "-99", "4", "-99.0", "6", "6", "1")
    settings = f"{{path: {path}, labels: [gout], gaps: [-99], fill: {{value: 5}}}}"
    (tmp_path / "data.yaml").write_text(f"data: {{class_path: NumberTable, init_args: {settings}}}")
    source = read_data(tmp_path / "data.yaml")
    assert [[*source.load(role).features[:, 0]] for role in Role] == [[5, 6], [4, 6], [5, 1]]


def test_a_table_without_tests_takes_a_share_of_the_public_ones(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    rows = [f"r{i}x,{i % 90},{i % 2},{'private' if i % 2 else 'public'}" for i in range(200)]
    path.write_text("\n".join(["id,age,gout,split", *rows]))
    without = NumberTable(path, labels=["gout"])
    assert len(without.load(Role.TEST)) == 0
    without.require_distinct()
    with pytest.raises(ValueError, match=r"one test record \(`test_fraction` takes a share of"):
        without.records(Role.TEST)
    source = NumberTable(path, labels=["gout"], test_fraction=0.3)
    sizes = [len(source.load(role)) for role in Role]
    assert sizes[0] == 100 and 15 < sizes[2] < 45 and sum(sizes) == 200
    source.require_distinct()
    path.write_text(path.read_text().replace("r1x,1,1,private", "r1x,1,1,test"))
    named = NumberTable(path, labels=["gout"], test_fraction=0.3).load(Role.TEST)
    assert named.ids.tolist() == ["r1x"]
