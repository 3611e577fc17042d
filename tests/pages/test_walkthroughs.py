"""Tutorials and how-to pages do what they say: each is typed in, from top to bottom, in an empty folder.

A block with a title is a file. A line of a console block that begins with ``$`` is a command, and
the lines below it are lines of what it prints, in this order: ``...`` stands for anything, on a
line of its own for any lines. A command shows ``pate NAME: `` where it is refused, and ends well
otherwise.
"""

import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module, invalidate_caches
from pathlib import Path

import pytest

from pate import cli
from tests.conftest import copy_run
from tests.networks.conftest import finished as finished

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = ["installation.md", "ten-minutes.md"] + [
    path.relative_to(DOCS).as_posix()
    for path in sorted([*DOCS.glob("tutorials/*"), *DOCS.glob("how-to/*")])
    if "```" in path.read_text()
]
# these take more than a few seconds; of them the fast tests see that each command is understood
LONG = {"tutorials/demo.md", "tutorials/pictures.md", "tutorials/silos.md", "tutorials/table.md"}
SLOW = {*LONG, "how-to/resume.md", "tutorials/cluster.md"}


@dataclass(frozen=True)
class Block:
    """A block of code on a page: its language, the name of the file that it is, and its text."""

    language: str
    title: str | None
    text: str


@dataclass(frozen=True)
class Command:
    """A command, and the lines of its output that the page shows."""

    words: tuple[str, ...]
    shown: tuple[str, ...]

    @property
    def refused(self) -> bool:
        return any(line.startswith(f"pate {self.words[1]}: ") for line in self.shown)


def blocks_of(text: str) -> list[Block]:
    fences = re.findall(
        r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', text, flags=re.DOTALL | re.MULTILINE
    )
    assert 2 * len(fences) == len(re.findall("^```", text, flags=re.MULTILINE)), (
        "a block without a language"
    )
    return [Block(language, title or None, code) for language, title, code in fences]


def commands_of(block: Block) -> Iterator[Command]:
    first, *parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert not first, f"what comes before the first command? {first!r}"
    for part in parts:
        line, *shown = part.splitlines()
        yield Command(tuple(shlex.split(line)), tuple(shown))


def require_shown(printed: str, shown: tuple[str, ...]) -> None:
    rest = iter(printed.splitlines())
    for line in shown:
        if line != "...":
            pattern = ".*".join(map(re.escape, line.rstrip().split("...")))
            assert any(re.fullmatch(pattern, each.rstrip()) for each in rest), (
                f"{line!r} is not in\n{printed}"
            )


@dataclass
class Typist:
    """Types commands in a folder."""

    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch

    def run(self, command: Command) -> str:
        self.capsys.readouterr()
        program, *arguments = command.words
        if program == "pate":
            assert cli.main(arguments) == (2 if command.refused else 0), (
                self.capsys.readouterr().err
            )
        elif program == "ssh-keygen":
            subprocess.run(command.words, check=True, capture_output=True)
        else:
            assert program == "python"
            with self.monkeypatch.context() as patch:
                patch.setattr(sys, "argv", arguments)
                patch.syspath_prepend(Path.cwd())
                if arguments[0] == "-m":
                    import_module(f"{arguments[1]}.__main__").main(arguments[2:])
                else:
                    room = ROOT if arguments[0].startswith("scripts/") else Path()
                    runpy.run_path(str(room / arguments[0]), run_name="__main__")
        captured = self.capsys.readouterr()
        return captured.out + captured.err

    def type(self, page: str) -> None:
        names: dict[str, object] = {"__name__": "page"}
        for block in blocks_of(page):
            if block.title is not None:
                Path(block.title).parent.mkdir(parents=True, exist_ok=True)
                Path(block.title).write_text(block.text)
                invalidate_caches()  # or a module that is as young as its folder may be missed
            elif block.language == "python":
                exec(compile(block.text, "page", "exec"), names)
            elif block.language != "sh":  # commands on runs that the page does not make
                assert block.language == "console", block.language
                for command in commands_of(block):
                    require_shown(self.run(command), command.shown)


@pytest.fixture
def typist(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Typist]:
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    with ExitStack() as stack:
        monkeypatch.setattr(sys, "path", [*sys.path])
        # files of a page are modules that no other page may see
        stack.callback(
            lambda: [
                sys.modules.pop(name) for name in set(sys.modules) - before if is_of(name, tmp_path)
            ]
        )
        yield Typist(capsys, monkeypatch)


def is_of(name: str, folder: Path) -> bool:
    module = sys.modules[name]
    # a folder without __init__.py is a module as well
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", [])), None)
    return file is not None and Path(file).is_relative_to(folder)


# Lightning is short of settings that no reader would give
@pytest.mark.filterwarnings(
    "ignore:.max_epochs. was not set", "ignore:The number of training batches"
)
@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=[pytest.mark.slow] if p in SLOW else []) for p in PAGES]
)
def test_a_page_does_what_it_says(
    page: str, typist: Typist, request: pytest.FixtureRequest
) -> None:
    text = (DOCS / page).read_text()
    if "--executor ray" in text:
        pytest.importorskip("ray")
    if "runs/mine" in text and page.startswith("how-to/"):
        finished: Path = request.getfixturevalue("finished")
        copy_run(finished, Path("runs/mine"))
        shutil.copytree(finished.parent / "recipe", "recipes/mine")
        with Path("recipes/mine/label.yaml").open("a") as file:
            file.write("noise_seed: 3\n")  # that of the finished run
    typist.type(text)


WRITTEN = [
    (page, line)
    for page in sorted(LONG)
    for block in blocks_of((DOCS / page).read_text())
    if block.language in ("console", "bash")
    for line in re.findall(r"^(?:\$ )?(pate (?![a-z ]+: ).+)", block.text, flags=re.MULTILINE)
]


@pytest.mark.parametrize(("page", "line"), WRITTEN)
@pytest.mark.usefixtures("typist")
def test_a_command_is_understood(page: str, line: str) -> None:
    words = shlex.split(line)[1:]
    begun = [
        shlex.split(re.sub(r" --data \S+", "", other))[1:]  # which no command has made here
        for at, other in WRITTEN
        if at == page and other.startswith("pate init")
    ]
    assert all(cli.main(each) == 0 for each in begun)
    for block in blocks_of((DOCS / page).read_text()):
        if block.title is not None:
            Path(block.title).write_text(block.text)
    if words[0] == "init":
        return
    if words[0] == "run":
        assert cli.main([*words, *({"--print_config"} - {*words})]) == 0
        return
    size = words.index("--") if "--" in words else len(words)  # behind it is another command
    with pytest.raises(SystemExit) as stopped:
        cli.main([*words[:size], "--print_config", *words[size:]])
    assert stopped.value.code == 0


def test_a_page_that_is_wrong_fails(typist: Typist) -> None:
    account = "pate account --aggregator NoisyVotes --num_queries 1 --delta 1e-5 --num_teachers 9 --num_labels 1"
    typist.type(
        f"```console\n$ {account} --aggregator.sigma_votes 9\nepsilon of 1 queries at ...\n```\n"
    )
    for wrong in (
        f"```console\n$ {account} --aggregator.sigma_votes 9\nepsilon of 2 queries at ...\n```\n",
        f"```console\n$ {account} --aggregator.sigma_votes -9\n```\n",
        f"```console\n$ {account} --aggregator.sigma_votes 9\npate account: refused\n```\n",
        "```python\nassert False\n```\n",
        "```console\nwithout a command\n```\n",
        "```\nno language\n```\n",
    ):
        with pytest.raises(AssertionError):
            typist.type(wrong)
