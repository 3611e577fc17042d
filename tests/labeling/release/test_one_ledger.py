"""One ledger for the same records: whichever path names them, a budget is spent once."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

from pate import NamedVotes, cli
from pate.accounting import read_ledger
from tests.conftest import make_arrays, write_faces

Captured = pytest.CaptureFixture[str]
BUDGET = ("--max_epsilon=1", "--delta=1e-5")
PAID = ("--aggregator=NoisyVotes", "--target_epsilon=0.9", "--allow_few=true", *BUDGET)


def save_votes(path: Path, seed: int = 0) -> None:
    path.parent.mkdir(exist_ok=True)
    generator = np.random.default_rng(seed)
    ballots = generator.integers(0, 2, size=(20, 50, 2), dtype=np.uint8)
    NamedVotes(
        ids=np.char.mod("s%02d", np.arange(20)), label_names=("a", "b"), ballots=ballots
    ).save(path)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save_votes(Path("d/votes.npz"))
    return tmp_path


def label(votes: str, run: str, *words: str) -> int:
    return cli.main(["label", "--votes", votes, "--run", run, *PAID, *words])


def ledgers() -> dict[str, int]:
    """Return how many releases each ledger below the working directory holds."""
    return {str(path): len(read_ledger(path).entries) for path in sorted(Path().rglob("*.sqlite"))}


@pytest.mark.parametrize(
    "again",
    [
        "link",
        pytest.param("d/votes.npz", marks=pytest.mark.slow),
        pytest.param("file.npz", marks=pytest.mark.slow),
    ],
)
def test_a_folder_that_has_paid_pays_for_its_files(
    again: str, place: Path, capsys: Captured
) -> None:
    Path("link").symlink_to("d")
    Path("file.npz").symlink_to("d/votes.npz")
    assert label("d", "one") == 0
    assert label(again, "two") == 2
    assert "Expected epsilon <= 1" in capsys.readouterr().err
    assert ledgers() == {"d/ledger.sqlite": 1}
    # without a target beyond the budget it is the second release of these data, and says so
    small = [word.replace("0.9", "0.05") for word in PAID]
    assert cli.main(["label", "--votes", again, "--run", "two", *small, "--allow_few=true"]) == 0
    assert "The ledger of the private data holds 2 release(s)" in capsys.readouterr().out


def test_a_file_that_takes_the_place_of_another_does_not_take_its_budget(
    place: Path, capsys: Captured
) -> None:
    save_votes(Path("d/others.npz"), seed=1)
    assert label("d/votes.npz", "one") == 0 and label("d/others.npz", "two") == 0
    Path("d/votes.npz").rename("d/others.npz")
    assert label("d/others.npz", "three") == 2
    assert "without_data" in capsys.readouterr().err and set(ledgers().values()) == {1}


TWINS: dict[str, Callable[[str, str], object]] = {"copy": shutil.copy, "hard link": os.link}


@pytest.mark.parametrize(
    "twin",
    [
        pytest.param(each, marks=[pytest.mark.slow] if i >= 1 else [])
        for i, each in enumerate(TWINS)
    ],
)
def test_copies_and_hard_links_in_a_folder_spend_one_budget(
    twin: str, place: Path, capsys: Captured
) -> None:
    TWINS[twin]("d/votes.npz", "d/twin.npz")
    assert label("d/twin.npz", "one") == 0
    assert label("d/votes.npz", "two") == 2
    assert "Expected epsilon <= 1" in capsys.readouterr().err
    assert ledgers() == {"d/twin.ledger.sqlite": 1}


@pytest.mark.slow
def test_a_file_that_was_renamed_without_its_ledger_begins_no_new_one(
    place: Path, capsys: Captured
) -> None:
    assert label("d/votes.npz", "one") == 0
    Path("d/votes.npz").rename("d/renamed.npz")
    assert label("d/renamed.npz", "two") == 2
    assert f"without_data='{place}/d/votes.ledger.sqlite'" in capsys.readouterr().err
    Path("d/votes.ledger.sqlite").rename("d/renamed.ledger.sqlite")
    assert label("d/renamed.npz", "two") == 2
    assert "Expected epsilon <= 1" in capsys.readouterr().err and ledgers() == {
        "d/renamed.ledger.sqlite": 1
    }


class TestPictures:
    """A folder of pictures, and a table file in it."""

    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        write_faces(Path("faces"), num=60, private=36, public=12)
        np.savez("faces/table.npz", **make_arrays())  # type: ignore[arg-type]
        Path("teachers.yaml").write_text("fit: closed_form\nunit: record\n")
        return tmp_path

    @staticmethod
    def fit(kind: str, path: str, run: str) -> int:
        name = "root" if kind == "CelebA" else "path"
        Path("data.yaml").write_text(
            f"data:\n  class_path: {kind}\n  init_args:\n    {name}: {path}\n"
        )
        return cli.main(
            ["teachers", "fit", "--config=data.yaml", "--config=teachers.yaml", "--run", run]
        )

    def test_first_the_folder(self, folder: Path) -> None:
        assert self.fit("CelebA", "faces", "pictures") == 0
        assert self.fit("Arrays", "faces/table.npz", "table") == 0
        for run in ("pictures", "table"):
            assert yaml.safe_load(Path(run, "data.yaml").read_text())["ledger"] == str(
                folder / "faces/ledger.sqlite"
            )
        assert ledgers() == {"faces/ledger.sqlite": 0}

    def test_first_the_table(self, folder: Path, capsys: Captured) -> None:
        assert self.fit("Arrays", "faces/table.npz", "table") == 0
        assert self.fit("CelebA", "faces", "pictures") == 2
        line = capsys.readouterr().err.splitlines()[-1]
        assert (
            "faces/table.ledger.sqlite" in line
            and "--ledger" in line
            and ledgers() == {"faces/table.ledger.sqlite": 0}
        )
