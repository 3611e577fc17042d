"""What is said of a wrong command line, and what was meant: one line with the option's name."""

import shlex
from pathlib import Path

import pytest
from jsonargparse import capture_parser

from pate import cli
from pate._labeling.commands.parsing import CommandParser, run_folder
from pate._labeling.commands.table import commands
from tests.labeling.commands.test_help import OF_NETWORKS

LABEL = "label --run x --target_epsilon 1 --num_queries 3 --delta 1e-5"
STABLE = "{class_path: StableTopK, init_args: {scale_gap: 3, sigma_test: 3, max_k: {}}}"


def end_of(words: list[str]) -> object:
    """The exit status of a command, however it ends."""
    try:
        return cli.main(words)
    except SystemExit as stop:
        return stop.code


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with a recipe, and files that are no settings."""
    (tmp_path / "configs").symlink_to(Path("configs").absolute())
    monkeypatch.chdir(tmp_path)
    Path("list.yaml").write_text("- 1\n")
    Path("key.pem").write_text("-----BEGIN PRIVATE KEY-----\nMC4C\n")
    Path("cut.yaml").write_text("seeds: [1\n")
    Path("bytes.yaml").write_bytes(b"\xff\xfe\x00")
    Path("other.yaml").write_text("seeds: 1\nsigma: 3\n")
    Path("empty.yaml").write_text("bogus: {}\n")
    Path("typo.yaml").write_text("aggregator:\n  class_path: StabelTopK\n")
    Path("large.yaml").write_text(f"delta: {'1' * 400}\n")
    Path("mine").mkdir()
    settings = {
        "data": "data:\n  class_path: Arrays\n  init_args:\n    path: mine.npz\n",
        "teachers": "fit: closed_form\n",
        "label": "target_epsilon: 1.0\ndelta: 1.0e-5\n",
        "student": "model:\n  network: pate.models.Linear\n",
    }
    for part, text in settings.items():
        Path("mine", f"{part}.yaml").write_text(text)


SAID = {
    "label --run x --num_quer=3": "a known option, got --num_quer; did you mean --num_queries?",
    "label --delta 1e-5 --run x": "Expected --aggregator, or --target_epsilon, which finds one",
    "stdent fit": "unknown command: stdent fit; did you mean student fit?",
    "run faces --trainer.max_epochs 3": "; did you mean --student.trainer.max_epochs?",
    "run faces --num_queries 3": "Expected --label.num_queries in place of --num_queries",
    "run": "the following arguments are required: recipe",
    "run faces --config other.yaml": "a known option, got --config",
    f"{LABEL} --aggregator NoisyVotes --aggregator.sigma_gap 40": "got --aggregator.sigma_gap; did you mean"
    " sigma_votes? (`pate label --aggregator.help NoisyVotes` lists them)",
    f"{LABEL} --aggregator='{STABLE}'": "Expected a setting of StableTopK (neighboring_relation, ",
    f"{LABEL} --config typo.yaml": "got {'class_path': 'StabelTopK'}; did you mean StableTopK?",
    f"{LABEL} --aggregator StableTopk": "for --aggregator, got StableTopk; did you mean StableTopK?",
    f"{LABEL} --aggregator.k 2": "a class for --aggregator, which takes these settings, got k",
    f"{LABEL} --aggregator no.such.Cls": "(No module named 'no'); --code FOLDER names the folder",
    f"{LABEL} --aggregator numpy.array": "a class, by name or import path, for --aggregator, got numpy.array",
    f"{LABEL} --aggregator NoisyVotes --aggregator.sigma_votes [3]": "a finite number for --aggregator.sigma_votes, got [3]",
    f"{LABEL} --aggregator NoisyVotes --aggregator.neighboring_relation x": "Expected REPLACE_RECORD or ADD_REMOVE_TEACHER for --aggregator.neighboring_relation, got x",
    "run mine --teachers.unit grup": "record or group for --unit, got grup; did you mean group?",
    "run mine --label.aggregator.purpose=x": "a class for --aggregator, which takes these settings",
    "run mine --labl.delta 1e-5": "got override='--labl.delta'; did you mean --label.delta?",
    "run mine label.delta 1e-5": "unrecognized arguments: label.delta 1e-5",
    "run mine --votes bit": "'bits', 'scores', 'quantile_bits'",
    "run face": "got recipe='face'; did you mean faces or ",
    "run mine --data.permanent_ids maybe": "true or false for --data.permanent_ids, got maybe",
    "run mine --data.unknown_labels 7": "nan or -1 for --data.unknown_labels, got 7",
    "label --target_epsilon 2 --run r": "required: delta (`pate label --help` lists them)",
    "teachers fit --run r --fit closed_form": "required: data",
    "teachers vote --run": "argument --run: expected one argument",
    "label --config nowhere.yaml": "nowhere.yaml",
    "label --config list.yaml": "Expected settings with names in list.yaml, got kind='list'",
    "verify x --config key.pem": "Expected settings with names in key.pem, got kind='str'",
    "label --run x --config bytes.yaml": "pate label: ",
    f"{LABEL} --config empty.yaml": "bogus",
    f"{LABEL} --config large.yaml": "whole numbers of at most 308 digits",
    f"{LABEL} --max_epsilon {'1' * 400}": "a finite number for --max_epsilon, got 111",
}
"""What is said of a line."""


@pytest.mark.parametrize("line", SAID)
@pytest.mark.usefixtures("files")
def test_a_mistake_is_one_line(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    require_said(line, SAID[line], capsys)


def require_said(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Require one line on a mistake, without a traceback or a list of options."""
    assert end_of(shlex.split(line)) == 2
    captured = capsys.readouterr()
    assert said in captured.err and len(captured.err.splitlines()) == 1, captured.err
    assert captured.err.startswith("pate") and captured.err.count("--help") <= 1
    for word in ("Traceback", "usage:", "<class", "typing.", "NestedArg"):
        assert word not in captured.err
    assert captured.out == "" and not Path("x").exists()


