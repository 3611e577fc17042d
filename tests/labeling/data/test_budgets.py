"""Personal budgets: declared by the source, one of them for each private record."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate._labeling.stages.rehearsal import MadeUp
from pate.data import (
    Arrays,
    DataSource,
    DrawnPublic,
    NumberTable,
    PythonFile,
    Records,
    Role,
    TextTable,
)

ROLES = [role.value for role in Role]
BUDGETS = ["0.5", "", "", "2", "", "", "1.0", "", ""]
Make = Callable[..., DataSource]


def arrays(folder: Path, values: list[str], declared: Any, **others: Any) -> DataSource:
    numbers = [float(value or 0) for value in values]
    given = {} if values == [] else {"budget": np.array(numbers)}
    np.savez(
        folder / "mine.npz",
        X=np.arange(18.0).reshape(9, 2),
        Y=np.arange(9).reshape(9, 1) % 2,
        ids=np.array(list("abcdefghi")),
        split=np.arange(9) % 3,
        **given,  # type: ignore[arg-type]
    )
    return Arrays(folder / "mine.npz", budgets=declared, **others)


def write_table(folder: Path, values: list[str], column: str, name: str = "budget") -> Path:
    head = f"id,split,{column},gout" + f",{name}" * bool(values)
    lines = [head] + [
        f"r{i}x,{ROLES[i % 3]},{i if column == 'age' else 'word'},{i % 2}"
        + (f",{values[i]}" if values else "")
        for i in range(9)
    ]
    (folder / "mine.csv").write_text("\n".join(lines))
    return folder / "mine.csv"


def numbers(folder: Path, values: list[str], declared: Any, **others: Any) -> DataSource:
    path = write_table(folder, values, "age")
    return NumberTable(path, labels=["gout"], budgets=declared, **others)


def texts(folder: Path, values: list[str], declared: Any) -> DataSource:
    path = write_table(folder, values, "text")
    return TextTable(path, labels=["gout"], num_features=8, budgets=declared)


def python_file(folder: Path, values: list[str], declared: Any) -> DataSource:
    arrays(folder, values, declared)
    (folder / "mine.py").write_text("from pate.data import Arrays")
    settings = {"path": str(folder / "mine.npz"), "budgets": declared}
    return PythonFile(folder / "mine.py", "Arrays", settings)


@pytest.mark.parametrize("make", [arrays, numbers, texts, python_file])
def test_budgets_are_read_of_private_records_alone(make: Make, tmp_path: Path) -> None:
    source = make(tmp_path, BUDGETS, [0.5, 1, 2])
    assert source.budgets == (0.5, 1.0, 2.0)
    private = source.records(Role.PRIVATE)
    assert private.budgets is not None and private.budgets.tolist() == [0.5, 2.0, 1.0]
    assert source.records(Role.PUBLIC).budgets is source.records(Role.TEST).budgets is None
    before = source.fingerprint(Role.PRIVATE), source.fingerprint(Role.PUBLIC)
    other = make(tmp_path, ["2", *BUDGETS[1:]], [0.5, 1, 2])
    assert other.fingerprint(Role.PRIVATE) != before[0]
    assert other.fingerprint(Role.PUBLIC) == before[1]


@pytest.mark.parametrize("make", [arrays, numbers, texts])
@pytest.mark.parametrize(
    ("values", "declared"),
    [
        (BUDGETS, [0.5, 2]),  # one of 1 is not declared
        (["", *BUDGETS[1:]], [0.5, 1, 2]),
        (["nan", *BUDGETS[1:]], [0.5, 1, 2]),
        ([], [0.5, 1, 2]),
        (BUDGETS, [1, 0.5, 2]),
        (BUDGETS, [0, 0.5, 1, 2]),
    ],
)
def test_what_is_not_declared_is_refused(
    make: Make, values: list[str], declared: list[float], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"Expected .*budget") as error:
        make(tmp_path, values, declared).records(Role.PRIVATE)
    assert len(str(error.value).splitlines()) == 1


def test_an_array_of_budgets_is_not_ignored(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`budgets` of the source and an array budget"):
        arrays(tmp_path, BUDGETS, None).records(Role.PRIVATE)


@pytest.mark.parametrize("kind", [np.float32, np.int64])
def test_budgets_may_be_stored_with_fewer_digits(kind: type, tmp_path: Path) -> None:
    declared = [0.7, 2.0] if kind is np.float32 else [1.0, 2.0]
    arrays(tmp_path, [str(number) for number in [*declared, 2] * 3], declared)
    stored = dict(np.load(tmp_path / "mine.npz"))
    np.savez(tmp_path / "mine.npz", **stored | {"budget": stored["budget"].astype(kind)})
    budgets = Arrays(tmp_path / "mine.npz", budgets=declared).records(Role.PRIVATE).budgets
    assert budgets is not None and budgets.tolist() == [declared[0]] * 3


def test_a_column_without_a_declaration_is_refused_unless_it_is_named(tmp_path: Path) -> None:
    values = [str(number) for number in range(9)]
    for make in (numbers, texts):
        with pytest.raises(ValueError, match=r"`budgets`, the list of .* in column `budget`"):
            make(tmp_path, values, None).records(Role.PRIVATE)
    named = numbers(tmp_path, values, None, columns=["age", "budget"])
    assert named.records(Role.PRIVATE).features.shape == (3, 2)
    left_out = numbers(tmp_path, values, None, columns=["age"])
    assert left_out.records(Role.PRIVATE).features.shape == (3, 1)
    assert numbers(tmp_path, BUDGETS, [0.5, 1, 2]).records(Role.PRIVATE).features.shape == (3, 1)


def test_a_column_may_have_another_name(tmp_path: Path) -> None:
    path = write_table(tmp_path, BUDGETS, "age", "consent")
    names = {"budget": "consent"}
    source = NumberTable(path, labels=["gout"], budgets=[0.5, 1, 2], names=names)
    budgets = source.records(Role.PRIVATE).budgets
    assert budgets is not None and budgets.tolist() == [0.5, 2.0, 1.0]


class Undeclared(DataSource):
    """Records with budgets that their source says nothing of."""

    label_names = ("gout",)

    def load(self, role: Role) -> Records:
        return Records(
            features=np.ones((2, 1), np.float32),  # type: ignore[arg-type]
            labels=np.ones((2, 1), np.uint8),
            ids=np.array([f"{role}-a", f"{role}-b"]),
            budgets=np.array([1, 2]),
        )


def test_a_source_of_ones_own_declares_them() -> None:
    with pytest.raises(ValueError, match="a budget of each private record among the `budgets`"):
        Undeclared().records(Role.PRIVATE)
    budgets = Undeclared(budgets=[1, 2]).records(Role.PRIVATE).budgets
    assert budgets is not None and budgets.dtype == np.float64


def test_made_up_records_have_all_budgets(tmp_path: Path) -> None:
    source = arrays(tmp_path, BUDGETS, [0.5, 1, 2])
    made_up = MadeUp(source).records(Role.PRIVATE).budgets
    assert made_up is not None and made_up.tolist() == [0.5, 1.0, 2.0]


def test_samples_are_not_drawn_of_weighed_records(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a source without `budgets`"):
        DrawnPublic(arrays(tmp_path, BUDGETS, [0.5, 1, 2]), samples=tmp_path / "drawn.npz")
