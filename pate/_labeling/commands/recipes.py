"""Files written from templates: recipes by `pate init`, and packages by `pate plugin new`.

`pate init` reads data of the user's own, and writes a recipe with comments on each choice, or asks
for what is not declared. The package of a plug-in passes its own tests.
"""

import json
import re
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from pate._core.accounting.cost import format_guess
from pate._core.files.reading import Json, read_bytes, read_text, read_yaml
from pate._core.files.writing import remove_drafts, write_text
from pate._core.settings import Partial, decode
from pate._core.transaction import suited_delta
from pate._core.validation import UNKNOWN, UInt8Array, require, require_given
from pate._labeling.aggregators.base import registered
from pate._labeling.aggregators.top_k import StableTopK
from pate._labeling.commands.evidence import (
    Declared,
    Draft,
    UndeclaredError,
    declared_draft,
    draft_of_arrays,
    draft_of_pictures,
    draft_of_table,
    read_table,
    require_no_counters,
)
from pate._labeling.commands.parsing import FLAG, run_command
from pate._labeling.data.label_table import is_table
from pate._labeling.data.records import Role
from pate._labeling.data.source import GIVE_IDS, DataSource, TableSource
from pate._labeling.release.forecast import describe_absent, some_of, teachers_that_start
from pate._labeling.release.label_settings import LabelSettings

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
_STABLE = "stable_topk"
"""The folder of the other recipe for pictures."""
_QUERIES, _RECORDS = 200, 4  # the most queries of that recipe, and the most records of its teachers
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
    "huggingface": _Kind(
        "a data set of Hugging Face", "data/mine", files=("my_splits.py", _NETWORK)
    ),
    "torchvision": _Kind(
        "data sets of pictures of torchvision", "data", files=("my_datasets.py", _NETWORK)
    ),
    "python": _Kind("anything that your own class reads", "records.csv", files=("my_records.py",)),
}
WITH_CODE = ("huggingface", "torchvision", "python")
"""Kinds that a class of your own reads, which `pate init` begins."""
_TEST_SHARE = 0.3
"""The share of public records that is proposed for tests, where no record is one."""
_MOST_SHOWN = 40  # labels


def init(folder: Path, declared: Declared, *, data: Path | None = None) -> None:
    """Write a recipe for data of your own.

    It has data.yaml, teachers.yaml, label.yaml and student.yaml, with comments that explain each
    choice. `pate run` runs it, and `pate fit` does both at once. For pictures, the folder
    stable_topk in it is another recipe: exact sets of labels or none, by teachers that start from a
    release.

    The data are read. Columns called `id`, `split` and `group` have these meanings, and no other
    column has one unless an option says so. Where something is not said, the columns that may be
    meant are listed, with the options to add. All faults of a file are listed, and the records of
    each role counted. Lines that begin with PRIVATE are for your own eyes.

    The recipe has epsilon 2 and delta 1e-6: an observer of all that is published guesses right
    88.1% of the time at most whether any one record is there. delta suits up to 100,000 private
    records; write a tenth of one over their number, or less.

    Args:
        folder: the recipe's folder, new or empty.
        declared: what options say of the columns.
        data: the place of the data, which are read for the settings of data.yaml.
    """
    words = ["init", str(folder), "--data"]
    files, remarks = draft_recipe(data, declared, words)
    listed, pictures = [*files], _NETWORK in files
    if pictures:
        files |= {f"{_STABLE}/{name}": text for name, text in _stable_topk(files, data).items()}
        listed.append(f"{_STABLE}/")
    remove_drafts(folder.glob(".*"), files)  # that a killed command left
    held = (*folder.glob("*"), *(folder / _STABLE).glob("*"))
    others = sorted(
        name
        for path in held
        if (name := str(path.relative_to(folder))) != _STABLE
        and (name not in files or read_bytes(path) != files[name].encode())
    )
    require(not others and not folder.is_file(), f"a new or empty folder {folder}", files=others)
    for name, text in files.items():
        write_text(folder / name, text)
    print(f"{folder}: {', '.join(listed)}")
    print_remarks(remarks)
    code = f" --code {folder}" if any(name.endswith(".py") for name in files) else ""
    print(f"Read data.yaml first, then: pate run {folder}{code}")
    if pictures:
        run = Path("runs") / f"{folder.resolve().name}_{_STABLE}"
        print(f"Or exact sets of labels or none: pate run {folder / _STABLE} --run {run}{code}")


