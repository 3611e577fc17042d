import json
from pathlib import Path

import pytest

from pate.runs import LABEL, STUDENT, TEACHERS_FIT, Run, StageChangedError, code_version, digest, replacing, write_json


def test_a_stage_from_begin_to_finish(tmp_path: Path) -> None:
    run = Run(tmp_path / "r", config={"a": 1})
    assert run.needs(STUDENT, {"x": "1"})
    assert not run.is_finished(STUDENT)
    with pytest.raises(ValueError, match="run it first"):
        run.require(STUDENT)
    assert run.begin(STUDENT, {"x": "1"})
    assert run.begin(STUDENT, {"x": "1"})  # killed before it finished
    (run.root / STUDENT.outputs[0]).mkdir()
    run.finish(STUDENT)
    assert not run.begin(STUDENT, {"x": "1"})
    run.require(STUDENT)


@pytest.mark.parametrize(("config", "inputs"), [({"a": 2}, {"x": "1"}), ({"a": 1}, {"x": "2"}), ({}, {"x": "1"})])
def test_changes_are_refused_or_clear_what_was_left(
    config: dict[str, int], inputs: dict[str, str], tmp_path: Path
) -> None:
    Run(tmp_path, config={"a": 1}).begin(STUDENT, {"x": "1"})
    left = tmp_path / STUDENT.outputs[0] / "last.ckpt"
    left.parent.mkdir()
    left.write_text("weights")
    with pytest.raises(StageChangedError, match="was"):
        Run(tmp_path, config=config).begin(STUDENT, inputs)
    assert left.is_file()
    assert Run(tmp_path, config=config, overwrite=True).begin(STUDENT, inputs)
    assert not left.exists()


def test_clearing_labels_leaves_the_ledger(tmp_path: Path) -> None:
    run = Run(tmp_path, config={"a": 1})
    run.begin(LABEL, {})
    run.ledger_path.write_text("ledger")
    (tmp_path / LABEL.outputs[0]).write_text("labels")
    run.clear(LABEL)
    assert run.ledger_path.is_file()
    assert not (tmp_path / LABEL.outputs[0]).exists()


def test_the_first_stage_says_where_the_data_are(tmp_path: Path) -> None:
    Run(tmp_path, config={"data": {"class_path": "Arrays"}, "ledger": None, "seed": 0}).begin(TEACHERS_FIT, {})
    assert (tmp_path / "data.yaml").read_text() == "data:\n  class_path: Arrays\nledger: null\n"


def test_files_appear_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.json"
    write_json(path, {"a": 1})

    def write_half() -> None:
        with replacing(path, "w") as file:
            file.write("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in path.parent.iterdir()] == ["file.json"]


def test_digest_tells_parts_apart(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"bc")
    assert digest("a", "bc") == digest(b"a", tmp_path / "f")
    assert digest("a", "bc") != digest("ab", "c")
    assert code_version() == code_version()
