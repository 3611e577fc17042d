"""Exchanges in a store: whole commands of all parties, killed and repeated; and parties that cheat."""

import io
import json
import os
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from pate import cli
from pate.lab.silos.exchange import INVITATION
from pate.lab.silos.places import Store
from pate.lab.silos.secrets import SigningKey
from tests.lab.silos.exchanges import Hospitals
from tests.lab.silos.test_command import agreed, words
from tests.lab.silos.test_label import Labelling


class Plain(MemoryFileSystem):  # type: ignore[misc]
    """A store without `mode="create"`, as most are: `pipe_file` overwrites."""

    protocol = "plain"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.replace("plain://", "memory://"))

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        """Write a file; the program must not ask for a second meaning of it."""
        assert mode == "overwrite"
        super().pipe_file(path, value)


fsspec.register_implementation("plain", Plain, clobber=True)
STORES = ("memory", "plain")


@pytest.fixture(params=["plain", pytest.param("memory", marks=pytest.mark.slow)])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the address of an exchange in an empty store, which is asked again at once."""
    monkeypatch.setattr(Store, "poll", 0.001)
    for protocol in STORES:
        place = fsspec.filesystem(protocol)
        place.store.clear()
        place.pseudo_dirs[:] = [""]
    return f"{request.param}://clinic/sum"


def files_of(where: str) -> dict[str, bytes]:
    """Return the content of each file of an exchange."""
    place, root = fsspec.core.url_to_fs(where)
    return {path.removeprefix(f"{root}/"): place.cat_file(path) for path in place.find(root)}


def write(where: str, path: str, content: bytes) -> None:
    """Write a file over another, as who owns the store can."""
    place, root = fsspec.core.url_to_fs(where)
    MemoryFileSystem.pipe_file(place, f"{root}/{path}", content)


def take_part(hospitals: Hospitals, *names: str) -> None:
    """Run `pate silo` of some silos for all steps that are possible now."""
    for name in names or hospitals.teachers:
        assert cli.main(words(hospitals, name, *agreed(hospitals), "--wait", "0")) == 0


def test_commands_release_the_curators_sum(
    tmp_path: Path, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command is repeated, and changes nothing of what it sent before."""
    silos = Labelling(tmp_path, where=where)
    take_part(silos, "north")
    assert capsys.readouterr().out == (
        "north: waiting for the invitation. The same command continues from here\n"
    )
    sent: dict[str, bytes] = {}
    for _ in range(4):
        assert silos.label() == 0
        take_part(silos)
        now = files_of(where)
        assert {path: now[path] for path in sent} == sent
        sent = now
    assert silos.label() == 0 and silos.num_paid() == 1
    take_part(silos)
    assert files_of(where) == sent
    silos.require_curators("north", "south", "west")
    assert len(sent) == 2 + 4 * 3 and not (tmp_path / "exchange").exists()
    assert "north: done. In the sum: north, south, west" in capsys.readouterr().out


