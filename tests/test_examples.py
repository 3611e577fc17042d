"""The examples in docstrings print what they say."""

import doctest
import importlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pate

ROOMS = (pate, pate.accounting, pate.aggregators, pate.data, pate.mechanisms, pate.testing)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
ROOT = Path(pate.__file__).parent
MODULES = [
    ".".join(("pate", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(ROOT.rglob("*.py"))
    if ">>> " in path.read_text()
]


@cache
def public_names() -> dict[str, Any]:
    """Return what examples need not import: the public names, and numpy."""
    names = {name: getattr(room, name) for room in ROOMS for name in dir(room) if name[0] != "_"}
    return names | {"np": np, "pate": pate}


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module_print_what_they_say(name: str) -> None:
    module = importlib.import_module(name)
    results = doctest.testmod(module, extraglobs=public_names(), optionflags=OPTIONS)
    assert results.attempted, "Expected examples in docstrings, where help() shows them"
    assert not results.failed


def test_a_false_example_is_found() -> None:
    """The negative control: this docstring's example would be found false."""
    example = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "false", None, None)
    assert doctest.DocTestRunner().run(example, out=lambda text: None).failed == 1
