"""Personal budgets: each holds over all releases of a ledger, whatever budgets each of them names."""

import math
from pathlib import Path

import pytest

from pate._core.accounting.charges import BudgetExceededError, Events
from pate._core.accounting.cost import largest_mu
from pate._core.accounting.filters import (
    describe_personal,
    named_budgets,
    personal_figures,
    personal_weights,
    require_kept,
)
from pate.accounting import (
    BoundedRangeEvent,
    Budget,
    ComposedEvent,
    Event,
    GaussianEvent,
    Ledger,
    NeighboringRelation,
    PersonalEvent,
    RepeatedEvent,
    StabilityTestEvent,
    event_from_dict,
    gaussian_epsilon,
    read_ledger,
    verify_ledger,
)

REPLACE = NeighboringRelation.REPLACE_RECORD
BUDGETS, DELTA = (0.5, 1.0, 2.0), 1e-6
WEIGHTS = personal_weights(BUDGETS, DELTA)


def plain(mu: float, relation: NeighboringRelation = REPLACE) -> GaussianEvent:
    return GaussianEvent(noise_multiplier=1 / mu, neighboring_relation=relation)


def personal(mu: float, budgets: tuple[float, ...] = BUDGETS, delta: float = DELTA) -> Events:
    weights = personal_weights(budgets, delta)
    return {
        relation: PersonalEvent(
            event=plain(mu, relation), budgets=budgets, weights=weights, delta=delta
        )
        for relation in NeighboringRelation
    }


def whole(mu: float) -> Events:
    return {relation: plain(mu, relation) for relation in NeighboringRelation}


def reserve(ledger: Ledger, events: Events, count: int = 1) -> int:
    return ledger.reserve(
        events, count=count, run="run", description="votes", seeded=False, delta=DELTA
    )


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
def test_weights_are_ratios_of_mu_on_a_grid(delta: float) -> None:
    """A record of weight w in a release that spends the largest budget stays within its own."""
    weights = personal_weights(BUDGETS, delta)
    assert weights[-1] == 1
    for budget, weight in zip(BUDGETS, weights, strict=True):
        spent = weight * largest_mu(BUDGETS[-1], delta)
        assert (weight * 2**16).is_integer()
        assert spent <= largest_mu(budget, delta) < spent + 2**-16 * largest_mu(2.0, delta) * 1.01
        assert gaussian_epsilon(delta, spent) <= budget * (1 + 1e-9)


def test_an_event_costs_each_budget_its_part() -> None:
    """The cost to a weight is that of a Gaussian mechanism of so much less mu, in any nesting."""
    event = personal(0.3)[REPLACE]
    nested = ComposedEvent(events=(RepeatedEvent(event=event, count=4), plain(0.2)))
    assert event.cost().mu_squared == pytest.approx(0.09)
    assert named_budgets(nested) == {(budget, DELTA) for budget in BUDGETS}
    for budget, weight in zip(BUDGETS, WEIGHTS, strict=True):
        own = nested.for_budget(budget, DELTA)
        assert own.cost().mu_squared == pytest.approx(4 * (0.3 * weight) ** 2 + 0.04)
        assert event.for_group_size(3).for_budget(budget, DELTA).cost().mu_squared == (
            pytest.approx((0.9 * weight) ** 2)
        )
    # neither this budget nor this delta is named: the record may have counted in full
    for budget, delta in ((0.7, DELTA), (0.5, 1e-5)):
        assert nested.for_budget(budget, delta) == nested
    assert event_from_dict(event.to_dict()) == event


@pytest.mark.parametrize(
    "wrong",
    [
        {"weights": (0.5, 1.0)},
        {"weights": (0.0, 0.5, 1.0)},
        {"weights": (0.5, 0.6, 1.5)},
        {"budgets": (1.0, 0.5, 2.0)},
        {"budgets": (0.5, 0.5, 2.0)},
        {"budgets": (-1.0, 0.5, 2.0)},
        {"delta": 0.0},
        {"event": StabilityTestEvent.__name__},
    ],
)
def test_an_event_without_a_known_law_is_refused(wrong: dict[str, object]) -> None:
    right = {"event": plain(0.3), "budgets": BUDGETS, "weights": WEIGHTS, "delta": DELTA}
    with pytest.raises(ValueError, match="Expected"):
        PersonalEvent(**right | wrong)  # type: ignore[arg-type]


