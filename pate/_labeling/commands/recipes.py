"""Files written from templates: recipes by `pate init`, and packages by `pate plugin new`.

`pate init` reads data of the user's own, and writes guesses about them into a recipe with comments
on each choice. The package of a plug-in passes its own tests.
"""

import csv
import json
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

import yaml
from PIL.Image import Image

from pate._core.accounting.cost import format_guess
from pate._core.files.writing import atomic_write, remove_drafts, write_text
from pate._core.release.transaction import suited_delta
from pate._core.settings import decode
from pate._core.validation import given, require, require_given
from pate._labeling.aggregators.base import registered
from pate._labeling.commands.guesses import (
    PUBLIC_FRACTION,
    TEST_SHARE,
    Guess,
    guess_arrays,
    guess_pictures,
    guess_table,
    read_table,
    shown,
    strip_of,
)
from pate._labeling.commands.parsing import FLAG, run_command
from pate._labeling.data.label_table import is_table
from pate._labeling.data.records import Role
from pate._labeling.data.source import DataSource, TableSource

_SHOWN = 8  # names of labels
_TEMPLATES = Path(__file__).parent / "templates"
_PICTURE = 8  # pixels along the shorter side
_OF_PICTURES = {
    "class_path": "ChainedFeatures",
    "init_args": {"maps": ["PatchFeatures", "PublicScaling"]},
}


@dataclass(frozen=True)
class _Kind:
    """A kind of data.

    Attributes:
        what: a description of the data.
        place: the default place of the data.
        files: further files of the recipe, each a template of the same name.
        content: the column of its table that features are made of, if it is a table.
    """

    what: str
    place: str
    files: tuple[str, ...] = ()
    content: str | None = None


_NETWORK = "student_network.yaml"
"""The file of the other student of pictures, a network."""
_KINDS = {
    "npz": _Kind("one .npz file of arrays", "data/mine.npz"),
    "csv": _Kind(
        "a CSV or parquet file of numbers, words and labels", "data/mine.csv", content="id"
    ),
    "celeba": _Kind("a folder in CelebA's format", "data/celeba", files=(_NETWORK,)),
    "folder": _Kind(
        "a folder of pictures with a CSV of their labels",
        "data/mine",
        files=(_NETWORK,),
        content="file",
    ),
    "text": _Kind("a CSV or parquet file of texts and labels", "data/mine.csv", content="text"),
    "huggingface": _Kind("a data set of Hugging Face", "data/mine", files=("splits.py", _NETWORK)),
    "torchvision": _Kind(
        "data sets of pictures of torchvision", "data", files=("datasets.py", _NETWORK)
    ),
    "python": _Kind("anything that your own class reads", "records.csv", files=("records.py",)),
}
_PRIVATE = "private"
_FRACTIONS = re.compile(
    r"^    # (The share of .*|From --(public|test)_fraction\.)\n"
    r"|^    (# )?(public|test)_fraction: .*\n",
    re.MULTILINE,
)
"""Lines of a data.yaml on shares of records, which another `pate init` may set."""


