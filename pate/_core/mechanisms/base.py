"""The interface of a mechanism: it selects, describes its cost, and states its law.

First the interface; then the cost and the laws that several mechanisms share. Laws share no code
with samplers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import partial, wraps
from itertools import combinations
from typing import (
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    assert_never,
)

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import comb

from pate._core.accounting.cost import NeighboringRelation
from pate._core.accounting.events import BoundedRangeEvent, Event, PureDPEvent, RepeatedEvent
from pate._core.mechanisms.exact_choice import as_batch, require_within
from pate._core.mechanisms.noise import (
    ChoiceNoise,
    Noise,
    require_generator,
    require_noise,
)
from pate._core.validation import (
    BoolArray,
    FloatArray,
    IntArray,
    Rows,
    UInt8Array,
    require_count,
    require_positive,
)


class NotStatedError(ValueError):
    """A law that a mechanism does not state, or one of too many outcomes."""


class Law(NamedTuple):
    """A mechanism's probabilities of releasing sets of items, for each row of scores."""

    chances: FloatArray
    """``[B, m]``: the probability of each of m sets."""
    members: BoolArray
    """``[m, d]``, or ``[B, m, d]`` if rows have different sets: which items are in them. Sets in
    different columns always differ."""
    nothing: FloatArray | None = None
    """``[B]``: the probability that nothing is released. None where a set always is."""


class Release(NamedTuple):
    """The released labels of a batch. No reason is given for entries that are not released."""

    labels: UInt8Array
    """``[Q, C]`` in {0, 1}; 0 where nothing was released."""
    mask: BoolArray
    """``[Q, C]``: which labels were released."""
    noisy_counts: FloatArray | None = None
    """``[Q, C]``: noisy counts of the teachers that gave each label, possibly below 0 or above the
    number of teachers; 0 where nothing was released. None if the aggregator releases no counts."""
    noise_std: float | None = None
    """Standard deviation of the Gaussian noise in ``noisy_counts``, in votes, above 0. None without
    them, and if they are answers of a linear model, which has all the noise."""
    tiers: IntArray | None = None
    """``[Q]``: price tiers of queries, as in `Aggregator.event`. None if all cost the same."""
    linear: bool = False
    """Whether ``noisy_counts`` are ``num_teachers`` times the answers of a linear model."""
    columns: BoolArray | None = None
    """``[F]``: the features that such a model reads. None for all of them."""
    variance_ratio: float | None = None
    """About the variance of private records over that of public samples, along directions on which
    such a model depends. None if the release does not tell."""

    @classmethod
    def of_sets(cls, chosen: IntArray, num_labels: int) -> Self:
        """Release sets of labels, given as indices ``[Q, k]``. Every query is answered.

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
    }
)
"""Fields that follow from the scores, not from who chooses the mechanism."""
Released_co = TypeVar("Released_co", covariant=True)


class Case(Protocol):
    """The public facts about scores that a mechanism proposes settings for."""

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
    construction. Every constant that affects the cost is a field, so that a cost always belongs
    to the mechanism that ran.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ()
    """Names of the scales of noise, in votes: twice all of them halves the weight of a vote."""

    checks: ClassVar[Checks] = {}
    """Checks of single fields: functions of a value by keyword, which raise ``ValueError``.

    The keyword may be another name of the field, as in an aggregator. Subclasses add their own.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        inherited = (vars(base).get("checks", {}) for base in reversed(cls.__mro__))
        cls.checks = {field: check for checks in inherited for field, check in checks.items()}
        if {"__call__", "_select"} & vars(cls).keys() and "law" not in vars(cls):
            # a subclass that draws otherwise has another law
            cls.law = Mechanism.law  # type: ignore[method-assign]
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

    def require_items(self, num_items: int) -> None:
        """Raise ``ValueError`` if there are too few items to choose from."""
        require_count(1, num_items=num_items)

    def scaled(self, factor: float) -> Self:
        """Return the same mechanism with ``factor`` times its noise."""
        return replace(
            self, **{name: factor * getattr(self, name) for name in self.noise_parameters}
        )


@dataclass(frozen=True, kw_only=True)
class ScoreMechanism(Mechanism[Released_co]):
    """A mechanism on scores of any sensitivity.

    Attributes:
        sensitivity: the largest change of one score between neighbors, 1 for votes and counts
            of users. Under ADD_REMOVE_TEACHER, where one teacher (or user) takes part or does not,
            all scores change in one direction. Scales of noise are in the unit of the scores,
            whatever the sensitivity.

    Raises:
        ValueError: on ``sensitivity <= 0``.
    """

    checks: ClassVar[Checks] = {"sensitivity": require_positive}

    sensitivity: float = 1.0

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

    def require_items(self, num_items: int) -> None:
        require_count(1, num_items=num_items)
        require_within(num_items, spare=self.spare, k=self.k)

    @abstractmethod
    def _select(self, rows: Rows, generator: np.random.Generator) -> IntArray:
        """Select from scores ``[B, d]``; return indices ``[B, k]``."""


