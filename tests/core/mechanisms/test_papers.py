"""Where we depart from the papers: the numbers of docs/appendix/papers.md, recomputed (Theorem 11 with the
reproduction)."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtri

from pate import mechanisms as m
from pate.accounting import NeighboringRelation, StabilityTestEvent


def test_the_utility_of_the_canonical_mechanism_as_printed_says_nothing() -> None:
    """Shekelyan & Loukides (2022), Theorem 5.6: a set's last score is below that of rank k plus
    anything."""
    scores, k, beta = np.arange(35, -1, -5), 3, 0.1
    subsets = list(itertools.combinations(range(len(scores)), k))
    tails = np.array([scores[list(subset)].min() for subset in subsets])
    # with gamma = 1 the utility of a set is its last score
    law = np.exp(tails - tails.max())
    law /= law.sum()
    np.testing.assert_allclose(
        m.CanonicalMechanism(k=k, scale=1.0, gamma=1.0).class_probabilities(scores).top, law[0]
    )
    room = math.log(len(subsets) / beta)
    printed, meant = tails <= scores[k - 1], tails > scores[k - 1] - room
    assert printed.all()
    assert meant.mean() == pytest.approx(4 / 56) and law[meant].sum() > 0.999 > 1 - beta


def test_gaps_in_other_fractions_tell_more_than_the_curve_of_a_stability_test() -> None:
    """Why `StabilityTest` refuses them."""
    sigma, delta_test, orders = 0.3, 1e-9, np.linspace(1.05, 3.0, 40)
    relation = NeighboringRelation.ADD_REMOVE_TEACHER
    event = StabilityTestEvent(
        neighboring_relation=relation, sigma=sigma, delta_test=delta_test, shift=1, num_teachers=10
    )

    def largest(gaps: np.ndarray) -> np.ndarray:
        low = (gaps[:, None] - 1) / sigma + ndtri(delta_test)
        high = low + 1 / sigma
        passes, fails = (log_ndtr(low), log_ndtr(high)), (log_ndtr(-low), log_ndtr(-high))
        found = []
        for p, q in ((0, 1), (1, 0)):
            terms = [orders * each[p] + (1 - orders) * each[q] for each in (passes, fails)]
            found.append(np.logaddexp(*terms) / (orders - 1))
        worst: np.ndarray = np.max(found, axis=(0, 1))
        return worst

    priced = event.cost(orders).rdp
    np.testing.assert_allclose(largest(np.arange(1, 10.1, 0.5)), priced, rtol=1e-6)
    assert (largest(np.arange(1, 10.1, 0.01)) / priced).max() == pytest.approx(1.075, abs=0.002)
    test = m.StabilityTest(num_teachers=10, sigma=sigma, delta_test=delta_test, shift=1)
    with pytest.raises(ValueError, match="gaps in whole or half votes"):
        test([2.37], generator=m.seeded_generator(0))
