"""The encoding of settings as plain data, and back, for files, runs, recipes and statements.

An object becomes a ``class_path`` with its ``init_args``. A class has one path, the shortest,
however a user wrote it; an enum goes by its name; every default is filled in. Settings are the same
if their plain forms are equal.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache, lru_cache, partial
from importlib import import_module
from inspect import Parameter, isfunction, signature
from itertools import accumulate
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, get_args, get_type_hints

import numpy as np
import yaml
from jsonargparse import (
    SUPPRESS,
    ArgumentError,
    ArgumentParser,
    Namespace,
    get_loader,
    set_loader,
    set_parsing_settings,
)
from jsonargparse._common import parser_context
from jsonargparse._typehints import (
    ActionTypeHint,
    function_returns_subclass,
    get_subclass_types,
)
from jsonargparse._util import import_object, resolved_import_paths

from pate._core.files.reading import require_plain_yaml
from pate._core.package import tell_public_paths
from pate._core.validation import expecting, require

Settings = TypeVar("Settings")
Made_co = TypeVar("Made_co", covariant=True)


@cache
def know_public_classes() -> None:
    """Import the classes that settings may name without a package, where their zone is there.

    No setting may name what runs commands or reads pickles: jsonargparse has a list, which it
    enforces once it is asked to.
    """
    set_parsing_settings(import_path_denylist=[])
    for package in ("mechanisms", "aggregators", "data"):
        face = import_module(f"pate.{package}")
        for name in face.__all__:
            with suppress(ImportError):  # of a zone, or a package that it needs, that is not there
                getattr(face, name)


_load_value = get_loader("yaml")


def _load_plain(text: str) -> Any:
    require_plain_yaml(text)
    return _load_value(text)


# files and values of options that jsonargparse reads have the bounds of all others
set_loader("yaml", _load_plain, exceptions=(yaml.YAMLError, ValueError))


class RecordsInitArgs:
    """A base class that records the arguments of its subclasses' constructors for `to_plain`."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Make an object with a record of its arguments."""
        # `__init__` may store its arguments under any name, or not at all
        described = super().__new__(cls)
        described.__dict__["_made_with"] = (args, kwargs)
        return described


class Completable:
    """Dataclasses whose settings may be left out of a file: they are read as a `Partial`."""


