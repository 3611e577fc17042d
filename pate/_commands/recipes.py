"""The recipes that are shipped: in the package as it is installed, or beside it in the checkout."""

from __future__ import annotations

from pathlib import Path

import pate
from pate._validation import expect

_PACKAGE = Path(pate.__file__).parent
_PLACES = (_PACKAGE / "recipes", _PACKAGE.parent / "configs")


def shipped_recipes() -> dict[str, Path]:
    """Return the folders of the shipped recipes by name."""
    place = next((place for place in _PLACES if place.is_dir()), None)
    folders = [] if place is None else sorted(place.iterdir())
    return {folder.name: folder for folder in folders if (folder / "data.yaml").is_file()}


def find_recipe(word: Path) -> Path:
    """Return the folder of a recipe: ``word`` itself, unless it is the name of a shipped one and no recipe itself.

    Raises ``ValueError`` if there is no such folder.
    """
    shipped = shipped_recipes()
    if str(word) in shipped and not (word / "data.yaml").is_file():
        return shipped[str(word)]
    requirement = f"a recipe: a folder with data.yaml, such as `pate init` writes, or one of {', '.join(shipped)}"
    expect(word.is_dir(), requirement, recipe=str(word))
    return word
