"""Costs of multi-winner voting by hand and against exact divergences, and the script in a small
form."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from pate.accounting import NeighboringRelation
from scripts.reproduction import Verdict, multi_winner as w, multi_winner_claims
from scripts.reproduction.__main__ import main
from scripts.reproduction.data_dependent import private_rdp_table
from scripts.reproduction.findings import kept
from tests.pages.scripts.reproduction.small import attributes_table

ADD, REPLACE = NeighboringRelation.ADD_REMOVE_TEACHER, NeighboringRelation.REPLACE_RECORD


def test_noise_on_both_counts_is_noise_on_one() -> None:
    # the label is given where h + N(0, s^2) exceeds T - h + N(0, s^2)
    generator = np.random.default_rng(0)
    draws = 29 + 7 * generator.standard_normal(200_000) > 21 + 7 * generator.standard_normal(
        200_000
    )
    assert draws.mean() == pytest.approx(
        norm.cdf((29 - 25) / w.one_noise(7.0)), abs=5 * 0.5 / math.sqrt(200_000)
    )


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_queries_within_a_budget_by_hand(relation: NeighboringRelation) -> None:
    event = w.binary_event(7.0, 20, relation)
    # a C / s^2
    np.testing.assert_allclose(event.cost(np.array([2.0, 9.0])).rdp, np.array([2.0, 9.0]) * 20 / 49)
    num = w.queries_within(event, 20.0, 1e-5)
    rho = 20 / 49 * num
    assert num >= 12 and rho <= 20 < 20 / 49 * (num + 1) + 2 * math.sqrt(
        20 / 49 * (num + 1) * math.log(1e5)
    )
    np.testing.assert_allclose(w.powerset_event(7.0, relation).cost(np.array([3.0])).rdp, 3 / 49)


def test_epsilons_add_up() -> None:
    curves = np.tile(w.ORDERS * 0.1, (4, 1))
    found = w.epsilons(curves, 1e-5, classic=True)
    for i, epsilon in enumerate(found):
        rho = 0.1 * (i + 1)
        assert epsilon == pytest.approx(rho + 2 * math.sqrt(rho * math.log(1e5)), rel=5e-3)
    assert (w.epsilons(curves, 1e-5, classic=False) < found).all()
    assert w.within(found, float(found[2])) == 3 and w.within(found, 0.0) == 0


def test_theorem_6_holds_in_its_direction_and_a_bound_of_both_covers_the_other() -> None:
    worst = w.one_way(50, 7.0)
    assert worst.stated <= 1 < 1.5 < worst.ratio
    assert worst.exact_other == pytest.approx(worst.ratio * worst.bound)
    noise = w.one_noise(7.0)
    both = private_rdp_table(worst.order, sigma=noise, num_teachers=50)
    assert both[worst.votes] >= worst.exact_other
    # by hand: one of fifty votes less, in the direction that is the larger
    p, q = (norm.cdf((each - 25) / noise) for each in (worst.votes, worst.votes - 1))
    both_ways = [
        math.log(
            a**worst.order * b ** (1 - worst.order)
            + (1 - a) ** worst.order * (1 - b) ** (1 - worst.order)
        )
        / (worst.order - 1)
        for a, b in ((p, q), (q, p))
    ]
    assert (worst.exact_stated, worst.exact_other) == pytest.approx(tuple(both_ways), rel=1e-6)
    assert both_ways[0] < worst.bound < both_ways[1]


def test_curves_are_sums_over_labels() -> None:
    counts = np.array([[0, 10, 25], [50, 49, 1]])
    one, both = (w.binary_curves(counts, 50, 7.0, both_ways=each) for each in (False, True))
    assert (one <= both).all() and (both <= 3 * w.ORDERS / 49 * (1 + 1e-12)).all()
    table = w.published_table(float(w.ORDERS[5]), w.one_noise(7.0), 50)
    assert one[0, 5] == pytest.approx(table[[0, 10, 25]].sum())


def test_union_bound_of_powerset_by_hand() -> None:
    ballots = np.array([[1, 0]] * 6 + [[1, 1]] * 3 + [[0, 0]], dtype=np.uint8)
    sd = 2.0 * math.sqrt(2)
    # one set of the four got no vote
    expected = norm.sf(3 / sd) + norm.sf(5 / sd) + norm.sf(6 / sd)
    assert w.powerset_log_q(ballots, 2.0) == pytest.approx(math.log(expected))
    assert w.powerset_log_q(ballots, 1e6) == pytest.approx(math.log(3 / 4))
    assert (w.powerset_curves(ballots[None], 2.0) <= w.ORDERS / 4 * (1 + 1e-12)).all()


def test_what_is_sanitised_costs_more_than_what_is_not() -> None:
    counts = np.random.default_rng(0).choice([0, 1, 2, 48, 50], size=(30, 5))
    found = w.sanitised(counts, 50, 7.0, 1e-5)
    private = w.epsilons(w.binary_curves(counts, 50, 7.0, both_ways=True), 1e-5, classic=False)[-1]
    assert found.epsilon > private and found.spread > 0


@pytest.mark.slow
def test_the_script_in_a_small_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATE_DATA", str(attributes_table(tmp_path / "data")))
    main(["dziedzic_multi_winner", "--output", str(tmp_path / "found")])
    (found,) = kept(tmp_path / "found")
    unknown, bound, number, quality, tau = [claim.verdict for claim in found.claims]
    assert unknown is number is quality is Verdict.UNTESTABLE and bound is tau is Verdict.REPRODUCED
    assert multi_winner_claims.TEACHERS == 50
