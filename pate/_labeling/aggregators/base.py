"""The interface of an aggregator: votes in, released labels out, and the event of their cost.

An aggregator is chosen from an `Outlook`, the public facts about votes, and found by its name: our
own, and the entry points of installed packages.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Self,
    TypeAlias,
)

import numpy as np

from pate._core.accounting.accountant import Target, calibrate_scale
from pate._core.accounting.charges import Charge, Events
from pate._core.accounting.cost import DEFAULT_ORDERS, NeighboringRelation
from pate._core.accounting.events import Event
from pate._core.mechanisms.base import Law, NotStatedError, Release as Release, subclasses_of
from pate._core.mechanisms.noise import WatchedGenerator, require_generator
from pate._core.package import declared
from pate._core.settings import Completable, Partial, require_made
from pate._core.validation import (
    FloatArray,
    expecting,
    require,
    require_count,
    require_flag,
    require_given,
    require_in_open_unit_interval,
    require_positive,
)
from pate._labeling.votes.kinds import Counts, Need, Votes, VoteShape, require_kind


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """The public facts about votes that decide the choice of an aggregator.

    >>> outlook = Outlook(
    ...     shape=VoteShape(num_teachers=100, num_labels=4),
    ...     num_queries=50,
    ...     delta=1e-6,
    ...     relation=NeighboringRelation.REPLACE_RECORD,
    ... )
    >>> outlook.target(2.0).num_queries
    50

    Args:
        shape: the numbers of teachers and labels.
        num_queries: number of queries asked.
        delta: the delta of the guarantee.
        relation: the relation of the guarantee.
        labels_per_sample: average number of labels of a sample, rounded. None if unknown.
    """

    shape: VoteShape
    num_queries: int
    delta: float
    relation: NeighboringRelation
    labels_per_sample: int | None = None

    def __post_init__(self) -> None:
        require_count(1, num_queries=self.num_queries)
        require_in_open_unit_interval(delta=self.delta)

    def target(self, epsilon: float) -> Target:
        """Return the target of an ``epsilon`` for all queries."""
        return Target(
            epsilon=epsilon,
            delta=self.delta,
            num_queries=self.num_queries,
            neighboring_relation=self.relation,
        )

    @property
    def k(self) -> int:
        """The number of labels that a set should have. Raises ``ValueError`` if it is unknown."""
        return require_given(
            self.labels_per_sample,
            "k (`aggregator.k`), which follows from how many labels a sample has",
        )

    @property
    def num_items(self) -> int:
        """The number of labels."""
        return self.shape.num_labels

    @property
    def largest(self) -> int:
        """The largest count, which is the number of teachers."""
        return self.shape.num_teachers

    @property
    def delta_test(self) -> float:
        """The delta of one query's stability test. All tests together take half of delta."""
        return self.delta / (2 * self.num_queries)


LEAST_ANSWERED = 0.1
"""The least share of queries that some votes have answered by a release that is paid for."""


_SMALLEST_SCALE, _LARGEST_SCALE = 1e-300, 1e300  # beyond them noise, or its cost, is no float


