"""The interface of an aggregator: votes in, released labels out, and the event that describes their cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from inspect import get_annotations
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from pate._typing import BoolArray, FloatArray, IntArray, UInt8Array
from pate._validation import require, require_positive
from pate._votes import Counts, Need, Votes, VoteShape, require_kind
from pate.accounting._calibration import Target, calibrate_scale
from pate.accounting._charges import Charge, Events
from pate.accounting._cost import DEFAULT_ORDERS
from pate.accounting._events import Event
from pate.accounting._relation import NeighboringRelation

LEAST_ANSWERED = 0.1
"""The share of queries that some votes at least must have answered, if a release is to be paid for."""


_LARGEST_SCALE = 1e300  # beyond it, noise may be infinite


class Release(NamedTuple):
    """What an aggregator released for a batch of queries; no reason is given for an entry that was not released."""

    labels: UInt8Array
    """``[Q, C]`` in {0, 1}; 0 where nothing was released."""
    mask: BoolArray
    """``[Q, C]``: which labels were released."""
    noisy_counts: FloatArray | None = None
    """``[Q, C]``: noisy counts of the teachers that gave each label, possibly below 0 or above the number of teachers;
    0 where nothing was released. None if the aggregator releases no counts."""
    noise_std: float | None = None
    """Standard deviation of the Gaussian noise in ``noisy_counts``, in votes, above 0; None without them, and if they
    are answers of a linear model, which has all the noise."""
    tiers: IntArray | None = None
    """``[Q]``: the price tier of each query, an argument of `Aggregator.event`; None if all queries cost the same."""
    linear: bool = False
    """Whether ``noisy_counts`` are ``num_teachers`` times the answers of a linear model, to all queries."""

    @classmethod
    def of_sets(cls, chosen: IntArray, num_labels: int) -> Release:
        """Release sets of labels, given as indices ``[Q, k]``; every query is answered."""
        labels = np.zeros((len(chosen), num_labels), dtype=np.uint8)
        np.put_along_axis(labels, chosen, 1, axis=1)
        return cls(labels, np.ones(labels.shape, dtype=np.bool_))

    @classmethod
    def of_rows(
        cls, labels: BoolArray, passed: BoolArray, tiers: NDArray[np.integer] | None = None
    ) -> Release:
        """Release labels ``[Q, C]`` of the queries that ``passed`` ``[Q]``, and nothing of the others."""
        mask = np.repeat(passed[:, None], labels.shape[1], axis=1)
        return cls(
            (labels & mask).astype(np.uint8),
            mask,
            tiers=None if tiers is None else tiers.astype(np.int64),
        )


@dataclass(frozen=True, kw_only=True)
class Aggregator(ABC):
    """Turns votes into labels through a private mechanism, and knows what that costs.

    Plug-ins are frozen keyword-only dataclasses. Noise parameters have no defaults, and their names
    differ between classes, so that none is carried over silently when the class in a configuration
    changes.

    A field without a default may be None where a target is to suggest it. Until then it is
        `missing`: fields are not
    checked against each other, and nothing is stated, scaled or released.

    The number of teachers is nominal: a public constant under both relations, never measured. A
        teacher that takes no
    part casts a row of zeros. Neighbors under ADD_REMOVE_TEACHER are therefore ballots ``[T, C]``
    and the same ballots with one row set to zero, and nothing that depends on ``T`` changes.

    Args:
        neighboring_relation: the relation that the mechanism is run for.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ()
    """Names of the parameters that are scales of noise, in votes: doubling all of them halves the weight of a vote."""

    required: ClassVar[tuple[str, ...]] = ()
    """Names of the fields that have no default."""

    neighboring_relation: NeighboringRelation = NeighboringRelation.REPLACE_RECORD

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, annotation in get_annotations(cls).items():
            if not hasattr(cls, name) and "ClassVar" not in str(annotation):
                # before the dataclass is made, which takes it for the default: parsers read what is
                # missing as None
                setattr(cls, name, None)
                cls.required += (name,)
        if "aggregate" in vars(cls):
            cls.aggregate = _when_served(cls.aggregate)  # type: ignore[method-assign]
        if "__post_init__" in vars(cls):
            cls.__post_init__ = _when_complete(cls.__post_init__)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "neighboring_relation", NeighboringRelation(self.neighboring_relation)
        )
        scales = {
            name: getattr(self, name) for name in self.noise_parameters if name not in self.missing
        }
        require_positive(**scales)
        for name, scale in scales.items():
            require(
                float(scale) <= _LARGEST_SCALE, f"{name} <= {_LARGEST_SCALE:g}", **{name: scale}
            )

    @classmethod
    def blank(cls, **settings: Any) -> Self:
        """Return one with the given ``settings``; all others are `missing` until a target suggests them."""
        return cls(**settings)

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the required fields that are None."""
        return tuple(name for name in self.required if getattr(self, name) is None)

    def require_complete(self, way_out: str = "") -> None:
        """Raise ``ValueError`` if something is missing, here or in an aggregator within; ``way_out`` says more."""
        missing = self.missing
        kind = "the noise" if set(missing) <= set(self.noise_parameters) else "all parameters"
        words = ", ".join(f"--aggregator.{name}" for name in missing)
        require(not missing, f"{kind} of {type(self).__name__} ({words}){way_out}", noise=None)
        for name in self.required:
            value = getattr(self, name)
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, Aggregator):
                    part.require_complete()

    @property
    def needs(self) -> frozenset[Need]:
        """What it needs of votes: kinds, such as ``Counts`` or ``Ballots | Scores``, and side information.

        Votes of another kind, or without ``"predictions"`` or ``"features"`` that are needed, are
        refused before anything is drawn or spent. `Ballots` are `Counts` too. An aggregator that
        holds others needs all that they need.
        """
        return frozenset({Counts})

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

        Args:
            shape: the numbers of teachers and labels.
            relation: the relation under which the cost is stated; the aggregator's own if None. The
                mechanism is the same under both.
            tier: the price tier of the query, as in `Release.tiers`; None for the most that a query
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
        self.require_complete()
        return {relation: self.event(shape, relation, tier) for relation in NeighboringRelation}

    def charges(self, release: Release, shape: VoteShape) -> tuple[Charge, ...]:
        """Return what the queries of a release actually cost: events under both relations, and how often each."""
        if release.tiers is None:
            return ((self.events(shape), len(release.labels)),)
        tiers, counts = np.unique(release.tiers, return_counts=True)
        return tuple(
            (self.events(shape, tier), count)
            for tier, count in zip(tiers.tolist(), counts.tolist(), strict=True)
        )

    def scaled(self, factor: float) -> Self:
        """Return the same aggregator with ``factor`` times its noise."""
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
        """Return the same aggregator with all its noise scaled by the one factor that meets a target.

        Args:
            target: the largest cost of all queries together.
            shape: the numbers of teachers and labels.
            tolerance: by what fraction the noise may exceed the least that is needed. It is never
                smaller.
            orders: Renyi orders on which epsilon is computed.

        Returns:
            The calibrated aggregator, or None if no noise meets the target, for example because the
            failures of stability tests alone cost its delta.

        Raises:
            ValueError: if the aggregator cannot serve the shape.
        """
        self.require_complete()
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

    def most_answered(self, shape: VoteShape) -> float:
        """Return a probability that no votes of a shape exceed: that teachers answer a query, or one of its labels.

        It is 1 where every query is answered. A release of which it is below `LEAST_ANSWERED` is
        refused.
        """
        return 1.0

    def relation_of(self, relation: NeighboringRelation | None) -> NeighboringRelation:
        """Return the relation under which a cost is stated: ``asked``, or the aggregator's own if that is None."""
        return self.neighboring_relation if relation is None else NeighboringRelation(relation)


