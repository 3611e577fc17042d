"""`pate calibrate` prints noise that meets its target, for any aggregator, and what to write into
label.yaml."""

import re
from typing import Any
from unittest.mock import ANY

import pytest
import yaml
from jsonargparse import ArgumentParser

from pate import VoteShape, cli
from pate.accounting import NeighboringRelation, epsilon_of
from pate.aggregators import Aggregator, NoisyVotes, Powerset

PANEL = VoteShape(200, 4)
ASKED = ["--delta=1e-6", "--num_queries=50", "--num_teachers=200", "--num_labels=4"]
Printed = pytest.CaptureFixture[str]


def released(text: str) -> Any:
    """Return the aggregator of what is printed for label.yaml, as `pate label` reads it."""
    content = yaml.safe_load(text.split("# label.yaml\n")[1])
    assert content.keys() == {"aggregator", "num_queries", "delta"}
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--aggregator", type=Aggregator)
    return parser.instantiate(parser.parse_object({"aggregator": content["aggregator"]})).aggregator


SPLIT = "StableTopK"
ASKED_FOR = [
    ["NoisyVotes"],
    ["Powerset"],
    ["Canonical", "--aggregator.k=2", "--aggregator.scale_canonical=7"],
    ["NoisyVotes", "--aggregator.sigma_votes=3", "--aggregator.soft=false"],
    ["Peeling", "--aggregator.k=2"],
    [SPLIT, "--aggregator.delta_test=1e-9"],
    ["ClippedVotes", "--aggregator.around_predictions=true"],
    ["Rounds"],
]


@pytest.mark.parametrize(
    ("words", "relation"),
    [
        # each under one of them, turn by turn; one that splits its noise is calibrated by the next
        # test
        pytest.param(
            words,
            relation,
            marks=[] if (place + turn) % 2 and words[0] != SPLIT else [pytest.mark.slow],
        )
        for place, words in enumerate(ASKED_FOR)
        for turn, relation in enumerate(NeighboringRelation)
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value.name,
)
def test_what_is_printed_meets_the_target(
    words: list[str], relation: NeighboringRelation, capsys: Printed
) -> None:
    """What is pasted costs what was asked, under the relation that was, as printed."""
    options = [f"--neighboring_relation={relation.name}", "--target_epsilon=2", *ASKED]
    if len(words) > 1:
        words = [*words, f"--aggregator.neighboring_relation={relation.name}"]
    # of few rounds the best adversary is soon found
    assert cli.main(["calibrate", "--aggregator", *words, *options, "--num_queries=20"]) == 0
    text = capsys.readouterr().out
    aggregator = released(text)
    assert type(aggregator).__name__ == words[0] and aggregator.neighboring_relation is relation
    assert 1.9999 < epsilon_of(aggregator.event(PANEL), count=20, delta=1e-6) <= 2.0
    for name, scale in aggregator.noise.items():
        assert f"    {name} = {scale!r}\n" in text


@pytest.mark.slow
def test_noise_of_a_release_is_what_it_was(capsys: Printed) -> None:
    """Figures of an earlier version, but for rounding; and what a query needs of so few
    teachers."""
    for name, noise, scale in (
        ("NoisyVotes", "sigma_votes", 31.543698050699845),
        ("Powerset", "scale_powerset", 15.730291844660979),
    ):
        assert cli.main(["calibrate", "--aggregator", name, "--target_epsilon=2", *ASKED]) == 0
        printed = re.search(rf"{noise} = (\S+)", capsys.readouterr().out)
        assert printed and float(printed[1]) == pytest.approx(scale, rel=1e-13)
    words = [
        "--target_epsilon=5",
        "--delta=1e-6",
        "--num_queries=100",
        "--num_teachers=60",
        "--num_labels=6",
    ]
    more = ["--neighboring_relation=ADD_REMOVE_TEACHER", "--answered=0.7", "--delta_test=1e-9"]
    assert cli.main(["calibrate", *words, *more]) == 0
    text = capsys.readouterr().out
    assert "scale_gap = 21.2978651227597\n" in text and "sigma_test = 9.569747673517918\n" in text
    assert "A gap of 68.9 votes between the counts" in text
    assert "60 teachers cannot have it" in text


def test_gaps_say_what_they_are_of() -> None:
    noisy = NoisyVotes(sigma_votes=31.5).gap_needed(PANEL, probability=0.9)
    assert noisy is not None
    assert (noisy.meaning, noisy.available) == (
        "A count 40.4 votes away from 100 keeps its label",
        100,
    )
    sets = Powerset(scale_powerset=16.6).gap_needed(PANEL, probability=0.9)
    assert sets is not None
    assert (
        sets.meaning.startswith("A gap of 82.5 votes between the two label sets")
        and sets.available == 200
    )
    assert NoisyVotes(sigma_votes=31.5).gap_needed(PANEL, probability=0.4) == (0, 100, ANY)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--aggregator=Powerset", "--delta_test=1e-9"], "Expected no delta_test for Powerset"),
        (
            ["--aggregator=Peeling"],
            "Expected k (--aggregator.k) of Peeling, which no target suggests",
        ),
        (["--aggregator=StableTopK", "--delta_test=1e-6"], "Expected delta_test < 2e-08"),
        (["--aggregator=NoisyVotes", "--answered=1.5"], "Expected 0 < answered < 1"),
        (["--aggregator=Peeling", "--aggregator.k=9"], "Expected k <= 4 for 4 items, got k=9"),
        (
            ["--aggregator=StableTopK", "--aggregator.scale_gap=3"],
            "Expected all noise of StableTopK or none of it",
        ),
        (
            [
                "--aggregator=Peeling",
                "--aggregator.k=2",
                "--neighboring_relation=ADD_REMOVE_TEACHER",
            ],
            "Expected --aggregator.neighboring_relation ADD_REMOVE_TEACHER, for which the target is, got",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_what_cannot_be_met_is_one_line(words: list[str], message: str, capsys: Printed) -> None:
    assert cli.main(["calibrate", *words, "--target_epsilon=2", *ASKED]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_name_that_is_none_is_told_what_it_may_mean(capsys: Printed) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["calibrate", "--aggregator=Powersets", "--target_epsilon=2", *ASKED])
    assert stopped.value.code == 2 and "did you mean Powerset?" in capsys.readouterr().err


def test_calibrated_noise_keeps_its_target_as_printed(capsys: Printed) -> None:
    for target in (0.5, 1.0, 2.0, 4.0):
        assert (
            cli.main(["calibrate", "--aggregator=NoisyVotes", f"--target_epsilon={target}", *ASKED])
            == 0
        )
        sigma = float(re.search(r"sigma_votes = (\S+)", capsys.readouterr().out)[1])  # type: ignore[index]
        assert (
            epsilon_of(NoisyVotes(sigma_votes=sigma).event(PANEL), count=50, delta=1e-6) <= target
        )
