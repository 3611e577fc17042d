"""Canaries among the records of another source."""

import numpy as np

from pate.data import Role
from pate.lab.audit.whole import CanaryRecords
from tests.lab.audit.worlds import LABELS, Drawn


def made(*, seed: int = 0) -> CanaryRecords:
    return CanaryRecords(Drawn(), canaries=32, seed=seed)


def test_records_of_the_source_stay_and_canaries_are_added() -> None:
    data, source = made(), Drawn()
    data.require_distinct()
    for role, more in zip(Role, (32, len(data.probe_ids), 0), strict=True):
        ours, theirs = data.records(role), source.records(role)
        assert len(ours) == len(theirs) + more
        assert np.array_equal(ours.ids[: len(theirs)], theirs.ids)
        assert np.array_equal(ours.features[: len(theirs)][:, :8], theirs.features[:])
        assert not ours.features[: len(theirs)][:, 8:].any()
        assert np.array_equal(ours.labels[: len(theirs)], theirs.labels)


def test_a_coin_decides_in_which_version_a_canary_is_there() -> None:
    one, other = made(seed=1), made(seed=2)
    assert np.array_equal(one.present, made(seed=1).present) and not np.array_equal(
        one.present, other.present
    )
    assert 8 < one.present.sum() < 24
    private, canaries = one.records(Role.PRIVATE), one.canaries
    rows = np.flatnonzero(np.isin(private.ids, one.ids))
    for i, row in enumerate(rows):
        version = 0 if one.present[i] else 1
        assert np.allclose(private.features[row], canaries.features[version, i], rtol=1e-6)
        assert np.array_equal(private.labels[row], canaries.labels[version, i])
    # the public samples tell nothing of the coins
    public = [data.records(Role.PUBLIC).features[:] for data in (one, other)]
    assert np.array_equal(public[0], public[1])


def test_the_scores_of_a_canary_are_its_own() -> None:
    """Answers that are linear in the features tell canaries apart, and say nothing of what all
    samples share."""
    canaries = made().canaries
    slopes = canaries.features[0, 5] / (canaries.features[0, 5] ** 2).sum()
    answers = 3 + (canaries.probes @ slopes)[:, None] * canaries.signs[5]
    scores = canaries.scores(answers)
    assert scores[5] > 0 and np.allclose(np.delete(scores, 5), 0, atol=1e-9)
    assert answers.shape == (64, LABELS)
