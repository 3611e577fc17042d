"""Forgetting a record leaves the bytes of a run that never saw it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from pate import Pipeline, cli
from pate._labeling.commands.check import check_run
from pate._labeling.data.records import assign_teachers
from pate._labeling.runs.run import TEACHERS_VOTE, Run, Stage, StageState
from pate._labeling.stages import teachers as teachers_stage
from pate._networks.teachers import stage as teachers
from pate.teachers import TrainJob
from tests.conftest import make_arrays

Captured = pytest.CaptureFixture[str]
KEY = "7c" * 32
FORMS = ["networks", "networks of groups", "records", "groups", "parts"]


def write(folder: Path, *without: str) -> None:
    """Write the data but some records, or groups of three."""
    arrays = make_arrays(150)
    arrays["group"] = np.char.mod("g%03d", np.arange(150) // 3)
    kept = ~(np.isin(arrays["ids"], without) | np.isin(arrays["group"], without))
    rows = {name: array[kept] if name != "label_names" else array for name, array in arrays.items()}
    np.savez(folder / "data.npz", **rows)  # type: ignore[arg-type]


def fit(folder: Path, name: str, form: str, *without: str) -> Path:
    """Make teachers and votes of a run by the commands, on data that lack some records
    meanwhile."""
    write(folder, *without)
    settings = {
        "networks": "network: pate.models.Linear\nnum_teachers: 10\nnum_steps: 3\nbatch_size: 4\nchunk_size: 4\n",
        "records": "fit: closed_form\n",
        "groups": "fit: closed_form\nunit: group\n",
        "parts": "fit: closed_form\nnum_teachers: 10\n",
    }
    settings["networks of groups"] = settings["networks"] + "unit: group\n"
    (folder / "teachers.yaml").write_text(settings[form])
    (folder / "data.yaml").write_text(
        f"data:\n  class_path: Arrays\n  init_args:\n    path: {folder / 'data.npz'}\n"
    )
    root = folder / name
    (root / "private").mkdir(parents=True, mode=0o700)
    (root / "private" / "partition.json").write_text(json.dumps({"key": KEY}))
    files = [f"--config={folder / part}.yaml" for part in ("data", "teachers")]
    assert cli.main(["teachers", "fit", *files, "--run", str(root)]) == 0
    assert cli.main(["teachers", "vote", "--run", str(root)]) == 0
    write(folder)
    return root


def content(root: Path) -> dict[str, bytes]:
    """Return the bytes of teachers and votes, and how far their stages are."""
    paths = [
        path
        for part in ("teachers", "votes")
        for path in (root / "private" / part).rglob("*")
        if path.is_file()
    ]
    assert len(paths) > 2
    paths += [root / "private" / f"teachers_{stage}.json" for stage in ("fit", "vote")]
    # but for the number that the data may still hold
    left = re.compile(rb',\n  "forgotten": \d+')
    return {path.relative_to(root).as_posix(): left.sub(b"", path.read_bytes()) for path in paths}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_the_bytes_are_those_of_a_run_without(tmp_path: Path, form: str, capsys: Captured) -> None:
    gone = ["g004", "g009"] if "groups" in form else ["r0013", "r0040"]
    root, fresh = fit(tmp_path, "all", form), fit(tmp_path, "rest", form, *gone)
    before = content(root)
    assert before != content(fresh)
    capsys.readouterr()
    assert cli.main(["forget", *gone, "--run", str(root)]) == 0
    assert "Forgotten: 2." in capsys.readouterr().out
    assert content(root) == content(fresh)
    checked = check_run(root)
    assert checked.next_command == f"pate forget ID ... --run {root}"
    told_next = (
        "`pate forget` took 2 out of this run: take the same out of the data, and call it again"
    )
    assert checked.notes == (told_next,)
    vote = ["teachers", "vote", "--run", str(root)]
    assert cli.main(vote) == 2  # the data still hold them
    error = capsys.readouterr().err
    assert "other private records" in error and told_next in error
    saved = [root / "data.yaml", root / "private" / "teachers_fit.yaml"]
    refit = ["teachers", "fit", *(f"--config={path}" for path in saved), "--run", str(root)]
    assert cli.main(refit) == 2
    assert told_next in capsys.readouterr().err
    write(tmp_path, *gone)
    assert cli.main(["forget", *gone, "--run", str(root)]) == 0
    assert "hold none of these" in capsys.readouterr().out
    assert check_run(root).notes == ()
    assert cli.main(vote) == 0
    assert content(root) == content(fresh)


@pytest.mark.slow
def test_other_chunks_are_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = fit(tmp_path, "all", "networks")
    teacher = int(assign_teachers(["r0013"], num_teachers=10, key=bytes.fromhex(KEY))[0])
    trained: list[range] = []
    train = TrainJob.work

    def work(job: TrainJob, teachers: range, report: Callable[[int], object]) -> None:
        if not job.is_done(teachers):
            trained.append(teachers)
        train(job, teachers, report)

    monkeypatch.setattr(TrainJob, "work", work)
    Pipeline(root).forget(["r0013"])
    assert [teacher in teachers for teachers in trained] == [True]


class _KilledError(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "at"),
    [
        (teachers, "drop_chunks"),
        (teachers, "fit_teachers"),
        (teachers, "vote_teachers"),
        (teachers_stage, "replace"),
    ],
)
def test_killed_anywhere_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: ModuleType, at: str
) -> None:
    root, fresh = fit(tmp_path, "all", "networks"), fit(tmp_path, "rest", "networks", "r0013")
    step: Callable[..., object] = getattr(place, at)
    calls = 0

    def killed(*args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        if at != "replace" or calls == 9:  # between training and voting
            raise _KilledError
        return step(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(place, at, killed)
        with pytest.raises(_KilledError):
            Pipeline(root).forget(["r0013"])
    assert Pipeline(root).forget(["r0013"])
    assert content(root) == content(fresh)


@pytest.mark.slow
def test_nothing_is_touched_where_it_is_refused(tmp_path: Path, capsys: Captured) -> None:
    root = fit(tmp_path, "all", "networks")
    before = content(root)
    changed = make_arrays(150)
    changed["X"][3] += 1
    for ids, data, expected in [
        (["r0013", "r9999"], None, "missing=['r9999']"),
        (["r0120"], None, "none of these"),  # a public one
        ([f"r{number:04d}" for number in range(100)], None, "records that are left"),
        (["r0013"], changed, "was begun with"),
        (["r9999"], changed, "was begun with"),
    ]:
        if data is not None:
            np.savez(tmp_path / "data.npz", **data)  # type: ignore[arg-type]
        capsys.readouterr()
        status = cli.main(["forget", *ids, "--run", str(root)])
        printed = capsys.readouterr()
        assert expected in printed.out + printed.err
        assert status == (0 if expected == "none of these" else 2)
        assert status == 0 or len(printed.err.splitlines()) == 1
        assert content(root) == before


def test_what_was_released_stays(copied: Path, capsys: Captured) -> None:
    public = {path: path.read_bytes() for path in (copied / "public").rglob("*") if path.is_file()}
    assert (copied / "private" / "references").is_dir()
    (copied / "private" / "report.html").write_text("a page on votes")
    (copied / "private" / "frontier").mkdir()
    (copied / "private" / "frontier" / "frontier.txt").write_text("PRIVATE")
    private = copied / "private"
    labels = json.loads((private / "label.json").read_text())
    assert cli.main(["forget", "r0007", "--run", str(copied)]) == 0
    printed = capsys.readouterr().out
    assert "Released files stay" in printed
    assert f"yours to delete: {private / 'frontier'}\n" in printed
    assert not (copied / "private" / "references").exists()
    assert not (copied / "private" / "report.html").exists()
    assert public == {
        path: path.read_bytes() for path in (copied / "public").rglob("*") if path.is_file()
    }
    assert labels == json.loads((private / "label.json").read_text())
    assert cli.main(["student", "test", "--run", str(copied)]) == 0
    label = ["label", "--config", str(copied / "public" / "label.yaml"), "--run", str(copied)]
    assert cli.main(label) == 2  # of other votes, and so another release


def test_votes_are_cast_again_where_it_was_killed_as_it_cleared_them(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings of the votes are among what is cleared."""
    votes = copied / "private" / "votes"
    before = json.loads((copied / "private" / "teachers_vote.json").read_text())["config"]
    record = Run.record

    def killed(run: Run, stage: Stage, state: StageState) -> None:
        if stage is TEACHERS_VOTE:
            raise _KilledError
        record(run, stage, state)

    with monkeypatch.context() as patched:
        patched.setattr(Run, "record", killed)
        with pytest.raises(_KilledError):
            Pipeline(copied).forget(["r0007"])
    assert not votes.exists() and not (copied / "private" / "teachers_vote.json").exists()
    half = f"Expected an end of `pate forget` of {copied}, which the same call reaches"
    assert check_run(copied).problems == (half,)
    assert Pipeline(copied).forget(["r0007"])
    state = json.loads((copied / "private" / "teachers_vote.json").read_text())
    assert state["finished"] and state["config"] == before and list(votes.glob("*.npy"))
    assert "again" not in json.loads((copied / "private" / "teachers_fit.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "place", "vote"),
    [
        ("networks", teachers, "vote_teachers"),
        ("records", teachers_stage, "seal_closed_form"),
    ],
)
def test_what_was_begun_is_finished_though_the_data_hold_them_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, place: ModuleType, vote: str
) -> None:
    def killed(*args: object, **kwargs: object) -> None:
        raise _KilledError

    root, fresh = fit(tmp_path, "all", form), fit(tmp_path, "rest", form, "r0013")
    with monkeypatch.context() as patched:
        patched.setattr(place, vote, killed)
        with pytest.raises(_KilledError):
            Pipeline(root).forget(["r0013"])
    write(tmp_path, "r0013")
    assert Pipeline(root).forget(["r0013"])
    assert content(root) == content(fresh)
    assert not Pipeline(root).forget(["r0013"])
