"""Classes as their source describes them, so that a page of help needs no import of torch."""

import ast
import builtins
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import MISSING, field, make_dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pate._core.lazy import naming_extra

_LIGHT = {*sys.stdlib_module_names, "pate._core", "pate._labeling"}


def outline(place: str) -> type:
    """Return a dataclass with the parameters, types and docstring of a class, or of a method.

    The module is read and not imported. A class among the types is one of the same name, without
    content, unless it is the standard library's or of this zone.

    Args:
        place: the class or method, as ``module:Class`` or ``module:Class.method``.

    Raises:
        MissingExtraError: if the package of an extra, or a folder, is not there.
    """
    module, _, name = place.partition(":")
    names = _names(module)
    node = names.definition(name)
    function = node if isinstance(node, ast.FunctionDef) else _constructor(node)
    fields = [
        (each, names.type_of(annotation), field(default=_default(value)))
        for each, annotation, value in _parameters(function or node)
    ]
    described = ast.get_docstring(node) or ast.get_docstring(function or node)
    return make_dataclass(node.name, fields, kw_only=True, namespace={"__doc__": described})


def _constructor(node: ast.ClassDef) -> ast.FunctionDef | None:
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return each
    return None


def _parameters(
    node: ast.FunctionDef | ast.ClassDef,
) -> Iterator[tuple[str, ast.expr | None, ast.expr | None]]:
    """Yield the name, type and default of each parameter of a method, or field of a dataclass."""
    if isinstance(node, ast.ClassDef):
        for each in node.body:
            if isinstance(each, ast.AnnAssign):
                yield ast.unparse(each.target), each.annotation, each.value
        return
    positional = node.args.args[1:]
    without = [None] * (len(positional) - len(node.args.defaults))
    defaults = [*without, *node.args.defaults, *node.args.kw_defaults]
    for parameter, default in zip([*positional, *node.args.kwonlyargs], defaults, strict=True):
        yield parameter.arg, parameter.annotation, default


def _default(value: ast.expr | None) -> Any:
    """Return the value of a default, or its expression if it is no literal."""
    if value is None:
        return MISSING
    try:
        return ast.literal_eval(value)
    except ValueError:
        return _Expression(ast.unparse(value))


class _Expression:
    """A default that is not evaluated: a text would be taken for a value, which is imported."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


class _Named(ABC):
    """A class known by its name alone: it has no objects, and no subclasses are listed."""

    @abstractmethod
    def __call__(self) -> Any:
        """Return nothing that is known."""


class _Names(dict[str, Any]):
    """The types that names stand for in a module, which is read and not imported."""

    def __init__(self, module: str) -> None:
        super().__init__()
        self._module = module
        self._tree = ast.parse(_file(module).read_bytes())

    def definition(self, name: str) -> Any:
        """Return the definition of a class or method."""
        node: Any = self._tree
        for word in name.split("."):
            node = next(each for each in node.body if getattr(each, "name", None) == word)
        return node

    def type_of(self, annotation: ast.expr | None) -> Any:
        """Return the type that an annotation describes."""
        if annotation is None:
            return Any
        expression = ast.Expression(_LastWords().visit(annotation))
        return eval(compile(ast.fix_missing_locations(expression), self._module, "eval"), {}, self)

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            raise KeyError(name)
        self[name] = self._found(name)
        return self[name]

    def _found(self, name: str) -> Any:
        for node in self._tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=assigned)]) if assigned == name:
                    return self.type_of(node.value)
                case ast.ImportFrom(module=str(module), level=0):
                    for alias in node.names:
                        if name == (alias.asname or alias.name):
                            return _member(module, alias.name)
        return _class(name)


_names = cache(_Names)


def _file(module: str) -> Path:
    package, *words = module.split(".")
    with suppress(ModuleNotFoundError):
        spec = find_spec(package)
        for place in (spec and spec.submodule_search_locations) or ():
            path = Path(place, *words)
            for file in (path / "__init__.py", path.with_suffix(".py")):
                if file.is_file():
                    return file
    raise naming_extra(ModuleNotFoundError(f"No module named {module!r}", name=module))


def _member(module: str, name: str) -> Any:
    """Return the type that ``name`` stands for in a module, without an import of what is heavy."""
    package, *words = module.split(".")
    if {package, ".".join([package, *words[:1]])} & _LIGHT:
        return getattr(import_module(module), name)
    # a private name is another name of a type, such as a choice of texts
    return _names(module)[name] if name.startswith("_") else _class(name)


def _class(name: str) -> type:
    # jsonargparse would import a module with a dot in its name
    return type(name, (_Named,), {"__module__": __package__.partition(".")[0]})


class _LastWords(ast.NodeTransformer):
    """Replaces ``nn.Module`` by ``Module``."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.Name:
        return ast.Name(node.attr, ast.Load())
