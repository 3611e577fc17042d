"""Events: immutable, serialisable descriptions of what was released.

An event says what a mechanism did, with the parameters that its cost follows from, and under which neighboring
relation they were derived. `pate.accounting.curves` turns it into a cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

from pate.accounting.relation import NeighboringRelation
from pate.validation import expect, expect_count, expect_open_unit, expect_positive


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of all events. Subclasses are frozen, keyword-only, and validated when made."""

    neighboring_relation: NeighboringRelation

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighboring_relation", NeighboringRelation(self.neighboring_relation))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; `event_from_dict` is the inverse."""
        return {"type": type(self).__name__} | {f.name: _plain(getattr(self, f.name)) for f in fields(self)}


@dataclass(frozen=True, kw_only=True)
class GaussianEvent(Event):
    """Gaussian noise of ``noise_multiplier`` times the L2 sensitivity (Mironov (2017), Proposition 7)."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_positive(noise_multiplier=self.noise_multiplier)


@dataclass(frozen=True, kw_only=True)
class GaussianThresholdEvent(Event):
    """One bit: whether a real statistic with Gaussian noise reaches a public threshold, at its exact cost.

    ``noise_multiplier`` is the standard deviation over the sensitivity of the statistic. As a function of what a
    `GaussianEvent` releases, the bit never costs more than that.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_positive(noise_multiplier=self.noise_multiplier)


@dataclass(frozen=True, kw_only=True)
class BoundedRangeEvent(Event):
    """An ``eta``-bounded-range choice, as of the exponential mechanism (Dong, Durfee & Rogers (2020), Lemma 2.4).

    With Gumbel noise of scale ``beta`` on scores that move within a window of width ``w``, ``eta = w / beta``.
    """

    eta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_positive(eta=self.eta)


@dataclass(frozen=True, kw_only=True)
class PureDPEvent(Event):
    """Any ``epsilon``-differentially private release (the curve of randomised response; Mironov (2017), Section IV)."""

    epsilon: float

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_positive(epsilon=self.epsilon)


@dataclass(frozen=True, kw_only=True)
class GaussianNoisyMaxEvent(Event):
    """The largest of ``num_candidates`` scores with Gaussian noise (Zhu & Wang (2022), Corollary 9).

    ``noise_multiplier`` is the standard deviation over the width of the window within which the scores move together.
    """

    noise_multiplier: float
    num_candidates: int

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_positive(noise_multiplier=self.noise_multiplier)
        expect_count(1, num_candidates=self.num_candidates)


@dataclass(frozen=True, kw_only=True)
class StabilityTestEvent(Event):
    """A propose-test-release with Gaussian noise on a gap (Zhu & Wang (2022), Algorithm 2), at its exact cost.

    The test passes with probability ``Phi((max(shift, q) - shift) / sigma - z)``, ``z = Phi^-1(1 - delta_test)``, for a
    gap of ``q`` votes. ``shift`` is what the mechanism was run with. ``neighboring_relation`` is what the cost is asked
    for: under it the gap moves by at most ``window`` votes, and what is released may differ between neighbors only
    while the gap is at most ``window``. That is `NeighboringRelation.count_window`, which may differ from ``shift``,
    unless another ``window`` is given. Gaps are multiples of 1/2; ``num_teachers`` votes is the largest of the narrower
    gaps of two neighbors.
    """

    sigma: float
    delta_test: float
    shift: int
    num_teachers: int
    window: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_positive(sigma=self.sigma)
        expect_open_unit(delta_test=self.delta_test)
        expect_count(1, shift=self.shift, num_teachers=self.num_teachers)
        if self.window is not None:
            expect_count(1, window=self.window)

    @property
    def gap_window(self) -> int:
        """By how many votes the gap moves at most between neighbors."""
        return self.neighboring_relation.count_window if self.window is None else self.window


@dataclass(frozen=True, kw_only=True)
class FailureEvent(Event):
    """A probability ``delta`` with which what is composed with this event does not hold; it costs ``delta`` alone."""

    delta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_open_unit(delta=self.delta)


@dataclass(frozen=True, kw_only=True)
class SmoothSensitivityEvent(Event):
    """Gaussian noise of ``noise_multiplier`` times a ``beta``-smooth sensitivity (Papernot et al. (2018), Theorem 23).

    Infinite at orders of ``1 / (2 beta)`` and beyond.
    """

    beta: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_positive(beta=self.beta, noise_multiplier=self.noise_multiplier)