def init(
    folder: Path,
    *,
    kind: str | None = None,
    data: Path | None = None,
    public_fraction: float | None = None,
    test_fraction: float | None = None,
    random_ids: Path | None = None,
    copies: bool = False,
) -> None:
    """Write a recipe for data of your own.

    It has data.yaml, teachers.yaml, label.yaml and student.yaml, with comments that explain each
    choice. `pate run` runs it.

    The data are read: data.yaml holds guesses about their columns, all faults of a file are listed,
    and the records of each role counted. Lines that begin with PRIVATE, and the strip of pictures
    in the folder's private/, are for your own eyes.

    The recipe has epsilon 2 and delta 1e-6: an observer of all that is published guesses right
    88.1% of the time at most whether any one record is there. delta suits up to 100,000 private
    records; write a tenth of one over their number, or less.

    Args:
        folder: the recipe's folder, new or empty.
        kind: the kind of data, unless their names tell it.
        data: the place of the data, which are read for the settings of data.yaml.
        public_fraction: the share of your records to publish, chosen by a hash, if no column
            `split` says which.
        test_fraction: the share of test records: of all if a hash chooses the public ones, and of
            the public ones if the column `split` names none.
        random_ids: write a copy of a CSV file that has no ids, with a column of random ones, and a
            recipe for the copy. Keep it.
        copies: public records may be private ones, too, which nothing protects then.
    """
    named = kind or _kind_of(data)
    if random_ids is not None:
        data = _with_random_ids(named, data, random_ids)
    chosen = {"public_fraction": public_fraction, "test_fraction": test_fraction}
    guess, strip = Guess(), None
    if data is not None:
        guess, strip = _read(named, data, given(**chosen), copies=copies)
    files = recipe_files(folder, named, guess.root or data, guess)
    if folder.exists():
        require(folder.is_dir(), "a new or empty folder", file=str(folder))
        # drafts that a killed command left
        remove_drafts(folder.glob(".*"), files)
        others = sorted(
            path.name
            for path in folder.iterdir()
            if path.name != _PRIVATE and not _holds(path, files.get(path.name))
        )
        require(not others, f"a new or empty folder {folder}", files=others)
    for name, text in files.items():
        write_text(folder / name, text)
    print(f"{folder}: {', '.join(files)}")
    for remark in guess.remarks:
        print(textwrap.fill(remark, 100, break_long_words=False, break_on_hyphens=False))
    if strip is not None:
        place = folder / _PRIVATE / "pictures.png"
        place.parent.mkdir(mode=0o700, exist_ok=True)
        with atomic_write(place) as file:
            strip.save(file, "PNG")
        print(f"PRIVATE: {place} shows private pictures as teachers see them.")
    print(f"Read data.yaml first, then: pate run {folder}")


def _with_random_ids(kind: str, data: Path | None, copy: Path) -> Path:
    """Write a copy of a table with a column of random ids, and return its path.

    The ids come from the system's generator: they name records, and must say nothing about them.
    """
    fits = data is not None and kind in ("csv", "text") and copy.suffix == ".csv"
    require(fits, "--random_ids COPY.csv of a table", kind=kind, random_ids=str(copy))
    assert data is not None
    require(not copy.exists(), "a new file for the copy with ids", random_ids=str(copy))
    table, _ = read_table(data)
    require("id" not in table.values, f"a table without a column `id` in {data}")
    with atomic_write(copy, "w") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", *table.values])
        rows = zip(*table.values.values(), strict=True)
        writer.writerows([uuid4().hex, *row] for row in rows)
    copy.chmod(0o600)
    return copy


def _kind_of(data: Path | None) -> str:
    """Return the kind of the data at a place, by the names of files."""
    requirement = f"--kind, one of {', '.join(_KINDS)}, or data that tell theirs"
    data = require_given(data, requirement)
    if data.suffix == ".npz":
        return "npz"
    if is_table(data) and data.is_file():
        return "text" if "text" in read_table(data)[0].values else "csv"
    if any(data.glob("list_attr_celeba.*")):
        return "celeba"
    if any(data.glob("dataset*.json")):
        return "huggingface"
    require(any(data.glob("*.csv")), requirement, data=str(data))
    return "folder"


