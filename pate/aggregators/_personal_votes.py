"""Score votes of records that have budgets of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import numpy as np

from pate._settings import Partial
from pate._validation import require
from pate._votes import VoteShape
from pate._votes.voters import RecordVoters, Voters
from pate.accounting import Event, NeighboringRelation, PersonalEvent
from pate.accounting._filters import personal_weights, require_budgets
from pate.aggregators._base import Aggregator, AnyAggregator
from pate.aggregators._score_votes import ScoreVotes


@dataclass(frozen=True, kw_only=True)
class PersonalVotes(ScoreVotes):
    """`ScoreVotes` of records with personal budgets: who consents to less counts with less weight.

    Choose it wherever the source of the records declares budgets: it takes the place of
    `ScoreVotes` there by itself. The weight of a budget is the ratio of its ``mu`` to that of the
    largest budget, rounded down to a multiple of ``2^-16``, so that sums of weights are exact.

    Privacy: all that a record moves is multiplied by its weight. Its ballot is scaled to the clip,
    then by the weight, and rounded toward zero, so that the sum moves by at most twice the clip
    times the weight; the number of voters, the numbers of those that know a label, and each
    comparison for a clip move by the weight in place of one. All questions, and their shares of the
    budget, follow from what was released. A release that is ``mu``-GDP for records of weight 1 is
    so ``w mu``-GDP for those of weight ``w`` (individualized PATE by weights, Boenisch et al.
    (2022)), under REPLACE_RECORD and ADD_REMOVE_TEACHER alike. An altered record keeps its id, and
    so its budget.

    Args:
        multiplier_scores: noise multiplier of one query, for records of the largest budget.
        rounds: as in `ScoreVotes`.
        budgets: the budgets that records may have, ascending epsilons: a public list.
        delta: the delta of the budgets.
        neighboring_relation: the relation under which the cost is stated first.

    Raises:
        ValueError: as `ScoreVotes` does, or if budgets are not positive and ascending, or so far
            apart that one has no weight.
    """

    offered: ClassVar[bool] = False

    budgets: tuple[float, ...]
    delta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "budgets", require_budgets(self.budgets))
        require(self.budgets, "at least one budget", budgets=self.budgets)
        self.weights  # noqa: B018  # raises

    @property
    def weights(self) -> tuple[float, ...]:
        """The weight of each budget, 1 for the largest."""
        return personal_weights(self.budgets, self.delta)

    def event(
        self, shape: VoteShape, relation: NeighboringRelation | None = None, tier: int | None = None
    ) -> Event:
        """Describe the cost of one query, to records of all budgets."""
        return PersonalEvent(
            event=super().event(shape, relation, tier),
            budgets=self.budgets,
            weights=self.weights,
            delta=self.delta,
        )

    def weighed(self, voters: Voters) -> Voters:
        """Return records with the weights of their budgets. Raises ``ValueError`` on others."""
        require(
            isinstance(voters, RecordVoters) and voters.budgets is not None,
            "records with personal budgets, each of which votes for itself",
            voters=type(voters).__name__,
        )
        assert voters.budgets is not None
        require(np.isin(voters.budgets, self.budgets).all(), "records of declared budgets")
        places = np.searchsorted(self.budgets, voters.budgets)
        return replace(voters, weights=np.array(self.weights)[places])


def by_budgets(
    aggregator: AnyAggregator | None, budgets: Sequence[float], delta: float
) -> AnyAggregator:
    """Return `PersonalVotes` in place of the `ScoreVotes` that are asked for, or of nothing.

    Raises ``ValueError`` if another aggregator, or another list of budgets, is asked for.
    """
    asked = aggregator or Partial(ScoreVotes)
    settings, cls = (
        ({each.name: getattr(asked, each.name) for each in fields(asked)}, type(asked))
        if isinstance(asked, Aggregator)
        else (asked.settings, asked.cls)
    )
    require(
        cls in (ScoreVotes, PersonalVotes),
        "ScoreVotes of records that have personal budgets",
        aggregator=cls.__name__,
    )
    declared = {"budgets": list(budgets), "delta": delta}
    settings = {
        name: list(value) if name == "budgets" else value for name, value in settings.items()
    }
    other = {
        name: settings[name]
        for name in declared
        if settings.get(name) not in (None, declared[name])
    }
    require(not other, f"the budgets {list(budgets)} of the records at delta = {delta:g}", **other)
    return Partial(PersonalVotes, **{**settings, **declared}).complete()
