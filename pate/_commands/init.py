"""The command `pate init`: a recipe for the user's data, with comments on each choice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pate._commands.suggestions import CommandParser
from pate._files.writing import remove_drafts, write_text
from pate._validation import require

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class _Kind:
    """A kind of data.

    Attributes:
        what: a description of the data.
        place: the default place of the data.
        teachers: the template of ``teachers.yaml``.
        files: further files of the recipe, each a template of the same name.
    """

    what: str
    place: str
    teachers: str = "teachers_table.yaml"
    files: tuple[str, ...] = ()


_KINDS = {
    "npz": _Kind("one .npz file of arrays", "data/mine.npz"),
    "csv": _Kind("a CSV file of numbers and labels", "data/mine.csv"),
    "celeba": _Kind("a folder in CelebA's format", "data/celeba", "teachers_pictures.yaml"),
    "folder": _Kind("a folder of pictures with a CSV of their labels", "data/mine"),
    "text": _Kind("a CSV file of texts and their labels", "data/mine.csv"),
    "huggingface": _Kind("a data set of Hugging Face", "data/mine", files=("splits.py",)),
    "python": _Kind("anything that your own class reads", "records.csv", files=("records.py",)),
}


def main(args: Sequence[str]) -> None:
    """Run `pate init`."""
    parsed = _parser().parse_args(list(args))
    files = recipe_files(parsed.folder, parsed.kind, parsed.data)
    if parsed.folder.exists():
        require(parsed.folder.is_dir(), "a new or empty folder", file=str(parsed.folder))
        # drafts that a killed command left
        remove_drafts(parsed.folder.glob(".*"), files)
        others = sorted(
            path.name for path in parsed.folder.iterdir() if not _holds(path, files.get(path.name))
        )
        require(not others, f"a new or empty folder {parsed.folder}", files=others)
    for name, text in files.items():
        write_text(parsed.folder / name, text)
    print(f"{parsed.folder}: {', '.join(files)}")
    print(f"Read data.yaml first, then: pate run {parsed.folder}")


def _holds(path: Path, text: str | None) -> bool:
    return text is not None and path.is_file() and path.read_bytes() == text.encode()


def recipe_files(folder: Path, kind: str, data: Path | None = None) -> dict[str, str]:
    """Return the texts of a recipe's files by name.

    Args:
        folder: the folder of the recipe.
        kind: the kind of data, one of the choices of ``--kind``.
        data: the place of the data; None for a place to be filled in.
    """
    data_kind = _KINDS[kind]
    sources = {
        "data.yaml": f"data_{kind}.yaml",
        "teachers.yaml": data_kind.teachers,
        **{name: name for name in ("label.yaml", "student.yaml", *data_kind.files)},
    }
    texts = {name: (_TEMPLATES / template).read_text() for name, template in sources.items()}
    # without such a file it may be the name of a data set on a hub
    named = kind == "huggingface" and data is not None and not data.exists()
    place = data_kind.place if data is None else str(data if named else data.absolute())
    filled = texts["data.yaml"]
    for name in data_kind.files:
        filled = filled.replace(f"FOLDER/{name}", _quoted(str(folder.absolute() / name)))
    return texts | {"data.yaml": filled.replace("DATA", _quoted(place))}


def _quoted(text: str) -> str:
    """Return a path as YAML reads it, in quotes if it needs them."""
    plain = all(character.isalnum() or character in "/._-" for character in text)
    return text if plain else json.dumps(text, ensure_ascii=False)


def _parser() -> CommandParser:
    kinds = ", ".join(f"{name} for {kind.what}" for name, kind in _KINDS.items())
    parser = CommandParser(
        prog="pate init",
        description="Write a recipe for data of your own: data.yaml, teachers.yaml, label.yaml and"
        " student.yaml, with comments that explain each choice. `pate run` runs it.",
        print_config=None,
    )
    parser.add_argument("folder", type=Path, help="the recipe's folder, new or empty")
    parser.add_argument(
        "--kind", choices=list(_KINDS), required=True, help=f"the kind of data: {kinds}"
    )
    parser.add_argument("--data", type=Path, help="the place of the data, written to data.yaml")
    return parser
