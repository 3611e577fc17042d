"""Damaged files of every kind that a user hands in: one line and status 2, nothing spent, nothing left half-made.

A file may be damaged and still mean something, in which case the command does what it means. Each
kind is damaged in its bytes, or cut off.
"""

import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZIP_STORED, ZipFile

import numpy as np
import pytest
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


@st.composite
def damaged_npz(draw: st.DrawFn, content: bytes) -> bytes:
    """An archive that is damaged in its bytes, or in those of one member, whose checksum is right."""
    if draw(st.booleans()):
        return draw(damaged_bytes(content))
    buffer = io.BytesIO()
    with ZipFile(io.BytesIO(content)) as old, ZipFile(buffer, "w", ZIP_STORED) as new:
        damaged = draw(st.sampled_from(old.namelist()))
        for name in old.namelist():
            # most of the damage to headers
            member = old.read(name)
            head = draw(damaged_bytes(member[:140])) + member[140:] if name == damaged else member
            new.writestr(name, head)
    return buffer.getvalue()


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


def put(draw: Any, here: Path, whole: Path) -> Path:
    """Write a damaged copy of a file, and return where it is."""
    made = here / whole.name
    damage = damaged_npz if whole.suffix == ".npz" else damaged_bytes
    made.write_bytes(draw(damage(whole.read_bytes())))
    return made


def of_votes(draw: Any, here: Path, place: Path, finished: Path) -> Iterator[list[str]]:
    yield ["label", f"--votes={put(draw, here, place / 'votes.npz')}", *LABEL]


def of_labels(draw: Any, here: Path, place: Path, finished: Path) -> Iterator[list[str]]:
    settings = put(draw, here, place / "recipe" / "label.yaml")
    ledger = f"--ledger={here / 'ledger.sqlite'}"
    yield ["label", f"--votes={place / 'votes.npz'}", ledger, f"--config={settings}"]


def of_teachers(draw: Any, here: Path, place: Path, finished: Path) -> Iterator[list[str]]:
    files = {name: place / "recipe" / name for name in ("data.yaml", "teachers.yaml")}
    name = draw(st.sampled_from(sorted(files)))
    files[name] = put(draw, here, files[name])
    yield ["teachers", "fit", *(f"--config={path}" for path in files.values()), "--dry_run"]


def of_arrays(draw: Any, here: Path, place: Path, finished: Path) -> Iterator[list[str]]:
    arrays = put(draw, here, place / "data.npz")
    settings = f"--config={place / 'recipe' / 'teachers.yaml'}"
    yield ["teachers", "fit", "--data=Arrays", f"--data.path={arrays}", settings, "--dry_run"]


def of_models(draw: Any, here: Path, place: Path, finished: Path) -> Iterator[list[str]]:
    model = here / "model"
    shutil.copytree(finished / "public" / "student" / "model", model)
    whole = draw(st.sampled_from(sorted(model.iterdir())))
    put(draw, model, whole)
    np.savez(here / "new.npz", X=np.zeros((3, 6)))
    yield [
        "predict",
        str(model),
        str(here / "new.npz"),
        f"--output={here / 'p.csv'}",
        "--overwrite",
    ]


def of_samples(draw: Any, here: Path, place: Path, finished: Path) -> Iterator[list[str]]:
    samples = put(draw, here, place / "new.npz")
    model = finished / "public" / "student" / "model"
    yield ["predict", str(model), str(samples), f"--output={here / 'p.csv'}", "--overwrite"]


def of_ledgers(draw: Any, here: Path, place: Path, finished: Path) -> Iterator[list[str]]:
    ledger = put(draw, here, finished.parent / "data.ledger.sqlite")
    yield ["verify", str(finished / "public" / "privacy.json"), f"--ledger={ledger}"]
    yield ["label", f"--votes={place / 'votes.npz'}", f"--ledger={ledger}", *LABEL]


def of_statements(draw: Any, here: Path, place: Path, finished: Path) -> Iterator[list[str]]:
    names = ("labels.npz", "privacy.json")
    for name in names:
        shutil.copy(finished / "public" / name, here)
    put(draw, here, finished / "public" / draw(st.sampled_from(names)))
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
