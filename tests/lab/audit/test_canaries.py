"""Canaries among the records of another source."""

import numpy as np
import pytest

from pate.data import Role
from pate.lab.audit.canaries import CanaryRecords, Kind
from tests.lab.audit.worlds import LABELS, Drawn


def made(kind: Kind = "outlying", *, seed: int = 0, poisons: float = 0.0) -> CanaryRecords:
    return CanaryRecords(Drawn(), canaries=32, kind=kind, seed=seed, poisons=poisons)


@pytest.mark.parametrize(
    ("kind", "copies"), [("outlying", 1), ("duplicated", 2), ("mislabelled", 1)]
)
def test_records_of_the_source_stay_and_canaries_are_added(kind: Kind, copies: int) -> None:
    data, source = made(kind), Drawn()
    data.require_distinct()
    for role, more in zip(Role, (32 * copies, len(data.probe_ids), 0), strict=True):
        ours, theirs = data.records(role), source.records(role)
        assert len(ours) == len(theirs) + more
        assert np.array_equal(ours.ids[: len(theirs)], theirs.ids)
        assert np.array_equal(ours.features[: len(theirs)][:, :8], theirs.features[:])
        assert not ours.features[: len(theirs)][:, 8:].any()
        assert np.array_equal(ours.labels[: len(theirs)], theirs.labels)


def test_poisons_take_over_a_share_of_the_records() -> None:
    honest, poisoned = (made(poisons=share).records(Role.PRIVATE) for share in (0.0, 0.3))
    assert np.array_equal(honest.ids, poisoned.ids)
    rows = (honest.features[:] != poisoned.features[:]).any(axis=1)
    assert rows.sum() == 240 and not rows[-32:].any()
    assert np.array_equal(honest.labels[~rows], poisoned.labels[~rows])
    # all alike, so that usual ballots are small
    assert np.ptp(poisoned.features[:][rows], axis=0).max() == 0
    assert abs(poisoned.labels[rows].mean() - 0.5) < 4 * 0.5 / np.sqrt(240 * LABELS)


@pytest.mark.parametrize("kind", ["outlying", "duplicated", "mislabelled"])
def test_a_coin_decides_in_which_version_a_canary_is_there(kind: Kind) -> None:
    one, other = made(kind, seed=1), made(kind, seed=2)
    assert np.array_equal(one.present, made(kind, seed=1).present) and not np.array_equal(
        one.present, other.present
    )
    assert 8 < one.present.sum() < 24
    private, canaries = one.records(Role.PRIVATE), one.canaries
    for copy in one.ids:
        rows = np.flatnonzero(np.isin(private.ids, copy))
        for i, row in enumerate(rows):
            version = 0 if one.present[i] else 1
            assert np.allclose(private.features[row], canaries.features[version, i], rtol=1e-6)
            assert np.array_equal(private.labels[row], canaries.labels[version, i])
    # the public samples tell nothing of the coins
    public = [data.records(Role.PUBLIC).features[:] for data in (one, other)]
    assert kind == "mislabelled" or np.array_equal(public[0], public[1])


def test_the_scores_of_a_canary_are_its_own() -> None:
    """Answers that are linear in the features tell canaries apart, and say nothing of what all
    samples share."""
    canaries = made().canaries
    slopes = canaries.features[0, 5] / (canaries.features[0, 5] ** 2).sum()
    answers = 3 + (canaries.probes @ slopes)[:, None] * canaries.signs[5]
    scores = canaries.scores(answers)
    assert scores[5] > 0 and np.allclose(np.delete(scores, 5), 0, atol=1e-9)
    assert answers.shape == (64, LABELS)
