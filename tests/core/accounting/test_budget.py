"""Filters: bounds that follow from the budget, hold against whoever chooses releases by earlier
ones, and go far."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp, ndtr

from pate._core.accounting.charges import (
    BudgetExceededError,
    Events,
    FilterName,
    GaussianFilter,
    RenyiFilter,
    affordable,
    filter_from_dict,
    make_filter,
    require_filter_of_first,
)
from pate._core.accounting.cost import (
    conversion_overhead,
    gaussian_delta,
    largest_mu,
    smallest_where,
)
from pate._core.validation import FloatArray
from pate.accounting import (
    DEFAULT_ORDERS,
    BoundedRangeEvent,
    Budget,
    ComposedEvent,
    Cost,
    Event,
    GaussianEvent,
    Ledger,
    NeighboringRelation,
    PrivacyFilter,
    RenyiCurveEvent,
    StabilityTestEvent,
    gaussian_epsilon,
    verify_ledger,
)
from tests.core.accounting.ledgers import reserve

REPLACE = NeighboringRelation.REPLACE_RECORD
NOTHING = Cost.nothing(DEFAULT_ORDERS)
BUDGET = Budget(max_epsilon=1.0, delta=1e-6, neighboring_relation=REPLACE)
GAUSSIAN = GaussianEvent(noise_multiplier=100.0, neighboring_relation=REPLACE)
CHOICE = BoundedRangeEvent(eta=0.01, neighboring_relation=REPLACE)
WIDE = BoundedRangeEvent(eta=0.2, neighboring_relation=REPLACE)
TEST = StabilityTestEvent(
    sigma=200.0, delta_test=1e-9, shift=2, num_teachers=400, neighboring_relation=REPLACE
)
CURVE = RenyiCurveEvent(orders=(2.0, 100.0), rdp=(1e-6, 1e-4), neighboring_relation=REPLACE)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (30.0, 0.1), (1e-9, 1e-12)])
def test_largest_mu_is_on_the_private_side(epsilon: float, delta: float) -> None:
    mu = largest_mu(epsilon, delta)
    assert (
        gaussian_delta(epsilon, mu) <= delta * (1 + 1e-9) < gaussian_delta(epsilon, mu * (1 + 1e-6))
    )
    assert gaussian_epsilon(delta, mu) == pytest.approx(epsilon, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (CHOICE, RenyiFilter),
        (WIDE, RenyiFilter),
        (ComposedEvent(events=(CHOICE, TEST)), RenyiFilter),
        (CURVE, RenyiFilter),
    ],
)
def test_other_releases_go_further_under_another_filter(
    event: Event, kind: type[PrivacyFilter]
) -> None:
    bounds = make_filter(BUDGET, event.cost())
    assert type(bounds) is kind
    most = affordable(BUDGET, event.cost())
    assert bounds.admits(event.cost(bounds.orders) * most)
    assert not bounds.admits(event.cost(bounds.orders) * (most + 1))


@pytest.mark.parametrize("event", [GAUSSIAN, ComposedEvent(events=(CHOICE, TEST))])
def test_a_filter_follows_from_its_budget_and_no_other(event: Event) -> None:
    bounds = make_filter(BUDGET, event.cost())
    bounds.require_follows(BUDGET)
    assert filter_from_dict(bounds.to_dict()) == bounds
    stated = bounds.to_dict()
    wrong = [{"max_delta0": 2e-6}, {"max_delta0": (stated["max_delta0"] + 1e-6) / 2}]
    wrong += [
        {name: stated[name] * 1.001} for name in ("max_rdp", "max_mu_squared") if name in stated
    ]
    for change in wrong:
        with pytest.raises(ValueError, match=r"^Expected [^\n]*$"):
            filter_from_dict(stated | change).require_follows(BUDGET)
    for smaller in ({"max_epsilon": 0.99}, {"delta": 9e-7}):
        arguments: dict[str, Any] = BUDGET.to_dict() | smaller
        with pytest.raises(ValueError, match=r"^Expected [^\n]*$"):
            bounds.require_follows(Budget(**arguments))
    with pytest.raises(ValueError, match=r"^Expected max_delta0 of"):
        filter_from_dict(bounds.to_dict() | {"max_delta0": 1e-9}).require_follows(
            Budget(max_epsilon=1.0, delta=1e-6, neighboring_relation=REPLACE, max_delta0=1e-12)
        )


def worst_delta(
    epsilon: float,
    squares: float,
    step: float,
    rounds: int,
    *,
    failure: float = 0.1,
    delta0: float = 0.0,
) -> float:
    """Largest delta at ``epsilon`` of an adversary who sees on which side of a threshold a Gaussian fell, then chooses.

    In each round it chooses, by all that it saw, a threshold and a mean that moves by 1 to 3 steps
    while their squares sum up to ``squares`` at most; the threshold tells one bit. Or it chooses a
    test that tells all with probability ``failure``, and nothing else, while all failures together
    stay within ``delta0``. Every choice is enumerated.
    """
    thresholds = np.linspace(-1.5, 1.5, 7).tolist()

    def value(gamma: float, left: float, rounds: int, aside: float = delta0) -> float:
        best = max(0.0, 1 - gamma)
        if rounds == 0:
            return best
        if failure <= aside * (1 + 1e-9):
            spare = 1 - (1 - aside) / (1 - failure)
            best = failure + (1 - failure) * value(gamma, left, rounds - 1, spare)
        for n in (1, 2, 3):
            mu = n * step
            if mu**2 > left * (1 + 1e-9):
                break
            for at in thresholds:
                p, q = float(ndtr(at + mu)), float(ndtr(at))
                for yes, no in ((p, q), (q, p)):
                    branches = ((yes, no), (1 - yes, 1 - no))
                    found = sum(
                        one * value(gamma * other / one, left - mu**2, rounds - 1, aside)
                        for one, other in branches
                    )
                    best = max(best, found)
        return best

    return value(math.exp(epsilon), squares, rounds)


@pytest.mark.slow
def test_no_adaptive_adversary_exceeds_the_gaussian_filter() -> None:
    for mu, epsilon in ((0.9, 0.5), (1.2, 1.0)):
        delta = gaussian_delta(epsilon, mu)
        found = worst_delta(epsilon, mu**2, mu / 3, 3)
        assert 0.5 * delta < found <= delta
        # a wider filter would be refuted
        assert worst_delta(epsilon, (1.3 * mu) ** 2, 1.3 * mu / 3, 3) > delta


@pytest.mark.parametrize("num_failures", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_no_adversary_exceeds_a_budget_with_a_share_for_failures(num_failures: int) -> None:
    """Whose tests fail when it likes, before or after the Gaussian noise that is left to it."""
    delta0 = 1 - 0.99**num_failures
    budget = Budget(max_epsilon=0.5, delta=0.2, neighboring_relation=REPLACE, max_delta0=delta0)
    bounds = make_filter(budget, GAUSSIAN.cost())
    assert isinstance(bounds, GaussianFilter)

    def worst(aside: float, failure: float) -> float:
        mu = math.sqrt(bounds.max_mu_squared)
        return worst_delta(0.5, mu**2, mu / 3, num_failures + 1, failure=failure, delta0=aside)

    assert worst(0.0, 0.01) + 0.005 < worst(delta0, 0.01) <= budget.delta
    # a larger share would be refuted
    assert worst(0.05, 0.05) > budget.delta


@pytest.mark.parametrize("event", [GAUSSIAN, CHOICE])
@pytest.mark.parametrize("kind", ["renyi", "gaussian"])
def test_sums_that_exceed_a_bound_by_rounding_alone_are_admitted(
    event: Event, kind: FilterName
) -> None:
    bounds = make_filter(replace(BUDGET, filter=kind, max_delta0=1e-7), event.cost(DEFAULT_ORDERS))
    nothing = Cost.nothing(bounds.orders)
    survival, rdp = math.log1p(-1e-7), np.full(1, getattr(bounds, "max_rdp", 0.0))
    full = Cost(rdp, survival, getattr(bounds, "max_mu_squared", 0.0))
    for excess, admitted in ((9e-13, True), (1.2e-12, False)):
        assert bounds.admits(nothing._replace(log_survival=survival * (1 + excess))) is admitted
        assert bounds.admits((full * (1 + excess))._replace(log_survival=0.0)) is admitted


# whoever chooses the filter by what was released


def rare_loss(probability: float, loss: float) -> tuple[FloatArray, FloatArray]:
    """Return the laws under P and Q of a bit whose first outcome has this ``probability`` under P,
    and this loss."""
    p, q = probability, probability * math.exp(-loss)
    return np.array([p, 1 - p]), np.array([q, 1 - q])


def divergence(laws: tuple[FloatArray, FloatArray], orders: FloatArray) -> FloatArray:
    """Return the Renyi divergence ``[K]`` of two laws in the direction in which it is larger."""
    p, q = laws
    a = orders[:, None]
    with np.errstate(over="ignore"):
        both = [
            logsumexp(a * np.log(x) + (1 - a) * np.log(y), axis=1) / (orders - 1)
            for x, y in ((p, q), (q, p))
        ]
    return np.asarray(np.maximum(both[0], both[1]).clip(0), dtype=np.float64)


def curves(laws: tuple[FloatArray, FloatArray]) -> Events:
    orders = DEFAULT_ORDERS[DEFAULT_ORDERS < 1e3]
    rdp = tuple(divergence(laws, orders).tolist())
    return {
        relation: RenyiCurveEvent(
            orders=tuple(orders.tolist()), rdp=rdp, neighboring_relation=relation
        )
        for relation in NeighboringRelation
    }


# The first release tells a bit of which one outcome is rare and has a large loss. A high order sees
# little but that outcome, a low one little but the other: whoever has the high order after the one
# and the low order after the other spends delta nearly twice.
FIRST = rare_loss(math.exp(-7), 0.25)
# for orders near 49 and 14
AIMED = rare_loss(0.51132827, 0.77075175), rare_loss(1.3977926e-4, 1.0718074)
WHOLE = Budget(max_epsilon=1.0, delta=1e-5, neighboring_relation=REPLACE, max_delta0=0.0)


def exact_delta(second: Sequence[tuple[FloatArray, FloatArray] | None]) -> float:
    """Return the exact delta at epsilon 1 of the first release and, by its outcome, of a second one
    or of none."""
    total = 0.0
    for p, q, laws in zip(*FIRST, second, strict=True):
        then_p, then_q = (np.ones(1), np.ones(1)) if laws is None else laws
        total += float(np.maximum(0.0, p * then_p - math.e * q * then_q).sum())
    return total


def declared_after_the_first(folder: Path, laws: tuple[FloatArray, FloatArray]) -> bool:
    """Whether a ledger admits a second release that is reserved with the budget."""
    ledger = Ledger(folder / f"{len(list(folder.iterdir()))}.sqlite")
    reserve(ledger, curves(FIRST), 1)
    try:
        reserve(ledger, curves(laws), 1, WHOLE)
    except BudgetExceededError:
        return False
    book = verify_ledger(ledger.path)
    assert book.declared_after == 1 and book.filter == make_filter(
        WHOLE, curves(FIRST)[REPLACE].cost()
    )
    return True


def test_a_budget_declared_after_a_release_has_the_filter_of_the_first(tmp_path: Path) -> None:
    """With a filter chosen by what the first release showed, the delta of both is 1.9 times the
    stated one."""
    assert exact_delta(AIMED) > 1.9 * WHOLE.delta
    admitted = [laws if declared_after_the_first(tmp_path, laws) else None for laws in AIMED]
    assert exact_delta(admitted) <= WHOLE.delta


def test_no_second_release_by_what_the_first_showed_exceeds_a_renyi_filter(tmp_path: Path) -> None:
    """The adversary's bits are enumerated, each as likely as the filter admits; a wider filter
    would be refuted."""
    bounds = make_filter(WHOLE, curves(FIRST)[REPLACE].cost())
    assert isinstance(bounds, RenyiFilter)
    spent = curves(FIRST)[REPLACE].cost(bounds.orders).rdp[0]
    touching = math.log(bounds.order / (bounds.order - 1))  # where the bound on the tail touches it

    def worst(max_rdp: float) -> tuple[float, list[tuple[FloatArray, FloatArray]]]:
        best = []
        for outcome, first_loss in enumerate(np.log(FIRST[0] / FIRST[1]).tolist()):
            found = []
            for excess in (0.5 * touching, touching, 3 * touching):
                loss = WHOLE.max_epsilon - first_loss + excess

                def fits(log_p: float, loss: float = loss) -> bool:
                    laws = rare_loss(math.exp(log_p), loss)
                    return bool(divergence(laws, bounds.orders)[0] > max_rdp - spent)

                laws = rare_loss(
                    math.exp(smallest_where(fits, -40.0, -1e-3, tolerance=1e-9) - 1e-7), loss
                )
                second = [None, None]
                second[outcome] = laws  # type: ignore[call-overload]
                found.append((exact_delta(second), laws))
            best.append(max(found, key=lambda each: each[0]))
        return sum(delta for delta, _ in best), [laws for _, laws in best]

    delta, laws = worst(bounds.max_rdp)
    assert 0.9 * WHOLE.delta < delta <= WHOLE.delta
    assert all(declared_after_the_first(tmp_path, each) for each in laws)
    assert worst(1.1 * bounds.max_rdp)[0] > WHOLE.delta


def test_a_filter_is_that_of_its_first_release_in_every_number() -> None:
    first = GAUSSIAN.cost()
    budget = replace(BUDGET, filter="renyi")
    bounds = make_filter(budget, first)
    require_filter_of_first(bounds, budget, first)
    for name, value in (("order", 7.0), ("max_rdp", 1e-3), ("max_delta0", 3e-7)):
        changed = replace(bounds, **{name: value})  # type: ignore[type-var]
        with pytest.raises(ValueError, match=r"^Expected the filter that follows from the budget"):
            require_filter_of_first(changed, budget, first)
    # nor is it another kind of filter
    with pytest.raises(ValueError, match=r"^Expected the filter that follows from the budget"):
        require_filter_of_first(bounds, BUDGET, first)


@pytest.mark.parametrize("kind", ["renyi", "gaussian"])
def test_bounds_of_a_filter_are_those_of_the_budget_but_for_rounding(kind: FilterName) -> None:
    name, tolerance = {"renyi": ("max_rdp", 0.0), "gaussian": ("max_mu_squared", 1e-10)}[kind]
    budget = replace(BUDGET, filter=kind)
    bounds = make_filter(budget, GAUSSIAN.cost())
    bound = getattr(bounds, name)
    if isinstance(bounds, RenyiFilter):
        overhead = budget.max_epsilon - bound
        assert overhead > 0
        tolerance = 1e-12 * (budget.max_epsilon + overhead) / bound
    else:
        assert bounds.orders.shape == (1,)
    for share, follows in ((-1.2, False), (-0.8, True), (0.8, True), (1.2, False)):
        changed = filter_from_dict(bounds.to_dict() | {name: bound * (1 + share * tolerance)})
        with nullcontext() if follows else pytest.raises(ValueError, match=f"^Expected {name}="):
            changed.require_follows(budget)
    for share, follows in ((0.8e-9, True), (1.2e-9, False)):
        changed = filter_from_dict(bounds.to_dict() | {name: bound * (1 + share)})
        with (
            nullcontext()
            if follows
            else pytest.raises(ValueError, match=r"^Expected the filter that follows")
        ):
            require_filter_of_first(changed, budget, GAUSSIAN.cost())


def test_what_takes_a_bound_to_the_last_is_admitted() -> None:
    """One release whose cost is the bound itself, also where that is nothing."""
    failing = replace(BUDGET, max_delta0=1e-7)
    overhead = conversion_overhead(DEFAULT_ORDERS, failing.delta - 1e-7)
    least = replace(failing, max_epsilon=float(overhead[100]), filter="renyi")
    free_at_one_order = np.where(np.arange(DEFAULT_ORDERS.size) == 100, 0.0, 1e6)
    failure = NOTHING._replace(rdp=free_at_one_order, log_survival=math.log1p(-1e-7))
    bounds = make_filter(least, failure)
    assert (
        isinstance(bounds, RenyiFilter)
        and bounds.max_rdp == 0
        and bounds.order == DEFAULT_ORDERS[100]
    )
    assert affordable(least, failure) == 1
    assert affordable(replace(least, max_epsilon=least.max_epsilon * 0.999), failure) == 0
    assert affordable(least, failure._replace(log_survival=0.0)) > 1
    square = largest_mu(1.0, 1e-6) ** 2
    for excess, count in ((0.0, 1), (1e-9, 0)):
        once = NOTHING._replace(rdp=DEFAULT_ORDERS * square / 2, mu_squared=square * (1 + excess))
        assert affordable(replace(BUDGET, max_delta0=0.0, filter="gaussian"), once) == count
    nothing = Cost.nothing(np.array([2.0]))
    assert RenyiFilter(order=2.0, max_rdp=0.0, max_delta0=0.0).admits(nothing)
