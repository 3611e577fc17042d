"""What `pip install` brings: a wheel that is built from the checkout, outside the checkout."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import pate

pytestmark = pytest.mark.slow  # they build and install
ROOT = Path(pate.__file__).parents[1]
BUILD = "from hatchling.build import build_wheel; import sys; print(build_wheel(sys.argv[1]))"


def outside(command: list[str | Path], folder: Path, **extra: str) -> str:
    """Run a command in ``folder``, without what this process imports from, and return its
    output."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    done = subprocess.run(command, cwd=folder, env=kept | extra, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    name = outside([sys.executable, "-c", BUILD, folder], ROOT).split()[-1]
    return folder / name


def test_a_wheel_has_what_the_checkout_has(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    code = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "pate").rglob("*") if path.is_file()
    }
    recipes = {
        f"pate/recipes/{path.relative_to(ROOT / 'configs').as_posix()}"
        for path in ROOT.glob("configs/*/*")
    }
    assert names == {name for name in code if "__pycache__" not in name} | recipes
    assert "pate/_networks/models.py" in names and "pate/recipes/faces/data.yaml" in names


def test_its_page_needs_no_file_of_the_checkout(wheel: Path) -> None:
    """Pictures and links of the README lead to files that an index of packages does not have."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        page = archive.read(name).decode().partition("\n\n")[2]
    assert "pate fit stays.csv" in page and "](" not in page and "<img" not in page


@pytest.mark.slow
def test_commands_find_what_is_installed(wheel: Path, tmp_path: Path) -> None:
    """Unpacked beside the packages that it needs, in a folder that knows nothing of the
    checkout."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "packages")
    np.savez(
        tmp_path / "data.npz", X=np.zeros((30, 1)), Y=np.arange(30)[:, None] % 2, ids=np.arange(30)
    )
    script = (
        "import pate, sys\n"
        "from pate.cli import main\n"
        "from pate._labeling.commands.places import find_recipe, Path\n"
        f"assert pate.__file__.startswith({str(tmp_path)!r}), pate.__file__\n"
        "assert main(['init', 'mine', '--kind', 'npz', '--data', 'data.npz']) == 0\n"
        "assert find_recipe(Path('mine')) == Path('mine')\n"
        "print(find_recipe(Path('faces')))\n"
    )
    out = outside([sys.executable, "-c", script], tmp_path, PYTHONPATH=str(tmp_path / "packages"))
    assert out.splitlines()[-1] == str(tmp_path / "packages" / "pate" / "recipes" / "faces")
    assert str(tmp_path / "data.npz") in (tmp_path / "mine" / "data.yaml").read_text()
