"""A page of HTML on a run, and its disclosure."""

from pate._labeling.commands.table import Command

COMMANDS = {
    "report": Command(
        "pate.lab.report.command:main", "write a page of HTML on a run", "pate report runs/mine"
    ),
}
