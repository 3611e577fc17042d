"""Code of a user's own that lies in the working directory: where a class path names it, it is found there.

The working directory is nowhere in the path of Python while a command runs: a ``json.py`` that a
stranger left there would run for that of Python. Its modules are found by a finder that answers two
kinds of imports alone.
"""

from __future__ import annotations

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
    "pate._network_settings",
    "pate._own_code",
    "pate._settings",
    "pate.models._factory",
}
"""Modules that import nothing late but what a class path names."""

SOURCES = "pate_records_"
"""Begins the name of a module that a `PythonFile` is."""

_MACHINERY = {"importlib", "_frozen_importlib", "_frozen_importlib_external"}


class OwnCode(MetaPathFinder):
    """Finds modules of a folder that nothing else finds: those that a class path names, and those that they import.

    What the program or a library tries to import, such as a package that is not installed, is not
    among them. Sent to a worker, it imports there what it found here, so that objects behind it can
    be unpickled.

    Args:
        folder: the folder.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._modules: list[str] = []

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the specification of a module, as importers ask for it; None if it is not to be found here."""
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

    def __reduce__(self) -> tuple[Callable[..., OwnCode], tuple[Any, ...]]:
        # one that could not be imported here is no part of what is sent
        return _received, (
            self._folder,
            tuple(name for name in self._modules if name in sys.modules),
        )


@contextmanager
def own_code(*, trusted: bool = True) -> Iterator[None]:
    """Let class paths name modules of the working directory, where nothing that is installed has the same name.

    Args:
        trusted: whether who runs the command wrote, or trusts, what names them; nothing is found
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
    """Return the finder of the command that runs; None in a program, or if the command finds nothing here."""
    return next((finder for finder in sys.meta_path if isinstance(finder, OwnCode)), None)


def _received(folder: str, modules: tuple[str, ...]) -> OwnCode:
    """Return a finder that was sent here, which is in use from now on."""
    finder = finder_in_use()
    if finder is None:
        finder = OwnCode(folder)
        sys.meta_path.append(finder)
    for name in modules:
        import_module(name)
    return finder


def _importer() -> str:
    """Return the name of the module that imports what a finder is asked for."""
    frame = sys._getframe(2)
    while frame.f_back is not None and _name(frame.f_globals).partition(".")[0] in _MACHINERY:
        frame = frame.f_back
    return _name(frame.f_globals)


def _name(names: dict[str, Any]) -> str:
    return str(names.get("__name__", ""))
