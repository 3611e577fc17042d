"""What a privacy budget buys, and what was bought: noise for a target, epsilon from parameters, and the ledger."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pate.accounting.accountant import RDPAccountant
from pate.accounting.calibration import Target, calibrate_scale, epsilon_of
from pate.accounting.curves import DEFAULT_ORDERS
from pate.accounting.events import BoundedRangeEvent, Event, GaussianEvent, leaves
from pate.accounting.figures import epsilon_text, exact_text
from pate.accounting.ledger import Book, Charge, read_ledger, verify_ledger
from pate.accounting.ledger import account as account_releases
from pate.accounting.relation import NeighboringRelation
from pate.accounting.statement import verify_statement
from pate.aggregators.base import Aggregator
from pate.aggregators.stable_topk import StableTopK
from pate.validation import expect, expect_count, expect_open_unit
from pate.votes import Panel

Mechanism = Literal["stable_topk", "noisy_votes", "powerset"]


def calibrate(
    *,
    target_epsilon: float,
    delta: float,
    num_queries: int,
    num_teachers: int,
    num_labels: int,
    mechanism: Mechanism = "stable_topk",
    neighboring_relation: NeighboringRelation = NeighboringRelation.REPLACE_RECORD,
    delta_test: float | None = None,
    answered: float = 0.9,
) -> dict[str, float]:
    """Find the noise that meets a target epsilon, print and return it.

    Args:
        target_epsilon: the largest epsilon of all queries together.
        delta: the delta at which it holds.
        num_queries: how many queries are asked.
        num_teachers: how many teachers vote.
        num_labels: how many labels they vote on.
        mechanism: ``stable_topk``, ``noisy_votes`` (Gaussian noise on every count) or ``powerset`` (Gumbel noise on the
            counts of label sets).
        neighboring_relation: the relation under which the target holds.
        delta_test: what each stability test adds to delta. None for half of ``delta`` over all queries.
        answered: the probability with which a query of the predicted gap is answered, or labelled as without noise.

    Returns:
        The parameters of the noise, ``epsilon`` and the predicted ``gap`` in votes.

    Raises:
        ValueError: if no noise meets the target.
    """
    relation = NeighboringRelation(neighboring_relation)
    expect_count(2, num_teachers=num_teachers)
    expect_count(1, num_labels=num_labels)
    expect_open_unit(answered=answered)
    found: dict[str, float]
    if mechanism == "stable_topk":
        panel = Panel(num_teachers, num_labels)
        target = Target(epsilon=target_epsilon, delta=delta, num_queries=num_queries, neighboring_relation=relation)
        noise = StableTopK.for_target(target, panel, delta_test=delta_test, answered=answered)
        assert noise is not None
        found = {name: getattr(noise, name) for name in ("scale_gap", "sigma_test", "delta_test")}
        found["epsilon"] = epsilon_of(noise.event(panel), count=num_queries, delta=delta)
        found["gap"] = noise.gap_needed(panel, probability=answered).votes
    else:
        expect(mechanism in ("noisy_votes", "powerset"), "a known mechanism", mechanism=mechanism)
        expect(delta_test is None, "no delta_test where nothing is tested", delta_test=delta_test)
        found = _calibrate_one(mechanism, relation, target_epsilon, delta, num_queries, num_labels, answered)
    votes = "the two label sets" if mechanism == "powerset" else "the counts"
    lines = [f"{mechanism} under {relation.value.upper()}, {num_queries} queries, delta = {exact_text(delta)}:"]
    lines += [f"    {name} = {exact_text(value)}" for name, value in found.items() if name not in ("epsilon", "gap")]
    lines.append(f"    epsilon = {epsilon_text(found['epsilon'], 4)} (target {exact_text(target_epsilon)})")
    if mechanism == "noisy_votes":
        lines.append(
            f"A count {found['gap']:.1f} votes away from {num_teachers / 2:g} keeps its label with probability"
            f" {answered:g}."
        )
    else:
        lines.append(
            f"A gap of {found['gap']:.1f} votes between {votes} is what a query needs to be answered, and answered"
            f" right, with probability {answered:g}."
        )
    if found["gap"] > num_teachers / (2 if mechanism == "noisy_votes" else 1):
        lines.append(f"{num_teachers} teachers cannot have it: ask fewer queries, or for a larger epsilon.")
    print("\n".join(lines))
    return found


def account(
    *,
    aggregator: Aggregator,
    num_queries: int,
    delta: float,
    num_teachers: int,
    num_labels: int,
    plot: Path | None = None,
) -> dict[str, dict[str, float | None]]:
    """Print and return what queries would cost, from parameters alone.

    Args:
        aggregator: the mechanism.
        num_queries: how many queries are asked.
        delta: the delta of every epsilon.
        num_teachers: how many teachers vote.
        num_labels: how many labels they vote on.
        plot: a file for a picture of epsilon against the number of queries.

    Returns:
        For each relation, the ``tightest`` epsilon, which statements give, epsilon of the curve by the ``optimal`` and
        the ``classic`` conversion, the ``exact`` one where all events are Gaussian, that of ``autodp`` for the same
        curve, and that of ``dp_accounting`` from curves of its own, if it is installed; None where there is no such
        figure. ``delta0`` is what tests and the like cost of delta.

    Raises:
        ValueError: on parameters out of range.
    """
    expect_count(1, num_queries=num_queries)
    expect_open_unit(delta=delta)
    events = aggregator.events(Panel(num_teachers, num_labels))
    found: dict[str, dict[str, float | None]] = {}
    for relation, event in events.items():
        total = RDPAccountant(neighboring_relation=relation).compose(event, num_queries)
        gaussian = all(type(leaf) is GaussianEvent for leaf, _ in leaves(event))
        found[relation.value] = {
            "tightest": total.get_epsilon(delta=delta),
            "optimal": total.get_epsilon(delta=delta, conversion="optimal"),
            "classic": total.get_epsilon(delta=delta, conversion="classic"),
            "exact": total.get_epsilon(delta=delta, conversion="exact") if gaussian else None,
            "autodp": _by_autodp(total, delta),
            "dp_accounting": _by_dp_accounting(event, num_queries, delta),
            "delta0": total.delta0,
        }
    names = ("tightest", "optimal", "classic", "exact", "autodp", "dp_accounting")
    print(f"epsilon of {num_queries} queries at delta = {exact_text(delta)} through {aggregator}:")
    print(f"    {'relation':<20}" + "".join(f"{name:>14}" for name in names) + f"{'delta0':>12}")
    for name, row in found.items():
        shown = "".join(f"{'-' if row[each] is None else epsilon_text(row[each], 4):>14}" for each in names)
        print(f"    {name:<20}{shown}{row['delta0']:>12.3g}")
    if plot is not None:
        _draw(events, aggregator.neighboring_relation, num_queries, delta, Path(plot))
        print(f"Epsilon against queries: {plot}")
    return found


def ledger_show(*, ledger: Path, delta: float | None = None) -> None:
    """Print the releases of a ledger and what they cost together.

    Args:
        ledger: the file.
        delta: the delta of epsilon; that of the ledger's budget, or of its last release, or 1e-6, where it is None.

    Raises:
        ValueError: if the file is not an intact ledger.
    """
    book = read_ledger(ledger)
    print(f"{ledger}: {len(book.entries)} release(s) of {sum(entry.count for entry in book.entries)} queries")
    for entry in book.entries:
        state = "settled" if entry.settled else "reserved, counts in full"
        state += ", for less than reserved" if entry.realised is not None else ""
        state += ", SEEDED: not private" if entry.seeded else ""
        print(f"    {entry.release}: {entry.at} {entry.run}: {entry.count} x {entry.description} ({state})")
    _print_sum(book, _delta_of(book) if delta is None else delta)


def ledger_verify(*, ledger: Path, statement: Path | None = None) -> None:
    """Compute everything that a ledger says again from its events, and print that it holds.

    Args:
        ledger: the file.
        statement: a ``privacy.json`` whose epsilons are computed again too.

    Raises:
        ValueError: at the first figure that does not follow from the events, or if the file is damaged.
    """
    book = verify_ledger(ledger)
    print(f"{ledger}: intact; {len(book.entries)} release(s), and every epsilon follows from the events.")
    if statement is not None:
        try:
            content = json.loads(Path(statement).read_text())
            verify_statement(content, book)
        except (OSError, KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"Expected a readable statement at {statement}, got: {error!r}") from None
        print(f"{statement}: every epsilon follows from the events.")
    _print_sum(book, _delta_of(book))


def _print_sum(book: Book, delta: float) -> None:
    expect_open_unit(delta=delta)
    reserved, paid = [(entry.events, entry.count) for entry in book.entries], book.charges()
    for relation in NeighboringRelation:
        print(_sum_text(reserved, relation, delta))
    if any(entry.realised is not None for entry in book.entries):
        print("what happened cost less, no guarantee, because it was not fixed before the noise was drawn:")
        for relation in NeighboringRelation:
            print(f"    {_sum_text(paid, relation, delta)}")
    if book.budget is not None and book.filter is not None:
        budget, bounds = book.budget, book.filter
        spent = book.spent(budget.neighboring_relation, bounds.orders)
        print(
            f"budget: epsilon <= {exact_text(budget.max_epsilon)} at delta = {exact_text(budget.delta)} under"
            f" {budget.neighboring_relation.value.upper()}; spent are {bounds.spent(spent)}"
        )


def _sum_text(charges: Sequence[Charge], relation: NeighboringRelation, delta: float) -> str:
    total = account_releases(charges, relation)
    figures = f"epsilon = {epsilon_text(total.get_epsilon(delta=delta), 4)} at delta = {exact_text(delta)}"
    return f"{figures} (delta0 = {total.delta0:.3g}) under {relation.value.upper()}"


def _delta_of(book: Book) -> float:
    if book.budget is not None:
        return book.budget.delta
    stated = [entry.stated["delta"] for entry in book.entries if entry.stated is not None]
    return float(stated[-1]) if stated else 1e-6


def _calibrate_one(
    mechanism: Mechanism,
    relation: NeighboringRelation,
    target_epsilon: float,
    delta: float,
    num_queries: int,
    num_labels: int,
    answered: float,
) -> dict[str, float]:
    from scipy.special import ndtri

    def event(scale: float) -> Event:
        if mechanism == "powerset":
            # one set loses the vote that another gains: a teacher that takes no part counts for the empty one
            return BoundedRangeEvent(eta=2 / scale, neighboring_relation=relation)
        return GaussianEvent(noise_multiplier=scale / math.sqrt(num_labels), neighboring_relation=relation)

    scale = calibrate_scale(event, Target(epsilon=target_epsilon, delta=delta, num_queries=num_queries))
    epsilon = epsilon_of(event(scale), count=num_queries, delta=delta)
    if mechanism == "powerset":
        # a set against all others without votes, as the exponential mechanism chooses
        gap = scale * (math.log(2) * num_labels + math.log(answered / (1 - answered)))
        return {"scale_votes": scale, "epsilon": epsilon, "gap": max(gap, 0.0)}
    return {"sigma_votes": scale, "epsilon": epsilon, "gap": max(scale * float(ndtri(answered)), 0.0)}


def _by_autodp(total: RDPAccountant, delta: float) -> float:
    """Return the epsilon that autodp finds for the same curve, with its own conversion and search."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(total.to_autodp().get_approxDP(delta))


