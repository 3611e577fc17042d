"""The commands of `pate`: the ones of this zone, and others that packages offer by entry points.

A package offers commands by an entry point of the group ``pate.commands`` that names a dictionary
like the one below. The lab and the networks do so as well.
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from pate._core.package import declared


class Command(NamedTuple):
    """A command, as it is listed and found.

    Attributes:
        place: its function, as ``module:name``, which takes the remaining words.
        summary: a line for ``pate --help``.
        example: the last lines of its help.
    """

    place: str
    summary: str
    example: str

    def load(self) -> Any:
        """Import its function."""
        module, _, function = self.place.partition(":")
        return getattr(import_module(module), function)


_COMMANDS: dict[str, Command] = {
    "fit": Command(
        "pate._labeling.commands.run:fit_main",
        "train a student of your own records: a verdict, a model, an epsilon",
        "pate fit stays.csv --labels infection,sepsis --group patient_id "
        "--public_fraction 0.2 --epsilon 1",
    ),
    "run": Command(
        "pate._labeling.commands.run:main",
        "run all stages of a recipe, a folder or the name of a shipped one",
        "pate run configs/faces --run runs/mine --label.num_queries 120",
    ),
    "init": Command(
        "pate._labeling.commands.recipes:init_main",
        "write a recipe for data of your own, with comments",
        "pate init recipes/mine --data mine.csv --kind csv",
    ),
    "plugin new": Command(
        "pate._labeling.commands.recipes:plugin_main",
        "write a package with an aggregator of your own, its cost and tests",
        "pate plugin new NoisyMean",
    ),
    "teachers fit": Command(
        "pate._labeling.commands.stages:teachers_fit",
        "train the teachers on their partitions (PRIVATE)",
        "pate teachers fit --config configs/faces/data.yaml --config "
        "configs/faces/teachers.yaml --run runs/mine",
    ),
    "teachers vote": Command(
        "pate._labeling.commands.stages:teachers_vote",
        "let the teachers vote on the public samples (PRIVATE)",
        "pate teachers vote --run runs/mine",
    ),
    "label": Command(
        "pate._labeling.commands.stages:label",
        "release labels through a private mechanism",
        "pate label --run runs/mine --target_epsilon 2 --delta 1e-5",
    ),
    "student fit": Command(
        "pate._labeling.commands.stages:student_fit",
        "train the student on the released labels",
        "pate student fit --run runs/mine --model.network pate.models.MLP",
    ),
    "student test": Command(
        "pate._labeling.commands.stages:student_test",
        "evaluate the student on the test set",
        "pate student test --run runs/mine",
    ),
    "predict": Command(
        "pate._labeling.commands.stages:predict_main",
        "predict new pictures or arrays with an exported student",
        "pate predict runs/mine/public/student/model pictures --output predictions.csv",
    ),
    "export": Command(
        "pate._labeling.commands.stages:export_main",
        "write an exported student for torch or ONNX Runtime",
        "pate export runs/mine/public/student/model --format onnx --output student.onnx",
    ),
    "ledger show": Command(
        "pate._labeling.commands.check:show",
        "list the releases of a ledger and their cost",
        "pate ledger show data/faces/ledger.sqlite",
    ),
    "verify": Command(
        "pate._labeling.commands.check:verify",
        "check a run, a statement or a ledger, computed again; sign a statement",
        "pate verify runs/faces/public/privacy.json --ledger data/faces/ledger.sqlite",
    ),
}


@cache
def commands() -> dict[str, Command]:
    """Return all commands by name: this zone's, then the ones that entry points name."""
    found = dict(_COMMANDS)
    for entry in sorted(declared("pate.commands"), key=lambda entry: entry.name):
        if is_there(entry.module):
            found |= entry.load()
    return found


def is_there(module: str) -> bool:
    """Return whether a module can be found: the folder of an entry point may have been deleted."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def command_of(words: list[str]) -> str | None:
    """Return the name of the command that words begin with, or None if there is none."""
    names = [" ".join(words[:number]) for number in (2, 1)]
    for known in (_COMMANDS, commands()) if words else ():
        for name in names:
            if name in known:
                return name
    return None
