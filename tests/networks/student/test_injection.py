"""A network student that is killed in the middle of a write has the weights of one that is not."""

import shutil
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest

from pate import cli
from pate._core.files.reading import digest
from pate._labeling.runs.run import STUDENT, Run
from tests.conftest import finish, make_arrays, recipe
from tests.injection import Case, Ended, Injector, injector, try_points
from tests.networks.conftest import DESCENT

FIT = ["student", "fit", "--config=student.yaml", "--run=run", "--trainer.max_epochs=3"]


def labeled(folder: Path) -> None:
    """Make a run with labels and without a student."""
    np.savez(folder / "data.npz", **make_arrays())  # type: ignore[arg-type]
    Run(finish(recipe(folder / "recipe", folder / "data.npz"))).clear(STUDENT)
    (folder / "student.yaml").write_text(DESCENT)


def fit(folder: Path) -> None:
    labeled(folder)
    with chdir(folder):
        assert cli.main([*FIT]) == 0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Injector]:
    with injector(tmp_path_factory.mktemp("injector"), f"{__name__}:fit") as server:
        yield server


def weights(place: Path, ended: Ended) -> str:
    """Return the digest of the weights."""
    return digest(place / "run" / "public" / "student" / "model" / "model.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["kill", "kill, torn or done", "EIO"])
def test_a_student_that_is_killed_has_the_weights_of_one_that_is_not(
    mode: str, run: Injector, tmp_path: Path
) -> None:
    before = tmp_path / "before"
    before.mkdir()
    labeled(before)
    case = Case(FIT, before, tmp_path / "place", weights, lambda place: True)
    assert try_points(run, case, [mode], most=30) == 30
    shutil.rmtree(case.place)
