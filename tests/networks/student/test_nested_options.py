"""Every way to spell the network of a student on a command line gives the same one."""

from pathlib import Path

import pytest

from pate._labeling.commands.stages import read_student_fit

MLP = "pate.models.MLP"
NESTED = "--model.network.init_args.hidden=[128]"


def settings_of(folder: Path, *options: str, network: str) -> object:
    (file := folder / "student.yaml").write_text(f"model:\n  network: {network}\n")
    words = ["--config", str(file), f"--run={folder / 'run'}", *options]
    return read_student_fit(words)["model"]["network"]


@pytest.mark.parametrize(
    "options",
    [
        ("--model.network.class_path", MLP, "--model.network.init_args.hidden", "[128]"),
        (f"--model.network={MLP}", "--model.network.hidden=[128]"),
    ],
)
def test_an_option_of_a_part_overrides_the_linear_network_of_a_file(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    made = settings_of(tmp_path, *options, network="pate.models.Linear")
    assert made == settings_of(tmp_path, NESTED, network=MLP)
    assert "128" in str(made)


@pytest.mark.parametrize("option", [NESTED, "--model.network.hidden=[128]"])
def test_a_setting_that_linear_lacks_is_refused(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        settings_of(tmp_path, option, network="pate.models.Linear")
    assert "Expected a setting of Linear" in capsys.readouterr().err


def test_linear_by_its_class_path_stays_in_closed_form(tmp_path: Path) -> None:
    option = "--model.network.class_path=pate.models.Linear"
    made = settings_of(tmp_path, option, network="pate.models.Linear")
    assert made == settings_of(tmp_path, network="pate.models.Linear")
