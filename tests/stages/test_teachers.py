"""The stages of the teachers by their commands: shares, the choice of a chunk size, dry runs."""

import csv
import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from pate import cli
from pate.runs import make_once
from tests.conftest import make_arrays, recipe


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    np.savez(tmp_path / "data.npz", **make_arrays())  # type: ignore[arg-type]
    folder = recipe(tmp_path / "recipe", tmp_path / "data.npz")
    return ["--config", str(folder / "data.yaml"), "--config", str(folder / "teachers.yaml")]


def fit(words: list[str], root: Path, *more: str) -> int:
    return cli.main(["teachers", "fit", *words, "--run", str(root), *more])


def contents(root: Path) -> dict[str, bytes]:
    folder = root / "private" / "teachers"
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def same_partition(root: Path, other: Path) -> None:
    (other / "private").mkdir(parents=True)
    (other / "private" / "partition.json").write_bytes((root / "private" / "partition.json").read_bytes())


def test_shares_end_where_one_process_ends(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, shared = tmp_path / "whole", tmp_path / "shared"
    assert fit(words, whole) == 0
    same_partition(whole, shared)
    assert fit(words, shared, "--share", "2/3") == 0
    assert "2 of 3 chunks are left to other shares, the first of them teachers 0 to 3" in capsys.readouterr().out
    assert cli.main(["teachers", "vote", "--run", str(shared)]) == 2
    assert "`pate teachers fit` to be finished" in capsys.readouterr().err
    # as a rank of torchrun, whose variables Lightning must not take for its own
    for name, value in {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)
    assert fit(words, shared, "--share", "rank") == 0
    assert fit(words, shared, "--share", "0/3") == 0
    assert "left to other shares" not in capsys.readouterr().out.splitlines()[-1:]
    assert contents(shared) == contents(whole)
    assert cli.main(["teachers", "vote", "--run", str(shared)]) == 0


def test_where_it_runs_is_no_setting(words: list[str], tmp_path: Path) -> None:
    root = tmp_path / "run"
    assert fit(words, root, "--share", "0/2") == 0
    assert fit(words, root, "--executor", "serial", "--threads", "2") == 0
    assert (root / "private" / "teachers" / "PRIVATE_log.csv").is_file()
    saved = (root / "private" / "teachers_fit.yaml").read_text()
    assert not [name for name in ("workers", "executor", "share", "gpus", "dry_run") if name in saved]


def test_overwriting_by_shares_is_refused(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(words, tmp_path / "run", "--share", "0/2", "--overwrite") == 2
    assert "Expected overwrite without a share" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--share", "3/3"), "share i/n with 0 <= i < n, got share='3/3'"),
        (("--workers", "0"), "workers >= 1"),
        (("--workers", "2", "--executor", "serial"), "executor loky or ray for several workers"),
        (("--clip_norm", "0"), "clip_norm > 0, got clip_norm=0.0"),
    ],
)
def test_bad_settings(
    more: tuple[str, ...], message: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(words, tmp_path / "run", *more) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_chunk_size_is_chosen_once(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "run"
    assert fit(words, root, "--chunk_size", "auto", "--share", "0/2") == 0
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


def test_a_dry_run_writes_nothing(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert fit(words, tmp_path / "run", "--dry_run", "--workers", "2") == 0
    text = capsys.readouterr().out
    assert text.startswith("PRIVATE: 400 records in 10 partitions of ")
    assert "2 workers by loky" in text
    assert sorted(tmp_path.rglob("*")) == before


def test_losses_schedules_and_clipping_by_command(words: list[str], tmp_path: Path) -> None:
    more = [
        *("--loss", "AsymmetricLoss", "--loss.gamma_negative", "2", "--clip_norm", "1"),
        *("--scheduler", "torch.optim.lr_scheduler.CosineAnnealingLR", "--scheduler.T_max", "20"),
    ]
    root = tmp_path / "run"
    assert fit(words, root, *more) == 0
    assert cli.main(["teachers", "vote", "--run", str(root)]) == 0
    plain = tmp_path / "plain"
    same_partition(root, plain)
    assert fit(words, plain) == 0
    assert contents(plain)["teachers_00000.pt"] != contents(root)["teachers_00000.pt"]


CURVES = ["min", "q10", "median", "q90", "max"]


def test_curves_of_losses_are_kept(words: list[str], tmp_path: Path) -> None:
    assert fit(words, tmp_path / "run") == 0
    lines = contents(tmp_path / "run")["PRIVATE_losses/metrics.csv"].decode().splitlines()
    rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(lines)]
    assert set(rows[0]) == {"step", "teachers_of_finite_loss", *CURVES}
    assert [row["step"] for row in rows] == list(range(1, 21))
    assert all(row["teachers_of_finite_loss"] == 10 for row in rows)
    spread = np.array([[row[name] for name in CURVES] for row in rows])
    assert (np.diff(spread, axis=1) >= 0).all()
    assert spread[-5:, 2].mean() < 0.8 * spread[0, 2]


def test_curves_in_the_format_of_tensorboard(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for root, kind in ((tmp_path / "a", "csv"), (tmp_path / "b", "tensorboard")):
        assert fit(words, root, "--logger", kind) == 0
    lines = contents(tmp_path / "a")["PRIVATE_losses/metrics.csv"].decode().splitlines()
    events = accumulator.EventAccumulator(str(tmp_path / "b" / "private" / "teachers" / "PRIVATE_losses")).Reload()
    # partitions are drawn by each run's own key, so that only the counts agree
    for name in CURVES:
        assert len(events.Scalars(name)) == len(lines) - 1
    counts = [(event.step, event.value) for event in events.Scalars("teachers_of_finite_loss")]
    assert counts == [(step, 10) for step in range(1, 21)]
    monkeypatch.setattr("pate.stages.teachers.find_spec", lambda name: None)
    assert fit(words, tmp_path / "c", "--logger", "tensorboard") == 2
    assert "pip install 'pate[tensorboard]'" in capsys.readouterr().err
    assert not (tmp_path / "c" / "private" / "teachers").exists()


def test_the_first_of_many_decides(tmp_path: Path) -> None:
    path = tmp_path / "once.json"
    found: list[int] = []
    together = threading.Barrier(8)

    def make(number: int) -> None:
        def content() -> dict[str, int]:
            together.wait()
            return {"number": number}

        found.append(make_once(path, content)["number"])

    threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1
    assert os.listdir(tmp_path) == ["once.json"]


@pytest.mark.slow
def test_two_workers_by_command(words: list[str], tmp_path: Path) -> None:
    whole, several = tmp_path / "whole", tmp_path / "several"
    assert fit(words, whole) == 0
    same_partition(whole, several)
    assert fit(words, several, "--workers", "2") == 0
    assert contents(several) == contents(whole)
    for root, more in ((whole, []), (several, ["--workers", "2"])):
        assert cli.main(["teachers", "vote", "--run", str(root), *more]) == 0
    votes = [sorted((root / "private" / "votes").glob("*.npy")) for root in (whole, several)]
    assert [path.read_bytes() for path in votes[0]] == [path.read_bytes() for path in votes[1]]
