"""The commands whose options are those of networks: their help, their examples, and slips in them."""

from pathlib import Path

import pytest

from tests.labeling.commands import test_help, test_suggestions
from tests.labeling.commands.test_help import OF_NETWORKS

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize("name", OF_NETWORKS)
def test_help_is_for_people(name: str, capsys: Captured) -> None:
    test_help.test_help_is_for_people(name, capsys)


@pytest.mark.parametrize("name", OF_NETWORKS)
def test_examples_are_understood(name: str, capsys: Captured, tmp_path: Path) -> None:
    test_help.test_examples_are_understood(name, capsys, tmp_path)


@pytest.mark.parametrize("name", OF_NETWORKS)
def test_no_command_takes_a_setting_that_an_option_does_not_have(
    name: str, capsys: Captured
) -> None:
    test_suggestions.test_no_command_takes_a_setting_that_an_option_does_not_have(name, capsys)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("student fit --run x --model.netw models.MLP", "did you mean --model.network?"),
        ("run faces --num_steps=3", "Expected --teachers.num_steps in place of --num_steps"),
    ],
)
def test_a_misspelled_option_has_a_suggestion(line: str, said: str, capsys: Captured) -> None:
    test_suggestions.require_said(line, said, capsys)
