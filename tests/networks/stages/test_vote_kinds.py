"""Networks vote by scores, or by bits of equal shares, and what is released from either."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate import ReleasedLabels, cli
from pate._labeling.runs.run import Run
from pate._labeling.runs.vote_store import finished_votes
from pate._labeling.votes.kinds import rows_of
from pate.accounting import read_ledger
from pate.aggregators import Ballots, Counts
from pate.teachers import VoteStore

Captured = pytest.CaptureFixture[str]


class Killed(KeyboardInterrupt):
    pass


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


@pytest.mark.slow
def test_voting_that_was_killed_goes_on_and_a_changed_score_is_told(
    copied: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    vote = ["teachers", "vote", "--run", str(copied), "--votes=scores", "--overwrite"]
    saved: list[range] = []
    save = VoteStore.save_chunk

    def cut(store: VoteStore, teachers: range, *given: Any, **more: Any) -> None:
        if len(saved) == 2:
            raise Killed
        saved.append(teachers)
        save(store, teachers, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(VoteStore, "save_chunk", cut)
        assert cli.main(vote) == 130
    store = VoteStore(copied / "private" / "votes")
    first = store.chunk_file(range(4))
    when, content = first.stat().st_mtime_ns, first.read_bytes()
    # what was begun as scores goes on as scores
    assert cli.main(["teachers", "vote", "--run", str(copied), "--votes=bits"]) == 2
    assert cli.main(vote[:-2]) == 0
    assert first.stat().st_mtime_ns == when and store.manifest().ballots == "scores"
    first.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    label = ["label", "--run", str(copied), "--delta=1e-3", "--target_epsilon=50", "--overwrite"]
    capsys.readouterr()
    assert cli.main(label) == 2
    assert "votes_00000.npy changed since" in capsys.readouterr().err
    first.write_bytes(content)
    store.check()
    # scores of teachers who were never interrupted are the same
    before = [chunk.tobytes() for chunk in store.scores()]
    for path in store.folder.glob("votes_*"):
        path.unlink()
    assert cli.main(vote[:-2]) == 0
    assert [chunk.tobytes() for chunk in store.scores()] == before


@pytest.mark.slow
def test_quantile_bits_are_votes_for_every_aggregator(copied: Path) -> None:
    vote = ["teachers", "vote", "--run", str(copied), "--votes=quantile_bits", "--overwrite"]
    assert cli.main(vote) == 0
    store = finished_votes(Run(copied))
    votes, _ = store.load(Ballots)
    assert store.manifest().ballots == "bits" and votes.ballots is not None
    # of 400 records of 10 teachers, half have the first label, and of 100 samples as many
    assert 0.4 < votes.ballots[:, :, 0].mean() < 0.6
    words = ["--aggregator=StableTopK", "--aggregator.scale_gap=1", "--aggregator.sigma_test=0.5"]
    words += [
        "--aggregator.delta_test=1e-6",
        "--delta=1e-3",
        "--overwrite",
        "--noise_seed=1",
        "--num_queries=20",
    ]
    assert cli.main(["label", "--run", str(copied), *words]) == 0
