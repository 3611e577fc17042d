"""What a cost does not cover is refused in one line, before anything is drawn."""

from typing import Any

import numpy as np
import pytest

from pate import mechanisms as m
from pate._core.mechanisms.exact_choice import as_batch
from pate.accounting import NeighboringRelation

ADD = NeighboringRelation.ADD_REMOVE_TEACHER
TESTED: dict[str, Any] = {"delta_test": 0.1, "shift": 1}
STABLE: dict[str, Any] = {
    "num_teachers": 100,
    "num_labels": 4,
    "scale_gap": 2.0,
    "sigma_test": 2.0,
    "delta_test": 1e-3,
    "shift": 2,
}
LIMITED: dict[str, Any] = {"k": 2, "kbar": 3, "scale": 1.0, "delta": 0.05, "relation": ADD}
LISTED: dict[str, Any] = {
    "k": 2,
    "kbar": 3,
    "scale_threshold": 1.0,
    "scale_gap": 2.0,
    "scale_peel": 1.0,
    "delta": 0.05,
    "relation": ADD,
}

NINE: dict[str, Any] = {"num_teachers": 9, "sigma": 1.0, **TESTED}
MADE: list[tuple[Any, dict[str, Any], str]] = [
    (m.CanonicalMechanism, {"k": 2, "scale": 1.0, "gamma": 1.1}, "0 <= gamma <= 1"),
    (m.CanonicalMechanism, {"k": 2, "scale": 1.0, "loss": "paper"}, "a loss among"),
    (m.JointMechanism, {"k": 2, "scale": 1.0, "noise": "laplace"}, "a noise among"),
    (m.GapChoice, {"num_labels": 3, "scale": 1.0, "noise": "cauchy"}, "a noise among"),
    (m.GapChoice, {"num_labels": 3, "scale": 1.0, "kbar": 4}, "kbar <= 3"),
    (m.GapChoice, {"num_labels": 3, "scale": 1.0, "regularizer": (0, 1, np.inf, 0)}, "a regular"),
    (m.GapChoice, {"num_labels": 1, "scale": 1.0, "allow_empty": False}, "at least two labels"),
    (m.StabilityTest, {"num_teachers": 9, "sigma": 0.0, **TESTED}, "sigma > 0"),
    (m.StabilityTest, {"num_teachers": 0, "sigma": 1.0, **TESTED}, "an integer num_teachers >= 1"),
    (m.StabilityTest, NINE | {"shift": 1.5}, "an integer shift"),
    (m.StabilityTest, NINE | {"window": 0}, "an integer window >= 1"),
    (m.StabilityTest, NINE | {"delta_test": 1.0}, "0 < delta_test < 1"),
    (m.StabilityTest, NINE | {"sensitivity": 0.0}, "sensitivity > 0"),
    (m.StableTopKMechanism, STABLE | {"scale_gap": -1.0}, "scale_gap > 0"),
    (m.FixedTopKMechanism, STABLE | {"k": 5, "rank_penalty": 1.0, "scale_peel": 1.0}, "k <= 4"),
    (m.LimitedDomain, LIMITED | {"k": 4}, "k <= 3"),
    (m.LimitedDomain, LIMITED | {"delta": 1.0}, "0 < delta < 1"),
    (m.TopStable, LISTED | {"k": 1, "kbar": 1, "delta": 0.5}, "delta < kbar / 2"),
    (m.TopStable, LISTED | {"scale_peel": np.nan}, "scale_peel > 0"),
    (m.NoisyTopK, {"k": 2, "scale": 1.0, "sensitivity": 0.0}, "sensitivity > 0"),
]


@pytest.mark.parametrize(("cls", "settings", "expected"), MADE)
def test_settings_that_are_refused(cls: Any, settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=rf"^Expected {expected}[^\n]*$"):
        cls(**settings)


STABLE_TOP_K = m.StableTopKMechanism(**STABLE)
GAPS = m.GapChoice(num_labels=3, scale=1.0)
CALLED: list[tuple[Any, Any, str]] = [
    (STABLE_TOP_K, [[1, 2.5, 0, 0]], "integer counts"),
    (STABLE_TOP_K, [[1, 101, 0, 0]], "counts in 0..100"),
    (STABLE_TOP_K, [[-1, 1, 0, 0]], "counts in 0..100"),
    (STABLE_TOP_K, [[1, 2]], "counts of 4 labels"),
    (GAPS, [0.0, np.nan, 1.0, 2.0], "finite scores"),
    (GAPS, [1, 2, 3], "4 gaps"),
    (m.StabilityTest(num_teachers=9, sigma=1.0, **TESTED), [1.0, np.inf], "finite gaps"),
    (m.CanonicalMechanism(k=4, scale=1.0), [1, 2, 3, 4], "k <= 3 for 4 items"),
    (lambda rows, generator: as_batch(rows), [[1.0, np.inf]], "finite scores"),
    (lambda rows, generator: as_batch(rows), [True, False], "integer or float scores"),
]


@pytest.mark.parametrize(("call", "scores", "expected"), CALLED)
def test_scores_that_are_refused(call: Any, scores: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=rf"^Expected {expected}[^\n]*$"):
        call(scores, generator=m.seeded_generator(0))
