"""What votes and their public records have to bring for a release."""

import pytest

from pate._release.label_inputs import MOST_SAMPLES, require_features
from pate.aggregators import ScoreVotes


def test_scores_of_as_many_samples_as_directions_need_no_features() -> None:
    aggregator = ScoreVotes(multiplier_scores=1.0)
    require_features(None, aggregator, "scores", MOST_SAMPLES)
    require_features({}, aggregator, "scores", MOST_SAMPLES + 1)
    for ballots, num_samples in (("scores", MOST_SAMPLES + 1), ("bits", 1)):
        with pytest.raises(
            ValueError, match=rf"^Expected features \[N, F\] .* samples={num_samples}$"
        ):
            require_features(None, aggregator, ballots, num_samples)  # type: ignore[arg-type]
