"""The exact law of the canonical mechanism: by enumeration, without a table of its classes, and on
the paper's data."""

import numpy as np
import pytest
from numpy.typing import NDArray

from pate import mechanisms as m
from pate._core.mechanisms.canonical import CanonicalLoss
from scripts.reproduction import canonical_classes
from scripts.reproduction.canonical_classes import class_probabilities
from tests.core.mechanisms import oracles
from tests.core.mechanisms.test_canonical import classes_of

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
    mechanism = m.CanonicalMechanism(k=k, scale=scale, gamma=gamma, loss=loss)
    law = class_probabilities(mechanism, scores[::-1])
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
def test_tails_that_are_left_out_of_the_sum_do_not_matter(
    loss: CanonicalLoss, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two points of the bound make it as loose as it can be; without a limit nothing is left
    out."""
    scores = np.sort(np.random.default_rng(0).zipf(1.5, 400).astype(np.float64).clip(max=1e5))[::-1]
    for k, scale in ((7, 30.0), (7, 1e4), (60, 2.0), (60, 100.0)):
        for gamma in (0.1, 0.5):
            mechanism = m.CanonicalMechanism(k=k, scale=scale, gamma=gamma, loss=loss)
            found = class_probabilities(mechanism, scores)
            quick = (found.top, found.great, found.good)
            assert found.top + found.classes.sum() == pytest.approx(1, rel=1e-12)
            with monkeypatch.context() as patched:
                patched.setattr(canonical_classes, "_GRID", 2)
                assert class_probabilities(mechanism, scores).great == pytest.approx(
                    quick[1], rel=1e-12
                )
                patched.setattr(canonical_classes, "_NEGLIGIBLE", np.inf)
                whole = class_probabilities(mechanism, scores)
                np.testing.assert_allclose(quick, (whole.top, whole.great, whole.good), rtol=1e-12)
