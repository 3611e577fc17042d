"""A privacy budget: the limit on the total cost of all releases from one private data set."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from pate._validation import require, require_count, require_in_open_unit_interval, require_positive
from pate.accounting._cost import NeighboringRelation

FilterName = Literal["renyi", "gaussian", "mixed"]
"""The kinds of filter: `RenyiFilter`, `GaussianFilter` and `MixedFilter`."""


class BudgetExceededError(ValueError):
    """A release would take the total cost beyond a budget, or beyond a delta that can be stated."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The limit on the total cost of all releases from one private data set.

    >>> relation = NeighboringRelation.REPLACE_RECORD
    >>> budget = Budget(max_epsilon=2.0, delta=1e-6, neighboring_relation=relation)
    >>> budget.to_dict()["max_epsilon"]
    2.0

    Args:
        max_epsilon: the largest total epsilon.
        delta: the delta at which ``max_epsilon`` holds.
        neighboring_relation: the relation under which it holds.
        max_delta0: the part of ``delta`` set aside for failures, such as a stability test that
            passes wrongly. None for a tenth of it, or, if that is more, for the failures of the
            first release repeated until the budget is spent.
        filter: the filter that keeps all releases within the budget. None for the one that admits
            the first release most often.
        max_teachers_per_unit: the number of teachers that a unit may reach in each release for
            which it holds.
    """

    max_epsilon: float
    delta: float
    neighboring_relation: NeighboringRelation
    max_delta0: float | None = None
    filter: FilterName | None = None
    max_teachers_per_unit: int = 1

    @classmethod
    def declared(
        cls,
        max_epsilon: float | None,
        *,
        delta: float,
        neighboring_relation: NeighboringRelation,
        max_delta0: float | None,
        budget_filter: FilterName | None,
        max_teachers_per_unit: int,
    ) -> Budget | None:
        """Return the budget that a command declares; None without ``max_epsilon``.

        Raises ``ValueError`` if another option of a budget comes without ``max_epsilon``.
        """
        if max_epsilon is not None:
            return cls(
                max_epsilon=max_epsilon,
                delta=delta,
                neighboring_relation=neighboring_relation,
                max_delta0=max_delta0,
                filter=budget_filter,
                max_teachers_per_unit=max_teachers_per_unit,
            )
        for name, value in (("max_delta0", max_delta0), ("budget_filter", budget_filter)):
            require(value is None, f"max_epsilon with {name}", **{name: value})
        return None

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "neighboring_relation", NeighboringRelation(self.neighboring_relation)
        )
        require_positive(max_epsilon=self.max_epsilon)
        require_in_open_unit_interval(delta=self.delta)
        require_count(1, max_teachers_per_unit=self.max_teachers_per_unit)
        filters = (None, *get_args(FilterName))
        require(
            self.filter in filters,
            f"a filter among {', '.join(get_args(FilterName))}",
            filter=self.filter,
        )
        if self.max_delta0 is not None:
            require(
                0 <= self.max_delta0 < self.delta,
                f"0 <= max_delta0 < {self.delta}",
                max_delta0=self.max_delta0,
            )
        for name in ("max_epsilon", "delta", "max_delta0"):
            value = getattr(self, name)
            # JSON has no numpy scalars
            object.__setattr__(self, name, None if value is None else float(value))
        object.__setattr__(self, "max_teachers_per_unit", int(self.max_teachers_per_unit))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self) | {"neighboring_relation": self.neighboring_relation.value}