def _stable_topk(files: Mapping[str, str], data: Path | None) -> dict[str, str]:
    """Return the files of the other recipe for pictures, with numbers by a forecast."""
    texts = {name: _template(f"{_STABLE}/{name}") for name in ("teachers.yaml", "label.yaml")}
    unit = read_yaml(files["teachers.yaml"])["unit"]
    texts["teachers.yaml"] = texts["teachers.yaml"].replace("unit: record", f"unit: {unit}")
    if data is not None and not any(name.endswith(".py") for name in files):
        source = decode(DataSource, read_yaml(files["data.yaml"])["data"])
        pictures = some_of(source.load(Role.PUBLIC).features)
        label = read_yaml(texts["label.yaml"])
        asked = LabelSettings(
            Partial(StableTopK),
            delta=label["delta"],
            target_epsilon=label["target_epsilon"],
            num_queries=min(_QUERIES, source.load(Role.PUBLIC).features.shape[0]),
        )
        number = teachers_that_start(asked, pictures, source.num_labels, size=_RECORDS)
        for name, key, value in (
            ("label.yaml", "num_queries", asked.num_queries),
            ("teachers.yaml", "num_teachers", number),
        ):
            texts[name] = texts[name].replace(f"{key}: null", f"{key}: {value or 'null'}")
    return {name: files[name] for name in ("data.yaml", "student.yaml")} | texts


def print_remarks(remarks: Sequence[str]) -> None:
    """Print lines on data, within the width of a page."""
    for remark in remarks:
        print(textwrap.fill(remark, 100, break_long_words=False, break_on_hyphens=False))


def draft_recipe(
    data: Path | None,
    declared: Declared,
    words: Sequence[str],
    promise: Mapping[str, float] = MappingProxyType({}),
) -> tuple[dict[str, str], list[str]]:
    """Return the files of a recipe by name, and lines on the data.

    Args:
        data: the place of the data. None for data that come later.
        declared: what options say of the columns.
        words: the command, up to its argument with the place of the data.
        promise: numbers of label.yaml in place of the template's.

    Raises:
        UndeclaredError: if something is not declared, after it has printed the evidence.
        ValueError: with a line for each fault of the data.
    """
    named = declared.kind or _kind_of(data, declared)
    draft = declared_draft(declared, _KINDS[named].content)
    grouped = declared.group is not None or declared.group_pattern is not None
    label = _template("label.yaml")
    for name, value in promise.items():
        label = re.sub(rf"^{name}: .*$", yaml.safe_dump({name: value}).strip(), label, flags=re.M)
    if data is not None:
        try:
            draft, grouped = _read(named, data, declared, read_yaml(label), refuse=bool(promise))
        except UndeclaredError as question:
            _print_question(question, [*words, str(data)], declared)
            raise
    others = ["teachers.yaml", "label.yaml", "student.yaml", *_KINDS[named].files]
    if draft.settings.get("features") == _OF_PICTURES:
        others.append(_NETWORK)
    files = {"data.yaml": _data_file(named, draft.root or data, draft)}
    files |= {name: _template(name) for name in others} | {"label.yaml": label}
    if grouped:
        files["teachers.yaml"] = files["teachers.yaml"].replace("unit: record", "unit: group")
    return files, draft.remarks


def _print_question(question: UndeclaredError, words: Sequence[str], declared: Declared) -> None:
    """Print what the columns that may be meant hold, for the owner, and a command to type."""
    for line in question.evidence:
        print(f"PRIVATE: {line}")
    said, options = " ".join(question.options), list[str]()
    for name, value in vars(declared).items():
        if value is not None and value is not False and f"--{name} " not in said:
            options += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    print("Then, for example:", shlex.join(["pate", *words, *options]), *question.options)


