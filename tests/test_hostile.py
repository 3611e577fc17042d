"""Small files that would fill memory, or never end, through the commands that read them.

Each ends in one line, within seconds and megabytes, in a process of its own.
"""

import gzip
import json
import os
import sqlite3
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from contextlib import closing
from io import BytesIO
from pathlib import Path
from struct import pack

import numpy as np
import pytest
from safetensors.numpy import save_file

from pate._core.accounting.ledger import _FINAL, _MARKS, make_log

MOST_MEGABYTES, MOST_SECONDS, NO_END = 300, 10, 120
SPARSE = 1_500_000_000
COMMAND = """import resource, sys
from pate.cli import main
try:
    status = main(sys.argv[2:])
finally:
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    used = resource.getrusage(resource.RUSAGE_SELF)
    with open(sys.argv[1], "w") as file:
        file.write(f"{int(peak.split()[1]) / 1000} {used.ru_utime + used.ru_stime}")
sys.exit(status)
"""


def sparse(path: Path) -> None:
    """Write a file of zeros that takes no room on the disk."""
    with path.open("wb") as file:
        file.truncate(SPARSE)


def packed_zeros(size: int) -> bytes:
    """Return some zeros as zlib packs them."""
    packer = zlib.compressobj(9)
    block = bytes(1 << 20)
    parts = [packer.compress(block) for _ in range(size >> 20)]
    return b"".join([*parts, packer.compress(bytes(size & 0xFFFFF)), packer.flush()])


