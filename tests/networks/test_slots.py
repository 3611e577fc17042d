"""No setting that takes a class calls what is not its class: every slot, with functions that act."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from jsonargparse import ArgumentError
from jsonargparse._typehints import ActionTypeHint, get_subclass_types
from pytorch_lightning import Trainer

from pate import LabelSettings, TeacherPlan
from pate._core.settings import SettingsParser
from pate._networks.student.training import Student
from pate.data import DataSource

ACTING: dict[str, dict[str, Any]] = {
    "os.system": {"command": "touch {mark}"},
    "subprocess.run": {"popenargs": ["touch", "{mark}"]},
    "builtins.eval": {"source": "open('{mark}', 'w')"},
    "pickle.loads": {"data": "cos\nsystem\n(S'touch {mark}'\ntR."},
    "tests.networks.test_slots.act": {"mark": "{mark}"},
}


def act(mark: str, *rest: object) -> str:
    Path(mark).touch()
    return mark


def descend(parameters: Any, lr: float = 0.5) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=lr)


@cache
def parser_of(kind: Any) -> Any:
    parser = SettingsParser(exit_on_error=False)
    if kind is DataSource:
        parser.add_argument("--data", type=DataSource)
    else:
        parser.add_class_arguments(kind)
    for action in parser._actions:  # a lack of another setting would refuse all
        action.required = False
    return parser


def slots() -> Iterator[tuple[Any, str]]:
    for kind in (TeacherPlan, LabelSettings, DataSource, Student, Trainer):
        for action in parser_of(kind)._actions:
            if isinstance(action, ActionTypeHint) and get_subclass_types(  # type: ignore[no-untyped-call]
                action._typehint, also_lists=True, also_containers=True, callable_return=True
            ):
                yield kind, action.dest


SLOTS = list(slots())


def test_the_slots_are_all_there() -> None:
    names = {name for _, name in SLOTS}
    assert {"network", "optimizer", "scheduler", "aggregator", "data", "callbacks"} <= names


@pytest.mark.parametrize("path", ACTING)
@pytest.mark.parametrize(("kind", "name"), SLOTS, ids=lambda each: getattr(each, "__name__", each))
def test_a_slot_calls_no_function_that_is_not_its_factory(
    kind: Any, name: str, path: str, tmp_path: Path
) -> None:
    mark = tmp_path / "called"
    spec = {
        "class_path": path,
        "init_args": {
            key: [word.format(mark=mark) for word in value]
            if isinstance(value, list)
            else value.format(mark=mark)
            for key, value in ACTING[path].items()
        },
    }
    parser = parser_of(kind)
    for content in (spec, [spec], spec["class_path"]):
        try:
            made = parser.instantiate(parser.parse_object({name: content}))[name]
        except (ArgumentError, ValueError, TypeError):
            continue
        # the trainer's own settings take anything; what they keep is not called
        assert made == content, (content, made)
    assert not mark.exists()


def test_a_function_annotated_to_return_what_a_slot_takes_is_its_factory() -> None:
    path = "tests.networks.test_slots.descend"
    parser, sizes = parser_of(TeacherPlan), ("num_teachers", "num_steps", "batch_size")
    for given, lr in ((path, 0.5), ({"class_path": path, "init_args": {"lr": 0.25}}, 0.25)):
        make = parser.instantiate(
            parser.parse_object(
                {"network": "pate.models.MLP", "optimizer": given, **dict.fromkeys(sizes, 3)}
            )
        ).optimizer
        assert make([torch.nn.Parameter(torch.ones(1))]).param_groups[0]["lr"] == lr
