"""The command `pate init`: a recipe for the user's data, with comments on each choice."""

import json
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import yaml

from pate._commands.init_guesses import PUBLIC_FRACTION, Guess, guess_table
from pate._commands.parsing import run_command
from pate._files import remove_drafts, write_text
from pate._release.transaction import suited_delta
from pate._settings import decode
from pate._validation import require, require_given
from pate.accounting._cost import format_guess
from pate.data import DataSource, Role
from pate.data._label_table import read_columns
from pate.data._source import TableSource

_SHOWN = 8  # names of labels
_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class _Kind:
    """A kind of data.

    Attributes:
        what: a description of the data.
        place: the default place of the data.
        teachers: the template of ``teachers.yaml``.
        files: further files of the recipe, each a template of the same name.
        content: the column of its table of which features are made, if it is a table.
    """

    what: str
    place: str
    teachers: str = "teachers_table.yaml"
    files: tuple[str, ...] = ()
    content: str | None = None


_KINDS = {
    "npz": _Kind("one .npz file of arrays", "data/mine.npz"),
    "csv": _Kind(
        "a CSV or parquet file of numbers, words and labels", "data/mine.csv", content="id"
    ),
    "celeba": _Kind("a folder in CelebA's format", "data/celeba", "teachers_pictures.yaml"),
    "folder": _Kind("a folder of pictures with a CSV of their labels", "data/mine", content="file"),
    "text": _Kind("a CSV or parquet file of texts and labels", "data/mine.csv", content="text"),
    "huggingface": _Kind("a data set of Hugging Face", "data/mine", files=("splits.py",)),
    "python": _Kind("anything that your own class reads", "records.csv", files=("records.py",)),
}
_TABLES = (".csv", ".parquet")


def init(
    folder: Path,
    *,
    kind: str | None = None,
    data: Path | None = None,
    public_fraction: float | None = None,
    budgets: list[float] | None = None,
) -> None:
    """Write a recipe for data of your own.

    It has data.yaml, teachers.yaml, label.yaml and student.yaml, with comments that explain each
    choice. `pate run` runs it.

    The data are read: data.yaml holds guesses about their columns, all faults of a file are listed,
    and the records of each role counted.

    The recipe has epsilon 2 and delta 1e-6: whoever sees all that is published guesses right 88.1%
    of the time at most whether any one record is there. delta suits up to 100,000 private records;
    write a tenth of one over their number, or less.

    Args:
        folder: the recipe's folder, new or empty.
        kind: the kind of data, unless their names tell it.
        data: the place of the data, which are read for the settings of data.yaml.
        public_fraction: the share of your records to publish, chosen by a hash, if no column
            `split` says which.
        budgets: the personal budgets, such as [0.5,1,2], in a column `budget`: a public list.
    """
    named = kind or _kind_of(data)
    guess = Guess() if data is None else _read(named, data, public_fraction, budgets)
    files = recipe_files(folder, named, data, guess)
    if folder.exists():
        require(folder.is_dir(), "a new or empty folder", file=str(folder))
        # drafts that a killed command left
        remove_drafts(folder.glob(".*"), files)
        others = sorted(
            path.name for path in folder.iterdir() if not _holds(path, files.get(path.name))
        )
        require(not others, f"a new or empty folder {folder}", files=others)
    for name, text in files.items():
        write_text(folder / name, text)
    print(f"{folder}: {', '.join(files)}")
    for remark in guess.remarks:
        print(textwrap.fill(remark, 100, break_long_words=False, break_on_hyphens=False))
    print(f"Read data.yaml first, then: pate run {folder}")


def _kind_of(data: Path | None) -> str:
    """Return the kind of the data at a place, by the names of files."""
    requirement = f"--kind, one of {', '.join(_KINDS)}, or data that tell theirs"
    data = require_given(data, requirement)
    if data.suffix == ".npz":
        return "npz"
    if data.suffix in _TABLES and data.is_file():
        return "text" if "text" in read_columns(data, ()).values else "csv"
    if any(data.glob("list_attr_celeba.*")):
        return "celeba"
    if any(data.glob("dataset*.json")):
        return "huggingface"
    require(any(data.glob("*.csv")), requirement, data=str(data))
    return "folder"


def _read(
    kind: str, data: Path, fraction: float | None, budgets: list[float] | None = None
) -> Guess:
    """Return the guesses about data, after reading them.

    Raises ``ValueError`` with a line for each fault of theirs.
    """
    guess, content = Guess(), _KINDS[kind].content
    if kind in ("huggingface", "python"):
        return guess
    if not data.exists():
        guess.remarks.append(f"Nothing is at {data} yet: data.yaml describes what is expected.")
        return guess
    if content is not None:
        tables = [data] if content != "file" else sorted(data.glob("*.csv"))
        require(tables, f"a CSV file of labels in {data}")
        named = [table for table in tables if table.name == "labels.csv"]
        guess = guess_table((named or tables)[0], content)
        if content == "file" and not named:
            guess.add("table", tables[0].name, "Guessed: the CSV file in the folder")
    if fraction is not None:
        guess.add("public_fraction", fraction, "From --public_fraction")
    if budgets is not None:
        weighed = ("npz", "csv", "text")
        require(kind in weighed, f"--budgets of data among {', '.join(weighed)}", kind=kind)
        guess.add("budgets", budgets, "From --budgets")
    if content is not None and not guess.settings.get("labels"):
        return guess
    content = yaml.safe_load(_data_file(kind, data, guess))["data"]
    if guess.hashed or kind == "npz":
        content["init_args"].setdefault("public_fraction", PUBLIC_FRACTION)
    source: TableSource = decode(DataSource, content)
    sizes = {role: len(source.load(role).ids) for role in Role}
    if kind == "npz":
        with np.load(data) as arrays:
            guess.hashed = "split" not in arrays.files
    try:
        source.require_distinct()
    except ValueError as error:
        if "permanent_ids" not in str(error):
            raise
        guess.remarks.append(
            "The ids look like numbers of rows, which change when an earlier record is removed."
            " Give each record an id for good; or, if a register assigned these numbers, write"
            " `permanent_ids: true` in data.yaml."
        )
    guess.remarks[:0] = _sizes(source, sizes, hashed=guess.hashed, said=fraction is not None)
    guess.remarks.append(_promise(sizes[Role.PRIVATE]))
    return guess


