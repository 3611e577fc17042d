"""What votes and their public records have to bring for a release."""

import pytest

from pate._labeling.runs.vote_store import MOST_SAMPLES, require_features
from pate.aggregators import Ballots, Scores


def test_scores_of_as_many_samples_as_directions_need_no_features() -> None:
    require_features(None, "ScoreVotes", Scores, MOST_SAMPLES)
    require_features({}, "ScoreVotes", Scores, MOST_SAMPLES + 1)
    for kind, num_samples in ((Scores, MOST_SAMPLES + 1), (Ballots, 1)):
        with pytest.raises(
            ValueError, match=rf"^Expected features \[N, F\] .* samples={num_samples}$"
        ):
            require_features(None, "ScoreVotes", kind, num_samples)