def test_a_second_party_of_the_same_name_is_refused(
    tmp_path: Path, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With another state: whichever wrote first stays, and the other one reads it."""
    hospitals = Hospitals(tmp_path, where=where)
    take_part(hospitals, "north")
    before = files_of(where)
    (tmp_path / "north" / "private").rename(tmp_path / "lost")
    assert cli.main(words(hospitals, "north", *agreed(hospitals), "--wait", "0")) == 2
    assert f"Expected {where}/keys/north.json as this command writes it" in capsys.readouterr().err
    assert files_of(where) == before


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
        pytest.param(cheat, kind, marks=[] if i < 3 and i % 3 == j else [pytest.mark.slow])
        for i, cheat in enumerate(CHEATS)
        for j, kind in enumerate(("keys", "shares", "masked"))
    ],
)
def test_a_party_that_cheats_is_refused_and_nothing_is_paid(
    tmp_path: Path, where: str, kind: str, cheat: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """West does it; north reads keys and shares, the server masked vectors."""
    silos = Labelling(made(tmp_path / "here"), where=where)
    silos.label()
    for _ in range(["keys", "shares", "masked"].index(kind) + 1):
        silos.advance()
    path, honest = silos.exchange.path(kind, "west"), files_of(where)
    content = honest[path]
    if cheat == "wrong bytes":
        content = content[:-50] + bytes(40) + content[-10:]
    elif cheat == "another's name":  # west signs, in the name of south
        path, key = (
            silos.exchange.path(kind, "south"),
            SigningKey.read(silos.signing_key("west")),
        )
        if kind == "masked":
            content = silos.exchange.packed("south", key, silos.exchange.masked("south"))
        else:
            fields = json.loads(honest[path])
            del fields["invitation"], fields["signature"]
            content = silos.exchange.message(kind, "south", key, **fields)
    elif cheat == "another's file":
        content = honest[silos.exchange.path(kind, "south")]
    elif cheat == "oversize":
        content = bytes(silos.exchange.most_bytes + 1)
    elif cheat == "replay":
        other = silos.copied(tmp_path / "there")
        other.where = f"{where}-other"
        for name in other.teachers:
            shutil.rmtree(other.folder / name / "private")
            other.votes(name).with_suffix(".ledger.sqlite").unlink(missing_ok=True)
        changed = replace(silos.exchange.invitation, sigma_silos=4.0)
        other.exchange.send(INVITATION, changed.content)
        other.advance(rounds=3)
        content = files_of(other.where)[path]
    elif cheat == "bomb":
        content = bomb(silos)
    elif cheat == "escapes":
        content = b"\x1b[2K\rnorth: done"
    write(where, path, content)
    capsys.readouterr()
    if kind == "masked":
        assert silos.label() == 2 and silos.num_paid() == 0
    else:
        assert cli.main(words(silos, "north", *agreed(silos), "--wait", "0")) == 2
        assert not silos.votes("north").with_suffix(".ledger.sqlite").exists()
    printed = capsys.readouterr()
    assert printed.err.startswith("pate ") and printed.err.count("\n") == 1
    assert f"{where}/{path}" in printed.err
    assert "\x1b" not in printed.out + printed.err


class Odd(Plain):
    """A store that behaves as `answer` says."""

    protocol = "odd"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.replace("odd://", "memory://"))

    @staticmethod
    def answer() -> object:
        """Return a list of files; tests replace it."""
        return []

    def ls(self, *_: object, **__: object) -> Any:
        """Answer."""
        return type(self).answer()

    info = cat_file = exists = ls


fsspec.register_implementation("odd", Odd, clobber=True)


def raising(error: Exception) -> Any:
    def answer() -> object:
        raise error

    return staticmethod(answer)


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (OSError("down\x1b[2K\rnorth: done"), 0, r"waiting for odd://host/sum (OSError: down\x1b["),
        (RuntimeError(), 0, "waiting for odd://host/sum (RuntimeError). The same command"),
        (PermissionError("no key"), 2, "can be listed, read and written, got odd://host/sum ("),
        (NotImplementedError(), 2, "got odd://host/sum (NotImplementedError)"),
    ],
)
def test_an_error_of_a_store_is_one_line(
    tmp_path: Path,
    error: Exception,
    status: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hospitals = Hospitals(tmp_path)
    hospitals.where = "odd://host/sum"
    monkeypatch.setattr(Odd, "answer", raising(error))
    assert cli.main(words(hospitals, "north", *agreed(hospitals), "--wait", "0")) == status
    printed = capsys.readouterr()
    assert said in printed.out + printed.err
    assert "\x1b" not in printed.out + printed.err


@pytest.mark.parametrize("size", [2**40, -1, None, "7"])
def test_a_size_is_compared_before_content_is_read(
    monkeypatch: pytest.MonkeyPatch, size: object
) -> None:
    monkeypatch.setattr(Odd, "answer", staticmethod(lambda: {"size": size}))
    monkeypatch.setattr(Odd, "cat_file", lambda *_, **__: pytest.fail("read"))
    with pytest.raises(ValueError, match=r"^Expected a file of at most 9 bytes at odd://h/sum/x"):
        Store("odd://h/sum").get("x", 9)
    monkeypatch.setattr(Odd, "answer", staticmethod(lambda: {"size": 9}))
    monkeypatch.setattr(Odd, "cat_file", lambda *_, **__: bytes(10))  # more than was said
    with pytest.raises(ValueError, match=r"got bytes=10$"):
        Store("odd://h/sum").get("x", 9)


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
