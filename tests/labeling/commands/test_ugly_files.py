"""Files as programs and people write them, through `pate init`, `pate run` and `pate predict`.

Each is made here, a few kilobytes of it. A file is read as its columns mean it, or refused in lines
that say why; no traceback, and nothing is paid for what cannot be read.
"""

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pate import cli
from pate._labeling.runs.carried import InputFormat
from pate._labeling.runs.run import read_data
from pate.data import Role

NUM = 90
Row = Callable[[int], str]


def rows(head: str, row: Row, *, num: int = NUM, between: str = ",") -> str:
    """Return a table with ids, roles and a label."""
    lines = [f"id,split,gout,{head}".replace(",", between)]
    for i in range(num):
        first = between.join((f"r{i * 7}x", [*Role][i % 3].value, str(i // 3 % 2)))
        lines.append(f"{first}{between}{row(i)}")
    return "\n".join(lines) + "\n"


AGES = np.random.default_rng(0).integers(20, 80, size=200).tolist()


def plain(i: int) -> str:
    return str(AGES[i])


@dataclass(frozen=True)
class Ugly:
    """A file.

    Attributes:
        content: its text or bytes.
        words: further words of `pate init`.
        refused: a part of the line with which it is refused; empty if it is read.
        said: a part of what `pate init` says.
        name: the name of the file.
    """

    content: str | bytes
    words: tuple[str, ...] = ()
    refused: str = ""
    said: str = ""
    name: str = "mine.csv"


PLAIN = rows("age", plain)


def without(text: str, column: int) -> str:
    """Return a table without one of its columns."""
    lines = [line.split(",") for line in text.splitlines()]
    return "\n".join(",".join(cells[:column] + cells[column + 1 :]) for cells in lines)


def renamed(text: str, old: str, new: str) -> str:
    head, _, rest = text.partition("\n")
    return head.replace(old, new) + "\n" + rest


def unnamed(text: str) -> str:
    """Return a table with numbers of its rows, as a data frame writes itself."""
    head, *lines = text.splitlines()
    return "\n".join([f",{head}", *(f"{i},{line}" for i, line in enumerate(lines))])


FILES = {
    "decimal commas": Ugly(rows("income", lambda i: f"{i},{i % 10}", between=";")),
    "thousands": Ugly(rows("income", lambda i: f'"{i + 1},{100 + i}.5"')),
    "percents": Ugly(rows("rate", lambda i: f"{i}%")),
    "dates": Ugly(rows("since", lambda i: f"20{i % 24:02}-0{1 + i % 9}-1{i % 9}")),
    "dates of spreadsheets": Ugly(rows("since", lambda i: f"{1 + i % 28}.{1 + i % 12}.2024")),
    "signs of gaps": Ugly(
        rows("crp", lambda i: "n.d." if i % 5 == 0 else str(i / 7)),
        said="Column crp has numbers, and 12 times 'n.d.' in public and test records: by `gaps`",
    ),
    "infinite": Ugly(rows("ratio", lambda i: "inf" if i % 7 == 0 else str(i / 7))),
    "gaps of six kinds": Ugly(
        rows("age", lambda i: ["NA", "", "nan", "NULL", "?", "None"][i] if i < 6 else plain(i))
    ),
    "labels that end in a bracket": Ugly(
        renamed(
            rows("age", plain).replace(",0,", ",Flu (A),").replace(",1,", ",Flu (B),"),
            "gout",
            "class",
        ),
        ("--labels", "{class: [Flu (A), Flu (B)]}"),
        said="2 labels: Flu (A), Flu (B).",
    ),
    "an id of another name": Ugly(renamed(PLAIN, "id,", "patient,"), ("--id", "patient")),
    "no id": Ugly(without(PLAIN, 0), refused="given once, when they are collected"),
    "no tests": Ugly(
        PLAIN.replace(",test,", ",public,"), said="--test_fraction 0.3 takes a share of the public"
    ),
    "tests of the public ones": Ugly(
        PLAIN.replace(",test,", ",public,"), ("--test_fraction", "0.4"), said="records"
    ),
    "an unnamed first column": Ugly(unnamed(PLAIN)),
    "packed": Ugly(gzip.compress(PLAIN.encode()), name="mine.csv.gz"),
    "workbook": Ugly(
        b"PK\3\4" + bytes(range(256)), refused="a CSV file, as a spreadsheet saves it"
    ),
    "latin": Ugly(rows("city", lambda i: ["Zürich", "Rome"][i % 2]).encode("cp1252")),
    "-1 among 0 and 1": Ugly(
        PLAIN.replace("r0x,private,0", "r0x,private,-1"),
        ("--unknown_labels", "-1"),
        said="of 29 known",
    ),
    "numbers beyond all, and a gap": Ugly(
        rows("age,big", lambda i: f"{plain(i)},{'9' * 400 if i else ''}")
    ),
    "a label that nobody has": Ugly(
        renamed(PLAIN, "age", "asthma")
        .replace("private,0", "private,1")
        .replace("private,1,", "private,0,"),
        said="no private record has gout",
    ),
}


def lay(case: Ugly, folder: Path) -> Path:
    path = folder / case.name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(case.content if isinstance(case.content, bytes) else case.content.encode())
    return path


def init(case: Ugly, folder: Path, capsys: pytest.CaptureFixture[str]) -> bool:
    """Write the recipe, or check how the file is refused; return whether there is a recipe."""
    words = [
        "init",
        "recipe",
        "--data",
        lay(case, folder).relative_to(folder).parts[0],
        *("--labels", "gout", "--no_group"),
        *case.words,
    ]
    status, caught = cli.main(words), capsys.readouterr()
    said = " ".join(caught.out.split())
    if case.refused:
        assert status == 2 and case.refused in caught.err, caught.err
        assert all(line.startswith("pate init: Expected") for line in caught.err.splitlines())
        assert not Path("recipe").exists()
        return False
    assert status == 0, caught.err
    assert case.said in said, said
    return True


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if i % 2 else []) for i, name in enumerate(FILES)],
)
def test_what_init_writes_reads_the_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if not init(FILES[name], tmp_path, capsys):
        return
    source = read_data(Path("recipe", "data.yaml"))
    for role in Role:
        assert not len(source.load(role)) or np.isfinite(source.records(role).features[:]).all()
    raw = source.load(Role.PUBLIC).features
    assert InputFormat.of(raw).shape == raw.shape[1:] and raw.shape[1] <= 4
