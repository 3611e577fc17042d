"""Whole commands on neighboring data: all that is published or printed is the same but for what a mechanism released.

Noise and partition key are fixed. Every world is made in the same place, so that no path differs.
In the slow tests each is run by a process of its own, so that no warning is kept back for having
been given before; in the process of the test whatever warns fails.
"""

import hashlib
import io
import json
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from pate._labeling.data.records import assign_teachers
from pate.accounting import read_ledger
from scripts.faces.drawing import render_faces
from tests.networks.conftest import recipe
from tests.processes import Start, run_here

TEACHERS = 10
Unit = Literal["record", "group"]
Arrays = dict[str, np.ndarray]


# Worlds


@dataclass(frozen=True)
class Source:
    """Records in memory, and how a data module finds them on disk."""

    name: str
    make: Callable[[], Arrays]
    write: Callable[[Path, Arrays], dict[str, Any]]
    outlier: Callable[[Arrays, np.ndarray], None]
    num_labels: int


def splits(private: int, public: int, test: int) -> np.ndarray:
    """Roles of records, private and others in turn, so that rows of private records stand before
    all others."""
    roles = np.repeat([0, 1, 2], [private, public, test])
    return np.random.default_rng(5).permutation(roles)


def of_features() -> Arrays:
    generator = np.random.default_rng(0)
    split = splits(90, 60, 30)
    features = generator.standard_normal((len(split), 6)).astype(np.float32).astype(np.float64)
    ids = np.char.mod("p%04d", np.arange(len(split)))
    return {"X": features, "Y": (features[:, :3] > 0).astype(np.uint8), "split": split, "ids": ids}


def write_npz(folder: Path, arrays: Arrays) -> dict[str, Any]:
    np.savez(folder / "data.npz", **arrays)  # type: ignore[arg-type]
    return {"class_path": "Arrays", "init_args": {"path": "data/data.npz"}}


def write_projected(folder: Path, arrays: Arrays) -> dict[str, Any]:
    data = write_npz(folder, arrays)
    data["init_args"]["features"] = {"class_path": "PublicPCA", "init_args": {"num_components": 4}}
    return data


def far_features(arrays: Arrays, rows: np.ndarray) -> None:
    arrays["X"][rows] = np.resize([1e39, -1e300, 1e30], 6)  # the first two beyond float32


def of_faces() -> Arrays:
    split = splits(60, 40, 20)
    images, attributes = render_faces(len(split), seed=3)
    ids = np.char.mod("%06d.jpg", np.arange(1, len(split) + 1))
    labels, damaged = attributes[:, [3, 9, 13, 17, 24]], np.zeros(len(ids), dtype=np.bool_)
    return {"images": images, "Y": labels, "split": split, "ids": ids, "damaged": damaged}


def write_folder(folder: Path, arrays: Arrays) -> dict[str, Any]:
    pictures = folder / "img_align_celeba"
    pictures.mkdir()
    for name, image in zip(arrays["ids"], arrays["images"], strict=True):
        Image.fromarray(image).save(pictures / str(name), quality=95)
    for name in arrays["ids"][arrays["damaged"]]:
        (pictures / str(name)).write_bytes(b"no picture")
    names = ["Big_Nose", "Eyeglasses", "Male", "Pale_Skin", "Young"]
    rows = [
        f"{name} {' '.join(str(2 * int(value) - 1) for value in values)}"
        for name, values in zip(arrays["ids"], arrays["Y"], strict=True)
    ]
    (folder / "list_attr_celeba.txt").write_text(
        "\n".join([str(len(rows)), " ".join(names), *rows]) + "\n"
    )
    tables = {
        "list_eval_partition.txt": arrays["split"],
        "identity_CelebA.txt": arrays.get("group"),
    }
    for table, values in tables.items():
        if values is not None:
            lines = [f"{name} {value}" for name, value in zip(arrays["ids"], values, strict=True)]
            (folder / table).write_text("\n".join(lines) + "\n")
    features = {"class_path": "PublicPCA", "init_args": {"num_components": 6}}
    return {"class_path": "CelebA", "init_args": {"root": "data", "size": 12, "features": features}}


