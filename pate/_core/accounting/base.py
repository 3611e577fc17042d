"""Events: descriptions of releases that know their cost and their JSON form, and how they compose.

The kinds of events are in `events`. To add one, here or in another package, write one class::

    @dataclass(frozen=True, kw_only=True)
    class LaplaceEvent(Event):
        scale: float

        def __post_init__(self) -> None:
            super().__post_init__()
            require_positive(scale=self.scale)

        def cost(self, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
            return Cost(laplace_rdp(orders, self.scale), log_survival=0.0)

and one test class that inherits `pate.testing.EventContract`. Another package declares the class as
an entry point in the group ``pate.events``, under the name of the class, so that its ledgers can be
read.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from pate._core.accounting.cost import DEFAULT_ORDERS, Cost, NeighboringRelation
from pate._core.accounting.curves import Pairs
from pate._core.package import declared
from pate._core.validation import FloatArray, expecting, require, require_count


@dataclass(frozen=True, kw_only=True)
class Event(ABC):
    """One release under one neighboring relation, described by the parameters of its cost.

    Subclasses are frozen, keyword-only dataclasses, validated on construction. Their fields hold
    JSON values (tuples in place of lists) and events. Ledgers record the name of the class, so it
    must never change.

    A kind has no kinds below it: a ledger names one class with all of its fields.

    Raises:
        ValueError: if a class is defined under a name that another one already has, or below a
            class that is a kind itself.
    """

    neighboring_relation: NeighboringRelation

    _kinds: ClassVar[dict[str, type[Event]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        above = [
            base.__name__
            for base in cls.__mro__[1:]
            if issubclass(base, Event) and not inspect.isabstract(base)
        ]
        require(
            not above,
            f"an event {cls.__name__} with a cost of its own, below no other kind",
            below=above,
        )
        other = Event._kinds.setdefault(cls.__name__, cls)
        # `dataclass(slots=True)` and a reloaded module define the same class twice
        require(
            (other.__module__, other.__qualname__) == (cls.__module__, cls.__qualname__),
            f"one event {cls.__name__}, defined in {other.__module__}",
            another=cls.__module__,
        )
        Event._kinds[cls.__name__] = cls

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "neighboring_relation", NeighboringRelation(self.neighboring_relation)
        )

    @abstractmethod
    def cost(self, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
        """Return the cost of the release on Renyi orders ``[K]``, ascending and above 1."""

    def for_group_size(self, teachers: int) -> Event:
        """Return the event of the release for a unit that reaches ``teachers`` teachers.

        Every window and sensitivity is that many times as wide. Epsilons are neither multiplied nor
        added up.
        """
        require_count(1, teachers=teachers)
        return self if teachers == 1 else self._for_group_size(teachers)

    def _for_group_size(self, teachers: int) -> Event:
        """Return the event for two teachers or more; kinds with known windows override it."""
        return GroupEvent(
            event=self, teachers=teachers, neighboring_relation=self.neighboring_relation
        )

    def to_world(self) -> Event:
        """Return the event of the release for observers who know nothing of its noise."""
        return self

    def pairs(self) -> Sequence[Pairs]:
        """Return the rounds of two-outcome laws that the release plays, for `OrderedAccountant`.

        A kind that overrides this states its price twice, here and in `cost`: whoever changes one
        changes the other.

        Raises:
            ValueError: if the kind has no known pairs of laws.
        """
        raise ValueError(f"Expected an event of two outcomes, got event={self}")

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; `event_from_dict` is the inverse."""
        return {"type": type(self).__name__} | {
            f.name: _plain(getattr(self, f.name)) for f in fields(self)
        }


