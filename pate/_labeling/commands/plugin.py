"""The command `pate plugin new`, which writes a package for pate that passes its own tests."""

import re
from functools import partial
from pathlib import Path

from pate._core.files.writing import write_text
from pate._core.validation import require
from pate._labeling.aggregators.base import registered
from pate._labeling.commands.parsing import run_command

_TEMPLATES = Path(__file__).parent / "templates" / "plugin"
_NAME, _MODULE, _TAG = "MyVotes", "my_votes", "mine"
"""What the templates have in place of the names of a plug-in."""


def new(name: str, *, output: Path | None = None) -> None:
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
    for template in sorted(_TEMPLATES.iterdir()):
        text = template.read_text()
        for word, mine in words.items():
            text = text.replace(word, mine)
        write_text(folder / template.name.removesuffix(".txt").replace(_MODULE, module), text)
    print(f"{folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
    print(f"Test it: python -m pytest {folder}\nThen:    pip install --editable {folder}")
    votes = '"[{num_labels: 5, num_teachers: 300}]"'
    print(f"         pate study --mechanisms [{name}] --k [1] --epsilons [1] --simulate {votes}")


main = partial(run_command, "plugin new", new)