def picture(path: Path, width: int, height: int, bits: int) -> None:
    """Write a gray PNG of zeros."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checked = kind + content
        return pack(">I", len(content)) + checked + pack(">I", zlib.crc32(checked))

    head = pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0)
    rows = packed_zeros(height * (1 + width * bits // 8))
    parts = chunk(b"IHDR", head), chunk(b"IDAT", rows), chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))


def archive(path: Path, shape: tuple[int, ...], name: str = "X") -> None:
    """Add an array of zeros to an ``.npz``."""
    header = BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": shape}
    )
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file,
        file.open(f"{name}.npy", "w") as array,
    ):
        array.write(header.getvalue())
        left = 4 * int(np.prod(shape))
        while left:
            left -= array.write(bytes(min(left, 1 << 24)))


def ledger(path: Path, *statements: str) -> None:
    """Write a ledger of another schema, with the marks of ours."""
    with closing(sqlite3.connect(path)) as connection:
        marks = "PRAGMA application_id = {}; PRAGMA user_version = {}".format(*_MARKS)
        connection.executescript(";".join((marks, *statements)))
        connection.commit()


LARGE = "CAST(zeroblob(900000000) AS TEXT)"
VIEW = f"CREATE VIEW log AS SELECT 1 AS row, {LARGE} AS body, '' AS digest"
GENERATED = (
    "CREATE TABLE log (row INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT GENERATED ALWAYS AS"
    f" ({LARGE}) VIRTUAL, digest TEXT)"
)
ENDLESS = (
    "CREATE VIEW log AS WITH RECURSIVE n(row) AS (SELECT 1 UNION ALL SELECT row + 1 FROM n)"
    " SELECT row, '' AS body, '' AS digest FROM n"
)
ROWS = "CREATE TABLE s (id INTEGER PRIMARY KEY AUTOINCREMENT)"
ALIASES = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)


def of_model(name: str) -> Callable[[Path], list[str]]:
    """Return a command that reads a file of a student in place of which there is a sparse one."""

    def made(place: Path) -> list[str]:
        student = place / "run/public/student/model"
        sparse(student / name)
        np.savez(place / "x.npz", X=np.zeros((2, 6), np.float32))
        return ["predict", f"{student}", f"{place}/x.npz", f"--output={place}/o.csv", "--overwrite"]

    return made


def of_run(name: str) -> Callable[[Path], list[str]]:
    """Return the check of a run with a sparse file."""

    def made(place: Path) -> list[str]:
        sparse(place / "run" / name)
        return ["verify", f"{place}/run"]

    return made


def of_ledger(words: str, *statements: str) -> Callable[[Path], list[str]]:
    def made(place: Path) -> list[str]:
        ledger(place / "l.sqlite", *statements)
        return [*words.split(), f"{place}/l.sqlite"]

    return made


def of_samples(write: Callable[[Path], None], name: str = "x.npz") -> Callable[[Path], list[str]]:
    """Return a prediction for the samples that ``write`` writes."""

    def made(place: Path) -> list[str]:
        write(place / name)
        student = place / "run/public/student/model"
        return [
            "predict",
            f"{student}",
            f"{place / name}",
            f"--output={place}/o.csv",
            "--overwrite",
        ]

    return made


def of_picture(width: int, height: int, bits: int) -> Callable[[Path], list[str]]:
    """Return a prediction for a picture."""

    def made(place: Path) -> list[str]:
        student, folder = place / "run/public/student/model", place / "pictures"
        settings = json.loads((student / "model.json").read_text())
        settings["network_input"] = [3, 8, 8]
        settings["input"] |= {"kind": "pictures", "shape": [3, 8, 8]}
        (student / "model.json").write_text(json.dumps(settings))
        shapes = {"network.1.weight": (4, 192), "network.1.bias": 4, "constant_logits": 4}
        arrays = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        save_file(arrays | {"departs": np.ones(4, np.bool_)}, student / "model.safetensors")
        folder.mkdir()
        picture(folder / "x.png", width, height, bits)
        return ["predict", f"{student}", f"{folder}", f"--output={place}/o.csv", "--overwrite"]

    return made


def columns(place: Path) -> list[str]:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    with parquet.ParquetWriter(place / "x.parquet", pa.schema([("id", pa.int64())])) as file:
        block = pa.table({"id": np.zeros(10_000_000, np.int64)})
        for _ in range(20):
            file.write_table(block, row_group_size=10_000_000)
    return ["init", f"{place}/recipe", f"--data={place}/x.parquet"]


def texts(place: Path) -> list[str]:
    with gzip.open(place / "x.csv.gz", "wb", compresslevel=6) as file:
        file.write(b"id,text\n")
        for _ in range(500):
            file.write(b"1,\n" * 700_000)
    return ["init", f"{place}/recipe", f"--data={place}/x.csv.gz"]


def one_line(place: Path) -> list[str]:
    sparse(place / "x.csv")
    return ["init", f"{place}/recipe", f"--data={place}/x.csv"]


def labels(place: Path) -> list[str]:
    path = place / "run/public/labels.npz"
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files if name != "values"}
    np.savez(path, **arrays | {"ids": np.full(1_500_000, "a")})
    archive(path, (100_000_000,), "values")
    return ["verify", f"{place}/run"]


def recipe(place: Path) -> list[str]:
    folder = place / "recipe"
    folder.mkdir()
    for name in ("teachers", "label", "student"):
        (folder / f"{name}.yaml").write_text("")
    (folder / "data.yaml").write_text(ALIASES)
    return ["run", f"{folder}", f"--run={place}/new"]


def brackets(place: Path) -> list[str]:
    (place / "label.yaml").write_text("[" * 50_000)
    return ["label", f"--config={place}/label.yaml", f"--run={place}/run"]


def settings_pipe(place: Path) -> list[str]:
    os.mkfifo(place / "label.yaml")
    return ["label", f"--config={place}/label.yaml", f"--run={place}/run"]


def exchange(place: Path) -> list[str]:
    from pate.lab.silos.secrets import make_key

    make_key(place / "key", place / "key.pub")
    (place / "exchange").mkdir()
    os.mkfifo(place / "exchange" / "invitation.json")
    np.savez(place / "v.npz", ids=["a"])
    words = [f"--votes={place}/v.npz", f"--state={place}/state", f"--signing_key={place}/key"]
    return [
        "silo",
        f"{place}/exchange",
        "--name=north",
        "--wait=1",
        f"--public_keys={place}",
        *words,
    ]


def journal(place: Path) -> list[str]:
    make_log(place / "l.sqlite")
    os.mkfifo(place / "l.sqlite-journal")
    return ["verify", f"{place}/l.sqlite"]


def statement(place: Path) -> list[str]:
    (place / "privacy.json").write_text("[" + "[]," * 20_000_000 + "1]")
    return ["verify", f"{place}/privacy.json"]


def members(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for number in range(60_000):
            file.writestr(f"{number}", b"")


def device(place: Path) -> list[str]:
    settings = place / "run/public/student/model/model.json"
    settings.unlink()
    settings.symlink_to("/dev/zero")
    return [
        "predict",
        f"{settings.parent}",
        f"{place}/x.npz",
        f"--output={place}/o.csv",
        "--overwrite",
    ]


HOSTILE: dict[str, Callable[[Path], list[str]]] = {
    "ledger, a view": of_ledger("ledger show", VIEW, ROWS),
    "ledger, a generated column": of_ledger(
        "verify", GENERATED, *_FINAL, "INSERT INTO log (row) VALUES (1)"
    ),
    "ledger, endless": of_ledger("ledger show", ENDLESS, ROWS),
    "model.json": of_model("model.json"),
    "privacy.json": of_model("privacy.json"),
    "label.json": of_run("private/label.json"),
    "labels.npz": of_run("public/labels.npz"),
    "labels of zeros": labels,
    "samples": of_samples(lambda path: archive(path, (40_000_000, 6))),
    "picture": of_picture(13_000, 13_000, 8),
    "picture of 16 bits": of_picture(13_000, 13_000, 16),
    "parquet": columns,
    "aliases": recipe,
    "brackets": brackets,
    "pipe of an exchange": exchange,
    # of the same kinds
    "weights": of_model("model.safetensors"),
    "pipe of settings": settings_pipe,
    "pipe of a journal": journal,
    "lists": statement,
    "members": of_samples(members),
    "device": device,
    "packed text": texts,
    "one line": one_line,
}
CHEAP = ("ledger, endless", "model.json", "brackets")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in CHEAP else pytest.mark.slow) for n in HOSTILE]
)
def test_a_hostile_file_is_refused_in_one_line(name: str, copied: Path, tmp_path: Path) -> None:
    words = HOSTILE[name](tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, f"{tmp_path}/used", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said, _ = process.communicate(timeout=NO_END)
    finally:
        process.kill()
    assert process.returncode in (1, 2), said[-2000:]
    lines = said.splitlines()
    # a check has a line for each fault that follows
    most = 5 if Path(words[1]).is_dir() else 1
    assert len(lines) <= most and all("Expected" in line for line in lines), said[-2000:]
    peak, seconds = map(float, (tmp_path / "used").read_text().split())
    assert peak < MOST_MEGABYTES and seconds < MOST_SECONDS, (peak, seconds)
    print(f"{name}: {seconds:.1f} s, {peak:.0f} MB: {lines[0][:120]}")
