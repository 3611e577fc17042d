"""The plain implementations that speed is measured against follow the laws that the mechanisms
follow."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import ndtri

from pate import mechanisms as m
from pate._core.testing.laws import chi_square_p_value
from tests.core.mechanisms import oracles

SCORES = np.array([1, 4, 0, 3, 3])
SCALE, K, DRAWS = 1.5, 2, 3000


@pytest.mark.parametrize(
    ("slow", "law", "ordered"),
    [
        (
            lambda generator: oracles.canonical_slow(SCORES, K, SCALE, 0.3, "gumbel", generator),
            oracles.softmax(oracles.subset_utilities(SCORES, K, 0.3) / SCALE),
            False,
        ),
        (
            lambda generator: oracles.canonical_slow(
                SCORES, K, SCALE, 0.3, "exponential", generator
            ),
            oracles.flip_law(oracles.subset_utilities(SCORES, K, 0.3) / SCALE),
            False,
        ),
        (
            lambda generator: oracles.canonical_slow(
                SCORES, K, SCALE, 0.3, "gumbel", generator, "published"
            ),
            oracles.softmax(oracles.subset_utilities(SCORES, K, 0.3, "published") / SCALE),
            False,
        ),
        (
            lambda generator: oracles.joint_slow(SCORES, K, SCALE, generator),
            oracles.softmax(-oracles.sequence_losses(SCORES, K) / SCALE),
            True,
        ),
        (
            lambda generator: oracles.pnf_peel_slow(SCORES, K, SCALE, generator),
            oracles.peel_law(tuple(SCORES / SCALE), oracles.sequences(5, K), oracles.flip_law),
            True,
        ),
        (
            lambda generator: oracles.cdp_peel_slow(SCORES, K, SCALE, generator),
            oracles.peel_law(tuple(SCORES / SCALE), oracles.sequences(5, K), oracles.softmax),
            True,
        ),
    ],
    ids=["canonical", "canonical_flip", "canonical_published", "joint", "pnf_peel", "cdp_peel"],
)
def test_slow_forms_follow_the_law(
    slow: Callable[[np.random.Generator], list[int]], law: oracles.Array, ordered: bool
) -> None:
    listing = oracles.sequences(5, K) if ordered else oracles.sets(5, K)
    index = {outcome: i for i, outcome in enumerate(listing)}
    generator = m.seeded_generator(0)
    drawn = [slow(generator) for _ in range(DRAWS)]
    observed = np.bincount(
        [index[tuple(chosen if ordered else sorted(chosen))] for chosen in drawn],
        minlength=len(listing),
    )
    assert chi_square_p_value(observed, DRAWS * law) > 1e-4


def test_slow_stable_top_k_follows_the_fast_one() -> None:
    counts, upper = np.array([9, 4, 8, 0]), 10
    generator = m.seeded_generator(0)
    z = -float(ndtri(0.05))
    slow = [
        oracles.stable_top_k_slow(counts, upper, 2.0, 2.0, z, 2, generator) for _ in range(DRAWS)
    ]
    fast_form = m.StableTopKMechanism(
        num_teachers=upper, num_labels=4, scale_gap=2.0, sigma_test=2.0, delta_test=0.05, shift=2
    )
    members, released = fast_form(np.tile(counts, (10 * DRAWS, 1)), generator=generator)
    for k in range(5):
        fast = (released & (members.sum(axis=1) == k)).mean()
        share = np.mean([chosen is not None and len(chosen) == k for chosen in slow])
        assert abs(share - fast) < 5 * np.sqrt(fast * (1 - fast) / DRAWS) + 1e-3
    # for equal chances of permute-and-flip, a class of many items is as many items one by one
    chances = [1.0, 0.5, 0.5, 0.1]
    merged = oracles.flip_class_law([1.0, 0.5, 0.1], [1, 2, 1])
    one_by_one = oracles.flip_law(np.log(chances))
    np.testing.assert_allclose(
        merged, [one_by_one[0], one_by_one[1:3].sum(), one_by_one[3]], rtol=1e-9
    )
