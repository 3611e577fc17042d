"""The commands on teachers: `pate teachers fit` and `vote`, `pate forget` and `pate references`.

A stage of networks is found only after its command line is parsed, because it imports Lightning,
which takes seconds and is not needed for ``--help``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

from jsonargparse import ArgumentParser, Namespace

from pate._closed_form_plan import CLOSED_FORM, ClosedFormPlan
from pate._commands.parsing import (
    NO_PRESET,
    Preset,
    add_data,
    add_run,
    from_options,
    named_before,
    new_parser,
    parse,
    settings_of,
    with_saved_data,
)
from pate._commands.suggestions import CommandParser
from pate._data_file import load_data
from pate._pipeline import Pipeline, open_run
from pate._registry import find
from pate._runs import LABEL
from pate._stages.teachers_stage import residual_files
from pate._votes import Voting
from pate.teachers._jobs import CurveFormat, Execution


@dataclass(frozen=True)
class TeacherFit:
    """The parsed and checked settings of `pate teachers fit`.

    Attributes:
        options: the parsed options, as objects.
        plan: a `TeacherPlan` or a `ClosedFormPlan`.
        content: the settings as plain data.
    """

    options: Namespace
    plan: Any
    content: dict[str, Any]


def fit(args: Sequence[str], preset: Preset = NO_PRESET) -> None:
    """Run `pate teachers fit`."""
    read = read_fit(args, preset)
    options, plan = read.options, read.plan
    pipeline = Pipeline(
        options.run, options.data, ledger=options.ledger, overwrite=options.overwrite
    )
    if isinstance(plan, ClosedFormPlan):
        pipeline.fit_teachers(plan, dry_run=options.dry_run)
        return
    execution = from_options(Execution, options)
    pipeline.fit_teachers(plan, execution, logger=options.logger, dry_run=options.dry_run)


def read_fit(args: Sequence[str], preset: Preset = NO_PRESET) -> TeacherFit:
    """Return the settings of `pate teachers fit`. Ends with status 2 on a wrong option."""
    in_closed_form = named_before("fit", args, preset) == CLOSED_FORM
    parser = _fit_parser(in_closed_form)
    parsed = parse(parser, args, with_saved_data(args, preset))
    options = parser.instantiate(parsed)
    kind = ClosedFormPlan if in_closed_form else find("TeacherPlan")
    return TeacherFit(options, from_options(kind, options), settings_of(parser, parsed))


def vote(args: Sequence[str], preset: Preset = NO_PRESET) -> None:
    """Run `pate teachers vote`."""
    parser = new_parser(
        "teachers vote",
        "Let the teachers vote on every public sample; each teacher's votes are kept.\n\nThe number"
        " of teachers is a public constant: an absent teacher, such as a silo that stays away,"
        " casts no vote but is still counted.",
    )
    parser.add_class_arguments(Execution, as_group=False)
    parser.add_argument(
        "--votes",
        type=Voting | None,
        default=None,
        help="``bits``, the decisions of the teachers, which every aggregator reads; ``scores``,"
        " their probabilities, for ScoreVotes; or ``quantile_bits``, each label for the same share"
        " of samples as of a teacher's own records. By default as before, or ``bits``.",
    )
    parser.add_argument(
        "--absent",
        type=list[int] | None,
        default=None,
        help="numbers, from 0, of the teachers that take no part: their ballots are rows of zeros."
        " Like the votes, this list is PRIVATE.",
    )
    add_run(parser)
    parsed = parse(parser, args, preset)
    pipeline = Pipeline(parsed.run, overwrite=parsed.overwrite)
    pipeline.vote(from_options(Execution, parsed), votes=parsed.votes, absent=parsed.absent)


@cache  # `pate run` asks several times
def _fit_parser(in_closed_form: bool) -> CommandParser:
    """Return the parser of trained networks, or of teachers in closed form with other settings."""
    parser = new_parser(
        "teachers fit",
        "Train the teachers, each on its own partition of the private data.\n\nIf it is killed and"
        " started again, the stage continues where it stopped, with the same result bit for bit."
        " The place of training (threads, workers, executor, gpus, shared) does not affect the"
        " result, and may change in between. With --fit closed_form each record, group or part is a"
        " linear teacher without training; --fit closed_form --help lists its settings.",
    )
    parser.add_argument(
        "--fit",
        type=Literal["steps", "closed_form"],
        default=CLOSED_FORM if in_closed_form else "steps",
        help="networks by ``steps`` of training, or linear teachers in ``closed_form``",
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
        help="print the sizes of partitions (PRIVATE), and the memory, time and place of training;"
        " write nothing",
    )
    return parser


def _needs_training(option: str) -> str | None:
    names = {f"--{field.name}" for field in fields(find("TeacherPlan"))}
    return f"--fit steps with {option}" if option in names else None


def _add_training(parser: ArgumentParser) -> None:
    """Add the settings of networks that are trained."""
    parser.add_class_arguments(find("TeacherPlan"), as_group=False)
    parser.add_class_arguments(Execution, as_group=False)
    parser.add_argument(
        "--logger",
        type=CurveFormat,
        default="csv",
        help="format of the loss curves in the teachers' folder, ``csv`` or ``tensorboard``. The"
        " curves are PRIVATE, so that loggers which send them elsewhere are not offered.",
    )


_FORGET = (
    "Remake teachers and votes as in a run without some private records, bit for bit.\n\nOnly the"
    " chunks of teachers that saw one of them are trained again; all teachers vote again. Call it"
    " while the data still hold the records, so that the run can check that all others are the"
    " same. Then take them out of the data and call it again, which checks that they are gone and"
    " nothing else changed. Released labels and everything made of them stay: their guarantee"
    " covers every record, including the forgotten ones."
)


def forget(args: Sequence[str]) -> None:
    """Run `pate forget`."""
    parser = new_parser("forget", _FORGET)
    parser.add_argument(
        "ids", nargs="+", help="ids of private records or, with `unit: group`, groups"
    )
    parser.add_argument("--run", type=Path, required=True, help="folder of the run")
    parser.add_class_arguments(Execution, as_group=False, skip={"shared"})
    parsed = parser.parse_args(list(args))
    forgotten = Pipeline(parsed.run).forget(parsed.ids, from_options(Execution, parsed))
    print("\n".join(_what_is_left(parsed.run, len(set(parsed.ids)), forgotten)))


def _what_is_left(root: Path, number: int, forgotten: bool) -> list[str]:
    """Return the next step, the files that stay, and the files that only the owner can delete."""
    run = open_run(root)
    if forgotten:
        lines = [
            f"Forgotten: {number}. Teachers and votes of {root} equal those of a run without.",
            "Next: take the same out of the data, which the run refuses until then, and call this"
            " again to check that.",
        ]
    else:
        lines = ["The data hold none of these, and all other records equal those of the teachers."]
    if run.is_finished(LABEL):
        lines.append(
            "Released files stay: labels, statement and student. Their guarantee covers the"
            " forgotten like everybody else. New labels by the present votes would be another"
            " release, at a further cost."
        )
    lines += [
        f"May hold forgotten records, and is yours to delete: {path}"
        for path in residual_files(run, load_data(run))
    ]
    return [*lines, "Other runs on these data, copies and backups are not looked at."]


_REFERENCES = (
    "Evaluate, on the test set, a student of the true labels and the noiseless majority of the"
    " teachers. PRIVATE.\n\nNeither is private: on data that you may see, they show the price of"
    " privacy. The student of the true labels is trained like the private one, on all queried"
    " samples."
)


def references(args: Sequence[str], preset: Preset = NO_PRESET) -> None:
    """Run `pate references`."""
    parser = new_parser("references", _REFERENCES)
    add_run(parser)
    parsed = parse(parser, args, preset)
    Pipeline(parsed.run, overwrite=parsed.overwrite).references()
