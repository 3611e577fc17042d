"""The command `pate references`."""

from collections.abc import Sequence

from pate._commands.parsing import NO_PRESET, Preset, add_run, new_parser, parse
from pate._pipeline import Pipeline

_SUMMARY = (
    "Evaluate, on the test set, a student of the true labels and the noiseless majority of the"
    " teachers. PRIVATE.\n\nNeither is private: on data that you may see, they show the price of"
    " privacy. The student of the true labels is trained like the private one, on all queried"
    " samples."
)


def main(args: Sequence[str], preset: Preset = NO_PRESET) -> None:
    """Run `pate references`."""
    parser = new_parser("references", _SUMMARY)
    add_run(parser)
    parsed = parse(parser, args, preset)
    Pipeline(parsed.run, overwrite=parsed.overwrite).references()
