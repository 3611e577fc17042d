"""A comparison of aggregators: its candidates, its settings and its results.

The cost of queries is computed by several accountants from the parameters.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.util import find_spec
from typing import Any, NamedTuple

from pate._planning.proposals import (
    one_change_variants,
    with_first_round,
)
from pate._planning.tables import text_table
from pate._validation import require, require_count, require_in_open_unit_interval, require_positive
from pate.accounting import DEFAULT_ORDERS, NeighboringRelation, RDPAccountant, Target
from pate.accounting._autodp import epsilon_by_autodp
from pate.accounting._charges import Events
from pate.accounting._events import BoundedRangeEvent, Event, GaussianEvent, leaves
from pate.aggregators import Aggregator, Outlook, registered

EPSILONS = ("tightest", "optimal", "classic", "exact", "autodp", "dp_accounting")


def costs_of(
    events: Events, *, num_queries: int, delta: float
) -> dict[str, dict[str, float | None]]:
    """Return the total cost of several equal queries.

    Args:
        events: the event of one query under each relation.
        num_queries: number of queries asked.
        delta: the delta of every epsilon.

    Returns:
        For each relation: the ``tightest`` epsilon, as in statements; epsilon of the curve by the
        ``optimal`` and the ``classic`` conversion; the ``exact`` epsilon if all events are
        Gaussian; epsilon from ``autodp`` and ``dp_accounting`` by their own curves, if they are
        installed and have one for each part of the event. A missing figure is None. ``delta0`` is the part of delta
        that is spent on failures, such as failures of stability tests.

    Raises:
        ValueError: on parameters out of range.
    """
    require_count(1, num_queries=num_queries)
    require_in_open_unit_interval(delta=delta)
    costs: dict[str, dict[str, float | None]] = {}
    for relation, event in events.items():
        total = RDPAccountant(relation=relation).compose(event, num_queries)
        gaussian = all(type(leaf) is GaussianEvent for leaf, _ in leaves(event))
        costs[relation.value] = {
            "tightest": total.get_epsilon(delta=delta),
            "optimal": total.get_epsilon(delta=delta, conversion="optimal"),
            "classic": total.get_epsilon(delta=delta, conversion="classic"),
            "exact": total.get_epsilon(delta=delta, conversion="exact") if gaussian else None,
            "autodp": _by_autodp(event, num_queries, delta),
            "dp_accounting": _by_dp_accounting(event, num_queries, delta),
            "delta0": total.delta0,
        }
    return costs


def _by_autodp(event: Event, count: int, delta: float) -> float | None:
    try:
        return epsilon_by_autodp(event, count=count, delta=delta)
    except ImportError:
        return None


def _by_dp_accounting(event: Event, count: int, delta: float) -> float | None:
    """Return epsilon from dp_accounting, by privacy-loss distribution or, for zCDP, by Renyi DP."""
    if find_spec("dp_accounting") is None:
        return None
    import dp_accounting
    from dp_accounting import pld, rdp

    parts: list[Any] = []
    gaussian = True
    for leaf, n in leaves(event, count):
        if isinstance(leaf, GaussianEvent):
            single = dp_accounting.GaussianDpEvent(leaf.noise_multiplier)
        elif isinstance(leaf, BoundedRangeEvent):
            single, gaussian = dp_accounting.ZCDpEvent(leaf.eta**2 / 8), False
        else:
            return None
        parts.append(dp_accounting.SelfComposedDpEvent(single, n))
    accountant = (
        pld.PLDAccountant() if gaussian else rdp.RdpAccountant(orders=DEFAULT_ORDERS[:-1].tolist())
    )
    return float(accountant.compose(dp_accounting.ComposedDpEvent(parts)).get_epsilon(delta))


class Candidate(NamedTuple):
    """An aggregator that is compared with others."""

    name: str
    """The display name; for a variant, the name of the original and the changed field."""
    family: str
    """The name of the class; with a preceding round, the class of the last round."""
    aggregator: Aggregator


def candidates(
    outlook: Outlook, aggregators: Sequence[Aggregator] | None = None, *, variants: bool = False
) -> list[Candidate]:
    """Return the candidates for votes described by ``outlook``, in the order of tables.

    Args:
        outlook: the votes.
        aggregators: the aggregators to compare; None for the proposals of all registered ones.
            Aggregators that need predictions become the last of two `Rounds`. Only the proportions
            of their noise matter.
        variants: whether each is followed by its other forms, unless these are candidates already.
    """
    if aggregators is None:
        aggregators = [each for cls in registered().values() for each in cls.proposals(outlook)]
    compared = _named_apart(
        [_candidate(aggregator, outlook) for aggregator in aggregators], aggregators
    )
    if not variants:
        return compared
    seen_aggregators = [candidate.aggregator for candidate in compared]
    with_forms: list[Candidate] = []
    for aggregator, candidate in zip(aggregators, compared, strict=True):
        with_forms.append(candidate)
        for changed, form in one_change_variants(
            aggregator, replace(outlook, relation=aggregator.neighboring_relation)
        ).items():
            variant = _candidate(form, outlook)
            if variant.aggregator not in seen_aggregators:
                seen_aggregators.append(variant.aggregator)
                with_forms.append(variant._replace(name=f"{candidate.name}, {changed}"))
    return with_forms


def _named_apart(compared: list[Candidate], aggregators: Sequence[Aggregator]) -> list[Candidate]:
    """Return candidates with distinct names: equal names get the settings that differ."""
    named = []
    for candidate, aggregator in zip(compared, aggregators, strict=True):
        namesakes = [
            other
            for other, another in zip(aggregators, compared, strict=True)
            if another.name == candidate.name and type(other) is type(aggregator)
        ]
        apart = [
            f", {field.name}={value}"
            for field in fields(aggregator)
            if len({repr(getattr(other, field.name)) for other in namesakes}) > 1
            for value in [getattr(aggregator, field.name)]
        ]
        named.append(candidate._replace(name=candidate.name + "".join(apart)))
    return named


def _candidate(aggregator: Aggregator, outlook: Outlook) -> Candidate:
    complete = with_first_round(
        aggregator, replace(outlook, relation=aggregator.neighboring_relation)
    )
    return Candidate(complete.display_name, type(aggregator).__name__, complete)


PRIVATE = "PRIVATE: computed from private votes without accounting for it; not to be published"
FREE = "from simulated votes alone: nothing private was touched"
LABEL_FIGURES = ("answered", "label_accuracy", "label_macro_f1")
STUDENT_FIGURES = ("student_accuracy", "student_macro_f1", "student_mAP")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Settings common to all aggregators that are compared.

    Args:
        epsilons: the targets.
        delta: the delta at which they hold.
        num_queries: number of public samples to label, the same ones for each aggregator.
        neighboring_relation: the relation under which the targets hold, and for which proposed
            aggregators are made.
        student: whether a linear student is trained on the released labels and evaluated on the
            test set.
        cutoff: the lowest probability at which the student gives a label.
        seeds: number of times that the noise is drawn; medians are shown.
        query_seed: seed of the public order in which samples are taken, as in ``pate label``.
        variants: whether the other forms of each aggregator are compared too, such as other laws of
            its noise: one setting changed at a time, as its class declares.

    Raises:
        ValueError: on parameters out of range, or without an epsilon.
    """

    epsilons: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0)
    delta: float = 1e-6
    num_queries: int = 600
    neighboring_relation: NeighboringRelation = NeighboringRelation.REPLACE_RECORD
    student: bool = False
    cutoff: float = 0.5
    seeds: int = 3
    query_seed: int = 0
    variants: bool = False

    def __post_init__(self) -> None:
        require_count(1, num_queries=self.num_queries, seeds=self.seeds)
        require_in_open_unit_interval(delta=self.delta, cutoff=self.cutoff)
        require(self.epsilons, "at least one epsilon", epsilons=self.epsilons)
        require_positive(**{f"epsilons[{i}]": epsilon for i, epsilon in enumerate(self.epsilons)})

    @property
    def figures(self) -> tuple[str, ...]:
        """Names of the figures that are measured."""
        return (*LABEL_FIGURES, *(STUDENT_FIGURES if self.student else ()))

    @property
    def title(self) -> str:
        """The settings in one line."""
        relation = self.neighboring_relation.value.upper()
        return f"{self.num_queries} queries, delta {self.delta:g}, {relation}"

    def target(self, epsilon: float) -> Target:
        """Return the target of all queries together at one of the epsilons."""
        return Target(
            epsilon=epsilon,
            delta=self.delta,
            num_queries=self.num_queries,
            neighboring_relation=self.neighboring_relation,
        )


