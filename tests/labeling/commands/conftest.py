"""A finished run by `pate run`, whose records voted for themselves, in place of the one from votes."""

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import finish, make_arrays, recipe


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run, with seeded noise; not to be written to."""
    place = tmp_path_factory.mktemp("finished")
    np.savez(place / "data.npz", **make_arrays())  # type: ignore[arg-type]
    return finish(recipe(place / "recipe", place / "data.npz"))
