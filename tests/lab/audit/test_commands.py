"""All that commands print and share is equal on neighbors, byte for byte, if draws are forced."""

import re
import secrets
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate import cli
from pate._core.accounting import ledger
from pate._labeling.release.labels import LabelsRelease
from pate.lab.audit.forced import ForcedGenerator
from tests.conftest import make_arrays
from tests.labeling.data.test_picture_table import write_pictures


def arrays(folder: Path) -> str:
    """Write arrays with persons and unknown labels, of which one record has the only one of d."""
    table: dict[str, Any] = make_arrays(120)
    labels = table["Y"].astype(np.float64)
    labels[:80, 3] = np.arange(80) == 3
    labels[::7, 1] = np.nan
    np.savez(folder / "data.npz", **(table | {"Y": labels, "group": np.arange(120) // 3}))
    return "Arrays\n  init_args: {path: data.npz, unknown_labels: nan, features: AutoFeatures}"


def alter(folder: Path) -> None:
    with np.load(folder / "data.npz") as file:
        table = dict(file)
    table["Y"][3], table["X"][3] = [np.nan, 1, 0, 0], 3e38
    np.savez(folder / "data.npz", **table)


def remove(folder: Path, first: int = 3, end: int = 4) -> None:
    with np.load(folder / "data.npz") as file:
        names = file["label_names"]
        kept = {name: np.delete(file[name], slice(first, end), axis=0) for name in file}
    np.savez(folder / "data.npz", **(kept | {"label_names": names}))


def table(folder: Path) -> str:
    """Write a CSV file of a category, gaps and labels of words."""
    roles = ["private"] * 80 + ["public"] * 30 + ["test"] * 10
    rows = [
        f"r{i},{role},{['Bern', 'Rome', 'Oslo'][i % 3]},{'' if i % 9 == 4 else i % 50},{'Yes' if i % 50 > 20 else 'No'}"
        for i, role in enumerate(roles)
    ]
    (folder / "t.csv").write_text("\n".join(["id,split,city,age,gout", *rows]))
    return (
        "NumberTable\n  init_args: {path: t.csv, labels: {gout: {'Yes': 1, 'No': 0, '?': null}},"
        " categories: {city: public}, fill: public, features: AutoFeatures}"
    )


def reword(folder: Path) -> None:
    text = (folder / "t.csv").read_text()
    (folder / "t.csv").write_text(re.sub("r3,private,.*", "r3,private,Lima,NA,?", text))


def pictures(folder: Path) -> str:
    write_pictures(folder, num=48)
    maps = "{class_path: ChainedFeatures, init_args: {maps: [PatchFeatures, PublicScaling]}}"
    return f"PictureTable\n  init_args: {{root: ., size: 16, features: {maps}}}"


def lose(folder: Path) -> None:
    (folder / "p03.jpg").unlink()
    (folder / "p06.jpg").write_bytes(b"no picture")


FIT = ["teachers", "fit", "--config", "data.yaml", "--unit", "UNIT", "--run", "run"]
AFTER = (["verify", "run"], ["ledger", "show", "one.sqlite"])
LABEL = ["label", "--target_epsilon", "8", "--delta", "1e-5", "--run", "run"]
STAGES = (
    [*FIT, "--fit", "closed_form", "--dry_run"],
    [*FIT, "--fit", "closed_form"],
    ["teachers", "vote", "--run", "run"],
    LABEL,
    ["student", "fit", "--model.network", "models.Linear", "--run", "run"],
    ["student", "test", "--run", "run"],
    *AFTER,
)
TRAINED = [
    "--network",
    "models.Linear",
    "--num_teachers",
    "4",
    "--num_steps",
    "2",
    "--batch_size",
    "8",
]
NETWORKS = ([*FIT, *TRAINED, "--dry_run"], [*FIT, *TRAINED], STAGES[2], LABEL, *AFTER)
RECIPE = ["run", "recipe", "--run", "run", "--teachers.unit", "UNIT"]
WHOLE = ([*RECIPE, "--dry_run"], RECIPE, RECIPE, *AFTER)
MEASURED = re.compile(r"of [0-9.]+ GB|about [0-9.]+ s, of [0-9.]+ ms")
"""The free memory of the machine, and its speed."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "change", "unit", "commands"),
    [
        (arrays, alter, "record", STAGES),
        (arrays, alter, "record", WHOLE),
        (arrays, alter, "record", NETWORKS),
        (arrays, remove, "record", STAGES),
        (arrays, remove, "record", WHOLE),
        (arrays, lambda folder: remove(folder, 3, 6), "group", STAGES),
        (arrays, lambda folder: remove(folder, 3, 6), "group", WHOLE),
        (table, reword, "record", STAGES),
        (table, reword, "record", WHOLE),
        (pictures, lose, "record", STAGES),
        (pictures, lose, "record", WHOLE),
        (pictures, lose, "record", NETWORKS),
    ],
)
def test_all_that_is_printed_and_shared_is_equal_on_neighbors(
    write: Callable[[Path], str],
    change: Callable[[Path], None],
    unit: str,
    commands: Sequence[Sequence[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def outputs(name: str, kept: list[ForcedGenerator] | None, *more: str) -> Any:
        """Return the draws, and all that commands print and leave in public/."""
        here, draws, numbers = tmp_path / "here", list[ForcedGenerator](), count(161)
        here.mkdir()
        monkeypatch.chdir(here)
        monkeypatch.setattr(secrets, "token_hex", lambda n=8: f"{next(numbers):02x}" * n)
        (here / "data.yaml").write_text(f"data:\n  class_path: {write(here)}\nledger: one.sqlite\n")
        (here / "recipe").mkdir()
        for file, text in (
            ("data", (here / "data.yaml").read_text()),
            ("teachers", "fit: closed_form\n"),
            ("label", "target_epsilon: 8\ndelta: 1e-5\n"),
            ("student", "model:\n  network: models.Linear\n"),
        ):
            (here / "recipe" / f"{file}.yaml").write_text(text)
        if kept is not None:
            change(here)

        def forced(self: Any, release: int, generator: Any) -> None:
            before = None if kept is None else kept[len(draws)].draws
            draws.append(ForcedGenerator(release, before))
            draw(self, release, draws[-1])

        monkeypatch.setattr(LabelsRelease, "draw", forced)
        printed = list[Any]()
        for words in commands:
            own = more if words[0] not in ("verify", "ledger") else ()
            status = cli.main([unit if word == "UNIT" else word for word in [*words, *own]])
            said = [MEASURED.sub("", stream) for stream in capsys.readouterr()]
            printed.append((words, status, *said))
        assert [status for _, status, *_ in printed] == [0] * len(commands), printed
        files = {
            path.relative_to(here): path.read_bytes()
            for path in (here / "run").rglob("public/**/*")
            if path.is_file()
        }
        here.rename(tmp_path / name)
        return draws, printed, files

    draw = LabelsRelease.draw
    monkeypatch.setattr(ledger, "_now", lambda: "2026-01-01T00:00:00+00:00")
    draws, printed, files = outputs("records", None)
    _, others, other_files = outputs("neighbor", draws)
    assert printed == others and files == other_files and len(files) >= 4
    if change in (alter, lose):  # what the owner sees tells these neighbors apart
        sides = [outputs(f"owner {kept is None}", kept, "--owner")[1] for kept in (None, draws)]
        assert sides[0] != sides[1]
