"""Lists from a limited domain at the edge of what is allowed, and beyond it."""

from typing import Any

import numpy as np
import pytest

from pate import mechanisms as m
from pate.accounting import NeighboringRelation

ADD, REPLACE = NeighboringRelation.ADD_REMOVE_TEACHER, NeighboringRelation.REPLACE_RECORD
GIVEN: dict[str, Any] = {"k": 3, "kbar": 4, "scale": 1.0, "delta": 0.05, "neighboring_relation": ADD}


def run(scores: Any, seed: int = 0, **others: Any) -> m.Listed:
    return m.limited_domain(scores, **GIVEN | others, generator=m.seeded_generator(seed))


def test_a_list_is_a_prefix() -> None:
    items, listed = run(np.tile([9, 8, 7, 7, 1, 0], (500, 1)))
    assert len(np.unique(listed.sum(axis=1))) > 1
    assert (listed[:, 1:] <= listed[:, :-1]).all()
    np.testing.assert_array_equal(items == -1, ~listed)
    for row in items:
        kept = row[row >= 0].tolist()
        assert len(set(kept)) == len(kept) and set(kept) <= {0, 1, 2, 3}


def test_counts_beyond_the_domain_have_no_influence() -> None:
    scores = np.tile([9, 8, 7, 7, 1, 1, 0], (100, 1))
    other = scores.copy()
    other[:, 5:] = -(10**6)
    np.testing.assert_array_equal(run(scores).items, run(other).items)


def test_equal_scores_are_listed_only_by_failure() -> None:
    """All stand below the threshold, and each beats it with a chance of ``delta / kbar`` at most."""
    listed = run(np.full((4000, 6), 7)).listed.any(axis=1)
    assert listed.mean() < 1.2 * 0.05 * np.exp(-1)


def test_replace_record_asks_for_one_vote_more() -> None:
    scores = np.tile([20, 16, 0, 0, 0, 0], (4000, 1))
    more = np.tile([21, 17, 0, 0, 0, 0], (4000, 1))
    public = run(scores, k=2, scale=2.0)
    private = run(more, k=2, scale=2.0, neighboring_relation=REPLACE)
    # the domain's other items, a vote further below, change little
    assert abs(public.listed[:, 1].mean() - private.listed[:, 1].mean()) < 0.03


def test_all_but_one_may_be_the_domain() -> None:
    items, listed = run([90, 0, 60], k=2, kbar=2)
    assert items.tolist() == [0, 2] and listed.all()
    assert run([90, 0], k=1, kbar=1).items.tolist() == [0]


def test_event_is_peeling_but_for_delta() -> None:
    event = m.limited_domain_event(k=3, scale=2.0, delta=1e-6, neighboring_relation=REPLACE)
    peel = m.cdp_peel_event(k=3, scale=2.0, neighboring_relation=REPLACE)
    np.testing.assert_allclose(event.cost().rdp, peel.cost().rdp)
    assert event.cost().delta0 == pytest.approx(1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kbar": 6}, "Expected kbar <= 5 for 6 items, got kbar=6"),
        ({"kbar": 0}, "Expected an integer kbar >= 1, got kbar=0"),
        ({"kbar": 2}, "Expected k <= 2 for 2 items, got k=3"),
        ({"delta": 0.0}, "Expected 0 < delta < 1, got delta=0.0"),
        ({"scale": -5.0}, "Expected scale > 0, got scale=-5.0"),
        ({"neighboring_relation": "both"}, "'both' is not a valid NeighboringRelation"),
    ],
)
def test_arguments_that_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        run([1, 2, 3, 4, 5, 6], **arguments)
    assert str(caught.value) == message
