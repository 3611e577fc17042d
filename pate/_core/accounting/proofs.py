"""An accountant is one way to prove an epsilon of composed events. Each has its module.

`renyi` has the best order, `gaussian` Gaussian mechanisms and many bits, `optimum` equal rounds and
releases in their order. `pate._core.accounting.accountant` names those that a total is the smallest
of. To add one, write a subclass of `Accountant`, name it there, and give `Guarantee` the figures of
its proof.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, NamedTuple

from pate._core.accounting.base import Event, leaves
from pate._core.accounting.cost import Cost, remaining_delta
from pate._core.validation import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """A proven (epsilon, delta), and the figures of its proof.

    Attributes:
        epsilon: the proven epsilon; infinite if there is none.
        delta: its delta.
        delta0: the part of ``delta`` that the failures take.
        order: the Renyi order of a proof by the curve; ``rdp`` is the value of the curve there.
        mu: the Gaussian mechanism of a proof by Gaussian differential privacy.
        width: the common width of the weights, if the proof by ``mu`` counts many bits.
        rounds: the number of rounds of a proof by the optimum of equal rounds.
        in_order: the number of steps of a proof by the optimum of releases in their order.
    """

    epsilon: float
    delta: float
    delta0: float
    order: float | None = None
    rdp: float | None = None
    mu: float | None = None
    width: float | None = None
    rounds: int | None = None
    in_order: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types: the figures of the proof, with None for an infinite epsilon."""
        figures = {name: value for name, value in asdict(self).items() if value is not None}
        return figures | {"epsilon": self.epsilon if math.isfinite(self.epsilon) else None}

    @classmethod
    def from_dict(cls, figures: Mapping[str, Any]) -> Guarantee:
        """Return the guarantee that `to_dict` described; keys of other names are ignored.

        >>> guarantee = Guarantee(epsilon=1.0, delta=1e-6, delta0=0.0)
        >>> guarantee == Guarantee.from_dict(guarantee.to_dict())
        True
        """
        values = {field.name: figures[field.name] for field in fields(cls) if field.name in figures}
        return cls(
            **values | {"epsilon": math.inf if figures["epsilon"] is None else figures["epsilon"]}
        )


class Composed(NamedTuple):
    """Events under one relation, composed in order.

    Attributes:
        batches: events, each with its count.
        cost: their sum on ``orders``.
        orders: Renyi orders, ``[K]``.
        in_order: whether the events were fixed beforehand and happen in this order.
    """

    batches: Sequence[tuple[Sequence[Event], IntArray]]
    cost: Cost
    orders: FloatArray
    in_order: bool = False

    def parts(self) -> Iterator[tuple[Event, int]]:
        """Yield the events as (event, count), in order."""
        for events, counts in self.batches:
            yield from zip(events, map(int, counts), strict=True)

    def leaves(self) -> Iterator[tuple[Event, int]]:
        """Yield the basic events as (event, count), in order."""
        for event, count in self.parts():
            yield from leaves(event, count)

    def left(self, delta: float) -> float:
        """Return the part of ``delta`` that failures leave; 0 or less if there is none."""
        return remaining_delta(delta, self.cost.log_survival)

    def with_failures(self, delta: float) -> float:
        """Return the delta of everything, from the ``delta`` of all but the failures."""
        return self.cost.delta0 + math.exp(self.cost.log_survival) * delta

    def proven(self, epsilon: float, delta: float, **figures: Any) -> Guarantee:
        """Return the guarantee with the figures of its proof."""
        return Guarantee(epsilon=epsilon, delta=delta, delta0=self.cost.delta0, **figures)


class Term(NamedTuple):
    """A basic event of a sum: the number of times that it happens, and its cost at one order."""

    event: Event
    times: int
    cost: Cost


class ProofText(NamedTuple):
    """The words of a proof, for the arithmetic of a statement.

    Attributes:
        method: the method, for the heading.
        prices: the price of each term in figures of the method, or nothing.
        total: the sum in figures of the method.
        formulas: the lines from the sum to epsilon.
    """

    method: str
    prices: Sequence[str]
    total: str
    formulas: tuple[str, ...]


LEFT = "    d = (delta - delta0) / (1 - delta0)"
"""The formula of the delta that failures leave."""


class Accountant(ABC):
    """A way to prove an epsilon of composed events."""

    figures: ClassVar[tuple[str, ...]] = ()
    """The fields of a `Guarantee` that its proofs fill in, and no other accountant's do."""
    theorem: ClassVar[str] = ""
    """Its part of the sentence on the theorems behind the figures of a statement."""
    only_where_used: ClassVar[bool] = False
    """Whether that sentence names it only where one of its proofs is the best."""

    @abstractmethod
    def supports(self, event: Event) -> bool:
        """Return whether it knows a price of a basic event (`leaves`)."""

    def unsupported(self, events: Iterable[Event]) -> list[str]:
        """Return the names of the kinds of basic events without a price, in order."""
        kinds = dict.fromkeys(
            type(leaf).__name__
            for event in events
            for leaf, times in leaves(event)
            if times and not self.supports(leaf)
        )
        return list(kinds)

    @abstractmethod
    def guarantee(
        self, composed: Composed, *, delta: float, below: float = math.inf
    ) -> Guarantee | None:
        """Return the smallest epsilon at ``delta`` that it proves.

        None without a proof, or if another accountant has proved an epsilon ``below`` it.
        """

    def get_delta(self, composed: Composed, epsilon: float) -> float:
        """Return the smallest delta at ``epsilon`` that it proves; 1 or more without a proof."""
        return 1.0

    def words(self, guarantee: Guarantee, terms: Sequence[Term]) -> ProofText:
        """Return the words of a proof of its own."""
        raise NotImplementedError(f"{type(self).__name__} is in no statement")
