"""The audit of a ledger without a record, a group or a teacher: whole runs, right ones and others."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pate
from pate import cli
from pate._core.settings import Partial
from pate._labeling.votes.kinds import Counts
from pate.aggregators import Aggregator, Canonical, NoisyVotes, Release
from pate.data import Arrays
from pate.lab.audit import neighbor as module
from pate.lab.audit.forced import Movement
from pate.lab.audit.neighbor import NeighborAudit, Whom, audit_neighbor

Captured = pytest.CaptureFixture[str]
DELTA, TEACHERS = 1e-6, 12


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """150 records in groups of five, whose labels follow from their features."""
    generator, size = np.random.default_rng(0), np.repeat([0, 1, 2], [150, 30, 5])
    features = generator.standard_normal((len(size), 4)).astype(np.float32)
    labels = features[:, :3] + generator.standard_normal((len(size), 3)) > 0
    np.savez(
        tmp_path / "table.npz",
        X=features,
        Y=labels.astype(np.uint8),
        ids=np.char.mod("person-%03d", np.arange(len(size))),
        group=np.char.mod("family-%02d", np.arange(len(size)) // 5),
        split=size,
    )
    return tmp_path


def label(
    folder: Path, name: str, aggregator: Any = None, *, epsilon: float = 1.0, **plan: Any
) -> Path:
    """Make a run of the table, and a student of those without a start."""
    pate.RunPlan(
        folder / name,
        Arrays(folder / "table.npz"),
        teachers=pate.ClosedFormPlan(**plan),
        labels=pate.LabelSettings(aggregator, delta=DELTA, target_epsilon=epsilon),
        student=None if "start_from" in plan else pate.StudentPlan(),
    ).execute()
    return folder / name


def result(audited: NeighborAudit, table: str, place: int = 0) -> str:
    return audited.tables[table][place].result


@pytest.mark.slow
def test_honest_releases_pass_for_a_record(table: Path) -> None:
    label(table, "first")
    label(table, "second", num_teachers=TEACHERS)
    run = label(
        table,
        "third",
        num_teachers=TEACHERS,
        start_from=str(table / "first"),
        aggregator=Partial(Canonical, k=1),
    )
    before = {path: path.read_bytes() for path in table.rglob("*") if path.is_file()}
    audited = audit_neighbor(run, "record", "person-007")
    assert audited.verdict == "passed" and len(audited.tables["draws"]) == 3
    assert audited.text.startswith("PRIVATE")
    assert "where" in result(audited, "draws", 2) and "squared moves of 0," in result(
        audited, "draws", 2
    )
    assert (
        "no byte differs" in result(audited, "outputs")
        and "3 of 3" in audited.tables["totals"][0].tried
    )
    assert {path: path.read_bytes() for path in table.rglob("*") if path.is_file()} == before


@pytest.mark.slow
@pytest.mark.parametrize(("whom", "name"), [("group", "family-03"), ("teacher", "4")])
def test_totals_hold_for_whom_they_are_printed(whom: Whom, name: str, table: Path) -> None:
    label(table, "first", epsilon=4.0)
    run = (
        label(
            table,
            "second",
            Partial(NoisyVotes),
            epsilon=4.0,
            num_teachers=TEACHERS,
            start_from=str(table / "first"),
        )
        if whom == "teacher"
        else label(table, "second", unit="group")
    )
    audited = audit_neighbor(run, whom, name)
    assert [test.verdict for test in audited.tables["draws"]] == ["passed", "passed"]
    assert "not for this" in audited.tables["draws"][0].power
    assert audited.verdict == "passed"


@dataclass(frozen=True, kw_only=True)
class Doubled(NoisyVotes):
    """Noisy votes whose event forgets that each vote counts twice."""

    def aggregate(self, votes: Counts, *, generator: np.random.Generator) -> Release:
        twice = Counts(counts=2 * votes.counts, num_teachers=2 * votes.num_teachers)
        return super().aggregate(twice, generator=generator)


@dataclass(frozen=True, kw_only=True)
class Telling(NoisyVotes):
    """Noisy votes that withhold what no teacher gave."""

    def aggregate(self, votes: Counts, *, generator: np.random.Generator) -> Release:
        release = super().aggregate(votes, generator=generator)
        return release._replace(mask=votes.counts % 2 == 0)


@dataclass(frozen=True, kw_only=True)
class Cautious(NoisyVotes):
    """Noisy votes with noise that depends on the votes."""

    def aggregate(self, votes: Counts, *, generator: np.random.Generator) -> Release:
        noisier = NoisyVotes(sigma_votes=self.sigma_votes + float(votes.counts.sum()))
        return noisier.aggregate(votes, generator=generator)


def imported(folder: Path, aggregator: Aggregator) -> Path:
    """A run of the votes of 40 teachers."""
    ballots = (np.random.default_rng(0).random((20, 40, 3)) < 0.4).astype(np.uint8)
    votes = pate.NamedVotes(
        ids=np.char.mod("s%02d", np.arange(20)), label_names=("a", "b", "c"), ballots=ballots
    )
    pate.label(votes, pate.LabelSettings(aggregator, delta=DELTA), run=folder / "run")
    return folder / "run"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("aggregator", "table", "says"),
    [
        (NoisyVotes(sigma_votes=60.0), "", ""),
        (Doubled(sigma_votes=60.0), "draws", "squared moves of"),
        (Telling(sigma_votes=60.0), "outputs", "others differ: run/public/labels.npz"),
        (Cautious(sigma_votes=60.0), "draws", "release 1: draw 1 of the neighbor has another form"),
    ],
    ids=lambda case: type(case).__name__ if isinstance(case, NoisyVotes) else "",
)
def test_a_wrong_mechanism_is_refuted(
    aggregator: Any, table: str, says: str, tmp_path: Path
) -> None:
    audited = audit_neighbor(imported(tmp_path, aggregator), "teacher", "7")
    refuted = [
        (name, test.result)
        for name, tests in audited.tables.items()
        for test in tests
        if test.verdict == "refuted"
    ]
    assert bool(refuted) == bool(table)
    if table:
        assert audited.verdict == "refuted" and refuted[0][0] == table and says in refuted[0][1]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--neighbor", "x", "--neighbor_group", "y"], "Expected one of neighbor"),
        (["--neighbor", "x", "--output", "y"], "without output or settings"),
        (["--neighbor", "x", "--label.delta", "1e-6"], "without output or settings"),
        (["--neighbor", "x"], "`pate label` to be finished"),
    ],
)
def test_other_options_and_unfinished_runs_are_refused(
    words: list[str], error: str, tmp_path: Path, capsys: Captured
) -> None:
    assert cli.main(["audit", str(tmp_path / "run"), *words]) == 2
    assert error in capsys.readouterr().err


@pytest.mark.parametrize(
    ("whom", "covered"), [("record", True), ("group", True), ("teacher", False)]
)
@pytest.mark.parametrize(("moved", "verdict"), [(100.0, "refuted"), (0.0, "passed")])
def test_a_move_beyond_a_printed_total_is_refuted(
    whom: Whom, covered: bool, moved: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is printed for a group holds for its records, and for teachers of other partitions not."""
    monkeypatch.setattr(module, "first_stage", lambda run: None)
    settings = SimpleNamespace(settings={"num_teachers": 3, "unit": "group"})
    run: Any = SimpleNamespace(inputs_of=lambda stage: settings)
    figures = {"unit": "group", "epsilon": 1.0}
    guarantees = {"replace_record": figures, "add_remove_teacher": figures}
    statement = {"delta": 1e-6, "unit": "group", "guarantees": guarantees}
    neighbor = module.Neighbor(whom=whom, name="0", ids=())
    (test,) = module._totals_tests(statement, run, neighbor, {1: Movement(moved)}, 1)
    assert test.subject == "all releases" + " under REPLACE_RECORD" * covered
    assert test.verdict == (verdict if covered else "passed")