def test_the_filter_keeps_each_budget_over_releases(tmp_path: Path) -> None:
    """Releases with the same budgets spend all of them together; a later one is refused."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    mu = largest_mu(2.0, DELTA) / math.sqrt(4) * (1 - 1e-9)
    for _ in range(4):
        reserve(ledger, personal(mu))
    with pytest.raises(BudgetExceededError, match=r"epsilon <= .* at delta = 1e-06"):
        reserve(ledger, personal(0.01))
    for figures in personal_figures(read_ledger(ledger.path).reserved()):
        epsilon = figures[REPLACE.value]["epsilon"]
        assert 0.99 * figures["epsilon"] < epsilon <= figures["epsilon"]
    assert len(verify_ledger(ledger.path).entries) == 4


@pytest.mark.parametrize("order", [1, -1])
def test_releases_that_name_other_budgets_count_in_full(order: int, tmp_path: Path) -> None:
    """A budget that a release does not name has had weight 1 in it, before and after."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    least = largest_mu(0.5, DELTA)
    releases = [personal(0.8 * least), whole(0.55 * least)][::order]
    reserve(ledger, releases[0])
    reserve(ledger, releases[1])  # sqrt((w 0.8)^2 + 0.55^2) < 1 for the smallest
    with pytest.raises(BudgetExceededError, match=r"epsilon <= 0.5 .* for its records"):
        reserve(ledger, whole(0.85 * least))
    with pytest.raises(BudgetExceededError, match=r"epsilon <= 0.5 .* for its records"):
        reserve(ledger, personal(0.9 * least, (1.0, 2.0)))
    # another list: 0.4 was never named, so that releases before count in full
    with pytest.raises(BudgetExceededError, match=r"epsilon <= 0.4"):
        reserve(ledger, personal(0.05, (0.4, 2.0)))
    assert len(verify_ledger(ledger.path).entries) == 2


def test_the_sum_of_a_budget_has_the_weight_of_each_release(tmp_path: Path) -> None:
    """The weight of 1 among 0.5 and 1 is 1, among 1 and 4 it is less."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    reserve(ledger, personal(0.05, (0.5, 1.0)), count=2)
    reserve(ledger, personal(0.08, (1.0, 4.0)))
    half, one, four = personal_figures(read_ledger(ledger.path).reserved())
    first, second = personal_weights((0.5, 1.0), DELTA)[0], personal_weights((1.0, 4.0), DELTA)[0]
    for figures, expected in (
        (half, 2 * (first * 0.05) ** 2 + 0.08**2),
        (one, 2 * 0.05**2 + (second * 0.08) ** 2),
        (four, 2 * 0.05**2 + 0.08**2),
    ):
        assert figures[REPLACE.value]["mu"] ** 2 == pytest.approx(expected)
        assert figures[REPLACE.value]["epsilon"] == pytest.approx(
            gaussian_epsilon(DELTA, math.sqrt(expected))
        )
    assert "budget 0.5 " in [*describe_personal([half])][1]


def test_what_has_no_mu_is_refused(tmp_path: Path) -> None:
    """Tests that may fail, and units that reach several teachers, have no place among budgets."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    reserve(ledger, personal(0.05))
    tested: dict[NeighboringRelation, Event] = {
        relation: StabilityTestEvent(
            sigma=60.0, delta_test=1e-9, shift=2, num_teachers=100,
            neighboring_relation=relation,
        )
        for relation in NeighboringRelation
    }  # fmt: skip
    with pytest.raises(ValueError, match="delta0"):
        reserve(ledger, tested)
    wide = Ledger(ledger.path, max_teachers_per_unit=2)
    with pytest.raises(ValueError, match="max_teachers_per_unit = 1 in a ledger of personal"):
        reserve(wide, personal(0.05))
    # a budget for such units covers all releases, so that no statement could be made of them
    budget = Budget(
        max_epsilon=2.0, delta=DELTA, neighboring_relation=REPLACE, max_teachers_per_unit=2
    )
    other = Ledger(tmp_path / "other.sqlite")
    for paid in (False, True):
        with pytest.raises(ValueError, match="max_teachers_per_unit = 1 in a ledger of personal"):
            other.reserve(
                personal(0.05), count=1, run="run", description="votes", seeded=False, delta=DELTA,
                budget=None if paid else budget,
            )  # fmt: skip
        assert not paid or len(read_ledger(other.path).entries) == 1
        if not paid:
            other.reserve(
                whole(0.05), count=1, run="run", description="votes", seeded=False, delta=DELTA,
                budget=budget,
            )  # fmt: skip


