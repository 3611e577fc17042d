"""`pate label --votes`: teachers from anywhere, with the ledger, the statement and the student of
any other run."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pate import NamedVotes, ReleasedLabels, cli
from pate._labeling.runs.run import VOTES_IMPORT, Run
from pate._labeling.stages.votes_import import import_votes, open_votes_run, votes_from
from pate.accounting import read_ledger, verify_ledger
from pate.aggregators import Counts
from pate.teachers import VoteStore
from tests.conftest import made_votes, make_arrays, recipe

Captured = pytest.CaptureFixture[str]

NAMES = ("a", "b", "c", "d")
QUERIES = ("--num_queries=40", "--delta=1e-3")
NOISY = ("--aggregator=NoisyVotes", "--aggregator.sigma_votes=2")


def part(votes: NamedVotes, teachers: slice, *, counts: bool = False) -> NamedVotes:
    assert votes.ballots is not None
    own = votes.ballots[:, teachers]
    given: dict[str, Any] = {"ballots": own}
    if counts:
        given = {"counts": own.sum(axis=1, dtype=np.int64), "num_teachers": own.shape[1]}
    return NamedVotes(ids=votes.ids, label_names=votes.label_names, **given)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with votes, and public and test records that they were cast on; no
    private ones."""
    monkeypatch.chdir(tmp_path)
    made_votes().save(Path("votes.npz"))
    arrays = make_arrays()
    shown = arrays["split"] > 0
    rows = {
        name: array[shown] if len(array) == len(shown) else array for name, array in arrays.items()
    }
    np.savez("data.npz", **rows)  # type: ignore[arg-type]
    recipe(tmp_path / "recipe", Path("data.npz"))
    return tmp_path


def label(*words: str, run: str = "runs/mine", aggregator: tuple[str, ...] = NOISY) -> int:
    return cli.main(["label", *aggregator, *QUERIES, "--run", run, *words])


def refused(
    capsys: Captured, *words: str, run: str = "runs/mine", aggregator: tuple[str, ...] = NOISY
) -> str:
    """Run a command that has to fail, and return its one line."""
    capsys.readouterr()
    assert label(*words, run=run, aggregator=aggregator) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1, error
    return error


def spent(ledger: str = "votes.ledger.sqlite") -> int:
    return len(read_ledger(Path(ledger)).entries) if Path(ledger).exists() else 0


def released(run: str = "runs/mine") -> ReleasedLabels:
    return ReleasedLabels.load(run)


def test_votes_become_labels_with_a_ledger_beside_them(place: Path, capsys: Captured) -> None:
    assert label("--votes=votes.npz", "--unit=patient", "--noise_seed=1") == 0
    out = capsys.readouterr().out
    assert "one patient of the private data is added, removed or altered" in out
    assert "under REPLACE_RECORD" in out and "under ADD_REMOVE_TEACHER" in out
    assert (
        "voted by 20 teachers" in out and "The ledger of the private data holds 1 release(s)" in out
    )
    found = released()
    votes = made_votes()
    assert found.label_names == NAMES and set(found.ids) <= set(votes.ids)
    assert votes.ballots is not None
    rows = np.searchsorted(votes.ids, found.ids)
    majority = votes.ballots[rows].sum(axis=1) > 10
    assert (found.labels == majority).mean() > 0.95
    verify_ledger(Path("votes.ledger.sqlite"))
    assert oct(os.stat("runs/mine/private").st_mode)[-3:] == "700"
    said = yaml.safe_load(Path("runs/mine/data.yaml").read_text())
    assert said == {"data": None, "ledger": str(place / "votes.ledger.sqlite")}
    # nothing of the import is a setting of the labels
    assert set(yaml.safe_load(Path("runs/mine/public/label.yaml").read_text())) >= {
        "aggregator",
        "delta",
    }
    assert "votes" not in Path("runs/mine/public/label.yaml").read_text().replace("sigma_votes", "")


def test_the_same_votes_again_change_nothing(place: Path, capsys: Captured) -> None:
    assert label("--votes=votes.npz", "--unit=patient") == 0
    before = {path: path.read_bytes() for path in Path("runs/mine").rglob("*") if path.is_file()}
    for words in (("--votes=votes.npz",), ("--votes=votes.npz", "--unit=patient"), ()):
        assert label(*words) == 0
        after = {path: path.read_bytes() for path in Path("runs/mine").rglob("*") if path.is_file()}
        assert after == before
    assert spent() == 1
    # another place and another order of rows, with the ledger that the run has
    votes = made_votes()
    assert votes.ballots is not None
    NamedVotes(ids=votes.ids[::-1], label_names=NAMES, ballots=votes.ballots[::-1]).save(
        Path("moved/votes.npz")
    )
    assert label("--votes=moved/votes.npz") == 0
    assert spent() == 1 and not Path("moved/votes.ledger.sqlite").exists()


