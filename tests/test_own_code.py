"""A working directory that a stranger filled runs nothing; `--code` names a folder of one's own.

Modules that must not run have the names of all modules of Python and of its packages, and of some
that are not installed. Each leaves its name in a file and raises.
"""

import json
import pkgutil
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pate import cli
from pate._labeling.commands.table import commands
from tests.conftest import copy_run, made_votes, make_arrays
from tests.lab.silos.exchanges import Hospitals
from tests.networks.conftest import finished as finished, recipe

NOT_INSTALLED = (
    "pate_plugin",
    "omegaconf",
    "pydantic",
    "tensorboardX",
    "triton",
    "sitecustomize",
    "usercustomize",
)
# `python -m` imports these before the first line of what it is to run
OF_PYTHON = "import runpy, sys; print(*sys.modules)"
LABEL = "--aggregator NoisyVotes --aggregator.sigma_votes 2 --num_queries 20 --delta 1e-3"
PANEL = "--num_queries 10 --delta 1e-5 --num_teachers 90 --num_labels 3"


@dataclass(frozen=True)
class Case:
    """A command in the folder of its input.

    Attributes:
        folder: where it runs; ``empty`` if it has no input.
        words: its arguments.
        codes: how it may end.
        quick: whether it takes less than some seconds once all is imported.
    """

    folder: str
    words: str
    codes: tuple[int, ...] = (0,)
    quick: bool = True


CASES = {
    "fit": Case("empty", "../data.npz --epsilon 1e5 --run ../made", quick=False),
    "run": Case("recipe", ". --run ../made", quick=False),
    "init": Case("empty", "mine --kind npz"),
    "plugin new": Case("empty", "NoisyMean"),
    "teachers fit": Case(
        "recipe", "--config data.yaml --config teachers.yaml --run ../made --workers 2", quick=False
    ),
    "teachers vote": Case("run", "--run .", quick=False),
    "label": Case("votes", f"--votes votes.npz --run ../made {LABEL}"),
    "silo key": Case("empty", "north.pem north.pub"),
    "silo": Case(
        "silos/exchange",
        ". --name north --votes {votes} --state ../north/private --signing_key ../north/silo.pem --public_keys ../keys"
        " --max_epsilon 9 --delta 1e-6 --wait 0",
    ),
    "student fit": Case("run", "--run . --config ../recipe/student.yaml", quick=False),
    "student test": Case("run", "--run .", quick=False),
    "predict": Case(
        "run/public/student/model", ". ../../../../new.npz --output ../../../../answers.csv"
    ),
    "export": Case(
        "run/public/student/model",
        ". --format torch.export --output ../../../../s.pt2",
        quick=False,
    ),
    "report": Case("stated", "."),
    "audit": Case("recipe", "../closed --output ../audited --canaries 8", quick=False),
    "account": Case("empty", f"--aggregator NoisyVotes --aggregator.sigma_votes 9 {PANEL}"),
    "ledger show": Case("stated", "ledger.sqlite"),
    "verify": Case("stated", "."),
    "study": Case(
        "empty",
        "--mechanisms [Peeling] --k [1] --epsilons [4] --seeds 1"
        " --simulate '[{{num_items: 3, top: 40}}]'",
        quick=False,
    ),
}


def test_every_command_is_tried() -> None:
    assert CASES.keys() == commands().keys()


@dataclass(frozen=True)
class Place:
    """Input of every command.

    Attributes:
        folder: where all is.
        words: arguments by command.
    """

    folder: Path
    words: dict[str, list[str]]

    @property
    def marker(self) -> Path:
        """The file in which a module leaves its name that must not run."""
        return self.folder / "ran"

    def run(self, name: str, *start: str, without: Iterable[str] = ()) -> None:
        """Run a command in the folder of its input, with modules that must not run, in a new
        interpreter."""
        folder = self.folder / CASES[name].folder
        fill(folder, self.marker, without=without)
        done = subprocess.run(
            [*start, *name.split(), *self.words[name]], cwd=folder, capture_output=True, text=True
        )
        assert done.returncode in CASES[name].codes, done.stderr[-3000:]
        assert not self.marker.exists(), self.marker.read_text()


def fill(folder: Path, marker: Path, *, without: Iterable[str] = ()) -> None:
    """Fill a folder with modules that must not run, and with a package that offers one as a
    plug-in."""
    names = {
        *sys.stdlib_module_names,
        *NOT_INSTALLED,
        *(module.name for module in pkgutil.iter_modules()),
    }
    for name in names - {"__main__", *without}:
        lines = [
            f"with open({str(marker)!r}, 'a') as file:",
            f"    file.write('{name} ')",
            "raise ImportError",
        ]
        (folder / f"{name}.py").write_text("\n".join(lines))
    package = folder / "stranger-1.0.dist-info"
    package.mkdir(exist_ok=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        "[pate.aggregators]\nStranger = pate_plugin:Stranger\n"
    )


@pytest.fixture
def place(finished: Path, tmp_path: Path) -> Place:
    pytest.importorskip("Crypto")
    copy_run(finished, tmp_path / "run")
    # its statement is that of its ledger, byte for byte, which may be read alone
    stated = tmp_path / "stated"
    shutil.copytree(finished, stated)
    shutil.copy(finished.parent / "data.ledger.sqlite", stated / "ledger.sqlite")
    lines = (stated / "data.yaml").read_text().splitlines()
    lines = ["ledger: null" if line.startswith("ledger:") else line for line in lines]
    (stated / "data.yaml").write_text("\n".join(lines) + "\n")
    for name in ("empty", "votes"):
        (tmp_path / name).mkdir()
    made_votes().save(tmp_path / "votes" / "votes.npz")
    np.savez(tmp_path / "data.npz", **make_arrays())  # type: ignore[arg-type]
    np.savez(tmp_path / "new.npz", X=np.zeros((3, 6), dtype=np.float32))
    recipe(tmp_path / "recipe", tmp_path / "data.npz")
    shutil.copytree(tmp_path / "recipe", tmp_path / "closed")
    (tmp_path / "closed" / "teachers.yaml").write_text("fit: closed_form\n")
    (tmp_path / "closed" / "label.yaml").write_text(
        "aggregator: ScoreVotes\ntarget_epsilon: 4\ndelta: 1.0e-3\n"
    )
    hospitals = Hospitals(tmp_path / "silos")
    named = {"votes": str(hospitals.votes("north"))}
    words = {name: shlex.split(case.words.format(**named)) for name, case in CASES.items()}
    return Place(tmp_path, words)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CASES))
