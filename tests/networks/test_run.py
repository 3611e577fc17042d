"""`pate run` of networks: by scores, on pictures, and what is refused before any is trained."""

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from pate import cli
from tests.conftest import make_arrays
from tests.labeling.commands import test_run
from tests.labeling.commands.test_run import everything
from tests.labeling.stages import test_closed_form
from tests.labeling.stages.test_closed_form import RECORDS
from tests.networks.conftest import recipe


@pytest.mark.slow
def test_networks_vote_by_scores_in_a_whole_run(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = recipe(copied.parent / "recipe", copied.parent / "data.npz")
    np.savez(copied.parent / "data.npz", **make_arrays())  # type: ignore[arg-type]
    (folder / "label.yaml").write_text("target_epsilon: 50\ndelta: 0.001\n")
    words = [
        "run",
        str(folder),
        "--run",
        str(copied),
        "--ledger",
        str(copied / "ledger.sqlite"),
        "--overwrite",
    ]
    assert cli.main([*words, "--votes=scores"]) == 0
    assert (
        json.loads((copied / "private" / "votes" / "manifest.json").read_text())["ballots"]
        == "scores"
    )
    assert "ScoreVotes" in (copied / "public" / "label.yaml").read_text()
    # it is said once
    before = everything(copied / "public")
    assert cli.main(words) == 0
    assert everything(copied / "public") == before


def test_a_copied_folder_of_pictures_is_told_calmly(
    faces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = shutil.ignore_patterns("ledger*")  # of other tests' runs on these faces
    shutil.copytree(faces, tmp_path / "faces", copy_function=shutil.copy, ignore=own)  # new times
    words = [
        "teachers",
        "fit",
        "--network=models.Linear",
        "--num_teachers=3",
        "--num_steps=1",
        "--batch_size=4",
    ]
    words += [
        "--data=CelebA",
        f"--data.root={tmp_path}/faces",
        "--data.size=8",
        f"--run={tmp_path}/run",
    ]
    assert cli.main(words) == 0
    for picture in (tmp_path / "faces" / "img_align_celeba").iterdir():
        os.utime(picture)
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert (
        "got other private records (pictures are known by names, sizes and times: `cp -a` keeps"
        in error
    )
    assert "--overwrite" in error and len(error.splitlines()) == 1
    assert not re.search(r"[0-9a-f]{16}", error.replace(str(tmp_path), ""))


def student(
    *, data: str = "{}", trainer: str = "{}", optimize: str = "accuracy", **model: str
) -> dict[str, str]:
    """Return the file of a student's settings, written as YAML."""
    settings = ", ".join(
        f"{name}: {value}" for name, value in ({"network": "models.MLP"} | model).items()
    )
    return {
        "student.yaml": f"model: {{{settings}}}\ndata: {data}\ntrainer: {trainer}\noptimize: {optimize}\n"
    }


def test_a_slip_in_the_options_of_a_student_is_told(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--student.model.network=models.MLP", "--student.optimise=f1"]
    test_run.test_a_slip_in_the_last_stage_is_told_before_the_first(
        words, "mean --optimize?", finished, tmp_path, capsys
    )


@pytest.mark.parametrize(
    ("settings", "words", "message"),
    [
        (RECORDS, ["--num_steps=5"], "Expected --fit steps with --num_steps"),
        (
            f"{RECORDS}\nbatch_size: 5\noptimizer: torch.optim.Adam",
            [],
            "Expected --fit steps with --batch_size",
        ),
        (
            f"{RECORDS}\nnetwork: models.MLP",
            [],
            "Expected pate.models.Linear, the network in closed form, got",
        ),
    ],
)
def test_settings_of_networks_are_refused_in_closed_form(
    settings: str,
    words: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    test_closed_form.test_other_settings_are_refused(settings, words, message, tmp_path, capsys)
