"""Functions and classes of a higher zone, which a lower one finds by name and never imports.

So labels, top k, ledgers and linear teachers need no torch: only training of networks imports it.
"""

from importlib import import_module
from typing import Any

HIGHER = {
    "TeacherPlan": "pate.teachers._plan:TeacherPlan",
    "fit_teachers": "pate._stages.teachers:fit_teachers",
    "drop_chunks": "pate._stages.teachers:drop_chunks",
    "vote_teachers": "pate._stages.teachers:vote_teachers",
    "count_votes": "pate._stages.teachers:count_votes",
    "as_module": "pate.data.features._modules:as_module",
    "ModulePredictor": "pate.student._answers:ModulePredictor",
    "restore_module": "pate.student._answers:restore_module",
    "export_program": "pate.student._answers:export_program",
    "encode_makers": "pate._stages.student:encode_makers",
    "run_student": "pate._stages.student:run_student",
    "network_of_truth": "pate._stages.student:network_of_truth",
    "rehearse_student": "pate._stages.student:rehearse_student",
    "run_network_command": "pate._commands.student_network:run_network_command",
    "read_network_fit": "pate._commands.student_network:read_network_fit",
    "SiloSum": "pate._silos.server:SiloSum",
    "label_silos": "pate._silos.server:label_silos",
    "prove": "pate._audit.whole:prove",
}
"""The place of each of them, as ``module:name``."""


def find(name: str) -> Any:
    """Import the function or class ``name`` of a higher zone."""
    module, _, member = HIGHER[name].partition(":")
    return getattr(import_module(module), member)
