"""What is said of a wrong command line, and what was meant."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from jsonargparse import ArgumentError, capture_parser

from pate import cli
from pate._core.validation import did_you_mean
from pate._labeling.commands.faults import in_our_words, unknown_option
from pate._labeling.commands.parsing import CommandParser, run_folder
from pate._labeling.commands.table import commands
from pate.aggregators import registered
from tests.conftest import make_arrays
from tests.labeling.commands.test_help import OF_NETWORKS

PANEL = "--target_epsilon 1 --num_queries 3 --delta 1e-5"


def end_of(words: list[str]) -> object:
    """The exit status of a command, however it ends."""
    try:
        return cli.main(words)
    except SystemExit as stop:
        return stop.code


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with files that are no settings."""
    (tmp_path / "configs").symlink_to(Path("configs").absolute())
    monkeypatch.chdir(tmp_path)
    Path("list.yaml").write_text("- 1\n")
    Path("cut.yaml").write_text("seeds: [1\n")
    Path("bytes.yaml").write_bytes(b"\xff\xfe\x00")
    Path("other.yaml").write_text("seeds: 1\nsigma: 3\n")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "label --run x --num_quer=3",
            "a known option, got --num_quer; did you mean --num_queries?",
        ),
        ("label --num_quer 3", "did you mean --num_queries?"),
        ("run configs/faces --dry", "did you mean --dry_run?"),
        (
            "label --delta 1e-5 --run x",
            "Expected --aggregator, or --target_epsilon, which finds one",
        ),
        ("stdent fit", "unknown command: stdent fit; did you mean student fit?"),
        (
            "run faces --trainer.max_epochs 3",
            "got override='--trainer.max_epochs'; did you mean --student.trainer.max_epochs?",
        ),
        ("run faces --num_queries 3", "Expected --label.num_queries in place of --num_queries"),
        ("run faces --trainer.", "did you mean --student.trainer.?"),
        ("run", "Expected a recipe, or --config with a file that --print_config wrote"),
        ("run faces --config other.yaml", "Expected a recipe, or --config"),
        ("run --config other.yaml", "Expected 4 YAML documents in other.yaml, as `pate run RECIPE"),
        (
            f"label --run x --aggregator NoisyVotes --aggregator.sigma_gap 40 {PANEL}",
            "got --aggregator.sigma_gap; did you mean sigma_votes? (`pate label --aggregator.help"
            " NoisyVotes` lists them)",
        ),
    ],
)
@pytest.mark.usefixtures("files")
def test_a_mistake_is_one_line(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert end_of(shlex.split(line)) == 2
    captured = capsys.readouterr()
    assert said in captured.err and len(captured.err.splitlines()) == 1, captured.err
    assert captured.err.startswith("pate") and captured.out == "" and not Path("x").exists()


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("run --run x", "recipe"),
        ("ledger show", "ledger"),
        ("label", "delta"),
        (f"label --run x --aggregator StableTopk {PANEL}", "; did you mean StableTopK?"),
        (f"label --run x --aggregator StableTopK --aggregator.gap 3 {PANEL}", "gap"),
        (f"label --run x --aggregator.k 2 {PANEL}", "aggregator"),
        (f"label --run x --aggregator no.such.Cls {PANEL}", "no.such.Cls"),
        (f"label --run x --aggregator numpy.array {PANEL}", "array"),
        (
            f"label --run x --aggregator NoisyVotes --aggregator.sigma_votes [3] {PANEL}",
            "sigma_votes",
        ),
        ("label --run x --aggregator", "--aggregator"),
        ("teachers vote --run", "--run"),
        ("label --run x --config nowhere.yaml", "nowhere.yaml"),
        ("label --run x --config list.yaml", "config"),
        ("label --run x --config cut.yaml", "config"),
        ("label --run x --config bytes.yaml", "pate label: "),
        ("label --run x --config other.yaml", "seeds"),
    ],
)
@pytest.mark.usefixtures("files")
def test_what_jsonargparse_refuses_is_told_in_its_words(
    line: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of its words only those that were given are looked for; they come without a traceback or a
    list of options."""
    assert end_of(shlex.split(line)) == 2
    captured = capsys.readouterr()
    assert named in captured.err and len(captured.err.splitlines()) == 1, captured.err
    assert captured.err.startswith("pate") and captured.err.count("--help") <= 1
    assert "Traceback" not in captured.err and "usage:" not in captured.err
    assert captured.out == "" and not Path("x").exists()


def test_both_ways_to_say_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for line in (
        "label --run x --aggregator NoisyVotes --num_queries 3 --delta 1e-5 --target_epsilon 2",
        "label --run x --aggregator=NoisyVotes --num_queries=3 --delta=1e-5 --target_epsilon=2",
    ):
        assert end_of(line.split()) == 2
        said.append(capsys.readouterr().err)
    assert said[0] == said[1] and "to be finished" in said[0]


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
    options = [
        "--seeds",
        "--aggregator",
        "--aggregator.help",
        "--aggregators",
        "--aggregators+",
        "--trainer",
    ]
    options += ["--trainer.max_epochs", "--trainer.logger", "--trainer.logger.help"]
    assert unknown_option(["--seeds", "1", word], options) == (
        word.partition("=")[0] if unknown else None
    )


def test_what_is_far_from_all_options_is_not_guessed_at() -> None:
    assert did_you_mean("--zzz", ["--seeds", "--delta"]) == ""
    assert did_you_mean("--num", ["--num_labels", "--num_teachers", "--delta"]).endswith(
        "--num_labels or --num_teachers?"
    )


def test_a_parser_that_raises_says_what_jsonargparse_says() -> None:
    parser = CommandParser(exit_on_error=False)
    parser.add_argument("--seeds", type=int)
    with pytest.raises(ArgumentError, match="got --seed; did you mean --seeds"):
        parser.parse_args(["--seed=3"])
    assert parser.parse_args(["--seeds=3"]).seeds == 3


@pytest.mark.parametrize("name", sorted(commands().keys() - {*OF_NETWORKS}))
def test_no_command_takes_a_setting_that_an_option_does_not_have(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty setting is refused as any other: of the command, and of each of its options."""
    parser = capture_parser(commands()[name].load(), ["--help"])
    assert isinstance(parser, CommandParser)
    general = "--help", "--config", "--print_config"
    options = {option for action in parser.shown._actions for option in action.option_strings}
    named = sorted(
        option
        for option in options
        if option.startswith("--") and not option.endswith((".help", "+"))
    )
    for option in (*named, ""):
        if option in general:
            continue
        unknown = f"{option}.no_such" if option else "--no_such"
        with pytest.raises(SystemExit):
            parser.parse_args([f"{unknown}={{}}"])
        said = capsys.readouterr().err
        assert "no_such" in said or f" {option}" in said, (unknown, said)


EMPTY = f"label --run x {PANEL}"
STABLE = "{class_path: StableTopK, init_args: {scale_gap: 3, sigma_test: 3, delta_test: 1e-8, max_k: {}}}"


@pytest.mark.parametrize("value", ["{}", "null", "[]", "3"])
@pytest.mark.parametrize("aggregator", sorted(registered()))
def test_no_aggregator_takes_an_option_of_another(
    aggregator: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*EMPTY.split(), "--aggregator", aggregator, f"--aggregator.max_kk={value}"]
    assert end_of(words) == 2
    said = capsys.readouterr().err
    assert f"Expected a setting of {aggregator} (neighboring_relation, " in said
    assert "got --aggregator.max_kk" in said
    assert f"(`pate label --aggregator.help {aggregator}` lists them)" in said


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ([*EMPTY.split(), f"--aggregator={STABLE}"], "max_k"),
        (
            [
                "label",
                "--run",
                "x",
                "--delta",
                "1e-6",
                "--target_epsilon",
                "1",
                "--config",
                "empty.yaml",
            ],
            "bogus",
        ),
    ],
)
@pytest.mark.usefixtures("files")
def test_empty_settings_in_values_and_files_are_refused(
    words: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("empty.yaml").write_text("bogus: {}\n")
    assert end_of(words) == 2
    said = capsys.readouterr().err
    assert re.search(
        rf"Option '{option}' is not accepted|setting of \w+ .*, got --\w+\.{option} ", said
    )


@pytest.mark.parametrize(
    "words",
    [
        ["--delta", "1" * 400],
        ["--delta=1e-5", "--max_epsilon", "1" * 400],
        ["--delta=1e-5", "--aggregator=NoisyVotes", f"--aggregator.sigma_votes={'1' * 400}"],
        ["--config=large.yaml"],
    ],
)
@pytest.mark.usefixtures("files")
def test_whole_numbers_beyond_floats_are_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("large.yaml").write_text(f"delta: {'1' * 400}\n")
    assert end_of(["label", "--run", "x", "--target_epsilon", "1", *words]) == 2
    captured = capsys.readouterr()
    assert "too large to convert to float" in captured.err and len(captured.err.splitlines()) == 1


def test_a_run_that_a_file_names_is_the_one_that_is_locked(tmp_path: Path) -> None:
    file = tmp_path / "student.yaml"
    file.write_text("run: runs/mine\n")
    assert run_folder(["--config", str(file)]) == Path("runs/mine")
    assert run_folder(["--config", str(file), "--run", "runs/other"]) == Path("runs/other")
    assert run_folder(["--overwrite"]) is None


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("predict model new.csv --probabilities", "predict model new.csv --probabilities true"),
        ("predict model new.csv --trust true", "predict model new.csv --trust"),
        ("predict model new.csv --trust=false", "predict model new.csv"),
        ("check --run run", "check run"),
    ],
)
def test_a_switch_and_a_run_may_be_written_either_way(
    given: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for words in (given, meant):
        assert cli.main(words.split()) == 2
        said.append(capsys.readouterr().err)
    assert said[0] == said[1] and "Expected" in said[0] and "known option" not in said[0]


WORDS = [
    ("run R --teachers.unit grup", "--unit among record, group, got grup; did you mean group?"),
    ("run R --teachers.num_teachers many", "a whole number for --num_teachers, got many"),
    ("run R --label.target_epsilon two", "a finite number for --target_epsilon, got two"),
    (
        "run R --label.aggregator ScoreVote",
        "a class, by name or import path, for --aggregator, got ScoreVote; did you mean ScoreVotes?",
    ),
    (
        "run R --label.aggregator.purpose=x",
        "a class for --aggregator, which takes these settings",
    ),
    ("run R --labl.delta 1e-5", "got override='--labl.delta'; did you mean --label.delta?"),
    ("run R label.delta 1e-5", "--label.delta, got option='label.delta'"),
    ("run R --votes bit", "--votes among bits, scores, quantile_bits, got bit; did you mean bits?"),
    ("run face", "got recipe='face'; did you mean faces or "),
    ("run R --data.permanent_ids maybe", "true or false for --data.permanent_ids, got maybe"),
    ("run R --data.unknown_labels 7", "--data.unknown_labels among nan, -1, got 7"),
    ("label --target_epsilon 2 --run r", "the argument --delta (`"),
    ("label target_epsilon 2", "--target_epsilon, got target_epsilon"),
    ("teachers fit --run r --fit closed_form", "the argument --data (`"),
    ("predict", "the arguments model, source (`"),
    ("init R2 --kind cvs", "--kind among npz, csv, celeba,"),
    ("ledger show --ledger", "a value behind --ledger"),
    ("check a b", "options, each with -- before its name, got b"),
    (
        f"label --run x --aggregator.sigma_votes x --aggregator NoisyVotes {PANEL}",
        "a class for --aggregator, which takes these settings",
    ),
    (
        f"label --run x --aggregator NoisyVotes {PANEL} --aggregator.neighboring_relation x",
        "--aggregator.neighboring_relation among REPLACE_RECORD, ADD_REMOVE_TEACHER, got x",
    ),
]


@pytest.mark.parametrize(("line", "said"), WORDS)
@pytest.mark.usefixtures("files")
def test_no_type_of_a_parser_is_said(
    line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez("mine.npz", **make_arrays())  # type: ignore[arg-type]
    assert cli.main(["init", "R", "--data", "mine.npz"]) == 0
    capsys.readouterr()
    assert end_of(line.split()) == 2
    error = capsys.readouterr().err
    assert f": Expected {said}" in error or f", {said}" in error, error
    for word in ("<class", "typing.", "Parser key", "import string", "NestedArg", "invalid choice"):
        assert word not in error


def test_a_nested_setting_is_named_whole() -> None:
    line = in_our_words(
        'Parser key "model.optimizer": Type collections.abc.Callable[[typing.Any], torch.Optimizer]'
        ' expects a function or a callable class: Parser key "lr": Expected a path but x either not'
        " accessible or invalid Does not validate against any of the Union subtypes"
        " Expected a <class 'float'> Expected a dot import path string: x",
        [],
    )
    assert line == (
        "Expected a finite number or a class, by name or import path, for --model.optimizer.lr, got x"
    )
