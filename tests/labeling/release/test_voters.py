"""`pate label --aggregator ScoreVotes`: teachers of any finished run are voters, by their votes and
public features."""

from dataclasses import replace
from pathlib import Path

import pytest

from pate import LabelSettings, Partial, ReleasedLabels, Votes, VoteShape, cli
from pate._labeling.release.label_settings import resolve_settings
from pate._labeling.release.labels import label as label_stage
from pate._labeling.runs.run import Run
from pate._labeling.runs.vote_store import finished_votes
from pate.accounting import read_ledger
from pate.aggregators import ClippedVotes, Moments, NoisyVotes, Rounds, Scores, ScoreVotes


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