def test_a_budget_that_is_named_after_other_releases_says_so(tmp_path: Path) -> None:
    """Its own number may have followed from what they showed."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    for events in (personal(0.05, (0.5, 2.0)), whole(0.01), personal(0.05)):
        reserve(ledger, events)
    figures = personal_figures(read_ledger(ledger.path).reserved())
    assert [(row["epsilon"], row["named_after"]) for row in figures] == [(0.5, 0), (1, 2), (2, 0)]
    told = ["first named after release 2" in line for line in describe_personal(figures)]
    assert told == [False, False, True, False]


def test_no_settlement_counts_more_for_a_budget_than_its_reservation(tmp_path: Path) -> None:
    """Less in all, but with weight 1 for all: such a settlement is refused."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    release = reserve(ledger, personal(0.3))
    with pytest.raises(ValueError, match="settled for what it reserved"):
        ledger.settle(release, realised=[(whole(0.2), 1)])
    ledger.settle(release)
    assert read_ledger(ledger.path).entries[0].settled


def test_other_releases_may_be_settled_for_less(tmp_path: Path) -> None:
    """Their charges, and not their reservations, count for each budget."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    least = largest_mu(0.5, DELTA)
    reserve(ledger, personal(0.5 * least))
    ledger.settle(reserve(ledger, whole(0.9 * least)), realised=[(whole(0.1 * least), 2)])
    reserve(ledger, whole(0.9 * least))
    with pytest.raises(BudgetExceededError, match="for its records"):
        reserve(ledger, whole(0.5 * least))
    assert len(verify_ledger(ledger.path).entries) == 3


def test_releases_settled_for_less_never_show_more_than_the_budget(tmp_path: Path) -> None:
    """Together they reserved more than the least budget; the filter, which charges less, holds."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    least = largest_mu(0.5, DELTA)
    reserve(ledger, personal(0.5 * least))
    for _ in range(2):
        ledger.settle(reserve(ledger, whole(0.9 * least)), realised=[(whole(0.1 * least), 1)])
    figures = personal_figures(read_ledger(ledger.path).reserved())
    assert figures[0]["replace_record"]["epsilon"] > 0.5
    assert "have epsilon = 0.500 (mu" in [*describe_personal(figures)][1]


def test_a_choice_from_the_same_records_is_kept_and_told(tmp_path: Path) -> None:
    """Its Gaussian bound counts for each budget; a sum with it is no Gaussian's."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    reserve(ledger, personal(0.05))
    choice = {
        relation: BoundedRangeEvent(neighboring_relation=relation, eta=0.1)
        for relation in NeighboringRelation
    }
    reserve(ledger, choice)
    book = verify_ledger(ledger.path)
    figures = personal_figures(book.reserved())
    for budget, figure in zip(BUDGETS, figures, strict=True):
        assert all(figure[relation.value]["epsilon"] <= budget for relation in NeighboringRelation)
    told = [" (mu" in line for line in describe_personal(figures)][1:]
    assert told == ["mu" in figure["replace_record"] for figure in figures] and not all(told)
    with pytest.raises(BudgetExceededError, match="for its records"):
        reserve(ledger, choice, count=10_000)


def test_a_statement_on_releases_beyond_a_budget_is_refused() -> None:
    with pytest.raises(BudgetExceededError, match=r"epsilon <= 0.5"):
        require_kept([(personal(0.3), 1), (personal(0.4), 1)], 1)
    require_kept([(personal(0.3), 1), (personal(0.2), 1)], 1)