@dataclass(frozen=True, init=False)
class Partial(Generic[Made_co]):
    """A class with some of its settings; a target finds the others.

    >>> Partial(NoisyVotes, soft=False).missing
    ('sigma_votes',)

    Args:
        cls: the class, such as `pate.aggregators.StableTopK`.
        settings: settings of the class by name. They are checked once all of them are there.

    Raises:
        ValueError: on a setting that the class does not have.
    """

    cls: type[Made_co]
    settings: Mapping[str, Any]

    def __init__(self, cls: type[Made_co], /, **settings: Any) -> None:
        unknown = sorted(settings.keys() - signature(cls).parameters.keys())
        require(not unknown, f"settings of {cls.__name__}", settings=unknown)
        object.__setattr__(self, "cls", cls)
        object.__setattr__(self, "settings", settings)

    def setting(self, name: str) -> Any:
        """Return a setting, or the default of the class. None if there is neither."""
        return self.settings.get(name, getattr(self.cls, name, None))

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of settings without a default or value, such as ``answers.k`` of a part."""
        own = [
            field.name
            for field in fields(self.cls)  # type: ignore[arg-type]
            if field.default is MISSING is field.default_factory and field.name not in self.settings
        ]
        within = [
            f"{name}.{inner}"
            for name, value in self.settings.items()
            for part in parts(value)
            for inner in part.missing
        ]
        return (*own, *within)

    def complete(self, **settings: Any) -> "Made_co | Partial[Made_co]":
        """Return the object with ``settings`` too, or a `Partial` if it still lacks something."""
        partial = Partial(self.cls, **{**self.settings, **settings})
        return partial if partial.missing else self.cls(**partial.settings)


def require_made(name: str, value: object, way_out: str = "") -> None:
    """Raise ``ValueError`` if a setting, or a part of it, is a `Partial`.

    The error ends with ``way_out``, which names the option that completes it.
    """
    for part in parts(value):
        missing = ", ".join(f"`{name}.{lacking}`" for lacking in part.missing)
        raise ValueError(f"Expected {missing} of {part.cls.__name__}{way_out}")


_LABELS = {"num_labels", "num_classes"}
_NAMED = {"shape", "input_shape", *_LABELS}


def names_of_facts(make: Any) -> list[str]:
    """Return the names by which a maker of networks takes a shape and a number of labels.

    None of them if it takes both by position, in this order.
    """
    names = [*signature(make).parameters]
    named = [name for name in names if name in _NAMED]
    by_name = not _LABELS.isdisjoint(named) and (names[0] in named or "num_classes" in named)
    return named if by_name else []


def made_by(make: Any) -> Any:
    """Return the class of a configuration, or what is given if it is of none."""
    # jsonargparse turns a class path into a partial of its own function, with the class last
    if isinstance(make, partial) and make.func.__module__.startswith("jsonargparse."):
        return make.args[-1]
    return make


def parts(value: Any, kind: Any = Partial) -> list[Any]:
    """Return the objects of a kind in the value of a setting, which may be a list."""
    return [
        part
        for part in (value if isinstance(value, list | tuple) else [value])
        if isinstance(part, kind)
    ]


def _make(cls: type[Completable], **settings: Any) -> Any:
    """Return an object of a class, or a `Partial` if settings are left out or null."""
    required = Partial(cls).missing
    return Partial(cls).complete(
        **{
            name: each
            for name, each in settings.items()
            if each is not None or name not in required
        }
    )


class SettingsParser(ArgumentParser):
    """A parser that refuses unknown settings, also empty ones.

    A `Completable` may lack settings.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        know_public_classes()
        self._function: Any = None
        super().__init__(*args, **options)

    def add_class_arguments(self, theclass: Any, *args: Any, **options: Any) -> list[str]:
        """Add the arguments of a class, but for those that its maker will give it."""
        if {2} & (skip := set(options.get("skip") or ())) and (names := names_of_facts(theclass)):
            options["skip"] = skip - {2} | {*names}  # by name, not the first two
        added: list[str] = super().add_class_arguments(theclass, *args, **options)
        if isinstance(theclass, type) and issubclass(theclass, Completable):
            for action in self._actions:
                action.required = False
        return added

    def add_function_arguments(self, function: Any, *args: Any, **options: Any) -> list[str]:
        """Add the arguments of a function, but for one that a maker of networks is given."""
        self._function = function
        options["skip"] = {*(options.get("skip") or ()), "num_classes"}
        added: list[str] = super().add_function_arguments(function, *args, **options)
        return added

    def instantiate(self, namespace: Namespace, *args: Any, **options: Any) -> Namespace:
        """Return what the parsed settings describe; of a function with settings, a partial."""
        require_classes(self, namespace)
        namespace = namespace.clone()
        for action in self._actions:
            if not ActionTypeHint.is_callable_typehint(action):  # type: ignore[no-untyped-call]
                continue
            for named in _named_in(namespace.get(action.dest)):
                function = import_object(named["class_path"])
                if not isinstance(function, type):  # jsonargparse would call it
                    given = named.get("init_args", Namespace())  # type: ignore[no-untyped-call]
                    inner = vars(_parser_within(self, function).instantiate(given))
                    left = {
                        n for n, p in signature(function).parameters.items() if p.default is p.empty
                    }
                    settings = {n: v for n, v in inner.items() if v is not None or n not in left}
                    namespace[action.dest] = partial(function, **settings)
        options["instantiators"] = [(_make, Completable, True)]
        return super().instantiate(namespace, *args, **options)

    def parse_object(self, content: Any, *args: Any, **settings: Any) -> Namespace:
        """Return the parsed settings, which may be the arguments of another setting's class."""
        if self._function is not None and getattr(self, "_inner_parser", False):
            self._accept_some(content)
        return super().parse_object(content, *args, **settings)

    def _accept_some(self, content: Any) -> None:
        """Require no argument of a function, and accept others if its signature does."""
        for action in self._actions:
            action.required = False
        kinds = {argument.kind for argument in signature(self._function).parameters.values()}
        if Parameter.VAR_KEYWORD in kinds:
            for name in {*vars(content)} - {action.dest for action in self._actions}:
                self.add_argument(f"--{name}", type=Any, default=SUPPRESS)

    def plain(self, parsed: Namespace) -> dict[str, Any]:
        """Return checked settings as plain data with every default filled in."""
        return dict(
            json.loads(self.dump(parsed, format="json", skip_unset=False, skip_validation=True))
        )

    def _apply_actions(
        self, cfg: Any, parent_key: str = "", *rest: Any, **options: Any
    ) -> Namespace:
        """Return the checked settings of a file, an object or a class.

        jsonargparse later merges the values of settings, which would drop an unknown setting
        without a value.
        """
        applied: Namespace = super()._apply_actions(cfg, parent_key, *rest, **options)
        inside = f"{parent_key}." if parent_key else ""
        for name, value in applied.items(branches=True):
            key = inside + name
            if isinstance(value, Namespace) and not vars(value) and not self._accepts(key):
                raise TypeError(f"Option '{key}' is not accepted")
        return applied

    def _accepts(self, key: str) -> bool:
        """Return whether ``key`` names a setting, a group of settings, or a part of a value."""
        subcommands = () if self._subcommands_action is None else self._subcommands_action.choices
        known = [*(action.dest for action in self._actions), *subcommands]
        return any(
            key == name or name.startswith(f"{key}.") or key.startswith(f"{name}.")
            for name in known
        )