def _by_dp_accounting(event: Event, count: int, delta: float) -> float | None:
    """Return epsilon from dp_accounting: by privacy-loss distribution, or by Renyi DP where it has zCDP alone."""
    if find_spec("dp_accounting") is None:
        return None
    import dp_accounting
    from dp_accounting import pld, rdp

    parts: list[Any] = []
    gaussian = True
    for leaf, n in leaves(event, count):
        if isinstance(leaf, GaussianEvent):
            parts.append(dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(leaf.noise_multiplier), n))
        elif isinstance(leaf, BoundedRangeEvent):
            parts.append(dp_accounting.SelfComposedDpEvent(dp_accounting.ZCDpEvent(leaf.eta**2 / 8), n))
            gaussian = False
        else:
            return None
    accountant = pld.PLDAccountant() if gaussian else rdp.RdpAccountant(orders=DEFAULT_ORDERS[:-1].tolist())
    return float(accountant.compose(dp_accounting.ComposedDpEvent(parts)).get_epsilon(delta))


def _draw(
    events: dict[NeighboringRelation, Event], own: NeighboringRelation, num_queries: int, delta: float, path: Path
) -> None:
    from matplotlib.figure import Figure  # without pyplot there is no window and no state

    counts = np.unique(np.linspace(1, num_queries, 60).astype(int))
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for relation, event in events.items():
        for conversion, style in (("tightest", "-"), ("classic", ":")):
            epsilons = [
                epsilon_of(event, count=count, delta=delta, conversion=conversion)  # type: ignore[arg-type]
                for count in counts.tolist()
            ]
            name = f"{relation.value}{' (own)' if relation is own else ''}, {conversion}"
            colour = "tab:blue" if relation is own else "tab:orange"
            axes.plot(counts, epsilons, style, color=colour, label=name)
    axes.set(xlabel="queries", ylabel=f"epsilon at delta = {delta:g}", xlim=(0, None), ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
