"""Small data sets, and one finished run that tests read."""

import atexit
import gc
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pate import NamedVotes, cli
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


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests with the garbage collector off, and keep what they import out of all later collections."""
    gc.disable()
    try:
        yield
    finally:
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


# what a variant of a mechanism has in common with the class that its test inherits from
COMMON = {
    "test_a_fifth_less_noise_is_caught",
    "test_calibrated_noise_meets_a_target_and_hardly_more",
    "test_no_magnitude_drowns_the_noise",
    "test_queries_of_a_batch_are_independent",
    "test_rows_of_a_batch_are_independent",
    "test_one_query_at_a_time_follows_the_law",
    "test_single_rows_follow_the_law",
    "test_stated_accuracy_is_reached",
}


def repeats(item: pytest.Item) -> bool:
    """Return whether the class of a test inherits it from another class of tests."""
    above = getattr(item, "cls", None) or object
    inherits = any(each.__name__.startswith("Test") for each in above.__mro__[1:])
    return inherits and getattr(item, "originalname", "") in COMMON


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

    for item in items:
        if repeats(item):
            item.add_marker(pytest.mark.slow)
    items.sort(key=place)


ATTRIBUTES = ("Bald", "Male", "Mouth_Slightly_Open", "Smiling", "Young")


def write_faces(folder: Path, *, num: int, private: int, public: int) -> None:
    """Write pictures in CelebA's format: a band of each shows, in noise, each of its attributes."""
    generator = np.random.default_rng(0)
    values = generator.integers(2, size=(num, len(ATTRIBUTES)))
    heights = (7, 7, 6, 6, 6)
    roles = np.repeat([0, 1, 2], [private, public, num - private - public])
    names = [f"{number:06d}.jpg" for number in range(1, num + 1)]
    (folder / "img_align_celeba").mkdir(parents=True)
    for name, shown in zip(names, values, strict=True):
        bands = np.repeat(80 + 90 * shown, heights)[:, None, None]
        pixels = bands + generator.integers(-40, 40, size=(32, 32, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "img_align_celeba" / name)
    rows = [
        " ".join([name, *map(str, 2 * row - 1)]) for name, row in zip(names, values, strict=True)
    ]
    heading = [str(num), " ".join(ATTRIBUTES)]
    (folder / "list_attr_celeba.txt").write_text("\n".join([*heading, *rows]) + "\n")
    parts = [f"{name} {role}\n" for name, role in zip(names, roles, strict=True)]
    (folder / "list_eval_partition.txt").write_text("".join(parts))


@pytest.fixture(scope="session")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 300 pictures in CelebA's format."""
    folder = tmp_path_factory.mktemp("faces") / "faces"
    write_faces(folder, num=300, private=180, public=60)
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


def made_votes(num_teachers: int = 20, *, seed: int = 1) -> NamedVotes:
    """Make teachers who give the public samples of `make_arrays` their labels, most of the time."""
    arrays = make_arrays()
    public = arrays["split"] == 1
    truth = arrays["Y"][public][:, None]
    right = np.random.default_rng(seed).random((len(truth), num_teachers, truth.shape[-1])) < 0.9
    ballots = np.where(right, truth, 1 - truth).astype(np.uint8)
    names = tuple(arrays["label_names"].tolist())
    return NamedVotes(ids=arrays["ids"][public], label_names=names, ballots=ballots)


STABLE = """aggregator:
  class_path: StableTopK
  init_args:
    scale_gap: 1.0
    sigma_test: 0.5
    delta_test: 1.0e-6
num_queries: 80
delta: 0.001
"""
"""The settings of a release by ten teachers, who vote by bits."""


def recipe(folder: Path, data: Path) -> Path:
    """Write a recipe that runs in a second: each record votes for itself, in closed form."""
    texts = {
        "data": f"data:\n  class_path: Arrays\n  init_args:\n    path: {data}\n",
        "teachers": "fit: closed_form\n",
        "label": "target_epsilon: 100\nnum_queries: 80\ndelta: 0.001\n",
        "student": "model:\n  network: models.Linear\n",
    }
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


def fix_key(root: Path) -> Path:
    """Give a run the same partition in every session: no figure of it is left to chance."""
    (root / "private").mkdir(parents=True, mode=0o700)
    (root / "private" / "partition.json").write_text(json.dumps({"key": "5e" * 32}))
    return root


def finish(recipe: Path) -> Path:
    """Run a recipe with seeded noise."""
    root = fix_key(recipe.with_name("run"))
    words = ["run", str(recipe), "--run", str(root), "--label.noise_seed=3"]
    assert cli.main(words) == 0
    return root


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run from the votes of ten teachers, with seeded noise;
    not to be written to."""
    place = tmp_path_factory.mktemp("finished")
    np.savez(place / "data.npz", **make_arrays())  # type: ignore[arg-type]
    made_votes(10).save(place / "data.votes.npz")
    folder = recipe(place / "recipe", place / "data.npz")
    (folder / "label.yaml").write_text(STABLE)
    root = fix_key(place / "run")
    words = [f"--votes={place}/data.votes.npz", f"--ledger={place}/data.ledger.sqlite"]
    words += [f"--config={folder}/{name}.yaml" for name in ("data", "label")]
    assert cli.main(["label", *words, f"--run={root}", "--noise_seed=3"]) == 0
    assert cli.main(["student", "fit", f"--config={folder}/student.yaml", f"--run={root}"]) == 0
    assert cli.main(["student", "test", f"--run={root}"]) == 0
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