def require_classes(parser: ArgumentParser, parsed: Namespace) -> None:
    """Raise ``ValueError`` if a function that is no factory of its setting stands for an object.

    jsonargparse calls any function that a ``class_path`` with ``init_args`` names, and a recipe may
    come from others. Here a function must be annotated to return what the setting takes, also
    within the arguments of a class. Nothing is called before.
    """
    for action in parser._actions:
        if isinstance(action, ActionTypeHint) and _may_hold_objects(action._typehint):
            for named in _named_in(parsed.get(action.dest)):
                path = named["class_path"]
                made = import_object(path)
                kinds = get_subclass_types(  # type: ignore[no-untyped-call]
                    action._typehint, also_lists=True, also_containers=True, callable_return=True
                )
                require(
                    isinstance(made, type)
                    or (kinds is not None and function_returns_subclass(made, kinds, None)),
                    f"a class for `{action.dest}`, or a function annotated to return one: "
                    + " or ".join(kind.__name__ for kind in kinds or ()),
                    class_path=path,
                )
                if "init_args" in named:
                    require_classes(_parser_within(parser, made), named["init_args"])


def _parser_within(parser: ArgumentParser, made: Any) -> ArgumentParser:
    """Return the parser of the arguments of a class or function that a setting names."""
    with parser_context(parent_parser=parser):
        return ActionTypeHint.get_class_parser(  # type: ignore[no-untyped-call]
            made, {"fail_untyped": False}
        )


def _may_hold_objects(hint: Any) -> bool:
    """Return whether a setting of this type may hold an object: texts hold none."""
    parts = get_args(hint)
    return any(map(_may_hold_objects, parts)) if parts else hint not in (str, type(None))


def _named_in(value: Any) -> Iterator[Any]:
    """Yield the parts of a setting that name a class or a function with its arguments."""
    if isinstance(value, Namespace | Mapping) and "class_path" in value:
        yield value
    elif isinstance(value, list | tuple | Mapping | Namespace):
        inner = value if isinstance(value, list | tuple) else list(dict(value).values())
        for each in inner:
            yield from _named_in(each)


def encode(kind: Any, value: Any, *, absolute_paths: bool = False) -> Any:
    """Return ``value``, of the type ``kind``, as plain data with every default filled in.

    Args:
        kind: the declared type, such as `Aggregator`.
        value: the object.
        absolute_paths: whether paths are made absolute, so that they mean the same in any working
            directory. Paths that begin with an environment variable or ``~`` and are absolute once
            expanded stay as they are, so that files may move.

    Raises:
        ValueError: in one line, if a file cannot hold it, or it is not of that type.
    """
    return _encoded({"value": kind}, {"value": value}, absolute_paths=absolute_paths)["value"]


def encode_fields(settings: Any) -> dict[str, Any]:
    """Return the fields of a dataclass such as `TeacherPlan` as plain data, as for ``--config``.

    Raises:
        ValueError: in one line, if a file cannot hold a setting.
    """
    return _encoded(
        get_type_hints(type(settings)),
        {field.name: getattr(settings, field.name) for field in fields(settings)},
    )


def decode(kind: Any, content: Any) -> Any:
    """Return the object of type ``kind`` that `encode` turned into ``content``.

    Raises:
        ValueError: in one line, if a named class cannot be imported, or a value has a wrong type.
    """
    return _decoded({"value": kind}, {"value": content})["value"]


