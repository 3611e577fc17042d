"""What is learned by votes of records grows with epsilon, on twelve made tasks."""

import numpy as np
import pytest

from tests.labeling.aggregators.made_tasks import TASKS, learned

EPSILONS = (0.25, 0.5, 2.0, 8.0, 64.0)
# what three seeds may differ by
LESS = {
    # few positives among the public samples: rankings fall once noise no longer hides it
    "rare": 0.05,
    # public samples of another scale and place, where nothing is known of either
    "shifted": 0.08,
}


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("linear", "logistic", "bent", "few_public") else slow
        for name in TASKS
        for slow in [pytest.param(name, marks=pytest.mark.slow)]
    ],
)
def test_more_epsilon_is_not_worse(name: str) -> None:
    figures = np.mean([learned(name, EPSILONS, seed) for seed in range(3)], axis=0)
    falls = np.maximum.accumulate(figures, axis=0) - figures
    assert falls.max() <= LESS.get(name, 0.005), figures.round(3)
    assert figures[-1, 1] > figures[0, 1] or name == "shifted", "there is something to learn"
