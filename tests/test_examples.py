"""The examples in docstrings print what they say."""

import doctest
import importlib
from pathlib import Path

import pytest

import pate

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
ROOT = Path(pate.__file__).parent
MODULES = [
    ".".join(("pate", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(ROOT.rglob("*.py"))
    if ">>> " in path.read_text()
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module_print_what_they_say(name: str) -> None:
    module = importlib.import_module(name)
    results = doctest.testmod(module, optionflags=OPTIONS)
    assert results.attempted, "Expected examples in docstrings, where help() shows them"
    assert not results.failed


def test_a_false_example_is_found() -> None:
    """The negative control: this docstring's example would be found false."""
    example = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "false", None, None)
    assert doctest.DocTestRunner().run(example, out=lambda text: None).failed == 1
