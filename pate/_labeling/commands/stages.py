"""The commands of single stages: teachers, labels, a student.

In the order of a run: `pate teachers fit` and `vote`, `pate label` with votes from here or
elsewhere, and `pate student`. A stage of networks imports Lightning, which takes
seconds: it is found once a network is named.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from jsonargparse import Namespace

from pate._core.files.reading import Json
from pate._core.package import MissingExtraError, find
from pate._core.validation import AwaitedError, require
from pate._labeling.commands.parsing import (
    DATA,
    FLAG,
    RUN,
    CommandParser,
    add_options,
    from_options,
    function_parser,
    named_before,
    new_parser,
    settings_of,
    shows_help,
    with_saved,
    with_saved_data,
)
from pate._labeling.data.source import DataSource
from pate._labeling.linear import LINEAR, is_linear
from pate._labeling.plan import RunPlan
from pate._labeling.release.label_settings import LabelSettings
from pate._labeling.release.labels import StatedLabels, label as release_labels
from pate._labeling.runs.run import STUDENT
from pate._labeling.stages.student import LinearPlan
from pate._labeling.stages.votes_import import votes_from
from pate._labeling.teachers import CLOSED_FORM, ClosedFormPlan, Execution
from pate._labeling.votes.kinds import Voting


def teachers_fit(args: Sequence[str]) -> None:
    """Run `pate teachers fit`."""
    options, plan, _ = read_teachers_fit(args)
    RunPlan(
        options.run,
        options.data,
        teachers=plan,
        execution=from_options(Execution, options),
        ledger=options.ledger,
        overwrite=options.overwrite,
    ).fit_teachers(dry_run=options.dry_run)


def read_teachers_fit(args: Sequence[str]) -> tuple[Namespace, Any, Json]:
    """Return the settings of `pate teachers fit`: all options, its plan, and both as plain data.

    Ends with status 2 on a wrong option.
    """
    in_closed_form = named_before("fit", args) == CLOSED_FORM
    parser = _fit_parser(in_closed_form, listed=shows_help(args))
    parsed = parser.parse_args(with_saved_data(args))
    options = parser.instantiate(parsed)
    kind = ClosedFormPlan if in_closed_form else find("TeacherPlan")
    return options, from_options(kind, options), settings_of(parser, parsed)


def _fit_parser(in_closed_form: bool, *, listed: bool) -> CommandParser:
    """Return the parser of trained networks, or of teachers in closed form with other settings.

    If its options are only ``listed``, classes of networks and optimizers are not imported.
    """
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
        if not listed:
            find("fit_teachers")  # short names of optimizers are known by an import
        parser.add_class_arguments(find("TeacherPlan"), as_group=False)
        parser.add_class_arguments(Execution, as_group=False)
    dry_run = {
        **FLAG,
        "help": "print the sizes of partitions (PRIVATE), and the memory, time and place of"
        " training; write nothing",
    }
    add_options(parser, {**RUN, **DATA, "--dry_run": dry_run})
    return parser


def settings_of_networks() -> list[str]:
    """Return the names of the settings of trained teachers; none where their zone is not there."""
    with suppress(MissingExtraError):
        return [field.name for field in fields(find("TeacherPlan"))]
    return []


def _needs_training(option: str) -> str | None:
    known = option.removeprefix("--") in settings_of_networks()
    return f"--fit steps with {option}" if known else None


def teachers_vote(args: Sequence[str]) -> None:
    """Run `pate teachers vote`."""
    parser = new_parser(
        "teachers vote",
        "Let the teachers vote on every public sample; each teacher's votes are kept.\n\nThe number"
        " of teachers is a public constant: an absent teacher, such as a silo that stays away,"
        " casts no vote but is still counted.",
    )
    parser.add_class_arguments(Execution, as_group=False)
    add_options(
        parser,
        {
            "--votes": {
                "type": Voting | None,
                "default": None,
                "help": "``bits``, the decisions of the teachers, which every aggregator reads;"
                " ``scores``, their probabilities, for ScoreVotes; or ``quantile_bits``, each"
                " label for the same share of samples as of a teacher's own records. By default as"
                " before, or ``bits``.",
            },
            "--absent": {
                "type": list[int] | None,
                "default": None,
                "help": "numbers, from 0, of the teachers that take no part: their ballots are"
                " rows of zeros. Like the votes, this list is PRIVATE.",
            },
            **RUN,
        },
    )
    parsed = parser.parse_args(args)
    RunPlan(
        parsed.run,
        votes=parsed.votes,
        absent=parsed.absent,
        execution=from_options(Execution, parsed),
        overwrite=parsed.overwrite,
    ).vote()


_HELP = "help"
"""The origin for which `_add_votes` adds the options of all origins."""

_OF_VOTES: dict[str, tuple[Any, str]] = {
    "votes": (
        Path | None,
        "votes cast elsewhere, in place of the votes of `pate teachers vote`: an .npz with ids"
        " [N], label_names [C], either ballots [N, T, C], scores [N, T, C] or counts [N, C] with"
        " num_teachers, and features [N, F] if the aggregator needs them, or a folder with one such"
        " file for each silo. PRIVATE; copied to the run's private folder",
    ),
    "silos": (
        Path | None,
        "in place of --votes: a folder through which silos send shares of noisy counts, by `pate"
        " silo`",
    ),
    "unit": (
        str | None,
        "with --votes or --silos: the statement's word for the unit that reaches one teacher"
        " (default: the run's, or record)",
    ),
    "data": (
        DataSource | None,
        "with --votes or --silos: source of the public and test records for a student, as in"
        " --config data.yaml; private ones are not needed",
    ),
    "ledger": (
        Path | None,
        "with --votes: ledger of the private data behind the votes, shared by all runs on them;"
        " None for one next to a file of votes, or in a folder of them; with"
        " --silos for the run's own",
    ),
    "teachers": (
        dict[str, int] | None,
        "with --silos: the public number of teachers of each, as in --teachers.north 60"
        " --teachers.south 80",
    ),
    "public_keys": (
        Path | None,
        "with --silos: a folder with NAME.pub, the public key of each silo, from `pate silo key`",
    ),
    "signing_key": (
        Path | None,
        "with --silos: the server's own signing key, from `pate silo key`. PRIVATE",
    ),
    "without": (
        list[str] | None,
        "with --silos: names of silos that dropped out, such as [west], to leave out of the sum",
    ),
    "wait": (
        float | None,
        "with --silos: seconds to wait for others, 0 to do only the steps that are possible now;"
        " None for no limit",
    ),
}
_FROM: dict[str, tuple[str, ...]] = {"votes": ("unit", "data", "ledger"), "silos": tuple(_OF_VOTES)}
"""The options of each origin of votes. The votes of the run's own teachers need none."""


