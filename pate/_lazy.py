"""Public names that are imported on their first use (PEP 562)."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_names(package: str, file: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a package whose names are imported on their first use.

    The names are those that the package imports for type checkers, under ``if TYPE_CHECKING``: there is no second list.
    What it imports from itself are its subpackages, which ``__all__`` leaves out.

    Args:
        package: its ``__name__``.
        file: its ``__file__``.
    """
    (block,) = (node for node in ast.parse(Path(file).read_text()).body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: str(node.module) for node in imports for alias in node.names}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        inside = homes[name] == package
        value = import_module(f"{package}.{name}") if inside else getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return (
        [name for name, home in homes.items() if home != package],
        get,
        lambda: sorted({*vars(sys.modules[package]), *homes}),
    )
