"""The exact law of the canonical mechanism: by enumeration, without a table of its classes, and on
the paper's data."""

import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq

from pate import mechanisms as m
from pate._core.mechanisms import canonical as canonical_law
from pate._core.mechanisms.canonical import CanonicalLoss, _subset_table
from tests.core.mechanisms import oracles
from tests.core.mechanisms.test_canonical import SCORES, classes_of

LOSSES: list[CanonicalLoss] = ["lead", "published"]


def enumerated(
    scores: NDArray[np.float64], k: int, scale: float, gamma: float, loss: str
) -> oracles.Array:
    return oracles.softmax(oracles.subset_utilities(scores, k, gamma, loss) / scale)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
def test_probabilities_are_those_of_all_subsets(gamma: float, loss: CanonicalLoss) -> None:
    scores = np.array([5.0, 5.0, 3.0, 2.5, 2.5, 0.0, -1.0])
    k, d, scale = 3, 7, 1.3
    law = m.CanonicalMechanism(k=k, scale=scale, gamma=gamma, loss=loss).class_probabilities(
        scores[::-1]
    )
    listing = np.array(oracles.sets(d, k))
    chances = enumerated(scores, k, scale, gamma, loss)
    expected = np.bincount(classes_of(listing, k, d), weights=chances, minlength=1 + k * (d - k))
    np.testing.assert_allclose(
        np.append(law.top, law.classes.ravel()), expected, rtol=1e-12, atol=1e-15
    )
    last = np.bincount(listing[:, -1] + 1 - k, weights=chances, minlength=d - k + 1)
    np.testing.assert_allclose(law.tails, last, rtol=1e-12)
    for head in range(k + 1):
        for tail in range(k, d + 1):
            inside = (listing[:, :head] == np.arange(head)).all(axis=1) & (listing[:, -1] < tail)
            assert law.within(head=head, tail=tail) == pytest.approx(
                chances[inside].sum(), rel=1e-12
            )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("k", "scores"), [(2, SCORES[:12]), (5, SCORES[2:13]), (11, SCORES[:13])])