def far_pixels(arrays: Arrays, rows: np.ndarray) -> None:
    """Noise, and a file that is no picture where a person has several."""
    arrays["damaged"][rows[1:]] = True
    arrays["images"][rows] = (
        np.random.default_rng(0).integers(0, 2, size=arrays["images"][rows].shape) * 255
    )


SOURCES = {
    "Arrays": Source("Arrays", of_features, write_npz, far_features, 3),
    "Arrays and PublicPCA": Source(
        "Arrays and PublicPCA", of_features, write_projected, far_features, 3
    ),
    "CelebA": Source("CelebA", of_faces, write_folder, far_pixels, 5),
}


def grouped(arrays: Arrays) -> Arrays:
    """Give each group three records of one role."""
    group = np.empty(len(arrays["ids"]), dtype="<U8")
    for role in (0, 1, 2):
        rows = np.flatnonzero(arrays["split"] == role)
        group[rows] = [f"{role}{i // 3:04d}" for i in range(len(rows))]
    return arrays | {"group": group}


def units_of(arrays: Arrays, unit: Unit) -> np.ndarray:
    return arrays["group"] if unit == "group" else arrays["ids"]


def key_with_a_lonely_teacher(units: np.ndarray) -> tuple[str, str]:
    """Return a partition key under which some teacher has one unit alone, and that unit."""
    names = np.unique(units)
    for number in range(10_000):
        key = hashlib.sha256(str(number).encode()).hexdigest()
        teachers = assign_teachers(names.tolist(), num_teachers=TEACHERS, key=bytes.fromhex(key))
        alone = np.flatnonzero(np.bincount(teachers, minlength=TEACHERS) == 1)
        if alone.size:
            return key, str(names[teachers == alone[0]][0])
    raise AssertionError("no key leaves a teacher one unit")


CHANGES = ("removed", "flipped", "outlier", "emptied", "added")


def neighbor(source: Source, arrays: Arrays, unit: Unit, change: str, lonely: str) -> Arrays:
    """Return the records with one private unit removed, altered or added."""
    changed = {name: array.copy() for name, array in arrays.items()}
    units, private = units_of(arrays, unit), arrays["split"] == 0
    first = str(units[np.flatnonzero(private)[0]])
    rows = np.flatnonzero(units == (lonely if change == "emptied" else first))
    if change in ("removed", "emptied"):
        return {name: np.delete(array, rows, axis=0) for name, array in changed.items()}
    if change == "added":
        more = {name: array[rows] for name, array in changed.items()}
        more["ids"] = np.array([f"9{i:05d}.jpg" for i in range(len(rows))])
        if "group" in more:
            more["group"] = np.full(len(rows), "99999")
        return {name: np.concatenate((more[name], array)) for name, array in changed.items()}
    if change == "flipped":
        changed["Y"][rows] = 1 - changed["Y"][rows]
        return changed
    source.outlier(changed, rows)
    return changed


# Runs


@dataclass(frozen=True)
class Seen:
    """All that somebody sees who has the public folder and the terminal."""

    code: int
    out: str
    err: str
    files: dict[str, tuple[int, bytes]]
    modes: dict[str, int]
    ledger: list[Any]

    @property
    def labels(self) -> dict[str, np.ndarray]:
        with np.load(io.BytesIO(self.files["labels.npz"][1])) as archive:
            return {name: archive[name] for name in archive.files}