@dataclass(frozen=True, kw_only=True)
class Aggregator(Completable, ABC):
    """Turns votes into labels through a private mechanism, and knows what that costs.

    Plug-ins are frozen keyword-only dataclasses. Noise parameters have no defaults, and their names
    differ between classes, so that none is carried over silently when the class in a configuration
    changes.

    Settings that a target is yet to find are no aggregator: they are a `Partial` of its class.

    The number of teachers is nominal: a public constant under both relations, never measured. A
    teacher that takes no part casts a row of zeros. Neighbors under ADD_REMOVE_TEACHER are
    therefore ballots ``[T, C]`` and the same ballots with one row set to zero, and nothing that
    depends on ``T`` changes.

    Args:
        neighboring_relation: the relation that the mechanism is run for.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ()
    """Names of the scales of noise, in votes: twice all of them halves the weight of a vote."""

    offered: ClassVar[bool] = True
    """Whether it is offered by name and compared with others."""

    neighboring_relation: NeighboringRelation = NeighboringRelation.REPLACE_RECORD

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "aggregate" in vars(cls) and not {"law", "laws"} & vars(cls).keys():
            cls.law, cls.laws = Aggregator.law, Aggregator.laws  # type: ignore[method-assign]
        if "aggregate" in vars(cls):
            cls.aggregate = _when_served(cls.aggregate)  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "neighboring_relation", NeighboringRelation(self.neighboring_relation)
        )
        for field in fields(self):
            require_made(field.name, getattr(self, field.name))
        # an annotation is a text in modules that import annotations from __future__
        flags = [field.name for field in fields(self) if field.type in ("bool", bool)]
        require_flag(**{name: getattr(self, name) for name in flags})
        scales = {name: getattr(self, name) for name in self.noise_parameters}
        require_positive(**scales)
        for name, scale in scales.items():
            require(
                _SMALLEST_SCALE <= float(scale) <= _LARGEST_SCALE,
                f"{_SMALLEST_SCALE:g} <= {name} <= {_LARGEST_SCALE:g}",
                **{name: scale},
            )

    @classmethod
    def defaults(cls, outlook: Outlook) -> Sequence[Mapping[str, Any]]:
        """Return the settings worth comparing on the votes of an ``outlook``, under its relation.

        Noise that they lack is 1: only its proportions matter. By default they are one if nothing
        but noise is to be set, and none otherwise. Tests and thresholds may take half of delta.
        """
        return [{}] if set(Partial(cls).missing) <= set(cls.noise_parameters) else []

    @classmethod
    def proposals(cls, outlook: Outlook) -> tuple[Self, ...]:
        """Return instances with the `defaults` of the class, for the relation of ``outlook``."""
        common: dict[str, Any] = dict.fromkeys(cls.noise_parameters, 1.0)
        common |= {"neighboring_relation": outlook.relation}
        return tuple(cls(**common | dict(settings)) for settings in cls.defaults(outlook))

    splits_noise: ClassVar[bool] = False
    """Whether the class has a ``for_target``, as `StableTopK` has, which splits the noise."""

    takes: ClassVar[frozenset[Need]] = frozenset({Counts})
    """The `needs` of all objects of a class."""

    @property
    def needs(self) -> frozenset[Need]:
        """The kinds of votes, such as ``Counts`` or ``Ballots | Scores``, and side information.

        Votes of another kind, or without ``"predictions"`` or ``"features"`` that are needed, are
        refused before anything is drawn or spent. `Ballots` are `Counts` too. An aggregator that
        holds others needs all that they need. By default it is `takes`.
        """
        return self.takes

    def require_kind(self, kind: type[Votes]) -> None:
        """Raise ``ValueError`` in one line unless it takes votes of a ``kind``."""
        require_kind(kind, self.needs, type(self).__name__)

    @property
    def noise(self) -> dict[str, float]:
        """All scales of noise by name, in votes."""
        return {name: getattr(self, name) for name in self.noise_parameters}

    @abstractmethod
    def event(
        self, shape: VoteShape, relation: NeighboringRelation | None = None, tier: int | None = None
    ) -> Event:
        """Describe the cost of one query.

        >>> shape = VoteShape(num_teachers=100, num_labels=4)
        >>> NoisyVotes(sigma_votes=5.0).event(shape).noise_multiplier
        2.5

        Args:
            shape: the numbers of teachers and labels.
            relation: the relation of the stated cost; the aggregator's own if None. The
                mechanism is the same under both.
            tier: the price tier of the query, as in `Release.tiers`. None for the most that a query
                may cost. Ignored if all queries cost the same.

        Raises:
            ValueError: if the aggregator cannot serve the shape, or there is no such tier.
        """

    @abstractmethod
    def aggregate(self, votes: Any, *, generator: np.random.Generator) -> Release:
        """Label a whole batch of queries with noise from ``generator``.

        The subclass annotates ``votes`` with the kinds that it takes, as `needs` says them.

        Raises:
            ValueError: if the votes are of another kind, or lack side information.
        """

    def events(self, shape: VoteShape, tier: int | None = None) -> Events:
        """Describe the cost of one query under both relations, as `event` does under one."""
        return {relation: self.event(shape, relation, tier) for relation in NeighboringRelation}

    def charges(self, release: Release, shape: VoteShape) -> tuple[Charge, ...]:
        """Return the final cost of a release: events under both relations, and how often each."""
        if release.tiers is None:
            return ((self.events(shape), len(release.labels)),)
        tiers, counts = np.unique(release.tiers, return_counts=True)
        return tuple(
            (self.events(shape, tier), count)
            for tier, count in zip(tiers.tolist(), counts.tolist(), strict=True)
        )

    def scaled(self, factor: float) -> Self:
        """Return the same aggregator with ``factor`` times its noise.

        >>> NoisyVotes(sigma_votes=5.0).scaled(2.0).sigma_votes
        10.0
        """
        return replace(
            self, **{name: factor * getattr(self, name) for name in self.noise_parameters}
        )

    def calibrated(
        self,
        target: Target,
        shape: VoteShape,
        *,
        tolerance: float = 1e-6,
        orders: FloatArray = DEFAULT_ORDERS,
    ) -> Self | None:
        """Return the same aggregator with its noise scaled by the one factor that meets a target.

        Args:
            target: the largest cost of all queries together.
            shape: the numbers of teachers and labels.
            tolerance: by what fraction the noise may exceed the least that is needed. It is never
                smaller.
            orders: the grid of Renyi orders.

        Returns:
            The calibrated aggregator, or None if no noise meets the target, for example because the
            failures of stability tests alone cost its delta.

        Raises:
            ValueError: if the aggregator cannot serve the shape.
        """
        relation = target.neighboring_relation
        self.event(shape, relation)  # raises if it cannot serve the shape, whatever the noise
        try:
            factor = calibrate_scale(
                lambda scale: self.scaled(scale).event(shape, relation),
                target,
                tolerance=tolerance,
                orders=orders,
            )
        except ValueError:
            return None
        return self.scaled(factor)

    def law(self, votes: Any) -> Law:
        """Return the law of the sets of labels that are released, for each query.

        Raises:
            NotStatedError: if the aggregator states none, or a query has too many outcomes.
        """
        raise NotStatedError(f"the law of {type(self).__name__} is not known")

    def laws(self, votes: Any, neighbors: Any) -> tuple[FloatArray, FloatArray]:
        """Return the chances ``[Q, N]`` of N outcomes of each query on votes and on neighbors.

        Outcomes that tell the same about the votes may be one.

        Raises:
            NotStatedError: if the aggregator states no law, or a query has too many outcomes.
        """
        first, second = self.law(votes), self.law(neighbors)
        same = (first.members == second.members).all(axis=-1)
        none = np.zeros(first.chances.shape)
        sides = (
            (first.chances * same, first.chances * ~same, none),
            (second.chances * same, none, second.chances * ~same),
        )
        # the chance of nothing is no difference from 1, which would be 0 on one side alone where
        # both are small
        nothing = [[] if law.nothing is None else [law.nothing[:, None]] for law in (first, second)]
        if same.all():
            sides = ((first.chances,), (second.chances,))  # type: ignore[assignment]
        p, q = (np.hstack((*side, *rest)) for side, rest in zip(sides, nothing, strict=True))
        return p, q

    def teachers_to_answer(self, probability: float, num_labels: int) -> float | None:
        """Return how many teachers who agree have an answer with ``probability``. None if unknown.

        Args:
            probability: the probability of that answer, in (0, 1).
            num_labels: the number of labels.
        """
        return None

    def max_answer_probability(self, shape: VoteShape) -> float:
        """Return the largest probability that votes of a shape answer a query or a label of it.

        It may be a bound. It is 1 where every query is answered. A release where it is below
        `LEAST_ANSWERED` is refused.

        >>> aggregator = StableTopK(scale_gap=2.0, sigma_test=2.0, delta_test=1e-6)
        >>> round(aggregator.max_answer_probability(VoteShape(num_teachers=100, num_labels=4)), 3)
        1.0
        """
        return 1.0

    def relation_of(self, relation: NeighboringRelation | None) -> NeighboringRelation:
        """Return the relation of a cost: ``asked``, or the aggregator's own if that is None."""
        return self.neighboring_relation if relation is None else NeighboringRelation(relation)


