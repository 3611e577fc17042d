"""Imports of a user's own modules in the working directory, where a class path names them.

The working directory is not in Python's path while a command runs: a ``json.py`` that a stranger
left there would replace Python's. A finder imports its modules for two kinds of importers only.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

_LOOK_UPS = {
    "jsonargparse._util",  # of its `import_object`
    "pate._core.own_code",
    "pate._core.settings",
}
"""Modules that import late only names from a class path."""

SOURCES = "pate_records_"
"""Prefix of the module names of a `PythonFile`."""

_MACHINERY = {"importlib", "_frozen_importlib", "_frozen_importlib_external"}


class OwnCode(MetaPathFinder):
    """Finds modules of a folder that nothing else finds: named by a class path, or imported by one.

    It does not answer imports of the program or of libraries, such as a package that is not
    installed. Sent to a worker, it imports the same modules there, so that objects that follow it
    can be unpickled.

    Args:
        folder: the folder.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._modules: list[str] = []

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the specification of a module for an importer; None if it is not found here."""
        if path is not None or not self._serves(_importer()):
            return None
        spec = PathFinder.find_spec(fullname, [self._folder], target)
        if spec is not None and fullname not in self._modules:
            self._modules.append(fullname)
        return spec

    def _serves(self, importer: str) -> bool:
        return (
            importer in _LOOK_UPS
            or importer.partition(".")[0] in self._modules
            or importer.startswith(SOURCES)
        )

    def __reduce__(self) -> "tuple[Callable[..., OwnCode], tuple[Any, ...]]":
        # modules that could not be imported here are not sent
        return _received, (
            self._folder,
            tuple(name for name in self._modules if name in sys.modules),
        )


@contextmanager
def own_code(*, trusted: bool = True) -> Iterator[None]:
    """Let class paths name modules of the working directory, unless an installed one has that name.

    Args:
        trusted: whether the user wrote, or trusts, the settings that name them; nothing is found
            otherwise.
    """
    if not trusted:
        yield
        return
    finder = OwnCode(os.getcwd())
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def finder_in_use() -> OwnCode | None:
    """Return the finder of the running command; None in a program or an untrusted command."""
    return next((finder for finder in sys.meta_path if isinstance(finder, OwnCode)), None)


def _received(folder: str, modules: tuple[str, ...]) -> OwnCode:
    """Return a finder that was sent here, and put it to use."""
    finder = finder_in_use()
    if finder is None:
        finder = OwnCode(folder)
        sys.meta_path.append(finder)
    for name in modules:
        import_module(name)
    return finder


def _importer() -> str:
    """Return the name of the module that made the import."""
    frame = sys._getframe(2)
    while frame.f_back is not None and _name(frame.f_globals).partition(".")[0] in _MACHINERY:
        frame = frame.f_back
    return _name(frame.f_globals)


def _name(names: dict[str, Any]) -> str:
    return str(names.get("__name__", ""))
