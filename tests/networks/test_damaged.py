"""Damaged files of every kind that a user hands in: one line and status 2, nothing spent, nothing left half-made.

A file may be damaged and still mean something, in which case the command does what it means. Each
kind is damaged in its bytes, cut off, and where it has a structure, in that.
"""

import copy
import io
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZIP_STORED, ZipFile

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings, strategies as st

from pate import cli
from tests.conftest import made_votes, make_arrays
from tests.networks.conftest import recipe

pytestmark = pytest.mark.slow

TRIED = settings(
    max_examples=int(os.environ.get("PATE_DAMAGED_FILES", "300")),
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

ODD = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        2**70,
        1e308,
        float("nan"),
        float("inf"),
        "",
        "x",
        "\x00",
        "é\n",
        [],
        [[1]],
        {},
        {"a": 1},
        "../x",
    ]
)
"""What may stand where something else belongs."""


@st.composite
def damaged_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes of which some are lost, changed, repeated or added."""
    start = draw(st.integers(0, len(content)))
    stop = draw(st.integers(start, min(len(content), start + draw(st.sampled_from([1, 8, 200])))))
    kind = draw(st.sampled_from(["cut", "flip", "replace", "remove", "repeat", "zeros"]))
    middle = content[start:stop]
    if kind == "cut":
        return content[:start]
    if kind == "flip":
        bit = draw(st.integers(0, 7))
        middle = bytes(byte ^ (1 << bit) for byte in middle)
    elif kind == "replace":
        middle = draw(st.binary(max_size=len(middle) + 4))
    elif kind == "remove":
        middle = b""
    elif kind == "repeat":
        middle = middle * draw(st.integers(2, 50))
    else:
        middle = bytes(len(middle))
    return content[:start] + middle + content[stop:]


def places(tree: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    items = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    for key, value in items:
        yield from places(value, (*place, key))


@st.composite
def damaged_tree(draw: st.DrawFn, tree: Any) -> Any:
    """Plain data of which one part is lost, has another name or another value."""
    place = draw(st.sampled_from(list(places(tree))))
    if not place:
        return draw(ODD)
    changed = copy.deepcopy(tree)
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    kind = draw(st.sampled_from(["lose", "rename", "value", "value"]))
    if kind == "value" or isinstance(inner, list):
        inner[place[-1]] = draw(ODD)
    else:
        value = inner.pop(place[-1])
        if kind == "rename":
            inner[draw(st.text(max_size=5))] = value
    return changed


@st.composite
def damaged_yaml(draw: st.DrawFn, content: bytes) -> bytes:
    if draw(st.booleans()):
        return draw(damaged_bytes(content))
    return yaml.safe_dump(draw(damaged_tree(yaml.safe_load(content)))).encode()


@st.composite
def damaged_json(draw: st.DrawFn, content: bytes) -> bytes:
    if draw(st.booleans()):
        return draw(damaged_bytes(content))
    return json.dumps(draw(damaged_tree(json.loads(content)))).encode()


@st.composite
def damaged_array(draw: st.DrawFn, array: np.ndarray) -> np.ndarray:
    """An array of another type or shape, or with odd values in it."""
    kind = draw(st.sampled_from(["type", "shape", "rows", "value", "repeat"]))
    if kind == "type":
        name = draw(
            st.sampled_from(
                ["f2", "f8", "c16", "i1", "u8", "?", "S3", "U0", "M8[s]", "O", "i4,f8", ">f4", "V2"]
            )
        )
        try:
            return array.astype(name)
        except (ValueError, TypeError):
            return np.zeros(array.shape, dtype=name)
    if kind == "shape":
        first = np.atleast_1d(array)
        shapes = [
            array[None],
            array[..., None],
            array.ravel(),
            first.ravel()[0],
            first[:0],
            array.T,
        ]
        return np.asarray(draw(st.sampled_from(shapes)))
    if kind == "rows":
        return array[: draw(st.integers(0, len(array)))] if array.ndim else array
    changed = np.array(array)
    flat = changed.reshape(-1)
    if flat.size:
        where = draw(st.integers(0, flat.size - 1))
        if kind == "repeat":
            flat[where] = flat[0]
        elif changed.dtype.kind == "U":
            flat[where] = draw(st.sampled_from(["", "\x00", "é", "nan"]))
        else:
            flat = changed.astype(np.float64).reshape(-1)
            flat[where] = draw(st.sampled_from([np.nan, np.inf, -1.0, 0.5, 3.0, 1e300]))
            changed = flat.reshape(array.shape)
    return changed


def npz(arrays: dict[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=True, **arrays)
    return buffer.getvalue()


@st.composite
def damaged_npz(draw: st.DrawFn, content: bytes) -> bytes:
    """An archive that is damaged in its bytes, in those of one member, whose checksum is right, or
    in its arrays."""
    kind = draw(st.sampled_from(["bytes", "member", "array", "names"]))
    if kind == "bytes":
        return draw(damaged_bytes(content))
    if kind == "member":
        buffer = io.BytesIO()
        with ZipFile(io.BytesIO(content)) as old, ZipFile(buffer, "w", ZIP_STORED) as new:
            damaged = draw(st.sampled_from(old.namelist()))
            for name in old.namelist():
                # most of the damage to headers
                member = old.read(name)
                head = (
                    draw(damaged_bytes(member[:140])) + member[140:] if name == damaged else member
                )
                new.writestr(name, head)
        return buffer.getvalue()
    with np.load(io.BytesIO(content)) as archive:
        arrays = dict(archive)
    name = draw(st.sampled_from(sorted(arrays)))
    array = arrays.pop(name)
    if kind == "array":
        arrays[name] = draw(damaged_array(array))
    elif draw(st.booleans()):
        arrays[draw(st.text("abcdefgh_", min_size=1, max_size=5))] = array
    return npz(arrays)


def run(words: list[str]) -> tuple[int, str]:
    """Run a command; return its status and what it says on stderr."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = cli.main(words)
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else -1
    return status, err.getvalue()


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def require_refused_or_served(words: list[str], folder: Path) -> None:
    """Run a command that reads something damaged; where it is refused, nothing in ``folder`` may
    have changed."""
    before = files(folder)
    status, said = run(words)
    assert status in (0, 2), said
    if status == 2:
        # a table is told all its faults, a line each
        assert said.endswith("\n") and all(
            line.startswith(f"pate {words[0]}") for line in said.splitlines()
        ), said
        assert files(folder) == before


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one whole file of each kind."""
    folder = tmp_path_factory.mktemp("integer_scores")
    made_votes(6).save(folder / "votes.npz")
    arrays = make_arrays(60)
    np.savez(folder / "data.npz", **arrays)  # type: ignore[arg-type]
    recipe(folder / "recipe", folder / "data.npz")
    return folder


@pytest.fixture
def folder() -> Iterator[Callable[[], Path]]:
    """Make a new folder for each damaged file; `tmp_path` is one for all of them."""
    with TemporaryDirectory() as made:
        numbers = iter(range(10**6))

        def new() -> Path:
            path = Path(made) / str(next(numbers))
            path.mkdir()
            return path

        yield new


New = Callable[[], Path]

LABEL = [
    "--num_queries=20",
    "--delta=1e-3",
    "--aggregator=NoisyVotes",
    "--aggregator.sigma_votes=2",
]


@TRIED
@given(data=st.data())
def test_votes(data: st.DataObject, place: Path, folder: New) -> None:
    here = folder()
    (here / "votes.npz").write_bytes(data.draw(damaged_npz((place / "votes.npz").read_bytes())))
    require_refused_or_served(
        ["label", f"--votes={here / 'votes.npz'}", f"--run={here / 'run'}", *LABEL], here
    )


@TRIED
@given(data=st.data())
def test_settings_of_labels(data: st.DataObject, place: Path, folder: New) -> None:
    here = folder()
    (here / "label.yaml").write_bytes(
        data.draw(damaged_yaml((place / "recipe" / "label.yaml").read_bytes()))
    )
    (here / "votes.npz").symlink_to(place / "votes.npz")
    words = [
        "label",
        f"--votes={here / 'votes.npz'}",
        f"--ledger={here / 'ledger.sqlite'}",
        f"--run={here / 'run'}",
    ]
    require_refused_or_served([*words, f"--config={here / 'label.yaml'}"], here)


@TRIED
@given(data=st.data())
def test_settings_of_data_and_teachers(data: st.DataObject, place: Path, folder: New) -> None:
    here = folder()
    shutil.copytree(place / "recipe", here / "recipe")
    file = here / "recipe" / data.draw(st.sampled_from(["data.yaml", "teachers.yaml"]))
    file.write_bytes(data.draw(damaged_yaml(file.read_bytes())))
    configs = [f"--config={here / 'recipe' / name}" for name in ("data.yaml", "teachers.yaml")]
    require_refused_or_served(
        ["teachers", "fit", *configs, "--dry_run", f"--run={here / 'run'}"], here
    )


@TRIED
@given(data=st.data())
def test_arrays(data: st.DataObject, place: Path, folder: New) -> None:
    here = folder()
    (here / "data.npz").write_bytes(data.draw(damaged_npz((place / "data.npz").read_bytes())))
    words = ["teachers", "fit", "--data=Arrays", f"--data.path={here / 'data.npz'}"]
    words += [
        f"--config={place / 'recipe' / 'teachers.yaml'}",
        "--dry_run",
        f"--run={here / 'run'}",
    ]
    require_refused_or_served(words, here)


@TRIED
@given(data=st.data())
def test_models(data: st.DataObject, finished: Path, folder: New) -> None:
    here = folder()
    shutil.copytree(finished / "public" / "student" / "model", here / "model")
    np.savez(here / "new.npz", X=np.zeros((3, 6)))
    file = (
        here
        / "model"
        / data.draw(st.sampled_from(sorted(path.name for path in (here / "model").iterdir())))
    )
    damage = damaged_json if file.suffix == ".json" else damaged_bytes
    file.write_bytes(data.draw(damage(file.read_bytes())))
    require_refused_or_served(
        ["predict", f"{here / 'model'}", f"{here / 'new.npz'}", f"--output={here / 'p.csv'}"], here
    )


@TRIED
@given(data=st.data())
def test_samples(data: st.DataObject, finished: Path, folder: New) -> None:
    here = folder()
    (here / "new.npz").write_bytes(
        data.draw(damaged_npz(npz({"X": np.zeros((3, 6)), "ids": np.array(["a", "b", "c"])})))
    )
    words = ["predict", f"{finished / 'public' / 'student' / 'model'}", f"{here / 'new.npz'}"]
    require_refused_or_served([*words, f"--output={here / 'p.csv'}"], here)


@st.composite
def damaged_ledger(draw: st.DrawFn, file: Path) -> bytes:
    """A ledger that is damaged in its bytes, or in one cell."""
    if draw(st.booleans()):
        return draw(damaged_bytes(file.read_bytes()))
    with closing(sqlite3.connect(":memory:")) as ledger, closing(sqlite3.connect(file)) as whole:
        whole.backup(ledger)
        tables = [
            name
            for (name,) in ledger.execute("select name from sqlite_master where type = 'table'")
        ]
        table = draw(st.sampled_from(tables))
        columns = [row[1] for row in ledger.execute(f"pragma table_info({table})")]
        column, row = draw(st.sampled_from(columns)), draw(st.integers(1, 3))
        (cell,) = ledger.execute(
            f"select {column} from {table} where rowid = ?", (row,)
        ).fetchone() or (b"",)
        new = draw(
            st.one_of(st.none(), st.integers(-1, 9), st.text(max_size=4), st.binary(max_size=4))
        )
        if isinstance(cell, str) and cell.startswith("{"):
            new = draw(damaged_json(cell.encode())).decode(errors="replace")
        with suppress(sqlite3.Error):  # what no ledger can hold
            ledger.execute(f"update {table} set {column} = ? where rowid = ?", (new, row))
            ledger.commit()
        return ledger.serialize()


@TRIED
@given(data=st.data())
def test_ledgers(data: st.DataObject, place: Path, finished: Path, folder: New) -> None:
    here = folder()
    (here / "ledger.sqlite").write_bytes(
        data.draw(damaged_ledger(finished.parent / "data.ledger.sqlite"))
    )
    statement = f"--statement={finished / 'public' / 'privacy.json'}"
    require_refused_or_served(
        ["ledger", "verify", f"--ledger={here / 'ledger.sqlite'}", statement], here
    )
    words = [
        "label",
        f"--votes={place / 'votes.npz'}",
        f"--ledger={here / 'ledger.sqlite'}",
        f"--run={here / 'run'}",
    ]
    require_refused_or_served([*words, *LABEL], here)


@TRIED
@given(data=st.data())
def test_statements(data: st.DataObject, finished: Path, folder: New) -> None:
    here = folder()
    public = finished / "public"
    shutil.copy(public / "labels.npz", here)
    name = data.draw(st.sampled_from(["privacy.json", "labels.npz"]))
    damage = damaged_json if name == "privacy.json" else damaged_npz
    shutil.copy(public / "privacy.json", here)
    (here / name).write_bytes(data.draw(damage((public / name).read_bytes())))
    ledger = f"--ledger={finished.parent / 'data.ledger.sqlite'}"
    require_refused_or_served(
        ["ledger", "verify", ledger, f"--statement={here / 'privacy.json'}"], here
    )
