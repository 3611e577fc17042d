"""A plan: an aggregator whose noise meets a target, and what comes before it."""

from __future__ import annotations

from dataclasses import dataclass

from pate.accounting.calibration import Target, calibrate_scale
from pate.accounting.charges import Charge, account
from pate.accounting.events import ComposedEvent, Event
from pate.accounting.relation import NeighboringRelation
from pate.aggregators import Aggregator, NoisyVotes, Release
from pate.votes import Panel

_TOLERANCE = 1e-4  # noise that is larger than need be by less shows in no figure


@dataclass(frozen=True, kw_only=True)
class Plan:
    """An aggregator whose noise meets a target, with what trains the student that it asks, if it asks one.

    Attributes:
        aggregator: the calibrated aggregator.
        first: soft noisy votes on the same queries, whose student predicts what the aggregator is told; None without.
    """

    aggregator: Aggregator
    first: NoisyVotes | None = None

    @property
    def noise(self) -> dict[str, float]:
        """All scales of noise by name, to four digits."""
        noise = dict(self.aggregator.noise)
        if self.first is not None:
            noise["first_sigma_votes"] = self.first.sigma_votes
        return {name: round(scale, 4) for name, scale in noise.items()}

    def event(self, panel: Panel, relation: NeighboringRelation | None = None) -> Event:
        """Describe the most that one query may cost."""
        asked = self.aggregator.relation_of(relation)
        first = () if self.first is None else (self.first.event(panel, asked),)
        return ComposedEvent(events=(*first, self.aggregator.event(panel, asked)))

    def charges(self, release: Release, panel: Panel) -> tuple[Charge, ...]:
        """Return what the queries of a release of the aggregator cost in the end, with what came first."""
        charges = self.aggregator.charges(release, panel)
        return charges if self.first is None else (*charges, (self.first.events(panel), len(release.labels)))

    def epsilon(self, target: Target, panel: Panel) -> float:
        """Return what all queries of a target may cost."""
        relation = target.neighboring_relation
        charge = ({relation: self.event(panel, relation)}, target.num_queries)
        return account([charge], relation).get_epsilon(delta=target.delta)


def plan_for(aggregator: Aggregator, target: Target, panel: Panel) -> Plan | None:
    """Scale the noise of an aggregator so that all queries meet a target; None where no noise does.

    One that asks a student gets soft noisy votes first, at a quarter of what they alone would take.
    """
    if not aggregator.needs_predictions:
        alone = aggregator.calibrated(target, panel, tolerance=_TOLERANCE)
        return None if alone is None else Plan(aggregator=alone)
    relation = target.neighboring_relation
    unit = NoisyVotes(sigma_votes=1.0, neighboring_relation=aggregator.neighboring_relation)
    first = unit.scaled(2 * calibrate_scale(lambda scale: unit.scaled(scale).event(panel, relation), target))

    def planned(scale: float) -> Plan:
        return Plan(aggregator=aggregator.scaled(scale), first=first)

    try:
        factor = calibrate_scale(lambda scale: planned(scale).event(panel, relation), target, tolerance=_TOLERANCE)
    except ValueError:
        return None
    return planned(factor)