def decode_fields(kind: type[Settings], content: Mapping[str, Any]) -> Settings:
    """Return the dataclass ``kind`` from the result of `encode_fields`, ignoring other settings.

    Raises:
        ValueError: in one line, if a setting is missing, a named class cannot be imported, or a
            value has a wrong type.
    """
    with expecting(f"all settings of {kind.__name__}", KeyError, got="one missing"):
        values = {each.name: content[each.name] for each in fields(kind)}  # type: ignore[arg-type]
    return kind(**_decoded(get_type_hints(kind), values))


def canonical(content: Any) -> Any:
    """Return plain data, as a user may have written them, with every class by its shortest path."""
    if isinstance(content, Mapping):
        return {
            name: _canonical_path(value) if name == "class_path" else canonical(value)
            for name, value in content.items()
        }
    return [canonical(value) for value in content] if isinstance(content, list) else content


def texts_in(content: Any) -> Iterator[str]:
    """Yield all texts in plain data, such as the paths of the classes that it names.

    >>> [*texts_in({"class_path": "mine.Net", "init_args": {"widths": [8], "inner": "mine.f"}})]
    ['mine.Net', 'mine.f']
    """
    if isinstance(content, str):
        yield content
    elif isinstance(content, Mapping):
        yield from texts_in([*content.values()])
    elif isinstance(content, list | tuple):
        for value in content:
            yield from texts_in(value)


def to_plain(value: Any) -> Any:
    """Return a value as plain data, without defaults that it does not hold itself.

    A class or function becomes its path. A `functools.partial` with named arguments, a frozen
    dataclass and an instance of `RecordsInitArgs` become a ``class_path`` with ``init_args``; so
    does a module of torch, such as a transform of pictures, by attributes named like its arguments.

    Raises:
        ValueError: in one line, if plain data cannot describe the value.
    """
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, np.generic):  # some of these are also floats or texts
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): to_plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, type):
        return {"class_path": import_path(value)}
    if isfunction(value):
        return import_path(value)
    if isinstance(value, partial):
        return _plain_partial(value)
    if isinstance(value, RecordsInitArgs):
        return _plain_object(type(value), _arguments(value))
    if isinstance(value, Partial):
        return _plain_object(value.cls, value.settings)
    if is_dataclass(value):
        return _plain_object(
            type(value),
            {part.name: getattr(value, part.name) for part in fields(value) if part.init},
        )
    if hasattr(value, "state_dict"):
        return _plain_object(type(value), _attributes(value))
    raise ValueError(
        "Expected settings that a file can hold (numbers, texts, paths), got a"
        f" {type(value).__name__}"
    )


def import_path(named: Any) -> str:
    """Return the shortest import path of a class or function, such as ``pate.data.CelebA``.

    Raises:
        ValueError: if there is none, as for a class defined within a function.
    """
    module, name = (
        getattr(named, "__module__", None),
        getattr(named, "__qualname__", type(named).__name__),
    )
    words = str(module).split(".")
    public = [word for word in words if not word.startswith("_")]
    # public packages export the names of private ones below them
    for place in dict.fromkeys(
        place for part in (public, words) for place in accumulate(part, "{}.{}".format)
    ):
        try:
            exported = getattr(import_module(place), name, None)
        except ImportError:
            continue
        if exported is named:
            return f"{place}.{name}"
    raise ValueError(
        "Expected a class or a function that can be imported by its name, or a functools.partial"
        f" of one, got {name} of {module}"
    )


def _name_publicly(value: Any, _: str) -> None:
    """Let jsonargparse call a class by its public path, whose own module is private."""
    if isinstance(value, type):
        resolved_import_paths.add(value, import_path(value))


tell_public_paths(_name_publicly)


def _encoded(
    kinds: dict[str, Any], values: dict[str, Any], *, absolute_paths: bool = False
) -> dict[str, Any]:
    content = json.dumps(_each_plain(values, " ({})"))
    place = (os.getcwd(), *os.environ.items()) if absolute_paths else None
    dumped = json.loads(_dumped(tuple((name, kinds[name]) for name in values), content, place))
    return {name: dumped[name] for name in values}