@dataclass(frozen=True, kw_only=True)
class GroupEvent(Event):
    """``event`` for a group of ``teachers`` teachers, by the rule for any release of known ``mu``.

    The ``mu`` of a group is that many times as large (Dong, Roth & Su (2022), Theorem 2.14), and
    the curve follows from the Gaussian mechanism of this ``mu``. Nothing is known of a release
    without a ``mu``, or with a curve that leaves out a probability.
    """

    event: Event
    teachers: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require(isinstance(self.event, Event), "event to be an Event", event=self.event)
        require_count(1, teachers=self.teachers)
        require(
            self.event.neighboring_relation is self.neighboring_relation,
            f"an event under {self.neighboring_relation.value}",
            event=self.event.neighboring_relation,
        )

    def cost(self, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
        """Return the cost on ``orders`` ``[K]``, infinite where nothing is known."""
        once = self.event.cost(orders)
        mu_squared = once.mu_squared * self.teachers**2 if once.log_survival == 0 else np.inf
        return Cost(orders * (mu_squared / 2), 0.0, mu_squared)

    def _for_group_size(self, teachers: int) -> Event:
        return replace(self, teachers=self.teachers * teachers)


@dataclass(frozen=True, kw_only=True)
class CompositeEvent(Event):
    """An event composed of other events under one common relation, which need not be given."""

    neighboring_relation: NeighboringRelation = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        parts = tuple(self.parts())
        require(parts, "at least one event", events=parts)
        for event, count in parts:
            require(isinstance(event, Event), "an Event", event=event)
            require_count(1, count=count)
        relations = {event.neighboring_relation for event, _ in parts}
        if self.neighboring_relation is not None:
            relations.add(NeighboringRelation(self.neighboring_relation))
        require(
            len(relations) == 1,
            "one neighboring relation for all events",
            relations=sorted(map(str, relations)),
        )
        object.__setattr__(self, "neighboring_relation", relations.pop())

    @abstractmethod
    def parts(self) -> Iterable[tuple[Event, int]]:
        """Return the parts, at least one, as pairs (event, number of times it happens)."""

    def cost(self, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
        return total_cost((self,), 1, orders)

    def _for_group_size(self, teachers: int) -> Event:
        return _repeated((event.for_group_size(teachers), count) for event, count in self.parts())

    def pairs(self) -> Sequence[Pairs]:
        return [p for event, count in self.parts() for p in list(event.pairs()) * count]

    def to_world(self) -> Event:
        parts = tuple(self.parts())
        seen = [event.to_world() for event, _ in parts]
        if seen == [event for event, _ in parts]:
            return self
        return _repeated(zip(seen, (count for _, count in parts), strict=True))


@dataclass(frozen=True, kw_only=True)
class RepeatedEvent(CompositeEvent):
    """``event`` repeated ``count`` times, each time in view of all earlier releases.

    >>> relation = NeighboringRelation.REPLACE_RECORD
    >>> event = GaussianEvent(neighboring_relation=relation, noise_multiplier=20.0)
    >>> once = epsilon_of(RepeatedEvent(event=event, count=100), count=1, delta=1e-6)
    >>> once == epsilon_of(event, count=100, delta=1e-6)
    True

    Raises:
        ValueError: on ``count < 1``.
    """

    event: Event
    count: int

    def parts(self) -> Iterable[tuple[Event, int]]:
        return ((self.event, self.count),)


@dataclass(frozen=True, kw_only=True)
class ComposedEvent(CompositeEvent):
    """Several events on the same data. Each may be chosen in view of the earlier releases.

    >>> relation = NeighboringRelation.REPLACE_RECORD
    >>> parts = tuple(PureDPEvent(neighboring_relation=relation, epsilon=x) for x in (0.1, 0.2))
    >>> epsilon_of(ComposedEvent(events=parts), count=1, delta=1e-6) <= 0.3
    True

    Raises:
        ValueError: without events, or on events under several relations.
    """

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        require(isinstance(self.events, Iterable), "a list of events", events=self.events)
        object.__setattr__(self, "events", tuple(self.events))
        super().__post_init__()

    def parts(self) -> Iterable[tuple[Event, int]]:
        return ((event, 1) for event in self.events)


def _repeated(parts: Iterable[tuple[Event, int]]) -> ComposedEvent:
    return ComposedEvent(
        events=tuple(RepeatedEvent(event=event, count=count) for event, count in parts)
    )


@dataclass(frozen=True, kw_only=True)
class PartiesEvent(CompositeEvent):
    """A release with noise from several parties, who each know their own contribution.

    Attributes:
        parties: the release as the parties see it, who know some of the noise. It sets the cost.
        world: the release as all others see it. It costs no more.
    """

    parties: Event
    world: Event

    def __post_init__(self) -> None:
        require(isinstance(self.world, Event), "world to be an Event", world=self.world)
        super().__post_init__()
        require(
            self.world.neighboring_relation is self.neighboring_relation,
            "one neighboring relation for all events",
            world=self.world.neighboring_relation,
        )
        most, least = self.parties.cost(), self.world.cost()
        require(
            (least.rdp <= most.rdp).all()
            and least.mu_squared <= most.mu_squared
            and least.log_survival >= most.log_survival,
            "a world that pays no more for the release than its parties",
            world=self.world,
        )

    def parts(self) -> Iterable[tuple[Event, int]]:
        return ((self.parties, 1),)

    def _for_group_size(self, teachers: int) -> Event:
        return replace(
            self,
            parties=self.parties.for_group_size(teachers),
            world=self.world.for_group_size(teachers),
        )

    def to_world(self) -> Event:
        return self.world


def leaves(event: Event, count: int = 1) -> Iterator[tuple[Event, int]]:
    """Yield the basic events of ``count`` repetitions of ``event``, with the number of each.

    >>> from pate._core.accounting.events import PureDPEvent
    >>> choice = PureDPEvent(epsilon=0.1, neighboring_relation=NeighboringRelation.REPLACE_RECORD)
    >>> [n for _, n in leaves(RepeatedEvent(event=ComposedEvent(events=(choice, choice)), count=3))]
    [3, 3]
    """
    if isinstance(event, CompositeEvent):
        for part, times in event.parts():
            yield from leaves(part, count * times)
    else:
        yield event, count


def total_cost(
    events: Sequence[Event], counts: ArrayLike = 1, orders: FloatArray = DEFAULT_ORDERS
) -> Cost:
    """Return the cost of N events on ``orders`` ``[K]``, ``counts`` (``[N]`` or one) times.

    Equal basic events are evaluated once.
    """
    # in the order of the events: sums of the same events are the same bit for bit, in every process
    often: dict[Event, float] = {}
    numbers = np.broadcast_to(np.asarray(counts, dtype=np.float64), (len(events),))
    for event, count in zip(events, numbers.tolist(), strict=True):
        for leaf, times in leaves(event, count):
            often[leaf] = often.get(leaf, 0.0) + times
    total = Cost.nothing(orders)
    for leaf, number in often.items():
        if number:
            total = total + leaf.cost(orders) * number
    return total


def event_from_dict(description: Mapping[str, Any]) -> Event:
    """Return the event that `Event.to_dict` described.

    An unknown name is looked up among the entry points ``pate.events`` of installed packages.

    >>> relation = NeighboringRelation.REPLACE_RECORD
    >>> event = PureDPEvent(neighboring_relation=relation, epsilon=0.1)
    >>> event_from_dict(event.to_dict()) == event
    True

    Returns:
        the event, equal to the one that was described.

    Raises:
        ValueError: on an unknown name, a missing or unknown parameter, or a value that the event
            refuses.
    """
    require(isinstance(description, Mapping), "an event as a mapping", description=description)
    parameters = dict(description)
    cls = _kind(parameters.pop("type", None))
    expected = sorted(f.name for f in fields(cls))
    require(
        sorted(parameters) == expected,
        f"{cls.__name__} with the parameters {expected}",
        parameters=sorted(parameters),
    )
    relation = parameters["neighboring_relation"]
    require(
        relation in list(NeighboringRelation),
        f"neighboring_relation among {', '.join(NeighboringRelation)}",
        neighboring_relation=relation,
    )
    return cls(**{name: _parsed(value) for name, value in parameters.items()})


def _kind(name: object) -> type[Event]:
    if isinstance(name, str) and name not in Event._kinds:
        for entry in (entry for entry in declared("pate.events") if entry.name == name):
            with expecting(
                f"{entry.value} to define the event {name}", ImportError, AttributeError
            ):
                entry.load()
    kinds = {
        kind_name: kind for kind_name, kind in Event._kinds.items() if not inspect.isabstract(kind)
    }
    require(
        isinstance(name, str) and name in kinds,
        f"an event among {', '.join(sorted(kinds))}, or the package that defines"
        " another one to be installed",
        type=name,
    )
    return kinds[str(name)]


def _parsed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return event_from_dict(value)
    return tuple(map(_parsed, value)) if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    if isinstance(value, Event):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, NeighboringRelation):
        return value.value
    # numpy scalars are written as the Python numbers that they hold
    return value.item() if hasattr(value, "item") else value
