"""Whatever events are nested in whatever way: they survive JSON, and cost what their leaves
cost."""

import json

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from pate._core.accounting import events as e
from pate._core.accounting.base import event_from_dict
from pate.accounting import Cost, NeighboringRelation

GRID = np.array([1.5, 8.0, 1e3])
PROPERTY = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)

positive = st.floats(1e-3, 1e3)
unit = st.floats(1e-12, 0.5)
small = st.integers(1, 30)


@st.composite
def known_curves(draw: st.DrawFn, relation: NeighboringRelation) -> e.Event:
    orders = draw(st.lists(st.floats(1.01, 1e6), min_size=1, max_size=4, unique=True))
    rdp = draw(st.lists(st.floats(0, 1e6), min_size=len(orders), max_size=len(orders)))
    return e.RenyiCurveEvent(
        orders=tuple(sorted(orders)), rdp=tuple(rdp), neighboring_relation=relation
    )


def leaf(relation: NeighboringRelation) -> st.SearchStrategy[e.Event]:
    same = {"neighboring_relation": st.just(relation)}
    kinds: list[st.SearchStrategy[e.Event]] = [
        st.builds(e.GaussianEvent, noise_multiplier=positive, **same),
        st.builds(
            e.GaussianThresholdEvent, noise_multiplier=st.sampled_from([0.5, 3.0, 40.0]), **same
        ),
        st.builds(e.BoundedRangeEvent, eta=positive, **same),
        st.builds(e.RootPeelingEvent, eta=positive, count=small, **same),
        st.builds(e.PureDPEvent, epsilon=positive, **same),
        st.builds(e.GaussianNoisyMaxEvent, noise_multiplier=positive, num_candidates=small, **same),
        st.builds(
            e.StabilityTestEvent,
            sigma=positive,
            delta_test=unit,
            shift=small,
            num_teachers=small,
            window=st.none() | small,
            **same,
        ),
        st.builds(e.FailureEvent, delta=unit, **same),
        known_curves(relation),
    ]
    return st.one_of(kinds)


def tree(relation: NeighboringRelation) -> st.SearchStrategy[e.Event]:
    def grown(parts: st.SearchStrategy[e.Event]) -> st.SearchStrategy[e.Event]:
        composed = st.builds(
            e.ComposedEvent, events=st.lists(parts, min_size=1, max_size=4).map(tuple)
        )
        return composed | st.builds(e.RepeatedEvent, event=parts, count=small)

    return st.recursive(leaf(relation), grown, max_leaves=10)


trees = st.sampled_from(list(NeighboringRelation)).flatmap(tree)


def plainly(event: e.Event) -> Cost:
    """The cost of ``event``, part by part."""
    if isinstance(event, e.RepeatedEvent):
        return plainly(event.event) * event.count
    if isinstance(event, e.ComposedEvent):
        total = Cost.nothing(GRID)
        for part in event.events:
            total = total + plainly(part)
        return total
    return event.cost(GRID)


def require_kept(event: e.Event) -> None:
    """Compare a tree with what JSON makes of it, and its cost with that of its leaves."""
    again = event_from_dict(json.loads(json.dumps(event.to_dict(), allow_nan=False)))
    assert again == event and hash(again) == hash(event) and repr(again) == repr(event)
    found, second, expected = event.cost(GRID), again.cost(GRID), plainly(event)
    np.testing.assert_array_equal(found.rdp, second.rdp)
    np.testing.assert_array_equal(found.narrow_weights, second.narrow_weights)
    assert found._replace(rdp=None, weights=None) == second._replace(rdp=None, weights=None)  # type: ignore[arg-type]
    np.testing.assert_allclose(found.rdp, expected.rdp, rtol=1e-12)
    assert found.log_survival == pytest.approx(expected.log_survival, rel=1e-12)
    assert found.mu_squared == pytest.approx(expected.mu_squared, rel=1e-12)


@pytest.mark.slow
@given(trees)
@settings(PROPERTY, max_examples=300)
def test_so_do_many_trees(event: e.Event) -> None:
    require_kept(event)
