"""Cuts are the best of all decisions by expected F1, found by trying them all."""

from itertools import product

import numpy as np
import pytest

from pate._labeling.runs.released import DECISION_METRICS
from pate.student import agreement, choose_thresholds


def expected_f1(probabilities: np.ndarray, given: np.ndarray) -> float:
    either = given.sum() + probabilities.sum()
    return 2 * float(probabilities[given].sum()) / float(either) if either else 0.0


def best_f1(probabilities: np.ndarray) -> float:
    """The largest expected F1 of any decisions on samples with probabilities [N]."""
    return max(
        expected_f1(probabilities, np.array(given))
        for given in product((False, True), repeat=probabilities.size)
    )


@pytest.mark.parametrize("seed", range(4))
def test_no_decisions_have_a_larger_expected_f1(seed: int) -> None:
    generator = np.random.default_rng(seed)
    probabilities = generator.beta(0.4, [0.5, 2.0, 6.0], size=(4, 3))
    accuracy, macro, micro = choose_thresholds(probabilities)
    assert (accuracy == 0.5).all()
    for j in range(3):
        column = probabilities[:, j]
        assert expected_f1(column, column > macro[j]) == pytest.approx(best_f1(column))
        # a cut that is planted elsewhere is no better, and one far away is worse
        assert expected_f1(column, column > 0.999) < best_f1(column)
    assert len(set(micro.tolist())) == 1
    assert expected_f1(probabilities, probabilities > micro) == pytest.approx(
        best_f1(probabilities.ravel())
    )
    assert micro[0] == pytest.approx(best_f1(probabilities.ravel()) / 2)


def test_cuts_serve_what_they_are_named_after() -> None:
    """On labels drawn from their probabilities each figure is largest at its own cuts."""
    generator = np.random.default_rng(0)
    probabilities = generator.beta(0.6, [1.0, 4.0, 20.0], size=(20_000, 3))
    truth = generator.random(probabilities.shape) < probabilities
    at_cut = {
        purpose: agreement(probabilities > row, truth)
        for purpose, row in zip(DECISION_METRICS, choose_thresholds(probabilities), strict=True)
    }
    for served in DECISION_METRICS:
        assert all(
            at_cut[served][served] > at_cut[other][served] + 0.005
            for other in DECISION_METRICS
            if other != served
        )
