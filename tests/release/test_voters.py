"""`pate label --aggregator ScoreVotes`: teachers of any finished run are voters, by their votes and public features."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate import cli
from pate._linear import recovered
from pate._planning.completion import resolved
from pate._release.label_settings import LabelSettings
from pate._release.labels import label as label_stage
from pate._runs import Run
from pate._runs.released import ReleasedLabels
from pate._vote_store import finished_votes
from pate._votes import Panel, rows_of
from pate.accounting._calibration import epsilon_of
from pate.accounting._ledger import read_ledger
from pate.accounting._relation import NeighboringRelation as Relation
from pate.aggregators import NoisyVotes, Rounds, ScoreVotes
from pate.aggregators import _score_votes as score_votes
from pate.data._records import Role
from pate.student._data import StudentData
from tests.conftest import make_arrays

Captured = pytest.CaptureFixture[str]


class Killed(KeyboardInterrupt):
    pass


def release_from(root: Path, settings: LabelSettings) -> None:
    run = Run(root, overwrite=True)
    label_stage(run, finished_votes(run), settings)


def label(run: Path, *words: str) -> int:
    asked = ["--aggregator=ScoreVotes", "--delta=1e-3", "--noise_seed=1", "--overwrite", "--run", str(run)]
    return cli.main(["label", *asked, *words])


def test_a_finished_run_is_labelled_by_the_scores_of_its_votes(copied: Path, capsys: Captured) -> None:
    words = ["--num_queries=80", "--target_epsilon=4000"]
    assert label(copied, *words) == 0
    released, entry = ReleasedLabels.load(Run(copied)), read_ledger(copied / "ledger.sqlite").entries[-1]
    assert 3999 < epsilon_of(entry.events[Relation.REPLACE_RECORD], count=80, delta=1e-3) <= 4000
    assert released.noise_std == 0 and released.mask.all() and released.noisy_counts is not None
    votes, ids = finished_votes(Run(copied)).load()
    shares = votes.counts[rows_of(released.ids, np.array(ids))] / 10
    assert np.corrcoef(shares.ravel(), released.noisy_counts.ravel() / 10)[0, 1] > 0.8
    # the same command finds these labels
    before = (copied / "public" / "labels.npz").read_bytes()
    assert label(copied, *words) == 0
    assert (copied / "public" / "labels.npz").read_bytes() == before
    # the student is the released model
    assert cli.main(["student", "fit", "--overwrite", "--run", str(copied), "--config", _student(copied)]) == 0
    assert cli.main(["student", "predict", "--run", str(copied)]) == 0
    public = StudentData(copied).source.records(Role.PUBLIC)
    student = recovered(public.features[rows_of(released.ids, public.ids)], released.noisy_counts / 10, released.labels)
    with np.load(copied / "public" / "student" / "predictions.npz") as archive:
        np.testing.assert_allclose(archive["probabilities"], student.predict(make_arrays()["X"][500:]), atol=1e-4)
    assert cli.main(["report", str(copied)]) == 0
    assert "answers of a linear model" in (copied / "public" / "report.html").read_text()


def _student(run: Path) -> str:
    path = run.parent / "student.yaml"
    path.write_text("model:\n  network: models.Linear\ntrainer:\n  accelerator: cpu\n  enable_progress_bar: false\n")
    return str(path)


def test_killed_between_rounds_the_same_command_pays_once_and_draws_once(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pate._release.transaction.draw_key", lambda: 11)
    voting = ScoreVotes(multiplier_scores=5.0)

    def release() -> None:
        label_stage(
            Run(copied, overwrite=True), finished_votes(Run(copied)), LabelSettings(voting, num_queries=60, delta=1e-3)
        )

    sums: list[Any] = []
    noisy_sum: Callable[..., Any] = score_votes.noisy_sum

    def keep(*given: Any) -> Any:
        total = noisy_sum(*given)
        if given[0].num_voters == 10 and hasattr(given[0], "scores"):  # not in the rehearsal
            sums.append(total)
        return total

    def cut(*given: Any) -> Any:
        if len(sums) == 2:
            raise Killed
        return keep(*given)

    with monkeypatch.context() as patch:
        patch.setattr(score_votes, "noisy_sum", cut)
        with pytest.raises(Killed):
            release()
    assert len(read_ledger(copied / "ledger.sqlite").entries) == 2 and len(sums) == 2
    monkeypatch.setattr("pate._release.transaction.draw_key", lambda: 12)  # would be other noise
    monkeypatch.setattr(score_votes, "noisy_sum", keep)
    release()
    entries = read_ledger(copied / "ledger.sqlite").entries
    assert len(entries) == 2 and entries[-1].settled and len(sums) == 6
    for first, again in zip(sums[:2], sums[2:4], strict=True):
        np.testing.assert_array_equal(first.total, again.total)
    # paid for anew, it is drawn anew
    (copied / "public" / "labels.npz").unlink()
    release()
    assert len(read_ledger(copied / "ledger.sqlite").entries) == 3
    assert (sums[2].total != sums[6].total).any()


@pytest.mark.parametrize(
    ("aggregator", "queries", "message"),
    [
        (ScoreVotes(multiplier_scores=5.0), 1, "features of two public samples or more"),
        (Rounds(rounds=(ScoreVotes(multiplier_scores=5.0),)), 20, "Expected votes with voters"),
    ],
)
def test_what_cannot_be_released_is_refused_before_it_is_paid(
    aggregator: Any, queries: int, message: str, copied: Path
) -> None:
    with pytest.raises(ValueError, match=f"^[^\n]*{message}[^\n]*$"):
        label_stage(
            Run(copied, overwrite=True),
            finished_votes(Run(copied)),
            LabelSettings(aggregator, num_queries=queries, delta=1e-3),
        )
    assert len(read_ledger(copied / "ledger.sqlite").entries) == 1


@pytest.mark.parametrize("ballots", ["scores", "moments"])
def test_ballots_that_are_no_bits_are_read_by_score_votes_alone(ballots: Any) -> None:
    panel, target = Panel(50, 3), LabelSettings(delta=1e-5, target_epsilon=1.0)
    assert type(resolved(target, panel, 20).mechanism) is Rounds
    assert type(resolved(target, panel, 20, ballots).mechanism) is ScoreVotes
    complete = LabelSettings(ScoreVotes(multiplier_scores=5.0), delta=1e-5)
    assert resolved(complete, panel, 20, ballots).mechanism is complete.aggregator
    for other in (LabelSettings(NoisyVotes(sigma_votes=5.0), delta=1e-5), replace(target, aggregator=Rounds.blank())):
        with pytest.raises(
            ValueError, match=rf"^Expected --aggregator ScoreVotes, for ballots that are {ballots}, got"
        ):
            resolved(other, panel, 20, ballots)
