"""One-shot top-k: the noise that the same guarantee takes, and the bounded range of permute-and-flip."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.integrate import quad

from pate._core.mechanisms.base import choice_event
from pate._core.validation import FloatArray, IntArray, require, require_count, require_positive
from pate.accounting import (
    ComposedEvent,
    Event,
    GaussianEvent,
    NeighboringRelation,
    Target,
    calibrate_scale,
)
from pate.mechanisms import GumbelPeeling, Mechanism, OneShotLaplace, one_shot_laplace_scale

GUMBEL_SD = math.pi / math.sqrt(6)
LAPLACE_SD = math.sqrt(2)

# one count of the two: the Laplace noise of a count has twice the scale of the Gumbel noise that
# finds it
_COUNTS_PER_GUMBEL = 2.0


class Deviations(NamedTuple):
    """Standard deviations of the noise that finds k items, and of the noise on the counts of those found."""

    finding: float
    counts: float


def laplace_by_theorem(k: int, num_items: int, epsilon: float, delta: float) -> float:
    """Return the standard deviation that Qiao, Su & Zhang (2021) claim for one-shot Laplace, items and counts alike."""
    return LAPLACE_SD * one_shot_laplace_scale(
        k=k, num_items=num_items, epsilon=epsilon, delta=delta
    )


def laplace_by_pure_bound(k: int, epsilon: float, relation: NeighboringRelation) -> float:
    """Return the standard deviation of one-shot Laplace noise with the event pure ``epsilon``."""
    return LAPLACE_SD * finding_alone(OneShotLaplace, k, epsilon, 1e-300, relation)


def gumbel_by_the_post(k: int, epsilon: float, delta: float) -> Deviations:
    """Return the deviations of the post: zCDP of ``e'^2 / 8`` for finding and for counting, and its conversion.

    Counts are taken to move in one direction, as under ADD_REMOVE_TEACHER.
    """
    require_count(1, k=k)
    log = math.log(1 / delta)
    inner = 2 * math.sqrt(log) * (math.sqrt(1 + epsilon / log) - 1)
    scale = math.sqrt(k) / inner
    return Deviations(GUMBEL_SD * scale, LAPLACE_SD * _COUNTS_PER_GUMBEL * scale)


def gumbel_by_tight_curves(
    k: int, epsilon: float, delta: float, relation: NeighboringRelation, *, gaussian: bool
) -> Deviations:
    """Return the deviations that the accountant finds for Gumbel peeling and noisy counts of the k found, together.

    Counts get Gaussian noise, or Laplace noise of twice the scale, as in the post, where counts
    move one way; where they move both ways, Gumbel noise takes twice as much, and the noise of a
    count, which moves by one, the same.
    """
    ratio = _COUNTS_PER_GUMBEL / relation.score_range

    def event(scale: float) -> Event:
        peeling = GumbelPeeling(k=k, scale=scale).event(relation)
        counting: Event
        if gaussian:
            counting = GaussianEvent(
                noise_multiplier=ratio * scale / math.sqrt(k), neighboring_relation=relation
            )
        else:
            counting = choice_event(relation, eta=1 / (ratio * scale), noise="laplace", count=k)
        return ComposedEvent(events=(peeling, counting))

    scale = _scale(event, epsilon, delta, relation)
    return Deviations(GUMBEL_SD * scale, ratio * scale * (1.0 if gaussian else LAPLACE_SD))


def _scale(
    event_of: Callable[[float], Event], epsilon: float, delta: float, relation: NeighboringRelation
) -> float:
    target = Target(epsilon=epsilon, delta=delta, num_queries=1, neighboring_relation=relation)
    return calibrate_scale(event_of, target, tolerance=1e-5)


def permute_and_flip_law(scores: Sequence[float], scale: float) -> FloatArray:
    """Return the exact law ``[d]`` of one round of permute-and-flip.

    Items come in random order, and the first one with heads on its coin of chance
    ``p_i = exp((x_i - max) / scale)`` is taken: ``p_i`` times the integral from 0 to 1 of the
    product over the others of ``1 - p_j s``.
    """
    require(len(scores) > 0, "at least one score", scores=list(scores))
    require_positive(scale=scale)
    coins = np.exp((np.asarray(scores, dtype=np.float64) - max(scores)) / scale)
    law = np.empty(len(coins))
    for i, coin in enumerate(coins):
        product = np.ones(1)
        for other in np.delete(coins, i):
            product = np.convolve(product, [1.0, -other])
        law[i] = coin * (product / np.arange(1, len(product) + 1)).sum()
    return law


def bounded_range(law: FloatArray, other: FloatArray) -> float:
    """Return by how much the log-ratios of two laws differ: the least bounded range that covers them."""
    losses = np.log(other) - np.log(law)
    return float(losses.max() - losses.min())


def bound_of_the_post(epsilon: float) -> float:
    """Return the post's lower bound on the bounded range of permute-and-flip: ``e + log(2 - exp(-e))``."""
    return epsilon + math.log(2 - math.exp(-epsilon))


