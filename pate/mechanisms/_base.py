"""The interface of a mechanism: one object that both selects and describes the cost of selecting."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Generic, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from pate._typing import IntArray
from pate._validation import require_count, require_positive
from pate.accounting._events import BoundedRangeEvent, Event, PureDPEvent, RepeatedEvent
from pate.accounting._relation import NeighboringRelation
from pate.mechanisms._noise import Noise
from pate.mechanisms._ranking import Rows, as_rows, require_within

Checks: TypeAlias = Mapping[str, Callable[..., None]]
"""Of fields by name: functions that raise ``ValueError`` on a value that is passed to them by keyword."""
Released_co = TypeVar("Released_co", covariant=True)


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC, Generic[Released_co]):
    """A private mechanism: call it with scores and a generator to select; `event` describes the cost of a call.

    Subclasses are frozen keyword-only dataclasses whose parameters are checked once, on
    construction. Every constant on which the cost depends is a field, so that a cost always belongs
    to the mechanism that ran.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ()
    """Names of the fields that are scales of noise, in votes: doubling all of them halves the weight of a vote."""

    checks: ClassVar[Checks] = {}
    """What fields must be one by one: functions that take a value by whatever name an aggregator has for it, and raise
    ``ValueError``. Subclasses add theirs."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        inherited = (vars(base).get("checks", {}) for base in reversed(cls.__mro__))
        cls.checks = {field: check for checks in inherited for field, check in checks.items()}

    def __post_init__(self) -> None:
        require_positive(**{name: getattr(self, name) for name in self.noise_parameters})
        for field, check in self.checks.items():
            check(**{field: getattr(self, field)})

    @abstractmethod
    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> Released_co:
        """Release a selection from ``scores``, ``[d]`` or a batch ``[B, d]``, with noise from ``generator``."""

    @abstractmethod
    def event(self, relation: NeighboringRelation) -> Event:
        """Describe the cost of one row of scores under ``relation``."""

    def events(self) -> Mapping[NeighboringRelation, Event]:
        """Describe the cost of one row of scores under every relation for which it can be stated."""
        return {relation: self.event(relation) for relation in NeighboringRelation}

    def scaled(self, factor: float) -> Self:
        """Return the same mechanism with ``factor`` times its noise."""
        return replace(
            self, **{name: factor * getattr(self, name) for name in self.noise_parameters}
        )


@dataclass(frozen=True, kw_only=True)
class ScoreMechanism(Mechanism[Released_co]):
    """A mechanism on scores of any sensitivity.

    Attributes:
        sensitivity: the most by which one score changes between neighbors, 1 for votes and counts
            of users. Under ADD_REMOVE_TEACHER, where one teacher (or user) takes part or does not,
            all scores change in one direction. Scales of noise are in the unit of the scores,
            whatever the sensitivity.

    Raises:
        ValueError: on ``sensitivity <= 0``.
    """

    sensitivity: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(sensitivity=self.sensitivity)

    def window(self, relation: NeighboringRelation) -> float:
        """Return the width of the window within which all scores move together, in their unit."""
        return relation.score_range * self.sensitivity


@dataclass(frozen=True, kw_only=True)
class TopKMechanism(ScoreMechanism[IntArray]):
    """Select k of d items with noise of one scale.

    Attributes:
        k: number of items, 1..d (at most ``d - spare``).
        scale: scale of the noise, in the unit of the scores (votes).

    Raises:
        ValueError: on ``k < 1``, ``scale <= 0``, ``sensitivity <= 0`` or, if there is a choice of
            noise, an unknown one.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("scale",)
    checks: ClassVar[Checks] = {"k": partial(require_count, 1)}
    spare: ClassVar[int] = 0
    """The least number of items that must be left out."""

    k: int
    scale: float

    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> IntArray:
        """Select from ``scores`` ``[d]`` or ``[B, d]``; return indices of items, int64 ``[k]`` or ``[B, k]``.

        Raises:
            ValueError: on scores that are not finite numbers, or too few for k.
        """
        rows, single = as_rows(scores)
        require_within(rows.shape[1], spare=self.spare, k=self.k)
        chosen = self._select(rows, generator)
        return chosen[0] if single else chosen

    @abstractmethod
    def _select(self, rows: Rows, generator: np.random.Generator) -> IntArray:
        """Select from scores ``[B, d]``; return indices ``[B, k]``."""


def choice_event(
    relation: NeighboringRelation, *, eta: float, noise: Noise, count: int = 1
) -> Event:
    """Describe ``count`` choices of the largest noisy score, whose scores move within ``eta`` times the noise scale.

    One choice is ``eta``-bounded range with Gumbel noise (Durfee & Rogers (2019); Dong, Durfee &
    Rogers (2020)) and ``eta``-pure DP with any other law of noise (Shekelyan & Loukides (2022)).
    """
    choice: Event = (
        BoundedRangeEvent(neighboring_relation=relation, eta=eta)
        if noise == "gumbel"
        else PureDPEvent(neighboring_relation=relation, epsilon=eta)
    )
    return choice if count == 1 else RepeatedEvent(event=choice, count=count)
