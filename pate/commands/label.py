"""The command `pate label`."""

from collections.abc import Sequence
from dataclasses import fields

from pate.commands.parsing import ALONE, Preset, make_parser, open_run, parse, settings
from pate.runs import LABEL
from pate.stages.label import LabelSettings, label


def main(args: Sequence[str], preset: Preset = ALONE) -> None:
    """Run `pate label`."""
    parser = make_parser("label", label, skip={"run", "settings"}, settings=LabelSettings)
    parsed = parse(parser, args, preset)
    made = parser.instantiate(parsed)
    run = open_run(parsed, settings(parser, parsed))
    label(run, LabelSettings(**{field.name: made[field.name] for field in fields(LabelSettings)}))
    print((run.root / LABEL.outputs[-1]).read_text(), end="")
