"""`pate run` of networks: by scores, on pictures, and what is refused before any is trained."""

import os
import re
import shutil
from pathlib import Path

import pytest

from pate import cli
from tests.labeling.stages import test_closed_form
from tests.labeling.stages.test_closed_form import RECORDS


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
