"""The forecast of answers against teachers that were trained on records of the same kind."""

from dataclasses import replace

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import Ridge

from pate import LabelSettings
from pate._core.mechanisms.noise import seeded_generator
from pate._core.settings import Partial
from pate._labeling.release.forecast import Forecast, may_abstain
from pate._labeling.release.label_settings import resolve_settings
from pate._labeling.stages.teachers import correction
from pate._labeling.votes.kinds import Counts, VoteShape
from pate.aggregators import Rounds, StableTopK

ASKED = LabelSettings(Partial(StableTopK), delta=1e-6, target_epsilon=8.0, num_queries=40)
LABELS = [[0, 2, 4, 6, 8], [5, 6, 7, 8, 9], [0, 6, 8, 9], [2, 3, 5, 7], [0, 1, 2], [1, 4, 7]]


def test_answers_to_teachers_of_digits_are_within_the_forecast() -> None:
    X, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, Y = X[order] / 16, np.stack([np.isin(digits[order], each) for each in LABELS], axis=1)
    settings = resolve_settings(ASKED, VoteShape(120, 6), 400)
    forecast, random = Forecast(features=X[:400], num_labels=6), np.random.default_rng(1)
    middles = []
    for size in (16, 64):
        shares = np.zeros((200, 6))
        for _ in range(20):
            own = random.integers(400, len(X), size=size)
            shares += Ridge(alpha=1.0).fit(X[own], 2.0 * Y[own] - 1).predict(X[:200]) > 0
        counts = random.binomial(120, shares / 20)
        votes = Counts(counts=counts, num_teachers=120)
        answers = settings.mechanism.aggregate(votes, generator=seeded_generator(0)).mask.mean()
        expected = forecast.expect(settings, 120, size)
        middles.append(sum(expected) / 2)
        assert expected.least - 4 < 40 * answers < expected.most + 4
        assert expected.most - expected.least < 20
    assert middles[0] + 8 < middles[1]
    assert forecast.teachers_needed(settings, 120, 16, share=0.9, easy=True) == 300


def test_answers_to_teachers_that_start_are_within_the_forecast() -> None:
    X, digits = load_digits(return_X_y=True)
    order, random = np.random.default_rng(0).permutation(len(X)), np.random.default_rng(1)
    Y = np.stack([np.isin(digits[order], each) for each in LABELS], axis=1)
    X = X[order] - X[:400].mean(axis=0)
    X /= np.sqrt((X[:400] ** 2).sum(axis=1).mean())
    asked = replace(ASKED, target_epsilon=2.0)
    settings = resolve_settings(asked, VoteShape(300, 6), 400)
    start = np.clip(
        (1 + Ridge(alpha=0.5).fit(X[400:500], 2.0 * Y[400:500] - 1).predict(X)) / 2, 0, 1
    )
    begun, released = (
        Forecast(features=X[:400], num_labels=6, starts=True, answers=answers)
        for answers in (None, start[:400])
    )
    answered = []
    for size in (1, 8):
        counts = np.zeros((200, 6), np.int64)
        for _ in range(300):
            own = random.integers(500, len(X), size=random.poisson(size))
            moved = correction(X[own], Y[own] - start[own], np.ones((len(own), 6), np.bool_), 2.0)
            counts += start[:200] + np.column_stack((X[:200], np.ones(200))) @ moved > 0.5
        votes = Counts(counts=counts, num_teachers=300)
        mask = settings.mechanism.aggregate(votes, generator=seeded_generator(0)).mask
        answered.append(40 * mask.mean())
        for forecast in (begun, released):
            expected = forecast.expect(settings, 300, size)
            assert expected.least - 3 < answered[-1] < expected.most + 3
    assert answered[1] + 4 < answered[0]


def test_only_counts_are_forecast() -> None:
    target = replace(ASKED, aggregator=None)
    rounds = resolve_settings(target, VoteShape(120, 6), 400).mechanism
    assert isinstance(rounds, Rounds) and not may_abstain(rounds)
