"""No values of a private record make a run fail, or say a word: docs/privacy.md lists those that are
no values of a record.

Numbers beyond float32 are clipped, pictures that cannot be read are black, and texts lose what no
model reads, by rules that look at the record alone.
"""

import csv
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import yaml
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

import pate
from pate._core.validation import as_float32
from pate._labeling.estimator import _FITS
from pate.data import Arrays, DataSource, NumberTable, PictureTable, Role
from tests.conftest import make_arrays, recipe
from tests.labeling.data.test_picture_table import write_pictures
from tests.processes import run_here

LARGEST = float(np.finfo(np.float32).max)
WIDE = (1e39, -1e39, 1e300, -1.7e308, LARGEST, 5e-324)


def test_only_finite_numbers_beyond_float32_are_clipped() -> None:
    given = np.array([*WIDE, np.inf, -np.inf, np.nan, 0.1])
    clipped = as_float32(given)
    assert clipped.dtype == np.float32
    most = [LARGEST, -LARGEST, LARGEST, -LARGEST, LARGEST, 0, np.inf, -np.inf, np.nan]
    np.testing.assert_array_equal(clipped, np.array([*most, 0.1], dtype=np.float32))
    np.testing.assert_array_equal(as_float32([10**40, 1]), np.array([LARGEST, 1], np.float32))
    same = np.ones(3, dtype=np.float32)
    assert as_float32(same) is same


# Sources


def of_arrays(folder: Path, value: float) -> DataSource:
    arrays = make_arrays(60)
    arrays["X"] = arrays["X"].astype(np.float64)
    arrays["X"][3] = value
    np.savez(folder / "data.npz", **arrays)  # type: ignore[arg-type]
    return Arrays(folder / "data.npz")


def of_numbers(folder: Path, value: object) -> DataSource:
    arrays = make_arrays(60)
    with (folder / "data.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "split", "label", "one", "two"])
        for row in range(60):
            one = value if row == 3 else float(arrays["X"][row, 0])
            writer.writerow(
                [arrays["ids"][row], arrays["split"][row], int(arrays["Y"][row, 0]), one, row % 7]
            )
    return NumberTable(folder / "data.csv", labels=["label"], fill="public")


@pytest.mark.parametrize("value", [1e39, -1.7e308, 5e-324])
@pytest.mark.parametrize("make", [of_arrays, of_numbers])
def test_numbers_of_all_sizes_are_read(
    make: Callable[[Path, float], DataSource], value: float, tmp_path: Path
) -> None:
    for name in ("plain", "extreme"):
        (tmp_path / name).mkdir()
    plain = make(tmp_path / "plain", 0.5).load(Role.PRIVATE)
    extreme = make(tmp_path / "extreme", value).load(Role.PRIVATE)
    before, after = (np.asarray(records.features) for records in (plain, extreme))
    assert np.isfinite(after).all() and np.abs(after[3]).max() in (LARGEST, after[3].max())
    others = np.arange(len(after)) != 3
    np.testing.assert_array_equal(before[others], after[others])


# Pictures


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:300])


def _of_floats(path: Path) -> None:
    Image.fromarray(np.full((9, 9), np.nan, dtype=np.float32)).save(path, "TIFF")


