"""Tables of figures, as text for a terminal and as comma-separated values."""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from textwrap import wrap
from typing import Any

from pate._core.files.writing import atomic_write

_WIDTH = 100
_LEAST = 22  # columns for names, however many figures there are


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: each row is a name, wrapped if it is long, and figures.

    The first row is the head, whose words are below each other in a table that would be too wide.

    >>> text_table([("aggregator", "epsilon"), ("NoisyVotes", "2.0")])
    ['aggregator  epsilon', 'NoisyVotes      2.0']
    """
    widths = _widths(rows)
    if _LEAST + sum(widths) > _WIDTH:
        (title, *heads), *body = rows
        words = [re.findall("[^_]+_?", head) for head in heads]
        height = max(map(len, words))
        stacked = zip(*([""] * (height - len(each)) + each for each in words), strict=True)
        above = [("", *line) for line in stacked]
        rows = [*above[:-1], (title, *above[-1][1:]), *body]
        widths = _widths(rows)
    names = [
        wrap(name, max(_LEAST, _WIDTH - sum(widths)), subsequent_indent="    ") or [""]
        for name, *_ in rows
    ]
    width = max(len(line) for name in names for line in name)
    lines = []
    for (name, *more), (_, *figures) in zip(names, rows, strict=True):
        cells = (f"{figure:>{space}}" for figure, space in zip(figures, widths, strict=True))
        lines += [f"{name:<{width}}{''.join(cells)}".rstrip(), *more]
    return lines


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) + 2 for column in list(zip(*rows, strict=True))[1:]]


def write_csv(path: Path, notice: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows with some or all fields of the first row, below a comment ``notice``."""
    first, *others = rows
    with atomic_write(path, "w") as file:
        file.write(f"# {notice}\n")
        writer = csv.DictWriter(file, fieldnames=list(first))
        writer.writeheader()
        writer.writerows([first, *others])


def rendered(template: Path, **words: Any) -> str:
    """Return the text of a template of Jinja.

    Raises:
        LookupError: if the template names what is not among the ``words``, or not in one of them.
    """
    from jinja2 import UndefinedError

    try:
        return _environment(template.parent).get_template(template.name).render(words)
    except UndefinedError as error:
        raise LookupError(str(error)) from None


@cache
def _environment(folder: Path) -> Any:
    """Return the environment of a folder, which compiles each template once: that takes 0.1 s."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
