import subprocess
import sys

import pytest

import pate
from pate import cli


def test_help_lists_every_command_and_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom pate.cli import main\ncode = main(['--help'])\n"
        "heavy = {'torch', 'numpy', 'jsonargparse', 'pytorch_lightning'} & set(sys.modules)\n"
        "assert code == 0 and not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    for name in cli._COMMANDS:
        assert name in done.stdout


def test_help_of_a_group_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["teachers"]) == 0
    text = capsys.readouterr().out
    assert "teachers fit" in text
    assert "teachers vote" in text
    assert "student fit" not in text


def test_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["teach"]) == 2
    assert "unknown command: teach" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert pate.__version__ in capsys.readouterr().out


@pytest.mark.parametrize("name", list(cli._COMMANDS))
def test_every_command_helps(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main([*name.split(), "--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    first = text.splitlines()[0]
    assert all(word in first for word in ("pate", *name.split()))
    assert len(text.splitlines()) < 600


@pytest.mark.parametrize("name", ["teachers fit", "label", "student fit"])
def test_print_config_is_what_config_takes(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: pytest.TempPathFactory
) -> None:
    part = {"teachers fit": "teachers", "label": "label", "student fit": "student"}[name]
    given = ["--config", f"configs/faces/{part}.yaml", "--run", "runs/faces"]
    if part == "teachers":
        given += ["--config", "configs/faces/data.yaml"]
    printed: list[str] = []
    for args in (given, None):
        if args is None:
            path = f"{tmp_path}/printed.yaml"
            with open(path, "w") as file:
                file.write(printed[0])
            args = ["--config", path]
        with pytest.raises(SystemExit) as stopped:
            cli.main([*name.split(), *args, "--print_config"])
        assert stopped.value.code == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert "class_path" in printed[0]