@dataclass(frozen=True, kw_only=True)
class Point:
    """One aggregator at one epsilon: medians over seeds of the noise; NaN without a student."""

    aggregator: str
    target_epsilon: float
    epsilon: float
    realised_epsilon: float
    parameters: str
    answered: float
    label_accuracy: float
    label_macro_f1: float
    student_accuracy: float = math.nan
    student_macro_f1: float = math.nan
    student_mAP: float = math.nan  # noqa: N815


@dataclass(frozen=True, kw_only=True)
class Frontier:
    """The results of a comparison.

    Attributes:
        comparison: the settings.
        points: a point for each aggregator and epsilon that it can meet.
        references: figures of references by name, such as a constant answer.
        private: whether the votes, and so all results, are private.
        families: the class of each aggregator by its name, where variants are compared; else empty.
    """

    comparison: Comparison
    points: tuple[Point, ...]
    references: dict[str, dict[str, float]]
    private: bool
    families: Mapping[str, str] = field(default_factory=dict)

    @property
    def notice(self) -> str:
        """One line on whether the results may be published."""
        return PRIVATE if self.private else FREE


def ranked(points: Sequence[Point], figures: Sequence[str]) -> list[str]:
    """Return the names of all aggregators by their mean rank over targets and ``figures``.

    The best comes first. An aggregator without a figure at a target ranks last there.
    """
    names = list(dict.fromkeys(point.aggregator for point in points))
    points_by_name = {(point.aggregator, point.target_epsilon): point for point in points}
    ranks = dict.fromkeys(names, 0.0)
    for target in {point.target_epsilon for point in points}:
        for figure in figures:
            values = {
                name: getattr(points_by_name.get((name, target)), figure, math.nan)
                for name in names
            }
            values = {n: -math.inf if math.isnan(value) else value for n, value in values.items()}
            for name in names:
                ranks[name] += sum(other > values[name] for other in values.values())
    return sorted(names, key=lambda name: ranks[name])