def _kind_of(data: Path | None, declared: Declared) -> str:
    """Return the kind of the data at a place, by the names of files and of a column `text`."""
    requirement = f"--kind, one of {', '.join(_KINDS)}, or data that tell theirs"
    data = require_given(data, requirement)
    require(data.exists(), "data that are there", missing=str(data))
    if data.suffix == ".npz":
        return "npz"
    if is_table(data) and data.is_file():
        return "text" if not declared.features and "text" in read_table(data)[0].values else "csv"
    if any(data.glob("list_attr_celeba.*")):
        return "celeba"
    if any(data.glob("dataset*.json")):
        return "huggingface"
    require(
        any(data.glob("*.csv")), f"a .csv of labels in the folder, or {requirement}", data=str(data)
    )
    return "folder"


def _read(
    kind: str, data: Path, declared: Declared, label: Json, *, refuse: bool
) -> tuple[Draft, bool]:
    """Return the settings of data, after reading them, and whether groups are protected.

    Ids that look like numbers of rows are refused, where no file can be edited before the run.

    Raises ``ValueError`` with a line for each fault of the data.
    """
    content = _KINDS[kind].content
    draft = declared_draft(declared, content)
    if kind in WITH_CODE:
        return draft, False
    require(
        data.exists(),
        "--data that are there (without --data, data.yaml describes what is expected)",
        missing=str(data),
    )
    if content == "file":
        draft = draft_of_pictures(data, declared)
    elif content is not None:
        draft = draft_of_table(data, content, declared)
    elif kind == "npz":
        draft = draft_of_arrays(data, declared)
    settings = read_yaml(_data_file(kind, draft.root or data, draft))["data"]
    source: TableSource = decode(DataSource, settings)
    records = {role: source.load(role) for role in Role}
    sizes = {role: len(some.ids) for role, some in records.items()}
    try:
        source.require_distinct()
    except ValueError as error:
        by_field = "permanent_ids=True says that these do"
        if refuse or by_field not in str(error):
            line = str(error).replace(by_field, f"they are {GIVE_IDS}")
            raise ValueError(line.replace("copies=True", "--copies")) from None
        draft.remarks.append(
            "The ids look like numbers of rows, which change when an earlier record is removed."
            f" Ids are {GIVE_IDS}; or, if a register assigned these numbers, write"
            " `permanent_ids: true` in data.yaml."
        )
    grouped = records[Role.PRIVATE].groups is not None and not declared.no_group
    if grouped:
        draft.remarks.append(
            "Records have groups, such as persons: `unit: group` in teachers.yaml protects all"
            " records of a group together."
        )
    if not sizes[Role.TEST]:
        draft.remarks.append(
            "No test records: `pate run` leaves out its last stage, which measures the student."
            f" --test_fraction {_TEST_SHARE} takes a share of the public records for it, by a hash."
        )
    names = source.label_names
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    draft.remarks[:0] = [
        f"{len(names)} label{'s' * (len(names) > 1)}: {shown}.",
        f"PRIVATE: {sizes[Role.TEST]:,} test, {sizes[Role.PRIVATE]:,} private, and"
        f" {sizes[Role.PUBLIC]:,} public records. Anyone may see the features of public ones"
        + ("." if declared.public_fraction is None else ": YOUR records, which are published."),
    ]
    _, *sides = (public := records[Role.PUBLIC].features).shape
    if kind == "npz" and len(sides) == 1:
        require_no_counters(public)
    if kind == "npz" and len(sides) in (2, 3) and sorted(sides)[-2] >= _PICTURE:
        draft.add("features", _OF_PICTURES, "Guessed: X holds pictures, gray or of channels")
    draft.remarks += [
        *_shown(records[Role.PRIVATE].labels, names),
        *_promise(sizes[Role.PRIVATE], label, "group" if grouped else "record"),
    ]
    return draft, grouped