def _sizes(
    source: TableSource, sizes: Mapping[Role, int], *, hashed: bool, said: bool
) -> list[str]:
    """Return lines on the labels, and on the number of records of each role."""
    private, public, test = (sizes[role] for role in Role)
    names = source.label_names
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    lines = [f"{len(names)} labels: {shown}."]
    counted = f"{test:,} test, {private:,} private"
    if not hashed:
        lines.append(
            f"{counted}, and {public:,} public records, of which anybody may see the features."
        )
    else:
        would = "will" if said else "would"
        way = (
            ""
            if said
            else f": name a column `split`, or say so: --public_fraction {PUBLIC_FRACTION}"
        )
        lines.append(f"{counted}, {public:,} of YOUR records {would} be published{way}.")
    return lines


def _promise(num_private: int) -> str:
    """Return a sentence on epsilon and delta of the recipe, for a number of private records."""
    label = yaml.safe_load((_TEMPLATES / "label.yaml").read_text())
    epsilon, delta = label["target_epsilon"], label["delta"]
    most = format_guess({"epsilon": epsilon, "delta": delta})
    suited, over = suited_delta(num_private), f"1/{num_private:,}, one over the private records"
    advice = f"suits them, well below {over}; up to {suited:g} is usual"
    if delta > suited:
        advice = f"is too large for them: write {suited:g}, well below {over}"
    return (
        f"label.yaml: epsilon {epsilon:g} lets whoever sees all that is published guess right"
        f" {most}"
        " of the time at most whether any one record is there (a coin: 50%)."
        f" delta {delta:g} {advice}."
    )


def recipe_files(
    folder: Path, kind: str, data: Path | None = None, guess: Guess | None = None
) -> dict[str, str]:
    """Return the texts of a recipe's files by name.

    Args:
        folder: the folder of the recipe.
        kind: the kind of data, one of the choices of ``--kind``.
        data: the place of the data; None for a place to be filled in.
        guess: settings of the source; None for the template's.
    """
    data_kind = _KINDS[kind]
    sources = {
        "teachers.yaml": data_kind.teachers,
        **{name: name for name in ("label.yaml", "student.yaml", *data_kind.files)},
    }
    texts = {name: (_TEMPLATES / template).read_text() for name, template in sources.items()}
    filled = _data_file(kind, data, Guess() if guess is None else guess)
    for name in data_kind.files:
        filled = filled.replace(f"FOLDER/{name}", _quoted(str(folder.absolute() / name)))
    return {"data.yaml": filled, **texts}


def _data_file(kind: str, data: Path | None, guess: Guess) -> str:
    """Return a data.yaml with what is known of the data."""
    text = (_TEMPLATES / f"data_{kind}.yaml").read_text()
    # without such a file it may be the name of a data set on a hub
    named = kind == "huggingface" and data is not None and not data.exists()
    place = _KINDS[kind].place if data is None else str(data if named else data.absolute())
    for name, value in guess.settings.items():
        text = _with_setting(text, name, value, guess.reasons[name])
    return text.replace("DATA", _quoted(place))


def _holds(path: Path, text: str | None) -> bool:
    return text is not None and path.is_file() and path.read_bytes() == text.encode()


def _with_setting(text: str, name: str, value: object, reason: str) -> str:
    """Return a data.yaml with the value of a setting of its source, and the reason for it."""
    indent = "    "
    flow = yaml.safe_dump({name: value}, default_flow_style=True, allow_unicode=True, width=90)
    written = textwrap.indent(flow.strip()[1:-1], indent * 2)[len(indent) :]
    comment = textwrap.fill(f"{reason}.", 94, break_long_words=False)
    lines = f"{textwrap.indent(comment, indent + '# ')}\n{written}"
    before, after = re.split(rf"^    (?:# )?{name}:.*$", text, maxsplit=1, flags=re.M)
    return before + lines + after


def _quoted(text: str) -> str:
    """Return a path as YAML reads it, in quotes if it needs them."""
    plain = all(character.isalnum() or character in "/._-" for character in text)
    return text if plain else json.dumps(text, ensure_ascii=False)


main = partial(
    run_command,
    "init",
    init,
    special={
        "--kind": {
            "choices": list(_KINDS),
            "help": "the kind of data, unless their names tell: "
            + ", ".join(f"{name} for {kind.what}" for name, kind in _KINDS.items()),
        }
    },
)