def _votes_from_where(args: Sequence[str]) -> str | None:
    """Return the option with the origin of votes, ``votes`` or ``silos``. None for own teachers.

    Raises ``ValueError`` if both are given.
    """
    values = {name: named_before(name, args) for name in _FROM}
    named = {name: value for name, value in values.items() if value not in (None, "null")}
    require(len(named) < 2, "--votes or --silos, not both", **named)
    return next(iter(named), None)


def _add_votes(parser: CommandParser, origin: str | None) -> None:
    """Add the options of votes from an ``origin``, or from all origins for a page of help."""
    elsewhere = {}
    for name, (kind, text) in _OF_VOTES.items():
        origins = [f"--{place}" for place, names in _FROM.items() if name in names]
        if origin == _HELP or name in _FROM or name in _FROM.get(origin or "", ()):
            parser.add_argument(f"--{name}", type=kind, default=None, help=text)
        else:
            elsewhere[f"--{name}"] = f"{' or '.join(origins)} with --{name}"
    parser.elsewhere = elsewhere.get


def label(args: Sequence[str]) -> None:
    """Run `pate label`."""
    try:
        released = _released(args)
    except AwaitedError as error:
        print(f"Waiting for {error}. Nothing is lost: the same command continues from here.")
    else:
        print(released.describe(), end="")
        for line in released.advice:
            print(line)


def _released(args: Sequence[str]) -> StatedLabels:
    origin = _HELP if shows_help(args) else _votes_from_where(args)
    parser = _label_parser(origin)
    # votes from elsewhere come with the data that the run has
    parsed = parser.parse_args(args if origin is None else with_saved_data(args))
    options = parser.instantiate(parsed)
    plan = RunPlan(
        options.run,
        options.get("data"),
        labels=from_options(LabelSettings, options),
        ledger=options.get("ledger"),
        overwrite=options.overwrite,
    )
    if origin is None:
        return plan.execute()
    if origin == "votes":
        return replace(plan, imported=votes_from(options.votes, unit=options.unit)).execute()
    require(options.teachers, "--teachers with a number for each silo", teachers=options.teachers)
    keys = {"public_keys": options.public_keys, "signing_key": options.signing_key}
    require(
        None not in keys.values(),
        "--public_keys of the silos and the server's --signing_key",
        **keys,
    )
    request = find("SiloSum")(
        exchange=options.silos,
        teachers=options.teachers,
        **keys,
        without=options.without or (),
        wait=options.wait,
    )
    return find("label_silos")(plan, request, unit=options.unit)


