"""What `pip install` brings: a wheel that is built from the checkout, outside the checkout."""

import csv
import os
import shutil
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
    assert "pate run recipes/mine" in page and "](" not in page and "<img" not in page


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
        "from pate._labeling.commands.shipped import find_recipe, Path\n"
        f"assert pate.__file__.startswith({str(tmp_path)!r}), pate.__file__\n"
        "assert main(['init', 'mine', '--kind', 'npz', '--data', 'data.npz']) == 0\n"
        "assert find_recipe(Path('mine')) == Path('mine')\n"
        "print(find_recipe(Path('faces')))\n"
    )
    out = outside([sys.executable, "-c", script], tmp_path, PYTHONPATH=str(tmp_path / "packages"))
    assert out.splitlines()[-1] == str(tmp_path / "packages" / "pate" / "recipes" / "faces")
    assert str(tmp_path / "data.npz") in (tmp_path / "mine" / "data.yaml").read_text()


@pytest.mark.slow
def test_a_new_environment_goes_from_a_recipe_to_predictions_and_a_report(
    wheel: Path, tmp_path: Path
) -> None:
    """With the dependencies of this environment lent to it, and the package from the wheel
    alone."""
    environment = tmp_path / "environment"
    outside([sys.executable, "-m", "venv", "--without-pip", environment], tmp_path)
    python = environment / "bin" / "python"
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python]
    outside([*pip, "install", "--quiet", "--no-deps", "--no-index", wheel], tmp_path)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = environment / "lib" / version / "site-packages"
    # a line in a .pth file adds a folder, but reads none of the .pth files in it: a checkout that
    # it names stays away
    (packages / "lent.pth").write_text(f"{Path(np.__file__).parents[1]}\n")
    command = environment / "bin" / "pate"
    where = outside(
        [python, "-c", "import pate, pate.models; print(pate.models.__file__)"], tmp_path
    )
    assert where.startswith(str(packages))
    sizes = ["--num=300", "--private_fraction=0.6", "--public_fraction=0.2"]
    drawn: list[str | Path] = ["-m", "scripts.faces", "--output", tmp_path / "data" / "faces"]
    outside([sys.executable, *drawn, *sizes], ROOT)
    words = [
        *("--teachers.num_teachers=12", "--label.target_epsilon=1e5"),
        "--data.init_args.size=12",
    ]
    out = outside([command, "run", "faces", *words], tmp_path)
    assert "private student" in out
    assert "data/faces/ledger.sqlite (of the private data)" in out
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    outside([command, "student", "test", "--run", "../runs/faces"], elsewhere)
    # what a stranger goes on with: the student alone, on pictures of his own, then one page on all
    # of it
    shutil.copytree(
        tmp_path / "runs" / "faces" / "public" / "student" / "model", elsewhere / "model"
    )
    pictures = elsewhere / "pictures"
    pictures.mkdir()
    for path in sorted((tmp_path / "data" / "faces" / "img_align_celeba").iterdir())[:3]:
        shutil.copy(path, pictures)
    outside([command, "predict", "model", "pictures"], elsewhere)
    rows = list(csv.reader((elsewhere / "predictions.csv").read_text().splitlines()))
    assert [row[0] for row in rows[1:]] == sorted(path.name for path in pictures.iterdir())
    assert "Smiling" in rows[0] and {value for row in rows[1:] for value in row[1:]} <= {"0", "1"}
    outside(
        [command, "export", "model", "--format=torch.export", "--output=student.pt2"], elsewhere
    )
    assert (elsewhere / "student.pt2").stat().st_size > 1000
    outside([command, "report", "../runs/faces"], elsewhere)
    page = (tmp_path / "runs" / "faces" / "public" / "report.html").read_text()
    assert "<html" in page and "REPLACE_RECORD" in page and str(ROOT) not in page
