"""Recipes: those that are shipped, and one for data of the user's own, by `pate init`.

First the recipes in the installed package, or next to it in the checkout. Then guesses about a
table: its special columns, its labels, its kinds of columns. At the end the command, which writes
them into a recipe with comments on each choice.
"""

import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import pate
from pate._commands.parsing import run_command
from pate._files import remove_drafts, write_text
from pate._release.transaction import suited_delta
from pate._settings import decode
from pate._validation import Faults, expecting, require, require_given
from pate.accounting._cost import format_guess
from pate.data import DataSource, Role
from pate.data._label_table import BUDGET, LABELS, Columns, as_list, as_number, is_gap, read_columns
from pate.data._source import SPLIT_OF_ROLE, TableSource, split_by_hash

PARTS = ("data", "teachers", "label", "student")
"""The parts of a recipe, each of them a file."""

_PACKAGE = Path(pate.__file__).parent
_PLACES = (_PACKAGE / "recipes", _PACKAGE.parent / "configs")


def shipped_recipes() -> dict[str, Path]:
    """Return the folders of the shipped recipes by name."""
    place = next((place for place in _PLACES if place.is_dir()), None)
    folders = [] if place is None else sorted(place.iterdir())
    return {folder.name: folder for folder in folders if (folder / "data.yaml").is_file()}


def find_recipe(word: Path) -> Path:
    """Return the folder of a recipe: ``word``, or the shipped recipe of that name.

    A shipped recipe is named ``faces`` or ``configs/faces``, as in the checkout, unless such a
    folder has a recipe. Raises ``ValueError`` if there is no such folder, or it lacks
    a file.
    """
    shipped = shipped_recipes()
    name = word.name if word.parts[:-1] in ((), ("configs",)) else None
    if name in shipped and not (word / "data.yaml").is_file():
        return shipped[name]
    known = f"one of {', '.join(shipped)}"
    require(
        word.is_dir(),
        f"a recipe: a folder with data.yaml, such as `pate init` writes, or {known}",
        recipe=str(word),
    )
    missing = [f"{part}.yaml" for part in PARTS if not (word / f"{part}.yaml").is_file()]
    require(not missing, f"a recipe's files in {word}", missing=missing)
    return word


def unpack_recipe(file: Path, folder: Path, names: Sequence[str]) -> None:
    """Write the YAML documents of a file into a folder, each under the next of ``names``.

    Raises ``ValueError`` if there are not as many, or one is no mapping of settings.
    """
    with expecting(f"YAML in {file}", yaml.YAMLError):
        documents = list(yaml.safe_load_all(file.read_text()))
    require(
        len(documents) == len(names),
        f"{len(names)} YAML documents in {file}, as `pate run RECIPE --print_config` prints them",
        documents=len(documents),
    )
    for name, document in zip(names, documents, strict=True):
        require(isinstance(document, dict), f"settings of {name} in {file}", document=document)
        (folder / name).write_text(yaml.safe_dump(document))


def with_shipped_files(words: Sequence[str]) -> list[str]:
    """Return arguments with shipped files for each missing ``--config configs/NAME/FILE``."""
    chosen: list[str] = []
    for word in words:
        option, equals, path = (
            word.partition("=") if word.startswith("--config=") else ("", "", word)
        )
        is_file = equals or chosen[-1:] == ["--config"]
        chosen.append(f"{option}{equals}{_shipped_file(path)}" if is_file else word)
    return chosen


def _shipped_file(path: str) -> str:
    place, name, *file = (*Path(path).parts, "", "")[:3]
    folder = shipped_recipes().get(name)
    if place != "configs" or folder is None or Path(path).exists():
        return path
    return str(folder.joinpath(*file))


_PUBLIC_FRACTION = 0.2
"""The share of public records that is proposed, and used for guesses, without a column of roles."""

