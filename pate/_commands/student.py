"""The commands `pate student fit`, `validate`, `test` and `predict`."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from pate._commands.parsing import (
    NO_PRESET,
    Preset,
    add_run,
    named_before,
    new_parser,
    parse,
    prints_and_exits,
    run_folder,
    settings_of,
    with_saved,
)
from pate._commands.suggestions import CommandParser
from pate._files import Json, lock_run
from pate._networks import LINEAR, is_linear
from pate._registry import find
from pate._runs import STUDENT, Run
from pate._runs.released import require_student
from pate._stages import student_stage
from pate._stages.student_stage import DATA_SETTINGS, LinearPlan
from pate._validation import require

_FROM_RUN = "\n\nIts network and all other settings come from the run."

DESCRIPTIONS = {
    "fit": "Train a student on the released labels of a run.\n\nThe network pate.models.Linear is"
    " solved in closed form, without settings of training. Any other network is trained by gradient"
    " descent and kept at the lowest loss on held-out released labels. Training that was killed"
    " resumes from its last checkpoint.",
    "validate": "Evaluate the student of a run on released labels that were held out of its"
    f" training.{_FROM_RUN}",
    "test": "Evaluate the student of a run on the test set, and write metrics.json next to it."
    f"{_FROM_RUN}",
    "predict": "Write the student's predictions for the test set, or for the public samples, to"
    f" predictions.npz next to it.{_FROM_RUN}",
}


def main(command: str, args: Sequence[str], preset: Preset = NO_PRESET) -> None:
    """Run `pate student` with one of Lightning's commands."""
    root = run_folder(args) or preset.run
    if root is not None and not prints_and_exits(args):
        if command != "validate":  # it writes nothing
            lock_run(root)
        if command != "fit":
            require_student(Run(root))
    # the settings of the training apply to all other subcommands
    completed = preset if command == "fit" else with_saved(args, preset, STUDENT.config)
    if not _names_linear(args, completed):
        find("run_network_command")(command, args, completed)
        return
    parser = _linear_parser(command)
    parsed = parse(parser, args, completed)
    content, run = settings_of(parser, parsed), Run(parsed.run, overwrite=parsed.overwrite)
    verbose = content.pop("verbose", False)
    plan = LinearPlan.of(content)
    require(
        command != "validate",
        f"another network than {LINEAR}: the closed form learns from all released labels",
    )
    if command == "fit":
        student_stage.fit(run, plan)
    elif command == "predict":
        student_stage.predict(run, plan)
    else:
        figures = student_stage.test(run, plan)
        for name, value in figures.items() if verbose else ():
            if isinstance(value, float):
                print(f"test_{name:<20}{value:.4f}")


def read_fit(args: Sequence[str], preset: Preset) -> Json:
    """Return the settings of `pate student fit` as plain data, or end with status 2."""
    if not _names_linear(args, preset):
        return find("read_network_fit")(args, preset)
    parser = _linear_parser("fit")
    return LinearPlan.of(settings_of(parser, parse(parser, args, preset))).settings()


def _names_linear(args: Sequence[str], preset: Preset) -> bool:
    """Return whether options, or else files, name the network that is solved in closed form."""
    names = ("model.network", "model.network.class_path", "model")
    named = (named_before(name, args, preset) for name in names)
    return is_linear(next((value for value in named if value is not None), None))


def _linear_parser(command: str) -> CommandParser:
    """Return the parser of a linear student."""
    parser = new_parser(f"student {command}", DESCRIPTIONS[command])
    parser.add_argument(
        "--model.network", type=str | dict[str, Any], required=True, help=f"the path {LINEAR}"
    )
    parser.add_class_arguments(LinearPlan, "data", as_group=False, skip={"optimize"})
    parser.add_class_arguments(LinearPlan, as_group=False, skip={*DATA_SETTINGS})
    add_run(parser)
    if command == "test":
        parser.add_argument("--verbose", type=bool, default=True, help="print the figures")
    parser.elsewhere = _needs_another_network
    return parser


def _needs_another_network(option: str) -> str | None:
    others = ("--trainer", "--model", "--data", "--seed_everything")
    needed = f"another network than {LINEAR}, which is solved in closed form, with {option}"
    return needed if option in others else None


fit = partial(main, "fit")
validate = partial(main, "validate")
test = partial(main, "test")
predict = partial(main, "predict")
