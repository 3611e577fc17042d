"""A finished run of two releases, the second of which corrects a student."""

from pathlib import Path

import pytest

from pate import cli
from tests.labeling.stages.test_corrections import WORDS, warm_recipe


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place with data, a recipe and a finished run of both releases; not to be written to."""
    place = tmp_path_factory.mktemp("warm")
    folder = warm_recipe(place)
    assert cli.main(["run", str(folder), f"--run={place / 'run'}", *WORDS]) == 0
    return place