@dataclass(frozen=True, kw_only=True)
class RenyiCurveEvent(Event):
    """A release known by its Renyi-DP curve ``rdp`` on ascending ``orders``, as another library gave it.

    Between two orders the chord of ``(alpha - 1) rdp(alpha)``, which is convex, bounds the curve from above; below the
    first order the first value does, and beyond the last nothing is known.
    """

    orders: tuple[float, ...]
    rdp: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("orders", "rdp"):
            values = getattr(self, name)
            expect(isinstance(values, list | tuple) and values, f"{name} as a list of numbers", **{name: values})
            object.__setattr__(self, name, tuple(values))
        expect(
            len(self.orders) == len(self.rdp), "as many values as orders", orders=len(self.orders), rdp=len(self.rdp)
        )
        expect_positive(**{f"orders[{i}] - 1": order - 1 for i, order in enumerate(self.orders)})
        expect(all(a < b for a, b in pairwise(self.orders)), "ascending orders", orders=self.orders)
        for i, value in enumerate(self.rdp):
            expect(0 <= value < float("inf"), f"finite rdp[{i}] >= 0", **{f"rdp[{i}]": value})


@dataclass(frozen=True, kw_only=True)
class RepeatedEvent(Event):
    """``event``, ``count`` times, each choice free to depend on all earlier releases."""

    neighboring_relation: NeighboringRelation = None  # type: ignore[assignment]
    event: Event
    count: int

    def __post_init__(self) -> None:
        expect(isinstance(self.event, Event), "event to be an Event", event=self.event)
        expect_count(1, count=self.count)
        object.__setattr__(self, "neighboring_relation", _common_relation(self.neighboring_relation, (self.event,)))


@dataclass(frozen=True, kw_only=True)
class ComposedEvent(Event):
    """Several events on the same data, each free to depend on what the earlier ones released."""

    neighboring_relation: NeighboringRelation = None  # type: ignore[assignment]
    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        expect(self.events, "at least one event", events=self.events)
        for event in self.events:
            expect(isinstance(event, Event), "events to be Events", event=event)
        object.__setattr__(self, "neighboring_relation", _common_relation(self.neighboring_relation, self.events))


_EVENTS: dict[str, type[Event]] = {
    cls.__name__: cls
    for cls in (
        GaussianEvent,
        GaussianThresholdEvent,
        BoundedRangeEvent,
        PureDPEvent,
        GaussianNoisyMaxEvent,
        StabilityTestEvent,
        FailureEvent,
        SmoothSensitivityEvent,
        RenyiCurveEvent,
        RepeatedEvent,
        ComposedEvent,
    )
}


def leaves(event: Event, count: int = 1) -> Iterator[tuple[Event, int]]:
    """Yield the events that ``event`` consists of, each with how often it happens when ``event`` does ``count`` times.

    >>> choice = PureDPEvent(epsilon=0.1, neighboring_relation=NeighboringRelation.REPLACE_RECORD)
    >>> [n for _, n in leaves(RepeatedEvent(event=ComposedEvent(events=(choice, choice)), count=3))]
    [3, 3]
    """
    if type(event) is RepeatedEvent:
        yield from leaves(event.event, count * event.count)
    elif type(event) is ComposedEvent:
        for part in event.events:
            yield from leaves(part, count)
    else:
        yield event, count


def event_from_dict(description: Mapping[str, Any]) -> Event:
    """Make the event that `Event.to_dict` described.

    Raises ``ValueError`` on an unknown name, a missing or unknown parameter, or a value that the event refuses.
    """
    expect(isinstance(description, Mapping), "an event as a mapping", description=description)
    parameters = dict(description)
    name = parameters.pop("type", None)
    expect(isinstance(name, str) and name in _EVENTS, f"an event among {', '.join(sorted(_EVENTS))}", type=name)
    cls = _EVENTS[str(name)]
    known = {f.name for f in fields(cls)}
    expect(set(parameters) == known, f"{name} with the parameters {sorted(known)}", parameters=sorted(parameters))
    relation = parameters["neighboring_relation"]
    names = [each.value for each in NeighboringRelation]
    expect(relation in names, f"neighboring_relation among {', '.join(names)}", neighboring_relation=relation)
    if cls is RepeatedEvent:
        parameters["event"] = event_from_dict(parameters["event"])
    if cls is ComposedEvent:
        expect(isinstance(parameters["events"], list | tuple), "a list of events", events=parameters["events"])
        parameters["events"] = tuple(event_from_dict(event) for event in parameters["events"])
    return cls(**parameters)


def _common_relation(declared: NeighboringRelation | None, events: tuple[Event, ...]) -> NeighboringRelation:
    relations = {event.neighboring_relation for event in events}
    if declared is not None:
        relations.add(NeighboringRelation(declared))
    expect(len(relations) == 1, "one neighboring relation for all events", relations=sorted(map(str, relations)))
    return relations.pop()


def _plain(value: Any) -> Any:
    if isinstance(value, Event):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, NeighboringRelation):
        return value.value
    # numpy scalars describe themselves as the Python number they hold
    return value.item() if hasattr(value, "item") else value
