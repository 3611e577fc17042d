"""What `import pate` offers."""

import ast
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import pate


def test_the_door_is_light() -> None:
    script = "import sys, pate\nassert not {'numpy', 'scipy', 'torch', 'pate.accounting'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("name", pate.__all__)
def test_each_name_is_that_of_its_room(name: str) -> None:
    found = getattr(pate, name)
    assert found is getattr(sys.modules[found.__module__], name)
    assert name in dir(pate)


def test_types_are_told_of_the_same_names() -> None:
    tree = ast.parse(Path(pate.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    told = [alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(told) == sorted(pate.__all__)


def test_help_shows_them() -> None:
    text = pydoc.plain(pydoc.render_doc(pate))
    assert all(name in text for name in pate.__all__)


def test_other_names_are_no_attributes() -> None:
    with pytest.raises(AttributeError, match="module 'pate' has no attribute 'Cannonical'"):
        pate.Cannonical  # noqa: B018