def read_label(args: Sequence[str]) -> tuple[CommandParser, Namespace]:
    """Return the parser and the parsed options of labels by the votes of a recipe's own teachers.

    Ends with status 2 on a wrong option.
    """
    origin = _votes_from_where(args)
    require(
        origin is None, "labels by the votes of the recipe's own teachers", option=f"--{origin}"
    )
    parser = _label_parser(None)
    return parser, parser.parse_args(args)


def _label_parser(origin: str | None) -> CommandParser:
    skip: set[str | int] = {"run", "votes", "settings", "total"}
    parser = function_parser("label", release_labels, skip, LabelSettings)
    add_options(parser, RUN)
    _add_votes(parser, origin)
    return parser


DESCRIPTIONS = {
    "fit": "Train a student on the released labels of a run.\n\nThe network pate.models.Linear is"
    " solved in closed form, without settings of training. Any other network is trained by gradient"
    " descent and kept at the lowest loss on held-out released labels. Training that was killed"
    " resumes from its last checkpoint.",
    "test": "Evaluate the student of a run on the test set, and write metrics.json next to it."
    "\n\nIts network and all other settings come from the run.",
}


def _student(command: str, args: Sequence[str]) -> None:
    """Run `pate student fit` or `pate student test`."""
    # the settings of the training apply, unless another one names its own student
    named = [word for word in args if word.partition("=")[0] in ("--config", "--model.network")]
    completed = args if command == "fit" and named else with_saved(args, STUDENT.config)
    options, content = read_student(command, completed)
    plan = RunPlan(options.run, student=content, overwrite=options.overwrite)
    if command == "fit":
        plan.fit_student()
        return
    for name, value in plan.test_student()["student"].items():
        if isinstance(value, float):
            print(f"test_{name:<20}{value:.4f}")


def read_student(command: str, args: Sequence[str]) -> tuple[Namespace, Json]:
    """Return all options of `pate student fit` or `test`, and its settings as plain data.

    Ends with status 2 on a wrong option.
    """
    if not _names_linear(args):
        return find("read_network")(command, args)
    parser = _linear_parser(command)
    parsed = parser.parse_args(args)
    return parsed, LinearPlan.of(settings_of(parser, parsed)).settings()


def _names_linear(args: Sequence[str]) -> bool:
    """Return whether options and files name no network, or the one in closed form.

    An option of a part of the network overrides what a file names, and Linear takes no settings.
    """
    options = {word.partition("=")[0] for word in args}
    parts = {word for word in options if word.startswith("--model.network.")} | (
        options & {"--model"}
    )
    path, *named = (
        named_before(name, args) for name in ("model.network.class_path", "model.network", "model")
    )
    if parts - {"--model.network.class_path"} or (parts and not is_linear(path)):
        return False
    network = next((value for value in (*named[:1], path, *named[1:]) if value is not None), None)
    return network is None or is_linear(network)


_OTHERS = (
    f"\n\nThese are the settings of {LINEAR}. For those of a network that is trained, name it:"
    " --model.network pate.models.MLP --help."
)


def _linear_parser(command: str) -> CommandParser:
    """Return the parser of a linear student."""
    parser = new_parser(f"student {command}", DESCRIPTIONS[command] + _OTHERS)
    parser.add_argument(
        "--model.network",
        type=str | dict[str, Any],
        required=command == "fit",
        help=f"the path {LINEAR}",
    )
    parser.add_class_arguments(LinearPlan, "data", as_group=False, skip={"optimize"})
    parser.add_class_arguments(LinearPlan, as_group=False, skip={"soft"})
    add_options(parser, RUN)
    needed = f"another network than {LINEAR}, which is solved in closed form, with"
    parser.elsewhere = {
        option: f"{needed} {option}" for option in ("--trainer", "--data", "--seed_everything")
    }.get
    return parser


student_fit = partial(_student, "fit")
student_test = partial(_student, "test")
