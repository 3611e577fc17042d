"""An aggregator without its noise: with a target epsilon its name is enough, or its name and some settings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from pate.accounting.calibration import Target
from pate.accounting.relation import NeighboringRelation
from pate.aggregators import Aggregator, Rounds, registered
from pate.commands.parsing import ALONE, Preset, run_folder
from pate.data.source import located
from pate.runs import Json, Run
from pate.settings import plain
from pate.stages.suggestion import required, suggested, takes_unit_noise
from pate.validation import expect
from pate.vote_store import finished_votes
from pate.votes import Panel
from pate.votes_file import panel_of, read_silos

_READ = ("target_epsilon", "delta", "num_queries", "num_teachers", "num_labels", "neighboring_relation", "aggregator")


def completed(args: Sequence[str], preset: Preset = ALONE) -> list[str]:
    """Return options, to be put before all others, that give an aggregator what it lacks to be scaled.

    Args:
        args: the options of `pate label`, or of `pate calibrate`, which say how many teachers and labels there are.
        preset: what they are given beside.

    Returns:
        ``--aggregator`` in one word with a unit of noise, or with what its class chooses for the target, that of
        `Rounds` if no class is named; nothing if all its noise is given, or if no class is known, which the parser says
        better.

    Raises:
        ValueError: if noise is missing and there is no target, if some noise is given but not all, or if the class
            needs settings that a target does not suggest.
    """
    given = _given([*preset.options(), *args])
    epsilon, asked = given.get("target_epsilon"), given.get("aggregator") or {}
    name = asked.get("class_path")
    if name is None:
        if epsilon is None:
            return []
        name, asked = Rounds.__name__, {"init_args": {}}
    cls = _kind(name)
    if cls is None:
        return []
    settings, noise = asked["init_args"], cls.noise_parameters
    missing = [each for each in noise if each not in settings]
    if not missing and (noise or set(required(cls)) <= set(settings) or epsilon is None):
        return []
    options = ", ".join(f"--aggregator.{each}" for each in missing)
    if epsilon is None:
        expect(False, f"the noise of {cls.__name__} ({options}), or --target_epsilon, which finds it", noise=None)
    expect(len(missing) == len(noise), f"all noise of {cls.__name__} or none of it", missing=options)
    relation = _relation(settings.get("neighboring_relation") or given.get("neighboring_relation"))
    if takes_unit_noise(cls, settings):  # whatever the votes are, which need not be read
        return _word(name, dict.fromkeys(noise, 1.0))
    panel, size = _facts(given, run_folder(args) or preset.run or Path())
    target = Target(
        epsilon=_number(given, "target_epsilon"),
        delta=_number(given, "delta"),
        num_queries=size if given.get("num_queries") is None else int(_number(given, "num_queries")),
        neighboring_relation=relation,
    )
    return _word(name, plain(suggested(cls, settings, target, panel)))


def _facts(given: Json, run: Path) -> tuple[Panel, int]:
    """Return the panel and the number of samples: as options say, or those of votes that were cast."""
    if given.keys() >= {"num_teachers", "num_labels", "num_queries"}:
        teachers, labels, queries = (int(_number(given, f"num_{name}")) for name in ("teachers", "labels", "queries"))
        return Panel(teachers, labels), queries
    votes = given.get("votes")
    if votes is not None:
        # those that are about to be imported; the parser says what is wrong with another kind of value
        silos = read_silos(located(Path(str(votes))))
        return panel_of(silos), len(silos[0].ids)
    manifest = finished_votes(Run(run)).manifest()
    return manifest.panel, len(manifest.ids)


def _given(words: Sequence[str]) -> Json:
    """Return what files and options say, the later over the earlier: numbers as they stand, and the aggregator."""
    given: Json = {}
    left = list(words)
    while left:
        name, equals, value = left.pop(0).partition("=")
        if not name.startswith("--"):
            continue
        if not equals:
            value = left.pop(0) if left and not left[0].startswith("--") else ""
        key = name.removeprefix("--")
        if key == "config" and Path(value).is_file():
            _merge(given, _loaded(Path(value).read_text()))
        elif key == "votes":
            # a path is taken by its letters, but for null
            _merge(given, {key: _loaded(value) and value})
        elif key in _READ:
            _merge(given, {key: _file_or_value(value)})
        elif key.startswith("aggregator."):
            inner = key.removeprefix("aggregator.").removeprefix("init_args.")
            _merge(given, {"aggregator": {inner: _loaded(value)}})
    return given


def _merge(given: Json, content: Any) -> None:
    for key, value in (content if isinstance(content, dict) else {}).items():
        if key != "aggregator":
            given[key] = value
            continue
        said = {"class_path": value} if isinstance(value, str) else value if isinstance(value, dict) else {}
        before = given.get("aggregator") or {"class_path": None, "init_args": {}}
        path = said.get("class_path", before["class_path"])
        kept = before["init_args"] if path == before["class_path"] else {}
        inner = said.get("init_args", {name: each for name, each in said.items() if name != "class_path"})
        given["aggregator"] = {"class_path": path, "init_args": kept | (inner or {})}


def _file_or_value(value: str) -> Any:
    return _loaded(Path(value).read_text() if value.endswith((".yaml", ".yml")) and Path(value).is_file() else value)


def _loaded(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None  # the parser says what is wrong with it


def _number(given: Json, name: str) -> float:
    value = given.get(name)
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(f"Expected a number --{name}, got {name}={value!r}") from None


def _relation(value: Any) -> NeighboringRelation:
    names = {each.name: each for each in NeighboringRelation}
    return names.get(str(value), NeighboringRelation.REPLACE_RECORD)


def _kind(name: str) -> type[Aggregator] | None:
    """Return the class of a short name or of a path; None if there is no such aggregator."""
    module, _, cls = name.rpartition(".")
    try:
        found = getattr(import_module(module), cls) if module else registered().get(name)
    except (ImportError, AttributeError, ValueError):
        return None
    return found if isinstance(found, type) and issubclass(found, Aggregator) else None


def _word(name: str, settings: Json) -> list[str]:
    return [f"--aggregator={json.dumps({'class_path': name, 'init_args': settings})}"]