def test_a_folder_of_silos_has_its_ledger_inside(place: Path) -> None:
    """Ballots of one, of many and counts: what is drawn is what one file of all ballots gives."""
    whole = made_votes()
    assert whole.ballots is not None
    NamedVotes(ids=whole.ids, label_names=NAMES, ballots=whole.ballots[:, 0]).save(
        Path("silos/a.npz")
    )
    part(whole, slice(1, 8)).save(Path("silos/b.npz"))
    part(whole, slice(8, 20), counts=True).save(Path("silos/c.npz"))
    assert label("--votes=silos", "--noise_seed=4", run="runs/silos") == 0
    assert label("--votes=votes.npz", "--noise_seed=4", run="runs/whole") == 0
    assert spent("silos/ledger.sqlite") == 1
    for name in ("ids", "labels", "mask", "noisy_counts"):
        assert np.array_equal(
            getattr(released("runs/silos"), name), getattr(released("runs/whole"), name)
        ), name
    assert released("runs/silos").num_teachers == 20


SCORES = ("--aggregator=ScoreVotes", "--aggregator.multiplier_scores=5")


def made_scores() -> NamedVotes:
    """Teachers who are sure of most labels of `made_votes`, with the features of the samples."""
    votes, arrays = made_votes(), make_arrays()
    assert votes.ballots is not None
    scores = np.where(votes.ballots, 0.9, 0.2).astype(np.float32)
    return NamedVotes(
        ids=votes.ids, label_names=NAMES, scores=scores, features=arrays["X"][arrays["split"] == 1]
    )


def test_scores_of_other_models_become_labels_for_a_target_alone(
    place: Path, capsys: Captured
) -> None:
    votes = made_scores()
    votes.save(Path("scores.npz"))
    error = refused(capsys, "--votes=scores.npz")
    assert "which NoisyVotes takes, got votes='Scores'" in error
    assert not Path("runs/mine").exists() and spent("scores.ledger.sqlite") == 0
    target = ("--votes=scores.npz", "--target_epsilon=3000", "--noise_seed=1")
    for _ in range(2):
        assert label(*target, aggregator=()) == 0
        assert spent("scores.ledger.sqlite") == 1
    assert VoteStore(Path("runs/mine/private/votes")).manifest().ballots == "scores"
    truth = make_arrays()["Y"][400:500][np.searchsorted(votes.ids, released().ids)]
    assert released().linear and (released().labels == truth).mean() > 0.8
    # the same scores in silos, and a silo of them that stays away
    assert votes.scores is not None
    for name, own in (("a", slice(0, 12)), ("b", slice(12, 20))):
        silo = replace(votes, scores=votes.scores[:, own], num_teachers=None)
        silo.save(Path(f"silos/{name}.npz"))
    target = ("--votes=silos", *target[1:])
    assert label(*target, run="runs/silos", aggregator=()) == 0
    for name in ("ids", "labels", "noisy_counts"):
        np.testing.assert_array_equal(
            getattr(released("runs/silos"), name), getattr(released(), name)
        )
    replace(votes, scores=np.full((100, 8, 4), np.nan), num_teachers=None).save(Path("silos/b.npz"))
    assert label(*target, "--overwrite", run="runs/silos", aggregator=()) == 0
    assert released("runs/silos").num_teachers == 20
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(released("runs/silos").noisy_counts, released().noisy_counts)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--votes=nowhere.npz",), "without pickled objects, got missing='nowhere.npz'"),
        (("--votes=votes.npz", "--unit=two words"), "unit as one word"),
        (("--votes=votes.npz", "--silos=exchange"), "Expected --votes or --silos, not both"),
        (("--votes=votes.npz", "--num_queries=101"), "num_queries <= 100"),
        (("--votes=votes.npz", "--delta=2"), "0 < delta < 1"),
        (("--votes=$NOWHERE_AT_ALL/votes.npz",), "environment variables"),
        (("--unit=patient",), "Expected --votes or --silos with --unit, got option='--unit'"),
        (("--config=recipe/data.yaml",), "--votes or --silos with --data, got option='--data'"),
        ((), "`pate teachers vote` to be finished"),
    ],
)
def test_bad_settings_spend_nothing(
    words: tuple[str, ...], message: str, place: Path, capsys: Captured
) -> None:
    assert message in refused(capsys, *words)
    assert spent() == 0 and (not words or not Path("runs").exists())


# The student


# Files that are lost or changed


# Killed anywhere


class Killed(KeyboardInterrupt):
    pass


STEPS: dict[str, tuple[Any, str]] = {
    "key": (Run, "begin"),
    "data": (Run, "_write_data_config"),
    "chunk": (VoteStore, "save_chunk"),
    "counts": (VoteStore, "save_counts"),
    "manifest": (VoteStore, "write_manifest"),
    "state": (Run, "finish"),
}


FAST = [("chunk", True), ("state", False)]
KILLS = [(step, after) for step in STEPS for after in (False, True)]


