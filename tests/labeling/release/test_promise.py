"""Which deltas promise something, wherever a statement or a budget is asked for, and the words on
large epsilons."""

from pathlib import Path

import pytest

import pate
from pate import cli
from tests.conftest import made_votes
from tests.labeling.stages.test_votes_import import label, place, refused, spent

__all__ = ["place"]

Captured = pytest.CaptureFixture[str]
PROMISES_NOTHING = r"^Expected delta <= 0\.001, which promises something, got delta=0\.9$"


def test_no_release_is_stated_at_a_delta_that_promises_nothing(
    place: Path, capsys: Captured
) -> None:
    assert "delta <= 0.001" in refused(capsys, "--votes=votes.npz", "--delta=0.0011")
    assert spent() == 0 and not Path("runs/mine").exists()
    with pytest.raises(ValueError, match=PROMISES_NOTHING):
        pate.LabelSettings(pate.NoisyVotes(sigma_votes=2.0), delta=0.9)
    line = "account --aggregator NoisyVotes --target_epsilon 1 --num_queries 9 --num_teachers 2000 --num_labels 3 --delta 5e-4"
    assert cli.main(line.split()) == 2 and "Expected delta <" in capsys.readouterr().err
    assert not list(Path().glob("*.sqlite"))


def test_a_delta_lies_below_one_over_the_public_number_of_teachers(place: Path) -> None:
    """One teacher of 2,000, drawn at random and published, would be private at an epsilon of 0 and
    a delta of 5e-4."""
    votes = made_votes(2000)
    settings = pate.LabelSettings(pate.NoisyVotes(sigma_votes=90.0), num_queries=5, delta=5e-4)
    with pytest.raises(ValueError, match=r"^Expected delta < 1 / 2000, .*, got delta=0\.0005$"):
        pate.label(votes, settings, run="runs/mine")
    assert not Path("runs/mine").exists()
    fewer = made_votes(1999)
    assert pate.label(fewer, settings, run="runs/mine").release == 1


def test_a_statement_says_how_little_a_large_epsilon_promises(
    place: Path, capsys: Captured
) -> None:
    assert (
        label("--votes=votes.npz", aggregator=("--aggregator=NoisyVotes", "--target_epsilon=20"))
        == 0
    )
    sentence = "a guess between two neighbors may be right in all but 1 of 4.9e+08 cases."
    assert (
        sentence in capsys.readouterr().out
        and sentence in Path("runs/mine/public/privacy.txt").read_text()
    )
    assert cli.main(["verify", "runs/mine"]) == 0
