"""The contract of an aggregator: votes in, released labels out, and the event that they cost."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pate.accounting.events import Event
from pate.accounting.relation import NeighboringRelation
from pate.votes import Votes


class Release(NamedTuple):
    """What an aggregator released of a batch of queries. An entry that was not released says nothing of why."""

    labels: NDArray[np.uint8]
    """``[Q, C]`` in {0, 1}; 0 where nothing was released."""
    mask: NDArray[np.bool_]
    """``[Q, C]``: which labels were released."""


@dataclass(frozen=True, kw_only=True)
class Aggregator(ABC):
    """Turns votes into labels through a private mechanism.

    Plug-ins are frozen keyword-only dataclasses. Noise parameters have no defaults, and other names in every class, so
    that none is carried over silently when the class in a configuration changes.

    Args:
        neighboring_relation: the relation that the mechanism is run for.
    """

    neighboring_relation: NeighboringRelation = NeighboringRelation.REPLACE_RECORD

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighboring_relation", NeighboringRelation(self.neighboring_relation))

    @abstractmethod
    def event(
        self, *, num_teachers: int, num_labels: int, neighboring_relation: NeighboringRelation | None = None
    ) -> Event:
        """Describe the cost of one query.

        Args:
            num_teachers: how many teachers vote.
            num_labels: how many labels they vote on.
            neighboring_relation: what the cost is asked for; the aggregator's own relation where it is None, or what
                the same mechanism costs under the other.
        """

    @abstractmethod
    def aggregate(self, votes: Votes, *, generator: np.random.Generator) -> Release:
        """Label a whole batch of queries with noise from ``generator``."""