if TYPE_CHECKING:
    AnyAggregator: TypeAlias = Aggregator | Partial[Aggregator]
else:
    # parsers read both by the name of the class
    AnyAggregator = Aggregator


def made_for(aggregator: AnyAggregator | type[Aggregator]) -> NeighboringRelation:
    """Return the relation that an aggregator, or a partial one, is for; of a class, its default."""
    if isinstance(aggregator, Partial):
        return NeighboringRelation(aggregator.setting("neighboring_relation"))
    return aggregator.neighboring_relation


def _when_served(aggregate: Callable[..., Release]) -> Callable[..., Release]:
    """Return an ``aggregate`` that refuses votes that lack a need, before anything is drawn."""

    @wraps(aggregate)
    def checked(aggregator: Any, votes: Votes, **arguments: Any) -> Release:
        aggregator.require_kind(type(votes))
        for name, known in (("predictions", predictions_of), ("features", features_of)):
            if name in aggregator.needs:
                known(votes)
        generator = arguments.get("generator")
        require_generator(generator)
        if isinstance(generator, WatchedGenerator):
            return generator.answer(aggregate, aggregator, votes)
        return aggregate(aggregator, votes, **arguments)

    return checked


def predictions_of(votes: Votes) -> FloatArray:
    """Return a student's predictions ``[Q, C]`` in [0, 1].

    Raises ``ValueError`` if the votes hold none.
    """
    return require_given(votes.predictions, "votes with a student's predictions, got none")


