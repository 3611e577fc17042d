"""The commands `pate teachers fit` and `pate teachers vote`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from pate.commands.parsing import add_data, make_parser, open_run, parse, settings, with_saved
from pate.commands.preset import ALONE, Preset
from pate.data.source import load_data
from pate.runs import TEACHERS_FIT, TEACHERS_VOTE, Json, Run
from pate.stages.teachers import CHUNK_SIZE, fit_teachers, vote_teachers
from pate.teachers.training import TeacherPlan


def fit(args: Sequence[str], preset: Preset = ALONE) -> None:
    """Run `pate teachers fit`."""
    parser = _fit_parser()
    parsed = parse(parser, args, with_saved(args, preset, Path("data.yaml")))
    made = parser.instantiate(parsed)
    run = open_run(parsed, _kept(settings(parser, parsed)), made.data)
    fit_teachers(run, made.data, **_chosen(made, fit_teachers))


def vote(args: Sequence[str], preset: Preset = ALONE) -> None:
    """Run `pate teachers vote`."""
    parser = make_parser("teachers vote", vote_teachers, skip={"run", "data", "plan"})
    # who is absent is said once
    parsed = parse(parser, args, with_saved(args, preset, TEACHERS_VOTE.config))
    run = open_run(parsed, _kept(settings(parser, parsed)))
    run.require(TEACHERS_FIT)
    vote_teachers(run, load_data(run), load_plan(run), **_chosen(parsed, vote_teachers))


def load_plan(run: Run) -> TeacherPlan:
    """Return how the teachers of a run were trained."""
    begun = run.state(TEACHERS_FIT)
    assert begun is not None, "a stage that is required has a state"
    parser = _fit_parser()
    # what they were trained with, whatever became of the file that tells it to readers
    made = parser.instantiate(parser.parse_object(begun["config"] | {"run": str(run.root)}))
    chosen = json.loads((run.root / TEACHERS_FIT.outputs[0] / CHUNK_SIZE).read_text())
    return TeacherPlan(**_chosen(made, TeacherPlan) | chosen)


def _fit_parser() -> Any:
    parser = make_parser("teachers fit", fit_teachers, skip={"run", "data", "dry_run"})
    add_data(parser)
    parser.add_argument(
        "--dry_run",
        action="store_true",
        help="say how large partitions are (PRIVATE), what memory and time it will take and where it will run, and"
        " write nothing",
    )
    return parser


def _chosen(made: Namespace, function: Any) -> dict[str, Any]:
    return {name: made[name] for name in signature(function).parameters if name in made and name not in _RUN}


def _kept(config: Json) -> Json:
    """Return the settings without those that change nothing of what is left behind."""
    return {name: value for name, value in config.items() if name not in _WHERE}


_RUN = {"run", "data"}
_WHERE = {"workers", "executor", "gpus", "share", "logger", "dry_run"}