@pytest.mark.parametrize(
    ("step", "after"),
    [kill if kill in FAST else pytest.param(*kill, marks=pytest.mark.slow) for kill in KILLS],
)
def test_an_import_that_was_killed_goes_on(
    step: str, after: bool, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = made_votes()
    silos = (part(whole, slice(0, 8)), part(whole, slice(8, 20), counts=True))
    votes = votes_from(silos)
    owner, name = STEPS[step]
    original: Callable[..., Any] = getattr(owner, name)

    def cut(*args: Any, **kwargs: Any) -> Any:
        if after:
            original(*args, **kwargs)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, cut)
        with pytest.raises(Killed):
            import_votes(open_votes_run(Path("runs/mine"), votes), votes)
    run = open_votes_run(Path("runs/mine"), votes)
    assert run.is_finished(VOTES_IMPORT) == (step == "state" and after)
    import_votes(run, votes)
    run.require_finished(VOTES_IMPORT)
    found, ids = VoteStore(Path("runs/mine/private/votes")).load(Counts)
    assert whole.ballots is not None
    assert ids == whole.ids.tolist() and (found.counts == whole.ballots.sum(axis=1)).all()


def test_killed_after_the_reservation_the_same_release_goes_on(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for any run: what was reserved is used up, and labels that are there are not paid for
    again."""

    def cut(*args: Any, **kwargs: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("pate._labeling.aggregators.noisy_votes.NoisyVotes.aggregate", cut)
        for name in ("_labeling.release.labels.rehearse", "_labeling.release.labels.rehearse"):
            patch.setattr(f"pate.{name}", lambda *_, **__: None)
        patch.setattr("pate._labeling.plan.rehearse", lambda *_, **__: None)
        assert label("--votes=votes.npz") == 130
    assert spent() == 1 and not Path("runs/mine/public/labels.npz").exists()
    for _ in range(2):
        assert label("--votes=votes.npz") == 0
        assert released().release == 1 and spent() == 1
    statement = json.loads(Path("runs/mine/public/privacy.json").read_text())
    assert [release["settled"] for release in statement["releases"]] == [True]


# Neighbors


def world(
    place: Path, votes: NamedVotes, capsys: Captured, aggregator: tuple[str, ...] = NOISY
) -> dict[str, bytes]:
    """Label the votes in the same place with the same key and noise; return all that is published
    or printed."""
    shutil.rmtree(place, ignore_errors=True)
    (place / "run" / "private").mkdir(parents=True)
    (place / "run" / "private" / "partition.json").write_text(json.dumps({"key": "5a" * 32}))
    votes.save(place / "votes.npz")
    capsys.readouterr()
    words = ("--config=recipe/data.yaml", "--noise_seed=3", "--max_epsilon=50")
    assert (
        label(f"--votes={place}/votes.npz", *words, run=str(place / "run"), aggregator=aggregator)
        == 0
    )
    out = capsys.readouterr()
    seen = {"out": out.out.encode(), "err": out.err.encode()}
    files = [
        path
        for path in (place / "run").rglob("*")
        if path.is_file() and "private" not in path.parts
    ]
    seen |= {path.name: path.read_bytes() for path in files}
    statement = json.loads(seen.pop("privacy.json"))
    # the hour differs, and with it the digest of the ledger's rows
    del statement["ledger"]["digest"]
    # and the released file is another
    del statement["sha256"]
    for release in statement["releases"]:
        del release["at"], release["published"]["sha256"]
    return seen | {"privacy.json": json.dumps(statement).encode()}


@pytest.mark.parametrize("counts", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_one_teacher_who_votes_otherwise_changes_only_what_is_released(
    counts: bool, place: Path, capsys: Captured
) -> None:
    before = made_votes()
    assert before.ballots is not None
    ballots = before.ballots.copy()
    ballots[:, 3] ^= 1
    after = NamedVotes(ids=before.ids, label_names=NAMES, ballots=ballots)
    worlds = [
        world(place / "here", part(votes, slice(0, 20), counts=counts), capsys)
        for votes in (before, after)
    ]
    released = [one.pop("labels.npz") for one in worlds]
    assert released[0] != released[1]
    assert worlds[0] == worlds[1]
    assert {"label.yaml", "privacy.txt", "data.yaml", "out"} <= worlds[0].keys()


@pytest.mark.parametrize("scores", [0.0, pytest.param(np.nan, marks=pytest.mark.slow)])
def test_one_teacher_who_scores_otherwise_changes_only_what_is_released(
    scores: float, place: Path, capsys: Captured
) -> None:
    """It denies all labels, or is sure of them, or takes no part."""
    before = made_scores()
    assert before.scores is not None
    changed = before.scores.copy()
    changed[:, 3] = scores
    worlds = [
        world(place / "here", votes, capsys, SCORES)
        for votes in (before, replace(before, scores=changed))
    ]
    released = [one.pop("labels.npz") for one in worlds]
    assert released[0] != released[1]
    assert worlds[0] == worlds[1]