def _when_complete(check: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a ``__post_init__`` that checks complete aggregators only."""

    @wraps(check)
    def checked(aggregator: Any) -> None:
        (Aggregator.__post_init__ if aggregator.missing else check)(aggregator)

    return checked


def _when_served(aggregate: Callable[..., Release]) -> Callable[..., Release]:
    """Return an ``aggregate`` that refuses votes which lack what is needed, before anything is drawn."""

    @wraps(aggregate)
    def checked(aggregator: Any, votes: Votes, **arguments: Any) -> Release:
        aggregator.require_kind(type(votes))
        for name, known in (("predictions", predictions_of), ("features", features_of)):
            if name in aggregator.needs:
                known(votes)
        return aggregate(aggregator, votes, **arguments)

    return checked


def predictions_of(votes: Votes) -> FloatArray:
    """Return a student's predictions ``[Q, C]`` in [0, 1].

    Raises ``ValueError`` if the votes hold none.
    """
    if votes.predictions is None:
        raise ValueError("Expected votes with a student's predictions, got none")
    return votes.predictions


def features_of(votes: Votes) -> FloatArray:
    """Return the public features ``[Q, F]`` of the queries.

    Raises ``ValueError`` if the votes hold none.
    """
    if votes.features is None:
        raise ValueError("Expected votes with the public features of their queries, got none")
    return votes.features