def _read(
    kind: str,
    data: Path,
    fractions: Mapping[str, float],
    *,
    copies: bool,
) -> tuple[Guess, Image | None]:
    """Return the guesses about data, after reading them, and a strip of private pictures.

    Raises ``ValueError`` with a line for each fault of theirs.
    """
    guess, content = Guess(), _KINDS[kind].content
    if kind in ("huggingface", "torchvision", "python"):
        return guess, None
    require(
        data.exists(),
        "--data that are there (without --data, data.yaml describes what is expected)",
        missing=str(data),
    )
    if content == "file":
        guess = guess_pictures(data)
    elif content is not None:
        guess = guess_table(data, content)
    elif kind == "npz":
        guess = guess_arrays(data)
    require(not fractions or kind != "celeba", "--public_fraction of data other than CelebA's")
    for name, fraction in fractions.items():
        guess.add(name, fraction, f"From --{name}")
    guess.add("copies", copies or None, "From --copies")
    if content is not None and not guess.settings.get("labels"):
        return guess, None
    settings = yaml.safe_load(_data_file(kind, guess.root or data, guess))["data"]
    if guess.hashed:
        settings["init_args"].setdefault("public_fraction", PUBLIC_FRACTION)
    source: TableSource = decode(DataSource, settings)
    sizes = {role: len(source.load(role).ids) for role in Role}
    try:
        source.require_distinct()
    except ValueError as error:
        if "permanent_ids" not in str(error):
            raise ValueError(str(error).replace("copies=True", "--copies")) from None
        guess.remarks.append(
            "The ids look like numbers of rows, which change when an earlier record is removed."
            " Give each record an id for good; or, if a register assigned these numbers, write"
            " `permanent_ids: true` in data.yaml."
        )
    if source.load(Role.PRIVATE).groups is not None:
        guess.remarks.append(
            "Records have groups, such as persons, and teachers.yaml protects single records."
            " `unit: group` there protects all records of a group together."
        )
    if not sizes[Role.TEST]:
        guess.remarks.append(
            "No test records: `pate run` leaves out its last stage, which measures the student."
            f" --test_fraction {TEST_SHARE} takes a share of the public records for it, by a hash."
        )
    guess.remarks[:0] = _sizes(
        source, sizes, hashed=guess.hashed, said="public_fraction" in fractions
    )
    _, *sides = source.load(Role.PUBLIC).features.shape
    if kind == "npz" and len(sides) in (2, 3) and sorted(sides)[-2] >= _PICTURE:
        guess.add("features", _OF_PICTURES, "Guessed: X holds pictures, gray or of channels")
    strip = strip_of(source)
    guess.remarks += [*shown(source, guess, strip), *_promise(sizes[Role.PRIVATE])]
    return guess, strip


def _sizes(
    source: TableSource, sizes: Mapping[Role, int], *, hashed: bool, said: bool
) -> list[str]:
    """Return lines on the labels, and on the number of records of each role."""
    private, public, test = (sizes[role] for role in Role)
    names = source.label_names
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    counted = f"PRIVATE: {test:,} test, {private:,} private"
    published = f", and {public:,} public records. Anyone may see their features."
    if hashed:
        published = f", {public:,} of YOUR records {'will' if said else 'would'} be published"
        published += (
            "."
            if said
            else f": name a column `split`, or say so: --public_fraction {PUBLIC_FRACTION}."
        )
    return [f"{len(names)} label{'s' * (len(names) > 1)}: {shown}.", counted + published]


def _promise(num_private: int) -> list[str]:
    """Return lines on epsilon and delta of the recipe, for a number of private records."""
    label = yaml.safe_load(_template("label.yaml"))
    epsilon, delta = label["target_epsilon"], label["delta"]
    most = format_guess({"epsilon": epsilon, "delta": delta})
    suited, over = suited_delta(num_private), f"1/{num_private:,}, one over the private records"
    advice = (
        f"is too large for the records: write {suited:g}, well below {over}"
        if delta > suited
        else f"suits the records, well below {over}; up to {suited:g} is usual"
    )
    return [
        f"label.yaml: with epsilon {epsilon:g}, an observer of all that is published guesses right"
        f" {most} of the time at most whether any one record is there (a coin: 50%).",
        f"PRIVATE: delta {delta:g} {advice}.",
    ]


def recipe_files(
    folder: Path, kind: str, data: Path | None = None, guess: Guess | None = None
) -> dict[str, str]:
    """Return the texts of a recipe's files by name.

    Args:
        folder: the folder of the recipe.
        kind: the kind of data, one of the choices of ``--kind``.
        data: the place of the data. None for a place to be filled in.
        guess: settings of the source. None for the template's.
    """
    guess, further = guess or Guess(), _KINDS[kind].files
    if guess.settings.get("features") == _OF_PICTURES:
        further = (*further, _NETWORK)
    written = ("teachers.yaml", "label.yaml", "student.yaml", *further)
    filled = _data_file(kind, data, guess)
    for name in further:
        filled = filled.replace(f"FOLDER/{name}", _quoted(str(folder.absolute() / name)))
    return {"data.yaml": filled} | {name: _template(name) for name in written}


