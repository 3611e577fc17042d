"""One finished run whose teachers are networks, in place of the one from votes."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import STABLE, finish, make_arrays, recipe as linear_recipe


def recipe(folder: Path, data: Path, *, steps: int = 20, chunk_size: int = 4) -> Path:
    """Write a recipe of ten networks that runs in seconds."""
    linear_recipe(folder, data)
    (folder / "teachers.yaml").write_text(
        f"""network: models.Linear
num_teachers: 10
num_steps: {steps}
batch_size: 16
checkpoint_steps: 5
chunk_size: {chunk_size}
optimizer: {{class_path: Adam, init_args: {{lr: 0.1}}}}
"""
    )
    (folder / "label.yaml").write_text(STABLE)
    return folder


DESCENT = """model:
  network: {class_path: pate.models.MLP, init_args: {hidden: []}}
  optimizer: {class_path: Adam, init_args: {lr: 0.05}}
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


@cache
def _finished_in(place: Path) -> Path:
    """Return the folder of one run, for all modules that import the fixture."""
    place.mkdir()
    np.savez(place / "data.npz", **make_arrays())  # type: ignore[arg-type]
    return finish(recipe(place / "recipe", place / "data.npz"))


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run, with seeded noise; not to be written to."""
    return _finished_in(tmp_path_factory.getbasetemp() / "finished")
