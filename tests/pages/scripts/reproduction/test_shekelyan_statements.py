"""Statements of Shekelyan & Loukides (2022), computed a second time: by enumeration, quadrature and
search."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog

from pate.mechanisms import GumbelPeeling
from scripts.reproduction import Effort, Verdict, shekelyan_statements as statements

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("d", "k", "alpha"), [(1000, 1, 0.01), (1000, 1, 0.02), (40, 2, 0.05)])
def test_the_bound_of_peeling_by_draws_and_by_fractions(d: int, k: int, alpha: float) -> None:
    """Theorem 5.6 as meant fails at k = 1 by a part in twenty, and for no such scores at k = 2."""
    room = k * (math.log(d * k / alpha) - 0.06)
    scores = np.where(np.arange(d) < k, 0.0, -room)
    kept, left = 1.0, [math.exp(score / k) for score in scores]
    for _ in range(k):
        kept *= sum(left[: k if len(left) == d else k - 1]) / sum(left)
        left = left[1:]
    missed = statements.worst_miss(d, k, alpha)
    assert missed == pytest.approx(1 - kept, rel=1e-9)
    assert (missed > alpha) == (k == 1) and statements.worst_miss(d, k, alpha, spared=0.0) <= alpha
    draws = 10_000
    # the paper's epsilon is 2 Delta, a scale of k for k rounds
    chosen = GumbelPeeling(k=k, scale=float(k))(
        np.tile(scores, (draws, 1)), generator=np.random.default_rng(0)
    )
    share = float((chosen >= k).any(axis=1).mean())
    assert share == pytest.approx(missed, abs=4 * math.sqrt(missed / draws))


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
        least = linprog(
            np.eye(d + 1)[d], A_ub=np.array(rows), b_ub=bounds, bounds=[(None, None)] * (d + 1)
        ).fun
        assert statements.losses(chosen, statements.EXAMPLE)[0] == pytest.approx(least, abs=1e-9), (
            chosen
        )
    assert statements.losses((1, 5, 10), statements.EXAMPLE) == (4.0, 3.5)


def test_of_what_needs_no_data_one_lemma_is_refuted() -> None:
    found = statements.statements(Effort())
    verdicts = {claim.where: claim.verdict for claim in found.claims}
    assert len(verdicts) == 9
    assert [where for where, verdict in verdicts.items() if verdict is Verdict.REFUTED] == [
        "Lemma 5.4, peeling"
    ]
    assert sum(verdict is Verdict.REPRODUCED for verdict in verdicts.values()) == 3
