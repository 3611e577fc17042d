"""How `--help` reads: what is required first, words for types, paragraphs, and an example."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterable
from enum import Enum
from typing import Any

from jsonargparse import DefaultHelpFormatter, Namespace

_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "list[int]": "whole numbers, as [1, 2]",
    "tuple[int, ...]": "whole numbers, as [1, 2]",
    "list[float]": "numbers, as [1, 4]",
    "tuple[float, ...]": "numbers, as [1, 4]",
    "dict[int, float]": "numbers by whole numbers, as {100: 0.8}",
}
_GENERAL = {
    "help": "show this help, and exit",
    "config": "YAML file of settings; may be given several times, the later over the earlier",
    "print_config": "print the settings that all of this makes, as YAML, and exit",
}
_MOST_NAMES = 480  # letters of the names of classes that an option may be

EXAMPLES: dict[str, str] = {
    "run": "pate run configs/faces --run runs/mine --label.num_queries 120",
    "teachers fit": "pate teachers fit --config configs/faces/data.yaml --config configs/faces/teachers.yaml"
    " --run runs/mine",
    "teachers vote": "pate teachers vote --run runs/mine",
    "label": "pate label --run runs/mine --target_epsilon 2 --delta 1e-5",
    "student fit": "pate student fit --run runs/mine --model.network pate.models.MLP",
    "student validate": "pate student validate --run runs/mine",
    "student test": "pate student test --run runs/mine",
    "student predict": "pate student predict --run runs/mine --data.predict_on public",
    "references": "pate references --run runs/mine",
    "calibrate": "pate calibrate --aggregator StableTopK --target_epsilon 8 --delta 1e-5 --num_queries 180"
    " --num_teachers 750 --num_labels 25",
    "account": "pate account --aggregator StableTopK --aggregator.scale_gap 39 --aggregator.sigma_test 60"
    " --aggregator.delta_test 1e-9 --num_queries 600 --delta 1e-6 --num_teachers 800 --num_labels 20",
    "ledger show": "pate ledger show --ledger data/faces/ledger.sqlite",
    "ledger verify": "pate ledger verify --ledger data/faces/ledger.sqlite --statement runs/faces/public/privacy.json",
    "plan": "pate plan --num_records 100000 --num_labels 25 --num_public 5000 --epsilons [1,4]",
    "frontier": "pate frontier --simulate.num_labels 20 --simulate.num_teachers 400 --simulate.label_density 0.2"
    " --simulate.teacher_accuracy 0.85 --student true",
    "completion": "pate completion bash > ~/.local/share/bash-completion/completions/pate",
    "init": "pate init recipes/mine --kind folder --data pictures",
    "predict": "pate predict runs/mine/public/student/model pictures --output predictions.csv",
    "export": "pate export runs/mine/public/student/model --format onnx --output student.onnx",
    "report": "pate report runs/mine",
    "topk": "pate topk --pairs checkins.csv --items places.txt --k 10 --target_epsilon 1 --output top.csv",
    "faces": "pate faces --output data/faces --num 10000",
}
"""A line to begin with, by command."""


def example(name: str) -> str | None:
    """Return what stands below the help of a command: an example, in lines that a shell takes together."""
    if name not in EXAMPLES:
        return None
    lines = textwrap.wrap(EXAMPLES[name], 74, break_long_words=False, break_on_hyphens=False)
    return "example:\n  " + " \\\n    ".join(lines)


class BriefHelp(DefaultHelpFormatter):
    """Help in which required options come first and general ones last, without the names of Python's types."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)  # type: ignore[no-untyped-call, unused-ignore]
        # jsonargparse's name of a subcommand
        self._prog = self._prog.replace(" [options]", "")

    def add_usage(self, usage: str | None, actions: Iterable[argparse.Action], *args: Any, **options: Any) -> None:
        """Add a line with the options that are required, in place of all of them."""
        if usage is None:
            needed = [each for each in actions if each.required and each.option_strings]
            words = [f"{each.option_strings[-1]} {_letters(each)}" for each in needed]
            places = [_letters(each).lower() for each in actions if not each.option_strings]
            usage = " ".join([self._prog, *places, *words, "[options]"])
            start = len("usage: ") + len(self._prog) + 1
            usage = textwrap.fill(
                usage, self._width - len("usage: "), subsequent_indent=" " * start, break_on_hyphens=False
            )
        super().add_usage(usage, actions, *args, **options)

    def add_arguments(self, actions: Iterable[argparse.Action]) -> None:
        """Add options: the required ones first, those that every command has last."""
        super().add_arguments(sorted(actions, key=lambda each: 2 if each.dest in _GENERAL else not each.required))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Wrap each paragraph by itself; what is indented stays as it is."""
        filled = []
        for paragraph in re.split(r"\n\s*\n", text.strip()):
            kept = any(line.startswith(" ") for line in paragraph.splitlines())
            body = paragraph if kept else textwrap.fill(" ".join(paragraph.split()), width, break_on_hyphens=False)
            filled.append(textwrap.indent(body.replace("``", ""), indent))
        return "\n\n".join(filled) + "\n"

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _get_help_string(self, action: argparse.Action) -> str:
        if action.dest in _GENERAL:
            return _GENERAL[action.dest]
        text = (action.help or "").replace("``", "").rstrip(".")
        if any(each.endswith(".help") for each in action.option_strings):
            return "describe the settings of a class that is named, and exit"
        if action.default is None:
            text = re.sub(r"(?<=[;,] )None for ", "by default ", text)
            text = re.sub(r"(?<=\. )None for ", "By default ", text)
        notes = ["required"] if action.required else []
        if kind := self._kind(action):
            notes.append(kind)
        plain = action.default not in (None, argparse.SUPPRESS) and not action.required and action.nargs != 0
        if plain and "default" not in text.lower():
            notes.append(f"default: {_written(action.default)}")
        return f"{text} ({'; '.join(notes)})" if notes else text

    def _kind(self, action: argparse.Action) -> str:
        """Return words for what an option takes, or nothing where its name or its placeholder says it."""
        if names := _classes(action):
            few = len(", ".join(names)) <= _MOST_NAMES
            return f"{', '.join(names)}, or another class by its path" if few else "a class by its path"
        kind = re.sub(r"^<class '(\w+)'>$|^Optional\[(.*)\]$| \| null$", r"\1\2", self._get_type_str(action) or "")
        if (choices := re.fullmatch(r"Literal\[(.*)\]", kind)) and not str(action.metavar or "").startswith("{"):
            return choices[1].replace("'", "")
        return _TYPES.get(kind, "")


def choices_of(action: argparse.Action) -> tuple[str, ...]:
    """Return what an option may be, as far as its names are known: alternatives, or classes unless they are many."""
    found = [str(each) for each in action.choices or ()]
    if listed := re.fullmatch(r"{(.*)}", str(action.metavar or "")):
        found = listed[1].split(",")
    names = _classes(action)
    return tuple(found or (names if len(", ".join(names)) <= _MOST_NAMES else ()))


def _classes(action: argparse.Action) -> list[str]:
    """Return the short names of the classes that an option may be."""
    known = re.search(r"known subclasses: ([^)]*)", getattr(action, "extra_help", str)())
    return sorted({path.strip().rpartition(".")[-1] for path in known[1].split(",")}) if known else []


def _written(value: Any) -> str:
    """Return a value as it is written on a command line."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Namespace | dict):
        return str(value.get("class_path", "as they are")).rpartition(".")[-1]
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _letters(action: argparse.Action) -> str:
    return str(action.metavar or action.dest.rpartition(".")[-1].upper())