def best_of_families(frontier: Frontier, figures: Sequence[str]) -> list[str]:
    """Return the best aggregator of each family, in the order of `ranked`."""
    best: dict[str, str] = {}
    for name in ranked(frontier.points, figures):
        best.setdefault(frontier.families.get(name, name), name)
    return list(best.values())


def best_at(points: Sequence[Point], measured: str) -> dict[float, Point]:
    """Return the best point at each target by one figure; a missing figure never wins."""
    best: dict[float, Point] = {}
    for point in points:
        value = getattr(point, measured)
        best_so_far = getattr(best.get(point.target_epsilon), measured, -math.inf)
        if value > best_so_far:
            best[point.target_epsilon] = point
    return dict(sorted(best.items()))


def frontier_table(frontier: Frontier) -> str:
    """Return all points and references as text, and the best aggregator at each epsilon."""
    points, comparison = frontier.points, frontier.comparison
    names = comparison.figures
    rows = [("aggregator", "epsilon", "realised", *names)]
    for point in points:
        epsilons = f"{point.epsilon:.3f}", f"{point.realised_epsilon:.3f}"
        rows.append(
            (point.aggregator, *epsilons, *(f"{getattr(point, name):.4f}" for name in names))
        )
    for reference, figures in frontier.references.items():
        rows.append((reference, "", "", *(f"{figures[name]:.4f}" for name in names)))
    table = text_table(rows)
    lines = [frontier.notice, comparison.title, "", *table]
    for measured in STUDENT_FIGURES if comparison.student else ("label_accuracy",):
        lines += ["", f"Best by {measured}:"]
        for target, point in best_at(points, measured).items():
            lines.append(
                f"    epsilon {target:g}: {point.aggregator} ({getattr(point, measured):.4f})"
            )
    if not comparison.student:
        lines.append(
            "An aggregator can be right on the few queries that it answers: look at `answered` too."
        )
    return "\n".join(lines) + "\n"


def frontier_rows(frontier: Frontier) -> Iterable[Mapping[str, Any]]:
    """Yield all points, then the references, without epsilons, as rows of a file."""
    yield from map(asdict, frontier.points)
    yield from ({"aggregator": name, **figures} for name, figures in frontier.references.items())
