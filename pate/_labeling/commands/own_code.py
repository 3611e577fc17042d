"""Code of one's own: the folders behind ``--code`` are on the import path while a command runs.

Nothing else makes a command import from the working directory, or from the folder of a recipe, a
run or a model: a ``json.py`` that a stranger left there does not run.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pate._core.validation import naming_own_faults, require

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
    r"`((?:aggregators?|data)(?:\.\w+)+|aggregator|chunk_size|code|confirm|counts|data|delta|items|ledger"
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
