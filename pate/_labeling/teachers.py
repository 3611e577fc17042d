"""The plan of teachers, and where they are trained: public settings, without torch.

`ClosedFormPlan` makes linear teachers without training; that of networks is `pate.TeacherPlan`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, get_args

from pate._core.validation import MOST_VOTERS, StrArray, given, require, require_count
from pate._labeling.data.records import Records, Unit, parts_of_groups

CLOSED_FORM = "closed_form"
"""The value of ``fit`` in the ``teachers.yaml`` of a `ClosedFormPlan`."""
FIRST = "first"
"""The value of ``start_from`` for the run's own first release, and the folder of that release."""


class Plan(Protocol):
    """The plan of teachers: a `ClosedFormPlan`, or a `pate.TeacherPlan` of networks."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def unit(self) -> Unit:
        """The protected unit: a record or a group."""

    @property
    def max_teachers_per_group(self) -> int | None:
        """The largest number of teachers that a group reaches, where records are protected."""

    @property
    def num_teachers(self) -> int | None:
        """The number of teachers. None for one of each record or group, or a number to be found."""

    @property
    def start_from(self) -> str | None:
        """The released student that teachers start from, if any."""


def assigned_units(records: Records, plan: Plan, key: bytes) -> StrArray:
    """Return the name ``[N]`` that assigns each record to a teacher, or votes.

    It is the id or the group of the record or, with a bound on the teachers of a group, its part of
    the group: a function of this record alone.

    Raises like `Records.units`.
    """
    most = plan.max_teachers_per_group
    if most is None:
        return records.units(plan.unit)
    return parts_of_groups(records.ids, records.units("group"), most, key=key)


def uses_groups(plan: Plan) -> bool:
    """Return whether teachers, or the price of their release, depend on groups of records."""
    return plan.unit == "group" or plan.max_teachers_per_group is not None


def require_bound(plan: Plan) -> None:
    """Raise ``ValueError`` unless a bound on the teachers of a group comes with records."""
    most = plan.max_teachers_per_group
    require_count(1, **given(max_teachers_per_group=most))
    require(
        most is None or plan.unit == "record",
        "unit: record with max_teachers_per_group",
        unit=plan.unit,
    )


def require_factory(make: Callable[..., Any]) -> None:
    """Raise ``ValueError`` if a network is given in place of its class or factory."""
    # a network can also be called, with records
    shared = hasattr(make, "state_dict") and not isinstance(make, type)
    require(
        not shared,
        "something that makes a network; with settings, functools.partial",
        network=f"a network that is made, {type(make).__name__}",
    )


def start_place(start_from: str | None) -> str | None:
    """Return ``start_from`` of a plan, with an absolute path."""
    return start_from if start_from in (None, FIRST) else str(Path(start_from).absolute())


@dataclass(frozen=True, kw_only=True)
class ClosedFormPlan:
    """How private records vote by linear teachers in closed form.

    Nothing is trained, and no teacher is written down. These settings are public. The number of
    records is private, and counted with noise when labels are released.

    >>> ClosedFormPlan(num_teachers=100).nominal
    100

    Args:
        num_teachers: None for a teacher of each record (of each group, with ``unit: group``); or
            the number of teachers, at least 2, to which a keyed hash assigns them.
        unit: what privacy protects, a ``record`` or a ``group`` of records, such as
            all records of one person.
        max_teachers_per_group: with ``unit: record``, the largest number of teachers that the
            records of one group reach. A keyed hash of its id puts each record into one of so many
            parts of its group, and the records of a part vote together. The release is then priced
            for a group, too, and adds up with releases by the same groups. None for no bound.
        start_from: None for teachers who vote by moments; or the released student whose answers
            each of ``num_teachers`` corrects by its own records, and then votes by bits: ``first``
            for that of the run's own first release, or the folder of a run whose release is in
            the ledger of the same records.
    """

    num_teachers: int | None = None
    unit: Unit = "record"
    start_from: str | None = None
    max_teachers_per_group: int | None = None

    def __post_init__(self) -> None:
        require_bound(self)
        require_count(2, num_teachers=self.nominal)
        require(
            self.nominal <= MOST_VOTERS, f"num_teachers <= {MOST_VOTERS}", num_teachers=self.nominal
        )
        require(self.unit in get_args(Unit), f"unit in {', '.join(get_args(Unit))}", unit=self.unit)
        object.__setattr__(self, "start_from", start_place(self.start_from))

    @property
    def nominal(self) -> int:
        """The nominal number of teachers; `MOST_VOTERS` where each record or group is one."""
        return MOST_VOTERS if self.num_teachers is None else self.num_teachers


Kind = Literal["serial", "loky", "ray"]

CHUNK_SIZE = "chunk_size.json"
"""File in the teachers' folder with the final chunk size, after `auto` and the memory guard."""


def most_processes() -> int:
    """Return how many local processes may work at a time: one for each core, two at least."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    return max(2, len(cores) or os.cpu_count() or 1)


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Where jobs run. This does not affect their results.

    Workers read and write the run's folder. The resources of a Ray cluster determine how many
    workers it runs.

    >>> Execution(workers=4).kind
    'loky'

    Args:
        threads: processor threads per operation; more than one slows small networks down.
        workers: number of chunks worked on at a time; on this machine, one for each core at most.
        executor: ``serial`` in this process, ``loky`` on local workers, ``ray`` on Ray; by default
            loky if there are several workers.
        gpus: share of a GPU that each worker on Ray takes.
    """

    threads: int = 1
    workers: int = 1
    executor: Kind | None = None
    gpus: float = 0.0

    def __post_init__(self) -> None:
        require_count(1, workers=self.workers, threads=self.threads)
        if self.kind != "ray" or "RAY_ADDRESS" not in os.environ:
            object.__setattr__(self, "workers", min(self.workers, most_processes()))
        require(
            self.kind in get_args(Kind),
            f"executor in {', '.join(get_args(Kind))}",
            executor=self.kind,
        )
        require(
            self.kind != "serial" or self.workers == 1,
            "executor loky or ray for several workers",
            executor=self.kind,
        )
        require(
            self.gpus >= 0 and (not self.gpus or self.kind == "ray"),
            "gpus >= 0, only with ray",
            gpus=self.gpus,
        )

    @property
    def kind(self) -> Kind:
        """The executor, chosen by the number of workers if none is given."""
        return self.executor or ("loky" if self.workers > 1 else "serial")