@lru_cache(maxsize=256)  # a stage describes the same settings several times
def _dumped(kinds: tuple[tuple[str, Any], ...], content: str, place: tuple[Any, ...] | None) -> str:
    """Return checked settings in JSON. If there is a ``place``, with absolute paths."""
    parser = _parser(kinds)
    with expecting("settings that a configuration can hold", ArgumentError):
        parsed = parser.parse_object(json.loads(content))
    if place is not None:
        _make_absolute(parsed)
    return json.dumps(parser.plain(parsed))


def _decoded(kinds: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    parser = _parser(tuple((name, kinds[name]) for name in content))
    with expecting("settings that can be used here", ArgumentError):
        decoded = parser.instantiate(parser.parse_object(content))
    return {name: decoded[name] for name in content}


@cache
def _parser(kinds: tuple[tuple[str, Any], ...]) -> SettingsParser:
    """Return a parser without defaults, which jsonargparse would mix into another class."""
    parser = SettingsParser(exit_on_error=False)
    for name, kind in kinds:
        parser.add_argument(f"--{name}", type=kind)
    return parser


def _make_absolute(part: Any) -> Any:
    """Return a part of parsed settings, whose paths are made absolute."""
    if isinstance(part, Namespace):
        for name, value in vars(part).items():
            part[name] = _make_absolute(value)
    elif isinstance(part, list):
        return [*map(_make_absolute, part)]
    return _absolute(part) if isinstance(part, Path) else part


def _absolute(path: Path) -> Path:
    filled = os.path.expandvars(path)
    unknown = "$" in filled  # opening the data reports it
    return path if unknown or Path(filled).expanduser().is_absolute() else Path(filled).absolute()


def named_class(path: str) -> Any:
    """Return what a dotted path names, or None if it cannot be imported here."""
    words = path.split(".")
    for number in range(len(words) - 1, 0, -1):
        try:
            member: Any = import_module(".".join(words[:number]))
        except (ImportError, ValueError):
            continue
        for word in words[number:]:
            member = getattr(member, word, None)
        return member
    return None


def _canonical_path(path: Any) -> Any:
    try:
        return import_path(named_class(str(path)))
    except ValueError:
        return path  # making the object reports it


def _plain_partial(value: partial[Any]) -> Any:
    made = made_by(value)
    factory, positional = (value.func, value.args) if made is value else (made, ())
    inner = to_plain(factory)
    content = {"class_path": inner} if isinstance(inner, str) else inner
    if positional:
        raise ValueError(
            f"Expected arguments of {content['class_path']} by name, got {positional!r}"
        )
    return content | {"init_args": content.get("init_args", {}) | to_plain(value.keywords)}


def _plain_object(cls: type, arguments: Mapping[str, Any]) -> Any:
    return {
        "class_path": import_path(cls),
        "init_args": _each_plain(arguments, f" for {{}} of {cls.__name__}"),
    }


def _each_plain(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return values as plain data; an error ends with ``where``, in which ``{}`` is the name."""
    plain = {}
    for name, value in values.items():
        try:
            plain[name] = to_plain(value)
        except ValueError as error:
            raise ValueError(f"{error}{where.format(name)}") from None
    return plain


def _attributes(value: Any) -> dict[str, Any]:
    """Return the arguments that make a module again: its attributes of the same names."""
    kinds = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    names = [
        name
        for name, argument in signature(type(value)).parameters.items()
        if argument.kind not in kinds
    ]
    missing = [name for name in names if not hasattr(value, name)]
    require(
        not missing,
        f"{type(value).__name__} with attributes named as its arguments",
        missing=missing,
    )
    return {name: _attribute(getattr(value, name)) for name in names}


def _attribute(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value  # torchvision also takes its modes as texts
    # modules of torch wrap lists of modules
    return list(value) if type(value).__name__ in ("ModuleList", "Sequential") else value


def _arguments(value: RecordsInitArgs) -> dict[str, Any]:
    """Return the constructor arguments of an object by name, including ``**options``."""
    args, kwargs = value.__dict__["_made_with"]
    bound = signature(type(value)).bind(*args, **kwargs)
    arguments: dict[str, Any] = {}
    for name, argument in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is Parameter.VAR_POSITIONAL:
            raise ValueError(
                f"Expected arguments of {type(value).__name__} by name, got {argument!r}"
            )
        arguments |= argument if kind is Parameter.VAR_KEYWORD else {name: argument}
    return arguments
