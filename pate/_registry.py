"""Functions and classes of a higher zone, which a lower one finds by name and never imports.

So labels, top k, ledgers and linear teachers need no torch: it is imported by what trains networks.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

HIGHER = {
    "TeacherPlan": "pate.teachers._plan:TeacherPlan",
    "fit_teachers": "pate._stages.teachers_fit:fit_teachers",
    "drop_chunks": "pate._stages.teachers_fit:drop_chunks",
    "vote_teachers": "pate._stages.teachers_vote:vote_teachers",
    "make_references": "pate._stages.references:make_references",
    "SiloSum": "pate._silos.invitation:SiloSum",
    "label_silos": "pate._stages.silos:label_silos",
}
"""Where each of them is, as ``module:name``."""


def find(name: str) -> Any:
    """Import the function or class ``name`` of a higher zone."""
    module, _, member = HIGHER[name].partition(":")
    return getattr(import_module(module), member)
