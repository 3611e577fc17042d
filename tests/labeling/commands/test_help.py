"""What `--help` of the commands says, and the examples below it."""

import re
import shlex
from pathlib import Path

import pytest

from pate import cli
from pate._labeling.commands.table import commands

OF_NETWORKS = ["teachers fit"]
"""Commands whose options are those of networks."""
OTHERS = [name for name in commands() if name not in OF_NETWORKS]


def help_of(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stopped:
        cli.main([*name.split(), "--help"])
    assert stopped.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", OTHERS)
def test_help_is_for_people(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No marks of a docstring, a short usage, paragraphs that are not run together, and an example
    at the end."""
    text = help_of(name, capsys)
    assert len(text.splitlines()) < 600
    usage, _, rest = text.partition("\n\n")
    described, _, options = rest.partition("\n\n")
    assert usage.startswith(f"usage: pate {name}") and usage.endswith("[options]")
    assert "[-h]" not in usage and len(usage.splitlines()) <= 4
    assert "<class" not in text and "NeighboringRelation." not in text
    assert max(map(len, text.splitlines())) <= 100
    assert len(described.splitlines()) <= 9
    assert "``" not in text and "Args:" not in text
    assert f"\nexample:\n  pate {name}" in text, options


def test_required_options_come_first_and_general_ones_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = help_of("label", capsys)
    names = re.findall(r"^  (?:-\w, )?(--\w+)", text, flags=re.MULTILINE)
    assert names[:2] == ["--delta", "--run"]
    assert names[-3:] == ["--help", "--config", "--print_config"]


def test_fit_offers_the_kinds_that_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    takes, all_kinds = (help_of(name, capsys) for name in ("fit", "init"))
    assert "--kind {npz,csv,celeba,folder,text}" in takes and "torchvision" not in takes
    assert ",torchvision,python}" in all_kinds and "anything that your own class" in all_kinds


@pytest.mark.parametrize(
    "name",
    # the example of a student is a network's, whose packages take seconds to import
    [
        pytest.param(name, marks=pytest.mark.slow) if name == "student fit" else name
        for name in OTHERS
        if name != "init"
    ],
)
def test_examples_are_understood(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = shlex.split(commands()[name].example)
    assert words[: 1 + len(name.split())] == ["pate", *name.split()]
    try:
        size = 1 + len(name.split())  # options of the command itself come before those behind --
        code: object = cli.main([*words[1:size], "--print_config", *words[size:]])
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    assert code == 0 and captured.out and captured.err == ""
    assert not Path("runs/mine").exists()
