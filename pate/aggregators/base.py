"""The contract of an aggregator: votes in, released labels out, and the event that they cost."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from pate.accounting.events import Event
from pate.accounting.relation import NeighboringRelation
from pate.validation import expect_positive
from pate.votes import Votes


class Release(NamedTuple):
    """What an aggregator released of a batch of queries. An entry that was not released says nothing of why."""

    labels: NDArray[np.uint8]
    """``[Q, C]`` in {0, 1}; 0 where nothing was released."""
    mask: NDArray[np.bool_]
    """``[Q, C]``: which labels were released."""
    values: NDArray[np.float64] | None = None
    """``[Q, C]``: noisy numbers of teachers that gave each label, below 0 and above all of them too, from an aggregator
    that releases them; 0 where nothing was released."""
    noise_std: float | None = None
    """Standard deviation of the Gaussian noise in ``values``, in votes."""
    steps: NDArray[np.int64] | None = None
    """``[Q]``: how far each query went, for `Aggregator.realised_event`; None where all cost the same."""


@dataclass(frozen=True, kw_only=True)
class Aggregator(ABC):
    """Turns votes into labels through a private mechanism.

    Plug-ins are frozen keyword-only dataclasses. Noise parameters have no defaults, and other names in every class, so
    that none is carried over silently when the class in a configuration changes.

    The published number of teachers is nominal: a public constant under both relations, never measured. A teacher that
    takes no part casts a row of zeros, so that neighbors under ADD_REMOVE_TEACHER are ballots ``[T, C]`` and the same
    with one row zeroed, and nothing that follows from ``T`` moves.

    Args:
        neighboring_relation: the relation that the mechanism is run for.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ()
    """The parameters that are scales of noise, in votes: multiplied by 2, they halve every shift of a vote."""

    neighboring_relation: NeighboringRelation = NeighboringRelation.REPLACE_RECORD

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

    @abstractmethod
    def event(
        self, *, num_teachers: int, num_labels: int, neighboring_relation: NeighboringRelation | None = None
    ) -> Event:
        """Describe the cost of one query, the most that it can be.

        Args:
            num_teachers: the nominal number of teachers.
            num_labels: how many labels they vote on.
            neighboring_relation: what the cost is asked for; the aggregator's own relation where it is None, or what
                the same mechanism costs under the other.
        """

    def realised_event(
        self,
        steps: int,
        *,
        num_teachers: int,
        num_labels: int,
        neighboring_relation: NeighboringRelation | None = None,
    ) -> Event:
        """Describe what a query cost that went ``steps`` far, as `Release.steps` says; never more than `event`."""
        return self.event(num_teachers=num_teachers, num_labels=num_labels, neighboring_relation=neighboring_relation)

    @abstractmethod
    def aggregate(self, votes: Votes, *, generator: np.random.Generator) -> Release:
        """Label a whole batch of queries with noise from ``generator``."""

    def scaled(self, factor: float) -> Self:
        """Return the same aggregator with ``factor`` times its noise."""
        return replace(self, **{name: factor * getattr(self, name) for name in self.noise_parameters})

    def relation_of(self, asked: NeighboringRelation | None) -> NeighboringRelation:
        """Return the relation that a cost is asked for: the aggregator's own where ``asked`` is None."""
        return self.neighboring_relation if asked is None else NeighboringRelation(asked)