def _huge(path: Path) -> None:
    """A head that tells of 30,000 by 30,000 pixels."""
    content = bytearray(path.read_bytes())
    start = content.index(b"\xff\xc0")
    content[start + 5 : start + 9] = (30_000).to_bytes(2, "big") * 2
    path.write_bytes(bytes(content))


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "truncated": _truncated,
    "pipe": _pipe,
    "floats": _of_floats,
    "huge": _huge,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_private_picture_that_cannot_be_read_is_black(damage: str, tmp_path: Path) -> None:
    write_pictures(tmp_path / "pictures")
    source = PictureTable(tmp_path / "pictures", size=8)
    private = source.load(Role.PRIVATE).features
    before, identity = np.asarray(private), private.identity()
    DAMAGE[damage](tmp_path / "pictures" / "p03.jpg")
    records = PictureTable(tmp_path / "pictures", size=8).load(Role.PRIVATE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for features in (records.features, records.features.once()):
            after = np.asarray(features.select(np.arange(8)))
            assert not after[1].any()
            np.testing.assert_array_equal(np.delete(after, 1, axis=0), np.delete(before, 1, axis=0))
    assert records.features.identity() != identity


# Runs

PCA = {"class_path": "PublicPCA", "init_args": {"num_components": 4}}
CHAIN = {"maps": [PCA, {"class_path": "PublicScaling"}]}
CHAINED = {"class_path": "ChainedFeatures", "init_args": CHAIN}
MAPS = {"none": None, "PublicPCA": PCA, "AutoFeatures": "AutoFeatures", "ChainedFeatures": CHAINED}
TEACHERS = {
    "records": "fit: closed_form\n",
    "parts": "fit: closed_form\nnum_teachers: 10\n",
    "corrections": "fit: closed_form\nstart_from: first\nnum_teachers: 10\n",
}
slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("teachers", "features"),
    [
        pytest.param(teachers, name, marks=[] if (teachers, name) in FAST else [slow])
        for FAST in [{("records", "PublicPCA")}]
        for teachers in TEACHERS
        for name in MAPS
    ],
)
def test_runs_on_numbers_of_all_sizes(teachers: str, features: str, tmp_path: Path) -> None:
    """Four records of large numbers of both signs; warnings are errors."""
    arrays = make_arrays(300)
    arrays["X"] = arrays["X"].astype(np.float64)
    arrays["X"][:40:10] = np.resize([*WIDE, -LARGEST], (4, 6))
    np.savez(tmp_path / "data.npz", **arrays)  # type: ignore[arg-type]
    folder = recipe(tmp_path / "recipe", tmp_path / "data.npz")
    data = yaml.safe_load((folder / "data.yaml").read_text())
    if MAPS[features] is not None:
        data["data"]["init_args"]["features"] = MAPS[features]
        (folder / "data.yaml").write_text(yaml.safe_dump(data))
    words = ["--label.noise_seed=1", "--label.num_queries=20"]
    (folder / "teachers.yaml").write_text(TEACHERS[teachers])
    (folder / "label.yaml").write_text("target_epsilon: 50\ndelta: 0.001\n")
    ended = run_here("run", "recipe", "--run", "run", *words, folder=tmp_path)
    assert ended.code == 0, ended.err
    assert "arning" not in ended.err + ended.out
    statement = json.loads((tmp_path / "run" / "public" / "privacy.json").read_text())
    assert statement["guarantees"]["replace_record"]["epsilon"] > 0


# The estimator


@pytest.fixture(autouse=True)
def first_fit() -> None:
    """No fit of an earlier test counts."""
    _FITS.clear()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        pytest.param({"n_teachers": 20}, marks=slow),
        pytest.param({"n_teachers": 8, "teacher": LogisticRegression()}, marks=slow),
        pytest.param({"n_teachers": 8, "teacher": KNeighborsClassifier()}, marks=slow),
    ],
    ids=["records", "parts", "logistic", "neighbors"],
)
@pytest.mark.parametrize("sparse", [False, pytest.param(True, marks=slow)])
def test_a_classifier_on_numbers_of_all_sizes(settings: dict[str, Any], sparse: bool) -> None:
    arrays = make_arrays(300)
    X = arrays["X"].astype(np.float64)
    X[:40] = np.resize([*WIDE, -LARGEST], (40, 6))
    private: Any = X[:200]
    if sparse:
        private = scipy.sparse.csr_matrix(private)
        # an entry of its own, added to what is there
        private.data[private.indptr[3]] = private.data[private.indptr[3] + 1] = 1e308
        private.indices[private.indptr[3] : private.indptr[3] + 2] = 0
    classifier = pate.PateClassifier(epsilon=50.0, delta=1e-3, noise_seed=1, random_state=0)
    classifier.set_params(**settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="the release shows|most features|.*unlike")
        classifier.fit(private, arrays["Y"][:200], X_public=X[200:])
        assert classifier.predict(X[:40]).shape == (40, 4)