def _shown(labels: UInt8Array, names: Sequence[str]) -> list[str]:
    """Return lines on the private labels ``[N, C]`` that were read: PRIVATE."""
    num, have = len(labels), (labels == 1).sum(axis=0).tolist()
    known = (labels != UNKNOWN).sum(axis=0).tolist()
    rare = sorted(sorted(range(len(names)), key=have.__getitem__)[:_MOST_SHOWN])
    counts = [
        f"{names[j]} {have[j]:,}" + (f" of {known[j]:,} known" if known[j] < num else "")
        for j in rare
    ]
    which = f"the {_MOST_SHOWN} rarest labels" if len(rare) < len(names) else "labels"
    lines = [f"PRIVATE: {which} of {num:,} private records: {', '.join(counts)}."]
    return [*lines, *(f"PRIVATE: {line}" for line in describe_absent(labels, names))]


def _promise(num_private: int, label: Json, unit: str) -> list[str]:
    """Return lines on epsilon and delta of label.yaml, for a number of private records."""
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
        f" {most} of the time at most whether any one {unit} is there (a coin: 50%).",
        f"PRIVATE: delta {delta:g} {advice}.",
    ]


def _template(name: str) -> str:
    """Return the template of a file; code ends in .txt, so that it is no code of the package."""
    return read_text(_TEMPLATES / (f"{name}.txt" if name.endswith(".py") else name))


def _data_file(kind: str, data: Path | None, draft: Draft) -> str:
    """Return a data.yaml with what is known of the data."""
    text = _template(f"data_{kind}.yaml")
    # without such a file it may be the name of a data set on a hub
    named = kind == "huggingface" and data is not None and not data.exists()
    place = _KINDS[kind].place if data is None else str(data if named else data.absolute())
    for name, value in draft.settings.items():
        text = _with_setting(text, name, value, draft.reasons[name])
    # as YAML reads it, in quotes if it needs them
    return text.replace(
        "DATA",
        place if re.fullmatch(r"[\w/.-]+", place) else json.dumps(place, ensure_ascii=False),
    )


def _with_setting(text: str, name: str, value: object, reason: str) -> str:
    """Return a data.yaml with the value of a setting of its source, and the reason for it."""
    flow = yaml.safe_dump({name: value}, default_flow_style=True, allow_unicode=True, width=90)
    written = textwrap.indent(flow.strip()[1:-1], " " * 8)[4:]
    parts = re.split(rf"^    (?:# )?{name}:.*$", text, maxsplit=1, flags=re.M)
    require(len(parts) == 2, "options for data of this kind", **{name: value})
    before, after = parts
    comment = textwrap.indent(textwrap.fill(f"{reason}.", 94, break_long_words=False), "    # ")
    return f"{before}{comment}\n{written}{after}"


def declared_options(*without: str) -> dict[str, Any]:
    """Return what `run_command` takes for a function of declarations, of all kinds but some."""
    kinds = {name: kind.what for name, kind in _KINDS.items() if name not in without}
    return {
        "--copies": FLAG,
        "--no_group": FLAG,
        "--kind": {
            "choices": list(kinds),
            "help": "the kind of data, unless their names tell: "
            + ", ".join(f"{name} for {what}" for name, what in kinds.items()),
        },
    }


init_main = partial(
    run_command, "init", init, grouped={"declared": Declared}, special=declared_options()
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
    templates = {path: read_text(path) for path in sorted((_TEMPLATES / "plugin").iterdir())}
    spec = None if iskeyword(module) else find_spec(module)
    taken = iskeyword(module) or (spec is not None and spec.origin is not None)
    used = any(re.search(rf"\b{name}\b", text) for text in templates.values())
    require(not taken and not used, "a name that no module or class has in Python", name=name)
    folder = Path(module) if output is None else output
    others = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    require(not folder.is_file() and not others, f"a new or empty folder {folder}", files=others)
    words = {_NAME: name, _MODULE: module, f'"{_TAG}"': f'"{module}"', f"_{_TAG}": f"_{module}"}
    for template, text in templates.items():
        for word, mine in words.items():
            text = text.replace(word, mine)
        write_text(folder / template.name.removesuffix(".txt").replace(_MODULE, module), text)
    print(f"{folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
    print(f"Test it: python -m pytest {folder}\nThen:    pip install --editable {folder}")
    votes = '"[{num_items: 5, top: 300}]"'
    print(f"         pate study --mechanisms [{name}] --k [1] --epsilons [1] --simulate {votes}")


plugin_main = partial(run_command, "plugin new", new_plugin)
