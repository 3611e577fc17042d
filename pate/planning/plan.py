"""A plan: an aggregator whose noise meets a target, and the release that must precede it, if any."""

from __future__ import annotations

from dataclasses import dataclass

from pate.accounting.calibration import Target, calibrate_scale
from pate.accounting.charges import Charge, account
from pate.accounting.events import ComposedEvent, Event
from pate.accounting.relation import NeighboringRelation
from pate.aggregators import Aggregator, NoisyVotes, Release
from pate.votes import Panel

_TOLERANCE = 1e-4  # a smaller excess of noise shows in no figure


@dataclass(frozen=True, kw_only=True)
class Plan:
    """An aggregator whose noise meets a target, with the first release that trains its student if it needs one.

    Attributes:
        aggregator: the calibrated aggregator.
        first: soft noisy votes on the same queries, which train the student whose predictions the aggregator needs;
            None if it needs none.
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
        """Return what the queries of a release actually cost, including the first release."""
        charges = self.aggregator.charges(release, panel)
        return charges if self.first is None else (*charges, (self.first.events(panel), len(release.labels)))

    def epsilon(self, target: Target, panel: Panel) -> float:
        """Return the largest epsilon of all queries of a target."""
        relation = target.neighboring_relation
        charge = ({relation: self.event(panel, relation)}, target.num_queries)
        return account([charge], relation).get_epsilon(delta=target.delta)


def plan_for(aggregator: Aggregator, target: Target, panel: Panel) -> Plan | None:
    """Scale the noise of an aggregator so that all queries meet a target; None if no noise does.

    An aggregator that needs a student is preceded by soft noisy votes, at a quarter of what they alone would cost.
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
