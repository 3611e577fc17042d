"""A contest: targets are met, draws are repeatable, more budget is better, and figures are what
they are called."""

import numpy as np
import pytest

from scripts.rivals.contest import Arena, Contest, hold, rivals_of
from scripts.rivals.contributions import Contributions

pytestmark = pytest.mark.slow


def arena(num: int = 4000) -> Arena:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(num + 1000, 5)) / 3
    x[:, -1] = 0.3
    x /= np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))
    labels = x @ generator.normal(size=(5, 3)) > 0
    features = x[:num].astype(np.float32)
    return Arena(
        private=Contributions(
            features=features, labels=labels[:num].astype(np.float32), starts=np.arange(num)
        ),
        public=x[num:],
        test=x[num:],
        truth=labels[num:].astype(np.uint8),
        unit="record",
    )


def test_targets_are_met_and_draws_repeatable() -> None:
    asked, place = Contest(epsilons=(0.01, 5.0), delta=1e-5, seeds=3), arena()
    first, again = (hold(place, rivals_of(place, None), asked).scores for _ in range(2))
    assert first == again
    assert [score.rival for score in first[::2][:2]] == [
        rival.name for rival in rivals_of(place, None)
    ]
    for little, much in (first[:2], first[2:4]):
        assert little.epsilon == pytest.approx(0.01, rel=1e-3)
        assert 0.999 * 5 < much.epsilon <= 5
        assert little.noise_multiplier > 50 * much.noise_multiplier
        assert much.accuracy > 0.9 > little.accuracy
