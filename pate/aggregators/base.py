"""The contract of an aggregator: votes in, released labels out, and the event that describes their cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, fields, replace
from inspect import Parameter, signature
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from pate.accounting.calibration import Target, calibrate_scale
from pate.accounting.charges import Charge, Events
from pate.accounting.cost import DEFAULT_ORDERS
from pate.accounting.events import Event
from pate.accounting.relation import NeighboringRelation
from pate.typing import BoolArray, FloatArray, IntArray, UInt8Array
from pate.validation import expect, expect_count, expect_open_unit, expect_positive
from pate.votes import Panel, Votes

_METHODS = ("event", "aggregate", "charges", "calibrated", "for_target", "gap_needed", "proposals")
"""What subclasses override, with the arguments that it is called with."""


class Release(NamedTuple):
    """What an aggregator released of a batch of queries. Nothing says why an entry was not released."""

    labels: UInt8Array
    """``[Q, C]`` in {0, 1}; 0 where nothing was released."""
    mask: BoolArray
    """``[Q, C]``: which labels were released."""
    values: FloatArray | None = None
    """``[Q, C]``: noisy counts of the teachers that gave each label, possibly below 0 or above the number of teachers,
    from an aggregator that releases them; 0 where nothing was released."""
    noise_std: float | None = None
    """Standard deviation of the Gaussian noise in ``values``, in votes."""
    tiers: IntArray | None = None
    """``[Q]``: which of its prices each query paid, as `Aggregator.event` takes it; None where all cost the same."""

    @classmethod
    def of_sets(cls, chosen: IntArray, num_labels: int) -> Release:
        """Release sets of labels, given as indices ``[Q, k]``; every query is answered."""
        labels = np.zeros((len(chosen), num_labels), dtype=np.uint8)
        np.put_along_axis(labels, chosen, 1, axis=1)
        return cls(labels, np.ones(labels.shape, dtype=np.bool_))

    @classmethod
    def of_rows(cls, labels: BoolArray, passed: BoolArray, tiers: NDArray[np.integer] | None = None) -> Release:
        """Release labels ``[Q, C]`` of the queries that ``passed`` ``[Q]``, and nothing of the others."""
        mask = np.repeat(passed[:, None], labels.shape[1], axis=1)
        return cls((labels & mask).astype(np.uint8), mask, tiers=None if tiers is None else tiers.astype(np.int64))


class Gap(NamedTuple):
    """How far apart counts must lie for an aggregator to answer as it would without noise."""

    votes: float
    """How many votes a query needs."""
    available: float
    """The most votes that the teachers can give it."""
    meaning: str
    """The sentence that says so, without the probability at its end."""


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What is known of votes before an aggregator is chosen for them.

    Args:
        panel: who votes on what.
        num_queries: how many queries are asked.
        delta: the delta of the guarantee.
        relation: the relation of the guarantee.
        labels_per_sample: how many labels a sample has on average, rounded; None where that is not known.
    """

    panel: Panel
    num_queries: int
    delta: float
    relation: NeighboringRelation
    labels_per_sample: int | None = None

    def __post_init__(self) -> None:
        expect_count(1, num_queries=self.num_queries)
        expect_open_unit(delta=self.delta)

    @classmethod
    def of(cls, votes: Votes, *, delta: float, relation: NeighboringRelation) -> Outlook:
        """Describe votes, as PRIVATE as they are; sets leave out one label at least where there are several."""
        num_labels = votes.num_labels
        average = round(float(votes.counts.mean()) * num_labels / votes.num_teachers)
        k = min(max(1, average), max(1, num_labels - 1))
        return cls(
            panel=votes.panel, num_queries=votes.num_queries, delta=delta, relation=relation, labels_per_sample=k
        )

    @property
    def k(self) -> int:
        """How many labels a set should have. Raises ``ValueError`` where nothing is known of it."""
        known = "settings of the aggregator, which follow from how many labels a sample has"
        expect(self.labels_per_sample is not None, known, k=None)
        assert self.labels_per_sample is not None
        return self.labels_per_sample

    @property
    def delta_test(self) -> float:
        """What one query's stability test may take of delta: all of them together take half of it."""
        return self.delta / (2 * self.num_queries)