def see(
    place: Path,
    source: Source,
    arrays: Arrays,
    unit: Unit,
    key: str,
    more: list[str],
    start: Callable[..., Any],
    closed_form: str | None = None,
) -> Seen:
    """Make a world in ``place``, run the recipe in it, and return what can be seen of it."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    (place / "data").mkdir()
    data = source.write(place / "data", arrays)
    recipe(place / "recipe", Path("unused"), steps=12, chunk_size=5)
    (place / "recipe" / "data.yaml").write_text(yaml.safe_dump({"data": data}))
    teachers = place / "recipe" / "teachers.yaml"
    if closed_form is not None:
        teachers.write_text(f"fit: closed_form\n{closed_form}\n")
        (place / "recipe" / "label.yaml").write_text("delta: 0.001\n")
    with teachers.open("a") as file:
        file.write(f"unit: {unit}\n")
    (place / "run" / "private").mkdir(parents=True, mode=0o700)
    (place / "run" / "private" / "partition.json").write_text(json.dumps({"key": key}))
    noise = ["--label.noise_seed=3", "--label.num_queries=40"]
    words = ["run", "recipe", "--run", "run", *noise, *more]
    command = start(*words, folder=place)
    code = command.wait()
    root = place / "run"
    files = {
        path.relative_to(root / "public").as_posix(): (
            stat.S_IMODE(path.stat().st_mode),
            path.read_bytes(),
        )
        for path in sorted((root / "public").rglob("*"))
        if path.is_file()
    }
    (ledger,) = (place / "data").glob("*ledger.sqlite")
    entries = [
        entry.to_dict() | {"at": "", "delta": entry.delta} for entry in read_ledger(ledger).entries
    ]
    return Seen(
        code=code,
        out=command.out,
        err=command.err,
        files=files | {"../data.yaml": (0, (root / "data.yaml").read_bytes())},
        modes={
            path.relative_to(place).as_posix(): path.stat().st_mode
            for path in (root, *root.iterdir(), ledger)
        },
        ledger=entries,
    )


# What may differ

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")
# of a stage that takes more than a minute
_BAR = re.compile(r"^[^:]+: (\d+ of \d+ \w+ in )?[\d:]+(, [\d:?]+ to go)?$")
# figures of the student and of what was answered, where the labels differ
_FIGURES = re.compile(
    r"^((private student|constant answer released) .*|Verdict: .*|released labels: .*"
    r"|\d+ of \d+ queries were answered.*)$",
    flags=re.MULTILINE,
)


def without_times(text: str) -> str:
    """Return a text without dates, and without how far a stage was after a minute."""
    return "\n".join(
        line for line in _TIME.sub("<time>", text).splitlines() if not _BAR.match(line)
    )


def plain_checkpoint(content: bytes) -> Any:
    """Return a checkpoint as sorted lists, its tensors as bytes."""

    def plain(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return (str(value.dtype), tuple(value.shape), value.numpy().tobytes())
        if isinstance(value, dict):
            return sorted((str(key), plain(each)) for key, each in value.items())
        if isinstance(value, list | tuple):
            return [plain(each) for each in value]
        return repr(value)

    return plain(torch.load(io.BytesIO(content), weights_only=False))


def plain_statement(content: bytes, *, answered: bool) -> Any:
    statement = json.loads(_TIME.sub("<time>", content.decode()))
    for release in statement["releases"]:
        release["privacy_unit"] = plain_unit(release["privacy_unit"])
    # the ledger's own digest is over the times in it
    statement.get("ledger", {}).pop("digest", None)
    if not answered:
        for name in ("num_answered", "sha256"):
            statement.pop(name)
        for release in statement["releases"]:
            release.pop("published")
    return statement


def plain_unit(unit: dict[str, Any]) -> dict[str, Any]:
    """Return a privacy unit without the name of its groups, which is random in each ledger."""
    return {name: value for name, value in unit.items() if name != "grouping"}


def plain_row(row: Any, *, answered: bool, costly: bool) -> Any:
    """Return a row of the ledger without what follows from the released labels, where these
    differ."""
    published = {
        name: value
        for name, value in row["published"].items()
        if name not in ("num_answered", "sha256")
    }
    return (
        row
        | {"privacy_unit": plain_unit(row["privacy_unit"])}
        | ({} if answered else {"published": published})
        | ({"realised": None} if costly else {})
    )


def require_same(one: Seen, other: Seen, *, settled: bool = False) -> bool:
    """Fail unless nothing differs but times, and what follows from released labels where these differ.

    Return whether the same labels were released. With ``settled`` what the mechanism paid may
    differ with them.
    """
    assert one.code == other.code
    assert one.modes == other.modes
    released = one.labels, other.labels
    assert released[0].keys() == released[1].keys()
    same = all(np.array_equal(released[0][name], released[1][name]) for name in released[0])
    # each follows from the noisy release
    own = {"labels", "mask", "values", "steps", "seal", "variance_ratio"}
    for name in released[0].keys() - own:
        np.testing.assert_array_equal(released[0][name], released[1][name])
    for name in released[0]:
        assert (released[0][name].shape, released[0][name].dtype) == (
            released[1][name].shape,
            released[1][name].dtype,
        )
    assert {name: mode for name, (mode, _) in one.files.items()} == {
        n: mode for n, (mode, _) in other.files.items()
    }
    costly = settled and not same
    for name in one.files:
        first, second = (world.files[name][1] for world in (one, other))
        if name.endswith("privacy.txt"):  # of the run, and of its student that is carried away
            texts = [_TIME.sub("<time>", text.decode()) for text in (first, second)]
            texts = [re.sub(r"[0-9a-f]{32}", "<digest>", text) for text in texts]
            require_same_text(*texts, same=same, costly=costly)
        elif name.endswith("privacy.json"):
            statements = [plain_statement(content, answered=same) for content in (first, second)]
            for statement in statements if costly else ():
                for part in ("costs", "guarantees", "this_release", "reach"):
                    statement.pop(part, None)
                for release in statement["releases"]:
                    release.pop("realised")
            assert statements[0] == statements[1]
        elif same or not (name == "labels.npz" or name.startswith("student/")):
            if name.endswith(".ckpt"):
                # Lightning's parser writes settings in an order that differs from process to
                # process
                first, second = (
                    repr(plain_checkpoint(content)).encode() for content in (first, second)
                )
            assert first == second, f"{name} tells neighbors apart"
    require_same_text(without_times(one.err), without_times(other.err), same=same, costly=False)
    outs = [re.sub(r"[0-9a-f]{32}", "<digest>", without_times(world.out)) for world in (one, other)]
    require_same_text(*outs, same=same, costly=costly)
    ledgers = [
        [plain_row(row, answered=same, costly=costly) for row in world.ledger]
        for world in (one, other)
    ]
    assert ledgers[0] == ledgers[1]
    return same


def require_same_text(one: str, other: str, *, same: bool, costly: bool) -> None:
    if not same:
        # few answers are told of in a line of their own
        one, other = (
            re.sub(r"^(Only \d+|None) of \d+ queries .*\n", "", text, flags=re.MULTILINE)
            for text in (one, other)
        )
        one, other = (_FIGURES.sub("<figures>", text) for text in (one, other))
        # the student sees the labels alone, and its Lightning warns where few were released
        one, other = (
            re.sub(r"^.*/pytorch_lightning/.*\n", "", text, flags=re.MULTILINE)
            for text in (one, other)
        )
    if costly:
        # the arithmetic of what was paid
        one, other = (
            "\n".join(
                line
                for line in text.splitlines()
                if not re.match(r"( {4}|epsilon|Under|What happened)", line)
            )
            for text in (one, other)
        )
    assert one.splitlines() == other.splitlines()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "world"
    shutil.rmtree(tmp_path / "world", ignore_errors=True)


def compare(
    name: str,
    unit: Unit,
    changes: tuple[str, ...],
    place: Path,
    start: Callable[..., Any],
    more: Sequence[str] = (),
    closed_form: str | None = None,
    settled: bool = False,
) -> None:
    source = SOURCES[name]
    arrays = grouped(source.make()) if unit == "group" else source.make()
    key, lonely = key_with_a_lonely_teacher(units_of(arrays, unit)[arrays["split"] == 0])
    base = see(place, source, arrays, unit, key, [*more], start, closed_form)
    assert base.code == 0, base.err
    assert base.labels["mask"].any()
    alike = {}
    for change in changes:
        world = neighbor(source, arrays, unit, change, lonely)
        assert len(world["ids"]) != len(arrays["ids"]) or change in ("flipped", "outlier")
        alike[change] = require_same(
            base, see(place, source, world, unit, key, [*more], start, closed_form), settled=settled
        )
    # the noise is small: some changes are heard, and where none is, all bytes were compared
    assert len(alike) == len(changes)


def test_commands_on_a_record_that_goes_and_one_that_is_altered(place: Path) -> None:
    """The only record of a teacher is removed, and one is altered."""
    compare("Arrays", "record", ("emptied", "outlier"), place, run_here)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["record", "group"])
@pytest.mark.parametrize("name", SOURCES)
def test_whole_commands_on_neighboring_data(
    name: str, unit: Unit, place: Path, start: Start
) -> None:
    compare(name, unit, CHANGES, place, start)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["record", "group"])
@pytest.mark.parametrize("aggregator", ["ClippedVotes", "ScoreVotes"])
def test_whole_commands_that_ask_for_ballots(
    aggregator: str, unit: Unit, place: Path, start: Start
) -> None:
    words = [f"--label.aggregator={aggregator}", "--label.target_epsilon=100"]
    compare("Arrays", unit, CHANGES, place, start, words)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["record", "group"])
@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("form", ["num_teachers: null", f"num_teachers: {TEACHERS}"])
def test_whole_commands_of_teachers_in_closed_form(
    form: str, name: str, unit: Unit, place: Path, start: Start
) -> None:
    """Each record or group is a teacher, or a part of them: how many there are shows nowhere."""
    compare(name, unit, CHANGES, place, start, ["--label.target_epsilon=100"], form)


SCREEN = [
    "--label.aggregator=ConfidentScreen",
    "--label.aggregator.answers=NoisyVotes",
    "--label.aggregator.answers.sigma_votes=1.0",
    "--label.aggregator.sigma_confident=1.0",
    "--label.aggregator.threshold_confident=3.0",
]


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["record", "group"])
def test_a_screen_may_differ_in_what_it_paid(unit: Unit, place: Path, start: Start) -> None:
    compare("Arrays", unit, CHANGES, place, start, SCREEN, settled=True)


@pytest.mark.slow
def test_a_leak_would_be_noticed(place: Path, start: Start) -> None:
    """Of each part that is compared, one planted difference."""
    source = SOURCES["Arrays"]
    arrays = source.make()
    key, _ = key_with_a_lonely_teacher(arrays["ids"][arrays["split"] == 0])
    base = see(place, source, arrays, "record", key, [], start)
    assert require_same(base, base)
    mode, labels = base.files["labels.npz"]
    released = base.labels

    def packed(**changes: Any) -> tuple[int, bytes]:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **(released | changes))
        return mode, buffer.getvalue()

    planted = [
        replace(base, code=1),
        replace(base, out=base.out + "partition 3 is empty\n"),
        replace(base, err=base.err + "warning: loss is NaN\n"),
        replace(base, err=base.err + "39/40\n"),
        replace(base, modes=base.modes | {"run/private": 0o40755}),
        replace(base, files=base.files | {"labels.npz": (0o600, labels)}),
        replace(base, files=base.files | {"more": (0o644, b"")}),
        replace(base, files=base.files | {"labels.npz": packed(ids=released["ids"][::-1])}),
        replace(
            base,
            files=base.files
            | {"labels.npz": packed(labels=1 - released["labels"], num_teachers=9)},
        ),
        replace(base, files=base.files | {"label.yaml": (base.files["label.yaml"][0], b"")}),
        replace(base, ledger=[row | {"count": 41} for row in base.ledger]),
    ]
    for leak in planted:
        with pytest.raises(AssertionError):
            require_same(base, leak)
    # other labels alone are no leak
    public = {
        name: content for name, content in base.files.items() if not name.startswith("student/")
    }
    flipped = replace(base, files=public | {"labels.npz": packed(labels=1 - released["labels"])})
    assert not require_same(replace(base, files=public), flipped)
