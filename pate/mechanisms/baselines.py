"""Baselines: one-shot Laplace noise, and Laplace or gamma noise on all counts."""

import math

import numpy as np
from numpy.typing import ArrayLike

from pate.accounting.events import Event, PureDPEvent
from pate.accounting.relation import NeighboringRelation
from pate.mechanisms._scores import FloatArray, IntArray, as_rows
from pate.mechanisms.lipschitz import lipschitz_event
from pate.mechanisms.noise import draw
from pate.mechanisms.peeling import largest_in_order
from pate.validation import expect_count, expect_open_unit, expect_positive


def one_shot_laplace(scores: ArrayLike, *, k: int, scale: float, generator: np.random.Generator) -> IntArray:
    """Report the k largest scores with Laplace noise, in order (Qiao, Su & Zhang (2021), Algorithm 1).

    Shapes and errors as in `pate.mechanisms.peeling.cdp_peel`; ``scale`` is that of the Laplace noise, in
    votes. Privacy: `one_shot_laplace_event`, for the ordered output.
    """
    return largest_in_order(scores, k=k, scale=scale, noise="laplace", generator=generator)


def one_shot_laplace_event(*, k: int, scale: float, neighboring_relation: NeighboringRelation) -> Event:
    """Event of `one_shot_laplace`: pure DP of ``k w / scale``, ``w`` the count window.

    Against the largest noisy score that is left out, each of the k moves by w at most, and the density of its
    noise by a factor of ``exp(w / scale)``: this covers the order too.
    """
    return lipschitz_event(noise="laplace", k=k, scale=scale, neighboring_relation=neighboring_relation)


def one_shot_laplace_scale(*, k: int, num_items: int, epsilon: float, delta: float) -> float:
    """Return the scale ``8 sqrt(k log(d / delta)) / epsilon`` at which Qiao et al. (2021), Theorem 2.1, claim
    (epsilon, delta).

    Counts move by one vote in any direction (REPLACE_RECORD). The theorem asks for ``epsilon <= 0.2`` and
    ``delta <= 0.05``. At this scale `one_shot_laplace_event` is pure
    ``epsilon sqrt(k / (16 log(d / delta)))`` DP, which is the stronger statement up to
    ``k = 16 log(d / delta)``.
    """
    expect_count(1, k=k, num_items=num_items)
    expect_positive(epsilon=epsilon)
    expect_open_unit(delta=delta)
    return 8 * math.sqrt(k * math.log(num_items / delta)) / epsilon


def laplace_counts(scores: ArrayLike, *, scale: float, generator: np.random.Generator) -> FloatArray:
    """Release every score with Laplace noise of ``scale`` votes, float64 of the shape of ``scores`` (Dwork et
    al. (2006)).

    Privacy: `laplace_counts_event`. Raises ``ValueError`` on scores that are not finite or ``scale <= 0``.
    What is released is a floating-point number: round it to a public grid before it leaves.
    """
    rows, single = as_rows(scores)
    expect_positive(scale=scale)
    noisy: FloatArray = rows.astype(np.float64) + scale * draw("laplace", generator, rows.shape)
    return noisy[0] if single else noisy


def laplace_counts_event(*, num_items: int, scale: float, neighboring_relation: NeighboringRelation) -> Event:
    """Event of `laplace_counts`: pure DP of ``d / scale``, every count moving by one vote at most under both
    relations.
    """
    expect_positive(scale=scale)
    expect_count(1, num_items=num_items)
    return PureDPEvent(neighboring_relation=neighboring_relation, epsilon=num_items / scale)


def gamma_counts(scores: ArrayLike, *, scale: float, generator: np.random.Generator) -> FloatArray:
    """Release every score with noise of density proportional to ``exp(-max_i abs(z_i) / scale)``.

    Steinke & Ullman (2017), Theorem 1.2 (the mechanism of Hardt & Talwar (2010) for the largest norm): a
    radius from a gamma law of shape d + 1, a uniform point of the cube. Shapes, errors and the warning as in
    `laplace_counts`. Privacy: `gamma_counts_event`.
    """
    rows, single = as_rows(scores)
    expect_positive(scale=scale)
    radius = generator.standard_gamma(rows.shape[1] + 1, size=(len(rows), 1))
    noisy: FloatArray = rows.astype(np.float64) + scale * radius * generator.uniform(-1.0, 1.0, rows.shape)
    return noisy[0] if single else noisy


def gamma_counts_event(*, scale: float, neighboring_relation: NeighboringRelation) -> Event:
    """Event of `gamma_counts`: pure DP of ``1 / scale`` whatever d, no count moving by more than one vote."""
    expect_positive(scale=scale)
    return PureDPEvent(neighboring_relation=neighboring_relation, epsilon=1 / scale)