def test_great_and_good_sets_are_those_of_the_grade(
    k: int, scores: NDArray[np.float64], loss: CanonicalLoss
) -> None:
    law = m.CanonicalMechanism(k=k, scale=3.0, loss=loss).class_probabilities(scores)
    listing = np.array(oracles.sets(scores.size, k))
    grades = m.grade(np.tile(scores, (len(listing), 1)), listing)
    chances = enumerated(scores, k, 3.0, 0.5, loss)
    for found, graded in zip((law.top, law.great, law.good), grades, strict=True):
        assert found == pytest.approx(chances[graded].sum(), rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_tails_that_are_left_out_of_the_sum_do_not_matter(
    loss: CanonicalLoss, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two points of the bound make it as loose as it can be; without a limit nothing is left
    out."""
    scores = np.sort(np.random.default_rng(0).zipf(1.5, 400).astype(np.float64).clip(max=1e5))[::-1]
    for k, scale in ((7, 30.0), (7, 1e4), (60, 2.0), (60, 100.0)):
        for gamma in (0.1, 0.5):
            mechanism = m.CanonicalMechanism(k=k, scale=scale, gamma=gamma, loss=loss)
            found = mechanism.class_probabilities(scores)
            quick = (found.top, found.great, found.good)
            assert found.top + found.classes.sum() == pytest.approx(1, rel=1e-12)
            with monkeypatch.context() as patched:
                patched.setattr(canonical_law, "_GRID", 2)
                assert mechanism.class_probabilities(scores).great == pytest.approx(
                    quick[1], rel=1e-12
                )
                patched.setattr(canonical_law, "_NEGLIGIBLE", np.inf)
                whole = mechanism.class_probabilities(scores)
                np.testing.assert_allclose(quick, (whole.top, whole.great, whole.good), rtol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_probabilities_sum_to_one_whatever_the_scale(loss: CanonicalLoss) -> None:
    for scale in (1e-300, 1e-3, 1.0, 1e6):
        law = m.CanonicalMechanism(k=5, scale=scale, loss=loss).class_probabilities(SCORES)
        assert law.top + law.classes.sum() == pytest.approx(1)
        assert law.tails.sum() == pytest.approx(1)
        assert law.within(head=0, tail=40) == pytest.approx(1)
    assert m.CanonicalMechanism(k=5, scale=1e-300, loss=loss).class_probabilities(SCORES).top == 1


@pytest.mark.parametrize("gamma", [0.0, 0.3, 0.5, 0.9])
def test_our_loss_never_makes_the_top_less_likely(gamma: float) -> None:
    """Nothing but the utility of the top-k differs: it gains, and the other sets keep their
    proportions."""
    ours, theirs = (
        m.CanonicalMechanism(k=5, scale=0.3, gamma=gamma, loss=loss).class_probabilities(SCORES)
        for loss in LOSSES
    )
    lead = (1 - gamma) * (SCORES[4] - SCORES[5]) / 0.3
    assert ours.top / (1 - ours.top) == pytest.approx(
        theirs.top / (1 - theirs.top) * np.exp(lead), rel=1e-9
    )
    np.testing.assert_allclose(
        ours.classes / (1 - ours.top), theirs.classes / (1 - theirs.top), rtol=1e-9
    )


def test_no_table_of_all_classes_is_filled() -> None:
    """At k = 1,000 of 18,000 a table has 17 million classes, 136 MB."""
    scores = np.round(1e5 / np.arange(1, 18_001) ** 0.7)
    for gamma, limit in ((1.0, 4e6), (0.5, 40e6)):
        mechanism = m.CanonicalMechanism(k=1000, scale=50.0, gamma=gamma)
        tracemalloc.start()
        law = mechanism.class_probabilities(scores)
        assert 0 <= law.top <= law.great <= law.good <= 1
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < limit, f"gamma {gamma}: {peak / 1e6:.0f} MB"


@pytest.mark.parametrize(
    ("k", "ours", "theirs"), [(10, 0.00263, 0.00478), (100, 0.156, 0.301)], ids=["ten", "a hundred"]
)
def test_half_the_budget_finds_the_best_films(k: int, ours: float, theirs: float) -> None:
    """The epsilon at which the top-k is found with probability 0.99, on the main data of the paper,
    at gamma 1/2."""
    path = Path(os.environ.get("PATE_DATA", "")) / "topk" / "NETFLIX.n17770.npy"
    if not path.is_file():
        pytest.skip("PATE_DATA does not hold topk/NETFLIX.n17770.npy")
    scores = np.load(path)

    def needed(loss: CanonicalLoss) -> float:
        def short(log_epsilon: float) -> float:
            scale = m.scale_for_epsilon(float(np.exp(log_epsilon)), window=1)
            return (
                m.CanonicalMechanism(k=k, scale=scale, loss=loss).class_probabilities(scores).top
                - 0.99
            )

        return float(np.exp(brentq(short, -8, 2, xtol=1e-4)))

    assert needed("lead") == pytest.approx(ours, rel=0.01)
    assert needed("published") == pytest.approx(theirs, rel=0.01)


def test_a_class_beyond_the_items_is_refused() -> None:
    law = m.CanonicalMechanism(k=3, scale=1.0).class_probabilities([4, 3, 2, 1, 0])
    for head, tail, message in (
        (4, 4, "Expected 0 <= head <= 3, got head=4"),
        (-1, 4, "Expected 0 <= head <= 3, got head=-1"),
        (0, 2, "Expected 3 <= tail <= 5, got tail=2"),
        (0, 6, "Expected 3 <= tail <= 5, got tail=6"),
    ):
        with pytest.raises(ValueError, match=f"^{message}$"):
            law.within(head=head, tail=tail)


def test_class_probabilities_are_of_one_row_and_gumbel_noise() -> None:
    with pytest.raises(
        ValueError, match=r"^Expected one row of scores of shape \[d\], got shape=\(2, 40\)$"
    ):
        m.CanonicalMechanism(k=2, scale=1.0).class_probabilities([SCORES, SCORES])
    with pytest.raises(ValueError, match=r"^Expected Gumbel noise, got noise='exponential'$"):
        m.CanonicalMechanism(k=2, scale=1.0, noise="exponential").class_probabilities(SCORES)


def test_tables_that_are_kept_cannot_be_written_to() -> None:
    subsets = _subset_table(9, 3)
    assert subsets is not None
    for table in (subsets, canonical_law.log_factorials(5)):
        with pytest.raises(ValueError, match="read-only"):
            table[...] = 0