@dataclass(frozen=True, kw_only=True)
class Aggregator(ABC):
    """Turns votes into labels through a private mechanism, and knows what that costs.

    Plug-ins are frozen keyword-only dataclasses. Noise parameters have no defaults, and no two classes share the name
    of one, so that none is carried over silently when the class in a configuration changes.

    The number of teachers is nominal: a public constant under both relations, never measured. A teacher that takes no
    part casts a row of zeros, so that neighbors under ADD_REMOVE_TEACHER are ballots ``[T, C]`` and the same with one
    row zeroed, and nothing that follows from ``T`` changes.

    Args:
        neighboring_relation: the relation that the mechanism is run for.

    Raises:
        ValueError: where a class is defined whose methods lack an argument that they are called with.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ()
    """The parameters that are scales of noise, in votes: multiplied by 2, they halve every shift of a vote."""

    neighboring_relation: NeighboringRelation = NeighboringRelation.REPLACE_RECORD

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in set(vars(cls)) & set(_METHODS):
            wanted, found = (signature(getattr(owner, name)).parameters for owner in (Aggregator, cls))
            takes_all = any(each.kind is Parameter.VAR_KEYWORD for each in found.values())
            # before 0.3 they took num_teachers and num_labels in place of a panel
            if not takes_all and not set(wanted) <= set(found):
                place = f"{cls.__module__}.{cls.__name__}.{name}"
                raise ValueError(f"Expected {place}({', '.join(wanted)}), got {name}({', '.join(found)})")

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighboring_relation", NeighboringRelation(self.neighboring_relation))
        expect_positive(**{name: getattr(self, name) for name in self.noise_parameters})

    @property
    def needs_ballots(self) -> bool:
        """Whether it reads what each teacher said, `Votes.ballots`, and not the counts alone."""
        return False

    @property
    def needs_predictions(self) -> bool:
        """Whether it reads what a student predicts of the queries, `Votes.predictions`."""
        return False

    @property
    def title(self) -> str:
        """The name of the class, with what sets this instance apart from others of its class."""
        marks = [mark for mark in self.marks if mark]
        return type(self).__name__ + (f" ({', '.join(marks)})" if marks else "")

    @property
    def marks(self) -> tuple[str, ...]:
        """What sets this instance apart from others of its class, a word for each; empty words do not count."""
        return ()

    @property
    def noise(self) -> dict[str, float]:
        """All scales of noise by name, in votes."""
        return {name: getattr(self, name) for name in self.noise_parameters}

    @abstractmethod
    def event(self, panel: Panel, relation: NeighboringRelation | None = None, tier: int | None = None) -> Event:
        """Describe the cost of one query.

        Args:
            panel: who votes on what.
            relation: the relation that the cost is asked for; the aggregator's own where it is None. Under the other
                one it is what the same mechanism costs there.
            tier: what a query cost whose release says this tier; None for the most that a query may cost. No meaning
                where all queries cost the same.

        Raises:
            ValueError: if the panel is one that the aggregator cannot serve, or there is no such tier.
        """

    @abstractmethod
    def aggregate(self, votes: Votes, *, generator: np.random.Generator) -> Release:
        """Label a whole batch of queries with noise from ``generator``."""

    def events(self, panel: Panel, tier: int | None = None) -> Events:
        """Describe the cost of one query under both relations, as `event` does under one."""
        return {relation: self.event(panel, relation, tier) for relation in NeighboringRelation}

    def charges(self, release: Release, panel: Panel) -> tuple[Charge, ...]:
        """Return what the queries of a release cost in the end: events under both relations, and how often each."""
        if release.tiers is None:
            return ((self.events(panel), len(release.labels)),)
        tiers, counts = np.unique(release.tiers, return_counts=True)
        return tuple(
            (self.events(panel, tier), count) for tier, count in zip(tiers.tolist(), counts.tolist(), strict=True)
        )

    def scaled(self, factor: float) -> Self:
        """Return the same aggregator with ``factor`` times its noise."""
        return replace(self, **{name: factor * getattr(self, name) for name in self.noise_parameters})

    def calibrated(
        self, target: Target, panel: Panel, *, tolerance: float = 1e-6, orders: FloatArray = DEFAULT_ORDERS
    ) -> Self | None:
        """Return the same aggregator with all its noise scaled by the one factor that meets a target.

        Args:
            target: what all queries together may cost.
            panel: who votes on what.
            tolerance: how much more noise than need be there may be, relative. There is never less.
            orders: Renyi orders that epsilon is computed on.

        Returns:
            The calibrated aggregator, or None where no noise meets the target, as where the failures of stability tests
            alone cost its delta.

        Raises:
            ValueError: if the panel is one that the aggregator cannot serve.
        """
        relation = target.neighboring_relation
        self.event(panel, relation)  # what it cannot serve at all is no matter of noise
        try:
            factor = calibrate_scale(
                lambda scale: self.scaled(scale).event(panel, relation), target, tolerance=tolerance, orders=orders
            )
        except ValueError:
            return None
        return self.scaled(factor)

    @classmethod
    def for_target(
        cls, target: Target, panel: Panel, *, delta_test: float | None = None, answered: float = 0.9
    ) -> Self | None:
        """Return an instance of this kind that meets a target, where no more is known than who votes.

        Args:
            target: what all queries together may cost.
            panel: who votes on what.
            delta_test: what each stability test adds to delta, for a kind that splits its noise by it.
            answered: the probability with which a query is to be answered, for a kind that splits its noise by it.

        Returns:
            The first of the `proposals`, calibrated, or None where no noise meets the target.

        Raises:
            ValueError: if the kind has settings that nothing suggests.
        """
        name = cls.__name__
        expect(delta_test is None, f"no delta_test for {name}", delta_test=delta_test)
        outlook = Outlook(
            panel=panel, num_queries=target.num_queries, delta=target.delta, relation=target.neighboring_relation
        )
        proposed = cls.proposals(outlook)
        expect(proposed, f"settings of {name}, which proposes none for {panel.num_labels} labels", aggregator=name)
        return proposed[0].calibrated(target, panel)

    def gap_needed(self, panel: Panel, *, probability: float) -> Gap | None:
        """Return the gap at which a query is answered as without noise, with a probability in (0, 1).

        None where the aggregator has no such figure.
        """
        return None

    @classmethod
    def proposals(cls, outlook: Outlook) -> tuple[Self, ...]:
        """Return what of this kind is worth comparing on votes such as ``outlook`` describes, noise in proportion.

        Unless a class says otherwise: one instance with noise of 1 where all its other parameters have defaults, and
        nothing where one has none.
        """
        required = {
            field.name for field in fields(cls) if field.default is MISSING and field.default_factory is MISSING
        }
        return (cls.of_unit_noise(outlook),) if required <= set(cls.noise_parameters) else ()

    @classmethod
    def of_unit_noise(cls, outlook: Outlook, **settings: Any) -> Self:
        """Return one with ``settings`` and noise of 1, under the relation of ``outlook``."""
        noise: dict[str, Any] = dict.fromkeys(cls.noise_parameters, 1.0)
        return cls(**noise, neighboring_relation=outlook.relation, **settings)

    def describe(self) -> dict[str, Any]:
        """Return the class path and the parameters, in the form that a configuration takes."""
        cls = type(self)
        parameters = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = {
            name: value.describe() if isinstance(value, Aggregator) else value for name, value in parameters.items()
        }
        return {"class_path": f"{cls.__module__}.{cls.__name__}", "init_args": plain}

    def relation_of(self, asked: NeighboringRelation | None) -> NeighboringRelation:
        """Return the relation that a cost is asked for: the aggregator's own where ``asked`` is None."""
        return self.neighboring_relation if asked is None else NeighboringRelation(asked)


def ballots_of(votes: Votes) -> UInt8Array:
    """Return what each teacher said, ``[Q, T, C]``. Raises ``ValueError`` where the votes are counts alone."""
    if votes.ballots is None:
        raise ValueError("Expected votes with what each teacher said, got counts alone")
    return votes.ballots


def predictions_of(votes: Votes) -> FloatArray:
    """Return what a student predicts, ``[Q, C]`` in [0, 1]. Raises ``ValueError`` where no student was asked."""
    if votes.predictions is None:
        raise ValueError("Expected votes with a student's predictions, got none")
    return votes.predictions
