"""`pate run` of networks: by scores, on pictures, and what is refused before any is trained."""

import os
import re
import shutil
from pathlib import Path

import pytest

from pate import cli


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
