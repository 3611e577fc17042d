"""One-shot noises by hand, permute-and-flip by all orders of visiting, and the script in a small
form."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy.special import expit

from pate._core.testing.laws import chi_square_p_value
from pate.accounting import ComposedEvent, GaussianEvent, NeighboringRelation, epsilon_of
from pate.mechanisms import GumbelPeeling
from scripts.reproduction import one_shot as o

pytestmark = pytest.mark.slow

ADD, REPLACE = NeighboringRelation.ADD_REMOVE_TEACHER, NeighboringRelation.REPLACE_RECORD


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_tight_noise_meets_the_target(relation: NeighboringRelation) -> None:
    found = o.gumbel_by_tight_curves(5, 0.2, 1e-6, relation, gaussian=True)
    peeling = GumbelPeeling(k=5, scale=found.finding / o.GUMBEL_SD).event(relation)
    # each count moves by one vote under both relations
    counting = GaussianEvent(
        noise_multiplier=found.counts / math.sqrt(5), neighboring_relation=relation
    )
    event = ComposedEvent(events=(peeling, counting))
    assert epsilon_of(event, count=1, delta=1e-6) == pytest.approx(0.2, rel=1e-4)


def by_visiting(scores: tuple[float, ...], scale: float) -> np.ndarray:
    """Permute-and-flip by its definition: over all orders, the first whose coin shows heads."""
    coins = np.exp((np.asarray(scores) - max(scores)) / scale)
    law = np.zeros(len(scores))
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        left = 1.0
        for item in order:
            law[item] += left * coins[item]
            left *= 1 - coins[item]
    return law / len(orders)


@pytest.mark.parametrize("scores", [(0,), (0, 1), (3, 3, 0), (5, 2, 4, 2)])
def test_permute_and_flip_by_all_orders(scores: tuple[float, ...]) -> None:
    np.testing.assert_allclose(
        o.permute_and_flip_law(scores, 1.3), by_visiting(scores, 1.3), rtol=1e-12
    )


def test_noise_added_once_has_the_law_of_rounds() -> None:
    """By integrals over the noise, by the product of rounds, and by draws; another scale has
    another law."""
    scores, draws = (3, 2, 2, 0), 20_000
    rounds, once = o.peeling_law(scores, 2, 1.5), o.one_shot_pairs(scores, 1.5)
    assert sum(rounds.values()) == pytest.approx(1) and o.peeling_law((1, 0), 1, 1.0)[
        0,
    ] == pytest.approx(expit(1))
    assert list(once) == list(rounds)
    np.testing.assert_allclose(list(once.values()), list(rounds.values()), atol=1e-11)
    assert (
        max(abs(o.one_shot_pairs(scores, 1.6)[pair] - chance) for pair, chance in once.items())
        > 1e-3
    )
    drawn = GumbelPeeling(k=2, scale=1.5)(
        np.tile(scores, (draws, 1)), generator=np.random.default_rng(3)
    )
    seen = Counter(map(tuple, drawn.tolist()))
    observed, expected = [seen[pair] for pair in once], draws * np.array(list(once.values()))
    assert chi_square_p_value(np.array(observed), expected) > 1e-3