_MOST_LEVELS = 50
_HASHED = 256  # columns of words of a text
_MOST_LISTED = 200
_TIMES = 3.0  # that a name in a list occurs, on average
_WORDS = 20  # letters of a text, on average
_LISTS = r"[;|\x1f]|^\["
_LISTS_OF_LABELS = r"[;|,\x1f]|^\["
_ROLES = {role.value: number for role, number in SPLIT_OF_ROLE.items()}
_NAMED = {
    "id": r"(^|[_ -])(id|uuid|guid|key|nr|no|number|code)$",
    "file": r"file|image|img|path|picture|photo",
    "text": r"text|message|body|comment|description|title|sentence|review",
    "split": r"split|fold|role|set|part",
    "group": r"person|patient|subject|user|customer|client|member|owner|family|household",
    "label": r"^(labels?|targets?|class(es)?|y|categor(y|ies)|topics?|tags?|genres?)$",
}


@dataclass
class Guess:
    """Settings of a source, each with its reason.

    Attributes:
        settings: the values by name.
        reasons: for each, a comment.
        remarks: lines for the user.
        hashed: whether a hash of ids is to choose the public records.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    hashed: bool = False

    def add(self, name: str, value: object, reason: str) -> None:
        """Add a setting."""
        self.settings[name], self.reasons[name] = value, reason


def guess_table(path: Path, content: str) -> Guess:
    """Return the settings of the source of a table.

    Labels, ids and roles are guessed from all records, because they say what a column is. Kinds of
    features are guessed from public records only.

    Args:
        path: the file.
        content: the column of which features are made, ``file`` or ``text``; ``id`` for numbers.

    Raises:
        ValueError: if columns are missing that no other one could be, with a line for each fault.
    """
    table, faults, guess = read_columns(path, ()), Faults(), Guess()
    identity = "file" if content == "file" else "id"
    names: dict[str, str] = {}
    for special in dict.fromkeys((identity, content, "split", "group")):
        if special in table.values or (special == "group" and "identity" in table.values):
            continue
        rest = [name for name in table.values if name not in names.values()]
        found = next(_candidates(table, special, rest), None)
        if found is not None:
            names[special] = found
        elif special in (identity, content):
            with faults.gather():
                require(False, _MISSING[special].format(path=path), columns=[*table.values])
    if names:
        guess.add("names", names, "Guessed: the columns that the file calls otherwise")
    faults.refuse()
    guess.hashed = names.get("split", "split") not in table.values
    taken = {*names.values(), identity, content, "split", "group", "identity", BUDGET}
    rest = [name for name in table.values if name not in taken]
    public = _public_rows(table, names, identity)
    _guess_labels(guess, table, rest, public)
    if content == "id":
        labels = guess.settings.get("labels", ())
        _guess_features(guess, table, [name for name in rest if name not in labels], public)
    return guess


_MISSING = {
    "id": "a column of ids in {path}, a value of its own for each record, given once and kept for"
    " good, such as uuid.uuid4().hex",
    "file": "a column of names of picture files in {path}",
    "text": "a column of texts in {path}",
}


def _candidates(table: Columns, special: str, names: Sequence[str]) -> Iterator[str]:
    """Yield columns that may be a special one, likely ones first."""
    likely = [name for name in names if re.search(_NAMED[special], name.lower())]
    others = [name for name in names if name not in likely] if special in _BY_VALUES else []
    for name in (*likely, *others):
        values = table.values[name]
        different = len(set(values))
        full = not any(is_gap(value) for value in values)
        fits = {
            "id": full and different == len(values),
            "file": full and all(re.search(r"\.\w{2,4}$", value) for value in values),
            "text": _is_text(values),
            "split": set(values) <= _ROLES.keys(),
            "group": full and different < len(values) and not set(values) <= LABELS.keys(),
        }
        if fits[special]:
            yield name


_BY_VALUES = ("file", "text", "split")
"""Special columns that their values tell, whatever their name is."""


def _is_text(values: Sequence[str]) -> bool:
    return sum(map(len, values)) >= _WORDS * len(values) and any(" " in v for v in values)


def _public_rows(table: Columns, names: Mapping[str, str], identity: str) -> list[int]:
    """Return the rows of public records, as far as the columns tell; all rows if none is public."""
    roles = table.values.get(names.get("split", "split"))
    if roles is not None:
        rows = [row for row, role in enumerate(roles) if role in ("public", "1")]
    else:
        key = next(
            names.get(name, name)
            for name in ("group", "identity", identity)
            if names.get(name, name) in table.values
        )
        split = split_by_hash(
            np.array(table.values[key]), _PUBLIC_FRACTION, 0.1, source=str(table.path)
        )
        rows = np.flatnonzero(split == SPLIT_OF_ROLE[Role.PUBLIC]).tolist()
    return rows or [*range(len(table.lines))]


def _guess_labels(guess: Guess, table: Columns, rest: Sequence[str], public: Sequence[int]) -> None:
    """Guess a column of lists, or else the columns of 0 and 1, or else a column of classes."""
    lists, classes = {}, {}
    for name in rest:
        values = [table.values[name][row] for row in public]
        found = Counter(
            part for value in values if not is_gap(value) for part in as_list(value) if part
        )
        called = re.search(_NAMED["label"], name.lower())
        apart = any(
            re.search(_LISTS if not called else _LISTS_OF_LABELS, value) for value in values
        )
        if len(found) <= min(_MOST_LISTED, found.total() / _TIMES):
            if apart and not all(as_number(part) is not None for part in found):
                lists[name] = sorted(found)
            elif called and not found.keys() <= LABELS.keys():
                classes[name] = sorted(found)
    marked = [
        name
        for name in rest
        if {value for value in table.values[name] if not is_gap(value)} <= LABELS.keys()
    ]
    named = [name for name in marked if re.match(r"(y|label|target|class)[_ .-]", name.lower())]
    if lists or (classes and not marked):
        guess.add(
            "labels",
            lists or classes,
            "Guessed: names that public records list; add others that you expect, delete features",
        )
    elif marked:
        chosen = named or marked
        guess.add(
            "labels", chosen, "Guessed: the columns of 0 and 1; delete those that are features"
        )
        if any(is_gap(value) for name in chosen for value in table.values[name]):
            guess.add("unknown_labels", "nan", "Guessed: columns of labels have gaps")
    else:
        guess.remarks.append(
            "No column of 0 and 1, and none that lists names: write `labels` in data.yaml."
        )


def _guess_features(
    guess: Guess, table: Columns, rest: Sequence[str], public: Sequence[int]
) -> None:
    levels: dict[str, int] = {}
    texts: dict[str, int] = {}
    others: dict[str, int] = {}
    for name in rest:
        values = [table.values[name][row] for row in public if not is_gap(table.values[name][row])]
        if any(as_number(value) is None for value in values):
            different = len(set(values))
            few = different <= min(_MOST_LEVELS, max(10, len(values) / 2))
            kind = levels if few else texts if _is_text(values) and find_spec("sklearn") else others
            kind[name] = _HASHED if kind is texts else different
    if levels:
        counts = ", ".join(f"{name} {count}" for name, count in levels.items())
        guess.add(
            "categories",
            dict.fromkeys(levels, "public"),
            f"Guessed: the columns of few words, and their levels among public records: {counts}",
        )
    if texts:
        guess.add("texts", texts, "Guessed: the columns of sentences, each as hashed words")
    if others:
        left = ", ".join(others)
        guess.add(
            "columns",
            [name for name in rest if name not in others],
            f"Guessed: all other columns, without those of many words: {left}",
        )
        guess.remarks.append(f"Left out, because of too many different words: {left}.")


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


def _read(kind: str, data: Path, fraction: float | None, budgets: list[float] | None) -> Guess:
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
    settings = yaml.safe_load(_data_file(kind, data, guess))["data"]
    if guess.hashed or kind == "npz":
        settings["init_args"].setdefault("public_fraction", _PUBLIC_FRACTION)
    source: TableSource = decode(DataSource, settings)
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
            else f": name a column `split`, or say so: --public_fraction {_PUBLIC_FRACTION}"
        )
        lines.append(f"{counted}, {public:,} of YOUR records {would} be published{way}.")
    return lines


def _promise(num_private: int) -> str:
    """Return a sentence on epsilon and delta of the recipe, for a number of private records."""
    label = yaml.safe_load((_TEMPLATES / "label.yaml").read_text())
    epsilon, delta = label["target_epsilon"], label["delta"]
    most = format_guess({"epsilon": epsilon, "delta": delta})
    suited, over = suited_delta(num_private), f"1/{num_private:,}, one over the private records"
    advice = (
        f"is too large for them: write {suited:g}, well below {over}"
        if delta > suited
        else f"suits them, well below {over}; up to {suited:g} is usual"
    )
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
