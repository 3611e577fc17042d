"""Errors, times and Theorem 3.3 of the joint mechanism."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from pate.accounting import RDPAccountant
from pate.mechanisms import GumbelPeeling
from scripts.reproduction import gillenwater_joint
from scripts.reproduction.gillenwater import DELTA, EPSILON, RELATION, RIVALS, Rival, round_epsilon
from tests.core.mechanisms import oracles

pytestmark = pytest.mark.slow

COUNTS = np.array([7, 5, 5, 2, 0])


@pytest.mark.parametrize("k", [1, 5, 195])
def test_rounds_of_cdp_peel_spend_the_budget_by_the_published_conversion(k: int) -> None:
    rho = k * round_epsilon(k) ** 2 / 8
    published = rho + 2 * math.sqrt(rho * math.log(1 / DELTA))
    assert published == pytest.approx(EPSILON) if k > 50 else published >= EPSILON
    spent = RDPAccountant(relation=RELATION)
    spent.compose(GumbelPeeling(k=k, scale=1 / round_epsilon(k)).event(RELATION))
    assert spent.get_epsilon(delta=DELTA) <= EPSILON


@pytest.mark.parametrize("rival", RIVALS, ids=lambda each: each.name)
def test_rivals_return_the_best_of_far_apart_counts(rival: Rival) -> None:
    counts = np.tile(np.array([0, 10**7, 3 * 10**7, 2 * 10**7]), (5, 1))
    found = rival.draw(counts, 2, np.random.default_rng(0))
    assert found.tolist() == [[2, 3]] * 5


@pytest.mark.parametrize("limit", [1, 3, 6, 20])
def test_the_table_counts_all_sequences(limit: int) -> None:
    expected: Counter[tuple[int, int]] = Counter()
    for sequence in itertools.permutations(range(COUNTS.size), 3):
        lost = np.minimum(np.maximum(COUNTS[:3] - COUNTS[list(sequence)], 0), limit)
        expected[int(lost.max()), int(lost.argmax())] += 1
    with np.errstate(divide="ignore"):
        found = np.exp(gillenwater_joint.log_loss_counts(COUNTS, 3, limit))
    assert found.sum() == pytest.approx(60)
    for place, number in expected.items():
        assert found[place] == pytest.approx(number), place


def test_theorem_3_3_by_all_sequences() -> None:
    """All 5 * 4 sequences, one by one; the table is cut off at twice the loss."""
    losses = oracles.sequence_losses(COUNTS.tolist(), 2)
    law = oracles.softmax(-EPSILON / 2 * losses)
    for loss in (4, 6, 7):
        exact = float(law[losses >= loss].sum())
        assert gillenwater_joint.probability_beyond(COUNTS, 2, loss) == pytest.approx(exact)
    # losses of 5 and 7 are taken for 4
    assert (
        1 < gillenwater_joint.probability_beyond(COUNTS, 2, 2) / float(law[losses >= 2].sum()) < 1.5
    )
    beta = 0.05
    bound = gillenwater_joint.bound(k=2, num_items=COUNTS.size, beta=beta)
    assert bound == pytest.approx(2 * math.log(5 * 4 / beta)) and law[losses > bound].sum() <= beta
    # the negative control: half of the bound is exceeded more often on counts that lie close
    # together
    near = oracles.softmax(-EPSILON / 2 * oracles.sequence_losses(list(range(5)), 2))
    assert near[oracles.sequence_losses(list(range(5)), 2) > 2].sum() > beta