READS = {
    "fit": "--epsilon 1",
    "run": "",
    "teachers fit": "--data Arrays --data.path mine.npz --fit closed_form --print_config",
    "teachers vote": "",
    "label": "--delta 1e-6 --target_epsilon 1",
    "student fit": "--model.network pate.models.Linear",
    "student test": "",
    "predict": "new.npz",
    "export": "--format onnx --output new.onnx",
    "ledger show": "",
    "verify": "",
    "audit": "",
    "report": "",
    "silo": "--name a --votes v.npz --state s --signing_key k --public_keys p --wait 0",
    "study": "",
}
"""What commands need beside the file or folder that they read."""


def test_the_one_thing_that_a_command_reads_is_its_first_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a").touch()
    reads_none = {"account", "init", "plugin new", "silo key"}
    assert commands().keys() <= READS.keys() | reads_none  # the lab may not be there
    for name, more in ((name, more) for name, more in READS.items() if name in commands()):
        status = end_of([*name.split(), "a/nowhere", *more.split()])
        out, err = capsys.readouterr()
        named = "run: a/nowhere" in out if "--print_config" in more else "a/nowhere" in err
        assert named and "rguments" not in err and status == 2 * (not out), (name, out, err)
    assert [*tmp_path.iterdir()] == [tmp_path / "a"]


FAST = ("label", "verify")  # of the core, and of aggregators
NAMES = sorted(commands().keys() - {*OF_NETWORKS, "student fit", "student test"})


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_no_command_takes_a_setting_that_an_option_does_not_have(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty setting is refused as any other: of the command, and of each of its options."""
    parser = capture_parser(commands()[name].load(), ["--help"])
    assert isinstance(parser, CommandParser)
    options = {option for action in parser.shown._actions for option in action.option_strings}
    named = sorted(
        option
        for option in options - {"--help", "--config", "--print_config"}
        if option.startswith("--") and not option.endswith((".help", "+"))
    )
    for option in (*named, ""):
        unknown = f"{option}.no_such" if option else "--no_such"
        with pytest.raises(SystemExit):
            parser.parse_args([f"{unknown}={{}}"])
        said = capsys.readouterr().err
        assert "no_such" in said or f" {option}" in said, (unknown, said)


@pytest.mark.parametrize("value", ["{}", "3"])
def test_no_aggregator_takes_an_option_of_another(
    value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*LABEL.split(), "--aggregator", "StableTopK", f"--aggregator.max_kk={value}"]
    assert end_of(words) == 2
    said = capsys.readouterr().err
    assert "Expected a setting of StableTopK (neighboring_relation, " in said
    assert "got --aggregator.max_kk" in said


def test_a_run_that_a_file_names_is_the_one_that_is_locked(tmp_path: Path) -> None:
    file = tmp_path / "student.yaml"
    file.write_text("run: runs/mine\n")
    assert run_folder(["--config", str(file)]) == Path("runs/mine")
    assert run_folder(["--config", str(file), "--run", "runs/other"]) == Path("runs/other")
    assert run_folder(["--overwrite"]) is None
