import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pate._core.files.reading import digest
from pate._core.files.writing import atomic_write, write_json
from pate._labeling.runs.run import (
    LABEL,
    STUDENT,
    TEACHERS_FIT,
    TEACHERS_VOTE,
    Run,
    Stage,
    StageChangedError,
    StageInputs,
)

TAUGHT = dict.fromkeys(["num_teachers", "start_from", "max_teachers_per_group"]) | {
    "unit": "record"
}


def test_a_stage_from_begin_to_finish(tmp_path: Path) -> None:
    run, inputs = Run(tmp_path / "r"), StageInputs({"a": 1}, {"x": "1"})
    assert run.needs(STUDENT, inputs)
    assert not run.is_finished(STUDENT)
    with pytest.raises(ValueError, match="run it first"):
        run.require_finished(STUDENT)
    assert run.begin(STUDENT, inputs)
    assert run.begin(STUDENT, inputs)  # killed before it finished
    (run.root / STUDENT.outputs[0]).mkdir()
    run.finish(STUDENT)
    assert not run.begin(STUDENT, inputs)
    run.require_finished(STUDENT)


@pytest.mark.parametrize(
    ("config", "inputs"), [({"a": 2}, {"x": "1"}), ({"a": 1}, {"x": "2"}), ({}, {"x": "1"})]
)
def test_changes_are_refused_or_clear_what_was_left(
    config: dict[str, int], inputs: dict[str, str], tmp_path: Path
) -> None:
    Run(tmp_path).begin(STUDENT, StageInputs({"a": 1}, {"x": "1"}))
    left = tmp_path / STUDENT.outputs[0] / "last.ckpt"
    left.parent.mkdir()
    left.write_text("weights")
    with pytest.raises(StageChangedError, match="was"):
        Run(tmp_path).begin(STUDENT, StageInputs(config, inputs))
    assert left.is_file()
    assert Run(tmp_path, overwrite=True).begin(STUDENT, StageInputs(config, inputs))
    assert not left.exists()


def test_an_output_that_is_a_link_goes_and_its_target_stays(tmp_path: Path) -> None:
    run, elsewhere = Run(tmp_path / "run"), tmp_path / "elsewhere"
    run.begin(STUDENT, StageInputs({"a": 1}))
    elsewhere.mkdir()
    (elsewhere / "last.ckpt").touch()
    output = run.root / STUDENT.outputs[0]
    output.symlink_to(elsewhere, target_is_directory=True)
    run.clear(STUDENT)
    assert not output.is_symlink() and (elsewhere / "last.ckpt").is_file()


