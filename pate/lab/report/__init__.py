"""A page of HTML on a run."""

from pate._labeling.commands.table import Command

COMMANDS = {
    "report": Command(
        "pate.lab.report.report:main", "write a page of HTML on a run", "pate report runs/mine"
    ),
}
