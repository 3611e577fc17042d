"""The command `pate audit`: a recipe run on a copy with canaries, compared with its statement."""

import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from pate._core.accounting.ledger import ledger_in
from pate._core.accounting.statement import AUDITED
from pate._core.files.reading import load_yaml, read_text
from pate._core.files.writing import locked, write_json, write_text
from pate._core.settings import decode, import_path
from pate._core.validation import given, require
from pate._labeling.commands.parsing import FLAG, CommandParser, add_options
from pate._labeling.commands.places import PARTS, find_recipe
from pate._labeling.commands.run import Overrides, Recipe, by_part, run_plan
from pate._labeling.data.source import DataSource
from pate._labeling.runs.run import TEACHERS_FIT, Run, StageChangedError
from pate.lab.audit.neighbor import STATUS, Whom, audit_neighbor
from pate.lab.audit.whole import CanaryRecords, audit

_OTHERS = PARTS[1:]
_NEIGHBORS: dict[str, Whom] = {
    "neighbor": "record",
    "neighbor_group": "group",
    "neighbor_teacher": "teacher",
}
_MARK = "NOT-PRIVATE.txt"
_CHOOSE = "Choose another folder with --output"


def main(args: Sequence[str]) -> None:
    """Run `pate audit`."""
    words, overrides = by_part(args)
    parsed = _parser().parse_args(words)
    named = {option: getattr(parsed, option) for option in _NEIGHBORS}
    if chosen := given(**named):
        require(
            len(chosen) == 1 and parsed.output is None and not any(overrides.values()),
            f"one of {', '.join(_NEIGHBORS)} of a run, without output or settings",
            **chosen,
        )
        ((option, name),) = chosen.items()
        # PRIVATE: to the screen alone
        alone = audit_neighbor(parsed.recipe, _NEIGHBORS[option], name)
        print(alone.text, end="")
        _end(STATUS[alone.verdict])
        return
    folder = parsed.output or Path("audits") / parsed.recipe.resolve().name
    _audit_recipe(find_recipe(parsed.recipe), folder, parsed, overrides)


def _audit_recipe(recipe: Path, folder: Path, parsed: Any, overrides: Overrides) -> None:
    """Run a recipe on a copy of its records with canaries, and audit the run."""
    copy, run = folder / "recipe", Run(folder / "run")
    begun = run.state(TEACHERS_FIT) is not None
    seed = parsed.seed
    if seed is None:
        seed = _read(copy / "data.yaml")["init_args"]["seed"] if begun else secrets.randbits(31)
    data = {
        "class_path": import_path(CanaryRecords),
        "init_args": {
            "source": Recipe(recipe, run.root, overrides).teachers()[-1]["data"],
            "canaries": parsed.canaries,
            "seed": seed,
        },
    }
    text = f"# {AUDITED}\n{yaml.safe_dump({'data': data}, sort_keys=False)}"
    if parsed.print_config:
        print(text, end="")
        return
    decode(DataSource, data)  # raises on wrong settings before anything is written
    _require_own(folder)
    require(
        not begun or _read(copy / "data.yaml") == data,
        f"the data and the canaries that the audit in {folder} was begun with. {_CHOOSE}",
    )
    with locked(folder):
        for place in (folder, run.root, run.public):
            write_text(place / _MARK, f"{AUDITED}\n")
        for part in _OTHERS:
            name = f"{part}.yaml"
            write_text(copy / name, f"# {AUDITED}\n{read_text(recipe / name)}")
        write_text(copy / "data.yaml", text)
        print(AUDITED)
        try:
            # the overrides of data are in the copy already
            inner = {**overrides, "data": []}
            run_plan(Recipe(copy, run.root, inner, ledger_in(folder)).plan())
        except StageChangedError as error:
            raise ValueError(f"{str(error).partition('. ')[0]}. {_CHOOSE}") from None
        finally:
            _mark(run)
            if run.state(TEACHERS_FIT) is None:
                for place in (copy, run.root):
                    shutil.rmtree(place, ignore_errors=True)
                (folder / _MARK).unlink()
        outcome = audit(run.root)
        write_json(folder / "audit.json", outcome.content)
        write_text(folder / "audit.txt", outcome.text)
        print(f"\n{outcome.text}\n{folder / 'audit.txt'}, {folder / 'audit.json'}")
        _end(int(outcome.refuted))


def _require_own(folder: Path) -> None:
    """Raise ``ValueError`` on a folder of other files, which may hold a ledger in use."""
    files = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    foreign = _MARK not in files and any(not name.startswith(".") for name in files)
    require(not foreign, f"a new folder, or the folder of an audit. {_CHOOSE}", output=str(folder))


def _end(status: int) -> None:
    if status:
        raise SystemExit(status)


def _mark(run: Run) -> None:
    """Mark the settings in the public folder as settings of an audit."""
    for file in run.public.glob("*.yaml"):
        content = read_text(file)
        if not content.startswith("#"):
            write_text(file, f"# {AUDITED}\n{content}")


def _read(file: Path) -> Any:
    """Return the source that a ``data.yaml`` describes, as plain data."""
    try:
        content = load_yaml(file)
    except ValueError:
        content = None
    described = isinstance(content, dict) and content.get("data")
    require(described, f"a source of records under `data:` in {file}")
    return described


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="pate audit",
        description="Run a recipe on a copy of its records, with canaries among them, and test how"
        " well they are detected. Exit status 1 means that the statement is refuted. NOT"
        " PRIVATE: the output reveals which canaries were included.\n\nThe ledger of the records is"
        " neither read nor written: an audit has its own folder and ledger. After a kill, run the"
        " same command again to continue.\n\nA setting of a stage is overridden as in `pate run`:"
        " --label.target_epsilon 4.\n\nWith --neighbor, --neighbor_group or --neighbor_teacher it"
        " tests"
        " the releases of an existing run instead, for the owner of the data alone: its output is"
        " PRIVATE, and goes to the screen. Exit status 3 means that a release has no test.",
        print_config=None,
    )
    add_options(
        parser,
        {
            "recipe": {
                "type": Path,
                "help": "the folder, or the name of a shipped recipe, such as table; with"
                " --neighbor the folder of a run",
            },
            "--output": {
                "type": Path,
                "help": "folder of the audit; by default audits/ and the recipe's name",
            },
            "--canaries": {
                "type": int,
                "default": 256,
                "help": "the number of canaries, a power of two",
            },
            "--neighbor": {
                "type": str,
                "metavar": "ID",
                "help": "of a run: make all releases of its ledger again without this private"
                " record, with the same outcome of each draw. PRIVATE, for the owner alone",
            },
            "--neighbor_group": {
                "type": str,
                "metavar": "G",
                "help": "likewise, without all records of a group",
            },
            "--neighbor_teacher": {
                "type": str,
                "metavar": "T",
                "help": "likewise, without a teacher, from 0, and its records",
            },
            "--seed": {
                "type": int,
                "help": "decides which canaries are included; drawn once by default",
            },
            "--print_config": {**FLAG, "help": "print the data.yaml of the audit"},
        },
    )
    return parser