def test_clearing_labels_leaves_the_ledger(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.begin(LABEL, StageInputs())
    run.ledger_path.write_text("ledger")
    (tmp_path / LABEL.outputs[0]).write_text("labels")
    run.clear(LABEL)
    assert run.ledger_path.is_file()
    assert not (tmp_path / LABEL.outputs[0]).exists()


class _KilledError(Exception):
    pass


def killed_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """End with an error before the change of the disk with the number ``step``."""
    left = step

    def stopping(function: Callable[..., Any]) -> Callable[..., Any]:
        def stopped(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise _KilledError
            return function(*args, **kwargs)

        return stopped

    for place, name in ((Path, "rename"), (Path, "replace"), (Path, "unlink"), (shutil, "rmtree")):
        monkeypatch.setattr(place, name, stopping(getattr(place, name)))


def made(run: Run, stage: Stage, inputs: dict[str, str]) -> None:
    """Do a stage whose outputs tell the inputs that they were made from."""
    if run.begin(stage, StageInputs(TAUGHT, inputs)):
        for output in stage.outputs:
            path = (
                run.root / output / "file"
                if stage.self_describing or stage is STUDENT
                else run.root / output
            )
            path.parent.mkdir(exist_ok=True)
            if not path.is_file():  # as chunks and checkpoints that are there
                path.write_text(inputs["x"])
        run.finish(stage)


@pytest.mark.parametrize(
    "stage",
    [
        TEACHERS_FIT,
        LABEL,
        *(pytest.param(stage, marks=pytest.mark.slow) for stage in (TEACHERS_VOTE, STUDENT)),
    ],
    ids=lambda stage: stage.name,
)
def test_killed_while_clearing_nothing_old_is_taken_for_new(stage: Stage, tmp_path: Path) -> None:
    ended = False
    step = 0
    while not ended:
        run = Run(tmp_path / str(step), overwrite=True)
        made(run, stage, {"x": "old"})
        with pytest.MonkeyPatch.context() as patch:
            killed_at(patch, step)
            try:
                run.begin(stage, StageInputs(TAUGHT, {"x": "new"}))
                ended = True
            except _KilledError:
                pass
        left = [
            path
            for output in stage.outputs
            for path in (run.root / output).rglob("*")
            if path.is_file()
        ]
        left += [run.root / output for output in stage.outputs if (run.root / output).is_file()]
        state = run.state(stage)
        if stage is LABEL and left:  # no statement without its labels
            assert run.root / stage.outputs[0] in left
        # what is there is what the state speaks of
        assert not left or (state is not None and state.inputs.digests == {"x": "old"})
        made(run, stage, {"x": "new"})
        for path in run.root.rglob("file"):
            assert path.read_text() == "new"
        step += 1
    assert step > 3


def student(root: Path) -> tuple[Run, Path]:
    run = Run(root)
    run.begin(STUDENT, StageInputs())
    path = root / STUDENT.outputs[0] / "last.ckpt"
    path.parent.mkdir(parents=True)
    path.write_text("weights")
    run.finish(STUDENT, {path: digest(path)})
    assert not run.needs(STUDENT, StageInputs())
    run.require_finished(STUDENT)
    return run, path


@pytest.mark.parametrize(
    ("content", "message"),
    [("w", r"last\.ckpt of 1 bytes \(was 7\)"), ("weighty", r"last\.ckpt changed since")],
)
def test_what_was_changed_is_noticed(content: str, message: str, tmp_path: Path) -> None:
    run, path = student(tmp_path)
    path.write_text(content)
    with pytest.raises(
        ValueError, match=f"{message}. Delete it, and `pate student fit` makes it again"
    ):
        run.require_finished(STUDENT)
    if len(content) != 7:
        with pytest.raises(ValueError, match=message):
            run.begin(STUDENT, StageInputs())
        assert Run(tmp_path, overwrite=True).begin(STUDENT, StageInputs())
        assert not path.exists()


def test_what_was_paid_for_is_not_made_again_unasked(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.begin(LABEL, StageInputs())
    files = [tmp_path / output for output in LABEL.outputs]
    for path in files:
        path.write_text("released")
    run.finish(LABEL, {path: digest(path) for path in files})
    assert not run.needs(LABEL, StageInputs())
    files[0].write_text("rewritten"[:8])
    with pytest.raises(
        ValueError,
        match=r"labels.npz changed since. Put it back, or do it again with `overwrite`, which",
    ):
        run.needs(LABEL, StageInputs())
    files[0].unlink()
    with pytest.raises(
        ValueError,
        match=r"labels.npz missing. Put it back, or do it again with `overwrite`, which is a",
    ):
        run.needs(LABEL, StageInputs())
    assert Run(tmp_path, overwrite=True).needs(LABEL, StageInputs())


def test_outputs_that_no_state_speaks_of_are_put_aside(tmp_path: Path) -> None:
    run, path = student(tmp_path)
    (tmp_path / STUDENT.state).unlink()
    assert run.begin(STUDENT, StageInputs())
    assert not path.exists()


def test_files_made_from_something_else_are_refused_or_put_aside(tmp_path: Path) -> None:
    Run(tmp_path).begin(TEACHERS_FIT, StageInputs(TAUGHT))
    chunk = tmp_path / TEACHERS_FIT.outputs[0] / "teachers_00000.pt"
    chunk.parent.mkdir()
    chunk.write_text("weights")
    with pytest.raises(
        ValueError, match=r"got teachers_00000.pt made from others. Do it again with `overwrite`"
    ):
        Run(tmp_path).begin(TEACHERS_FIT, StageInputs(TAUGHT), foreign=[chunk.name])
    assert chunk.is_file()
    assert Run(tmp_path, overwrite=True).begin(
        TEACHERS_FIT, StageInputs(TAUGHT), foreign=[chunk.name]
    )
    assert not chunk.exists()


@pytest.mark.parametrize(
    ("stage", "content", "reason"),
    [
        (STUDENT, '{"finished": tr', "Expecting value"),
        (STUDENT, "[]", "no attribute 'get'"),
        (STUDENT, '{"config": {}, "inputs": "1f01"}', "(Expected inputs)"),
        (TEACHERS_FIT, "{}", "(Expected config)"),
        (
            TEACHERS_FIT,
            '{"config": {}, "inputs": {}, "finished": true, "files": {"a": {"digest": "1f01"}}}',
            "(Expected files)",
        ),
        (TEACHERS_FIT, TAUGHT | {"max_teachers_per_group": "x"}, "wrong=['max_teachers_per_group"),
        (
            TEACHERS_FIT,
            {},
            "wrong=['num_teachers', 'unit', 'start_from', 'max_teachers_per_group']",
        ),
    ],
)
def test_a_state_that_is_not_one_is_refused(
    stage: Stage, content: str | dict[str, object], reason: str, tmp_path: Path
) -> None:
    run = Run(tmp_path)
    run.begin(stage, StageInputs(TAUGHT))
    state = tmp_path / stage.state
    if isinstance(content, dict):
        content = json.dumps(json.loads(state.read_text()) | {"config": content})
    state.write_text(content)
    with pytest.raises(ValueError, match=rf"wrote\. Delete it, .*{re.escape(reason)}") as raised:
        run.is_finished(stage)
    assert str(state) in str(raised.value) and "\n" not in str(raised.value)
    assert "1f01" not in str(raised.value)  # digests are private


@pytest.mark.parametrize("change", [{}, {"format": 2}])
def test_a_run_of_another_version_is_refused(change: dict[str, int], tmp_path: Path) -> None:
    run, _ = student(tmp_path)
    state = json.loads((tmp_path / STUDENT.state).read_text())
    del state["format"]
    write_json(tmp_path / STUDENT.state, state | change)
    with pytest.raises(
        ValueError, match=r"^Expected a run of this version of pate\. Choose another run"
    ) as raised:
        run.require_finished(STUDENT)
    assert "\n" not in str(raised.value)


def test_the_first_stage_says_where_the_data_are(tmp_path: Path) -> None:
    settings = {"data": {"class_path": "Arrays"}, "ledger": None, "seed": 0}
    Run(tmp_path).begin(TEACHERS_FIT, StageInputs(settings))
    assert (tmp_path / "data.yaml").read_text() == "data:\n  class_path: Arrays\nledger: null\n"


def test_files_appear_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.json"
    write_json(path, {"a": 1})

    def write_half() -> None:
        with atomic_write(path, "w") as file:
            file.write("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in path.parent.iterdir()] == ["file.json"]


def test_a_private_folder_that_others_can_read_is_closed(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.private.mkdir(parents=True)
    run.private.chmod(0o755)
    assert run.begin(TEACHERS_FIT, StageInputs(TAUGHT))
    assert run.private.stat().st_mode & 0o777 == 0o700
