"""The interface of a mechanism, which selects and describes the cost, and its releases."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import partial, wraps
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate._validation import (
    BoolArray,
    FloatArray,
    IntArray,
    UInt8Array,
    require,
    require_count,
    require_positive,
)
from pate.accounting import (
    BoundedRangeEvent,
    Event,
    NeighboringRelation,
    PureDPEvent,
    RepeatedEvent,
)
from pate.mechanisms._law import Law, NotStatedError, smallest_gap
from pate.mechanisms._noise import Noise, require_generator, require_noise
from pate.mechanisms._ranking import Rows, as_batch, require_within


class Release(NamedTuple):
    """The released labels of a batch; no reason is given for entries that are not released."""

    labels: UInt8Array
    """``[Q, C]`` in {0, 1}; 0 where nothing was released."""
    mask: BoolArray
    """``[Q, C]``: which labels were released."""
    noisy_counts: FloatArray | None = None
    """``[Q, C]``: noisy counts of the teachers that gave each label, possibly below 0 or above the
    number of teachers; 0 where nothing was released. None if the aggregator releases no counts."""
    noise_std: float | None = None
    """Standard deviation of the Gaussian noise in ``noisy_counts``, in votes, above 0; None without
    them, and if they are answers of a linear model, which has all the noise."""
    tiers: IntArray | None = None
    """``[Q]``: price tiers of queries, as in `Aggregator.event`; None if all cost the same."""
    linear: bool = False
    """Whether ``noisy_counts`` are ``num_teachers`` times the answers of a linear model."""
    columns: BoolArray | None = None
    """``[F]``: the features that such a model reads; None for all of them."""
    variance_ratio: float | None = None
    """About the variance of private records over that of public samples, along directions on which
    such a model depends; None if the release does not tell."""

    @classmethod
    def of_sets(cls, chosen: IntArray, num_labels: int) -> Self:
        """Release sets of labels, given as indices ``[Q, k]``; every query is answered.

        >>> Release.of_sets(np.array([[0, 2]]), num_labels=4).labels
        array([[1, 0, 1, 0]], dtype=uint8)
        """
        labels = np.zeros((len(chosen), num_labels), dtype=np.uint8)
        np.put_along_axis(labels, chosen, 1, axis=1)
        return cls(labels, np.ones(labels.shape, dtype=np.bool_))

    @classmethod
    def of_rows(
        cls, labels: BoolArray, passed: BoolArray, tiers: NDArray[np.integer] | None = None
    ) -> Self:
        """Release labels ``[Q, C]`` of the queries that ``passed`` ``[Q]``, and no others.

        >>> majority = np.array([[True, False], [True, True]])
        >>> release = Release.of_rows(majority, np.array([True, False]))
        >>> release.labels
        array([[1, 0],
               [0, 0]], dtype=uint8)
        >>> release.mask
        array([[ True,  True],
               [False, False]])
        """
        mask = np.repeat(passed[:, None], labels.shape[1], axis=1)
        return cls(
            (labels & mask).astype(np.uint8),
            mask,
            tiers=None if tiers is None else tiers.astype(np.int64),
        )


Checks: TypeAlias = Mapping[str, Callable[..., None]]
"""By field: functions that raise ``ValueError`` on a value that is passed by keyword."""
FACTS = frozenset(
    {
        "num_teachers",
        "num_labels",
        "num_items",
        "relation",
        "shift",
        "sensitivity",
        "integer_scores",
    }
)
"""Fields that follow from the scores, not from who chooses the mechanism."""
Released_co = TypeVar("Released_co", covariant=True)


class Case(Protocol):
    """The scores for which a mechanism proposes settings, as far as they are public."""

    @property
    def k(self) -> int:
        """The number of items that are looked for. Raises ``ValueError`` if it is unknown."""

    @property
    def num_items(self) -> int:
        """The number of scores."""

    @property
    def largest(self) -> float:
        """The largest possible score: the number of teachers, of votes."""

    @property
    def delta_test(self) -> float:
        """The probability of failure that one release may add to delta."""


def _with_generator(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``__call__`` that refuses anything but a generator in its place."""

    @wraps(call)
    def checked(mechanism: Any, scores: ArrayLike, *, generator: Any = None, **others: Any) -> Any:
        require_generator(generator)
        return call(mechanism, scores, generator=generator, **others)

    return checked


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC, Generic[Released_co]):
    """A private mechanism: a call selects from scores, `event` describes the cost of a call.

    Subclasses are frozen keyword-only dataclasses, with parameters that are checked once, on
    construction. Every constant on which the cost depends is a field, so that a cost always belongs
    to the mechanism that ran.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ()
    """Names of the scales of noise, in votes: twice all of them halves the weight of a vote."""

    gap_meaning: ClassVar[str] = "A gap of {gap:.1f} votes is what a query needs to be answered,"
    """A sentence on `gap_to_answer` for votes, with the gap and settings, before a probability."""

    short_name: ClassVar[str] = ""
    """The name under which `pate topk` offers it; empty if it selects no items of a histogram."""
    ordered: ClassVar[bool] = False
    """Whether the order of the items is released, and not only their set."""
    needs_public_items: ClassVar[bool] = True
    """Whether the list of items must be public, including items without votes."""

    checks: ClassVar[Checks] = {}
    """Checks of single fields: functions of a value by keyword, which raise ``ValueError``.

    The keyword may be another name of the field, as in an aggregator. Subclasses add their own.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        inherited = (vars(base).get("checks", {}) for base in reversed(cls.__mro__))
        cls.checks = {field: check for checks in inherited for field, check in checks.items()}
        if {"__call__", "_select"} & vars(cls).keys():
            # whoever draws otherwise has another law and another accuracy
            for name in {"law", "_accuracy"} - vars(cls).keys():
                setattr(cls, name, getattr(Mechanism, name))
        if "__call__" in vars(cls):
            cls.__call__ = _with_generator(cls.__call__)  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        require_positive(**{name: getattr(self, name) for name in self.noise_parameters})
        for field, check in self.checks.items():
            check(**{field: getattr(self, field)})

    @abstractmethod
    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> Released_co:
        """Release a selection from ``scores`` ``[d]`` or ``[B, d]``, with noise."""

    @abstractmethod
    def event(self, relation: NeighboringRelation) -> Event:
        """Describe the cost of one row of scores under ``relation``."""

    def events(self) -> Mapping[NeighboringRelation, Event]:
        """Describe the cost of one row of scores under every relation that has one."""
        return {relation: self.event(relation) for relation in NeighboringRelation}

    @classmethod
    def of(cls, facts: Mapping[str, Any], **settings: Any) -> Self:
        """Return the mechanism with ``settings``, and its fields among the `FACTS`."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: fact for name, fact in facts.items() if name in names}, **settings)

    @classmethod
    def defaults(cls, case: Case) -> Sequence[Mapping[str, Any]]:
        """Return the settings worth comparing for a case, without noise; targets take the first.

        By default it is one if nothing but noise is to be set, and none otherwise.
        """
        needed = {field.name for field in fields(cls) if field.default is MISSING}
        return [{}] if needed <= FACTS.union(cls.noise_parameters) else []

    def tier_event(self, relation: NeighboringRelation, tier: int) -> Event:
        """Describe the cost of a row of a price tier (`Release.tiers`), by default any row."""
        return self.event(relation)

    def answer(self, counts: ArrayLike, *, generator: np.random.Generator) -> Release:
        """Release labels of queries by the counts ``[Q, C]`` of their votes, with noise.

        A mechanism without it makes no labels.
        """
        raise NotImplementedError(f"{type(self).__name__} makes no labels of counts")

    def choose(self, scores: ArrayLike, *, generator: np.random.Generator) -> IntArray:
        """Choose items of one histogram ``[d]``; return their indices ``[m]``, possibly none."""
        raise NotImplementedError(f"{type(self).__name__} chooses no items of a histogram")

    def max_answer_probability(self, widest: float) -> float:
        """Return a bound on the probability to answer scores within ``widest`` of one another."""
        return 1.0

    def law(self, scores: Rows) -> Law:
        """Return the law of the released sets for rows of scores ``[B, d]``, by the definition.

        The audit and the contract read it; the contract compares it with the law of its test class.

        >>> law = NoisyTopK(k=1, scale=2.0).law(np.array([[3, 2, 0]]))
        >>> law.chances.round(3)
        array([[0.547, 0.331, 0.122]])

        Raises:
            NotStatedError: if the mechanism states none, or there are too many outcomes.
        """
        raise NotStatedError(f"the law of {type(self).__name__} is not known")

    def accuracy(self, *, gap: float, num_items: int = 1) -> float:
        """Return a probability with which the answer is the same as without noise.

        Of k items these are the k largest, in any order; of at most k, all of them are listed. It
        is the smallest probability over all scores with that gap, as on a step profile,
        or a lower bound.

        Args:
            gap: the distance from the k-th largest score to the next one, in votes, at least 0.
            num_items: the number of scores d; it does not matter to a test of a gap.

        Raises:
            NotStatedError: if the mechanism does not state its accuracy.
            ValueError: on a gap that is negative or not finite, or too few items.
        """
        require(0 <= gap < math.inf, "a finite gap >= 0", gap=gap)
        self.require_items(num_items)
        return self._accuracy(gap, num_items)

    def gap_to_answer(self, *, probability: float, num_items: int = 1) -> float:
        """Return the smallest gap, in votes, at which the `accuracy` reaches ``probability``.

        Raises:
            NotStatedError: if the mechanism does not state its accuracy.
            ValueError: on a probability outside (0, 1) or that no gap reaches, or too few items.
        """
        return smallest_gap(
            lambda gap: self.accuracy(gap=gap, num_items=num_items), probability, unit=self._unit
        )

    def require_items(self, num_items: int) -> None:
        """Raise ``ValueError`` if there are too few items to choose from."""
        require_count(1, num_items=num_items)

    @property
    def _unit(self) -> float:
        """The gap, in votes, from which `gap_to_answer` searches."""
        return 1.0

    def _accuracy(self, gap: float, num_items: int) -> float:
        """Return the `accuracy` for a gap in votes; subclasses that know it define this."""
        raise NotStatedError(f"Expected a mechanism with an accuracy, got {type(self).__name__}")

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

    checks: ClassVar[Checks] = {"sensitivity": require_positive}

    sensitivity: float = 1.0

    @property
    def _unit(self) -> float:
        return self.sensitivity

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
    gap_meaning: ClassVar[str] = (
        "A gap of {gap:.1f} votes between the {k} most voted labels and the others is what a query"
        " needs to be answered as without noise,"
    )
    spare: ClassVar[int] = 0
    """The least number of items that must be left out."""

    k: int
    scale: float

    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> IntArray:
        """Select from ``scores`` ``[d]`` or ``[B, d]``; return indices ``[k]`` or ``[B, k]``.

        Raises:
            ValueError: on scores that are not finite numbers, or too few for k.
        """
        rows, single = as_batch(scores)
        self.require_items(rows.shape[1])
        chosen = self._select(rows, generator)
        return chosen[0] if single else chosen

    @classmethod
    def defaults(cls, case: Case) -> Sequence[Mapping[str, Any]]:
        return [{"k": case.k}] if case.k <= case.num_items - cls.spare else []

    def answer(self, counts: ArrayLike, *, generator: np.random.Generator) -> Release:
        return Release.of_sets(self(counts, generator=generator), np.shape(counts)[1])

    def choose(self, scores: ArrayLike, *, generator: np.random.Generator) -> IntArray:
        return self(scores, generator=generator)

    def accuracy(self, *, gap: float, num_items: int = 1) -> float:
        everything = self.k == num_items and not self.spare and 0 <= gap < math.inf
        return 1.0 if everything else super().accuracy(gap=gap, num_items=num_items)

    def require_items(self, num_items: int) -> None:
        require_count(1, num_items=num_items)
        require_within(num_items, spare=self.spare, k=self.k)

    @property
    def _unit(self) -> float:
        return self.scale

    @abstractmethod
    def _select(self, rows: Rows, generator: np.random.Generator) -> IntArray:
        """Select from scores ``[B, d]``; return indices ``[B, k]``."""


def choice_event(
    relation: NeighboringRelation, *, eta: float, noise: Noise, count: int = 1
) -> Event:
    """Describe ``count`` choices of the largest noisy score.

    The scores move within ``eta`` times the noise scale.

    One choice is ``eta``-bounded range with Gumbel noise (Durfee & Rogers (2019); Dong, Durfee &
    Rogers (2020)) and ``eta``-pure DP with any other law of noise (Shekelyan & Loukides (2022)).
    """
    require_noise(noise=noise)
    choice: Event = (
        BoundedRangeEvent(neighboring_relation=relation, eta=eta)
        if noise == "gumbel"
        else PureDPEvent(neighboring_relation=relation, epsilon=eta)
    )
    return choice if count == 1 else RepeatedEvent(event=choice, count=count)
