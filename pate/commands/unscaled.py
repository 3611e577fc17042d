"""An aggregator without its noise: with a target epsilon its name is enough, or its name and some settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from pate.accounting.calibration import Target
from pate.accounting.relation import NeighboringRelation
from pate.aggregators import Aggregator, Rounds
from pate.data.source import located
from pate.runs import Json, Run
from pate.settings import path_of, plain
from pate.stages.suggestion import required, suggested, takes_unit_noise
from pate.validation import expect
from pate.vote_store import finished_votes
from pate.votes import Panel
from pate.votes_file import panel_of, read_silos


def completed(options: Namespace) -> list[str]:
    """Return words, to be put before all others, that give an aggregator what it lacks to be scaled.

    Args:
        options: those of `pate label`, or of `pate calibrate`, which say how many teachers and labels there are; what
            is missing is None.

    Returns:
        ``--aggregator`` in one word with a unit of noise, or with what its class chooses for the target, that of
        `Rounds` if no class is named; nothing if all its noise is given, or if something else is missing, which the
        parser says better.

    Raises:
        ValueError: if noise is missing and there is no target, if some noise is given but not all, or if the class
            needs settings that a target does not suggest.
    """
    epsilon, delta = options.target_epsilon, options.delta
    if options.aggregator is None:
        if epsilon is None:
            return []
        cls: type[Aggregator] = Rounds
        settings: Json = {}
    else:
        cls = _class_of(options.aggregator.class_path)
        settings = _chosen(cls, vars(options.aggregator.get("init_args", options.aggregator)))
    noise = cls.noise_parameters
    missing = [name for name in noise if name not in settings]
    if not missing and (noise or set(required(cls)) <= set(settings) or epsilon is None):
        return []
    words = ", ".join(f"--aggregator.{name}" for name in missing)
    if epsilon is None:
        expect(False, f"the noise of {cls.__name__} ({words}), or --target_epsilon, which finds it", noise=None)
    expect(len(missing) == len(noise), f"all noise of {cls.__name__} or none of it", missing=words)
    if takes_unit_noise(cls, settings):  # whatever the votes are, which need not be read
        return _word(cls, dict.fromkeys(noise, 1.0))
    if delta is None:
        return []
    panel, size = _facts(options)
    target = Target(
        epsilon=epsilon,
        delta=delta,
        num_queries=size if options.num_queries is None else options.num_queries,
        neighboring_relation=settings.get("neighboring_relation")
        or options.get("neighboring_relation")
        or NeighboringRelation.REPLACE_RECORD,
    )
    return _word(cls, plain(suggested(cls, settings, target, panel)))


def _facts(options: Namespace) -> tuple[Panel, int]:
    """Return the panel and the number of samples: as options say, or those of votes that were cast."""
    if "num_teachers" in options:
        return Panel(options.num_teachers, options.num_labels), options.num_queries
    if options.votes is not None:
        # those that are about to be imported
        silos = read_silos(located(options.votes))
        return panel_of(silos), len(silos[0].ids)
    manifest = finished_votes(Run(options.run or Path())).manifest()
    return manifest.panel, len(manifest.ids)


def _class_of(path: str) -> type[Aggregator]:
    """Return the class of a path, which the parser has looked up."""
    module, _, name = path.rpartition(".")
    cls: type[Aggregator] = getattr(import_module(module), name)
    return cls


def _chosen(cls: type[Aggregator], settings: Mapping[str, Any]) -> Json:
    """Return the settings of a class that are given and are not its defaults."""
    defaults = {field.name: field.default for field in fields(cls)}
    return {
        name: value
        for name, value in settings.items()
        if name in defaults and value is not None and value != defaults[name]
    }


def _word(cls: type[Aggregator], settings: Json) -> list[str]:
    return [f"--aggregator={json.dumps({'class_path': path_of(cls), 'init_args': settings})}"]