def test_no_command_runs_anything_of_a_stranger(name: str, place: Place) -> None:
    place.run(name, str(Path(sys.executable).with_name("pate")))


def through_python(place: Place, name: str) -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", OF_PYTHON], capture_output=True, text=True, check=True
    ).stdout
    place.run(name, sys.executable, "-m", "pate", without=("pate", *loaded.split()))


def test_an_account_by_python_m_pate_runs_nothing_of_a_stranger(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    place = Place(tmp_path, {"account": shlex.split(CASES["account"].words)})
    through_python(place, "account")


MINE = """
from dataclasses import dataclass

import numpy as np
from torch import nn

from agreed import half
from pate.aggregators import NoisyVotes
from pate.data import Arrays, FeatureMap


class Halved(FeatureMap):
    def fit(self, public):
        return self

    def transform(self, features):
        return features[np.arange(features.shape[0])] * half()


class Table(Arrays):
    pass


@dataclass(frozen=True, kw_only=True)
class Mine(NoisyVotes):
    pass


class Net(nn.Module):
    def __init__(self, input_shape, num_labels):
        super().__init__()
        self.layer = nn.Linear(input_shape[0], num_labels)

    def forward(self, features):
        from late import doubled

        return doubled(self.layer(features))


class Wide(Net):
    def __init__(self, num_classes, width, shape):
        assert width == 16
        super().__init__(shape, num_classes)
"""


OWN = {"teachers": "mine.Net", "student": "{class_path: mine.Wide, init_args: {width: 16}}"}


def write_own(folder: Path) -> None:
    """Write a recipe whose classes are modules of the folder, which import others, one of them
    late."""
    (folder / "mine.py").write_text(MINE)
    (folder / "agreed.py").write_text("def half():\n    return 0.5\n")
    (folder / "late.py").write_text("def doubled(values):\n    return 2 * values\n")
    np.savez(folder / "data.npz", **make_arrays())  # type: ignore[arg-type]
    path = recipe(folder / "recipe", folder / "data.npz")
    (path / "data.yaml").write_text(
        "data:\n  class_path: mine.Table\n  init_args:\n    path: data.npz\n    features: mine.Halved\n"
    )
    for part in ("teachers", "student"):
        text = (path / f"{part}.yaml").read_text().replace("models.Linear", OWN[part])
        (path / f"{part}.yaml").write_text(text)
    (path / "label.yaml").write_text(
        "aggregator:\n  class_path: mine.Mine\n  init_args:\n    sigma_votes: 1.0\nnum_queries: 80\ndelta: 0.001\n"
    )


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    write_own(tmp_path)
    yield tmp_path
    for name in ("mine", "agreed", "late"):
        sys.modules.pop(name, None)


def test_a_folder_behind_code_has_the_classes_of_a_recipe(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And what they import, also late, during the command alone."""
    before = list(sys.path)
    assert cli.main(["run", "recipe", "--run", "run", "--dry_run", "--code", "."]) == 0
    assert "Labels of 80 public samples by Mine" in capsys.readouterr().out
    assert sys.path == before and "late" in sys.modules


def test_a_model_names_no_module_that_lies_there(
    finished: Path, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = own / "model"
    shutil.copytree(finished / "public" / "student" / "model", model)
    said = json.loads((model / "model.json").read_text())
    (model / "model.json").write_text(json.dumps(said | {"network": "mine.Net"}))
    np.savez("new.npz", X=np.zeros((3, 6), dtype=np.float32))
    for code in ([], ["--code", "."]):
        assert cli.main(["predict", "model", "new.npz", *code]) == 2
        assert (
            "or --trust, with which other code runs, got class_path='mine.Net'"
            in capsys.readouterr().err
        )
    assert cli.main(["predict", "model", "new.npz", "--trust"]) == 2
    assert "or name its folder by --code or PYTHONPATH" in capsys.readouterr().err
    assert "mine" not in sys.modules
    # its own state is no state of this network
    assert cli.main(["predict", "model", "new.npz", "--trust", "--code", "."]) == 2
    assert "Expected the layers that" in capsys.readouterr().err and "mine" in sys.modules


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["loky", "ray"])
def test_workers_find_the_modules_of_a_folder_and_run_nothing_of_a_stranger(
    executor: str, tmp_path: Path
) -> None:
    pytest.importorskip("ray")
    write_own(tmp_path)
    (tmp_path / "code").mkdir()
    for name in ("mine", "agreed", "late"):
        (tmp_path / f"{name}.py").rename(tmp_path / "code" / f"{name}.py")
    fill(tmp_path, tmp_path / "ran")
    command = [str(Path(sys.executable).with_name("pate")), "run", "recipe", "--run", "run"]
    command += ["--code", "code"]
    workers = [f"--teachers.executor={executor}", "--teachers.workers=2"]
    done = subprocess.run([*command, *workers], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
    model = json.loads((tmp_path / "run" / "public" / "student" / "metrics.json").read_text())
    assert model["student"]
