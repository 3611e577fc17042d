"""A contest: targets are met, draws are repeatable, more budget is better, and figures are what
they are called."""

import numpy as np
import pytest
from scipy.special import expit

from pate.student import agreement, choose_thresholds
from scripts.rivals.contest import Arena, Contest, figures, hold, rivals_of
from scripts.rivals.contributions import Contributions


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


@pytest.mark.slow
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


def test_figures_are_what_they_are_called() -> None:
    test = expit([[2.0, -1], [1, 3], [-1, -2], [0.5, -3]])
    truth = np.array([[1, 0], [1, 0], [0, 1], [0, 0]], dtype=np.uint8)
    public = np.array([[0.2, 0.04], [0.4, 0.2], [0.0, 0.3]])
    found = figures(public, test, truth)
    assert found["accuracy"] == 5 / 8
    assert found["macro_f1"] == pytest.approx((2 * 2 / 5 + 0) / 2)
    assert found["mAP"] == pytest.approx((1 + 1 / 3) / 2)
    # of public records the first label is best given to one, the second to two: F1 of 0.8 / 1.6 and
    # 1 / 2.54
    given = np.array([[1, 1], [1, 1], [1, 0], [1, 0]])
    np.testing.assert_array_equal(test > choose_thresholds(public)[1], given)
    assert found["macro_f1_at_its_cut"] == pytest.approx((4 / 6 + 0) / 2)
    assert (
        found["micro_f1_at_its_cut"]
        == agreement(test > choose_thresholds(public)[2], truth > 0)["micro_f1"]
    )
    # a constant is cut by itself
    constant = figures(public[:1], public[:1], truth)
    assert (
        constant["macro_f1_at_its_cut"] == pytest.approx((2 * 2 / 6 + 2 / 5) / 2)
        and constant["macro_f1"] == 0
    )


def test_too_many_features_are_refused() -> None:
    small = arena(10)
    with pytest.raises(ValueError, match=r"^Expected at most 4096 features: map them by PublicPCA"):
        Arena(
            private=small.private,
            public=np.broadcast_to(0.0, (1, 4098)),
            test=small.test,
            truth=small.truth,
            unit="record",
        )
