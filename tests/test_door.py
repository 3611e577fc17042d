"""What `import pate` offers."""

import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

import pate

PACKAGES = (
    "accounting",
    "aggregators",
    "data",
    "mechanisms",
    "student",
    "teachers",
    "testing",
    "models",
)


@pytest.mark.slow
def test_packages_are_imported_when_they_are_used_and_torch_by_networks() -> None:
    """Where there is no torch, all works but what needs it."""
    script = (
        "import sys, pate\n"
        "assert not {'numpy', 'scipy', 'torch', 'pate.accounting'} & set(sys.modules)\n"
        f"assert not [name for name in {PACKAGES} if f'pate.{{name}}' in sys.modules]\n"
        "sys.modules['torch'] = None\n"
        f"for name in {PACKAGES[:-1]}:\n"
        "    assert getattr(pate, name) is sys.modules[f'pate.{name}'] and name in dir(pate), name\n"
        "assert pate.Rounds is pate.aggregators.Rounds\n"
        "assert pate.Execution(workers=2).workers == 2\n"
        "assert pate.TeacherPlan.__name__ == 'TeacherPlan'\n"
        "try:\n"
        "    pate.models.MLP\n"
        "except ImportError as error:\n"
        "    assert error.name.partition('.')[0] == 'torch', error\n"
        "else:\n"
        "    raise AssertionError('a network without torch')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert pate.models is sys.modules["pate.models"] and "models" in dir(pate)


LAZY = (pate, pate.student, pate.teachers, pate.testing)


@pytest.mark.parametrize("package", LAZY, ids=lambda package: package.__name__)
def test_a_lazy_name_is_that_of_its_module(package: ModuleType) -> None:
    for name in package.__all__:
        value = getattr(package, name)
        assert value is getattr(sys.modules[value.__module__], name)
        assert name in dir(package)
    assert not [name for name in dir(package) if name.startswith("_") or name.isupper()]


ROOMS = ("pate", *(f"pate.{name}" for name in PACKAGES))
MOST_CHARACTERS = 110


def signatures(room: str) -> Iterator[tuple[str, inspect.Signature]]:
    """Yield the signatures of all functions, classes and public methods of a room."""
    package = importlib.import_module(room)
    for name in getattr(package, "__all__", vars(package)):
        found = getattr(package, name)
        if (
            name.startswith("_")
            or not callable(found)
            or (isinstance(found, type) and issubclass(found, Exception))
            or not getattr(found, "__module__", "").startswith("pate")
        ):
            continue
        methods = vars(found).items() if inspect.isclass(found) else ()
        parts = [
            (f"{name}.{own}", each)
            for own, each in methods
            if inspect.isfunction(each) and own[0] != "_"
        ]
        for title, each in [(name, found), *parts]:
            yield f"{room}.{title}", inspect.signature(each)


def is_readable(parameter: inspect.Parameter) -> bool:
    text = str(parameter)
    return len(text) <= MOST_CHARACTERS and not any(
        word in text for word in ("Buffer", "Union[", "numpy.", "array(")
    )


@pytest.mark.parametrize("room", ROOMS)
def test_a_person_can_read_the_signatures(room: str) -> None:
    """Arrays go by the names of their types, as they are written, and not by what numpy makes of
    these."""
    found = list(signatures(room))
    assert len(found) >= 8
    long = [
        f"{name}({each})"
        for name, sign in found
        for each in sign.parameters.values()
        if not is_readable(each)
    ]
    assert long == []
