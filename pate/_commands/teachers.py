"""The commands `pate teachers fit` and `pate teachers vote`.

A stage is imported only after its command line is parsed: it needs Lightning, which takes seconds
    to import and which
``--help`` does not need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Literal, TypeVar

from jsonargparse import ArgumentParser, Namespace

from pate._closed_form_plan import CLOSED_FORM, ClosedFormPlan
from pate._commands.mistakes import CommandParser
from pate._commands.parsing import (
    ALONE,
    Preset,
    add_data,
    add_run,
    named_before,
    new_parser,
    parse,
    with_saved_data,
)
from pate._pipeline import Pipeline
from pate._registry import find
from pate._votes import Voting
from pate.teachers._jobs import CurveFormat, Execution

Settings = TypeVar("Settings")


def fit(args: Sequence[str], preset: Preset = ALONE) -> None:
    """Run `pate teachers fit`."""
    in_closed_form = named_before("fit", args, preset) == CLOSED_FORM
    parser = _fit_parser(in_closed_form)
    parsed = parse(parser, args, with_saved_data(args, preset))
    options = parser.instantiate(parsed)
    pipeline = Pipeline(
        options.run, options.data, ledger=options.ledger, overwrite=options.overwrite
    )
    if in_closed_form:
        pipeline.fit_teachers(_from_options(ClosedFormPlan, options), dry_run=options.dry_run)
        return
    plan, execution = _from_options(find("TeacherPlan"), options), _from_options(Execution, options)
    pipeline.fit_teachers(plan, execution, logger=options.logger, dry_run=options.dry_run)


def vote(args: Sequence[str], preset: Preset = ALONE) -> None:
    """Run `pate teachers vote`."""
    parser = new_parser(
        "teachers vote",
        "Let the teachers vote on every public sample; each teacher's votes are kept.\n\nThe number of"
        " teachers is a public constant: an absent teacher, such as a silo that stays away, casts no vote but is still"
        " counted.",
    )
    parser.add_class_arguments(Execution, as_group=False)
    parser.add_argument(
        "--votes",
        type=Voting | None,
        default=None,
        help="``bits``, the decisions of the teachers, which every aggregator reads; ``scores``, their probabilities,"
        " for ScoreVotes; or ``quantile_bits``, each label for as large a share of the samples as has it among a"
        " teacher's own records. By default as before, or ``bits``.",
    )
    parser.add_argument(
        "--absent",
        type=list[int] | None,
        default=None,
        help="numbers, from 0, of the teachers that take no part: their ballots are rows of zeros. Like the votes, this"
        " list is PRIVATE.",
    )
    add_run(parser)
    parsed = parse(parser, args, preset)
    pipeline = Pipeline(parsed.run, overwrite=parsed.overwrite)
    pipeline.vote(_from_options(Execution, parsed), votes=parsed.votes, absent=parsed.absent)


def _fit_parser(in_closed_form: bool) -> CommandParser:
    """Return the parser of networks that are trained, or of teachers in closed form, who have other settings."""
    parser = new_parser(
        "teachers fit",
        "Train the teachers, each on its own partition of the private data.\n\nIf it is killed and started again, the"
        " stage continues where it stopped, with the same result bit for bit. The place of training (threads,"
        " workers, executor, gpus, shared) does not affect the result, and may change in between. With"
        " --fit closed_form each record, group or part is a linear teacher without training; --fit closed_form"
        " --help lists its settings.",
    )
    parser.add_argument(
        "--fit",
        type=Literal["steps", "closed_form"],
        default=CLOSED_FORM if in_closed_form else "steps",
        help="how teachers are made: networks by ``steps`` of training, or linear ones in ``closed_form``",
    )
    if in_closed_form:
        parser.add_class_arguments(ClosedFormPlan, as_group=False)
        parser.elsewhere = _needs_training
    else:
        _add_training(parser)
    add_run(parser)
    add_data(parser)
    parser.add_argument(
        "--dry_run",
        action="store_true",
        help="print the sizes of partitions (PRIVATE), the memory and time that training will take and where it will"
        " run; write nothing",
    )
    return parser


def _needs_training(option: str) -> str | None:
    names = {f"--{field.name}" for field in fields(find("TeacherPlan"))}
    return "--fit steps" if option in names else None


def _add_training(parser: ArgumentParser) -> None:
    """Add the settings of networks that are trained."""
    parser.add_class_arguments(find("TeacherPlan"), as_group=False)
    parser.add_class_arguments(Execution, as_group=False)
    parser.add_argument(
        "--logger",
        type=CurveFormat,
        default="csv",
        help="format of the loss curves in the teachers' folder, ``csv`` or ``tensorboard``; loggers that send them"
        " elsewhere are not offered, because they are PRIVATE.",
    )


def _from_options(kind: type[Settings], options: Namespace) -> Settings:
    """Return the dataclass ``kind`` made from the options of a command."""
    settings: dict[str, Any] = {field.name: options[field.name] for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**settings)
