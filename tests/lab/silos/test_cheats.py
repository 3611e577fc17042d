"""Whole commands of all parties, repeated; and parties that cheat."""

import io
import json
import os
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate import cli
from pate.lab.silos.secrets import SigningKey
from tests.lab.silos.exchanges import Hospitals
from tests.lab.silos.test_command import agreed, words
from tests.lab.silos.test_label import Labelling


def files_of(folder: Path) -> dict[Path, bytes]:
    """Return the content of each file of an exchange, by its path in it."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder): path.read_bytes() for path in files}


def take_part(hospitals: Hospitals, *names: str) -> None:
    """Run `pate silo` of some silos for all steps that are possible now."""
    for name in names or hospitals.teachers:
        assert cli.main(words(hospitals, name, *agreed(hospitals), "--wait", "0")) == 0


def test_commands_release_the_curators_sum(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command is repeated, and changes nothing of what it sent before."""
    silos = Labelling(tmp_path)
    take_part(silos, "north")
    assert capsys.readouterr().out == (
        "north: waiting for the invitation. The same command continues from here\n"
    )
    sent: dict[Path, bytes] = {}
    for _ in range(4):
        assert silos.label() == 0
        take_part(silos)
        now = files_of(silos.shared)
        assert {path: now[path] for path in sent} == sent
        sent = now
    assert silos.label() == 0 and silos.num_paid() == 1
    take_part(silos)
    assert files_of(silos.shared) == sent
    silos.require_curators("north", "south", "west")
    assert len(sent) == 3 + 4 * 3
    assert "north: done. In the sum: north, south, west" in capsys.readouterr().out


def test_a_second_party_of_the_same_name_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With another state: whichever wrote first stays, and the other one reads it."""
    hospitals = Hospitals(tmp_path)
    take_part(hospitals, "north")
    before = files_of(hospitals.shared)
    (tmp_path / "north" / "private").rename(tmp_path / "lost")
    assert cli.main(words(hospitals, "north", *agreed(hospitals), "--wait", "0")) == 2
    assert f"Expected {hospitals.shared}/keys/north.json as this" in capsys.readouterr().err
    assert files_of(hospitals.shared) == before


def bomb(hospitals: Hospitals) -> bytes:
    """Return an .npz of few bytes that holds many."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in (
            ("masked", np.zeros(hospitals.exchange.most_bytes, np.uint64)),
            ("context", np.array("x")),
            ("signature", np.array("x")),
        ):
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array)
    return file.getvalue()


def made(folder: Path) -> Path:
    """Make a folder and return it."""
    folder.mkdir()
    return folder


CHEATS = (
    "wrong bytes",
    "another's name",
    "another's file",
    "oversize",
    "replay",
    "bomb",
    "escapes",
)


@pytest.mark.parametrize(
    ("cheat", "kind"),
    [
        pytest.param(cheat, kind, marks=[] if i < 4 and i % 3 == j else [pytest.mark.slow])
        for i, cheat in enumerate(CHEATS)
        for j, kind in enumerate(("keys", "shares", "masked"))
    ],
)
def test_a_party_that_cheats_is_refused_and_nothing_is_paid(
    tmp_path: Path, kind: str, cheat: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """West does it; north reads keys and shares, the server masked vectors."""
    silos = Labelling(made(tmp_path / "here"))
    silos.label()
    for _ in range(["keys", "shares", "masked"].index(kind) + 1):
        silos.advance()
    path = silos.exchange.path(kind, "west")
    honest = path.read_bytes()
    content = honest
    if cheat == "wrong bytes":
        content = content[:-50] + bytes(40) + content[-10:]
    elif cheat == "another's name":  # west signs, in the name of south
        path, key = (silos.exchange.path(kind, "south"), SigningKey.read(silos.signing_key("west")))
        if kind == "masked":
            content = silos.exchange.packed("south", key, silos.exchange.masked("south"))
        else:
            fields = json.loads(honest)
            del fields["invitation"], fields["signature"]
            content = silos.exchange.message(kind, "south", key, **fields)
    elif cheat == "another's file":
        content = silos.exchange.path(kind, "south").read_bytes()
    elif cheat == "oversize":
        content = bytes(silos.exchange.most_bytes + 1)
    elif cheat == "replay":
        other = silos.copied(tmp_path / "there")
        shutil.rmtree(other.shared)
        for name in other.teachers:
            shutil.rmtree(other.folder / name / "private")
            other.votes(name).with_suffix(".ledger.sqlite").unlink(missing_ok=True)
        changed = replace(silos.exchange.invitation, sigma_silos=4.0)
        other.invite(changed)
        other.advance(rounds=3)
        content = other.exchange.path(kind, "west").read_bytes()
    elif cheat == "bomb":
        content = bomb(silos)
    elif cheat == "escapes":
        content = b"\x1b[2K\rnorth: done"
    path.write_bytes(content)
    capsys.readouterr()
    if kind == "masked":
        assert silos.label() == 2 and silos.num_paid() == 0
    else:
        assert cli.main(words(silos, "north", *agreed(silos), "--wait", "0")) == 2
        assert not silos.votes("north").with_suffix(".ledger.sqlite").exists()
    printed = capsys.readouterr()
    assert printed.err.startswith("pate ") and printed.err.count("\n") == 1
    assert str(path) in printed.err
    assert (cheat != "oversize") or "a file of at most" in printed.err
    assert "\x1b" not in printed.out + printed.err


@pytest.mark.parametrize("path", ["invitation.json", "keys/west.json", "masked/north.npz"])
@pytest.mark.parametrize("made", [os.mkfifo, Path.mkdir], ids=["fifo", "folder"])
def test_what_is_no_regular_file_is_refused_and_not_waited_for(
    tmp_path: Path, after: Any, made: Any, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """To open a pipe would wait for its writer, and to take it for no file for the others."""
    hospitals = after(2)
    place = hospitals.shared / path
    place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    made(place)
    status = 4 if path.startswith("masked") else 2  # it has paid by then
    assert cli.main(words(hospitals, "north", *agreed(hospitals), "--wait", "0.1")) == status
    error = capsys.readouterr().err
    assert f"Expected a regular file at {place}" in error and error.count("\n") == 1
