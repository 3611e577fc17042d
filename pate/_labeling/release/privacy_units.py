"""For whom the releases of a run are priced: its units, the name of their groups, its teachers."""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import Any

from pate._core.accounting.history import EACH, PrivacyUnit
from pate._labeling.data.source import DataSource
from pate._labeling.runs.released import sealing_key
from pate._labeling.runs.run import TEACHERS_FIT, Run, StageState, first_stage
from pate._labeling.teachers import uses_groups


def unit_of(run: Run) -> PrivacyUnit:
    """Return for whom the releases of a run are priced, whose first stage has begun.

    Raises ``ValueError`` if its key is missing.
    """
    return unit_by(run.begun(first_stage(run)), sealing_key(run))


def unit_by(first: StageState, key: bytes) -> PrivacyUnit:
    """Return for whom the releases of a run are priced, by its first stage and its key."""
    settings = first.inputs.settings
    if "votes" in first.inputs.digests:  # imported
        return PrivacyUnit(
            unit=str(settings.get("unit", "record")),
            partition=_keyed(key, json.dumps(["imported votes", first.begun])),
        )
    return _unit(settings, first.grouping, first.begun, key)


def planned_unit(run: Run, plan: Any, data: DataSource) -> PrivacyUnit:
    """Return for whom a run will release, as far as it is known before its first stage.

    Args:
        run: the run.
        plan: the plan of its teachers.
        data: the source of its records.
    """
    if run.state(TEACHERS_FIT) is not None and not run.overwrite:
        return unit_of(run)
    grouping = data.grouping if uses_groups(plan) else None
    # no run has this key
    return _unit(vars(plan), grouping, 0, secrets.token_bytes(16))


def _unit(settings: Any, grouping: str | None, begun: int, key: bytes) -> PrivacyUnit:
    names = ("num_teachers", "unit", "max_teachers_per_group")
    number, unit, most = (settings.get(name) for name in names)
    each = number is None and most is None
    return PrivacyUnit(
        unit=unit,
        grouping=grouping,
        partition=EACH if each else _keyed(key, json.dumps([number, unit, most, begun])),
        max_teachers_per_group=most if grouping else None,
    )


def _keyed(key: bytes, text: str) -> str:
    return hashlib.blake2b(text.encode(), key=key, digest_size=8, person=b"partition").hexdigest()
