"""The command `pate run`: all stages of a recipe in order, except those that are finished."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from pate.commands.parsing import Preset
from pate.commands.summary import describe_run
from pate.data_file import load_ledger
from pate.runs import Run
from pate.validation import expect

_PARTS = ("data", "teachers", "label", "student")


@dataclass(frozen=True)
class _Step:
    """A stage of a recipe.

    Attributes:
        name: the name that is announced.
        module: its module of `pate.commands`, imported only when the stage begins, because that may take seconds.
        function: the function in that module.
        parts: the recipe's files that it reads, and whose overrides it takes.
        words: further arguments of its command.
    """

    name: str
    module: str
    function: str
    parts: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


_STEPS = (
    _Step("teachers fit", "teachers", "fit", ("data", "teachers")),
    _Step("teachers vote", "teachers", "vote"),
    _Step("label", "label", "main", ("label",)),
    _Step("student fit", "student", "fit", ("student",)),
    _Step("student test", "student", "test", words=("--verbose=false",)),
)
_REFERENCES = _Step("references", "references", "main")


def main(args: Sequence[str]) -> None:
    """Run `pate run`."""
    parsed, overrides = _parser().parse_known_args(args)
    recipe: Path = parsed.recipe
    missing = [f"{part}.yaml" for part in _PARTS if not (recipe / f"{part}.yaml").is_file()]
    expect(not missing, f"a recipe's files in {recipe}", missing=missing)
    given = _by_part(overrides)
    if parsed.ledger:
        given["data"].append(f"--ledger={parsed.ledger}")
    root = parsed.run or Path("runs") / recipe.resolve().name
    steps = (*_STEPS, _REFERENCES) if parsed.references else _STEPS
    for number, step in enumerate(steps, 1):
        print(f"[{number}/{len(steps)}] {step.name}", flush=True)
        files = tuple(recipe / f"{part}.yaml" for part in step.parts)
        words = [*step.words, *(word for part in step.parts for word in given[part])]
        command = getattr(import_module(f"pate.commands.{step.module}"), step.function)
        command(words, Preset(files=files, run=root, overwrite=parsed.overwrite))
    print()
    print(describe_run(Run(root, ledger=load_ledger(root))), end="")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pate run",
        description="Run all stages of a recipe: a folder with data.yaml, teachers.yaml, label.yaml and student.yaml. "
        "Stages that are finished are skipped; one that was killed continues where it stopped.",
        epilog="To override a setting of a stage, put the name of the stage before it, such as "
        "--teachers.num_teachers=200, --label.num_queries=100, --student.trainer.max_epochs=20 or "
        "--data.init_args.root=DIR.",
        allow_abbrev=False,
    )
    parser.add_argument("recipe", type=Path, help="the folder, such as configs/faces")
    parser.add_argument("--run", type=Path, help="folder of the run (default: runs/ and the recipe's name)")
    parser.add_argument("--overwrite", action="store_true", help="redo stages whose settings changed")
    parser.add_argument("--ledger", help="ledger of the private data, in place of the one beside them")
    parser.add_argument(
        "--references",
        action="store_true",
        help="also measure a student of the true labels and the noiseless majority: PRIVATE, for data that may be seen",
    )
    return parser


def _by_part(overrides: Sequence[str]) -> dict[str, list[str]]:
    """Sort overrides ``--part.name=value`` by part of the recipe; those of the data keep their prefix."""
    given: dict[str, list[str]] = {part: [] for part in _PARTS}
    for word in overrides:
        part, _, setting = word.removeprefix("--").partition(".")
        right = word.startswith("--") and part in given and "=" in setting
        expect(right, f"overrides such as --label.num_queries=100, of {', '.join(_PARTS)}", override=word)
        given[part].append(word if part == "data" else f"--{setting}")
    return given
