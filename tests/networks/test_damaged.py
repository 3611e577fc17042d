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
    kind = draw(st.sampled_from(["type", "shape", "value", "repeat"]))
    if kind == "type":
        name = draw(st.sampled_from(["f2", "f8", "c16", "i1", "u8", "?", "S3", "U0", "O", "i4,f8"]))
        try:
            return array.astype(name)
        except (ValueError, TypeError):
            return np.zeros(array.shape, dtype=name)
    if kind == "shape" or not array.size:
        first = np.atleast_1d(array)
        rows = first[: draw(st.integers(0, len(first)))]
        shapes = [array[None], array[..., None], array.ravel(), first.ravel()[:1], rows, array.T]
        return np.asarray(draw(st.sampled_from(shapes)))
    flat = array.ravel().astype(array.dtype if array.dtype.kind == "U" else np.float64)
    odd = ["", "\x00", "é"] if array.dtype.kind == "U" else [np.nan, np.inf, -1.0, 0.5, 1e300]
    where = draw(st.integers(0, flat.size - 1))
    flat[where] = flat[0] if kind == "repeat" else draw(st.sampled_from(odd))
    return flat.reshape(array.shape)


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
    np.savez(folder / "new.npz", X=np.zeros((3, 6)), ids=np.array(["a", "b", "c"]))
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


def put(draw: Any, here: Path, whole: Path, damage: Callable[[bytes], Any]) -> Path:
    """Write a damaged copy of a file, and return where it is."""
    made = here / whole.name
    made.write_bytes(draw(damage(whole.read_bytes())))
    return made


def of_votes(draw: Any, here: Path, place: Path, finished: Path) -> Iterator[list[str]]:
    yield ["label", f"--votes={put(draw, here, place / 'votes.npz', damaged_npz)}", *LABEL]


def of_labels(draw: Any, here: Path, place: Path, finished: Path) -> Iterator[list[str]]:
    settings = put(draw, here, place / "recipe" / "label.yaml", damaged_yaml)
    ledger = f"--ledger={here / 'ledger.sqlite'}"
    yield ["label", f"--votes={place / 'votes.npz'}", ledger, f"--config={settings}"]


def of_teachers(draw: Any, here: Path, place: Path, finished: Path) -> Iterator[list[str]]:
    files = {name: place / "recipe" / name for name in ("data.yaml", "teachers.yaml")}
    name = draw(st.sampled_from(sorted(files)))
    files[name] = put(draw, here, files[name], damaged_yaml)
    yield ["teachers", "fit", *(f"--config={path}" for path in files.values()), "--dry_run"]


def of_arrays(draw: Any, here: Path, place: Path, finished: Path) -> Iterator[list[str]]:
    arrays = put(draw, here, place / "data.npz", damaged_npz)
    settings = f"--config={place / 'recipe' / 'teachers.yaml'}"
    yield ["teachers", "fit", "--data=Arrays", f"--data.path={arrays}", settings, "--dry_run"]


def of_models(draw: Any, here: Path, place: Path, finished: Path) -> Iterator[list[str]]:
    model = here / "model"
    shutil.copytree(finished / "public" / "student" / "model", model)
    whole = draw(st.sampled_from(sorted(model.iterdir())))
    put(draw, model, whole, damaged_json if whole.suffix == ".json" else damaged_bytes)
    np.savez(here / "new.npz", X=np.zeros((3, 6)))
    yield ["predict", str(model), str(here / "new.npz"), f"--output={here / 'p.csv'}"]


def of_samples(draw: Any, here: Path, place: Path, finished: Path) -> Iterator[list[str]]:
    samples = put(draw, here, place / "new.npz", damaged_npz)
    model = finished / "public" / "student" / "model"
    yield ["predict", str(model), str(samples), f"--output={here / 'p.csv'}"]


def of_ledgers(draw: Any, here: Path, place: Path, finished: Path) -> Iterator[list[str]]:
    ledger = here / "ledger.sqlite"
    ledger.write_bytes(draw(damaged_ledger(finished.parent / "data.ledger.sqlite")))
    yield ["verify", str(finished / "public" / "privacy.json"), f"--ledger={ledger}"]
    yield ["label", f"--votes={place / 'votes.npz'}", f"--ledger={ledger}", *LABEL]


def of_statements(draw: Any, here: Path, place: Path, finished: Path) -> Iterator[list[str]]:
    damages: dict[str, Any] = {"privacy.json": damaged_json, "labels.npz": damaged_npz}
    for name in damages:
        shutil.copy(finished / "public" / name, here)
    name = draw(st.sampled_from(sorted(damages)))
    put(draw, here, finished / "public" / name, damages[name])
    ledger = f"--ledger={finished.parent / 'data.ledger.sqlite'}"
    yield ["verify", str(here / "privacy.json"), ledger]


KINDS = (
    *(of_votes, of_labels, of_teachers, of_arrays),
    *(of_models, of_samples, of_ledgers, of_statements),
)


@pytest.mark.parametrize("kind", KINDS)
@TRIED
@given(data=st.data())
def test_what_is_damaged_is_refused_or_served(
    kind: Any, data: st.DataObject, place: Path, finished: Path, folder: New
) -> None:
    here = folder()
    for words in kind(data.draw, here, place, finished):
        run = [] if words[0] in ("predict", "ledger") else [f"--run={here / 'run'}"]
        require_refused_or_served([*words, *run], here)
