"""`pate run` of networks: by scores, on pictures, and what is refused before any is trained."""

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from torch import nn

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


EARLY = "{{callbacks: [{{class_path: EarlyStopping, init_args: {{monitor: {}}}}}]}}"


AROUND = "{class_path: TauVoting, init_args: {sigma_tau: 1, tau: 2, threshold_tau: 2, around_predictions: true}}"


def too_narrow(shape: tuple[int, ...], num_labels: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 3), nn.ReLU(), nn.Linear(3, num_labels - 1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"student.yaml": "model: {network: models.Gone}"}, "models"),
        ({"student.yaml": "trainer: {max_epoch: 3}"}, "max_epoch"),
        (
            {"student.yaml": "model: {network: torch.nn.Linear}"},
            "Expected a network of (input_shape, num_labels)",
        ),
        (
            student(network="tests.networks.test_run.too_narrow"),
            "float logits of shape [8, 4] from the network Sequential, got shape=[8, 3]",
        ),
        (
            student(optimizer="{class_path: SGD, init_args: {lr: -1}}"),
            "Invalid learning rate",
        ),
        (student(scheduler="lr_scheduler.ReduceLROnPlateau"), "ReduceLROnPlateau"),
        (
            student(data="{val_fraction: 0}", optimize="macro_f1"),
            "--data.val_fraction > 0",
        ),
        (student(data="{batch_size: 0}"), "batch_size >= 1"),
        (
            student(trainer="{accelerator: gpu}"),
            "Expected settings that fit Lightning and this machine",
        ),
        (
            student(network="models.Linear", data="{batch_size: 8}"),
            "Expected another network than pate.models.Linear, which is solved in closed form",
        ),
        (student(trainer="{devices: 2, accelerator: cpu}"), "trainer.strategy=ddp_spawn"),
        (student(trainer=EARLY.format("val_los")), "did you mean val_loss?"),
        (
            student(data="{val_fraction: 0}", trainer=EARLY.format("val_loss")),
            "metrics to monitor among train_loss, got val_loss",
        ),
        (
            {"label.yaml": f"aggregator: {AROUND}\ndelta: 0.001\npredictions: gone.npz"},
            "--predictions, a file that `pate student predict` wrote, got missing='gone.npz'",
        ),
    ],
)
def test_what_a_later_stage_would_refuse_is_told_before_the_first(
    change: dict[str, str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "data.npz", **make_arrays())  # type: ignore[arg-type]
    folder = recipe(tmp_path / "recipe", tmp_path / "data.npz")
    for name, text in change.items():
        (folder / name).write_text(text)
    test_run.require_refused(folder, message, tmp_path, capsys)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--teachers.num_steps=0"], "num_steps >= 1"),
        (["--label.delta=1e-5"], "delta > "),
        (["--votes=scores"], "votes that are Counts or Ballots, which"),
    ],
)
def test_bad_input_costs_one_line_and_nothing_else(
    words: list[str], message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "data.npz", **make_arrays())  # type: ignore[arg-type]
    folder = recipe(tmp_path / "recipe", tmp_path / "data.npz", steps=2, chunk_size=10)
    assert cli.main(["run", str(folder), "--run", str(tmp_path / "run"), *words]) == 2
    assert message in capfd.readouterr().err
    assert not (tmp_path / "data.ledger.sqlite").exists() and not (tmp_path / "run").exists()


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
