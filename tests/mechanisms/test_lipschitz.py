"""Names and events of the Lipschitz mechanisms."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pate import mechanisms as m
from pate.accounting import BoundedRangeEvent, NeighboringRelation, PureDPEvent, RepeatedEvent
from pate.mechanisms.noise import Noise

ADD, REPLACE = NeighboringRelation.ADD_REMOVE_TEACHER, NeighboringRelation.REPLACE_RECORD
SCORES = np.array([[5, 3, 3, 0], [1, 1, 1, 1]])


def test_named_forms_are_the_general_one() -> None:
    forms: list[tuple[Callable[..., Any], Callable[..., Any], Noise]] = [
        (m.exponential_mechanism, m.one_shot_exponential_mechanism, "gumbel"),
        (m.permute_and_flip, m.one_shot_permute_and_flip, "exponential"),
    ]
    for named, named_set, noise in forms:
        np.testing.assert_array_equal(
            named(SCORES, scale=2.0, generator=m.seeded_generator(0)),
            m.report_noisy_max(SCORES, scale=2.0, noise=noise, generator=m.seeded_generator(0)),
        )
        np.testing.assert_array_equal(
            named_set(SCORES, k=2, scale=2.0, generator=m.seeded_generator(0)),
            m.lipschitz_top_k(SCORES, k=2, scale=2.0, noise=noise, generator=m.seeded_generator(0)),
        )


def test_a_choice_of_one_has_no_axis_of_its_own() -> None:
    assert m.exponential_mechanism(SCORES[0], scale=1.0, generator=m.seeded_generator(0)).shape == ()
    assert m.report_noisy_max(SCORES, scale=1.0, generator=m.seeded_generator(0)).shape == (2,)


def test_one_shot_gumbel_is_peeling_without_its_order() -> None:
    peeled = m.cdp_peel(SCORES, k=3, scale=2.0, generator=m.seeded_generator(0))
    chosen = m.lipschitz_top_k(SCORES, k=3, scale=2.0, generator=m.seeded_generator(0))
    np.testing.assert_array_equal(np.sort(peeled, axis=1), chosen)


def test_events() -> None:
    choice = BoundedRangeEvent(neighboring_relation=ADD, eta=0.5)
    assert m.lipschitz_event(noise="gumbel", scale=2.0, neighboring_relation=ADD) == choice
    repeated = m.lipschitz_event(noise="gumbel", k=3, scale=2.0, neighboring_relation=ADD)
    assert repeated == RepeatedEvent(event=choice, count=3)
    pure = m.lipschitz_event(noise="logistic", k=3, scale=2.0, neighboring_relation=REPLACE)
    assert pure == PureDPEvent(neighboring_relation=REPLACE, epsilon=3.0)


def test_scale_for_epsilon_gives_that_epsilon() -> None:
    scale = m.scale_for_epsilon(0.25, window=2, draws=5)
    event = m.lipschitz_event(noise="laplace", k=5, scale=scale, neighboring_relation=REPLACE)
    assert event == PureDPEvent(neighboring_relation=REPLACE, epsilon=0.25)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": 0.0, "window": 2}, "Expected epsilon > 0, got epsilon=0.0"),
        ({"epsilon": 1.0, "window": -1}, "Expected window > 0, got window=-1"),
        ({"epsilon": 1.0, "window": 2, "draws": 0}, "Expected an integer draws >= 1, got draws=0"),
    ],
)
def test_scale_for_epsilon_refuses(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        m.scale_for_epsilon(**arguments)  # type: ignore[arg-type]
    assert str(caught.value) == message


@pytest.mark.parametrize("noise", ["cauchy", "gaussian"])
def test_noise_without_a_proof_is_refused(noise: str) -> None:
    with pytest.raises(ValueError, match=f"got noise='{noise}'$"):
        m.lipschitz_top_k(SCORES, scale=1.0, noise=noise, generator=m.seeded_generator(0))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"got noise='{noise}'$"):
        m.lipschitz_event(noise=noise, scale=1.0, neighboring_relation=ADD)  # type: ignore[arg-type]
