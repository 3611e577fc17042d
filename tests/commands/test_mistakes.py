"""What is said of a wrong command line: one line, with what was meant."""

import shlex
from pathlib import Path

import pytest
from jsonargparse import ArgumentError

from pate import cli
from pate.commands.mistakes import OneLineParser, in_words, unknown_option
from pate.validation import did_you_mean

PANEL = "--num_queries 3 --delta 1e-5 --num_teachers 10 --num_labels 3"
PLAN = "plan --num_records 300 --num_labels 2 --num_public 30"


def end_of(words: list[str]) -> object:
    """The exit status of a command, however it ends."""
    try:
        return cli.main(words)
    except SystemExit as stop:
        return stop.code


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("label --run x --num_quer=3", "an option that there is, got --num_quer; did you mean --num_queries?"),
        ("label --num_quer 3", "did you mean --num_queries?"),
        ("account --num_querys=3", "did you mean --num_queries?"),
        ("run configs/faces --ref", "did you mean --references?"),
        ("run --run x", "Expected a recipe, such as faces, got none"),
        ("ledger show", "Expected --ledger, got none"),
        (
            "label",
            "Expected --target_epsilon (it finds mechanism and noise) or --aggregator, --delta and --run, got none",
        ),
        ("label --delta 1e-5 --run x", "Expected --target_epsilon (it finds mechanism and noise) or --aggregator, got"),
        (f"account --aggregator StableTopk {PANEL}", "its path, got StableTopk; did you mean StableTopK?"),
        (
            f"account --aggregator StableTopK --aggregator.gap 3 {PANEL}",
            "a setting of StableTopK, got --aggregator.gap",
        ),
        (f"account --aggregator NoisyVotes {PANEL}", "Expected --aggregator.sigma_votes of NoisyVotes, got none"),
        (f"account --aggregator.k 2 {PANEL}", "its path for --aggregator, before its settings, got none"),
        (
            f"account --aggregator.k 2 --aggregator StableTopk {PANEL}",
            "for --aggregator, before its settings, got none",
        ),
        (f"account --aggregator no.such.Cls {PANEL}", "can be imported for --aggregator, got no.such.Cls: No module"),
        (f"account --aggregator numpy.array {PANEL}", "a kind of Aggregator for --aggregator, got numpy.array"),
        (
            f"account --aggregator NoisyVotes --aggregator.sigma_votes [3] {PANEL}",
            "a number for --aggregator.sigma_votes",
        ),
        ("frontier --epsilons [x]", "Expected a number for --epsilons, got x"),
        ("frontier --seeds", "Expected a value for --seeds, got none"),
        ("calibrate --aggregator", "Expected a value for --aggregator, got none"),
        ("teachers vote --run", "Expected a value for --run, got none"),
        ("frontier --seeds 1.5", "Expected a whole number for --seeds, got 1.5"),
        ("frontier --student maybe", "Expected true or false for --student, got maybe"),
        (
            "frontier --neighboring_relation x",
            "Expected REPLACE_RECORD or ADD_REMOVE_TEACHER for --neighboring_relation",
        ),
        ("frontier --simulate.num_labels 4", "Expected --simulate.num_teachers of Simulation, got none"),
        ("frontier --simulate.num_label 4", "Expected a setting of Simulation, got --simulate.num_label"),
        (f"{PLAN} --unit foo", "Expected record or group for --unit, got foo"),
        (f"{PLAN} --label_density x", "Expected a number or a list for --label_density, got x"),
        (f"{PLAN} --curve [1]", "Expected a mapping for --curve, got [1]"),
        (f"{PLAN} foo", "Expected options with their values behind them, got foo"),
        ("frontier --config nowhere.yaml", "nowhere.yaml, which is not there"),
        ("frontier --config list.yaml", "Expected a YAML file of settings for --config, got - 1"),
        ("frontier --config cut.yaml", "Expected a YAML file of settings for --config, got while parsing"),
        ("frontier --config bytes.yaml", "Expected a YAML file of settings for --config, got a file that is no text"),
        ("frontier --config other.yaml", "Expected settings that the command has, got sigma"),
        ("student fit --run x --model.netw models.MLP", "did you mean --model.network?"),
        ("student fit --run x", "Expected --model.network, got none"),
        (
            "student fit --run x --model.network models.MPL",
            "a class of models for --model.network, got MPL; did you mean MLP?",
        ),
        ("student fit --run x --model.network models.MLP --model.network.hiden 3", "of MLP, got --model.network.hiden"),
        ("student test", "Expected --run, got none"),
        ("stdent fit", "unknown command: stdent fit; did you mean student fit?"),
    ],
)
def test_a_mistake_is_one_line(
    line: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "configs").symlink_to(Path("configs").absolute())
    monkeypatch.chdir(tmp_path)
    Path("list.yaml").write_text("- 1\n")
    Path("cut.yaml").write_text("seeds: [1\n")
    Path("bytes.yaml").write_bytes(b"\xff\xfe\x00")
    Path("other.yaml").write_text("seeds: 1\nsigma: 3\n")
    words = shlex.split(line)
    assert end_of(words) == 2
    captured = capsys.readouterr()
    assert said in captured.err and len(captured.err.splitlines()) == 1, captured.err
    assert captured.err.startswith("pate") and captured.err.endswith("--help` lists what there is)\n")
    assert captured.out == "" and not Path("x").exists()


def test_both_ways_to_say_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for line in (
        "account --aggregator NoisyVotes --aggregator.sigma_votes 90 --num_queries 3 --delta 1e-5 --num_teachers 50"
        " --num_labels 3",
        "account --aggregator=NoisyVotes --aggregator.sigma_votes=90 --num_queries=3 --delta=1e-5 --num_teachers=50"
        " --num_labels=3",
    ):
        assert cli.main(line.split()) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("word", "unknown"),
    [
        ("--seeds", False),
        ("--seeds=3", False),
        ("--seed", True),
        ("--aggregator.k", False),
        ("--aggregator.init_args.k=2", False),
        ("--aggregators+=x", False),
        ("--trainer.max_epochs", False),
        ("--trainer.max_epoch", True),
        ("--trainer.logger.name", False),
        ("--data", True),
        ("-5", False),
        ("--", False),
        ("a--b", False),
    ],
)
def test_unknown_options_are_found(word: str, unknown: bool) -> None:
    options = ["--seeds", "--aggregator", "--aggregator.help", "--aggregators", "--aggregators+", "--trainer"]
    options += ["--trainer.max_epochs", "--trainer.logger", "--trainer.logger.help"]
    assert unknown_option(["--seeds", "1", word], options) == (word.partition("=")[0] if unknown else None)


def test_what_is_far_from_all_options_is_not_guessed_at() -> None:
    assert did_you_mean("--zzz", ["--seeds", "--delta"]) == ""
    assert did_you_mean("--num", ["--num_labels", "--num_teachers", "--delta"]).endswith(
        "--num_labels or --num_teachers?"
    )


def test_an_error_of_an_unknown_kind_is_kept() -> None:
    assert in_words('Parser key "a":\n  something\n  else', ["--a"]) == "something else (--a)"
    assert in_words("something\n else", ["--a"]) == "something else"


def test_a_parser_that_raises_says_what_jsonargparse_says() -> None:
    parser = OneLineParser(exit_on_error=False)
    parser.add_argument("--seeds", type=int)
    with pytest.raises(ArgumentError, match="unrecognized arguments: --seed"):
        parser.parse_args(["--seed=3"])
    assert parser.parse_args(["--seeds=3"]).seeds == 3