def features_of(votes: Votes) -> FloatArray:
    """Return the public features ``[Q, F]`` of the queries.

    Raises ``ValueError`` if the votes hold none.
    """
    return require_given(
        votes.features, "votes with the public features of their queries, got none"
    )


GROUP = "pate.aggregators"

_ORDER = (
    *("Rounds", "ClippedVotes", "ScoreVotes", "NoisyVotes", "TauVoting"),
    *("StableTopK", "FixedStableTopK"),
    *("Peeling", "PermuteAndFlip", "LimitedDomainTopK", "TopStableTopK", "Joint"),
    *("ConfidentScreen", "InteractiveScreen", "Canonical"),
)
"""The order of aggregators in comparisons. Others of the package come last."""


def own() -> dict[str, type[Aggregator]]:
    """Return the aggregators of the package by name, in the order of comparisons."""
    found = {
        cls.__name__: cls
        for cls in subclasses_of(Aggregator)
        if cls.offered and not inspect.isabstract(cls)
    }
    return {
        name: found[name] for name in sorted(found, key=lambda name: (*_ORDER, name).index(name))
    }


def load_plugins() -> dict[str, type[Aggregator]]:
    """Return the aggregators of installed packages, from the group ``pate.aggregators``, by name.

    Returns:
        classes by name.

    Raises:
        ValueError: where an entry point is not an aggregator under the name of its class, or has
            the name of another.
    """
    ours = own()
    aggregators = dict(ours)
    for entry in declared(GROUP):
        place = f"at the entry point {entry.name} of {GROUP}"
        with expecting(f"an Aggregator {place}", ImportError, AttributeError, got=entry.value):
            cls = entry.load()
        require(
            isinstance(cls, type) and issubclass(cls, Aggregator),
            f"an Aggregator {place}",
            object=cls,
        )
        # classes go by their own names in settings
        require(
            entry.name == cls.__name__,
            f"the name of the class, {cls.__name__}, {place}",
            name=entry.name,
        )
        namesake = aggregators.setdefault(entry.name, cls)
        require(
            namesake is cls,
            f"one aggregator {entry.name}, the one of {namesake.__module__}",
            another=entry.value,
        )
    return {name: cls for name, cls in aggregators.items() if name not in ours}


def registered() -> dict[str, type[Aggregator]]:
    """Return all aggregators by name: our own first, then the ones of installed packages.

    >>> registered()["StableTopK"] is StableTopK
    True

    Returns:
        classes by the name that ``class_path`` may give.
    """
    return own() | load_plugins()
