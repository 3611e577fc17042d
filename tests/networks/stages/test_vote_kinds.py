"""Networks vote by scores, or by bits of equal shares, and what is released from either."""

from pathlib import Path

import numpy as np
import pytest

from pate import ReleasedLabels, cli
from pate._labeling.runs.run import Run
from pate._labeling.runs.vote_store import finished_votes
from pate._labeling.votes.kinds import rows_of
from pate.accounting import read_ledger
from pate.aggregators import Counts

Captured = pytest.CaptureFixture[str]


def student_of(run: Path) -> str:
    path = run.parent / "student.yaml"
    path.write_text("model:\n  network: models.Linear\n")
    return str(path)


@pytest.mark.slow
def test_networks_leave_scores_which_are_labelled_for_a_target_alone(
    copied: Path, capsys: Captured
) -> None:
    vote, run = ["teachers", "vote", "--run", str(copied)], Run(copied)
    bits, ids = finished_votes(run).load(Counts)
    assert cli.main([*vote, "--votes=scores"]) == 2
    assert "votes='scores' (was 'bits')" in capsys.readouterr().err
    assert cli.main([*vote, "--votes=scores", "--absent=[3]", "--overwrite"]) == 0
    store = finished_votes(run)
    scores = np.concatenate(store.scores()).astype(np.float64)
    assert store.manifest().ballots == "scores" and (scores > 0).all(axis=(1, 2)).tolist() == [
        t != 3 for t in range(10)
    ]
    assert ((scores > 128).sum(axis=0) - bits.counts).max() <= 0  # one teacher is absent
    # the same votes again, and no other way of voting by accident
    before = store.manifest()
    assert cli.main(vote) == 0 and store.manifest() == before
    # a mechanism for votes of 0 or 1 is refused, and nothing is paid
    words = ["label", "--run", str(copied), "--delta=1e-3", "--noise_seed=1", "--overwrite"]
    for refused in (
        ["--aggregator=NoisyVotes", "--aggregator.sigma_votes=5"],
        ["--aggregator=Rounds"],
    ):
        assert cli.main([*words, "--target_epsilon=4", *refused]) == 2
        message = capsys.readouterr().err
        assert "Ballots, which" in message and "'Scores'" in message and message.count("\n") == 1
    assert len(read_ledger(copied / "ledger.sqlite").entries) == 1
    assert cli.main([*words, "--target_epsilon=4000", "--num_queries=80"]) == 0
    released = ReleasedLabels.load(run.root)
    assert released.linear and released.noisy_counts is not None and len(released.ids) == 80
    shares = np.where(scores > 0, (scores - 1) / 254, 0).mean(axis=0)[
        rows_of(released.ids, np.array(ids))
    ]
    assert np.corrcoef(shares.ravel(), released.noisy_counts.ravel() / 10)[0, 1] > 0.8
    # the student is the released model
    assert (
        cli.main(
            ["student", "fit", "--overwrite", "--run", str(copied), "--config", student_of(copied)]
        )
        == 0
    )
