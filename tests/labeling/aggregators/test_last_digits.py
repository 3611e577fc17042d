"""The last digits of what is released tell nothing of the counts: the attack of Mironov (2012) on every such path.

A float that is a count plus float noise need not be one for another count: there may be no float
that adds up to it.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from pate import Votes
from pate._core.validation import FloatArray
from pate._labeling.aggregators.score_votes import noisy_sum
from pate.aggregators import Aggregator, ClippedVotes, ConfidentScreen, NoisyVotes, TauVoting
from tests.labeling.aggregators.test_score_votes import first_question, voters_of

TEACHERS = 5
SOFT = NoisyVotes(sigma_votes=1.3)
PATHS: dict[str, Aggregator] = {
    "noisy": SOFT,
    "a lead": NoisyVotes(sigma_votes=1.3, min_lead=0.5),
    "clipped": ClippedVotes(multiplier_clipped=9.0),
    "tau": TauVoting(tau=1.5, sigma_tau=1.3, threshold_tau=2.0),
    "tau around": TauVoting(tau=1.5, sigma_tau=1.3, threshold_tau=2.0, around_predictions=True),
    "screen": ConfidentScreen(answers=SOFT, sigma_confident=1.0, threshold_confident=0.0),
}


def votes(count: int) -> Votes:
    """Return 2,000 queries on three labels, of each of which ``count`` teachers say yes."""
    ballots = np.zeros((2000, TEACHERS, 3), dtype=np.uint8)
    ballots[:, :count] = 1
    return replace(Votes.from_ballots(ballots), predictions=np.zeros((2000, 3)))


def impossible(values: FloatArray, count: float) -> float:
    """Return the share of ``values`` that are no sum of ``count`` and a float."""
    noise = values - count
    sums = [
        count + nearby
        for nearby in (np.nextafter(noise, -math.inf), noise, np.nextafter(noise, math.inf))
    ]
    return float(np.mean(~np.any(np.equal(sums, values), axis=0)))


def test_float_noise_tells_the_count() -> None:
    released = 0 + 1.3 * np.random.default_rng(0).standard_normal(10_000)
    assert impossible(released, 0) == 0 and impossible(released, 1) > 0.1


@pytest.mark.parametrize("path", PATHS)
def test_released_numbers_are_possible_whatever_the_count(path: str) -> None:
    values = []
    for count in (0, 1):
        release = PATHS[path].aggregate(votes(count), generator=np.random.default_rng(count))
        assert release.noisy_counts is not None
        values.append(release.noisy_counts[release.noisy_counts != 0])
        assert len(values[-1]) > 1000 and all(
            impossible(values[-1], other) == 0 for other in range(TEACHERS + 1)
        )
    # the last digits on the grid follow one law: fifteen steps of a grid that is a millionth of the
    # noise
    grid = next(
        2.0**-at for at in range(64) if all(np.all(each * 2.0**at % 1 == 0) for each in values)
    )
    assert grid >= 2.0**-20
    digits = [np.bincount((each / grid % 16).astype(int), minlength=16) for each in values]
    assert chi2_contingency(digits).pvalue > 1e-3


def test_sums_of_scores_are_multiples_of_their_grid() -> None:
    generator = np.random.default_rng(3)
    release = noisy_sum(voters_of(40, generator), first_question(), 40, 0.7, generator)
    grid = 2.0 ** math.ceil(math.log2(release.sigma) - 20)
    assert np.all(release.total / grid % 1 == 0)
