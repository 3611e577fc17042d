"""Audits of runs: lower bounds on epsilon from canaries and from published files.

Nothing here protects a record.
"""

from pate._labeling.commands.table import Command

COMMANDS = {
    "audit": Command(
        "pate.lab.audit.whole:main",
        "test how well canaries in a copy of a recipe are detected (NOT PRIVATE)",
        "pate audit configs/table --output audits/table --label.target_epsilon 4",
    ),
}