def subclasses_of(cls: type[Any]) -> Iterator[type[Any]]:
    """Yield the subclasses of a class, at any depth, that the package defines."""
    for subclass in cls.__subclasses__():
        if subclass.__module__.startswith("pate."):
            yield subclass
        yield from subclasses_of(subclass)


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


MOST_OUTCOMES = 4096
"""How many sets are listed."""
MOST_FLIPPED = 128
"""The same where each chance is an integral over all others, as with exponential noise."""


def sets_of(num_items: int, k: int, noise: ChoiceNoise) -> IntArray:
    """Return all sets of k items as ascending indices ``[m, k]``.

    Raises:
        NotStatedError: if there are more than are listed.
    """
    require_few(math.comb(num_items, k), noise)
    return np.array(list(combinations(range(num_items), k)))


def members_of(items: IntArray, num_items: int) -> BoolArray:
    """Return which of ``num_items`` items are in each row of indices, ``[m, d]``."""
    members = np.zeros((len(items), num_items), dtype=np.bool_)
    np.put_along_axis(members, items, True, axis=1)
    return members


def by_items(chances: FloatArray, sets: IntArray, order: IntArray) -> tuple[FloatArray, BoolArray]:
    """Return chances ``[B, m]`` of sets of items, and members ``[m, d]``, the same for all rows.

    Args:
        chances: ``[B, m]``, the chances of sets of ranks.
        sets: ``[m, k]``, all sets of k ranks.
        order: ``[B, d]``, the item of each rank.
    """
    num_items, k = order.shape[1], sets.shape[1]
    below = comb(np.arange(num_items)[:, None], np.arange(1, k + 1))

    def number(items: IntArray) -> IntArray:
        return np.asarray(below[np.sort(items, axis=-1), np.arange(k)].sum(axis=-1), dtype=np.int64)

    of_items = np.empty_like(chances)
    np.put_along_axis(of_items, number(order[:, sets]), chances, axis=1)
    return of_items, members_of(sets[np.argsort(number(sets))], num_items)


def require_few(outcomes: int, noise: ChoiceNoise) -> None:
    """Raise `NotStatedError` if there are more outcomes than are listed."""
    most = MOST_OUTCOMES if noise == "gumbel" else MOST_FLIPPED
    if outcomes > most:
        raise NotStatedError(f"a query has {outcomes:,} outcomes, and {most:,} are listed at most")


def choice_law(utilities: Rows, noise: ChoiceNoise) -> FloatArray:
    """Return the chances ``[B, m]`` of the largest of ``utilities`` with noise of scale 1."""
    weights = np.exp(utilities - utilities.max(axis=1, keepdims=True))
    if noise == "gumbel":
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))
    if noise != "exponential":
        assert_never(noise)
    # permute and flip: an outcome comes at a uniform time, and is taken if no coin before it showed
    # heads
    nodes, parts = np.polynomial.legendre.leggauss(utilities.shape[1] // 2 + 1)
    chances = np.zeros(utilities.shape)
    for time, part in zip((nodes + 1) / 2, parts / 2, strict=True):
        still = np.log1p(-weights * time)
        chances += part * weights * np.exp(still.sum(axis=1, keepdims=True) - still)
    return chances


def peeling_law(scores: Rows, k: int, scale: float, noise: ChoiceNoise) -> Law:
    """Return the law of k items chosen one by one. Any member of a set may come last."""
    num_items = scores.shape[1]
    require_few(sum(math.comb(num_items, size) for size in range(1, k + 1)), "gumbel")
    chances: dict[tuple[int, ...], FloatArray] = {(): np.ones(len(scores))}
    for _ in range(k):
        longer: dict[tuple[int, ...], FloatArray] = {}
        for chosen, chance in chances.items():
            left = [item for item in range(num_items) if item not in chosen]
            for item, part in zip(left, choice_law(scores[:, left] / scale, noise).T, strict=True):
                members = tuple(sorted((*chosen, item)))
                longer[members] = longer.get(members, 0.0) + chance * part
        chances = longer
    return Law(np.column_stack(list(chances.values())), members_of(np.array([*chances]), num_items))
