"""The stages of the teachers by their commands: several processes, the choice of a chunk size, dry
runs."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pate import cli
from pate._networks.teachers.executors import Report
from pate.aggregators import Ballots
from pate.teachers import TrainJob, VoteStore
from tests.conftest import make_arrays
from tests.networks.conftest import recipe
from tests.processes import Start


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    np.savez(tmp_path / "data.npz", **make_arrays())  # type: ignore[arg-type]
    folder = recipe(tmp_path / "recipe", tmp_path / "data.npz", steps=5)
    return ["--config", str(folder / "data.yaml"), "--config", str(folder / "teachers.yaml")]


def fit(words: list[str], root: Path, *more: str) -> int:
    return cli.main(["teachers", "fit", *words, "--run", str(root), *more])


def contents(root: Path) -> dict[str, bytes]:
    folder = root / "private" / "teachers"
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def again(finished: Path) -> list[str]:
    """The settings that the finished run's teachers were trained with."""
    return ["--config", str(finished / "private" / "teachers_fit.yaml")]


def same_partition(root: Path, other: Path) -> None:
    (other / "private").mkdir(parents=True)
    (other / "private" / "partition.json").write_bytes(
        (root / "private" / "partition.json").read_bytes()
    )


def begin(words: list[str], root: Path, *more: str, chunks: int = 1) -> None:
    """Train the first chunks, as a command does that is interrupted."""
    work = TrainJob.work
    done: list[range] = []

    def interrupted(job: TrainJob, teachers: range, report: Report) -> None:
        if len(done) == chunks:
            raise KeyboardInterrupt
        done.append(teachers)
        work(job, teachers, report)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainJob, "work", interrupted)
        assert fit(words, root, *more) == 130


