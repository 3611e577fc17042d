"""Teachers in closed form by their commands: each of a record, a group or a part of a hashed
partition."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate import ReleasedLabels, Votes, cli
from pate._core.validation import MOST_VOTERS
from pate._labeling.data.records import assign_teachers
from pate._labeling.runs.run import Run, read_key
from pate._labeling.runs.vote_store import load_voters
from pate.accounting import read_ledger
from pate.aggregators import Geometry, GroupVoters, RecordVoters, ScoreVotes, Voters
from tests.conftest import make_arrays

Captured = pytest.CaptureFixture[str]
RECORDS, GROUPS, PARTS = "unit: record", "unit: group", "num_teachers: 50"
FORMS = {"records": RECORDS, "groups": GROUPS, "parts": PARTS}


class Place:
    """A folder with data, settings and a run."""

    def __init__(self, folder: Path, form: str = RECORDS) -> None:
        self.folder, self.root = folder, folder / "run"
        self.teachers = folder / "teachers.yaml"
        self.teachers.write_text(f"fit: closed_form\n{form}\n")
        self.write()

    def write(self, change: Callable[[dict[str, np.ndarray]], None] | None = None) -> None:
        """Write the data, changed or not."""
        arrays = make_arrays()
        arrays["group"] = np.char.mod("g%03d", np.arange(600) // 3)
        if change is not None:
            change(arrays)
        np.savez(self.folder / "data.npz", **arrays)  # type: ignore[arg-type]
        path = self.folder / "data.npz"
        (self.folder / "data.yaml").write_text(
            f"data:\n  class_path: Arrays\n  init_args:\n    path: {path}\n"
        )

    def fit(self, *words: str) -> int:
        files = (f"--config={self.folder / part}.yaml" for part in ("data", "teachers"))
        try:
            return cli.main(["teachers", "fit", *files, "--run", str(self.root), *words])
        except SystemExit as stop:  # of an option that cannot be parsed
            return int(stop.code or 0)

    def vote(self, *words: str) -> int:
        return cli.main(["teachers", "vote", "--run", str(self.root), *words])

    def label(self, *words: str) -> int:
        options = ["--delta=1e-3", "--target_epsilon=20", "--noise_seed=1"]
        return cli.main(["label", *options, "--run", str(self.root), *words])

    def all(self) -> None:
        assert [self.fit(), self.vote(), self.label()] == [0, 0, 0]

    @property
    def released(self) -> ReleasedLabels:
        return ReleasedLabels.load(self.root)

    @property
    def releases(self) -> int:
        return len(read_ledger(self.folder / "data.ledger.sqlite").entries)

    def made(self) -> dict[str, bytes]:
        folder = self.root / "private" / "teachers"
        return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "form",
    [
        "records",
        pytest.param("groups", marks=pytest.mark.slow),
        pytest.param("parts", marks=pytest.mark.slow),
    ],
)
def test_records_groups_and_parts_are_voters_from_a_recipe_to_labels(
    form: str, tmp_path: Path
) -> None:
    place = Place(tmp_path, FORMS[form])
    place.all()
    released, arrays = place.released, make_arrays()
    assert (
        json.loads(json.dumps(released.aggregator))["class_path"] == "pate.aggregators.ScoreVotes"
    )
    nominal = {"parts": 50}.get(form, MOST_VOTERS)
    assert released.num_teachers == nominal and released.mask.all() and released.linear
    truth = arrays["Y"][[int(name[1:]) for name in released.ids]]
    assert (released.labels == truth).mean() > 0.85
    # the voters are those of the private records, as they are in memory
    public, private = arrays["split"] == 1, arrays["split"] == 0
    geometry = Geometry.of(arrays["X"][public])
    units = {"records": np.arange(400), "groups": np.arange(400) // 3}.get(form)
    if units is None:
        key = read_key(Run(place.root))
        assert key is not None
        units = assign_teachers(arrays["ids"][private].tolist(), num_teachers=50, key=key)
    order = np.argsort(units, kind="stable")
    settings: dict[str, Any] = {
        "geometry": geometry,
        "num_voters": nominal,
        "num_labels": 4,
        "coordinates": geometry.coordinates(arrays["X"][private])[order],
        "labels": arrays["Y"][private][order],
    }
    given = load_voters(Run(place.root))
    assert given.num_private == len(np.unique(units))
    if form == "records":
        memory: Voters = RecordVoters(**settings)
    else:
        memory = GroupVoters(**settings, groups=units[order])
    votes = [Votes.from_voters(voters, arrays["X"][public]) for voters in (given, memory)]
    answers = [
        ScoreVotes(multiplier_scores=5.0).aggregate(each, generator=np.random.default_rng(0))
        for each in votes
    ]
    np.testing.assert_array_equal(answers[0].noisy_counts, answers[1].noisy_counts)


class Killed(KeyboardInterrupt):
    pass


def test_a_fit_that_was_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two plans of one run, the first of which was killed between its files."""
    place = Place(tmp_path, GROUPS)

    def kill(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", kill)
        assert place.fit() == 130
    assert {"public.npz", "coordinates.npy"} == place.made().keys()
    with np.load(place.root / "private" / "teachers" / "public.npz") as public:
        # runs that were made before have the same names
        assert {*public} == {
            *("centre", "axes", "step", "unit", "variances", "samples", "parts", "unknown_labels")
        }
    assert place.vote() == 2  # it is not finished
    assert place.fit() == 0
    groups = place.made()
    # a plan of single records finds nothing of the groups, even where what was begun is forgotten
    (place.root / "private" / "teachers_fit.json").unlink()
    place.teachers.write_text(f"fit: closed_form\n{RECORDS}\n")
    assert place.fit() == 0
    assert place.made().keys() == groups.keys() - {"groups.npy"}
    assert isinstance(load_voters(Run(place.root)), RecordVoters)


def alter(name: str, row: int, value: Any) -> Callable[[dict[str, np.ndarray]], None]:
    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays[name][row] = value

    return change


# rows of the table: 3 is private, 450 public
CHANGES = {
    "private labels": alter("Y", 3, 1 - make_arrays()["Y"][3]),
    "public features": alter("X", 450, 9.0),
    "a group": alter("group", 3, "g000"),
}
FIRST, *OTHERS = CHANGES


@pytest.mark.parametrize(
    "change", [FIRST, *(pytest.param(change, marks=pytest.mark.slow) for change in OTHERS)]
)
def test_other_data_are_noticed_at_every_step(
    change: str, tmp_path: Path, capsys: Captured
) -> None:
    place = Place(tmp_path, GROUPS)
    assert place.fit() == 0
    place.write(CHANGES[change])
    assert [place.fit(), place.vote()] == [2, 2]
    place.write()
    assert place.vote() == 0
    if change == "public features":
        place.write(CHANGES[change])
        assert place.label() == 2 and place.releases == 0
        place.write()
    assert place.label() == 0
    before = place.released
    place.write(CHANGES[change])
    capsys.readouterr()
    assert place.fit("--overwrite") == 0
    # the votes are of other teachers until they are cast again, and the labels until they are paid
    # for again
    assert place.label() == 2 and place.vote() == 2
    errors = capsys.readouterr().err.splitlines()
    assert "`pate teachers vote` with --overwrite" in errors[0] and len(errors) == 2
    assert place.vote("--overwrite") == 0
    assert place.label() == 2 and place.releases == 1
    assert place.label("--overwrite") == 0 and place.releases == 2
    assert str(place.released.noisy_counts) != str(before.noisy_counts)


def test_a_release_that_was_killed_is_another_one_of_other_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same records would be answered with the noise that was begun with; others never are."""
    place = Place(tmp_path)
    assert [place.fit(), place.vote()] == [0, 0]

    def kill(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("pate._labeling.plan.rehearse", lambda *_, **__: None)
        patch.setattr(ReleasedLabels, "save", kill)
        assert place.label("--noise_seed=null") == 130
    folder = place.root / "private" / "label"
    assert place.releases == 1 and any(folder.iterdir())
    place.write(CHANGES["private labels"])
    assert [
        place.fit("--overwrite"),
        place.vote("--overwrite"),
        place.label("--noise_seed=null"),
    ] == [0, 0, 2]
    assert place.releases == 1  # nothing is paid for again without a word
    assert place.label("--noise_seed=null", "--overwrite") == 0
    entries = read_ledger(tmp_path / "data.ledger.sqlite").entries
    assert [entry.settled for entry in entries] == [False, True]
    assert not folder.exists()  # no seed is left to draw from