class Worst(NamedTuple):
    """The neighbors on which permute-and-flip has the largest bounded range found."""

    bounded_range: float
    scores: tuple[int, ...]
    moved: tuple[int, ...]


def worst_bounded_range(
    num_items: int, most: int, epsilon: float, relation: NeighboringRelation
) -> Worst:
    """Return the largest bounded range of one round of pure ``epsilon``, over neighbors with counts up to ``most``."""
    scale = relation.score_range / epsilon
    laws = {
        scores: permute_and_flip_law(scores, scale)
        for scores in itertools.product(range(most + 1), repeat=num_items)
    }
    pairs = (
        (scores, moved) for scores in laws for moved in _moved(scores, relation) if moved in laws
    )
    return max(
        (Worst(bounded_range(laws[scores], laws[moved]), scores, moved) for scores, moved in pairs),
        key=lambda worst: worst.bounded_range,
    )


def _moved(scores: tuple[int, ...], relation: NeighboringRelation) -> Iterator[tuple[int, ...]]:
    steps = (-1, 0, 1) if relation is NeighboringRelation.REPLACE_RECORD else (0, 1)
    for move in itertools.product(steps, repeat=len(scores)):
        yield tuple(score + step for score, step in zip(scores, move, strict=True))


def peeling_law(scores: Sequence[float], k: int, scale: float) -> dict[tuple[int, ...], float]:
    """Return the law of k rounds of the exponential mechanism without replacement, by its plain definition."""
    weights = np.exp((np.asarray(scores, dtype=np.float64) - max(scores)) / scale)
    law = {}
    for chosen in itertools.permutations(range(len(scores)), k):
        left, chance = set(range(len(scores))), 1.0
        for item in chosen:
            chance *= weights[item] / sum(weights[j] for j in left)
            left.remove(item)
        law[chosen] = chance
    return law


def one_shot_pairs(scores: Sequence[float], scale: float) -> dict[tuple[int, int], float]:
    """Return the law of the two largest of scores with Gumbel noise added once, in their order, by integrals.

    A first and b second: the integral over the noisy score y of b of its density, times the
    probability that the score of a is above y and all others are below.
    """

    def chance(first: int, second: int) -> float:
        def density(y: float) -> float:
            # of noise of Gumbel below y: exp(-rate), at a rate for each score
            rates = [math.exp((score - y) / scale) for score in scores]
            below = math.exp(-sum(rates) + rates[first])  # all but the first; the second at y
            return -math.expm1(-rates[first]) * below * rates[second] / scale

        return float(
            quad(
                density, min(scores) - 5 * scale, max(scores) + 40 * scale, epsabs=1e-13, limit=200
            )[0]
        )

    return {pair: chance(*pair) for pair in itertools.permutations(range(len(scores)), 2)}


def finding_alone(
    mechanism: Callable[..., Mechanism[IntArray]],
    k: int,
    epsilon: float,
    delta: float,
    relation: NeighboringRelation,
) -> float:
    """Return the scale at which a top-k mechanism, made by ``mechanism(k=, scale=)``, meets a target."""
    return _scale(
        lambda scale: mechanism(k=k, scale=scale).event(relation), epsilon, delta, relation
    )