@pytest.mark.slow
def test_processes_that_work_together_end_where_one_ends(
    again: list[str],
    finished: Path,
    tmp_path: Path,
    start: Start,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Threads and executors too are no settings of a run."""
    root = tmp_path / "shared"
    same_partition(finished, root)
    # as a rank of torchrun, whose variables Lightning must not take for its own
    for name, value in {
        "RANK": "1",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "3",
        "MASTER_ADDR": "localhost",
    }.items():
        monkeypatch.setenv(name, value)
    begin(again, root, "--threads=2", "--shared=true")
    assert cli.main(["teachers", "vote", "--run", str(root)]) == 2
    assert "`pate teachers fit` to be finished" in capsys.readouterr().err
    for stage in (["fit", *again], ["vote"]):
        words = ["teachers", *stage, "--run", str(root), "--shared=true"]
        for command in [start(*words, folder=tmp_path) for _ in range(3)]:
            assert command.wait() == 0, command.err
    assert contents(root) == contents(finished)
    for path in (finished / "private" / "votes").glob("*.npy"):
        assert (root / "private" / "votes" / path.name).read_bytes() == path.read_bytes()
    assert not [*root.rglob("*.lease"), *root.rglob(".finish")]
    saved = (root / "private" / "teachers_fit.yaml").read_text()
    assert not [
        name for name in ("workers", "executor", "shared", "gpus", "dry_run") if name in saved
    ]


@pytest.mark.slow
def test_the_chunk_size_is_chosen_once(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "run"
    begin(words, root, "--chunk_size", "auto")
    assert "at once: " in capsys.readouterr().out
    kept = root / "private" / "teachers" / "chunk_size.json"
    chosen = json.loads(kept.read_text())["chunk_size"]
    assert chosen in (1, 5)
    kept.write_text('{"chunk_size": 3}')  # as if another machine had chosen
    for path in kept.parent.glob("*.pt"):
        path.unlink()
    assert fit(words, root, "--chunk_size", "auto") == 0
    assert "at once: " not in capsys.readouterr().out
    assert len(list(kept.parent.glob("*.pt"))) == 4
    assert cli.main(["teachers", "vote", "--run", str(root)]) == 0


@pytest.mark.slow
def test_a_dry_run_writes_nothing(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert fit(words, tmp_path / "run", "--dry_run", "--workers", "2") == 0
    text, others = capsys.readouterr()
    assert "400" not in text + others  # their number is the owner's
    assert fit(words, tmp_path / "run", "--dry_run", "--workers", "2", "--owner") == 0
    text, others = capsys.readouterr()
    assert others.startswith("PRIVATE: 400 records in 10 partitions of ")
    assert "2 workers by loky" in text
    assert sorted(tmp_path.rglob("*")) == before


CURVES = ["min", "q10", "median", "q90", "max"]


def test_curves_of_losses_are_kept(finished: Path) -> None:
    lines = contents(finished)["PRIVATE_losses/metrics.csv"].decode().splitlines()
    rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(lines)]
    assert set(rows[0]) == {"step", "teachers_of_finite_loss", *CURVES}
    assert [row["step"] for row in rows] == list(range(1, 21))
    assert all(row["teachers_of_finite_loss"] == 10 for row in rows)
    spread = np.array([[row[name] for name in CURVES] for row in rows])
    assert (np.diff(spread, axis=1) >= 0).all()
    assert spread[-5:, 2].mean() < 0.8 * spread[0, 2]


def states(root: Path) -> list[dict[str, torch.Tensor]]:
    """Return the weights of each teacher."""
    found = []
    for path in sorted((root / "private" / "teachers").glob("*.pt")):
        chunk = torch.load(path, weights_only=True)
        for place in range(len(chunk["label_shares"])):
            found.append({name: value[place] for name, value in chunk["state"].items()})
    return found


@pytest.mark.slow
def test_a_record_that_is_removed_reaches_one_teacher_by_command(
    words: list[str], tmp_path: Path
) -> None:
    """On the real path: ids, components of the public samples, the partition, the files, the
    votes."""
    arrays = make_arrays()
    less = {
        name: np.delete(array, 3, axis=0) if len(array) == 600 else array
        for name, array in arrays.items()
    }
    roots = tmp_path / "whole", tmp_path / "less"
    more = ["--data.init_args.features=PublicPCA", "--data.init_args.features.num_components=5"]
    for root, content in zip(roots, (arrays, less), strict=True):
        np.savez(tmp_path / "data.npz", **content)  # type: ignore[arg-type]
        assert fit(words, root, *more) == 0
        assert cli.main(["teachers", "vote", "--run", str(root)]) == 0
        if root is roots[0]:
            same_partition(*roots)
    pairs = list(zip(*map(states, roots), strict=True))
    differing = [
        any(not torch.equal(one[name], other[name]) for name in one) for one, other in pairs
    ]
    assert len(pairs) == 10 and sum(differing) == 1
    (first, ids), (second, others) = (
        VoteStore(root / "private" / "votes").load(Ballots) for root in roots
    )
    assert ids == others == arrays["ids"][400:500].tolist()
    assert first.ballots is not None and second.ballots is not None
    moved = (first.ballots != second.ballots).any(axis=(0, 2))
    assert [teacher for teacher in np.flatnonzero(moved) if not differing[teacher]] == []


def one_line(capsys: pytest.CaptureFixture[str], *parts: str) -> None:
    """What was said last is one line that holds all ``parts``."""
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("pate ")
    for part in parts:
        assert part in line


@pytest.mark.slow
def test_a_key_that_is_lost_on_the_way(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Teachers of two keys would see one record twice."""
    root = tmp_path / "run"
    begin(words, root)
    key = root / "private" / "partition.json"
    kept = key.read_bytes()
    key.unlink()
    assert fit(words, root) == 2
    one_line(
        capsys, "the key that `pate teachers fit` was begun with", "--overwrite", "partition.json"
    )
    key.write_bytes(b'{"key": "' + b"00" * 32 + b'"}')
    assert fit(words, root) == 2
    one_line(capsys, "got other assignment of records to teachers", "--overwrite")
    # even where the state is gone, and a new key is drawn, the files say that they are of another
    key.unlink()
    (root / "private" / "teachers_fit.json").unlink()
    assert fit(words, root) == 2
    one_line(capsys, "got teachers_00000.pt made from others. Do it again with --overwrite")
    key.write_bytes(kept)
    assert fit(words, root) == 0
    key.unlink()
    assert fit(words, root, "--overwrite") == 0
    with (root / "private" / "teachers" / "PRIVATE_log.csv").open() as table:
        assert sum(int(row["records"]) for row in csv.DictReader(table)) == 400


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


DAMAGE = [
    flip,
    pytest.param(Path.unlink, marks=pytest.mark.slow),
    pytest.param(cut, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_teachers_are_noticed_and_made_again(
    damage: Callable[[Path], Any],
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = Path(shutil.copytree(finished, tmp_path / "run"))
    before = contents(root)
    path = root / "private" / "teachers" / "teachers_00004.pt"
    damage(path)
    assert cli.main(["teachers", "vote", "--run", str(root)]) == 2
    one_line(capsys, "private/teachers/teachers_00004.pt", "`pate teachers fit` makes it again")
    again = ["--config", str(root / "private" / "teachers_fit.yaml")]
    path.unlink(missing_ok=True)
    # of a worker that was killed while it wrote
    draft = path.with_name(f".{path.name}.0123456789abcdef")
    draft.write_bytes(b"half")
    assert fit(again, root) == 0
    assert contents(root) == before and not draft.exists()
    assert cli.main(["teachers", "vote", "--run", str(root)]) == 0


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_votes_are_noticed_and_made_again(
    damage: Callable[[Path], Any],
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = Path(shutil.copytree(finished, tmp_path / "run"))
    path = root / "private" / "votes" / "votes_00004.npy"
    before = path.read_bytes()
    damage(path)
    labelling = ["label", "--config", str(root / "public" / "label.yaml"), "--run", str(root)]
    assert cli.main([*labelling, "--num_queries=20", "--overwrite"]) == 2
    one_line(capsys, "private/votes/votes_00004.npy", "`pate teachers vote` makes it again")
    path.unlink(missing_ok=True)
    assert cli.main(["teachers", "vote", "--run", str(root)]) == 0
    assert path.read_bytes() == before
    assert cli.main(labelling) == 0


@pytest.mark.slow
def test_a_truncated_chunk_is_noticed_on_the_way(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "run"
    begin(words, root)
    cut(root / "private" / "teachers" / "teachers_00000.pt")
    assert fit(words, root) == 2
    one_line(
        capsys,
        "teachers_00000.pt, got a damaged file",
        "delete it, and `pate teachers fit` makes it again",
    )


def test_teachers_vote_as_they_were_trained(finished: Path, tmp_path: Path) -> None:
    """The file that tells readers how is none that later stages believe."""
    for number, text in enumerate((None, "", "num_teachers: 4\n")):
        root = Path(shutil.copytree(finished, tmp_path / f"run{number}"))
        saved = root / "private" / "teachers_fit.yaml"
        if text is None:
            saved.unlink()
        else:
            saved.write_text(text)
        assert cli.main(["teachers", "vote", "--run", str(root)]) == 0