def _template(name: str) -> str:
    """Return the template of a file; code ends in .txt, so that it is no code of the package."""
    return (_TEMPLATES / (f"{name}.txt" if name.endswith(".py") else name)).read_text()


def _data_file(kind: str, data: Path | None, guess: Guess) -> str:
    """Return a data.yaml with what is known of the data."""
    text = _template(f"data_{kind}.yaml")
    # without such a file it may be the name of a data set on a hub
    named = kind == "huggingface" and data is not None and not data.exists()
    place = _KINDS[kind].place if data is None else str(data if named else data.absolute())
    for name, value in guess.settings.items():
        text = _with_setting(text, name, value, guess.reasons[name])
    return text.replace("DATA", _quoted(place))


def _holds(path: Path, text: str | None) -> bool:
    """Return whether a file holds a text, with any shares of public and test records."""
    if text is None or not path.is_file():
        return False
    return _FRACTIONS.sub("", path.read_bytes().decode(errors="replace")) == _FRACTIONS.sub(
        "", text
    )


def _with_setting(text: str, name: str, value: object, reason: str) -> str:
    """Return a data.yaml with the value of a setting of its source, and the reason for it."""
    indent = "    "
    flow = yaml.safe_dump({name: value}, default_flow_style=True, allow_unicode=True, width=90)
    written = textwrap.indent(flow.strip()[1:-1], indent * 2)[len(indent) :]
    comment = textwrap.fill(f"{reason}.", 94, break_long_words=False)
    before, after = re.split(rf"^    (?:# )?{name}:.*$", text, maxsplit=1, flags=re.M)
    return f"{before}{textwrap.indent(comment, indent + '# ')}\n{written}{after}"


def _quoted(text: str) -> str:
    """Return a path as YAML reads it, in quotes if it needs them."""
    plain = all(character.isalnum() or character in "/._-" for character in text)
    return text if plain else json.dumps(text, ensure_ascii=False)


init_main = partial(
    run_command,
    "init",
    init,
    special={
        "--copies": FLAG,
        "--kind": {
            "choices": list(_KINDS),
            "help": "the kind of data, unless their names tell: "
            + ", ".join(f"{name} for {kind.what}" for name, kind in _KINDS.items()),
        },
    },
)


_NAME, _MODULE, _TAG = "MyVotes", "my_votes", "mine"
"""What the templates have in place of the names of a plug-in."""


def new_plugin(name: str, *, output: Path | None = None) -> None:
    """Write a plug-in: a package with a mechanism, its event, its aggregator, and their tests.

    The mechanism picks one label by Gumbel noise, and the package passes its tests. Put your own
    mechanism in its place, state its cost in the event, and its law in the tests.

    Args:
        name: the name of the aggregator, such as NoisyMean.
        output: the folder of the package, new or empty. None for the name in small letters.

    Raises:
        ValueError: on a name that is no class's or is taken, or a folder with files.
    """
    fits = re.fullmatch(r"[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*", name)
    require(fits, "a name like NoisyMean", name=name)
    require(name not in registered(), "a name that no aggregator has", name=name)
    module = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    folder = Path(module) if output is None else output
    others = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    require(not folder.is_file() and not others, f"a new or empty folder {folder}", files=others)
    words = {_NAME: name, _MODULE: module, f'"{_TAG}"': f'"{module}"', f"_{_TAG}": f"_{module}"}
    for template in sorted((_TEMPLATES / "plugin").iterdir()):
        text = template.read_text()
        for word, mine in words.items():
            text = text.replace(word, mine)
        write_text(folder / template.name.removesuffix(".txt").replace(_MODULE, module), text)
    print(f"{folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
    print(f"Test it: python -m pytest {folder}\nThen:    pip install --editable {folder}")
    votes = '"[{num_labels: 5, num_teachers: 300}]"'
    print(f"         pate study --mechanisms [{name}] --k [1] --epsilons [1] --simulate {votes}")


plugin_main = partial(run_command, "plugin new", new_plugin)
