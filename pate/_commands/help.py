"""The layout of `--help`: required options first, paragraphs, and an example."""

import argparse
import re
import shutil
import textwrap
from collections.abc import Iterable
from typing import Any

from jsonargparse import DefaultHelpFormatter

_GENERAL = ("help", "config", "print_config")
_MOST_LETTERS = 800  # of the known subclasses of an option
_WIDEST = 100  # columns

EXAMPLES: dict[str, str] = {
    "run": "pate run configs/faces --run runs/mine --label.num_queries 120",
    "teachers fit": "pate teachers fit --config configs/faces/data.yaml --config"
    " configs/faces/teachers.yaml --run runs/mine",
    "teachers vote": "pate teachers vote --run runs/mine",
    "forget": "pate forget r00017 --run runs/mine",
    "label": "pate label --run runs/mine --target_epsilon 2 --delta 1e-5",
    "student fit": "pate student fit --run runs/mine --model.network pate.models.MLP",
    "student validate": "pate student validate --run runs/mine",
    "student test": "pate student test --run runs/mine",
    "student predict": "pate student predict --run runs/mine --data.predict_on public",
    "choose": "pate choose runs/a/public/student/model runs/b/public/student/model --run runs/a"
    " --output choice.csv --target_epsilon 0.2 --delta 1e-6",
    "references": "pate references --run runs/mine",
    "calibrate": "pate calibrate --aggregator StableTopK --target_epsilon 8 --delta 1e-5"
    " --num_queries 180 --num_teachers 750 --num_labels 25",
    "account": "pate account --aggregator StableTopK --aggregator.scale_gap 39"
    " --aggregator.sigma_test 60 --aggregator.delta_test 1e-9 --num_queries 600 --delta 1e-6"
    " --num_teachers 800 --num_labels 20",
    "ledger show": "pate ledger show --ledger data/faces/ledger.sqlite",
    "ledger verify": "pate ledger verify --ledger data/faces/ledger.sqlite --statement"
    " runs/faces/public/privacy.json",
    "plan": "pate plan --num_records 100000 --num_labels 25 --num_public 5000 --epsilons [1,4]",
    "frontier": "pate frontier --simulate.num_labels 20 --simulate.num_teachers 400"
    " --simulate.label_density 0.2 --simulate.teacher_accuracy 0.85 --student true",
    "completion": "pate completion bash > ~/.local/share/bash-completion/completions/pate",
    "init": "pate init recipes/mine --data mine.csv --kind csv",
    "predict": "pate predict runs/mine/public/student/model pictures --output predictions.csv",
    "export": "pate export runs/mine/public/student/model --format onnx --output student.onnx",
    "report": "pate report runs/mine",
    "status": "pate status runs/mine",
    "submit": "pate submit --jobs 8 --cluster local -- teachers vote --run runs/mine",
    "check": "pate check runs/mine",
    "pack": "pate pack runs/mine --output mine.zip",
    "audit": "pate audit configs/table --output audits/table --label.target_epsilon 4",
    "silo": "pate silo exchange --name north --votes north/votes.npz --state north/private"
    " --signing_key north/silo.pem --public_keys keys --max_epsilon 4 --delta 1e-6",
    "silo key": "pate silo key north/silo.pem keys/north.pub",
    "silo relay": "pate silo relay exchange --host 0.0.0.0 --certificate server.pem",
    "topk": "pate topk --pairs checkins.csv --items places.txt --k 10 --target_epsilon 1 --output"
    " top.csv",
    "faces": "pate faces --output data/faces --num 10000",
}
"""An example of each command."""


def example(name: str) -> str | None:
    """Return the end of a command's help, an example in lines that a shell joins."""
    if name not in EXAMPLES:
        return None
    lines = textwrap.wrap(EXAMPLES[name], 74, break_long_words=False, break_on_hyphens=False)
    return "example:\n  " + " \\\n    ".join(lines)


class BriefHelp(DefaultHelpFormatter):
    """Help with a brief usage, required options first and general options last."""

    def __init__(self, *args: Any, **options: Any) -> None:
        width = min(shutil.get_terminal_size().columns - 2, _WIDEST)
        super().__init__(*args, **{"width": width} | options)  # type: ignore[no-untyped-call, unused-ignore]
        # jsonargparse's name of a subcommand
        self._prog = self._prog.replace(" [options]", "")

    def start_section(self, heading: str | None) -> None:
        """Begin a group of options under a title within the width."""
        title = heading and textwrap.fill(heading, self._width - 1)  # and a colon
        super().start_section(title)

    def add_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], *args: Any, **options: Any
    ) -> None:
        """Add a line with the required options in place of all options."""
        if usage is None:
            required = [action for action in actions if action.required and action.option_strings]
            words = [f"{action.option_strings[-1]} {_letters(action)}" for action in required]
            places = [_letters(action).lower() for action in actions if not action.option_strings]
            usage = " ".join([self._prog, *places, *words, "[options]"])
            start = len("usage: ") + len(self._prog) + 1
            usage = textwrap.fill(
                usage,
                self._width - len("usage: "),
                subsequent_indent=" " * start,
                break_on_hyphens=False,
            )
        super().add_usage(usage, actions, *args, **options)

    def add_arguments(self, actions: Iterable[argparse.Action]) -> None:
        """Add options: the required ones first, the general ones last."""
        super().add_arguments(
            sorted(
                actions, key=lambda action: 2 if action.dest in _GENERAL else not action.required
            )
        )

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Wrap each paragraph by itself, and each line of one with indented lines."""
        filled = []
        for paragraph in re.split(r"\n\s*\n", text.strip()):
            lines = paragraph.splitlines()
            if not any(line.startswith(" ") for line in lines):
                lines = [" ".join(paragraph.split())]
            body = "\n".join(textwrap.fill(line, width, break_on_hyphens=False) for line in lines)
            filled.append(textwrap.indent(body.replace("``", ""), indent))
        return "\n\n".join(filled) + "\n"

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _expand_help(self, action: argparse.Action) -> str:
        text = super()._expand_help(action)
        # Path, not <class 'Path'>; REPLACE_RECORD, not NeighboringRelation.REPLACE_RECORD
        text = re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", text)
        return re.sub(r"\b[A-Z]\w+\.([A-Z][A-Z_]+)\b", r"\1", text)

    def _get_help_string(self, action: argparse.Action) -> str:
        text = (super()._get_help_string(action) or "").replace("``", "")
        head, listed, names = text.partition(", known subclasses: ")
        # torch and Lightning may have hundreds
        return f"{head})" if len(names) > _MOST_LETTERS and listed else text


def _letters(action: argparse.Action) -> str:
    return str(action.metavar or action.dest.rpartition(".")[-1].upper())
