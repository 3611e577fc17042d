"""The command `pate label`."""

from collections.abc import Sequence
from inspect import signature

from pate.runs import LABEL
from pate.stages.command import make_parser, open_run, settings
from pate.stages.label import label


def main(args: Sequence[str]) -> None:
    """Run `pate label`."""
    parser = make_parser("label", label, skip={"run"})
    parsed = parser.parse_args(list(args))
    made = parser.instantiate(parsed)
    run = open_run(parsed, settings(parser, parsed))
    label(run, **{name: made[name] for name in signature(label).parameters if name != "run"})
    print((run.root / LABEL.outputs[-1]).read_text(), end="")
