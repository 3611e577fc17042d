"""The package by names: its version, public names, and what other packages and zones declare.

Importing it imports next to nothing: the command `pate` begins with it, and cannot answer Ctrl-C in
one line until it is loaded. With `python -m pate` it would also import from the working directory.
Public names are imported on their first use (PEP 562). A lower zone finds functions and classes of
a higher one by entry points of the group ``pate.parts``, and never imports them: lower zones work
without the higher ones, and training of networks alone imports torch.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.metadata import EntryPoint
    from typing import Any

__version__ = "0.5.0"

_public: "dict[str, Any]" = {}
"""What was imported from the public packages, by its public path."""
_told: "list[Callable[[Any, str], object]]" = []


def tell_public_paths(tell: "Callable[[Any, str], object]") -> None:
    """Call ``tell(value, path)`` for all that public packages have imported, and will import."""
    for path, value in [*_public.items()]:
        tell(value, path)
    _told.append(tell)


_EXTRAS = {
    **dict.fromkeys(("torch", "torchvision", "pytorch_lightning", "lightning_fabric"), "networks"),
    "autodp": "accounting",
}
"""The extra of `pate` that brings a package."""


class MissingExtraError(ModuleNotFoundError):
    """A package that an extra of `pate` brings, or a folder of `pate`, is missing."""


def naming_extra(error: ModuleNotFoundError, use: str = "") -> ModuleNotFoundError:
    """Return the error on what is missing: a package, with its extra, or a folder of `pate`."""
    missing = str(error.name).partition(".")[0]
    if missing == "pate":  # a zone whose folder was deleted
        return MissingExtraError(f"Expected the folder of {error.name}{use}", name=error.name)
    if missing not in _EXTRAS:
        return error
    return MissingExtraError(
        f"Expected the package {missing}{use}, got none: pip install 'pate[{_EXTRAS[missing]}]'",
        name=error.name,
    )


def lazy_names(package: str, file: str) -> "tuple[Callable[[str], Any], Callable[[], list[str]]]":
    """Return ``__getattr__`` and ``__dir__`` of a package that imports its names on first use.

    The package imports these names for type checkers, under ``if TYPE_CHECKING``: there is no
    second list. Names that it imports from itself are subpackages, which ``__all__`` leaves out.

    Args:
        package: its ``__name__``.
        file: its ``__file__``.
    """
    homes: dict[str, str] = {}

    def read() -> None:
        import ast

        with open(file) as source:
            (block,) = (node for node in ast.parse(source.read()).body if isinstance(node, ast.If))
        imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
        homes.update({alias.name: str(node.module) for node in imports for alias in node.names})

    def get(name: str) -> "Any":
        from importlib import import_module

        if not homes:
            read()
        if name == "__all__":
            return [name for name, home in homes.items() if home != package]
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = (
                import_module(f"{package}.{name}")
                if homes[name] == package
                else getattr(import_module(homes[name]), name)
            )
        except ModuleNotFoundError as error:
            raise naming_extra(error, f" for {package}.{name}") from None
        setattr(sys.modules[package], name, value)
        _public[f"{package}.{name}"] = value
        for tell in _told:
            tell(value, f"{package}.{name}")
        return value

    def names() -> list[str]:
        get("__all__")
        return sorted(homes)

    return get, names


_entry_points: "dict[tuple[str, ...], tuple[EntryPoint, ...]]" = {}


def declared(group: str) -> "tuple[EntryPoint, ...]":
    """Return the entry points of a group. Packages on a path are looked through once."""
    from importlib.metadata import entry_points

    key = (group, *sys.path)
    if key not in _entry_points:
        _entry_points[key] = tuple(entry_points(group=group))
    return _entry_points[key]


def part(name: str) -> "EntryPoint":
    """Return the entry point of the function or class ``name`` of a higher zone."""
    (entry,) = (entry for entry in declared("pate.parts") if entry.name == name)
    return entry


def find(name: str) -> "Any":
    """Import the function or class ``name`` of a higher zone."""
    try:
        return part(name).load()
    except ModuleNotFoundError as error:
        raise naming_extra(error) from None
