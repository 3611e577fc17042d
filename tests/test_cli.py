import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import pate
from pate import __main__, cli
from pate._labeling.commands.table import commands

Process = Callable[..., subprocess.CompletedProcess[str]]


def test_help_lists_every_command_and_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom pate.cli import main\ncode = main(['--help'])\n"
        "heavy = {'torch', 'numpy', 'jsonargparse', 'pytorch_lightning'} & set(sys.modules)\n"
        "assert code == 0 and not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    for name in commands():
        assert name in done.stdout


def test_help_of_a_group_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["teachers"]) == 0
    text = capsys.readouterr().out
    assert "teachers fit" in text
    assert "teachers vote" in text
    assert "student fit" not in text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert pate.__version__ in capsys.readouterr().out


LIGHT = ["run", "label", "account", "ledger show", "verify", "report"]
LISTED = ["student fit", "student test", "teachers fit"]
"""Commands of students, whose help is light, and an error on a misspelled option."""


def require_no_framework(*commands: tuple[list[str], int]) -> None:
    """Run commands one after the other in one new process: none may fail to end as said, none may
    import torch."""
    script = (
        "import json, sys\nfrom pate.cli import main\n"
        "for words, code in json.loads(sys.argv[1]):\n"
        "    try:\n        found = main(words)\n    except SystemExit as stop:\n        found = stop.code\n"
        "    assert found == code, (words, found)\n"
        "    heavy = {'torch', 'pytorch_lightning', 'matplotlib'} & set(sys.modules)\n"
        "    assert not heavy, (words, heavy)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(commands)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_commands_that_train_nothing_need_no_torch(copied: Path) -> None:
    ends = (("--help", 0), ("--num_querys=3", 2))
    words = [
        "label",
        "--config",
        f"{copied}/public/label.yaml",
        "--run",
        str(copied),
        "--num_queries=20",
    ]
    starts = (([*name.split(), option], code) for name in LIGHT for option, code in ends)
    listed = (([*name.split(), "--help"], 0) for name in LISTED)
    slips = (([*name.split(), "--data.bach_size=3"], 2) for name in LISTED[:2])
    require_no_framework(*starts, *listed, *slips, ([*words, "--overwrite"], 0))


def test_the_command_imports_nothing_before_it_can_be_interrupted() -> None:
    """Half of the time to start went by before Ctrl-C could be answered in one line."""
    script = "import sys; before = set(sys.modules); import pate.__main__; print(sorted(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(["pate", "pate.__main__", "pate._core", "pate._core.package"])


def test_ctrl_c_while_the_command_is_imported_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "main", interrupted)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # which it sets
    # a shell starts jobs in the background with it ignored
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert __main__.main() == 130
        # what Python does at its end is ended without a word
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "pate: interrupted; nothing had begun\n"


@pytest.fixture
def process(tmp_path: Path) -> Process:
    """Run lines of code as the command, in a process that was started as ``python -m``."""

    def process(*lines: str) -> subprocess.CompletedProcess[str]:
        head = ["import signal, sys, pate.cli", "from pate.__main__ import main", "def command():"]
        body = [f"    {line}" for line in (*lines, "return 143")]
        (tmp_path / "command.py").write_text(
            "\n".join([*head, *body, "pate.cli.main = command", "sys.exit(main())"])
        )
        return subprocess.run(
            [sys.executable, "-m", "command"], cwd=tmp_path, capture_output=True, text=True
        )

    return process


def test_an_interrupt_in_code_that_a_library_compiled_leaves_the_status(process: Process) -> None:
    """`dataclass` compiles methods; Python takes such an interrupt for its own end, by SIGINT."""
    done = process("try: exec('raise KeyboardInterrupt')", "except KeyboardInterrupt: pass")
    assert (done.returncode, done.stderr) == (143, "")


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--help"], ["--version"], ["account", "--help"]], ids=" ".join)
@pytest.mark.parametrize("merged", [False, True], ids=["stdout", "both"])
def test_a_reader_that_leaves_ends_a_command_quietly(words: list[str], merged: bool) -> None:
    """As ``| head`` does: the status is that of SIGPIPE, and nothing is said."""
    ours, its = os.pipe()
    os.close(ours)
    error = its if merged else subprocess.PIPE
    done = subprocess.run([sys.executable, "-m", "pate", *words], stdout=its, stderr=error)
    os.close(its)
    assert done.returncode == 128 + signal.SIGPIPE
    assert not done.stderr


def test_a_closed_output_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m pate --version >&-", shell=True, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("name", ["teachers fit", "label", "student fit"])
def test_print_config_is_what_config_takes(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: pytest.TempPathFactory
) -> None:
    part = {"teachers fit": "teachers", "label": "label", "student fit": "student"}[name]
    options = ["--config", f"configs/faces/{part}.yaml", "--run", "runs/faces"]
    if part == "teachers":
        options += ["--config", "configs/faces/data.yaml"]
    printed: list[str] = []
    for args in (options, None):
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
    held = {"teachers": "class_path", "label": "target_epsilon: 1.0", "student": "models.Linear"}
    assert held[part] in printed[0]
