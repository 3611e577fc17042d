"""The public facts of a planned task: the sizes of its data, and the accuracy of one teacher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import beta

from pate._validation import FloatArray, require, require_count, require_in_open_unit_interval

_FEWEST_RECORDS = 5  # of one teacher
_SMALLEST, _LARGEST = 50, 12_800  # numbers of teachers that are tried


@dataclass(frozen=True, kw_only=True)
class TaskFacts:
    """The facts of a task that are public before anything private is touched.

    Args:
        num_records: number of private records, a public figure.
        num_labels: number of labels.
        num_public: number of public samples that can be queried.
        label_density: the share of records that have a label: one share for each label, or one
            number, around which labels spread as in usual data sets (a beta distribution with
            parameters that add up to 2).
        num_features: number of features that a teacher and the student learn from, such as the
            outputs of a frozen network.
        unit: the protected unit, ``record`` or ``group``; a group's records go to one teacher.
        records_per_group: average number of records of a group. 1 with the unit ``record``.
        curve: accuracy of one teacher by its number of training records, from public data, from the
            literature or guessed. Never take it from the private records: the plan would be as
            private as they are. None for a linear model of labels of medium difficulty.

    Raises:
        ValueError: on facts out of range, or if the numbers of shares and labels differ.
    """

    num_records: int
    num_labels: int
    num_public: int
    label_density: float | list[float] = 0.2
    num_features: int = 100
    unit: Literal["record", "group"] = "record"
    records_per_group: float = 1.0
    curve: dict[int, float] | None = None

    def __post_init__(self) -> None:
        require_count(
            1,
            num_labels=self.num_labels,
            num_features=self.num_features,
            num_public=self.num_public,
        )
        require_count(2 * _FEWEST_RECORDS, num_records=self.num_records)
        if isinstance(self.label_density, Sequence):
            require(
                len(self.label_density) == self.num_labels,
                f"{self.num_labels} shares, one for each label",
                label_density=len(self.label_density),
            )
            require_in_open_unit_interval(
                **{f"label_density[{i}]": share for i, share in enumerate(self.label_density)}
            )
        else:
            require_in_open_unit_interval(label_density=self.label_density)
        require(self.unit in ("record", "group"), "unit in record, group", unit=self.unit)
        require(
            self.records_per_group >= 1,
            "records_per_group >= 1",
            records_per_group=self.records_per_group,
        )
        require(
            self.unit == "group" or self.records_per_group == 1,
            "`unit` group with records_per_group above 1",
            records_per_group=self.records_per_group,
        )
        if self.curve is not None:
            _require_curve(self.curve)

    @property
    def densities(self) -> FloatArray:
        """The share of records that have each label, ``[C]``, ascending unless given one by one."""
        if isinstance(self.label_density, Sequence):
            return np.asarray(self.label_density, dtype=np.float64)
        middles = (np.arange(self.num_labels) + 0.5) / self.num_labels
        quantiles = beta.ppf(middles, 2 * self.label_density, 2 * (1 - self.label_density))
        return np.asarray(quantiles.clip(1e-4, 1 - 1e-4), dtype=np.float64)

    @property
    def spectrum(self) -> FloatArray:
        """The share ``[F]`` of the features' variance along each direction: ``1, 1/2, 1/3 ...``."""
        shares = 1 / np.arange(1, self.num_features + 1, dtype=np.float64)
        return np.asarray(shares / shares.sum())

    @property
    def num_units(self) -> int:
        """The number of records, or of groups."""
        return int(self.num_records / self.records_per_group)

    @property
    def num_voters(self) -> tuple[int, ...]:
        """Numbers of closed-form teachers: one per group, or per five records and per record."""
        return (
            (self.num_units,)
            if self.unit == "group"
            else (self.num_units // _FEWEST_RECORDS, self.num_units)
        )

    def grid(self) -> tuple[int, ...]:
        """Return numbers of teachers that double from 50 to 12,800, or as far as the records allow.

        Raises:
            ValueError: if there are not enough records for 50 teachers.
        """
        # each teacher has a group, and five records, on average
        most = int(self.num_records / max(self.records_per_group, _FEWEST_RECORDS))
        require(
            most >= _SMALLEST, f"records for {_SMALLEST} teachers (or `num_teachers`)", at_most=most
        )
        doublings = range(int(np.log2(min(most, _LARGEST) / _SMALLEST) + 1e-9) + 1)
        return tuple(_SMALLEST * 2**i for i in doublings)


def _require_curve(curve: Mapping[int, float]) -> None:
    require(curve, "a curve with at least one point (records: accuracy)", curve=curve)
    for records, accuracy in curve.items():
        require_count(1, **{"curve: records": records})
        require(
            0.5 < accuracy < 1,
            f"an accuracy between 0.5 and 1 at {records} records",
            accuracy=accuracy,
        )
