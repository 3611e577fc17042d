"""Places outside of the package that a command line names: own code, and recipes.

The folders behind ``--code`` are on the import path while a command runs. Nothing else makes a
command import from the working directory, or from the folder of a recipe, a run or a model: a
``json.py`` that a stranger left there does not run.

Recipes are the shipped ones, in the installed package or next to it, and those in a file.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pate._core.validation import did_you_mean, naming_own_faults, require

OPTION, OWNER = "--code", "--owner"


def without_code(words: Sequence[str]) -> tuple[list[str], list[Path], bool]:
    """Return the words of a command without ``--code FOLDER`` and ``--owner``, and both.

    Words behind ``--`` belong to another command. Raises ``ValueError`` where there is no folder.
    """
    rest, others, folders, owner = list(words), [], [], False
    while rest and rest[0] != "--":
        word, equals, value = rest.pop(0).partition("=")
        if word == OWNER and not equals:
            owner = True
            continue
        if word != OPTION:
            others.append(word + equals + value)
            continue
        named = value if equals else next(iter(rest), "")
        del rest[: not equals]
        require(named and Path(named).is_dir(), f"a folder behind {OPTION}", code=named)
        folders.append(Path(named).resolve())
    return [*others, *rest], folders, owner


@contextmanager
def importable(folders: Sequence[Path]) -> Iterator[None]:
    """Put folders at the end of the import path: names of Python and of packages come first.

    Workers inherit the path.
    """
    before = list(sys.path)
    sys.path += map(str, folders)
    try:
        with naming_own_faults("code of your own that works", *folders):
            yield
    finally:
        sys.path[:] = before


_OPTIONS = re.compile(
    r"`((?:aggregators?|data)(?:\.\w+)+|aggregator|chunk_size|code|counts|data|delta|items|ledger"
    r"|max_each|max_epsilon|max_items|mechanism|noise_seed|num_teachers|overwrite|pairs|predictions"
    r"|public_keys|run|silos|target_epsilon|teachers|trust|unit|unreadable|votes|without|workers)"
    r"(=\w+)?`"
)
"""Fields and arguments that errors of other rooms mark and commands take as options."""


def with_options(message: str) -> str:
    """Return an error of another room with options in place of the fields that it marks.

    >>> with_options("Expected no `predictions`, which NoisyVotes does not use")
    'Expected no --predictions, which NoisyVotes does not use'
    """
    return with_own_code(_OPTIONS.sub(r"--\1\2", message))


def with_own_code(line: str) -> str:
    """Return an error with the option for code of one's own, where a module is missing.

    >>> with_own_code("No module named 'mine'")
    "No module named 'mine'; --code FOLDER names the folder of your own modules"
    """
    if "No module named" not in line or "No module named 'lightning'" in line:
        return line
    return f"{line}; --code FOLDER names the folder of your own modules"


PARTS = ("data", "teachers", "label", "student")
"""The parts of a recipe, each of them a file."""

_PACKAGE = Path(__file__).parents[2]
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
    if not word.is_dir():
        beside = word.parent.iterdir() if word.parent.is_dir() else ()
        recipes = [str(path) for path in beside if (path / "data.yaml").is_file()]
        raise ValueError(
            "Expected a recipe: a folder with data.yaml, such as `pate init` writes, or one of"
            f" {', '.join(shipped)}, got recipe={str(word)!r}"
            + did_you_mean(str(word), [*shipped, *recipes])
        )
    missing = [f"{part}.yaml" for part in PARTS if not (word / f"{part}.yaml").is_file()]
    require(not missing, f"a recipe's files in {word}", missing=missing)
    return word


def find_study(word: str) -> str:
    """Return a file of settings of a study: ``word``, or the shipped study of that name."""
    files = (place / "studies" / f"{word}.yaml" for place in _PLACES)
    return word if Path(word).exists() else str(next((f for f in files if f.is_file()), word))


def with_shipped_files(words: Sequence[str]) -> list[str]:
    """Return arguments with the shipped file for each missing ``configs/NAME/FILE``."""
    return [re.sub(r"(?<![^=])configs/([^/]+)/([^/]+)$", _shipped_file, word) for word in words]


def _shipped_file(match: re.Match[str]) -> str:
    file = shipped_recipes().get(match[1], Path()) / match[2]
    return match[0] if Path(match[0]).exists() or not file.is_file() else str(file)
