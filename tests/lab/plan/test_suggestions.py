"""Slips in `pate plan` and `pate frontier`."""

import pytest

from tests.labeling.commands import test_suggestions
from tests.labeling.commands.test_suggestions import files as files

Captured = pytest.CaptureFixture[str]
PLAN = "plan --num_records 300 --num_labels 2 --num_public 30"


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (f"{PLAN} --unit foo", "unit"),
        (f"{PLAN} --label_density x", "label_density"),
        (f"{PLAN} foo", "foo"),
        ("frontier --epsilons [x]", "epsilons"),
        ("frontier --seeds", "--seeds"),
        ("frontier --student maybe", "maybe"),
        ("frontier --neighboring_relation x", "ADD_REMOVE_TEACHER"),
        ("frontier --simulate.num_labels 4", "num_teachers"),
        ("frontier --simulate.num_label 4", "num_label"),
        ("frontier --config other.yaml", "sigma"),
    ],
)
@pytest.mark.usefixtures("files")
def test_a_slip_is_one_line(line: str, named: str, capsys: Captured) -> None:
    test_suggestions.test_what_jsonargparse_refuses_is_told_in_its_words(line, named, capsys)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--aggregators=[{class_path: NoisyVotes, init_args: {max_k: {}}}]"], "max_k"),
        (["--simulate={num_labels: 4, num_teachers: 20, kind: {}}"], "kind"),
        (["--config", "empty.yaml"], "bogus"),
    ],
)
@pytest.mark.usefixtures("files")
def test_empty_settings_are_refused(words: list[str], option: str, capsys: Captured) -> None:
    test_suggestions.test_empty_settings_in_values_and_files_are_refused(
        ["frontier", *words], option, capsys
    )


def test_a_run_is_given_either_way(capsys: Captured) -> None:
    test_suggestions.test_a_switch_and_a_run_may_be_written_either_way(
        "frontier run --student", "frontier --run run --student true", capsys
    )
