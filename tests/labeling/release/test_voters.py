"""`pate label --aggregator ScoreVotes`: teachers of any finished run are voters, by their votes and
public features."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pate
from pate import LabelSettings, Partial, ReleasedLabels, Votes, VoteShape, cli
from pate._labeling.aggregators import score_votes
from pate._labeling.linear import linear_student_of
from pate._labeling.release.completion import resolve_settings
from pate._labeling.release.labels import label as label_stage
from pate._labeling.runs.run import Run, load_data
from pate._labeling.runs.vote_store import finished_votes
from pate._labeling.votes.kinds import rows_of
from pate.accounting import NeighboringRelation as Relation, epsilon_of, read_ledger
from pate.aggregators import (
    ClippedVotes,
    Counts,
    Moments,
    NoisyVotes,
    Rounds,
    Scores,
    ScoreVotes,
)
from pate.data import Role
from tests.conftest import make_arrays

Captured = pytest.CaptureFixture[str]


class Killed(KeyboardInterrupt):
    pass


def release_from(root: Path, settings: LabelSettings) -> None:
    run = Run(root, overwrite=True)
    label_stage(run, finished_votes(run), settings)


def label(run: Path, *words: str) -> int:
    options = [
        "--aggregator=ScoreVotes",
        "--delta=1e-3",
        "--noise_seed=1",
        "--overwrite",
        "--run",
        str(run),
    ]
    return cli.main(["label", *options, *words])


@pytest.mark.slow
def test_a_finished_run_is_labelled_by_the_scores_of_its_votes(
    copied: Path, capsys: Captured
) -> None:
    words = ["--num_queries=80", "--target_epsilon=4000"]
    assert label(copied, *words) == 0
    released, entry = ReleasedLabels.load(copied), read_ledger(copied / "ledger.sqlite").entries[-1]
    assert 3999 < epsilon_of(entry.events[Relation.REPLACE_RECORD], count=80, delta=1e-3) <= 4000
    assert released.linear and released.mask.all() and released.noisy_counts is not None
    votes, ids = finished_votes(Run(copied)).load(Counts)
    shares = votes.counts[rows_of(released.ids, np.array(ids))] / 10
    assert np.corrcoef(shares.ravel(), released.noisy_counts.ravel() / 10)[0, 1] > 0.8
    # the same command finds these labels
    before = (copied / "public" / "labels.npz").read_bytes()
    assert label(copied, *words) == 0
    assert (copied / "public" / "labels.npz").read_bytes() == before
    # the student is the released model
    assert (
        cli.main(
            ["student", "fit", "--overwrite", "--run", str(copied), "--config", _student(copied)]
        )
        == 0
    )
    public = load_data(Run(copied)).records(Role.PUBLIC)
    student = linear_student_of(
        public.features[rows_of(released.ids, public.ids)],
        released.noisy_counts / 10,
        released.labels,
    )
    samples = make_arrays()["X"][500:]
    answers = pate.load_student(copied).predict_proba(samples)
    np.testing.assert_allclose(answers, student.predict(samples), atol=1e-4)


def _student(run: Path) -> str:
    path = run.parent / "student.yaml"
    path.write_text("model:\n  network: models.Linear\n")
    return str(path)


def test_killed_between_rounds_the_same_command_pays_once_and_draws_once(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pate._core.release.transaction.draw_key", lambda: 11)
    voting = ScoreVotes(multiplier_scores=5.0)

    def release() -> None:
        label_stage(
            Run(copied, overwrite=True),
            finished_votes(Run(copied)),
            LabelSettings(voting, num_queries=60, delta=1e-3),
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
    monkeypatch.setattr(
        "pate._core.release.transaction.draw_key", lambda: 12
    )  # would be other noise
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


def test_what_cannot_be_released_is_refused_before_it_is_paid(copied: Path) -> None:
    settings = LabelSettings(ScoreVotes(multiplier_scores=5.0), num_queries=1, delta=1e-3)
    with pytest.raises(ValueError, match=r"^[^\n]*features of two public samples or more[^\n]*$"):
        label_stage(Run(copied, overwrite=True), finished_votes(Run(copied)), settings)
    assert len(read_ledger(copied / "ledger.sqlite").entries) == 1


@pytest.mark.parametrize("scores_last", [True, False])
def test_voters_are_asked_by_a_part_of_a_composite(scores_last: bool, copied: Path) -> None:
    parts = (ClippedVotes(multiplier_clipped=50.0), ScoreVotes(multiplier_scores=50.0))
    aggregator = Rounds(rounds=parts if scores_last else parts[::-1])
    run = Run(copied, overwrite=True)
    label_stage(run, finished_votes(run), LabelSettings(aggregator, num_queries=40, delta=1e-3))
    released = ReleasedLabels.load(run.root)
    assert (
        released.linear == scores_last and released.mask.all() and released.noisy_counts is not None
    )
    assert (released.noise_std is None) == scores_last


@pytest.mark.parametrize("kind", [Scores, Moments])
def test_ballots_that_are_no_bits_are_read_by_score_votes_alone(kind: type[Votes]) -> None:
    shape, target = VoteShape(50, 3), LabelSettings(delta=1e-5, target_epsilon=1.0)
    assert type(resolve_settings(target, shape, 20).mechanism) is Rounds
    assert type(resolve_settings(target, shape, 20, kind).mechanism) is ScoreVotes
    complete = LabelSettings(ScoreVotes(multiplier_scores=5.0), delta=1e-5)
    assert resolve_settings(complete, shape, 20, kind).mechanism is complete.aggregator
    for other in (
        LabelSettings(NoisyVotes(sigma_votes=5.0), delta=1e-5),
        replace(target, aggregator=Partial(Rounds)),
    ):
        with pytest.raises(
            ValueError,
            match=rf"^Expected votes that are (Counts or )?Ballots, .* got votes='{kind.__name__}'$",
        ):
            resolve_settings(other, shape, 20, kind)
