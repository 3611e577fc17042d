"""Statements of Shekelyan & Loukides (2022), computed a second time: by enumeration, quadrature and search."""

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import linprog
from scipy.stats import laplace, logistic

from scripts.reproduction import Effort, Verdict
from scripts.reproduction import shekelyan_statements as statements


def test_leaps_by_all_sets_and_by_quadrature() -> None:
    values = statements.leaps()[1]
    items, top = range(statements.EQUAL), {0, 1}
    sets = [set(chosen) for chosen in itertools.combinations(items, 2)]
    shared = sum(bool(chosen & top) for chosen in sets) / len(sets)
    assert values["5.3: sets that share an item with the top-k"] == pytest.approx(shared) == pytest.approx(37 / 190)
    peeled = [set(chosen) for chosen in itertools.combinations(items[:-1], 2)]
    shared = sum(bool(chosen & top) for chosen in peeled) / len(peeled)
    assert values["5.4: sets that share an item with the top-k"] == pytest.approx(shared)
    assert values["5.4: sets other than the top-k"] == pytest.approx(1 - 1 / len(peeled))
    # the largest of n Gumbel noises exceeds another one: n / (n + 1)
    for name, noises in (("5.3: Pr[X > 0]", len(sets)), ("5.4: Pr[X' > 0]", 17 * 2)):
        below = quad(lambda z, n=noises: math.exp(-z - math.exp(-z)) * math.exp(-n * math.exp(-z)), -5, 40)[0]
        assert values[name] == pytest.approx(1 - below, abs=1e-9)


def test_the_ratio_of_expected_leaps_by_logarithms_of_binomials() -> None:
    values = statements.expected_leaps()[1]
    assert values["E[X'] / E[X] at k = 10"] == pytest.approx(10 * math.log(890) / math.log(math.comb(100, 10)))
    assert values["E[X'] / E[X] at k = 100"] == pytest.approx(100 * math.log(89_900) / math.log(math.comb(1000, 100)))


def test_the_bound_by_all_sets() -> None:
    values = statements.bounds()[1]
    tails = np.array([min(chosen) for chosen in itertools.combinations(range(35, -1, -5), 3)], dtype=float)
    law = np.exp(tails - 35) / np.exp(tails - 35).sum()
    assert (tails <= 25).all()  # as printed: x_[T] below x_[k] plus anything
    assert values["probability, as meant"] == pytest.approx(law[tails > 25 - values["E"]].sum())
    assert values["E"] == pytest.approx(3 * math.log(8 / 3) + math.log(10) + 3)


def test_weights_by_all_sets() -> None:
    """A set of ranks has head h if 1..h are in and h + 1 is not, and its last rank is the tail."""
    k, d = 3, 7
    sizes: dict[tuple[int, int], int] = {}
    for chosen in itertools.combinations(range(1, d + 1), k):
        head = next((h for h in range(k) if h + 1 not in chosen), k - 1)
        sizes[head, chosen[-1]] = sizes.get((head, chosen[-1]), 0) + 1
    assert sizes.pop((k - 1, k)) == 1
    for (h, t), size in sizes.items():
        assert math.comb(t - h - 2, k - h - 1) == size
        printed = statements.printed_weight(h, t, k)
        assert printed == pytest.approx(size) if h == k - 1 else printed > size + 0.5
    assert statements.printed_weight(0, 4, 3) == pytest.approx(3) and sizes[0, 4] == 1


def test_less_gamma_at_more_epsilon_by_all_sets() -> None:
    """Corollary 5.2 in the sense in which it is shown: the odds of every other set against the top-k fall."""
    claim, values = statements.gammas()
    assert claim.verdict is Verdict.DIFFERENT
    assert values["top-k at gamma 1/2, 2 epsilon"] > values["top-k at gamma 1, epsilon"]
    scores, k, epsilon = np.array([9.0, 7.5, 7.0, 4.0, 1.0]), 2, 0.7
    for chosen in itertools.combinations(range(5), k):
        out = max(max(scores[i] for i in range(5) if i not in chosen), 0)
        best_out = out if chosen != (0, 1) else scores[k - 1]  # the top-k as published: rank k
        least = min(scores[i] for i in chosen)
        one = epsilon * (least - scores[k - 1])
        half = 2 * epsilon * ((least - scores[k - 1]) - (best_out - scores[k - 1])) / 2
        assert half <= one + 1e-12


def test_signs_by_the_laws_themselves() -> None:
    values = statements.signs()[1]
    assert values["Laplace"] == pytest.approx(laplace.ppf(0.9)) and values["logistic"] == pytest.approx(
        logistic.ppf(0.9)
    )
    assert values["Laplace, as printed"] == pytest.approx(laplace.ppf(0.1))
    assert values["logistic, as printed"] == pytest.approx(logistic.ppf(0.1))


def test_the_canonical_loss_is_the_least_change_by_linear_programs() -> None:
    """Least r such that scores within r of these make the set a top-k: variables v and r."""
    scores = np.array(statements.EXAMPLE, dtype=float)
    d = scores.size
    for chosen in ((1, 5, 10), (8, 9, 10), (2, 3, 4), (1, 2, 3)):
        rows, bounds = [], []
        for i in range(d):
            for sign in (1.0, -1.0):
                row = np.zeros(d + 1)
                row[i], row[d] = sign, -1.0
                rows.append(row)
                bounds.append(sign * scores[i])
        for inside, outside in itertools.product(range(d), repeat=2):
            if scores[inside] in chosen and scores[outside] not in chosen:
                row = np.zeros(d + 1)
                row[outside], row[inside] = 1.0, -1.0
                rows.append(row)
                bounds.append(0.0)
        least = linprog(np.eye(d + 1)[d], A_ub=np.array(rows), b_ub=bounds, bounds=[(None, None)] * (d + 1)).fun
        assert statements.losses(chosen, statements.EXAMPLE)[0] == pytest.approx(least, abs=1e-9), chosen
    assert statements.losses((1, 5, 10), statements.EXAMPLE) == (4.0, 3.5)


def test_nothing_that_needs_no_data_is_refuted() -> None:
    found = statements.statements(Effort())
    verdicts = {claim.where: claim.verdict for claim in found.claims}
    assert len(verdicts) == 8 and Verdict.REFUTED not in verdicts.values()
    assert sum(verdict is Verdict.REPRODUCED for verdict in verdicts.values()) == 3
