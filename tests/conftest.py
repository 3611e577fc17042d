"""Small data sets, and one finished run that tests read."""

import atexit
import gc
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate import cli
from pate.accounting import Ledger, read_ledger
from tests.processes import start

__all__ = ["start"]

# virtual machines may announce AMX, have none and end the process at the first product of bfloat16
# matrices
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# files of tests are in memory where it has room: whatever is safe on a disk waits for it
MEMORY = Path("/dev/shm")
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 2**31:
    os.environ.setdefault("TMPDIR", str(MEMORY))
    tempfile.tempdir = None  # pytest has looked it up

Write = Callable[..., Path]

# where the tests of whole commands are, which take longest
SLOW_PLACES = {"stages", "commands", "runs", "teachers", "test_docs.py"}


@cache
def _declared(path: tuple[str, ...], group: str) -> EntryPoints:
    return entry_points(group=group)


def _entry_points(*, group: str) -> EntryPoints:
    return _declared(tuple(sys.path), group)


# modules that look through all installed packages, whenever an aggregator is named or a trainer
# made
SCANS_ENTRY_POINTS = (
    "pate._labeling.aggregators.base",
    "pate._core.mechanisms.base",
    "lightning_fabric.utilities.registry",
)
# what follows from a class, its docstring or an installed package alone, and is looked up anew for
# each command line and statement
DERIVED = (
    ("pate._labeling.release.labels", "version"),
    ("docstring_parser", "parse"),
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests with the garbage collector off, and keep what they import out of all later collections.

    Entry points are read once for each `sys.path`, and what is `DERIVED` once for each class.
    """
    gc.disable()
    try:
        yield
    finally:
        for name in SCANS_ENTRY_POINTS:
            if name in sys.modules:
                sys.modules[name].entry_points = _entry_points  # type: ignore[attr-defined]
        for module, name in DERIVED:
            if module in sys.modules:
                setattr(sys.modules[module], name, cache(getattr(sys.modules[module], name)))
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)  # tests leave little garbage, and much that they share
        # at exit, or libraries would report imported objects as leaked; pytest collects before that
        atexit.register(gc.unfreeze)
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Collect what tests left, so that pytest, which now does so five times, finds nothing to go through."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of an expensive fixture first and together, so that one process makes it, then the slow tests.

    So no process is left with a slow test at the end.
    """

    def place(item: pytest.Item) -> int:
        fixtures = getattr(item, "fixturenames", ())
        for order, fixture in enumerate(("start", "finished", "rendered")):
            if fixture in fixtures:
                return order
        return 3 if SLOW_PLACES.isdisjoint(item.path.parts) else 2

    items.sort(key=place)


def write_faces(folder: Path, **settings: Any) -> None:
    """Draw faces into a folder in CelebA's format; skip the test if the lab, which draws them, is deleted."""
    drawing = pytest.importorskip("pate.lab.faces.drawing")
    drawing.write_celeba_folder(folder, progress=False, **settings)


LAB = {"account", "audit", "faces", "frontier", "plan", "report", "silo"}
"""The commands of the lab, by their first words."""


def needs_zone_of(words: Sequence[str]) -> None:
    """Skip the test of a command whose zone is deleted."""
    if words and words[0] in LAB:
        pytest.importorskip("pate.lab")


@pytest.fixture(scope="session")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 300 faces in CelebA's format."""
    folder = tmp_path_factory.mktemp("faces") / "faces"
    write_faces(folder, num=300, private_fraction=0.6, public_fraction=0.2)
    return folder


def make_arrays(num: int = 600, *, seed: int = 0) -> dict[str, np.ndarray]:
    """Make an easy task: four labels that are the signs of four of six features."""
    generator = np.random.default_rng(seed)
    features = generator.standard_normal((num, 6)).astype(np.float32)
    labels = (features[:, :4] > np.array([0.0, 0.5, 0.0, -0.5])).astype(np.uint8)
    split = np.repeat([0, 1, 2], [num * 2 // 3, num // 6, num - num * 2 // 3 - num // 6])
    ids, names = np.char.mod("r%04d", np.arange(num)), np.array(["a", "b", "c", "d"])
    return {"X": features, "Y": labels, "ids": ids, "split": split, "label_names": names}


@pytest.fixture
def write_arrays(tmp_path: Path) -> Write:
    """Write an ``.npz``, with changes to what `make_arrays` makes."""

    def write(name: str = "data.npz", **changes: np.ndarray) -> Path:
        path = tmp_path / name
        np.savez(path, **(make_arrays() | changes))  # type: ignore[arg-type]
        return path

    return write


def recipe(folder: Path, data: Path, *, steps: int = 20, chunk_size: int = 4) -> Path:
    """Write a recipe that runs in seconds; skip the test if networks, which its teachers are, are deleted."""
    pytest.importorskip("pate._networks.teachers.plan")
    folder.mkdir(parents=True)
    (folder / "data.yaml").write_text(
        f"data:\n  class_path: Arrays\n  init_args:\n    path: {data}\n"
    )
    (folder / "teachers.yaml").write_text(
        f"""network: models.Linear
num_teachers: 10
num_steps: {steps}
batch_size: 16
checkpoint_steps: 5
chunk_size: {chunk_size}
optimizer:
  class_path: Adam
  init_args:
    lr: 0.1
"""
    )
    (folder / "label.yaml").write_text(
        """aggregator:
  class_path: StableTopK
  init_args:
    scale_gap: 1.0
    sigma_test: 0.5
    delta_test: 1.0e-6
num_queries: 80
delta: 0.001
"""
    )
    (folder / "student.yaml").write_text(
        """model:
  network: models.Linear
"""
    )
    return folder


DESCENT = """model:
  network:
    class_path: pate.models.MLP
    init_args:
      hidden: []
  optimizer:
    class_path: Adam
    init_args:
      lr: 0.05
data:
  batch_size: 8
trainer:
  max_epochs: 6
  accelerator: cpu
  log_every_n_steps: 1
  enable_progress_bar: false
  enable_model_summary: false
"""
"""The settings of a student with one linear layer that is trained by descent."""


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run, with seeded noise, references and predictions; not to be
    written to."""
    place = tmp_path_factory.mktemp("finished")
    data = place / "data.npz"
    np.savez(data, **make_arrays())  # type: ignore[arg-type]
    folder = recipe(place / "recipe", data)
    root = place / "run"
    # the same teachers in every session: no figure of the run is left to chance
    (root / "private").mkdir(parents=True, mode=0o700)
    (root / "private" / "partition.json").write_text(json.dumps({"key": "5e" * 32}))
    assert (
        cli.main(["run", str(folder), "--run", str(root), "--references", "--label.noise_seed=3"])
        == 0
    )
    assert cli.main(["student", "predict", "--run", str(root)]) == 0
    return root


def copy_run(root: Path, copy: Path) -> Path:
    """Copy a run into one that may be written to, with a ledger of its own that says what the
    other's says."""
    shutil.copytree(root, copy)
    lines = (copy / "data.yaml").read_text().splitlines()
    ledger_of_run = next(
        line.removeprefix("ledger: ") for line in lines if line.startswith("ledger: ")
    )
    ledger_of_run = str(root / "ledger.sqlite") if ledger_of_run == "null" else ledger_of_run
    lines_of_copy = ["ledger: null" if line.startswith("ledger:") else line for line in lines]
    (copy / "data.yaml").write_text("\n".join(lines_of_copy) + "\n")
    (copy / "ledger.sqlite").unlink(missing_ok=True)  # that of a run alone is in its folder
    ledger = Ledger(copy / "ledger.sqlite")
    for entry in read_ledger(Path(ledger_of_run)).entries:
        release = ledger.reserve(
            entry.events,
            count=entry.count,
            run=entry.run,
            description=entry.description,
            seeded=entry.seeded,
            privacy_unit=entry.privacy_unit,
        )
        if entry.settled:
            ledger.settle(release, realised=entry.realised)
    return copy


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run that a test may write to."""
    return copy_run(finished, tmp_path / "run")
